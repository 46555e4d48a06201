#!/usr/bin/env python3
"""Replays and rebuilds over crashes: killed where they read, where they save and anywhere, they go on by themselves after the
next start, end with the right counts, and leave every feed as it should be.

What must hold of a replay's row at any moment: its position never passes an event that is not done, and its counts speak of
exactly the events up to its position; so at the end every selected event was counted once, however often some of them were
delivered. A rebuild counts people the same way.
"""
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.deliveries import Failures, await_deliveries, await_settled, rows, verify_deliveries  # noqa: E402
from support.crew import Crew  # noqa: E402
from support.place import is_cluster  # noqa: E402
from support.server import ROOT, Server, check, diag, equal, main, test, wait_until  # noqa: E402
from support.store import store  # noqa: E402

os.environ.setdefault("FANTAIL", os.path.join(ROOT, "build-faults", "fantail"))
LONG = os.environ.get("FANTAIL_TEST_LONG") == "1"
OCCURRENCES = (1, 2, 3, 5) if LONG else (1,) if is_cluster() else (1, 2)
POSTS = 700  # two reads of the outbox at a time, and nearly three windows
READERS = 3
SETTINGS = dict(celebrity_adaptive=False, rate_auth=0, rate_write=0, timeline_cap=1000)


class World:
    """One author with a past, and readers of it."""

    def __init__(self, server, posts=POSTS):
        self.server = server
        self.author = server.sign_up("author")
        self.readers = [server.sign_up(f"reader{i}") for i in range(READERS)]
        for reader in self.readers:
            reader.put(f"/v1/accounts/{self.author.id}/follow").expect(200)
            reader.get("/v1/feed").expect(200)
        self.posts = []
        self.post(posts)
        server.drain()
        await_settled(server)

    def post(self, count):
        for n in range(count):
            self.posts.append(self.author.post("/v1/posts", {"caption": str(n)}).expect(201).json["id"])

    def verify(self):
        self.server.drain(60)
        for reader in self.readers:
            equal(shapes.ids(reader.pages("/v1/feed", limit=100)), self.posts[::-1])
        result = self.server.command("check", "--all")
        equal(result.returncode, 0, "fantail check --all: " + result.stdout[-1500:] + result.stderr[-500:])
        verify_deliveries(self.server)


class Job:
    """A replay or a rebuild."""

    def __init__(self, server, family, **spec):
        self.server, self.family = server, family
        self.made = server.operator.post(f"/v1/admin/{family}", spec).expect(201).json
        self.id = self.made["id"]

    def look(self):
        return self.server.operator.get(f"/v1/admin/{self.family}/{self.id}").expect(200).json

    def set(self, state):
        return self.server.operator.put(f"/v1/admin/{self.family}/{self.id}", {"state": state})

    def ended(self, state="done", timeout_s=30):
        try:
            wait_until(lambda: self.look()["state"] == state, timeout_s, f"the job to be {state}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.look()}") from None
        return self.look()

    def row(self):
        """Its row in the store, also while the server is stopped."""
        with store(self.server) as database:
            return dict(database.execute("SELECT * FROM jobs WHERE id = ?", (int(self.id),)).fetchone())

    def verify_row(self, seen_before=0):
        """The counts are those of the events up to the position."""
        row = self.row()
        with store(self.server) as database:
            behind = database.execute("SELECT COUNT(*) FROM outbox WHERE type = 'post.created' AND id <= ?",
                                      (row["position"],)).fetchone()[0]
        equal(row["seen"], behind, f"the counts are not those of the position: {row}")
        equal(row["acted"] + row["repeated"] + row["suppressed"] + row["failed"], row["seen"], f"{row}")
        check(row["seen"] >= seen_before, f"it went back: {row}")
        return row["seen"]


def died(server, timeout_s):
    try:
        code = server.process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    server.process = None
    equal(code, -9, "the server ended by itself:\n" + server.log_tail())
    return True


def restart_with_fault(server, point, occurrence):
    """A server that will die there, or already has: False."""
    server.kill()
    try:
        server.start(env={"FANTAIL_FAULT": f"{point}:{occurrence}"})
    except AssertionError as error:
        check("ended with -9" in str(error), str(error))
        return False
    return True


def slowly(work):
    """Live load that leaves the machine to the replay, too."""

    def run(*arguments):
        work(*arguments)
        time.sleep(0.005)

    return run


# -- replays ----------------------------------------------------------------------------------------------


@test("replay-runs-to-its-end-in-its-own-lane-and-counts-each-event-once")
def _():
    with Server(**SETTINGS) as server:
        world = World(server)
        plan = server.operator.post("/v1/admin/replays/plan", {"consumer": "timelines"}).expect(200).json
        equal((plan["events"], plan["would_act"]), (POSTS, POSTS))
        job = Job(server, "replays", consumer="timelines", rate=0, total=plan["events"])
        ended = job.ended()
        equal((ended["seen"], ended["acted"], ended["failed"]), (POSTS, POSTS, 0))
        job.verify_row()
        lanes = {lane["name"]: lane for lane in server.operator.get("/v1/admin/status").json["engine"]["lanes"]}
        check(lanes["replay"]["delivered"] + lanes["replay"]["repeated"] >= POSTS * READERS, lanes["replay"])
        world.verify()
        server.restart(hard=True)
        equal(job.look()["state"], "done")
        world.verify()


def add_replay(point):
    @test(f"replay-killed-at-{point}-goes-on-by-itself-and-counts-each-event-once")
    def _():
        reached = []
        for occurrence in OCCURRENCES:
            with Server(**SETTINGS) as server:
                world = World(server)
                up = restart_with_fault(server, point, occurrence)
                check(up, "it died before the replay began")
                try:
                    job = Job(server, "replays", consumer="timelines", rate=2000)
                except OSError:  # it may die before it answers
                    job = None
                if died(server, 10):
                    reached.append(occurrence)
                server.kill()
                if job is None:
                    with store(server) as database:
                        id_ = str(database.execute("SELECT id FROM jobs").fetchone()[0])
                    job = Job.__new__(Job)
                    job.server, job.family, job.id = server, "replays", id_
                seen = job.verify_row()
                check(seen < POSTS or point == "replay_after_save", f"{seen} of {POSTS} are done: too late a kill")
                if restart_with_fault(server, point, 1):  # and the beginning of the next life
                    died(server, 10)
                server.kill()
                seen = job.verify_row(seen)
                server.start()
                ended = job.ended()
                equal((ended["seen"], ended["acted"], ended["failed"]), (POSTS, POSTS, 0))
                job.verify_row(seen)
                world.verify()
        diag(f"reached: {reached} of {OCCURRENCES}")
        check(1 in reached, f"{point} was never reached: this test shows nothing")


for name in ("replay_before_begin", "replay_before_save", "replay_after_save"):
    add_replay(name)


@test("replay-killed-at-any-moment-under-load-ends-with-exact-feeds")
def _():
    """People go on posting, following and unfollowing; the replay must neither overtake nor undercut them."""
    rng = random.Random(3)
    with Server(**SETTINGS) as server:
        world = World(server, posts=400)
        follower = server.sign_up("follower")
        follower.get("/v1/feed").expect(200)
        job = Job(server, "replays", consumer="timelines", rate=400)
        again = Job(server, "replays", consumer="backfill", rate=400)
        seen = 0
        for turn in range(12 if LONG else 5):
            with Crew() as crew:
                crew.start(slowly(world.post), 1)
                crew.start(lambda: follower.put(f"/v1/accounts/{world.author.id}/follow").expect(200), times=1)
                crew.start(lambda: follower.delete(f"/v1/accounts/{world.author.id}/follow").expect(200, 204), times=1)
                time.sleep(0.2 + rng.random())  # any moment will do
            server.kill()
            seen = max(seen, job.row()["seen"])
            server.start()
        follower.put(f"/v1/accounts/{world.author.id}/follow").expect(200)
        for one in (job, again):
            ended = one.ended(timeout_s=60)
            equal(ended["failed"], 0)
        check(400 <= job.look()["seen"] <= 400 + 1, f"400 events were selected: {job.look()}")
        world.readers.append(follower)
        world.verify()
        diag(f"{len(world.posts)} posts, {seen} seen before the last kill")


@test("replay-paused-resumed-and-cancelled-stays-so-over-restarts")
def _():
    with Server(**SETTINGS) as server:
        world = World(server)
        job = Job(server, "replays", consumer="timelines", rate=100)
        wait_until(lambda: job.look()["seen"] > 0, 10, "the replay to begin")
        equal(job.set("paused").expect(200).json["state"], "paused")
        server.restart(hard=True)
        at = job.look()
        equal(at["state"], "paused")
        seen = job.verify_row()
        check(0 < seen < POSTS, at)
        server.restart()
        time.sleep(1.2)  # longer than it takes to save: nothing may move
        now = job.look()
        equal((now["state"], now["position"], now["seen"]), ("paused", at["position"], at["seen"]))
        equal(job.set("running").expect(200).json["state"], "running")
        server.restart(hard=True)
        wait_until(lambda: job.look()["seen"] > seen, 10, "the replay to go on")
        equal(job.set("cancelled").expect(200).json["state"], "cancelled")
        server.restart(hard=True)
        stopped = job.look()
        check(stopped["state"] == "cancelled" and stopped["seen"] < POSTS, stopped)
        for state in ("running", "paused"):
            job.set(state).problem(409)
        other = Job(server, "replays", consumer="timelines", rate=0)  # the next one is another matter
        equal(other.ended()["seen"], POSTS)
        equal(job.look(), stopped)
        world.verify()


@test("replay-whose-deliveries-fail-puts-them-in-the-delivery-store-and-they-are-tried-again-over-a-kill")
def _():
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server, posts=12)
        server.save_views()
        failures.write("timelines UNAVAILABLE")
        job = Job(server, "replays", consumer="timelines", rate=0)
        ended = job.ended()
        equal((ended["seen"], ended["acted"], ended["failed"]), (12, 0, 12))
        recorded = await_deliveries(server, lambda found: len(found) == 12, "the failed deliveries in the delivery store")
        equal({(str(r.replay), r.state, r.tries) for r in recorded}, {(job.id, "delayed", 1)})
        server.kill()
        failures.clear()
        server.start()
        world.verify()  # which waits until they were tried again
        equal({r.state for r in rows(server)}, {"done"})
        equal(job.look()["failed"], 12)


@test("replay-of-dead-letters-selects-those-events-alone")
def _():
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server, posts=20)
        server.save_views()
        failures.write("timelines UNKNOWN_COMMIT")
        world.post(5)
        await_deliveries(server, lambda found: [r.state for r in found] == ["dead"] * 5, "dead letters")
        failures.clear()
        await_settled(server)
        server.save_views()  # else a restart would deliver the events again
        server.restart(hard=True)
        equal([r.state for r in rows(server)], ["dead"] * 5)
        job = Job(server, "replays", consumer="timelines", dead_reason="*", rate=0)
        equal(job.ended()["seen"], 5)
        for reader in world.readers:
            equal(shapes.ids(reader.pages("/v1/feed", limit=100)), world.posts[::-1])
        equal(server.operator.post("/v1/admin/deliveries/redrive", {"all": True, "rate": 0}).json["changed"], 5)
        world.verify()


# -- rebuilds ---------------------------------------------------------------------------------------------


def add_rebuild(what):
    @test(f"rebuild-of-{what}-killed-between-slices-goes-on-and-counts-everybody-once")
    def _():
        extra = 40
        with Server(**SETTINGS) as server:
            world = World(server, posts=60)
            for n in range(extra):
                server.sign_up(f"extra{n}")
            everybody = extra + READERS + 1
            server.save_views()
            check(restart_with_fault(server, "rebuild_between_slices", 3), "it died before the rebuild began")
            job = Job(server, "rebuilds", what=what, rate=40)
            check(died(server, 15), "rebuild_between_slices was never reached: this test shows nothing")
            row = job.row()
            check(row["seen"] < everybody, f"too late a kill: {row}")
            for occurrence in (1, 2):
                if restart_with_fault(server, "rebuild_between_slices", occurrence):
                    check(died(server, 15), "the rebuild did not go on by itself")
                now = job.row()
                check(now["position"] >= row["position"] and now["seen"] >= row["seen"], f"it went back: {now}")
                row = now
            server.start()
            ended = job.ended()
            equal((ended["seen"], ended["acted"]), (everybody, 0))
            world.verify()


for name in ("timelines", "counters"):
    add_rebuild(name)


@test("rebuild-killed-at-any-moment-under-load-ends-with-exact-feeds")
def _():
    rng = random.Random(5)
    with Server(**SETTINGS) as server:
        world = World(server, posts=200)
        for n in range(20):
            server.sign_up(f"extra{n}")
        jobs = [Job(server, "rebuilds", what=what, rate=10) for what in ("timelines", "counters")]
        for _ in range(10 if LONG else 4):
            with Crew() as crew:
                crew.start(slowly(world.post), 1)
                time.sleep(0.1 + rng.random() * 0.3)  # any moment will do
            server.kill()
            server.start()
        for job in jobs:
            equal(job.ended(timeout_s=60)["seen"], 20 + READERS + 1)
        world.verify()


@test("rebuild-paused-and-cancelled-stays-so-over-restarts")
def _():
    with Server(**SETTINGS) as server:
        world = World(server, posts=20)
        for n in range(20):
            server.sign_up(f"extra{n}")
        job = Job(server, "rebuilds", what="timelines", rate=10)
        wait_until(lambda: job.look()["seen"] > 0, 10, "the rebuild to begin")
        equal(job.set("paused").expect(200).json["state"], "paused")
        server.restart(hard=True)
        at = job.row()
        time.sleep(1.2)  # longer than it looks for work: nothing may move
        equal((job.look()["state"], job.row()["position"]), ("paused", at["position"]))
        job.set("running").expect(200)
        server.restart()
        wait_until(lambda: job.row()["position"] > at["position"], 10, "the rebuild to go on")
        job.set("cancelled").expect(200)
        server.restart(hard=True)
        equal(job.look()["state"], "cancelled")
        world.verify()


if __name__ == "__main__":
    main()
