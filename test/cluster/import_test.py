#!/usr/bin/env python3
"""An import into a live cluster: follows arrive in events of several, and survive nodes that die between COMMIT and views."""

import json
import os
import random
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.cluster import Cluster
from support.server import check, diag, equal, main, program, test, wait_until

PEOPLE, EACH, KILLS = 400, 30, 5


def lines(turn):
    names = [f"person{turn}.{i}" for i in range(PEOPLE)]
    yield from ({"type": "account", "username": name} for name in names)
    yield from ({"type": "follow", "follower": names[i], "followee": names[(i + k) % PEOPLE]} for i in range(PEOPLE) for k in range(1, EACH + 1))


def captions(client):
    return [item["caption"] for item in client.pages("/v1/feed", limit=100)]


def account_of(node, name):
    return node.operator.acting(f"@{name}").get("/v1/me").expect(200).json


def verify(cluster, node):
    """What the views hold is what truth says, and all of it is there."""
    cluster.drain()
    done = node.command("check", "--all", timeout=120)
    check(done.returncode == 0, f"fantail check: {done.stdout}{done.stderr}")
    counts = [account_of(node, f"person{turn}.{i}") for turn in range(KILLS) for i in (0, PEOPLE - 1)]
    equal([(c["following_count"], c["follower_count"]) for c in counts], [(EACH, EACH)] * 2 * KILLS)


@test("import-into-a-live-cluster-shows-earlier-posts-and-tells-consumers")
def _():
    with Cluster(nodes=2) as cluster:
        cluster.leader()
        node = cluster.followers()[0]
        author, reader, other = (node.sign_up(name) for name in ("author", "reader", "other"))
        author.post("/v1/posts", {"caption": "earlier"}).expect(201)
        equal(captions(reader), [])
        follows = [{"type": "follow", "follower": "reader", "followee": name} for name in ("author", "other")]
        done = node.command("import", "-", stdin="".join(json.dumps(line) + "\n" for line in follows))
        equal(done.returncode, 0)
        # Every node knows of the follow when the import is answered; earlier posts come by the engine.
        for some in cluster.nodes:
            equal(account_of(some, "reader")["following_count"], 2)
            client = some.client(reader.token)
            wait_until(lambda: captions(client) == ["earlier"], 20, "the post from before the follow")
        told = lambda: node.operator.get("/v1/events?limit=100&types=follow.created,follows.imported").expect(200).json["items"]
        events = wait_until(told, 20, "the horizon to pass the event")
        equal([(e["type"], e["data"]["actor"], e["data"]["value"], sorted(e["data"]["data"]["followees"])) for e in events],
              [("follows.imported", reader.id, 2, sorted([author.id, other.id]))])
        # An unfollow afterwards stays, whatever the leader applies again.
        reader.delete(f"/v1/accounts/{author.id}/follow").expect(200)
        for some in cluster.nodes:
            equal(captions(some.client(reader.token)), [])
        cluster.drain()
        equal(captions(reader), [])
        equal(cluster.leader().command("check", "--all").returncode, 0)


@test("import-through-nodes-that-are-killed-is-whole-when-it-is-run-again")
def _():
    rand = random.Random(os.environ.get("FANTAIL_TEST_SEED", "7"))
    with Cluster(nodes=2) as cluster:
        cluster.leader()
        victim = cluster.followers()[0]
        files = [os.path.join(victim.data, f"import{turn}.ndjson") for turn in range(KILLS)]
        for turn, file in enumerate(files):
            with open(file, "w") as f:
                f.writelines(json.dumps(line) + "\n" for line in lines(turn))
            words = [program(), "import", file, "--data", victim.data]
            importing = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=victim.environment())
            timer = threading.Timer(rand.uniform(0.05, 0.3), victim.kill)
            began = time.monotonic()
            timer.start()
            importing.wait(60)
            timer.join()
            diag(f"turn {turn}: ended with {importing.returncode} after {time.monotonic() - began:.2f} s")
            victim.start(led=False)
        for file in files:
            done = victim.command("import", file, timeout=120)
            check(done.returncode == 0, done.stderr)
        verify(cluster, cluster.leader())


main()
