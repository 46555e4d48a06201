#!/usr/bin/env python3
"""Answers of PostgreSQL, Redis and RabbitMQ that get lost while people write.

A lost answer to COMMIT is neither success nor failure. A node has to find out what it was before it speaks, and what it
cannot find out it must say so (503): then the caller says it again with the same Idempotency-Key.
"""

import os
import sys
import threading
import time
from collections import Counter

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.cluster import Cluster, Crowd
from support.place import sql
from support.proxy import COMMIT, LOSSES, SCRIPT
from support.server import check, diag, equal, main, test, wait_until

LONG = bool(os.environ.get("FANTAIL_TEST_LONG"))
LOSSES_WANTED = 400 if LONG else 60
ROUNDS = 10 if LONG else 3


def lose(cluster, server, pattern, chance):
    for i, node in enumerate(cluster.nodes):
        node.proxies[server].lose(pattern, chance, seed=i + 1)


def losses(cluster, server="postgres"):
    return sum((Counter(node.proxies[server].lost) for node in cluster.nodes), Counter())


def lose_many(cluster, crowd, server, pattern, chance):
    """Until each kind of loss has been met, and enough in all."""
    def is_enough():
        met = losses(cluster, server)
        return sum(met.values()) >= LOSSES_WANTED and len(+met) == len(LOSSES)
    lose(cluster, server, pattern, chance)
    wait_until(lambda: crowd.has_failed() or is_enough(), 300, f"{LOSSES_WANTED} lost answers")
    lose(cluster, server, pattern, 0)
    diag(f"lost: {dict(losses(cluster, server))}")


@test("answers-to-commits-that-are-lost-lose-and-double-nothing")
def _():
    with Cluster(nodes=3, proxies=True) as cluster:
        crowd = Crowd(cluster)
        with crowd.writing():
            crowd.await_more(20)
            lose_many(cluster, crowd, "postgres", COMMIT, 0.05)
            crowd.await_more(20)
        crowd.verify()
        check(sum(1 for n in cluster.nodes if "the answer to a COMMIT was lost" in n.log()) == 3,
              "a node never had to look for a lost COMMIT")
        doubled = sql(cluster.place, "SELECT caption, count(*) FROM posts GROUP BY caption HAVING count(*) > 1")
        equal(doubled, [], "posts that exist twice")


class Plain:
    """Authors who say each thing once, without a key, and remember what they were told."""

    def __init__(self, cluster, authors=4):
        self.cluster = cluster
        self.authors = [cluster.nodes[0].sign_up(f"plain{i}") for i in range(authors)]
        self.told = {}  # caption → status, 0 when there was no answer
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(i,), daemon=True) for i in range(authors)]

    def _write(self, number):
        nodes, n = self.cluster.nodes, 0
        while not self._stop.is_set():
            caption = f"plain{number}-{n}"
            client = nodes[(number + n) % len(nodes)].client(self.authors[number].token)
            try:
                self.told[caption] = client.post("/v1/posts", {"caption": caption}, timeout=60).status
            except OSError:
                self.told[caption] = 0
            client.close()
            n += 1

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self._stop.set()
        for thread in self._threads:
            thread.join(90)


def check_told(cluster, plain):
    """What was answered with 201 is there once, what was not at most once; what is there is seen. The captions there."""
    statuses = Counter(plain.told.values())
    diag(f"answered: {dict(statuses)}")
    check(set(statuses) <= {201, 503, 0}, statuses)
    there = {row[0].strip('"'): int(row[1]) for row in sql(
        cluster.place, "SELECT caption, count(*) FROM posts GROUP BY caption")}
    for caption, status in plain.told.items():
        if status == 201:
            equal(there.get(caption, 0), 1, f"{caption} was answered with 201")
        check(there.get(caption, 0) <= 1, f"{caption}, answered with {status}, is there {there.get(caption)} times")
    check(set(there) <= set(plain.told), "a post that nobody wrote")
    cluster.drain()
    for number, author in enumerate(plain.authors):
        for node in cluster.nodes:
            seen = [item["caption"] for item in node.client(author.token).pages("/v1/feed", limit=100)]
            equal(sorted(seen), sorted(c for c in there if c.startswith(f"plain{number}-")))
    return there


@test("without-keys-what-was-answered-201-is-there-once-and-what-was-not-at-most-once")
def _():
    with Cluster(nodes=2, proxies=True) as cluster:
        with Plain(cluster) as plain:
            lose(cluster, "postgres", COMMIT, 0.1)
            wait_until(lambda: sum(losses(cluster).values()) >= LOSSES_WANTED, 300, "lost answers")
            lose(cluster, "postgres", COMMIT, 0)
        diag(f"lost: {dict(losses(cluster))}")
        check(check_told(cluster, plain), "nothing was written")


@test("a-commit-whose-fate-stays-unknown-is-answered-503-and-done-at-most-once")
def _():
    """What the node says still arrives, and nothing comes back, on new connections neither: it cannot look."""
    with Cluster(nodes=2, proxies=True) as cluster:
        with Plain(cluster) as plain:
            wait_until(lambda: len(plain.told) > 20, 30, "some posts")
            node = cluster.nodes[0]
            proxy = node.proxies["postgres"]
            proxy.stall_answers(after=(b"plain", COMMIT))
            wait_until(proxy.has_stalled, 30, "the COMMIT of a post to pass")
            wait_until(lambda: any('"path":"/v1/posts"' in line and "UNKNOWN_COMMIT" in line
                                   for line in node.log().splitlines()), 90, "the node to give up looking")
            proxy.resume()
            wait_until(lambda: node.anonymous.get("/readyz").status == 200, 60, "the node to be back")
        there = check_told(cluster, plain)
        check(any(there.get(caption) for caption, status in plain.told.items() if status != 201),
              "of no write that was refused was the fate unknown: the test has missed its case")


@test("answers-to-scripts-in-redis-that-are-lost-lose-and-double-nothing")
def _():
    with Cluster(nodes=3, proxies=True) as cluster:
        crowd = Crowd(cluster)
        with crowd.writing():
            crowd.await_more(20)
            lose_many(cluster, crowd, "redis", SCRIPT, 0.05)
            crowd.await_more(20)
        crowd.verify()


@test("confirms-of-the-broker-that-are-lost-lose-and-double-nothing")
def _():
    with Cluster(nodes=3, proxies=True) as cluster:
        crowd = Crowd(cluster)
        buses = [node.proxies["rabbitmq"] for node in cluster.nodes]
        with crowd.writing():
            crowd.await_more(20)
            for number in range(ROUNDS):
                chosen = buses if number == ROUNDS - 1 else [buses[number % len(buses)]]
                for proxy in chosen:
                    proxy.deafen()
                crowd.await_more(40)  # what is published now is not confirmed, what is sent to workers does not arrive
                for proxy in chosen:
                    proxy.cut()
                wait_until(lambda: all(n.anonymous.get("/readyz").json["dependencies"]["bus"] == "up"
                                       for n in cluster.nodes), 60, "every node to have its bus again")
            crowd.await_more(20)
        crowd.verify()


@test("a-broker-that-no-longer-answers-holds-no-request-up")
def _():
    """Deaf and never cut: the nodes must find out by themselves, by heartbeats."""
    with Cluster(nodes=2, proxies=True) as cluster:
        crowd = Crowd(cluster)
        with crowd.writing():
            crowd.await_more(20)
            for node in cluster.nodes:
                node.proxies["rabbitmq"].deafen()
            began = time.monotonic()
            crowd.await_more(40)
        crowd.verify()
        diag(f"delivered {time.monotonic() - began:.1f} s after the broker's answers were lost")


main()
