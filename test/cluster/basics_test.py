#!/usr/bin/env python3
"""Nodes of one store: who leads, who sees what, what each of them does."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.cluster import Cluster, value
from support.place import Place, redis_cli
from support.server import Server, check, equal, main, test, wait_until


def captions(node, client):
    other = node.client(client.token)
    found = [item["caption"] for item in other.pages("/v1/feed", limit=50)]
    other.close()
    return found


@test("one-of-three-leads-and-each-has-a-number-of-its-own")
def _():
    with Cluster(nodes=3) as cluster:
        leader = cluster.leader()
        wait_until(lambda: len(leader.operator.get("/v1/admin/nodes").json["items"]) == 3, 10, "three nodes")
        for node in cluster.nodes:
            nodes = wait_until(lambda: (lambda n: n if len(n) == 3 else None)(
                node.operator.get("/v1/admin/nodes").expect(200).json["items"]), 10, "three nodes at each")
            equal(len({n["number"] for n in nodes}), 3)
            equal(sum(1 for n in nodes if n["leads"]), 1)
            shown = node.command("status")
            equal(shown.returncode, 0, shown.stderr)
            for other in nodes:
                check(other["address"] in shown.stdout, f"status does not show {other['address']}:\n{shown.stdout}")


@test("what-is-written-at-one-node-is-read-at-the-others")
def _():
    with Cluster(nodes=3) as cluster:
        a, b, c = cluster.nodes
        ada, bob = a.sign_up("ada"), b.sign_up("bob")
        c.client(ada.token).put(f"/v1/accounts/{bob.id}/follow").expect(200)
        posts = [node.client(bob.token).post("/v1/posts", {"caption": f"p{i}"}).expect(201).json["id"]
                 for i, node in enumerate([a, b, c, a, b])]
        for node in cluster.nodes:
            wait_until(lambda: captions(node, ada) == ["p4", "p3", "p2", "p1", "p0"], 10, "all posts in the feed")
        # Removals never lag, whoever asks.
        b.client(bob.token).delete(f"/v1/posts/{posts[4]}").expect(204)
        for node in cluster.nodes:
            equal(captions(node, ada), ["p3", "p2", "p1", "p0"])
        c.client(ada.token).delete(f"/v1/accounts/{bob.id}/follow").expect(200, 204)
        for node in cluster.nodes:
            equal(captions(node, ada), [])
        a.client(ada.token).put(f"/v1/accounts/{bob.id}/follow").expect(200)
        for node in cluster.nodes:
            wait_until(lambda: captions(node, ada) == ["p3", "p2", "p1", "p0"], 10, "the backfill")
        b.client(ada.token).put(f"/v1/accounts/{bob.id}/mute").expect(200, 204)
        for node in cluster.nodes:
            equal(captions(node, ada), [])


@test("a-session-that-ended-at-one-node-ends-at-all-within-two-seconds")
def _():
    with Cluster(nodes=2) as cluster:
        a, b = cluster.nodes
        ada = a.sign_up("ada")
        b.client(ada.token).get("/v1/feed").expect(200)
        a.client(ada.token).delete("/v1/sessions/current").expect(204)
        wait_until(lambda: b.client(ada.token).get("/v1/feed").status == 401, 2.5, "the session to end at the other node")


@test("ids-of-all-nodes-rise-with-time")
def _():
    with Cluster(nodes=3) as cluster:
        ada = cluster.nodes[0].sign_up("ada")
        ids = [int(cluster.nodes[i % 3].client(ada.token).post("/v1/posts", {"caption": str(i)}).expect(201).json["id"])
               for i in range(30)]
        # Within what the clocks may differ by; requests one after the other take longer than that only sometimes.
        check(all(later >> 22 >= (earlier >> 22) - 25 for earlier, later in zip(ids, ids[1:])), ids)
        equal(len({i >> 12 & 1023 for i in ids}), 3, "each node has its own number in its ids")


@test("questions-about-the-engine-are-answered-at-every-node")
def _():
    with Cluster(nodes=2) as cluster:
        leader = cluster.leader()
        other = cluster.followers()[0]
        for path in ("/v1/admin/status", "/v1/admin/freshness", "/v1/admin/engine"):
            other.operator.get(path).expect(200)
        key = other.key("admin")
        equal(key.get("/v1/admin/freshness").expect(200).json.keys(),
              leader.operator.get("/v1/admin/freshness").expect(200).json.keys())
        check(value(other, "fantail_forwarded_total") > 0, "nothing was passed on")


@test("a-lane-that-was-stopped-stays-stopped-under-the-next-leader")
def _():
    stopped = lambda node: value(node, 'fantail_lane_stopped{lane="cleanup"}')
    with Cluster(nodes=2) as cluster:
        leader = cluster.leader()
        other = cluster.followers()[0]
        other.operator.put("/v1/admin/lanes", {"lane": "cleanup", "stopped": True}).expect(200)
        for node in (leader, other):
            wait_until(lambda: stopped(node) == 1, 10, "the lane to be stopped at every node")
        leader.kill()
        equal(cluster.leader(), other)
        equal(stopped(other), 1)
        other.operator.put("/v1/admin/lanes", {"lane": "cleanup", "stopped": False}).expect(200)
        wait_until(lambda: stopped(other) == 0, 5, "the lane to go on")


@test("work-is-done-by-the-workers-of-all-nodes")
def _():
    with Cluster(nodes=3, fan_out_workers=1) as cluster:
        a = cluster.nodes[0]
        ada = a.sign_up("ada")
        lines = "".join('{"type":"account","username":"user%d"}\n' % i for i in range(3000))
        lines += "".join('{"type":"follow","follower":"user%d","followee":"ada"}\n' % i for i in range(3000))
        done = a.command("import", "-", stdin=lines, timeout=120)
        equal(done.returncode, 0, done.stderr)
        cluster.drain()
        before = {n: delivered(n) for n in cluster.nodes}
        for i in range(30):
            cluster.nodes[i % 3].client(ada.token).post("/v1/posts", {"caption": str(i)}).expect(201)
        cluster.drain()
        gained = [delivered(n) - before[n] for n in cluster.nodes]
        # What is done again after a lost report counts as repeated, so a little may be missing here.
        check(sum(gained) >= 0.9 * 30 * 3000, f"delivered {gained}")
        check(sum(1 for g in gained if g > 0) >= 2, f"only one node delivered: {gained}")


def delivered(node):
    return node.metrics().total("fantail_lane_delivered_total")


@test("the-rate-of-a-lane-holds-for-all-nodes-together-and-changes-while-it-runs")
def _():
    with Cluster(nodes=3) as cluster:
        leader, rate, follows = cluster.leader(), 10, 40
        bob = leader.sign_up("bob")
        people = [leader.sign_up(f"person{i}") for i in range(follows)]
        cluster.drain()

        def delivered():
            lanes = leader.operator.get("/v1/admin/engine").expect(200).json["engine"]["lanes"]
            return next(lane["delivered"] for lane in lanes if lane["name"] == "graph")

        # An operator at another node; no lane of the leader keeps its work to itself beyond its limit.
        other = next(node for node in cluster.nodes if node is not leader)
        other.operator.put("/v1/admin/lanes", {"lane": "graph", "rate": rate}).expect(200)
        before, began = delivered(), time.monotonic()
        for i, person in enumerate(people):
            cluster.nodes[i % 3].client(person.token).put(f"/v1/accounts/{bob.id}/follow").expect(200)
        while (done := delivered() - before) < follows / 2:
            check(done <= rate * (time.monotonic() - began) + 3, f"{done} after {time.monotonic() - began:.2f} s")
            time.sleep(0.05)
        other.operator.put("/v1/admin/lanes", {"lane": "graph", "rate": 0}).expect(200)
        wait_until(lambda: delivered() - before == follows, 10, "the others, without a limit")


@test("roles-divide-the-work")
def _():
    roles = ["api", "relay", "worker"]
    with Cluster(nodes=3, roles=roles) as cluster:
        api, relay, worker = cluster.nodes
        equal(cluster.leader(), relay)
        ada, bob = api.sign_up("ada"), api.sign_up("bob")
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        bob.post("/v1/posts", {"caption": "hello"}).expect(201)
        wait_until(lambda: captions(api, ada) == ["hello"], 10, "the post")
        for node in (relay, worker):
            problem = node.client(ada.token).get("/v1/feed").problem(421)
            check("role" in problem["detail"], problem)
            node.anonymous.get("/healthz").expect(200)
        check(delivered(worker) > 0, "the worker did nothing")
        equal(delivered(relay), 0)


@test("a-node-that-restarts-keeps-its-number")
def _():
    with Cluster(nodes=2) as cluster:
        a, b = cluster.nodes
        number = lambda node: next(n["number"] for n in node.operator.get("/v1/admin/nodes").json["items"]
                                   if n["address"].endswith(f":{node.port}"))
        before = number(b)
        b.restart(hard=True)
        equal(wait_until(lambda: number(b), 10, "its number"), before)
        check(a.alive())


@test("views-that-were-emptied-while-no-node-ran-are-never-trusted")
def _():
    with Cluster(nodes=1) as cluster:
        node = cluster.nodes[0]
        ada, bob = node.sign_up("ada"), node.sign_up("bob")
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        for i in range(3):
            bob.post("/v1/posts", {"caption": f"p{i}"}).expect(201)
        cluster.drain()
        node.stop()
        redis_cli(cluster.place.views, "FLUSHDB")
        node.start(led=False)

        def trusted():
            equal(captions(node, ada), ["p2", "p1", "p0"])
            return value(node, "fantail_views_trusted") == 1

        wait_until(trusted, 20, "the views to be loaded")
        equal(value(node, "fantail_views_lost_total"), 1)
        equal(captions(node, ada), ["p2", "p1", "p0"])


@test("the-redis-of-another-store-is-refused")
def _():
    with Cluster(nodes=1) as cluster:
        cluster.leader()
        stranger = Place()
        redis_cli(stranger.views, "FLUSHDB")
        stranger.views = cluster.place.views
        node = Server(place=stranger, start=False)
        try:
            node.start(wait=False)
            equal(node.wait_exit(30), 1)
            check("another store" in node.log(), node.log_tail())
        finally:
            node.close()
            stranger.close()


@test("db-views-and-bus-belong-together")
def _():
    place = Place()
    try:
        for left_out in ("FANTAIL_DB", "FANTAIL_VIEWS", "FANTAIL_BUS"):
            node = Server(place=False, start=False)
            try:
                node.env = {k: v for k, v in place.environment().items() if k != left_out}
                node.start(wait=False)
                equal(node.wait_exit(30), 1)
                check("belong together" in node.log(), node.log_tail())
            finally:
                node.close()
    finally:
        place.close()


main()
