#!/usr/bin/env python3
"""What is late, and what is at risk: freshness, health, status, metrics, stopped lanes and the overload guard."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import Server, check, equal, main, program, test, wait_until  # noqa: E402

CELL = {"consumer", "type", "lane", "verdict", "oldest_age_ms", "target_ms", "backlog", "delayed", "waiting", "dead",
        "failed", "in_per_second", "out_per_second", "net_per_second", "catch_up_ms", "visible", "late_means"}


def lane(server, name, stopped):
    return server.operator.put("/v1/admin/lanes", {"lane": name, "stopped": stopped}).expect(200).json


def health(server):
    return server.operator.get("/v1/admin/health").expect(200).json


def await_health(server, verdict, timeout_s=20):
    return wait_until(lambda: (lambda h: h if h["verdict"] == verdict else None)(health(server)), timeout_s,
                      f"health to be {verdict}: {health(server)}")


def cells(server):
    return {(c["consumer"], c["lane"]): c for c in server.operator.get("/v1/admin/freshness").expect(200).json["cells"]}


def metric(server, name):
    return server.metrics()["fantail_" + name]


def status_text(server):
    done = subprocess.run([program(), "status", "--data", server.data], capture_output=True, text=True, timeout=60)
    equal(done.returncode, 0, done.stderr)
    return done.stdout


def people(server):
    ada, bob = server.sign_up("ada"), server.sign_up("bob")
    ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
    return ada, bob


@test("lane-changes-that-are-kept-survive-a-restart")
def _():
    def of(name):
        return next(found for found in server.operator.get("/v1/admin/status").json["engine"]["lanes"] if found["name"] == name)

    with Server(rate_auth=0) as server:
        put = lambda **body: server.operator.put("/v1/admin/lanes", body).expect(200)
        put(lane="small", concurrency=3, rate=50, keep=True)
        put(lane="cleanup", stopped=True, keep=True)
        put(lane="graph", concurrency=4)
        usual = of("active")["concurrency"]
        server.restart()
        equal((of("small")["concurrency"], of("small")["rate"]), (3, 50))
        equal((of("cleanup")["breaker"]["state"], of("graph")["concurrency"]), ("by hand", usual))
        put(lane="small", keep=False)
        put(lane="cleanup", stopped=False, keep=True)
        server.restart(hard=True)
        equal((of("small")["concurrency"], of("small")["rate"]), (usual, 0))
        equal(of("cleanup")["breaker"]["state"], "running")
        server.operator.put("/v1/admin/lanes", {"lane": "small", "keep": "yes"}).problem(422)


@test("freshness-targets-are-settings-by-consumer-and-type")
def _():
    with Server(rate_auth=0, freshness_targets="timelines=7s,live:group.joined=3s,backfill:follow.created=11s") as server:
        found = {(c["consumer"], c["type"], c["lane"]): c["target_ms"]
                 for c in server.operator.get("/v1/admin/freshness").expect(200).json["cells"]}
        equal(found["timelines", "post.created", "small"], 7000)
        equal(found["timelines", "post.created", "rest"], 7000)
        equal(found["timelines", "post.created", "replay"], 0)
        equal(found["live", "group.joined", "live"], 3000)
        equal(found["live", "group.entry", "live"], 2000)
        equal((found["backfill", "follow.created", "graph"], found["backfill", "follows.imported", "graph"]), (11000, 2000))
    for wrong in ("timelines", "timeline=3s", "timelines:post.edited=3s", "timelines=0", "=3s", "timelines=3s,,"):
        done = subprocess.run([program(), "serve", "--listen", "127.0.0.1:0", "--freshness-targets", wrong, "--data",
                               os.path.join(tempfile.gettempdir(), f"fantail-test-targets-{os.getpid()}")],
                              capture_output=True, text=True, timeout=60)
        equal(done.returncode, 1, wrong)
        check("freshness-targets: '" in done.stderr, done.stderr)


@test("fan-out-times-are-a-histogram-by-followers")
def _():
    with Server(rate_auth=0) as server:
        ada, bob = (server.sign_up(name) for name in ("ada", "bob"))
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        for n in range(3):
            bob.post("/v1/posts", {"caption": str(n)}).expect(201)
        wait_until(lambda: metric(server, 'fan_out_seconds_count{followers="1-9"}') == 3, 10, "three fan-outs")
        found = server.metrics()
        equal(found['fantail_fan_out_seconds_bucket{followers="1-9",le="+Inf"}'], 3)
        equal(found['fantail_fan_out_seconds_bucket{followers="1-9",le="600"}'], 3)
        equal(found['fantail_fan_out_seconds_count{followers="1000-9999"}'], 0)
        check(found['fantail_fan_out_seconds_sum{followers="1-9"}'] > 0)


@test("freshness-at-rest-is-green-and-names-every-consumer")
def _():
    with Server(rate_auth=0) as server:
        ada, bob = people(server)
        post = bob.post("/v1/posts", {"caption": "hello"}).expect(201).json["id"]
        wait_until(lambda: shapes.ids(ada.get("/v1/feed").json["items"]) == [post], 10, "the post to arrive")
        wait_until(lambda: cells(server)[("timelines", "small")]["in_per_second"] > 0, 10, "a sample")
        answer = server.operator.get("/v1/admin/freshness").expect(200).json
        equal(set(answer["headline"]), {"worst_ms", "consumer", "type", "lane", "late_means", "green", "late", "behind",
                                        "stopped", "dead"})
        equal((answer["headline"]["worst_ms"], answer["headline"]["late"]), (0, 0))
        for cell in answer["cells"]:
            equal(set(cell), CELL)
            equal((cell["verdict"], cell["dead"]), ("green", 0))
        for consumer in ("timelines", "cleanup", "backfill", "forget", "purge"):
            check(any(c["consumer"] == consumer and c["late_means"] for c in answer["cells"]), consumer)
        equal(cells(server)[("timelines", "small")]["target_ms"], 2000)
        told = health(server)
        equal((told["verdict"], told["stale"], told["stopped_lanes"], told["dead"]), ("green", [], [], 0))
        server.anonymous.get("/readyz").expect(200)
        check("nothing that people notice is late" in status_text(server))


@test("freshness-of-a-stopped-lane-grows-is-told-in-words-and-turns-green-again")
def _():
    with Server(rate_auth=0) as server:
        ada, bob = people(server)
        server.drain()
        equal(lane(server, "small", True)["breaker"]["state"], "by hand")
        bob.post("/v1/posts", {"caption": "waits"}).expect(201)
        told = await_health(server, "stopped")
        equal([(s["lane"], s["by_hand"]) for s in told["stopped_lanes"]], [("small", True)])
        cell = wait_until(lambda: (lambda c: c if c["oldest_age_ms"] > 2000 else None)(cells(server)[("timelines", "small")]),
                          20, "the age to grow")
        equal((cell["verdict"], cell["backlog"], cell["visible"]), ("stopped", 1, True))
        stale = [s for s in health(server)["stale"] if s["consumer"] == "timelines"][0]
        check("followers do not see a new post yet" in stale["says"] and "target 2 s" in stale["says"], stale["says"])
        check(metric(server, "worst_visible_lag_seconds") > 2)
        equal(metric(server, 'lane_stopped{lane="small"}'), 1)
        equal(metric(server, 'freshness_backlog{consumer="timelines",type="post.created",lane="small"}'), 1)
        shown = status_text(server)
        check("worst lag that people notice" in shown and "STOPPED" in shown, shown)
        server.anonymous.get("/readyz").expect(200)  # it is ready all the same
        equal(ada.get("/v1/feed").json["items"], [])
        equal(lane(server, "small", False)["breaker"]["state"], "running")
        await_health(server, "green")
        equal(len(ada.get("/v1/feed").json["items"]), 1)
        equal(metric(server, 'lane_stopped{lane="small"}'), 0)


@test("lanes-take-stopped-beside-concurrency-and-rate-and-refuse-nonsense")
def _():
    with Server(rate_auth=0) as server:
        before = server.operator.put("/v1/admin/lanes", {"lane": "cleanup"}).expect(200).json
        changed = server.operator.put("/v1/admin/lanes", {"lane": "cleanup", "rate": 7, "stopped": True}).expect(200).json
        equal((changed["rate"], changed["concurrency"], changed["breaker"]["state"]), (7, before["concurrency"], "by hand"))
        changed = server.operator.put("/v1/admin/lanes", {"lane": "cleanup", "concurrency": 1}).expect(200).json
        equal((changed["rate"], changed["breaker"]["state"]), (7, "by hand"))
        server.operator.put("/v1/admin/lanes", {"lane": "cleanup", "stopped": 1}).problem(422)
        check("no such lane" in server.operator.put("/v1/admin/lanes", {"lane": "fast", "stopped": True}).problem(422)["detail"])


@test("status-has-states-breakers-overload-guard-and-duplicates")
def _():
    with Server(rate_auth=0) as server:
        people(server)
        wait_until(lambda: server.operator.get("/v1/admin/status").json["engine"]["states"]["settled"] == 3, 20,
                   "three settled events")
        status = server.operator.get("/v1/admin/status").expect(200).json
        equal(set(status["engine"]["states"]), {"pending", "published", "expanded", "delayed", "waiting", "dead", "parked",
                                                "dropped", "discarded", "settled", "archived"})
        equal(status["engine"]["duplicates"], {"bus": 0, "dedup": 0, "unknown": 0})
        equal((status["engine"]["blocked_keys"], status["overload_guard"]["level"]), (0, 0))
        check(status["overload_guard"]["free_bytes"] > 0 and "worst_ms" in status["headline"])
        for name in ('event_states{state="settled"}', "overload_guard_level", "disk_free_bytes", 'duplicates_total{kind="bus"}',
                     'deliveries{consumer="timelines",state="dead"}', "events_dropped_total"):
            metric(server, name)


@test("overload-guard-at-its-first-level-refuses-bulk-work-alone")
def _():
    with Server(rate_auth=0, guard_backlog=20) as server:
        _, bob = people(server)
        lane(server, "small", True)
        for number in range(13):
            bob.post("/v1/posts", {"caption": str(number)}).expect(201)
        wait_until(lambda: health(server)["overload_guard"]["level"] == 1, 20, "level 1")
        line = b'{"type":"account","username":"later"}\n'
        ndjson = {"Content-Type": "application/x-ndjson"}
        server.operator.post("/v1/admin/import", raw=line, headers=ndjson).problem(503)
        bob.post("/v1/posts", {"caption": "still taken"}).expect(201)
        lane(server, "small", False)
        wait_until(lambda: server.operator.post("/v1/admin/import", raw=line, headers=ndjson).status == 200, 20,
                   "the overload guard to end")


@test("overload-guard-refuses-what-makes-the-store-grow-and-nothing-else")
def _():
    with Server(rate_auth=0, guard_backlog=10) as server:
        ada, bob = people(server)
        mine = ada.post("/v1/posts", {"caption": "before"}).expect(201).json["id"]
        admin = server.key("admin")
        lane(server, "small", True)
        for number in range(12):
            bob.post("/v1/posts", {"caption": str(number)}).expect(201, 503)
        told = wait_until(lambda: (lambda h: h if h["overload_guard"]["level"] == 2 else None)(health(server)), 20, "level 2")
        equal(told["verdict"], "at risk")
        check(told["overload_guard"]["why"], str(told["overload_guard"]))
        refused = bob.post("/v1/posts", {"caption": "no"})
        problem = refused.problem(503)
        check(told["overload_guard"]["why"].split("(")[0].strip() in problem["detail"], problem["detail"])
        equal(refused.headers["retry-after"], "5")
        bob.post(f"/v1/posts/{mine}/comments", {"body": "no"}).problem(503)
        server.anonymous.post("/v1/accounts", {"username": "newcomer", "password": "correct horse battery"}).problem(503)
        admin.post("/v1/admin/import", raw=b'{"type":"account","username":"x1y"}\n',
                   headers={"Content-Type": "application/x-ndjson"}).problem(503)
        for path in ("/v1/feed", f"/v1/posts/{mine}", "/v1/me"):
            ada.get(path).expect(200)
        ada.put(f"/v1/posts/{mine}/like").problem(503)
        ada.patch(f"/v1/posts/{mine}", {"caption": "edited"}).problem(503)
        server.anonymous.post("/v1/sessions", {"username": "ada", "password": "correct horse battery"}).expect(201)
        ada.delete(f"/v1/posts/{mine}").expect(204)
        equal(metric(server, "overload_guard_level"), 2)
        check(metric(server, "http_overload_guard_total") >= 4)
        check("AT RISK" in status_text(server))
        lane(server, "small", False)
        wait_until(lambda: health(server)["overload_guard"]["level"] == 0, 20, "the overload guard to end")
        bob.post("/v1/posts", {"caption": "yes"}).expect(201)


if __name__ == "__main__":
    main()
