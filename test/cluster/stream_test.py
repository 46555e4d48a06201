#!/usr/bin/env python3
"""Streams at many nodes: what is written at one is told at the others."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.cluster import Cluster
from support.place import redis_cli
from support.server import check, diag, equal, main, test, wait_until
from support.sse import Stream

NEEDS_FAULTS = "a node that dies between its commit and telling of it"


def make(owner, *members):
    return owner.post("/v1/groups", {"name": "birds", "members": [m.id for m in members]}).expect(201).json["id"]


def say(client, group, body="hello"):
    return client.post(f"/v1/groups/{group}/messages", {"body": body}).expect(201).json["seq"]


def numbers(client, group, after):
    page = client.get(f"/v1/groups/{group}/messages?after={after}&limit=200").expect(200).json
    return [e["seq"] for e in page["items"]]


def heard_or_greeted(stream, group, seq, hellos, timeout_s=40):
    """The live event, or another hello, after which the client reads everything."""
    wait_until(lambda: len(stream.all("hello")) > hellos or
               any(h["seq"] >= seq for h in stream.all("group", group=group)), timeout_s, "the live event, or a hello")


@test("a-message-sent-at-one-node-reaches-the-streams-at-all")
def _():
    with Cluster(nodes=3) as cluster:
        a, b, c = cluster.nodes
        ada, bob = a.sign_up("ada"), a.sign_up("bob")
        group = make(ada, bob)
        with Stream(b, bob) as at_b, Stream(c, bob) as at_c, Stream(c, ada) as sender:
            took = []
            for i in range(10):
                began = time.monotonic()
                seq = say(cluster.nodes[i % 3].client(ada.token), group)
                for stream in (at_b, at_c, sender):
                    stream.wait("group", group=group, seq=seq)
                took.append(time.monotonic() - began)
            diag(f"from the call to the last stream: {sorted(took)[5] * 1000:.0f} ms (median), "
                 f"{max(took) * 1000:.0f} ms (worst)")
            later = make(c.client(bob.token), ada)
            sender.wait("group", group=later)


@test("read-marks-posts-and-the-end-of-a-session-travel-too")
def _():
    with Cluster(nodes=2) as cluster:
        a, b = cluster.nodes
        ada, bob = a.sign_up("ada"), a.sign_up("bob")
        group = make(ada, bob)
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        desk = b.log_in(ada.username)
        with Stream(b, desk) as stream:
            seq = say(bob, group)
            stream.wait("group", group=group, seq=seq)
            ada.put(f"/v1/groups/{group}/read", {"seq": seq}).expect(200)
            stream.wait("read", group=group, seq=seq)
            post = bob.post("/v1/posts", {"caption": "hello"}).expect(201).json["id"]
            stream.wait("feed", id=post)
            a.client(desk.token).delete("/v1/sessions/current").expect(204)
            equal(stream.wait_end().wait("bye"), {"reason": "session"})


@test("a-key-revoked-at-one-node-ends-its-streams-at-all")
def _():
    with Cluster(nodes=2) as cluster:
        a, b = cluster.nodes
        ada = a.sign_up("ada")
        made = a.operator.post("/v1/admin/keys", {"name": "product", "scopes": "act"}).expect(201).json
        product = b.client(made["key"]).acting(ada.id)
        with Stream(b, product) as by_key, Stream(b, a.sign_up("bob")) as other:
            a.operator.delete(f"/v1/admin/keys/{made['id']}").expect(204)
            equal(by_key.wait_end().wait("bye"), {"reason": "session"})
            equal(other.ended, False)


@test("entries-that-are-no-messages-reach-the-streams-at-all-nodes")
def _():
    with Cluster(nodes=3) as cluster:
        a, b, c = cluster.nodes
        ada, bob, eve = a.sign_up("ada"), a.sign_up("bob"), a.sign_up("eve")
        group = make(ada, bob, eve)
        path = f"/v1/groups/{group}"
        with Stream(b, bob) as at_b, Stream(c, bob) as at_c, Stream(c, eve) as at_eve, Stream(a, ada) as sender:
            seq = first = say(ada, group)
            took = []
            for i in range(10):
                began = time.monotonic()
                at = cluster.nodes[i % 3].client(ada.token)
                at.patch(f"{path}/messages/{first}", {"body": f"edit {i}"}).expect(200)
                seq += 1
                for stream in (at_b, at_c, at_eve, sender):
                    stream.wait("group", group=group, seq=seq)
                took.append(time.monotonic() - began)
            diag(f"an edit, from the call to the last stream: {sorted(took)[5] * 1000:.0f} ms (median), "
                 f"{max(took) * 1000:.0f} ms (worst)")
            b.client(ada.token).delete(f"{path}/members/{eve.id}").expect(204)
            a.client(ada.token).delete(f"{path}/messages/{first}").expect(204)
            for stream in (at_b, at_c, sender):
                stream.wait("group", group=group, seq=seq + 2)
            other = make(ada, eve)
            at_eve.wait("group", group=other)
            equal(max(h["seq"] for h in at_eve.all("group", group=group)), seq + 1)


@test("an-entry-is-told-though-its-node-died-before-it-could")
def _():
    with Cluster(nodes=2) as cluster:
        leader = cluster.leader()
        other, = cluster.followers()
        ada, bob = leader.sign_up("ada"), leader.sign_up("bob")
        group = make(ada, bob)
        seq = say(ada, group)
        with Stream(leader, bob) as stream:
            other.stop()
            other.start(led=False, env={"FANTAIL_FAULT": "db_after_commit:40"})
            editor = other.client(ada.token)
            try:
                for i in range(1, 1000):  # each is told before the next, so that none is told by another event
                    editor.patch(f"/v1/groups/{group}/messages/{seq}", {"body": f"words {i}"}).expect(200)
                    stream.wait("group", group=group, seq=seq + i)
            except OSError:
                pass
            wait_until(lambda: not other.alive(), 15, "the node's end")
            last = ada.get(f"/v1/groups/{group}").expect(200).json["seq"]
            check(last > seq, "nothing was edited")
            stream.wait("group", group=group, seq=last)


@test("a-client-that-lost-its-node-comes-back-and-fetches-what-it-missed")
def _():
    with Cluster(nodes=2) as cluster:
        a, b = cluster.nodes
        ada, bob = a.sign_up("ada"), a.sign_up("bob")
        group = make(ada, bob)
        with Stream(b, bob) as stream:
            first = say(ada, group)
            stream.wait("group", group=group, seq=first)
            b.kill()
            stream.wait_end()
        missed = [say(ada, group) for _ in range(5)]
        b.start()
        with Stream(b, bob) as stream:
            equal(numbers(b.client(bob.token), group, first), missed)
            seq = say(ada, group)
            stream.wait("group", group=group, seq=seq)


@test("streams-go-on-when-redis-has-lost-everything")
def _():
    with Cluster(nodes=2, own=True) as cluster:
        a, b = cluster.nodes
        ada, bob = a.sign_up("ada"), a.sign_up("bob")
        group = make(ada, bob)
        with Stream(b, bob) as stream:
            stream.wait("hello")
            redis_cli(cluster.place.views, "FLUSHALL")
            seq = say(ada, group)
            heard_or_greeted(stream, group, seq, 1)
            wait_until(lambda: len(stream.all("hello")) > 1, 40, "another hello")  # signals were lost
            cluster.drain()
            seq = say(ada, group)
            stream.wait("group", timeout_s=20, group=group, seq=seq)
            ada.patch(f"/v1/groups/{group}/messages/{seq}", {"body": "changed"}).expect(200)
            stream.wait("group", timeout_s=20, group=group, seq=seq + 1)
            items = b.client(bob.token).get("/v1/inbox").expect(200).json["items"]
            equal([i["group"]["id"] for i in items], [group])


@test("what-is-written-while-redis-is-frozen-is-told-afterwards")
def _():
    with Cluster(nodes=2, own=True) as cluster:
        a, b = cluster.nodes
        ada, bob = a.sign_up("ada"), a.sign_up("bob")
        group = make(ada, bob)
        seq = say(ada, group)
        with Stream(b, bob) as stream:
            cluster.signal("redis", signal.SIGSTOP)
            try:
                for i in range(3):
                    ada.patch(f"/v1/groups/{group}/messages/{seq}", {"body": f"edit {i}"}).expect(200)
            finally:
                cluster.signal("redis", signal.SIGCONT)
            last = ada.get(f"/v1/groups/{group}").expect(200).json["seq"]
            equal(last, seq + 3)
            stream.wait("group", timeout_s=30, group=group, seq=last)


@test("streams-go-on-when-redis-was-killed")
def _():
    with Cluster(nodes=2, own=True) as cluster:
        a, b = cluster.nodes
        ada, bob = a.sign_up("ada"), a.sign_up("bob")
        group = make(ada, bob)
        with Stream(b, bob) as stream:
            stream.wait("group", group=group, seq=say(ada, group))
            cluster.signal("redis", signal.SIGKILL)
            missed = say(ada, group)
            cluster.start_server("redis")
            wait_until(lambda: len(stream.all("hello")) > 1, 60, "another hello")
            check(missed in numbers(b.client(bob.token), group, missed - 1))
            cluster.drain()
            seq = say(ada, group)
            stream.wait("group", timeout_s=20, group=group, seq=seq)
            bob.put(f"/v1/groups/{group}/read", {"seq": seq}).expect(200)
            stream.wait("read", timeout_s=20, group=group, seq=seq)


@test("muting-at-one-node-is-heard-of-at-the-others")
def _():
    with Cluster(nodes=2) as cluster:
        a, b = cluster.nodes
        ada, bob, eve = a.sign_up("ada"), a.sign_up("bob"), a.sign_up("eve")
        for author in (bob, eve):
            ada.put(f"/v1/accounts/{author.id}/follow").expect(200)
        with Stream(b, ada) as stream:
            ada.put(f"/v1/accounts/{eve.id}/mute").expect(200)
            first = bob.post("/v1/posts", {"caption": "one"}).expect(201).json["id"]
            stream.wait("feed", id=first)  # the mute was published before it
            muted = eve.post("/v1/posts", {"caption": "unseen"}).expect(201).json["id"]
            cluster.drain()
            last = bob.post("/v1/posts", {"caption": "two"}).expect(201).json["id"]
            stream.wait("feed", id=last)
            equal(stream.all("feed", id=muted), [])


@test("a-redis-cluster-tells-too")
def _():
    with Cluster(nodes=2, own=True, redis_cluster=True) as cluster:
        a, b = cluster.nodes
        people = [a.sign_up(f"person{i}") for i in range(6)]
        group = make(people[0], *people[1:])
        streams = [Stream(b, p) for p in people]
        try:
            for _ in range(3):
                seq = say(people[1], group)
                for stream in streams:
                    stream.wait("group", group=group, seq=seq)
                people[1].patch(f"/v1/groups/{group}/messages/{seq}", {"body": "changed"}).expect(200)
                for stream in streams:
                    stream.wait("group", group=group, seq=seq + 1)
        finally:
            for stream in streams:
                stream.close()


if __name__ == "__main__":
    main()
