#!/usr/bin/env python3
"""Masters of a Redis Cluster are flushed at random moments, while posts are pulled and authors change their class."""

import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.cluster import Cluster, Crowd
from support.place import redis_cli, redis_hosts
from support.server import check, diag, main, test

SEED = int(os.environ.get("FANTAIL_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
ROUNDS = 20 if os.environ.get("FANTAIL_TEST_LONG") else 4
READERS, THRESHOLD, KEPT = 24, 12, 8
MASTERS = 3


class Movers:
    """Readers who unfollow an author and follow again: the author leaves the celebrity class and comes back to it."""

    def __init__(self, crowd, rand):
        self.crowd, self.seed, self.stop = crowd, rand.random(), threading.Event()
        self.failure = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            rand = random.Random(self.seed)
            while not self.stop.is_set():
                author = rand.choice(self.crowd.authors)
                for method in ("DELETE", "PUT"):
                    for reader in self.crowd.readers[KEPT:]:
                        self.crowd.persist(method, f"/v1/accounts/{author.id}/follow", reader.token, None, None, (200, 204),
                                            rand.random())
        except BaseException as failure:  # noqa: BLE001: raised where the test sees it
            self.failure = failure

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(120)
        if self.failure:
            raise self.failure


def flush_some(cluster, rand):
    """One master, or several one after the other: also in the middle of the load that the first one causes."""
    for _ in range(rand.choice((1, 1, 2, 3))):
        host, port = redis_hosts(cluster.place.views)[rand.randrange(MASTERS)]
        said = redis_cli(f"redis://{host}:{port}", "FLUSHALL")
        check(said == "OK", f"FLUSHALL: {said}")
        time.sleep(rand.random() * 0.4)  # the moment of the next one is the fault itself


@test("a-flush-of-one-master-at-random-moments-loses-no-post")
def _():
    rand = random.Random(SEED)
    diag(f"seed {SEED}")
    with Cluster(nodes=2, own=True, redis_cluster=True, celebrity_threshold=THRESHOLD, celebrity_adaptive=False) as cluster:
        crowd = Crowd(cluster, authors=4, readers=READERS)
        for _ in range(ROUNDS):
            with crowd.writing(), Movers(crowd, rand):
                crowd.await_more(rand.randrange(10, 40))
                flush_some(cluster, rand)
                crowd.await_more(10)
            crowd.verify()


main()
