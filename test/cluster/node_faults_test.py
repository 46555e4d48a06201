#!/usr/bin/env python3
"""Nodes that die, freeze and restart while people write: nothing acknowledged is lost, doubled or seen again."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.cluster import Cluster, Crowd, leads
from support.server import check, diag, main, test, wait_until


@test("kill-9-of-the-leader")
def _():
    with Cluster(nodes=3) as cluster:
        crowd = Crowd(cluster)
        with crowd.writing():
            crowd.await_more(30)
            leader = cluster.leader()
            leader.kill()
            began = time.monotonic()
            cluster.leader()
            diag(f"another node led after {time.monotonic() - began:.1f} s")
            crowd.await_more(30)
            leader.start()
            crowd.await_more(20)
        crowd.verify()


@test("kill-9-of-a-node-that-does-not-lead")
def _():
    with Cluster(nodes=3) as cluster:
        crowd = Crowd(cluster)
        with crowd.writing():
            crowd.await_more(30)
            cluster.leader()
            victim = cluster.followers()[0]
            victim.kill()
            crowd.await_more(30)
            victim.start()
            crowd.await_more(20)
        crowd.verify()


@test("a-leader-that-freezes-and-comes-back-changes-nothing")
def _():
    with Cluster(nodes=3) as cluster:
        crowd = Crowd(cluster)
        with crowd.writing():
            crowd.await_more(30)
            leader = cluster.leader()
            os.kill(leader.process.pid, signal.SIGSTOP)
            try:
                others = [n for n in cluster.nodes if n is not leader]
                began = time.monotonic()
                wait_until(lambda: any(leads(n) for n in others), 30, "another leader")
                diag(f"another node led after {time.monotonic() - began:.1f} s")
                crowd.await_more(20)
            finally:
                os.kill(leader.process.pid, signal.SIGCONT)
            wait_until(lambda: not leads(leader), 15, "the old leader to resign")
            crowd.await_more(20)
        crowd.verify()
        check(sum(1 for n in cluster.nodes if leads(n)) == 1, "exactly one leads")


@test("rolling-restart-loses-and-doubles-nothing")
def _():
    with Cluster(nodes=3) as cluster:
        crowd = Crowd(cluster)
        with crowd.writing():
            crowd.await_more(20)
            for node in cluster.nodes:
                node.restart()
                cluster.leader()
                crowd.await_more(20)
        crowd.verify()


main()
