#!/usr/bin/env python3
"""Retries over crashes: deliveries fail while the server runs, it is killed at the points where a failure becomes durable
and where it is tried again, and at any moment. A restart neither loses nor doubles a retry; when the fault is gone every
follower's feed has every post exactly once.

Deliveries fail because a file says so (FANTAIL_FAIL). The ladder of due times is checked where it is written down, and
shortened between restarts by setting due times back (test/support/deliveries.py); the first step, and the whole life of a
delivery of low priority, are waited out in real time.
"""
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.deliveries import LADDER_S, Failures, Tries, await_deliveries, hurry, matching, rows, verify_deliveries  # noqa: E402
from support.crew import together  # noqa: E402
from support.faults import died, start_with_fault  # noqa: E402
from support.place import is_cluster  # noqa: E402
from support.server import ROOT, Server, check, diag, equal, main, test, wait_until  # noqa: E402

os.environ.setdefault("FANTAIL", os.path.join(ROOT, "build-faults", "fantail"))
LONG = os.environ.get("FANTAIL_TEST_LONG") == "1"
OCCURRENCES = (1, 2, 3, 5, 8) if LONG else (1,) if is_cluster() else (1, 3)
SETTINGS = dict(celebrity_adaptive=False, rate_auth=0, rate_write=0, cleanup_rate=100000)
NO_POSTS = ("timelines UNAVAILABLE",)
NO_FOLLOWS = ("backfill UNAVAILABLE",)
EVERYTHING = NO_POSTS + NO_FOLLOWS + ("forget UNAVAILABLE", "cleanup UNAVAILABLE")


class World:
    """Three who post, three who follow them all, and what was answered."""

    def __init__(self, server):
        self.server = server
        self.lock = threading.Lock()
        self.authors = [server.sign_up(f"author{i}") for i in range(3)]
        self.readers = [server.sign_up(f"reader{i}") for i in range(3)]
        self.late = []  # follow everybody later, when there are posts already
        self.posts, self.unknown = {}, 0
        for reader in self.readers:
            self.follow_all(reader)
        server.drain()
        for reader in self.readers:
            reader.get("/v1/feed").expect(200)  # their timelines are in memory from here on …
        server.save_views()  # … and come back after a crash, as they were

    def follow_all(self, reader):
        """True when all were answered."""
        try:
            for author in self.authors:
                reader.put(f"/v1/accounts/{author.id}/follow", timeout=10).expect(200)
        except OSError:
            return False
        return True

    def arrive(self, name):
        """Somebody new follows everybody; part of it may be lost with the server, and is asked for again at the end."""
        reader = self.server.sign_up(name)
        reader.get("/v1/feed").expect(200)
        with self.lock:
            self.late.append(reader)
        return self.follow_all(reader)

    def post(self, author, caption="hello"):
        try:
            post = author.post("/v1/posts", {"caption": caption}, timeout=10).expect(201).json["id"]
        except OSError:
            with self.lock:
                self.unknown += 1
            return False
        with self.lock:
            self.posts[post] = author
        return True

    def verify(self):
        """Everybody's feed has every post once, in order, and all feeds agree."""
        self.server.drain(60)
        for reader in self.late:
            check(self.follow_all(reader))
        self.server.drain(60)
        feeds = [shapes.ids(reader.pages("/v1/feed", limit=100)) for reader in self.readers + self.late]
        for feed in feeds:
            equal(feed, sorted(set(feed), key=int, reverse=True), "a feed holds something twice, or out of order")
            check(set(self.posts) <= set(feed), f"posts are missing: {sorted(set(self.posts) - set(feed))}")
            check(len(set(feed) - set(self.posts)) <= self.unknown, "posts that nobody sent")
            equal(feed, feeds[0])
        result = self.server.command("check", "--all")
        equal(result.returncode, 0, "fantail check --all: " + result.stdout[-1500:] + result.stderr[-500:])
        verify_deliveries(self.server)


def await_rows(server, count, **wanted):
    found = await_deliveries(server, lambda all_: len(matching(all_, **wanted)) >= count, f"{count} deliveries with {wanted}")
    return matching(found, **wanted)


def on_ladder(row, retry):
    """The next try is due after its step, and at most a quarter more; a try is written down a moment after it failed."""
    step_ms = LADDER_S[retry] * 1000
    delays_ms = [row.due_at - tried_ms for tried_ms in row.tried_ms]
    check(any(step_ms - 500 <= delay_ms <= step_ms * 5 // 4 + 1 for delay_ms in delays_ms),
          f"retry {retry + 1} is due {delays_ms} ms after the tries, and not {step_ms} after one of them")


def end_failures(server, failures):
    """The fault is gone; what is delayed need not wait any longer."""
    server.kill()
    failures.clear()
    hurry(server)
    server.start()


# -- without crashes ------------------------------------------------------------------------------------


@test("retry-of-a-failed-post-comes-after-two-seconds-and-not-before")
def _():
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server)
        failures.write(*NO_POSTS)
        world.post(world.authors[0])
        row = await_rows(server, 1, consumer="timelines", state="delayed")[0]
        equal((row.tries, row.reason, row.event_id > int(list(world.posts)[0])), (1, "UNAVAILABLE", True))
        on_ladder(row, 0)
        equal(world.readers[0].get("/v1/feed").json["items"], [])
        first_ms = row.tried_ms[0]
        row = wait_until(lambda: next((r for r in rows(server) if r.tries == 2 and r.state == "delayed"), None), 10,
                         "the second try")
        check(row.tried_ms[1] >= row.tried_ms[0] + 2000, f"tried again after {row.tried_ms[1] - first_ms} ms")
        equal(row.tried_ms[0], first_ms)
        on_ladder(row, 1)
        shown = server.operator.get("/v1/admin/deliveries?consumer=timelines").expect(200).json["items"]
        equal([(d["state"], d["tries"], len(d["history"])) for d in shown], [("delayed", 2, 2)])
        equal(server.operator.get("/v1/admin/status").json["engine"]["states"]["dead"], 0)
        end_failures(server, failures)
        world.verify()
        equal([r.state for r in rows(server)], ["done"])


@test("retry-of-low-priority-ends-after-two-and-is-dropped-and-counted")
def _():
    """In real time: two retries take ten seconds and a little."""
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server)
        world.post(world.authors[0])
        server.drain()
        failures.write("cleanup UNAVAILABLE")
        post, author = world.posts.popitem()
        author.delete("/v1/posts/" + post).expect(204)
        row = wait_until(lambda: rows(server, consumer="cleanup", state="dropped"), 20, "the delivery to be dropped")[0]
        equal(row.tries, 3)
        waited = [b - a for a, b in zip(row.tried_ms, row.tried_ms[1:])]
        check(waited[0] >= 2000 and waited[1] >= 8000, f"it was tried again after {waited} ms")
        states = lambda: server.operator.get("/v1/admin/status").expect(200).json["engine"]["states"]  # noqa: E731
        wait_until(lambda: states()["dropped"] == 1, 5, "it to be counted")
        shown = server.operator.get("/v1/admin/deliveries?state=dropped").expect(200).json["items"]
        equal([(d["consumer"], d["tries"]) for d in shown], [("cleanup", 3)])
        equal(server.operator.get("/v1/admin/deliveries/groups").json["items"], [], "a dropped delivery asks for no decision")
        for reader in world.readers:
            equal(reader.get("/v1/feed").json["items"], [])
        failures.clear()
        server.restart(hard=True)
        world.verify()
        equal([(r.state, r.tries) for r in rows(server, consumer="cleanup")], [("dropped", 3)])


# -- the ladder, over restarts -----------------------------------------------------------------------------


def climb(covered):
    """A post and a follow that fail until they are dead: six retries each, whose times are set back; a kill after each."""
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world, tries = World(server), Tries()
        world.post(world.authors[0])
        server.drain()
        server.save_views()
        failures.write(*NO_POSTS, *NO_FOLLOWS)
        world.post(world.authors[1])
        late = server.sign_up("late")
        late.get("/v1/feed").expect(200)
        late.put(f"/v1/accounts/{world.authors[0].id}/follow").expect(200)
        await_rows(server, 2, state="delayed")
        for retry in range(6):
            if covered:
                server.save_views()
            for row in tries.look(server):
                equal(row.tries, retry + 1, f"{row}")
                on_ladder(row, retry)
            server.kill()
            hurry(server)
            server.start()
            wanted = (retry + 2, "dead" if retry == 5 else "delayed")
            await_deliveries(server, lambda found: all((r.tries, r.state) == wanted for r in found), f"retry {retry + 1}")
        for turn in range(3):  # dead: nothing more happens by itself, whatever is restarted
            for row in tries.look(server):
                equal((row.state, row.tries), ("dead", 7))
            server.restart(hard=turn < 2)
        failures.clear()
        server.restart(hard=True)
        equal([r.state for r in tries.look(server)], ["dead"] * 2)
        server.operator.post("/v1/admin/deliveries/redrive", {"all": True, "rate": 0}).expect(200)
        world.late.append(late)
        world.verify()


@test("retry-of-critical-deliveries-ends-dead-after-six-each-once-over-kills")
def _():
    climb(covered=True)


@test("retry-keeps-tries-and-times-when-a-restart-delivers-the-event-again")
def _():
    """What the saved views do not cover is delivered again: for what is in the delivery store that is no try."""
    climb(covered=False)


@test("retry-due-times-survive-a-restart")
def _():
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server)
        failures.write(*NO_POSTS, *NO_FOLLOWS)
        world.post(world.authors[0])
        world.arrive("late")
        await_rows(server, 2, state="delayed")
        for turn in range(2):  # so that the next steps are long ones
            server.kill()
            hurry(server)
            server.start()
            await_deliveries(server, lambda found: all(r.state == "waiting" or (r.state, r.tries) == ("delayed", turn + 2)
                                                  for r in found), f"retry {turn + 1}")
        before = {r.id: r for r in rows(server, state="delayed")}
        server.save_views()
        for hard in (True, False):
            server.restart(hard=hard)
            server.operator.get("/v1/admin/status").expect(200)
            for row in rows(server, state="delayed"):
                check(row.due_at >= before[row.id].due_at, f"{row} is due earlier after a restart")
                equal(row.tries, before[row.id].tries)
        end_failures(server, failures)
        world.verify()


@test("retry-that-waits-in-the-delivery-store-does-not-hold-up-a-stop")
def _():
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server)
        failures.write(*NO_POSTS)
        world.post(world.authors[0])
        await_rows(server, 1, state="delayed")
        server.kill()
        hurry(server)
        server.start()
        await_deliveries(server, lambda found: [(r.state, r.tries) for r in found] == [("delayed", 2)], "the first retry")
        began = time.monotonic()
        equal(server.stop(), 0)
        took_s = time.monotonic() - began
        check(took_s < LADDER_S[1] - 1, f"it took {took_s:.1f} s to stop, with nothing to do but a retry in {LADDER_S[1]} s")
        equal([(r.state, r.tries) for r in rows(server)], [("delayed", 2)])
        failures.clear()
        server.start()
        end_failures(server, failures)
        world.verify()


# -- what was done after the views were saved -----------------------------------------------------------------


def done_after_save(stop):
    with Failures() as failures, Server(env=failures.env, snapshot_every="1h", **SETTINGS) as server:
        world = World(server)
        failures.write(*NO_POSTS)
        world.post(world.authors[0])
        await_rows(server, 1, state="delayed")
        server.save_views()  # covers the event, and not what its retry will do
        failures.clear()
        server.drain()
        equal([r.state for r in rows(server)], ["done"])
        stop(server)
        server.start()
        world.verify()
        stop(server)
        server.start()
        world.verify()


@test("retry-done-after-the-views-were-saved-is-not-lost-with-their-memory")
def _():
    done_after_save(Server.kill)


@test("retry-done-after-the-views-were-saved-is-there-after-a-clean-stop")
def _():
    done_after_save(Server.stop)


# -- crashes at the points ----------------------------------------------------------------------------------


def act(world, number):
    """Posts and follows of four at a time, few enough that no lane stops; until all are done or the server is gone."""

    def one(who):
        try:
            if who == 3:
                return world.arrive(f"late{number}")
            return world.post(world.authors[who], f"{number} of {who}") and world.post(world.authors[who], f"{number} again")
        except OSError:
            return False

    together(one, range(4))


def crash_at(point, occurrence, covered):
    """True when the point was reached. `covered`: the views' saved state covers the events that are in the delivery store."""
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world, tries = World(server), Tries()
        act(world, 0)
        server.drain()
        failures.write(*EVERYTHING)
        act(world, 1)
        await_rows(server, 5, consumer="timelines", state="delayed")
        tries.look(server)
        if covered:
            server.save_views()
        server.kill()
        hurry(server)
        if point == "retry_after_done":
            failures.clear()
        reached = not start_with_fault(server, point, occurrence)
        if not reached:
            act(world, 2)
            reached = died(server, 5)
        server.kill()
        tries.look(server)
        if reached and start_with_fault(server, point, 1):  # and the way up, too
            died(server, 1)
        server.kill()
        server.start()
        tries.look(server)
        end_failures(server, failures)
        world.verify()
        equal({r.state for r in tries.look(server)}, {"done"})
        act(world, 3)
        world.verify()
        return reached


def add(point, covered):
    @test(f"retry-kill-9-at-{point}-with-the-event-{'covered-by-a-snapshot' if covered else 'still-in-the-outbox'}")
    def _():
        reached = [occurrence for occurrence in OCCURRENCES if crash_at(point, occurrence, covered)]
        diag(f"reached: {reached} of {OCCURRENCES}")
        check(1 in reached, f"{point} was never reached: this test shows nothing")


for name in ("record_before_commit", "record_after_commit", "retry_before_publish", "retry_after_done"):
    for saved in (False, True):
        add(name, saved)


@test("retry-kill-9-at-any-moment-loses-and-doubles-nothing")
def _():
    """Deliveries fail now and then, for some and for all, and the server dies again and again, on one data folder."""
    rng = random.Random(7)
    with Failures() as failures, Server(env=failures.env, snapshot_every="1s", **SETTINGS) as server:
        world, tries = World(server), Tries()
        for turn in range(40 if LONG else 5 if is_cluster() else 10):
            failures.write(*rng.sample(EVERYTHING, rng.randrange(len(EVERYTHING))))
            killer = threading.Timer(rng.random() * 0.4, server.process.kill)
            killer.start()
            act(world, turn)
            killer.join()
            server.process.wait()
            server.process = None
            tries.look(server)
            if rng.random() < 0.6:
                hurry(server)
            server.start()
        end_failures(server, failures)
        world.verify()
        check(tries.look(server), "nothing ever failed: this test shows nothing")
        diag(f"{len(world.posts)} posts, {len(tries.seen)} deliveries in the delivery store")


if __name__ == "__main__":
    main()
