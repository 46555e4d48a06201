#!/usr/bin/env python3
"""PostgreSQL, Redis and RabbitMQ die, freeze and forget while people write."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.cluster import Cluster, Crowd
from support.place import redis_cli
from support.server import diag, main, test

CLUSTER = None


def cluster():
    """The servers are started once: each fault must leave them well, or the next test says so."""
    global CLUSTER
    if CLUSTER is None:
        CLUSTER = Cluster(nodes=2, own=True)
        CLUSTER.crowd = Crowd(CLUSTER)
    return CLUSTER, CLUSTER.crowd


def freeze(c, name, seconds):
    c.signal(name, signal.SIGSTOP)
    time.sleep(seconds)  # how long it is frozen is the fault itself
    c.signal(name, signal.SIGCONT)


@test("postgres-killed")
def _():
    c, crowd = cluster()
    with crowd.writing():
        crowd.await_more(20)
        c.signal("postgres", signal.SIGKILL)
        c.start_server("postgres")
        began = time.monotonic()
        crowd.await_more(10)
        diag(f"writes went on {time.monotonic() - began:.1f} s after PostgreSQL was back")
    crowd.verify()


@test("postgres-frozen")
def _():
    c, crowd = cluster()
    with crowd.writing():
        crowd.await_more(20)
        freeze(c, "postgres", 6)
        crowd.await_more(20)
    crowd.verify()


@test("redis-flushed")
def _():
    c, crowd = cluster()
    with crowd.writing():
        crowd.await_more(20)
        redis_cli(c.place.views, "FLUSHALL")
        crowd.await_more(20)
    crowd.verify()


@test("redis-killed-and-back-empty")
def _():
    c, crowd = cluster()
    with crowd.writing():
        crowd.await_more(20)
        c.signal("redis", signal.SIGKILL)
        crowd.await_more(10)
        c.start_server("redis")
        crowd.await_more(20)
    crowd.verify()


@test("redis-frozen")
def _():
    c, crowd = cluster()
    with crowd.writing():
        crowd.await_more(20)
        freeze(c, "redis", 8)
        crowd.await_more(20)
    crowd.verify()


@test("rabbitmq-killed")
def _():
    c, crowd = cluster()
    with crowd.writing():
        crowd.await_more(20)
        c.signal("rabbitmq", signal.SIGKILL)
        crowd.await_more(20)
        c.start_server("rabbitmq")
        crowd.await_more(20)
    crowd.verify()


@test("rabbitmq-frozen")
def _():
    c, crowd = cluster()
    with crowd.writing():
        crowd.await_more(20)
        freeze(c, "rabbitmq", 12)
        crowd.await_more(20)
    crowd.verify()


try:
    main()
finally:
    if CLUSTER:
        CLUSTER.close()
