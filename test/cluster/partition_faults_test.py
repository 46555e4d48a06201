#!/usr/bin/env python3
"""Nodes that are cut off: from everything, or from one of their servers, while the others are not.

Most cuts are stalled proxies, one for each node and server: nothing passes and nobody is told, which is what a network
does that drops packets. One test has a node in a network namespace of its own and takes the link down.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.cluster import Cluster, Crowd, leads, put_proxies, value
from support.place import sql
from support.proxy import COMMIT, SCRIPT
from support.server import Metrics, check, diag, equal, main, test, wait_until

LONG = os.environ.get("FANTAIL_TEST_LONG") == "1"
MISFORTUNE_S = 600 if LONG else 40
REPLACED_S = 15  # a lease is over after 3 s; the rest is patience with a busy machine
QUARANTINE_S = 40     # who does not reach the store writes nothing after 20 s, and its beat may hang before that


@contextlib.contextmanager
def cut_off(node, *names):
    """Nothing passes between a node and these servers."""
    for name in names:
        node.proxies[name].stall()
    try:
        yield
    finally:
        for name in names:
            node.proxies[name].resume()


def ready(node):
    return node.anonymous.get("/readyz", timeout=5)


def say(node, author, caption, timeout=40):
    """One post at one node; its status, or 0 when no answer came."""
    client = node.client(author.token)
    try:
        return client.post("/v1/posts", {"caption": caption}, timeout=timeout).status
    except OSError:
        return 0
    finally:
        client.close()


def await_another_leader(cluster, old):
    began = time.monotonic()
    others = [n for n in cluster.nodes if n is not old]
    leader = wait_until(lambda: next((n for n in others if leads(n)), None), REPLACED_S, "another leader")
    diag(f"another node led after {time.monotonic() - began:.1f} s")
    return leader


def count(cluster, caption):
    return int(sql(cluster.place, f"SELECT count(*) FROM posts WHERE caption LIKE '%{caption}%'")[0][0])


def await_back(cluster, node, author, caption):
    """The node serves again: it is ready, takes a write, and others show it."""
    wait_until(lambda: ready(node).status == 200, 60, "the node to be ready again")
    wait_until(lambda: say(node, author, caption) == 201, 60, "the node to take a write")
    equal(count(cluster, caption), 1)


@test("a-leader-cut-off-from-everything-is-replaced-and-changes-nothing")
def _():
    with Cluster(nodes=3, proxies=True) as cluster:
        crowd = Crowd(cluster)
        stray = cluster.nodes[0].sign_up("stray")
        with crowd.writing():
            crowd.await_more(30)
            leader = cluster.leader()
            with cut_off(leader, "postgres", "redis", "rabbitmq"):
                new = await_another_leader(cluster, leader)
                wait_until(lambda: not leads(leader), REPLACED_S, "the one cut off to know that it does not lead")
                equal(say(new, stray, "others go on", timeout=10), 201)
                status = say(leader, stray, "cut off")
                check(status in (0, 503), f"a node without a store answered {status}")
                equal(count(cluster, "cut off"), 0, "a write at the node that was cut off")
                wait_until(lambda: ready(leader).status == 503, QUARANTINE_S, "the node to be quarantined")
                equal(ready(leader).json["dependencies"]["db"], "away")
                crowd.await_more(30)
            await_back(cluster, leader, stray, "back again")
            crowd.await_more(30)
        crowd.verify()
        check(count(cluster, "cut off") <= 1, "a write that was refused is there more than once")
        equal(sum(1 for n in cluster.nodes if leads(n)), 1, "leaders")


@test("a-leader-cut-off-from-postgres-alone-is-replaced")
def _():
    with Cluster(nodes=3, proxies=True) as cluster:
        crowd = Crowd(cluster)
        stray = cluster.nodes[0].sign_up("stray")
        with crowd.writing():
            crowd.await_more(30)
            leader = cluster.leader()
            with cut_off(leader, "postgres"):
                await_another_leader(cluster, leader)
                wait_until(lambda: not leads(leader), REPLACED_S, "the one cut off to know that it does not lead")
                wait_until(lambda: ready(leader).status == 503, QUARANTINE_S, "the node to be quarantined")
                equal(ready(leader).json["dependencies"]["db"], "away")
                equal(say(leader, stray, "quarantined"), 503)
                crowd.await_more(30)
            await_back(cluster, leader, stray, "back again")
            crowd.await_more(20)
        crowd.verify()


@test("a-node-cut-off-from-redis-is-quarantined-while-others-are-not")
def _():
    with Cluster(nodes=3, proxies=True) as cluster:
        crowd = Crowd(cluster)
        stray = cluster.nodes[0].sign_up("stray")
        cluster.leader()
        victim = cluster.followers()[0]
        others = [n for n in cluster.nodes if n is not victim]
        with crowd.writing():
            crowd.await_more(30)
            with cut_off(victim, "redis"):
                wait_until(lambda: ready(victim).status == 503, QUARANTINE_S, "the node to be quarantined")
                equal(ready(victim).json["status"], "quarantined")
                equal(ready(victim).json["dependencies"]["views"], "away")
                equal(ready(victim).json["dependencies"]["db"], "up")
                equal(say(victim, stray, "quarantined"), 503)
                equal(count(cluster, "quarantined"), 0)
                for node in others:
                    equal(ready(node).status, 200)
                    equal(say(node, stray, f"others {node.port}"), 201)
                crowd.await_more(30)
                # The others' views are loaded again and trusted, though one node cannot reach them.
                for node in others:
                    wait_until(lambda: value(node, "fantail_views_trusted") == 1, 60, "the others to trust their views")
            await_back(cluster, victim, stray, "back again")
            crowd.await_more(20)
        crowd.verify()


@test("a-leader-cut-off-from-redis-leaves-it-to-another")
def _():
    with Cluster(nodes=3, proxies=True) as cluster:
        crowd = Crowd(cluster)
        with crowd.writing():
            crowd.await_more(30)
            leader = cluster.leader()
            with cut_off(leader, "redis"):
                await_another_leader(cluster, leader)
                crowd.await_more(30)
            wait_until(lambda: ready(leader).status == 200, 60, "the node to be ready again")
            crowd.await_more(20)
        crowd.verify()


@test("a-leader-cut-off-from-rabbitmq-leaves-it-to-another-and-takes-writes")
def _():
    with Cluster(nodes=3, proxies=True) as cluster:
        crowd = Crowd(cluster)
        stray = cluster.nodes[0].sign_up("stray")
        reader = cluster.nodes[0].sign_up("strayreader")
        reader.put(f"/v1/accounts/{stray.id}/follow").expect(200)
        with crowd.writing():
            crowd.await_more(30)
            leader = cluster.leader()
            with cut_off(leader, "rabbitmq"):
                new = await_another_leader(cluster, leader)
                equal(say(leader, stray, "without a bus"), 201)
                seen = lambda: [i["caption"] for i in new.client(reader.token).get("/v1/feed").expect(200).json["items"]]
                wait_until(lambda: "without a bus" in seen(), 30, "the post at another node, while the bus is away here")
                crowd.await_more(30)
            crowd.await_more(20)
        crowd.verify()


# -- all of it, at random --


class Misfortune:
    """One thing after the other happens to some node, by a seed; healed is what must be."""

    def __init__(self, cluster, seed):
        self.cluster, self.rand = cluster, random.Random(seed)
        self.met = Counter()

    def happen(self):
        node = self.rand.choice(self.cluster.nodes)
        fault = self.rand.choice([self.stall, self.stall_one, self.lose_answers, self.lose_commits, self.lose_scripts,
                                  self.deafen, self.freeze, self.kill])
        self.met[fault.__name__] += 1
        fault(node)

    def pause(self, least_s, most_s):
        time.sleep(self.rand.uniform(least_s, most_s))  # how long it lasts is the fault itself

    def stall(self, node):
        with cut_off(node, *node.proxies):
            self.pause(0.5, 8)

    def stall_one(self, node):
        with cut_off(node, self.rand.choice(list(node.proxies))):
            self.pause(0.5, 12)

    def lose_answers(self, node):
        proxy = self.rand.choice(list(node.proxies.values()))
        proxy.stall_answers()
        self.pause(0.5, 5)
        proxy.resume()

    def lose_commits(self, node):
        node.proxies["postgres"].lose(COMMIT, 0.3, self.rand.random())
        self.pause(0.5, 3)
        node.proxies["postgres"].lose(COMMIT, 0)

    def lose_scripts(self, node):
        node.proxies["redis"].lose(SCRIPT, 0.3, self.rand.random())
        self.pause(0.5, 3)
        node.proxies["redis"].lose(SCRIPT, 0)

    def deafen(self, node):
        proxy = self.rand.choice(list(node.proxies.values()))
        proxy.deafen()
        self.pause(0.1, 2)
        proxy.cut()

    def freeze(self, node):
        os.kill(node.process.pid, signal.SIGSTOP)
        try:
            self.pause(0.5, 6)
        finally:
            os.kill(node.process.pid, signal.SIGCONT)

    def kill(self, node):
        node.kill()
        self.pause(0.1, 4)
        node.start(led=False)


@test("whatever-happens-to-nodes-and-links-loses-and-doubles-nothing")
def _():
    # The same each time, so that a change is judged by what it changed; a long run looks elsewhere.
    seed = int(os.environ.get("FANTAIL_TEST_SEED") or (random.randrange(1 << 32) if LONG else 1))
    diag(f"FANTAIL_TEST_SEED={seed}")
    with Cluster(nodes=3, proxies=True) as cluster:
        crowd, misfortune = Crowd(cluster), Misfortune(cluster, seed)
        with crowd.writing():
            crowd.await_more(20)
            end = time.monotonic() + MISFORTUNE_S
            while time.monotonic() < end and not crowd.has_failed():
                misfortune.happen()
            crowd.await_more(20)
        diag(f"met: {dict(misfortune.met)}")
        crowd.verify()
        equal(sum(1 for n in cluster.nodes if leads(n)), 1, "leaders")


# -- a namespace --


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20)
    check(done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()} (network namespaces need CAP_SYS_ADMIN and "
                                "CAP_NET_ADMIN; without privileges this test is not part of the run)")


class Namespace:
    """A network namespace with one link to this one; `down` takes the link down, `up` brings it back."""

    def __init__(self):
        self.name = f"fantail-{os.getpid()}"
        self.ours, self.theirs = f"ft{os.getpid()}a"[:15], f"ft{os.getpid()}b"[:15]
        net = f"198.18.{os.getpid() % 250}"  # set aside for tests of networks: nobody's addresses
        self.host, self.inside = f"{net}.1", f"{net}.2"

    def __enter__(self):
        check(subprocess.run(["sh", "-c", "command -v ip"], capture_output=True).returncode == 0, "iproute2 is missing")
        try:
            ip("netns", "add", self.name)
            ip("link", "add", self.ours, "type", "veth", "peer", "name", self.theirs, "netns", self.name)
            ip("addr", "add", f"{self.host}/24", "dev", self.ours)
            ip("link", "set", self.ours, "up")
            ip("-n", self.name, "addr", "add", f"{self.inside}/24", "dev", self.theirs)
            ip("-n", self.name, "link", "set", "lo", "up")
            self.up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def up(self):
        ip("-n", self.name, "link", "set", self.theirs, "up")

    def down(self):
        ip("-n", self.name, "link", "set", self.theirs, "down")

    def __exit__(self, *error):
        for words in (["link", "del", self.ours], ["netns", "del", self.name]):
            subprocess.run(["ip", *words], capture_output=True, timeout=20)


@contextlib.contextmanager
def link_down(space):
    space.down()
    try:
        yield
    finally:
        space.up()


@test("a-node-whose-link-goes-down-is-replaced-and-serves-again", when=os.geteuid() == 0)
def _():
    with Namespace() as space, Cluster(nodes=3, start=False) as cluster:
        far, *near = cluster.nodes
        far.host, far.within = space.inside, ["ip", "netns", "exec", space.name]
        put_proxies(far, listen=space.host)
        for node in near:
            node.host = space.host
        far.start()
        check(leads(far), "the first node leads")
        for node in near:
            node.start()
        crowd = Crowd(cluster)
        stray = near[0].sign_up("stray")
        with crowd.writing():
            crowd.await_more(30)
            for number in range(2):  # as the leader, then as one that follows
                led = leads(far)
                with link_down(space):
                    if led:
                        await_another_leader_than(far, near)
                    # It is still asked, over the socket in its folder, and must not pretend.
                    answer = far_says(far, stray, f"cut off {number}")
                    check(answer in (0, 503), f"a node without a network answered {answer}")
                    equal(count(cluster, f"cut off {number}"), 0)
                    for node in near:
                        equal(say(node, stray, f"near {number} {node.port}", timeout=10), 201)
                    crowd.await_more(30)
                await_back(cluster, far, stray, f"back {number}")
                crowd.await_more(20)
        crowd.verify()
        for number in range(2):
            check(count(cluster, f"cut off {number}") <= 1, "a refused write is there more than once")


def await_another_leader_than(far, near):
    began = time.monotonic()
    wait_until(lambda: any(leads(n) for n in near), REPLACED_S, "another leader")
    diag(f"another node led after {time.monotonic() - began:.1f} s")
    control = lambda: Metrics(far.operator.get("/metrics", timeout=10).text)
    wait_until(lambda: control()["fantail_node_leads"] == 0, REPLACED_S, "the one cut off to know that it does not lead")


def far_says(node, author, caption):
    try:
        return node.operator.acting(author.id).post("/v1/posts", {"caption": caption}, timeout=40).status
    except OSError:
        return 0


main()
