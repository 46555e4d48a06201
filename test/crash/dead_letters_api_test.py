#!/usr/bin/env python3
"""Deliveries that fail: tried again after their time, dead after their tries, in order behind each other, and what an
operator decides about them; with kill -9 in between. Needs a program with fault points: FANTAIL_FAIL names a file that
says which consumer fails, and how."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import ROOT, Server, check, equal, main, program, test, wait_until  # noqa: E402
from support.store import store  # noqa: E402

os.environ.setdefault("FANTAIL", os.path.join(ROOT, "build-faults", "fantail"))
LOOK_EVERY_S = 0.03  # base/fault.c


class FailingServer(Server):
    """A server whose deliveries can be made to fail while it runs."""

    def __init__(self, **settings):
        self.fail_path = tempfile.mktemp(prefix="fantail-fail-")
        self.failing()
        super().__init__(rate_auth=0, env={"FANTAIL_FAIL": self.fail_path}, **settings)

    def failing(self, *lines):
        with open(self.fail_path + ".new", "w") as f:
            f.write("".join(line + "\n" for line in lines))
        os.replace(self.fail_path + ".new", self.fail_path)
        time.sleep(LOOK_EVERY_S)  # the program looks at the file no more often; nothing else shows that it has

    def close(self):
        super().close()
        if os.path.exists(self.fail_path):
            os.unlink(self.fail_path)

    def event(self, kind, actor, obj=None):
        return wait_until(lambda: [e["id"] for e in self.operator.get(f"/v1/events?limit=1000&types={kind}").json["items"]
                                   if e["data"]["actor"] == actor and obj in (None, e["data"]["object"])], 10, kind)[-1]

    def story(self, event):
        return self.operator.get(f"/v1/admin/events/{event}").expect(200).json

    def await_state(self, event, *states, timeout_s=30):
        return wait_until(lambda: (lambda s: s if s["state"] in states else None)(self.story(event)), timeout_s,
                          f"event {event} to be {states}: {self.story(event)}")

    def deliveries(self, **query):
        return self.operator.pages("/v1/admin/deliveries?" + "&".join(f"{k}={v}" for k, v in query.items()), limit=100)

    def people(self, *names):
        return [self.sign_up(name) for name in names]

    def cli(self, *words, code=0):
        done = subprocess.run([program(), *map(str, words), "--data", self.data], capture_output=True, text=True, timeout=120)
        equal(done.returncode, code, f"{words}: {done.stdout} {done.stderr}")
        return done.stdout + done.stderr


def dead_follow(server, *names):
    """ada follows bob, and the backfill of that dies at its first try: nobody knows whether it happened."""
    ada, bob = server.people(*(names or ("ada", "bob")))
    post = bob.post("/v1/posts", {"caption": "earlier"}).expect(201).json["id"]
    server.await_state(server.event("post.created", bob.id, post), "done")  # or it is pushed after the follow
    server.failing("backfill UNKNOWN_COMMIT " + ada.id)
    ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
    event = server.event("follow.created", ada.id, bob.id)
    server.await_state(event, "dead")
    return ada, bob, post, event


@test("dead-letter-shows-its-reason-its-try-and-what-to-do")
def _():
    with FailingServer() as server:
        ada, bob, _, event = dead_follow(server)
        told = server.story(event)
        row = told["deliveries"][0]
        equal((row["state"], row["consumer"], row["reason"], row["tries"]), ("dead", "backfill", "UNKNOWN_COMMIT", 1))
        equal((row["event"], row["key"], row["due_at"]), (event, ada.id, None))
        equal([h["reason"] for h in row["history"]], ["UNKNOWN_COMMIT"])
        check(shapes.is_time(row["history"][0]["at"]))
        check(json.loads(row["payload"])["object"] == bob.id)
        check({"failed", "dead"} & {r["kind"] for r in told["trace"]}, str(told["trace"]))
        groups = server.operator.get("/v1/admin/deliveries/groups").expect(200).json["items"]
        equal([(g["state"], g["reason"], g["consumer"], g["type"], g["count"]) for g in groups],
              [("dead", "UNKNOWN_COMMIT", "backfill", "follow.created", 1)])
        for query, found in (({"state": "dead"}, 1), ({"reason": "UNKNOWN_COMMIT"}, 1), ({"key": ada.id}, 1),
                             ({"key": bob.id}, 0), ({"consumer": "timelines"}, 0), ({"type": "follow.created"}, 1),
                             ({"event": event}, 1), ({"state": "delayed"}, 0)):
            equal(len(server.deliveries(**query)), found, str(query))
        server.operator.get("/v1/admin/deliveries?state=ill").problem(400)
        health = wait_until(lambda: (lambda h: h if h["dead"] == 1 else None)(
            server.operator.get("/v1/admin/health").json), 10, "health to know")
        equal(health["verdict"], "behind")
        check(any("fantail dead groups" in s["says"] for s in health["stale"]), str(health["stale"]))
        metrics = server.anonymous.get("/metrics").text
        check('fantail_deliveries{consumer="backfill",state="dead"} 1\n' in metrics)
        check('fantail_event_states{state="dead"} 1\n' in metrics)
        check("UNKNOWN_COMMIT" in server.cli("dead", "groups") and event in server.cli("dead", "list"))
        check("fantail dead redrive --event " + event in server.cli("event", event))
        check("1 dead letter waits" in server.cli("status"))


@test("dead-letters-are-not-changed-by-a-selection-that-is-wider-than-was-meant")
def _():
    with FailingServer() as server:
        _, _, _, event = dead_follow(server)
        for body in ({"consumer": "backfill", "resaon": "TIMEOUT"}, {"consumer": "backfill", "reason": ""},
                     {"consumer": "backfill", "event": "0"}, {"all": True, "next": "0:1:9223372036854775807"},
                     {"all": True, "next": "0:18446744073709551615:1"}, {"all": True, "next": "0:1:-1"}):
            for verb in ("redrive", "discard", "release"):
                server.operator.post("/v1/admin/deliveries/" + verb, dict(body, why="because")).problem(422)
        equal(server.story(event)["deliveries"][0]["state"], "dead")
        equal(server.operator.post("/v1/admin/deliveries/discard", {"all": True, "state": "parked", "why": "because"})
              .expect(200).json, {"changed": 0, "next": None})


@test("dead-letter-holds-up-its-own-key-alone-and-redrive-lets-both-go-in-order")
def _():
    with FailingServer() as server:
        ada, bob, post, first = dead_follow(server)
        eve, = server.people("eve")
        ada.put(f"/v1/accounts/{eve.id}/follow").expect(200)  # behind the dead one
        second = server.event("follow.created", ada.id, eve.id)
        server.await_state(second, "waiting")
        eve.put(f"/v1/accounts/{bob.id}/follow").expect(200)  # another key
        server.await_state(server.event("follow.created", eve.id, bob.id), "done")
        wait_until(lambda: server.operator.get("/v1/admin/status").json["engine"]["blocked_keys"] == 1, 10, "the blocked key")
        server.restart(hard=True)  # the delivery store is durable
        server.await_state(first, "dead")
        server.await_state(second, "waiting")
        server.failing()
        equal(server.operator.post("/v1/admin/deliveries/redrive", {"event": first}).expect(200).json,
              {"changed": 1, "next": None})
        server.await_state(first, "done")
        server.await_state(second, "done")
        equal(shapes.ids(ada.get("/v1/feed").json["items"]), [post])
        closed = {d["event"]: d["state"] for d in server.deliveries()}
        equal(closed, {first: "done", second: "done"})
        wait_until(lambda: server.operator.get("/v1/admin/health").json["verdict"] == "green", 20, "health to be green")


@test("explain-dead-backfill-names-the-dead-letter-and-what-waits-behind-it")
def _():
    with FailingServer() as server:
        ada, bob, post, first = dead_follow(server)
        eve, = server.people("eve")
        later = eve.post("/v1/posts", {"caption": "earlier, too"}).expect(201).json["id"]
        server.await_state(server.event("post.created", eve.id, later), "done")  # or it is pushed after the follow
        ada.put(f"/v1/accounts/{eve.id}/follow").expect(200)
        server.await_state(server.event("follow.created", ada.id, eve.id), "waiting")
        dead, = server.deliveries(state="dead")
        path = f"/v1/admin/explain?user={ada.id}&post="
        told = server.operator.get(path + post).expect(200).json
        check(f"delivery {dead['id']} (backfill) is dead: UNKNOWN_COMMIT" in told["verdict"], told["verdict"])
        check("fantail dead redrive" in told["verdict"], told["verdict"])
        told = server.operator.get(path + later).expect(200).json
        check(f"waits behind delivery {dead['id']}, which is dead: UNKNOWN_COMMIT" in told["verdict"], told["verdict"])
        server.failing()
        server.operator.post("/v1/admin/deliveries/redrive", {"event": first}).expect(200)
        wait_until(lambda: server.operator.get(path + later).json["visible"], 20, "the post to come")


@test("audit-finds-a-feed-that-differs-while-another-has-a-dead-letter")
def _():
    with FailingServer(audit_every="100ms") as server:
        ada, bob, _, _ = dead_follow(server)
        eve, = server.people("eve")
        eve.put(f"/v1/accounts/{ada.id}/follow").expect(200)
        eve.get("/v1/feed").expect(200)
        server.stop()
        with store(server, write=True) as database:
            database.execute("INSERT INTO follows (follower_id, followee_id, created_at) VALUES (?, ?, ?)",
                             (int(eve.id), int(bob.id), int(time.time() * 1000)))
        server.start()
        wait_until(lambda: server.metrics()["fantail_audit_drift"] > 0, 30, "the audit to find eve's feed")
        wait_until(lambda: server.metrics()["fantail_audit_feeds_total"] > 30, 30, "all feeds to be looked at")
        equal(server.metrics()["fantail_audit_drift"], 1, "ada's feed has its dead letter")
        server.command("check", "--user", "eve", "--repair")
        wait_until(lambda: server.metrics()["fantail_audit_drift"] == 0, 30, "the gauge to fall")


@test("dead-letters-are-discarded-only-with-a-reason-that-is-kept")
def _():
    with FailingServer() as server:
        _, _, _, event = dead_follow(server)
        for body in ({"event": event}, {"event": event, "why": " "}, {"event": event, "why": "x" * 200}):
            check("why" in server.operator.post("/v1/admin/deliveries/discard", body).problem(422)["detail"])
        server.cli("dead", "discard", "--event", event, code=2)
        check("1 discarded" in server.cli("dead", "discard", "--event", event, "--why", "the owner asked for it"))
        row, = server.deliveries(event=event)
        equal((row["state"], row["detail"]), ("discarded", "the owner asked for it"))
        equal(server.operator.post("/v1/admin/deliveries/redrive", {"event": event}).json["changed"], 0)
        check("nothing that could be" in server.cli("dead", "redrive", "--event", event))
        server.await_state(event, "done")


@test("dead-letter-changes-want-a-filter-or-all-in-words")
def _():
    with FailingServer() as server:
        dead_follow(server)
        for verb, more in (("redrive", {}), ("discard", {"why": "x"}), ("release", {})):
            target = "/v1/admin/deliveries/" + verb
            check('"all": true' in server.operator.post(target, more).problem(422)["detail"])
            server.operator.post(target, {"all": True, "reason": "X", **more}).problem(422)
            server.operator.post(target, {"all": 1, **more}).problem(422)
            server.operator.post(target, {"event": "x", **more}).problem(422)
            server.operator.post(target, {"all": True, "state": "done", **more}).problem(422)
            server.operator.post(target, {"all": True, "next": "zzz", **more}).problem(422)
        server.operator.post("/v1/admin/deliveries/redrive", {"all": True, "rate": -1}).problem(422)
        check("--all" in server.cli("dead", "redrive", code=2))
        check("not both" in server.cli("dead", "redrive", "--all", "--reason", "X", code=2))
        equal(len(server.deliveries(state="dead")), 1)
        server.failing()
        check("1 tried again" in server.cli("dead", "redrive", "--all", "--rate", 10))


@test("delayed-delivery-keeps-its-time-over-a-crash-and-ends-after-the-fault-has")
def _():
    with FailingServer() as server:
        ada, bob = server.people("ada", "bob")
        post = bob.post("/v1/posts", {"caption": "earlier"}).expect(201).json["id"]
        server.failing("backfill UNAVAILABLE")
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        event = server.event("follow.created", ada.id)
        before = server.await_state(event, "delayed")["deliveries"][0]
        check(before["tries"] >= 1 and before["reason"] == "UNAVAILABLE", str(before))
        check(before["state"] == "retrying" or shapes.is_time(before["due_at"]), str(before))
        server.restart(hard=True)
        after = server.await_state(event, "delayed")["deliveries"][0]
        check(after["tries"] >= before["tries"] and after["id"] == before["id"], f"{before} became {after}")
        server.failing()
        ended = server.await_state(event, "done", timeout_s=60)
        equal([d["state"] for d in ended["deliveries"]], ["done"])
        equal(shapes.ids(ada.get("/v1/feed").json["items"]), [post])


@test("delivery-of-low-priority-is-dropped-after-its-tries-and-counted")
def _():
    with FailingServer() as server:
        ada, bob = server.people("ada", "bob")
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        server.failing("forget UNAVAILABLE")
        ada.delete(f"/v1/accounts/{bob.id}/follow").expect(200)
        event = server.event("follow.removed", ada.id)
        row = wait_until(lambda: server.deliveries(event=event, state="dropped"), 40, "it to be dropped")[0]
        equal((row["tries"], row["consumer"]), (3, "forget"))
        wait_until(lambda: "fantail_events_dropped_total 1\n" in server.anonymous.get("/metrics").text, 10, "the count")
        server.await_state(event, "done")


@test("lane-in-which-most-fails-stops-by-itself-and-goes-on-when-told")
def _():
    with FailingServer() as server:
        ada, *authors = server.people("ada", "bob", "cid", "dan")  # one author's trouble would not stop it
        for author in authors:
            ada.put(f"/v1/accounts/{author.id}/follow").expect(200)
        server.await_state(server.event("follow.created", ada.id), "done")
        server.failing("timelines UNAVAILABLE")
        posts = [authors[n % 3].post("/v1/posts", {"caption": str(n)}).expect(201).json["id"] for n in range(60)]
        health = wait_until(lambda: (lambda h: h if h["stopped_lanes"] else None)(
            server.operator.get("/v1/admin/health").json), 20, "the lane to stop")
        stopped = health["stopped_lanes"][0]
        equal((stopped["lane"], stopped["by_hand"], stopped["reason"]), ("small", False, "UNAVAILABLE"))
        check("failed with UNAVAILABLE" in stopped["says"], stopped["says"])
        check(len(server.deliveries()) < 60, "the lane filled the delivery store instead of stopping")
        server.failing()
        server.operator.put("/v1/admin/lanes", {"lane": "small", "stopped": False}).expect(200)
        wait_until(lambda: sorted(shapes.ids(ada.get("/v1/feed?limit=100").json["items"])) == sorted(posts), 60,
                   "every post to arrive")


@test("replay-of-dead-letters-finds-them-by-reason")
def _():
    with FailingServer() as server:
        ada, _, post, event = dead_follow(server)
        server.failing()
        wait_until(lambda: server.story(event)["settled"], 20, "the watermark to pass it")

        def planned(reason):
            return server.operator.post("/v1/admin/replays/plan", {"consumer": "backfill", "dead_reason": reason}).json["events"]

        wait_until(lambda: planned("UNKNOWN_COMMIT") == 1, 20, "its row to be settled")
        equal((planned("*"), planned("UNAVAILABLE")), (1, 0))
        check(re.search(r"events that match +1\b", server.cli("replay", "plan", "--consumer", "backfill", "--dead", "*")))


def bury(server, count):
    """Dead letters of a post that is not there any more, straight into the delivery store of a server that is stopped."""
    first = 10 ** 17
    payload = json.dumps({"actor": "5", "object": "7", "value": 0})
    with store(server, write=True) as db:
        db.executemany(
            "INSERT INTO deliveries (id, event_id, type, version, payload, consumer, lane, order_key, part, active_since,"
            " started, after, until, epoch, state, tries, due_at, opened_at, changed_at, reason)"
            " VALUES (?, ?, 'post.created', 1, ?, 'timelines', 'small', 0, 0, 0, 0, 0, 0, 0, 4, 7, 0, ?, 1, 'UNAVAILABLE')",
            ((first + n, first + n, payload, int(time.time() * 1000)) for n in range(count)))
        db.execute("INSERT INTO delivery_counts (consumer, type, lane, state, reason, count)"
                   " VALUES ('timelines', 'post.created', 'small', 4, 'UNAVAILABLE', ?)", (count,))


@test("redrive-keeps-its-rate-from-one-request-to-the-next")
def _():
    with FailingServer() as server:
        server.stop()
        bury(server, 25000)
        server.start()
        began_ms = int(time.time() * 1000)
        first = server.operator.post("/v1/admin/deliveries/redrive", {"reason": "UNAVAILABLE", "rate": 10}).expect(200).json
        equal(first["changed"], 20000)
        second = server.operator.post("/v1/admin/deliveries/redrive",
                                      {"reason": "UNAVAILABLE", "rate": 10, "next": first["next"]}).expect(200).json
        equal((second["changed"], second["next"]), (5000, None))
        server.kill()
        with store(server) as db:
            last_ms, = db.execute("SELECT MAX(due_at) FROM deliveries WHERE state = 1").fetchone()
            check(abs(last_ms - began_ms - 24999 * 100) < 30000, f"the last is due after {last_ms - began_ms} ms")
            crowded, = db.execute("SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM deliveries WHERE state = 1"
                                  " GROUP BY due_at / 1000) AS seconds").fetchone()
            check(crowded <= 11, f"{crowded} are due in one second")


@test("redrive-that-is-killed-between-slices-goes-on-with-the-rest")
def _():
    with FailingServer() as server:
        server.stop()
        count = 3000
        bury(server, count)
        server.start(env={"FANTAIL_FAULT": "redrive_between_slices:1"})
        try:
            server.operator.post("/v1/admin/deliveries/redrive", {"reason": "UNAVAILABLE", "rate": 0}, timeout=30)
            check(False, "it was not killed")
        except OSError:
            equal(server.wait_exit(), -9)
        server.start()
        left = sum(g["count"] for g in server.operator.get("/v1/admin/deliveries/groups").json["items"])
        equal(left, 2000, "a slice is changed wholly or not at all")
        said = server.cli("dead", "redrive", "--all", "--rate", 0)
        check("2,000 tried again" in said, said)
        wait_until(lambda: server.operator.get("/v1/admin/status").json["engine"]["states"]["delayed"] == 0 and
                   not server.deliveries(state="retrying"), 60, "all to be tried")
        server.stop()
        with store(server) as db:
            equal(dict(db.execute("SELECT state, COUNT(*) FROM deliveries GROUP BY state")), {5: count})


if __name__ == "__main__":
    main()
