#!/usr/bin/env python3
"""A sync that fails, and death in the middle of one.

After a failed fsync nobody knows what the disk holds, and asking again may lie. So the server must acknowledge nothing
more and end with an error; after the next start everything acknowledged is there. strace makes the Nth sync of each thread
fail with EIO, or kills the server there; a fixed amount of work by several clients at once lies around it.
"""
import os
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.crew import together  # noqa: E402
from support.server import Server, check, diag, equal, main, test  # noqa: E402
from support.trace import traced  # noqa: E402

EMBEDDED_ONLY = "syncs of SQLite's file"

LONG = os.environ.get("FANTAIL_TEST_LONG") == "1"
WRITERS = 4
POSTS_MAX = 400
SYNCS_AT_START = 6  # of the main thread, at most: earlier failures may end the server before it serves
SETTINGS = dict(rate_auth=0, rate_write=0, snapshot_every="1s", timeline_cap=20)


class Writer:
    """Posts, deletes and edits until the server is gone; remembers what was answered."""

    def __init__(self, server, number):
        self.client = server.sign_up(f"writer.{number}")
        self.captions = {}  # post → caption, acknowledged
        self.deleted = set()
        self.doubtful = set()  # touched by a request without an answer
        self.ended_with = None
        self.answered_after = 0

    def act(self, n, failed):
        posts = [p for p in self.captions if p not in self.deleted]
        known_failed = failed.is_set()
        touched = None
        try:
            if n % 7 == 5 and posts:
                touched = posts[0]
                answer = self.client.delete("/v1/posts/" + touched, timeout=10)
                if answer.status == 204:
                    self.deleted.add(touched)
            elif n % 5 == 3 and posts:
                touched = posts[-1]
                answer = self.client.patch("/v1/posts/" + touched, {"caption": f"edited {n}"}, timeout=10)
                if answer.status == 200:
                    self.captions[touched] = f"edited {n}"
            else:
                answer = self.client.post("/v1/posts", {"caption": f"post {n}"}, timeout=10)
                if answer.status == 201:
                    self.captions[answer.json["id"]] = f"post {n}"
        except OSError:
            self.doubtful.add(touched)
            return False
        if answer.status >= 500:
            answer.problem(503)
            self.doubtful.add(touched)
            failed.set()
            return False
        self.answered_after += known_failed
        return True

    def verify(self):
        mine = {p["id"]: p["caption"] for p in self.client.pages(f"/v1/accounts/{self.client.id}/posts", limit=100)}
        feed = shapes.ids(self.client.pages("/v1/feed", limit=100))
        equal(feed, sorted(set(feed), key=int, reverse=True))
        equal(set(feed), set(mine))
        for post, caption in self.captions.items():
            if post in self.deleted:
                check(post not in mine, f"deleted post {post} is back")
                self.client.get("/v1/posts/" + post).problem(404)
            elif post not in self.doubtful:
                equal(mine.get(post), caption, f"acknowledged post {post}")
            else:
                check(caption == mine.get(post) or None in (mine.get(post),) or mine[post].startswith("edited"))
        extra = set(mine) - set(self.captions)
        check(len(extra) <= len(self.doubtful), f"{len(extra)} posts that nobody sent")


def run(options, judge_exit):
    """Prepares a store, runs load on a traced server until it ends, judges its end, and verifies after a restart."""
    with Server(**SETTINGS) as server:
        writers = [Writer(server, n) for n in range(WRITERS)]
        for writer in writers:
            writer.act(0, threading.Event())
        server.stop()
        ended_at_start = False
        with traced(server, *options):
            try:
                server.start()
            except AssertionError:
                ended_at_start = True  # also an end; nothing was acknowledged
        if not ended_at_start:
            failed = threading.Event()

            def load(writer):
                for n in range(1, POSTS_MAX):
                    if not writer.act(n, failed):
                        return

            together(load, writers)
            code = server.wait_exit(15)
            judge_exit(code, server)
        server.start()
        server.drain()
        for writer in writers:
            writer.verify()
        result = server.command("check", "--all")
        equal(result.returncode, 0, result.stdout[-1000:] + result.stderr[-500:])
        equal(sum(w.answered_after for w in writers), 0, "answered after the store had failed")
        return not ended_at_start


def must_have_failed(code, server):
    check(code > 0, f"it ended with {code}, not with an error of its own:\n{server.log_tail()}")
    check("the store failed" in server.log(), server.log_tail())


def must_be_killed(code, server):
    equal(code, -signal.SIGKILL, server.log_tail())


def add_failing(calls, nth):
    @test(f"failed-sync-number-{nth}-of-{calls.replace(',', '-or-')}-ends-the-server-and-loses-nothing")
    def _():
        ran = run(["-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO:when={nth}+"], must_have_failed)
        check(ran or nth <= SYNCS_AT_START, "it ended while starting: this shows nothing")


def add_killing(nth):
    @test(f"failed-sync-kill-9-in-sync-number-{nth}-loses-nothing")
    def _():
        ran = run(["-e", "trace=fdatasync,fsync", "-e", f"inject=fdatasync,fsync:signal=KILL:when={nth}"], must_be_killed)
        check(ran or nth <= SYNCS_AT_START, "it ended while starting: this shows nothing")


for number in (1, 2, 3, 5, 8, 13, 21, 34, 55) if LONG else (1, 5, 8, 13):
    add_failing("fdatasync,fsync", number)
for number in (1, 2, 3, 4, 5, 8, 13, 21, 34, 55, 89) if LONG else (1, 5, 8, 13, 21):
    add_killing(number)


@test("failed-sync-once-is-enough-to-end-the-server")
def _():
    """The next sync would succeed; that says nothing about what was written before."""
    check(run(["-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:error=EIO:when=9"], must_have_failed))


@test("failed-sync-of-the-views-snapshot-alone-costs-nothing")
def _():
    """What is derived may fail to be saved: the server goes on, and a restart rebuilds it."""
    with Server(**SETTINGS) as server:
        writers = [Writer(server, n) for n in range(2)]
        server.stop()
        with traced(server, "-P", os.path.join(server.data, "views.snapshot.part"), "-e", "trace=fdatasync,fsync", "-e",
                    "inject=fdatasync,fsync:error=EIO:when=1+"):
            server.start()
        failed = threading.Event()
        for n in range(40):
            for writer in writers:
                check(writer.act(n, failed))
        server.operator.post("/v1/admin/save").problem(503)
        check(writers[0].act(41, failed))
        server.restart(hard=True)
        for writer in writers:
            writer.verify()


@test("failed-sync-of-a-checkpoint-ends-the-server-and-loses-nothing")
def _():
    """Enough for the log to be copied into the store, whose sync then fails."""
    caption = "😀" * 2100
    with Server(**SETTINGS) as server:
        writers = [Writer(server, n) for n in range(WRITERS)]
        server.stop()
        with traced(server, "-P", os.path.join(server.data, "fantail.db"), "-e", "trace=fdatasync,fsync", "-e",
                    "inject=fdatasync,fsync:error=EIO:when=1+"):
            server.start()

        def load(writer):
            try:
                for n in range(3000):
                    answer = writer.client.post("/v1/posts", {"caption": f"{n} {caption}"}, timeout=10)
                    if answer.status != 201:
                        answer.problem(503)
                        break
                    writer.captions[answer.json["id"]] = f"{n} {caption}"
            except OSError:
                pass
            writer.doubtful.add(None)

        together(load, writers)
        diag(f"{sum(len(w.captions) for w in writers)} posts")
        must_have_failed(server.wait_exit(15), server)
        server.start()
        server.drain()
        for writer in writers:
            writer.verify()


@test("failed-sync-write-errors-end-the-server-and-lose-nothing")
def _():
    check(run(["-e", "trace=pwrite64", "-e", "inject=pwrite64:error=EIO:when=60+"], must_have_failed))


if __name__ == "__main__":
    main()
