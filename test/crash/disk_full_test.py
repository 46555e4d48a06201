#!/usr/bin/env python3
"""A full disk: writes answer 503, reads work, and when there is room again so do writes. Nothing acknowledged is lost,
nothing refused is there.

The disk is a tmpfs of a few MiB, filled to its last byte by a ballast file. Where no file system can be mounted (not root,
and no user namespaces), that part is skipped; the other one makes every write to the store fail with ENOSPC for a while
(strace) and needs nothing.

The first tests are without the overload guard (guard-free 0): what the store itself does when there is no room. Those named overload-guard-…
are about what stops before that, in which order, and that everything goes on by itself when there is room again. The overload guard
looks ten times a second.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.deliveries import await_settled  # noqa: E402
from support.crew import together  # noqa: E402
from support.server import Server, Skip, check, diag, equal, main, test, wait_until  # noqa: E402
from support.trace import traced  # noqa: E402

EMBEDDED_ONLY = "the disk of the data folder"

DISK_MIB = 24
LARGE = "😀" * 2200  # 8,800 bytes
ATTEMPTS_MAX = 6000


class Disk:
    """A small file system of its own, that can be filled."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="fantail-disk-")
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", self.folder], capture_output=True)
        self.mounted = mount.returncode == 0
        if not self.mounted:
            os.rmdir(self.folder)
            raise Skip("no file system can be mounted here")
        self.ballast = os.path.join(self.folder, "ballast")

    def server(self, **settings):
        """A server with its data here and its log elsewhere; without the overload guard unless that is asked for."""
        settings = {**dict(guard_free=0, rate_auth=0, rate_write=0), **settings}
        server = Server(data=os.path.join(self.folder, "data"), start=False, **settings)
        server.log_path = self.folder + ".log"
        return server.start()

    def reserve(self, mib):
        with open(self.ballast, "wb") as file:
            file.write(b"\0" * (mib << 20))

    def fill(self):
        with open(self.ballast, "ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError:
                    pass

    def leave(self, mib):
        """The ballast leaves so much room."""
        room = os.statvfs(self.folder)
        more = room.f_bavail * room.f_frsize - (mib << 20)
        with open(self.ballast, "ab", buffering=0) as file:
            if more > 0:
                file.write(b"\0" * more)
            else:
                file.truncate(os.path.getsize(self.ballast) + more)

    def free(self):
        os.unlink(self.ballast)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.folder], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.unlink(self.folder + ".log")


class Ledger:
    """What was answered 201, and what 503."""

    def __init__(self, ada, bob):
        self.ada, self.bob = ada, bob
        self.kept, self.refused = [], []

    def post(self, caption):
        answer = self.ada.post("/v1/posts", {"caption": caption})
        if answer.status == 201:
            self.kept.append(answer.json["id"])
        else:
            answer.problem(503)
            check("retry-after" in answer.headers)
            self.refused.append(caption)
        return answer.status == 201

    def verify(self, server):
        """Everything acknowledged and nothing else, for author and follower."""
        server.drain()
        for client in (self.ada, self.bob):
            items = client.pages("/v1/feed", limit=100)
            equal(shapes.ids(items), self.kept[::-1])
            check(not {i["caption"] for i in items} & {c for c in self.refused if c != LARGE})
        equal(self.ada.get("/v1/me").json["post_count"], len(self.kept))
        result = server.command("check", "--all")
        equal(result.returncode, 0, result.stdout[-1000:] + result.stderr[-500:])


def two_people(server):
    ada, bob = server.sign_up("ada"), server.sign_up("bob")
    bob.put(f"/v1/accounts/{ada.id}/follow").expect(200)
    return Ledger(ada, bob)


def fill_until_refused(disk, ledger):
    """Fills the disk and posts until nothing more goes in."""
    disk.fill()
    for n in range(ATTEMPTS_MAX):
        if not ledger.post(LARGE) and not ledger.post(f"small {n}"):
            return
        if os.path.exists(disk.ballast):
            disk.fill()  # what a checkpoint gave back
    raise AssertionError(f"{ATTEMPTS_MAX} posts went onto a full disk")


def reads_work(ledger, server):
    for client in (ledger.ada, ledger.bob):
        equal(len(client.get("/v1/feed?limit=50").expect(200).json["items"]), min(50, len(ledger.kept)))
    ledger.bob.get("/v1/posts/" + ledger.kept[0]).expect(200)
    ledger.bob.get(f"/v1/accounts/{ledger.ada.id}/posts").expect(200)
    ledger.bob.get("/v1/me").expect(200)
    server.anonymous.get("/healthz").expect(200)
    # A small commit of the server's own may still find room: the flag tells of the last one.
    wait_until(lambda: not ledger.post(LARGE) and server.operator.get("/v1/admin/status").expect(200).json["db"]["full"], 20,
               "the status to say that the store is full")


@test("disk-full-writes-answer-503-reads-work-and-space-brings-writes-back")
def _():
    with Disk() as disk, disk.server() as server:
        ledger = two_people(server)
        for n in range(20):
            check(ledger.post(f"before {n}"))
        for turn in range(2):
            fill_until_refused(disk, ledger)
            for path, body in (("/v1/posts", {"caption": "x"}), (f"/v1/posts/{ledger.kept[0]}/comments", {"body": "x"})):
                equal(ledger.bob.post(path, body).status, 503, path)
            reads_work(ledger, server)
            check(server.alive())
            disk.free()
            wait_until(lambda: ledger.ada.put(f"/v1/posts/{ledger.kept[0]}/like").status == 200, 5, "writes to work again")
            check(ledger.post(f"after {turn}"), "room again, and still refused")
            ledger.verify(server)
        diag(f"{len(ledger.kept)} kept, {len(ledger.refused)} refused")
        server.restart(hard=True)
        ledger.verify(server)
        server.restart()
        ledger.verify(server)


@test("disk-full-kill-9-and-start-on-the-full-disk-lose-nothing")
def _():
    with Disk() as disk, disk.server() as server:
        ledger = two_people(server)
        check(ledger.post("before"))
        fill_until_refused(disk, ledger)
        server.kill()
        try:
            server.start()
        except AssertionError:
            diag("it does not start on a full disk")
            equal(server.process, None)  # it may refuse to start, clearly; it may not hang
            check("no space" in server.log_tail().lower() or "full" in server.log_tail().lower(), server.log_tail())
        else:
            reads = ledger.bob.get("/v1/feed?limit=50").expect(200).json["items"]
            equal(shapes.ids(reads), ledger.kept[::-1][:50])
            server.kill()
        disk.free()
        server.start()
        check(ledger.post("after"))
        ledger.verify(server)


@test("disk-full-by-the-stores-own-growth-under-many-writers-recovers-with-space")
def _():
    with Disk() as disk, disk.server() as server:
        ledger = two_people(server)
        disk.reserve(8)
        made = [Ledger(ledger.ada, ledger.bob) for _ in range(4)]

        def write(mine):
            for _ in range(ATTEMPTS_MAX):
                if not mine.post(LARGE) and len(mine.refused) > 5:
                    return

        together(write, made)
        for mine in made:
            check(mine.refused, "the disk never filled")
            ledger.kept += mine.kept
        ledger.kept.sort(key=int)
        diag(f"{len(ledger.kept)} kept")
        reads_work(ledger, server)
        disk.free()
        wait_until(lambda: ledger.ada.put(f"/v1/posts/{ledger.kept[0]}/like").status == 200, 5, "writes to work again")
        for n in range(100):
            check(ledger.post(f"after {n}"))
        ledger.verify(server)
        server.restart(hard=True)
        ledger.verify(server)


@test("disk-full-stop-with-sigterm-ends-and-loses-nothing")
def _():
    with Disk() as disk, disk.server() as server:
        ledger = two_people(server)
        check(ledger.post("before"))
        fill_until_refused(disk, ledger)
        server.stop(20)  # the views may not be saved; that costs time at the next start, nothing else
        disk.free()
        server.start()
        ledger.verify(server)


@test("disk-full-for-a-while-under-every-write-is-503-and-passes")
def _():
    """ENOSPC from the 40th to the 160th write of each thread, wherever it falls."""
    with Server(guard_free=0, rate_auth=0, rate_write=0, start=False) as server:
        with traced(server, "-e", "trace=pwrite64", "-e", "inject=pwrite64:error=ENOSPC:when=40..160"):
            server.start()
        ledger = two_people(server)
        for n in range(400):
            ledger.post(f"post {n} " + "x" * (n * 7 % 2000))
        check(ledger.refused, "no write met the full disk: this test shows nothing")
        diag(f"{len(ledger.kept)} kept, {len(ledger.refused)} refused")
        check(ledger.post("at the end"))
        check(server.alive())
        ledger.verify(server)
        server.restart(hard=True)
        ledger.verify(server)


# -- the overload guard ----------------------------------------------------------------------------------------------

GUARDED = dict(guard_free="4M", guard_reserve="1M")


def overload_guard(server):
    return server.operator.get("/v1/admin/status").expect(200).json["overload_guard"]


def await_level(server, level):
    try:
        wait_until(lambda: overload_guard(server)["level"] == level, 15, f"the overload guard's level {level}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {overload_guard(server)}") from None
    return overload_guard(server)


def import_one(server, name):
    line = '{"type":"account","username":"%s"}\n' % name
    return server.operator.post("/v1/admin/import", raw=line.encode(), headers={"Content-Type": "application/x-ndjson"})


def is_guarded(answer, why):
    """503 with when to come back, and why, in words for whoever called."""
    problem = answer.problem(503)
    check(why in problem["detail"], problem)
    check(int(answer.headers["retry-after"]) >= 1, answer.headers)


def reads_go_on(ledger, server):
    for client in (ledger.ada, ledger.bob):
        equal(len(client.get("/v1/feed?limit=50").expect(200).json["items"]), min(50, len(ledger.kept)))
    ledger.bob.get("/v1/posts/" + ledger.kept[0]).expect(200)
    server.anonymous.get("/readyz").expect(200)


def delete_some(ledger, count):
    for post in ledger.kept[-count:]:
        ledger.ada.delete("/v1/posts/" + post).expect(204)
    del ledger.kept[-count:]


def nothing_new_is_taken(ledger, server, why):
    is_guarded(ledger.ada.post("/v1/posts", {"caption": "refused"}), why)
    is_guarded(ledger.bob.post(f"/v1/posts/{ledger.kept[0]}/comments", {"body": "refused"}), why)
    is_guarded(server.anonymous.post("/v1/accounts", {"username": "refused", "password": "correct horse battery"}), why)
    is_guarded(import_one(server, "refused"), why)


@test("overload-guard-when-the-disk-fills-up-bulk-work-rests-and-posts-go-on")
def _():
    with Disk() as disk, disk.server(**GUARDED) as server:
        ledger = two_people(server)
        for n in range(300):
            check(ledger.post(f"before {n}"))
        for n in range(20):
            server.sign_up(f"extra{n}")
        server.drain()
        await_settled(server)
        equal(overload_guard(server)["level"], 0)
        replay = server.operator.post("/v1/admin/replays", {"consumer": "timelines", "rate": 40}).expect(201).json["id"]
        rebuild = server.operator.post("/v1/admin/rebuilds", {"what": "timelines", "rate": 2}).expect(201).json["id"]
        look = lambda kind, id_: server.operator.get(f"/v1/admin/{kind}/{id_}").expect(200).json  # noqa: E731
        wait_until(lambda: look("replays", replay)["seen"] > 0, 10, "the replay to begin")
        disk.leave(6)
        check("filling up" in await_level(server, 1)["why"])
        wait_until(lambda: "at risk" in look("replays", replay)["note"], 5, "the replay to say why it rests")
        wait_until(lambda: "rests" in look("rebuilds", rebuild)["note"], 5, "the rebuild to say why it rests")
        is_guarded(import_one(server, "later"), "filling up")
        at = [look("replays", replay)["position"], look("rebuilds", rebuild)["position"]]
        for n in range(20):
            check(ledger.post(f"meanwhile {n}"), "a post was refused at level 1")
        ledger.bob.post(f"/v1/posts/{ledger.kept[0]}/comments", {"body": "hello"}).expect(201)
        server.sign_up("meanwhile")
        ledger.verify(server)  # and they are delivered
        for job in (look("replays", replay), look("rebuilds", rebuild)):
            check(job["state"] == "running" and job["position"] in at, f"it did not rest: {job}")
        equal(server.operator.get("/v1/admin/health").expect(200).json["verdict"], "at risk")
        disk.free()
        await_level(server, 0)
        import_one(server, "later").expect(200)
        for kind, id_ in (("replays", replay), ("rebuilds", rebuild)):
            wait_until(lambda: look(kind, id_)["state"] == "done", 40, f"{kind} to end: {look(kind, id_)}")
            check("rest" not in look(kind, id_)["note"] and "risk" not in look(kind, id_)["note"], look(kind, id_)["note"])
        equal(look("replays", replay)["seen"], 300)
        ledger.verify(server)


@test("overload-guard-when-the-disk-is-nearly-full-nothing-new-is-taken-and-reads-and-deletes-go-on")
def _():
    with Disk() as disk, disk.server(**GUARDED) as server:
        ledger = two_people(server)
        for n in range(100):
            check(ledger.post(f"before {n}"))
        reserve = os.path.join(server.data, "reserve")
        equal(os.path.getsize(reserve), 1 << 20)
        for turn in range(2):
            disk.leave(2)
            check("nearly full" in await_level(server, 2)["why"])
            nothing_new_is_taken(ledger, server, "nearly full")
            reads_go_on(ledger, server)
            delete_some(ledger, 10)
            ledger.ada.put(f"/v1/posts/{ledger.kept[0]}/like").problem(503)
            ledger.bob.put(f"/v1/accounts/{ledger.ada.id}/follow").problem(503)
            ledger.verify(server)
            check(not os.path.exists(reserve), "the reserve is still there")
            disk.free()
            await_level(server, 0)
            check(ledger.post(f"after {turn}"), "room again, and still refused")
            ledger.verify(server)
            wait_until(lambda: os.path.exists(reserve), 5, "a new reserve")
        check(server.metrics()["fantail_http_overload_guard_total"] >= 8, "the refusals are not counted")
        server.restart(hard=True)
        ledger.verify(server)


@test("overload-guard-on-a-disk-full-to-its-last-byte-deletes-find-room-in-the-reserve")
def _():
    with Disk() as disk, disk.server(**GUARDED) as server:
        ledger = two_people(server)
        for n in range(200):
            check(ledger.post(f"before {n} " + "x" * 1000))
        server.drain()
        server.process.send_signal(signal.SIGSTOP)  # or what it gives up meanwhile would be filled, too
        disk.fill()
        server.process.send_signal(signal.SIGCONT)
        await_level(server, 2)
        wait_until(lambda: not os.path.exists(os.path.join(server.data, "reserve")), 5, "the reserve to be given up")
        is_guarded(ledger.ada.post("/v1/posts", {"caption": "refused"}), "")
        reads_go_on(ledger, server)
        delete_some(ledger, 30)  # a delete takes about 20 KiB of the log until a checkpoint gives it back
        reads_go_on(ledger, server)
        server.kill()
        server.start()  # on what is left
        reads_go_on(ledger, server)
        await_level(server, 2)
        is_guarded(ledger.ada.post("/v1/posts", {"caption": "refused"}), "")
        disk.free()
        await_level(server, 0)
        check(ledger.post("after"), "room again, and still refused")
        ledger.verify(server)
        server.restart(hard=True)
        ledger.verify(server)


@test("overload-guard-under-many-writers-stops-them-before-the-disk-is-full")
def _():
    with Disk() as disk, disk.server(**GUARDED) as server:
        ledger = two_people(server)
        disk.leave(10)
        made = [Ledger(ledger.ada, ledger.bob) for _ in range(4)]

        def write(mine):
            for _ in range(ATTEMPTS_MAX):
                if not mine.post(LARGE) and len(mine.refused) > 20:
                    return

        together(write, made)
        for mine in made:
            ledger.kept += mine.kept
        ledger.kept.sort(key=int)
        await_level(server, 2)
        delete_some(ledger, 20)
        disk.free()
        await_level(server, 0)
        check(ledger.post("after"))
        ledger.verify(server)
        diag(f"{len(ledger.kept)} kept")
        server.restart(hard=True)
        ledger.verify(server)


@test("overload-guard-on-a-long-backlog-refuses-new-posts-until-it-has-drained")
def _():
    with Server(guard_free=0, guard_backlog=100, rate_auth=0, rate_write=0) as server:
        ledger = two_people(server)
        server.operator.put("/v1/admin/lanes", {"lane": "small", "stopped": True}).expect(200)
        for n in range(70):
            check(ledger.post(f"before {n}"))
        check("backlog is long" in await_level(server, 1)["why"])
        is_guarded(import_one(server, "later"), "backlog is long")
        for n in range(25):
            check(ledger.post(f"meanwhile {n}"), "a post was refused at level 1")
        for n in range(15):
            ledger.post(f"at the limit {n}")
        check("backlog is too long" in await_level(server, 2)["why"])
        nothing_new_is_taken(ledger, server, "backlog is too long")
        equal(len(ledger.ada.get("/v1/feed?limit=50").expect(200).json["items"]), 50)
        delete_some(ledger, 5)
        server.restart(hard=True)  # a lane stopped by hand goes on after a restart, and what waited is delivered
        await_level(server, 0)
        ledger.verify(server)
        server.operator.put("/v1/admin/lanes", {"lane": "small", "stopped": True}).expect(200)
        for n in range(110):
            ledger.post(f"again {n}")
        await_level(server, 2)
        server.operator.put("/v1/admin/lanes", {"lane": "small", "stopped": False}).expect(200)
        await_level(server, 0)
        check(ledger.post("after"), "the backlog is gone, and posts are still refused")
        ledger.verify(server)


if __name__ == "__main__":
    namespaces = ["unshare", "--map-root-user", "--mount"]
    if os.geteuid() != 0 and subprocess.run([*namespaces, "true"], capture_output=True).returncode == 0:
        os.execvp(namespaces[0], [*namespaces, sys.executable, *sys.argv])
    main()
