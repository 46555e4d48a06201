#!/usr/bin/env python3
"""A group's own limit, which groups are busy, what stage one and stage two say of themselves, and putting right what is
derived: through the API and the command line."""
import concurrent.futures
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.server import Server, check, equal, main, test, wait_until  # noqa: E402
from support.store import store  # noqa: E402

RATE = 2  # a second, with twice that at once
SERVER = Server(rate_auth=0, rate_write=0, group_rate=RATE)
ADA, BOB, EVE = (SERVER.sign_up(name) for name in ("ada", "bob", "eve"))


def make(name="birds", server=SERVER, people=(ADA, BOB)):
    first, *others = people
    return first.post("/v1/groups", {"name": name, "members": [p.id for p in others]}).expect(201).json["id"]


def say(client, group, body="hello", **more):
    return client.post(f"/v1/groups/{group}/messages", {"body": body, **more})


def fill(client, group):
    """Sends until the group is refused; the refusal."""
    for _ in range(100):
        answer = say(client, group)
        if answer.status != 201:
            return answer
    raise AssertionError("never refused")


@test("a-group-that-writes-too-much-is-refused-by-name-with-a-time")
def _():
    group = make()
    sent = [say(ADA, group).status for _ in range(2 * RATE)]
    equal(sent, [201] * len(sent))
    refused = fill(BOB, group)  # whoever sends: it is the group's limit
    problem = refused.problem(429)
    check(group in problem["detail"] and f"{RATE} messages a second" in problem["detail"], problem)
    check(1 <= int(refused.headers["retry-after"]) <= 2, refused.headers)
    page = ADA.get(f"/v1/groups/{group}/messages?limit=200").expect(200).json["items"]
    equal([e["seq"] for e in page], list(range(1, len(page) + 1)))  # a refusal takes no number
    wait_until(lambda: say(ADA, group).status == 201, 5, "the limit to let one through again")


@test("other-groups-do-not-notice")
def _():
    busy, quiet, chat = make("busy"), make("quiet"), BOB.put(f"/v1/accounts/{EVE.id}/chat").expect(200, 201).json["id"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        flood = [pool.submit(lambda: [say(ADA, busy).status for _ in range(30)]) for _ in range(4)]
        for _ in range(2):
            say(ADA, quiet).expect(201)
            say(BOB, chat).expect(201)
        statuses = [s for f in flood for s in f.result()]
    equal(set(statuses), {201, 429})
    check(statuses.count(201) < 30, f"{statuses.count(201)} of {len(statuses)} got through")


@test("edits-and-deletions-count-and-what-writes-nothing-does-not")
def _():
    group = make()
    first = say(ADA, group).expect(201).json["seq"]
    for _ in range(30):  # who is no member takes nothing from those who are
        say(EVE, group).problem(404)
        ADA.patch(f"/v1/groups/{group}/messages/999", {"body": "x"}).problem(404)
        say(ADA, group, body="").problem(422)
    where = f"/v1/groups/{group}/messages/{first}"
    for _ in range(30):  # nor does who sends or edits the same again
        ADA.patch(where, {"body": "hello"}).expect(200)
    ADA.patch(where, {"body": "one"}).expect(200)
    say(ADA, group).expect(201)
    fill(ADA, group).problem(429)
    check(group in ADA.patch(where, {"body": "two"}).problem(429)["detail"])
    check(group in ADA.delete(where).problem(429)["detail"])
    ADA.get(f"/v1/groups/{group}").expect(200)  # reading and everything else goes on
    ADA.put(f"/v1/groups/{group}/read", {"seq": first}).expect(200)
    ADA.put(f"/v1/groups/{group}/members/{EVE.id}").expect(201)
    wait_until(lambda: ADA.delete(where).status == 204, 5, "the deletion to be let through")


@test("a-key-that-is-repeated-takes-one-token")
def _():
    group = make()
    key = {"Idempotency-Key": "k1"}
    for _ in range(30):
        ADA.post(f"/v1/groups/{group}/messages", {"body": "hello"}, headers=key).expect(201)
    say(ADA, group).expect(201)


@test("a-client-id-that-is-repeated-takes-one-token")
def _():
    group = make()
    say(ADA, group, client_id="c1").expect(201)
    for _ in range(30):
        say(ADA, group, client_id="c1").expect(200)
    say(ADA, group).expect(201)


@test("busy-groups-are-named-and-both-stages-have-numbers-of-their-own")
def _():
    with Server(rate_auth=0, rate_write=0, group_rate=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        groups = [make(f"g{n}", people=(ada, bob)) for n in range(25)]
        server.key("admin:read").get("/v1/admin/groups/hot").expect(200)
        ada.get("/v1/admin/groups/hot").problem(403)
        for n, group in enumerate(groups):
            for _ in range(n + 1):
                say(ada, group).expect(201)
        server.drain()
        hot = server.operator.get("/v1/admin/groups/hot").expect(200).json
        equal([(g["group_id"], g["entries"], g["at_most"]) for g in hot["items"]],
              [(groups[n], n + 1, n + 1) for n in range(24, 4, -1)])
        equal((hot["entries"], hot["limited"], hot["limit_per_second"]), (sum(range(26)), 0, 0))
        check(0 < hot["lag_p50_ms"] <= hot["lag_p99_ms"] < 30000, hot)

        status = server.operator.get("/v1/admin/status").expect(200).json
        equal([g["group_id"] for g in status["groups"]["hot"]], [g["group_id"] for g in hot["items"]])
        check(status["groups"]["lag_p99_ms"] > 0 and status["inboxes"]["failed"] == 0, status["inboxes"])
        lanes = {(l["consumer"], l["lane"]) for l in status["inboxes"]["lanes"]}
        check(("inboxes", "small") in lanes and ("mentions", "mentions") in lanes, lanes)
        equal((status["views"]["groups"], status["views"]["memberships"]), (25, 50))

        metrics = server.metrics()
        equal(metrics["fantail_group_sequenced_seconds_count"], sum(range(26)))
        check(0 < metrics['fantail_group_sequenced_seconds{quantile="0.99"}'] < 30)
        check(metrics["fantail_group_hottest_per_second"] > 0)
        equal(metrics['fantail_inbox_write_failed_total{consumer="inboxes",lane="small"}'], 0)
        wait_until(lambda: server.metrics()['fantail_inbox_lag_seconds{consumer="inboxes",lane="small"}'] == 0, 10,
                   "the next sample to say that nothing is late")
        check(not any(group in name for name in metrics for group in groups), "a label for each group")
        said = server.command("status").stdout
        check(re.search(r"^groups .*entries/s, sequenced in", said, re.M) and re.search(r"^inboxes ", said, re.M), said)
        check(re.search(rf"^hot +{groups[24]} at ", said, re.M), said)


@test("what-was-limited-is-counted")
def _():
    before = SERVER.metrics()["fantail_group_limited_total"]
    fill(ADA, make())
    equal(SERVER.metrics()["fantail_group_limited_total"], before + 1)
    check(SERVER.metrics()["fantail_http_limited_total"] >= before + 1)


@test("check-finds-wrong-group-counters-and-read-marks-and-puts-them-right")
def _():
    with Server(rate_auth=0, rate_write=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        group = make(people=(ada, bob))
        for _ in range(5):
            last = say(ada, group).expect(201).json["seq"]
        bob.put(f"/v1/groups/{group}/read", {"seq": last - 2}).expect(200)
        server.drain()
        done = server.command("check")
        check(done.returncode == 0 and re.search(r"2 feeds, 2 inboxes, .* 0 differences", done.stdout), done)
        shown = bob.get("/v1/inbox").expect(200).json["items"][0]
        server.stop()
        with store(server, write=True) as db:
            db.execute(f"UPDATE groups SET messages = 99, member_count = 7 WHERE id = {group}")
            db.execute(f"UPDATE group_members SET read_count = 1 WHERE group_id = {group} AND account_id = {bob.id}")
        server.start()
        done = server.command("check")
        check(done.returncode == 1 and "3 differences" in done.stdout, done)
        for counter in ("messages", "member_count", "read_count"):
            check(f"counter {counter}" in done.stdout, done.stdout)
        check("repaired" in server.command("check", "--repair").stdout)
        equal(server.command("check").returncode, 0)
        equal(bob.get("/v1/inbox").expect(200).json["items"][0], shown)


@test("rebuild-inboxes-runs-online-and-changes-nothing-that-is-right")
def _():
    with Server(rate_auth=0, rate_write=0) as server:
        people = [server.sign_up(f"per{n}") for n in range(4)]
        groups = [make(people=people) for _ in range(6)]
        for n in (3, 1, 4):
            say(people[0], groups[n]).expect(201)
        server.drain()
        before = [p.get("/v1/inbox").expect(200).json for p in people]
        done = server.command("rebuild", "inboxes")
        check(done.returncode == 0 and "4 accounts" in done.stdout, done)
        job = server.operator.get("/v1/admin/rebuilds").expect(200).json["items"][0]
        equal((job["kind"], job["state"], job["seen"], job["acted"]), ("rebuild.inboxes", "done", 4, 0))
        equal([p.get("/v1/inbox").expect(200).json for p in people], before)
        equal(server.command("rebuild", "inboxes", "--account", "per2").returncode, 0)
        equal(server.operator.get("/v1/admin/rebuilds").expect(200).json["items"][0]["seen"], 1)
        equal(server.command("rebuild", "inbox").returncode, 2)


main()
