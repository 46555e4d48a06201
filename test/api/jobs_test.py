#!/usr/bin/env python3
"""Replays and rebuilds, through the API and the command line: plan, start, pause, resume, cancel, refusals, restarts."""
import json
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import Server, check, equal, main, program, test, wait_until  # noqa: E402
from support.store import store  # noqa: E402

SERVER = Server(rate_auth=0)
ADA, BOB = SERVER.sign_up("ada"), SERVER.sign_up("bob")
ADA.put(f"/v1/accounts/{BOB.id}/follow").expect(200)
POSTS = [BOB.post("/v1/posts", {"caption": str(n)}).expect(201).json["id"] for n in range(20)]
wait_until(lambda: SERVER.operator.get("/v1/admin/status").json["engine"]["states"]["settled"] == 23, 20, "all to settle")


def plan(server=SERVER, **spec):
    """The sum of all slices."""
    total, position = {}, "0"
    while True:
        slice_ = server.operator.post("/v1/admin/replays/plan", {**spec, "position": position}).expect(200).json
        for name, value in slice_.items():
            if type(value) is int:
                total[name] = total.get(name, 0) + value
        position = slice_["position"]
        if slice_["end"]:
            return {**total, "refused": slice_["refused"], "channels": slice_["channels"]}


def start(server=SERVER, **spec):
    return server.operator.post("/v1/admin/replays", spec).expect(201).json


def job(kind, number, server=SERVER):
    return server.operator.get(f"/v1/admin/{kind}/{number}").expect(200).json


def await_job(kind, number, state, server=SERVER):
    return wait_until(lambda: (lambda j: j if j["state"] == state else None)(job(kind, number, server)), 30,
                      f"{kind} {number} to be {state}: {job(kind, number, server)}")


def fantail(*words, server=SERVER, code=0):
    done = subprocess.run([program(), *map(str, words), "--data", server.data], capture_output=True, text=True, timeout=120)
    equal(done.returncode, code, f"{words}: {done.stdout} {done.stderr}")
    return done


@test("replay-plan-right-after-a-delivery-calls-nothing-under-way")
def _():
    with Server(rate_auth=0) as server:
        ada, bob = (server.sign_up(name) for name in ("ada", "bob"))
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        for i in range(5):
            post = bob.post("/v1/posts", {"caption": str(i)}).expect(201).json["id"]
            wait_until(lambda: post in shapes.ids(ada.get("/v1/feed").json["items"]), 10, "the post")
            wait_until(lambda: server.operator.get("/v1/admin/status").json["engine"]["drained"], 10, "the end of its delivery")
            told = plan(server, consumer="timelines")
            equal((told["events"], told["undone"]), (i + 1, 0))


@test("replay-plan-counts-what-start-would-do-and-does-nothing")
def _():
    told = plan(consumer="timelines")
    equal((told["events"], told["would_act"], told["undone"], told["suppressed"], told["refused"]), (20, 20, 0, 0, None))
    equal([(c["channel"], c["would_act"]) for c in told["channels"]], [("views", 20)])
    equal(plan(consumer="backfill")["events"], 1)
    equal(plan(consumer="timelines", key=ADA.id)["events"], 0)
    equal(plan(consumer="timelines", key=BOB.id, type="post.created")["events"], 20)
    equal(plan(consumer="timelines", to="2026-01-01T00:00:00Z")["events"], 0)
    equal(plan(consumer="timelines", to=1767225600000)["events"], 0, "ms since 1970")
    equal(plan(consumer="timelines", dead_reason="*")["events"], 0)
    equal(SERVER.operator.get("/v1/admin/replays").json["items"], [])


@test("replay-start-delivers-again-under-the-same-ids-and-changes-nothing-that-is-right")
def _():
    before = shapes.ids(ADA.get("/v1/feed?limit=100").json["items"])
    made = start(consumer="timelines", total=20)
    equal((made["kind"], made["total"], made["spec"]["consumer"]), ("replay", 20, "timelines"))
    ended = await_job("replays", made["id"], "done")
    equal((ended["seen"], ended["failed"], ended["suppressed"]), (20, 0, 0))
    equal(shapes.ids(ADA.get("/v1/feed?limit=100").json["items"]), before)
    event = SERVER.operator.get("/v1/events?types=post.created&limit=1").json["items"][0]["id"]
    lanes = [r["lane"] for r in SERVER.operator.get(f"/v1/admin/events/{event}").json["trace"] if r["kind"] == "batch"]
    equal(lanes, ["small", "replay"], "its story tells of both deliveries")


@test("replay-refuses-with-422-what-it-does-not-understand-and-names-what-there-is")
def _():
    for spec, words in (
        ({}, "consumer"), ({"consumer": "timeline"}, "timelines"), ({"consumer": "timelines", "type": "follow.created"}, "post.created"),
        ({"consumer": "timelines", "from": "yesterday"}, "from"), ({"consumer": "timelines", "typ": "x"}, "typ"),
        ({"consumer": "timelines", "allow": ["email"]}, "email"), ({"consumer": "timelines", "key": "ada"}, "key"),
        ({"consumer": "timelines", "rate": -1}, "rate"), ({"consumer": "timelines", "rate": "fast"}, "rate"),
        ({"consumer": "timelines", "from": "2026-11-02T00:00:00Z", "to": "2026-11-01T00:00:00Z"}, "to"),
    ):
        detail = SERVER.operator.post("/v1/admin/replays", spec).problem(422)["detail"]
        check(words in detail, f"{spec}: {detail}")
        if "rate" not in spec:
            SERVER.operator.post("/v1/admin/replays/plan", spec).problem(422)
    SERVER.operator.post("/v1/admin/replays/plan", {"consumer": "timelines", "position": "x"}).problem(422)
    fantail("replay", "start", code=2)
    check("timelines" in fantail("replay", "start", "--consumer", "timeline", code=1).stderr)
    check("no moment" in fantail("replay", "plan", "--consumer", "timelines", "--from", "soon", code=2).stderr)


@test("replay-is-paused-resumed-and-cancelled-and-asking-twice-is-asking-once")
def _():
    made = start(consumer="timelines", rate=5)["id"]

    def put(state):
        return SERVER.operator.put(f"/v1/admin/replays/{made}", {"state": state})

    equal(put("paused").expect(200).json["state"], "paused")
    equal(put("paused").expect(200).json["state"], "paused")
    stopped_at = job("replays", made)["seen"]
    check(stopped_at < 20)
    equal(put("running").expect(200).json["state"], "running")
    wait_until(lambda: job("replays", made)["seen"] > stopped_at, 20, "it to go on")
    equal(put("cancelled").expect(200).json["state"], "cancelled")
    put("running").problem(409)
    put("done").problem(422)
    put(None).problem(422)
    SERVER.operator.put("/v1/admin/replays/1", {"state": "paused"}).problem(404)
    SERVER.operator.put(f"/v1/admin/rebuilds/{made}", {"state": "paused"}).problem(404)
    SERVER.operator.get(f"/v1/admin/rebuilds/{made}").problem(404)


@test("replay-survives-a-crash-and-ends-having-seen-everything")
def _():
    with Server(rate_auth=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        for n in range(30):
            bob.post("/v1/posts", {"caption": str(n)}).expect(201)
        wait_until(lambda: server.operator.get("/v1/admin/status").json["engine"]["states"]["settled"] == 33, 20, "rest")
        made = start(server, consumer="timelines", rate=20, total=30)["id"]
        wait_until(lambda: job("replays", made, server)["seen"] > 0, 20, "its first events")
        server.restart(hard=True)
        ended = await_job("replays", made, "done", server)
        check(ended["seen"] >= 30, str(ended))
        equal(ended["position"], ended["last"])


@test("replay-that-runs-goes-on-at-another-rate")
def _():
    made = SERVER.operator.post("/v1/admin/replays", {"consumer": "timelines", "rate": 1}).expect(201).json["id"]
    path = f"/v1/admin/replays/{made}"
    for body in ({}, {"rate": -1}, {"state": "fast"}):
        SERVER.operator.put(path, body).problem(422)
    equal(SERVER.operator.put(path, {"rate": 2}).expect(200).json["rate"], 2)
    equal(job("replays", made)["state"], "running")
    check("at 1,000 a second" in fantail("replay", "rate", made, "--rate", 1000).stdout)
    await_job("replays", made, "done")  # at one a second it would take 20 s
    equal(job("replays", made)["seen"], 20)
    SERVER.operator.put(path, {"rate": 5}).problem(409)


@test("replay-on-the-command-line-plans-starts-watches-and-lists")
def _():
    done = fantail("replay", "plan", "--consumer", "timelines", "--from", "1h")
    check(re.search(r"events that match +20\b", done.stdout) and re.search(r"would act +20\b", done.stdout), done.stdout)
    told = json.loads(fantail("replay", "plan", "--consumer", "timelines", "--json").stdout)
    equal((told["events"], told["channels"]["views"]["would_act"]), (20, 20))
    done = fantail("replay", "start", "--consumer", "timelines", "--rate", 0)
    number = re.search(r"replay (\d+) done: 20 events looked at", done.stdout)[1]
    check(number in fantail("replay", "list").stdout)
    check("done" in fantail("replay", "watch", number).stdout)
    check("cannot be" in fantail("replay", "pause", number, code=1).stderr)
    done = fantail("replay", "start", "--consumer", "timelines", "--rate", 1, "--detach")
    number = re.search(r"replay watch (\d+)", done.stdout)[1]
    check("is paused" in fantail("replay", "pause", number).stdout)
    check("is running" in fantail("replay", "resume", number).stdout)
    check("is cancelled" in fantail("replay", "cancel", number).stdout)
    check("nothing matches" in fantail("replay", "start", "--consumer", "purge").stderr)
    check("list" in fantail("replay", "pause", code=2).stderr)
    fantail("replay", "frob", code=2)


@test("replay-that-is-watched-goes-on-after-ctrl-c-and-says-so")
def _():
    watcher = subprocess.Popen([program(), "replay", "start", "--consumer", "timelines", "--rate", "2", "--data", SERVER.data],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: [j for j in SERVER.operator.get("/v1/admin/replays").json["items"] if j["state"] == "running"], 20,
               "it to run")
    wait_until(lambda: subprocess.run(["grep", "-q", "SigCgt:.*[2367abef]$", f"/proc/{watcher.pid}/status"]).returncode == 0, 20,
               "the watcher to watch")
    watcher.send_signal(signal.SIGINT)
    _, err = watcher.communicate(timeout=20)
    equal(watcher.returncode, 0, err)
    number = re.search(r"replay (\d+) goes on", err)[1]
    equal(job("replays", number)["state"], "running")
    SERVER.operator.put(f"/v1/admin/replays/{number}", {"state": "cancelled"}).expect(200)


@test("replay-rests-while-live-work-is-late-says-why-and-goes-on-by-itself")
def _():
    with Server(rate_auth=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        wait_until(lambda: server.operator.get("/v1/admin/status").json["engine"]["states"]["settled"] == 3, 20, "rest")
        server.operator.put("/v1/admin/lanes", {"lane": "small", "stopped": True}).expect(200)
        bob.post("/v1/posts", {"caption": "late"}).expect(201)
        wait_until(lambda: server.operator.get("/v1/admin/freshness").json["headline"]["worst_ms"] > 2500, 20, "it to be late")
        made = start(server, consumer="backfill")["id"]
        resting = wait_until(lambda: (lambda j: j if j["note"] else None)(job("replays", made, server)), 20, "a note")
        equal((resting["state"], resting["seen"]), ("running", 0))
        server.operator.put("/v1/admin/lanes", {"lane": "small", "stopped": False}).expect(200)
        equal(await_job("replays", made, "done", server)["seen"], 1)


@test("jobs-are-eight-at-a-time-and-the-ninth-is-told-409")
def _():
    made = []
    for _ in range(8):
        made.append(start(consumer="timelines", rate=1)["id"])
        SERVER.operator.put(f"/v1/admin/replays/{made[-1]}", {"state": "paused"}).expect(200)
    check("8" in SERVER.operator.post("/v1/admin/replays", {"consumer": "timelines"}).problem(409)["detail"])
    SERVER.operator.post("/v1/admin/rebuilds", {"what": "counters"}).problem(409)
    listed = SERVER.operator.pages("/v1/admin/replays", limit=3)
    equal([j["id"] for j in listed if j["state"] == "paused"], made[::-1], "newest first, page by page")
    for number in made:
        SERVER.operator.put(f"/v1/admin/replays/{number}", {"state": "cancelled"}).expect(200)
    await_job("replays", start(consumer="backfill")["id"], "done")


@test("rebuild-counters-puts-right-what-differs-online")
def _():
    with Server(rate_auth=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        server.stop()
        with store(server, write=True) as db:
            db.execute("UPDATE accounts SET follower_count = 77, post_count = 5 WHERE id = ?", (int(bob.id),))
        server.start()
        equal(ada.get(f"/v1/accounts/{bob.id}").json["follower_count"], 77)
        done = fantail("rebuild", "counters", "--user", "bob", server=server)
        check(re.search(r"rebuild \d+ done: 1 account looked at, 1 was different", done.stdout), done.stdout)
        account = ada.get(f"/v1/accounts/{bob.id}").json
        equal((account["follower_count"], account["post_count"]), (1, 0))
        made = server.operator.post("/v1/admin/rebuilds", {"what": "counters", "rate": 0}).expect(201).json
        ended = await_job("rebuilds", made["id"], "done", server)
        equal((ended["seen"], ended["acted"], ended["kind"]), (2, 0, "rebuild.counters"))


@test("rebuild-timelines-keeps-feeds-right-survives-a-crash-and-refuses-nonsense")
def _():
    with Server(rate_auth=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        for n in range(12):
            server.sign_up(f"extra{n}")
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        posts = [bob.post("/v1/posts", {"caption": str(n)}).expect(201).json["id"] for n in range(5)]
        wait_until(lambda: len(ada.get("/v1/feed").json["items"]) == 5, 20, "the feed")
        made = server.operator.post("/v1/admin/rebuilds", {"what": "timelines", "rate": 4}).expect(201).json["id"]
        wait_until(lambda: job("rebuilds", made, server)["seen"] > 0, 20, "its first accounts")
        server.restart(hard=True)
        ended = await_job("rebuilds", made, "done", server)
        check(ended["seen"] >= 14 and ended["position"] == ended["last"], str(ended))
        equal(shapes.ids(ada.get("/v1/feed").json["items"]), posts[::-1])
        for body, words in (({}, "what"), ({"what": "inbox"}, "timelines, counters or inboxes"), ({"what": "timelines", "user": "nobody"},
                            "no account"), ({"what": "timelines", "rate": -1}, "rate")):
            check(words in server.operator.post("/v1/admin/rebuilds", body).problem(422)["detail"], str(body))
        check(made in fantail("rebuild", "list", server=server).stdout)
        fantail("rebuild", "everything", server=server, code=2)
        check("no account" in fantail("rebuild", "timelines", "--user", "nobody", server=server, code=1).stderr)


if __name__ == "__main__":
    main()
