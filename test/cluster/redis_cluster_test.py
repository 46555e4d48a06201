#!/usr/bin/env python3
"""A Redis Cluster of three masters with a replica each: a master dies and its replica takes over."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.cluster import Cluster, Crowd
from support.place import redis_cli, redis_hosts
from support.server import check, diag, main, test


@test("failover-of-a-master-without-an-error-to-the-reader")
def _():
    with Cluster(nodes=2, own=True, redis_cluster=True) as cluster:
        crowd = Crowd(cluster)
        reader = cluster.nodes[1].client(crowd.readers[0].token)
        with crowd.writing():
            crowd.await_more(30)
            cluster.signal("redis-cluster/1", signal.SIGKILL)
            began, slowest = time.monotonic(), 0.0
            while time.monotonic() - began < 10:
                asked = time.monotonic()
                reader.get("/v1/feed").expect(200)
                slowest = max(slowest, time.monotonic() - asked)
                time.sleep(0.05)
            diag(f"the slowest feed took {slowest:.1f} s")
            crowd.await_more(20)
        host, port = redis_hosts(cluster.place.views)[1]
        check("cluster_state:ok" in redis_cli(f"redis://{host}:{port}", "CLUSTER", "INFO"), "Redis Cluster is not well")
        crowd.verify()


main()
