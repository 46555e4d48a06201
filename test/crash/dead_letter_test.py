#!/usr/bin/env python3
"""Dead letters, parked events and lanes that stop by themselves: what operators see of them, what they can do, and what a
kill -9 in the middle of it leaves behind.

A delivery is dead at once when its outcome is unknown (UNKNOWN_COMMIT), and otherwise when its tries are used up; for that
the tries in the store are set to the last but one while the server is stopped (test/support/deliveries.py). Events that this
program cannot read are put into the outbox the same way, as a newer program would have left them.
"""
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.deliveries import Failures, await_deliveries, rows, verify_deliveries, wear_out  # noqa: E402
from support.server import ROOT, Server, check, diag, equal, main, test, wait_until  # noqa: E402
from support.store import new_id, store  # noqa: E402

os.environ.setdefault("FANTAIL", os.path.join(ROOT, "build-faults", "fantail"))
LONG = os.environ.get("FANTAIL_TEST_LONG") == "1"
SETTINGS = dict(celebrity_adaptive=False, rate_auth=0, rate_write=0, cleanup_rate=100000)
FEW = 15  # deliveries that may fail in a row without their lane stopping


class World:
    """Two who post, two who read them both, with their timelines in memory and saved."""

    def __init__(self, server, readers=2, authors=2):
        self.server = server
        self.authors = [server.sign_up(f"author{i}") for i in range(authors)]
        self.readers = [server.sign_up(f"reader{i}") for i in range(readers)]
        self.posts = []
        for reader in self.readers:
            for author in self.authors:
                reader.put(f"/v1/accounts/{author.id}/follow").expect(200)
        server.drain()
        for reader in self.readers:
            reader.get("/v1/feed").expect(200)
        server.save_views()

    def post(self, count, author=0):
        made = [self.authors[author].post("/v1/posts", {"caption": f"{n}"}).expect(201).json["id"] for n in range(count)]
        self.posts += made
        return made

    def post_in_turn(self, count):
        """A lane stops for what many fail at: the posts are of everybody."""
        for n in range(count):
            self.post(1, n % len(self.authors))

    def verify(self, missing=()):
        """Every reader has every post once but those; with none missing, everything derived is as truth says."""
        self.server.drain(60)
        wanted = sorted(set(self.posts) - set(missing), key=int, reverse=True)
        if missing:  # a node that has lost sight of its views for a moment draws from truth, where nothing is missing
            wait_until(lambda: all(shapes.ids(r.pages("/v1/feed", limit=100)) == wanted for r in self.readers), 20,
                       f"feeds without {len(missing)} posts")
        for reader in () if missing else self.readers:
            equal(shapes.ids(reader.pages("/v1/feed", limit=100)), wanted)
        if not missing:
            result = self.server.command("check", "--all")
            equal(result.returncode, 0, "fantail check --all: " + result.stdout[-1500:] + result.stderr[-500:])
        verify_deliveries(self.server)


def await_state(server, count, state):
    found = await_deliveries(server, lambda all_: [r.state for r in all_].count(state) >= count, f"{count} {state}")
    return [r for r in found if r.state == state]


def redrive(server, **how):
    return server.operator.post("/v1/admin/deliveries/redrive", how).expect(200).json


def discard(server, **how):
    return server.operator.post("/v1/admin/deliveries/discard", how).expect(200).json


def groups(server):
    """{(state, reason, consumer, type): count} as operators are told."""
    listed = server.operator.get("/v1/admin/deliveries/groups").expect(200).json["items"]
    return {(g["state"], g["reason"], g["consumer"], g["type"]): g["count"] for g in listed}


def stale(server, verdict):
    """The sentences of /v1/admin/health with that verdict; the numbers behind them are sampled once a second."""
    return [s["says"] for s in server.operator.get("/v1/admin/health").expect(200).json["stale"] if s["verdict"] == verdict]


# -- seeing and deciding ------------------------------------------------------------------------------------


@test("dead-letters-are-grouped-by-reason-and-redriven-one-a-group-or-all")
def _():
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server)
        failures.write(f"timelines UNKNOWN_COMMIT {world.authors[0].id}", f"timelines UNAVAILABLE {world.authors[1].id}")
        unknown, unavailable = world.post(4, author=0), world.post(3, author=1)
        await_state(server, 4, "dead")
        await_state(server, 3, "delayed")
        server.stop()
        wear_out(server)
        server.start()
        await_state(server, 7, "dead")
        reasons = {("dead", "UNKNOWN_COMMIT", "timelines", "post.created"): 4,
                   ("dead", "UNAVAILABLE", "timelines", "post.created"): 3}
        equal(groups(server), reasons)
        world.verify(missing=unknown + unavailable)
        wait_until(lambda: "7 dead letters" in "".join(stale(server, "dead")), 5, "health to speak of the dead letters")
        listed = server.operator.get("/v1/admin/deliveries?state=dead&reason=UNAVAILABLE").expect(200).json["items"]
        # They are listed as they were recorded; which failed first is nobody's promise.
        equal(sorted((d["tries"], json.loads(d["payload"])["object"]) for d in listed), [(7, p) for p in sorted(unavailable)])
        story = server.operator.get("/v1/admin/events/" + listed[0]["event"]).expect(200).json
        equal((story["state"], story["deliveries"][0]["reason"]), ("dead", "UNAVAILABLE"))

        server.operator.post("/v1/admin/deliveries/redrive", {"rate": 5}).problem(422)  # of what?
        server.restart(hard=True)
        equal(groups(server), reasons, "a restart changed the dead letters")
        failures.clear()
        equal(redrive(server, delivery=listed[2]["id"]), {"changed": 1, "next": None})
        world.verify(missing=unknown + unavailable[1:])
        equal(redrive(server, reason="UNAVAILABLE", rate=0)["changed"], 2)
        world.verify(missing=unknown)
        equal(groups(server), {("dead", "UNKNOWN_COMMIT", "timelines", "post.created"): 4})
        equal(redrive(server, all=True, rate=0)["changed"], 4)
        world.verify()
        equal((groups(server), redrive(server, all=True)["changed"]), ({}, 0))
        equal({r.state for r in rows(server)}, {"done"})


@test("dead-letters-that-fail-again-begin-the-ladder-anew")
def _():
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server)
        failures.write("timelines UNAVAILABLE")
        world.post(2)
        await_state(server, 2, "delayed")
        server.kill()
        wear_out(server)
        server.start()
        dead = await_state(server, 2, "dead")
        redrive(server, all=True, rate=0)
        found = await_deliveries(server, lambda all_: [(r.state, r.tries) for r in all_] == [("delayed", 1)] * 2, "one try each")
        for row in found:
            check(2000 <= row.due_at - row.tried_ms[-1] <= 2501, f"{row} is due after {row.due_at - row.tried_ms[-1]} ms")
        equal({r.id for r in found}, {r.id for r in dead})
        failures.clear()
        world.verify()


@test("dead-letters-are-redriven-at-the-rate-that-was-asked-for-also-over-a-restart")
def _():
    count, rate = FEW, 10
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server)
        failures.write("timelines UNKNOWN_COMMIT")
        world.post(count)
        await_state(server, count, "dead")
        failures.clear()
        began_ms = time.time() * 1000
        equal(redrive(server, all=True, rate=rate)["changed"], count)
        due = sorted(r.due_at for r in rows(server, state="delayed"))
        server.restart(hard=True)  # the times are kept
        check(len(due) >= count - 4 and due[-1] >= began_ms + (count - 1) * 1000 / rate - 5, f"due {due}, began {began_ms}")
        check(all(b - a >= 1000 // rate - 1 for a, b in zip(due, due[1:])), f"closer than the rate: {due}")
        world.verify()
        ended = sorted(r.changed_at for r in rows(server, state="done"))
        check(ended[-1] >= due[-1], f"the last was tried {due[-1] - ended[-1]} ms before its time")
        equal(len(ended), count)


@test("dead-letters-are-discarded-with-a-reason-that-is-recorded")
def _():
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server)
        failures.write("timelines UNKNOWN_COMMIT")
        made = world.post(3)
        dead = await_state(server, 3, "dead")
        failures.clear()
        server.operator.post("/v1/admin/deliveries/discard", {"delivery": str(dead[0].id)}).problem(422)
        server.operator.post("/v1/admin/deliveries/discard", {"delivery": str(dead[0].id), "why": "  "}).problem(422)
        equal(discard(server, delivery=str(dead[0].id), why="the author asked for it")["changed"], 1)
        server.save_views()  # else a restart would deliver the event again, to everybody
        server.restart(hard=True)
        shown = server.operator.get("/v1/admin/deliveries?state=discarded").expect(200).json["items"]
        equal([(d["id"], d["detail"], d["tries"]) for d in shown], [(str(dead[0].id), "the author asked for it", 1)])
        equal(redrive(server, all=True, rate=0)["changed"], 2)  # what was discarded stays so
        world.verify(missing=[made[2]])
        wait_until(lambda: server.operator.get("/v1/admin/status").json["engine"]["states"]["discarded"] == 1, 5, "the count")


# -- order ------------------------------------------------------------------------------------------------


def dead_follow(server, failures, world):
    """Somebody's first follow is dead; they follow and unfollow on, and so does somebody else."""
    eve, zoe = server.sign_up("eve"), server.sign_up("zoe")
    for client in (eve, zoe):
        client.get("/v1/feed").expect(200)
    failures.write(f"backfill UNKNOWN_COMMIT {eve.id}")
    eve.put(f"/v1/accounts/{world.authors[0].id}/follow").expect(200)
    await_state(server, 1, "dead")
    failures.clear()
    for client in (eve, zoe):
        client.put(f"/v1/accounts/{world.authors[1].id}/follow").expect(200)
    zoe.put(f"/v1/accounts/{world.authors[0].id}/follow").expect(200)
    await_state(server, 1, "waiting")
    return eve, zoe


def others_go_on(world, zoe, eve):
    """Whoever is not behind the dead letter notices nothing; whoever is, waits."""
    world.server.drain()
    equal(len(zoe.pages("/v1/feed", limit=100)), len(world.posts))
    equal([(r.state, r.order_key) for r in rows(world.server) if r.state in ("dead", "waiting")],
          [("waiting", int(eve.id)), ("dead", int(eve.id))])
    wait_until(lambda: world.server.operator.get("/v1/admin/status").json["engine"]["blocked_keys"] == 1, 5, "the blocked key")


@test("dead-follow-holds-that-persons-later-follows-until-it-is-redriven-while-others-go-on")
def _():
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server)
        world.post(3, author=0)
        world.post(2, author=1)
        server.drain()
        eve, zoe = dead_follow(server, failures, world)
        others_go_on(world, zoe, eve)
        for hard in (True, False):
            server.restart(hard=hard)
            others_go_on(world, zoe, eve)
            verify_deliveries(server)
        eve.delete(f"/v1/accounts/{world.authors[1].id}/follow").expect(204, 200)  # waits behind both
        await_state(server, 2, "waiting")
        redrive(server, key=eve.id, rate=0)
        server.drain()
        in_order = sorted(rows(server, order_key=eve.id), key=lambda r: r.event_id)
        equal([r.state for r in in_order], ["done"] * 3)
        ended = [r.changed_at for r in in_order]  # two may end within a millisecond
        equal(ended, sorted(ended), "they were not done in order")
        equal(len(eve.pages("/v1/feed", limit=100)), 3)
        world.readers.append(zoe)
        world.verify()


@test("dead-follow-that-is-discarded-lets-its-key-go-on")
def _():
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server)
        world.post(3, author=0)
        world.post(2, author=1)
        server.drain()
        eve, zoe = dead_follow(server, failures, world)
        others_go_on(world, zoe, eve)
        discard(server, key=eve.id, consumer="backfill", state="dead", why="not worth it")
        await_state(server, 1, "done")
        server.drain()
        equal({r.state for r in rows(server, order_key=eve.id)}, {"discarded", "done"})
        eve.put(f"/v1/accounts/{world.readers[0].id}/follow").expect(200)  # and what comes now need not wait
        server.drain()
        equal(len(rows(server, order_key=eve.id)), 2)
        check({p for p in shapes.ids(eve.pages("/v1/feed", limit=100))} >= set(world.posts[3:]), "the later follow is missing")
        equal(server.command("rebuild", "timelines", "--user", "eve").returncode, 0)
        world.readers.append(eve)
        world.verify()


# -- crashes in the middle ----------------------------------------------------------------------------------


def let_all_die(server, count):
    """The lane stops by itself again and again; it is opened by hand until everything in it has failed."""

    def step():
        server.operator.put("/v1/admin/lanes", {"lane": "small", "stopped": False}).expect(200)
        return len(rows(server, state="dead")) == count

    wait_until(step, 60, f"{count} dead letters")


def many_dead(server, failures, count):
    world = World(server, readers=1)
    failures.write("timelines UNKNOWN_COMMIT")
    world.post(count)
    let_all_die(server, count)
    failures.clear()
    return world


def await_dead_process(server):
    equal(server.process.wait(30), -9, server.log_tail())
    server.process = None


@test("dead-letters-kill-9-between-slices-of-a-redrive-changes-each-row-wholly-or-not")
def _():
    count = 1300
    with Failures() as failures, Server(env=failures.env, timeline_cap=2000, **SETTINGS) as server:
        world = many_dead(server, failures, count)
        server.restart(hard=True, env={"FANTAIL_FAULT": "redrive_between_slices:1"})
        try:
            server.operator.post("/v1/admin/deliveries/redrive", {"all": True, "rate": 0})
            raise AssertionError("it was answered although the server should have died")
        except OSError:
            await_dead_process(server)
        verify_deliveries(server)
        left = len(rows(server, state="dead"))
        check(0 < left < count, f"{left} of {count} are dead: the kill was not between two slices")
        diag(f"{count - left} re-driven before the kill")
        server.start()
        server.drain()
        equal(len(rows(server, state="dead")), left, "those that were not re-driven are still dead")
        equal(len(rows(server, state="done")), count - left)
        equal(redrive(server, all=True, rate=0), {"changed": left, "next": None})
        world.verify()
        equal(len(rows(server, state="done")), count)


@test("dead-letters-kill-9-while-redriven-ones-are-on-their-way-loses-and-doubles-none")
def _():
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server)
        failures.write("timelines UNKNOWN_COMMIT")
        world.post(FEW)
        await_state(server, FEW, "dead")
        failures.clear()
        equal(redrive(server, all=True, rate=25)["changed"], FEW)
        for _ in range(4):
            time.sleep(0.1)  # any moment will do
            server.kill()
            verify_deliveries(server)
            check(not rows(server, state="dead"), "a re-driven one is dead again, though nothing fails")
            server.start()
        world.verify()
        equal([r.state for r in rows(server)], ["done"] * FEW)


# -- parked -----------------------------------------------------------------------------------------------


def insert_event(server, type_, version, payload):
    """The server is stopped: an event as another version of this program would have committed it. Returns its id."""
    with store(server, write=True) as database:
        id_ = new_id()
        database.execute("INSERT INTO outbox (id, type, version, payload, state) VALUES (?, ?, ?, ?, 0)",
                         (id_, type_, version, payload))
    return id_


@test("parked-events-say-why-and-block-nothing")
def _():
    with Server(**SETTINGS) as server:
        world = World(server)
        world.post(1)
        server.drain()
        server.kill()
        actor = world.authors[0].id
        whole = json.dumps({"actor": actor, "object": world.posts[0], "value": 0})
        wanted = {insert_event(server, "story.created", 1, whole): "UNKNOWN_TYPE",
                  insert_event(server, "post.created", 99, whole): "UNKNOWN_VERSION",
                  insert_event(server, "post.created", 1, '{"actor":'): None}
        server.start()
        await_state(server, 3, "parked")
        for turn in range(3):  # however often it starts: once each
            world.post(2)  # the same person's next posts go on
            world.verify()
            parked = {r.event_id: r.reason for r in rows(server, state="parked")}
            equal(set(parked), set(wanted))
            others = [r.state for r in rows(server) if r.event_id not in wanted]
            equal(set(others) - {"done"}, set(), "what became of other events")  # one may have needed a second try
            for event, reason in wanted.items():
                story = server.operator.get(f"/v1/admin/events/{event}").expect(200).json
                equal(story["state"], "parked")
                check(story["deliveries"][0]["reason"] == parked[event] and reason in (None, parked[event]), story)
            server.restart(hard=turn % 2 == 0)
        equal(sum(groups(server).values()), 3)
        wait_until(lambda: stale(server, "parked"), 5, "health to speak of the parked events")
        equal(server.operator.post("/v1/admin/deliveries/release", {"all": True}).expect(200).json["changed"], 0,
              "what still cannot be read was released")
        listed = server.operator.get("/v1/admin/deliveries?state=parked").expect(200).json["items"]
        equal(discard(server, delivery=listed[0]["id"], why="made by a test")["changed"], 1)
        world.verify()
        equal(len(rows(server, state="parked")), 2)


@test("parked-event-that-can-be-read-after-all-is-released-and-delivered-also-over-a-kill")
def _():
    """The upgrade is the other way round: the row becomes what this program reads."""
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server)
        failures.write("timelines UNAVAILABLE")
        made = world.post(1)  # nobody has it yet, and its delivery will be given up: the parked event is what brings it
        row = await_state(server, 1, "delayed")[0]
        discard(server, delivery=str(row.id), why="a test needs a post that nobody was told of")
        failures.clear()
        world.verify(missing=made)
        server.save_views()  # else a restart would deliver the event again
        server.kill()
        event = insert_event(server, "post.created", 99, row.payload)
        server.start()
        await_state(server, 1, "parked")
        world.verify(missing=made)
        server.save_views()
        server.kill()
        with store(server, write=True) as database:
            database.execute("UPDATE outbox SET version = 1 WHERE id = ?", (event,))
            database.execute("UPDATE deliveries SET version = 1 WHERE event_id = ?", (event,))
        server.start()
        equal(server.operator.post("/v1/admin/deliveries/release", {"all": True}).expect(200).json["changed"], 1)
        world_has_it = lambda: all(shapes.ids(r.get("/v1/feed").json["items"]) == made for r in world.readers)  # noqa: E731
        wait_until(world_has_it, 10, "the released event to be delivered")
        wait_until(lambda: server.operator.get(f"/v1/admin/events/{event}").json["state"] == "done", 10, "its story to end")
        server.kill()
        server.start()
        wait_until(world_has_it, 20, "the released event to be delivered again")
        world.verify()
        equal(len(rows(server, state="released")), 1)


# -- lanes ------------------------------------------------------------------------------------------------


def lane(server, name):
    return next(l for l in server.operator.get("/v1/admin/status").expect(200).json["engine"]["lanes"] if l["name"] == name)


@test("lane-in-which-everything-fails-stops-by-itself-says-so-and-goes-on-by-itself")
def _():
    count = 200
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server, authors=3)
        failures.write("timelines UNAVAILABLE")
        world.post_in_turn(count)
        wait_until(lambda: lane(server, "small")["breaker"]["state"] == "stopped", 5, "the lane to stop")
        health = server.operator.get("/v1/admin/health").expect(200).json
        equal(health["verdict"], "stopped")
        equal([(l["lane"], l["reason"], l["by_hand"]) for l in health["stopped_lanes"]], [("small", "UNAVAILABLE", False)])
        check("stopped by itself" in health["stopped_lanes"][0]["says"], health["stopped_lanes"])
        check("most deliveries of a lane fail for one reason; the lane is stopped" in server.log(), server.log_tail())
        server.anonymous.get("/readyz").expect(200)  # it is ready: what is stale is another question
        zoe = server.sign_up("zoe")  # the other lanes go on
        zoe.get("/v1/feed").expect(200)
        zoe.put(f"/v1/accounts/{world.authors[0].id}/follow").expect(200)
        wait_until(lambda: lane(server, "graph")["delivered"] >= 1 and lane(server, "graph")["backlog"] == 0, 5, "lane graph")
        recorded = len(rows(server))
        check(20 <= recorded < count, f"{recorded} of {count} deliveries are in the delivery store: the lane did not stop in time")
        failures.clear()
        wait_until(lambda: lane(server, "small")["breaker"]["state"] == "running", 15, "the lane to go on")
        check("a stopped lane goes on" in server.log(), server.log_tail())
        world.verify()
        diag(f"{recorded} of {count} were in the delivery store")
        equal({r.state for r in rows(server)}, {"done"})
        equal(server.operator.get("/v1/admin/health").json["stopped_lanes"], [])


@test("lane-that-was-stopped-loses-nothing-when-the-server-dies-and-an-operator-can-open-it")
def _():
    with Failures() as failures, Server(env=failures.env, **SETTINGS) as server:
        world = World(server, authors=3)
        failures.write("timelines UNAVAILABLE")
        world.post_in_turn(100)
        wait_until(lambda: lane(server, "small")["breaker"]["state"] == "stopped", 5, "the lane to stop")
        server.kill()
        server.start()  # it tries, and stops once more
        wait_until(lambda: lane(server, "small")["breaker"]["state"] == "stopped", 5, "the lane to stop again")
        failures.clear()
        server.operator.put("/v1/admin/lanes", {"lane": "small", "stopped": False}).expect(200)
        equal(lane(server, "small")["breaker"]["state"], "running")
        world.verify()
        server.operator.put("/v1/admin/lanes", {"lane": "small", "stopped": True}).expect(200)
        world.post(3)
        equal(lane(server, "small")["breaker"]["state"], "by hand")
        check("stopped by hand" in server.operator.get("/v1/admin/health").json["stopped_lanes"][0]["says"])
        wait_until(lambda: lane(server, "small")["backlog"] == 3, 5, "the posts to wait")
        server.restart(hard=True)  # a stop by hand is for this life of the server
        world.verify()


if __name__ == "__main__":
    main()
