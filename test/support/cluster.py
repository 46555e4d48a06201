"""Several nodes of one store, the servers under them, and people who write while something breaks.

    with Cluster(nodes=3, own=True) as cluster:
        crowd = Crowd(cluster)
        with crowd.writing():
            cluster.signal("postgres", signal.SIGKILL)
            cluster.start_server("postgres")
        crowd.verify()

A server that a test harms must be its own (`own`): script/servers starts it in a folder of the test's.
"""

import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from support.place import Place
from support.proxy import through
from support.server import ROOT, Server, check, diag, wait_until

SERVERS = os.path.join(ROOT, "script", "servers")
GREEN_S = 60
SILENT_S = 10


class Cluster:
    def __init__(self, nodes=3, own=False, redis_cluster=False, env=None, roles=None, start=True, proxies=False, **settings):
        """`proxies`: each node reaches its servers through proxies of its own, node.proxies (support/proxy.py)."""
        self.folder = None
        self._saved = {}
        self.redis_cluster = redis_cluster
        self.nodes = []
        try:
            if own:
                self._start_own()
            self.place = Place(redis_cluster=redis_cluster)
            settings = {"rate_auth": 0, "rate_write": 0, **settings}
            for i in range(nodes):
                more = {"role": roles[i]} if roles else {}
                node = Server(place=self.place, start=False, env=env, **settings, **more)
                self.nodes.append(node)
                if proxies:
                    put_proxies(node)
            if start:
                for node in self.nodes:
                    node.start(led=False)
                for node in self.nodes:
                    node.await_leader()
        except BaseException:
            self.close()
            raise

    # -- the servers underneath --

    def _start_own(self):
        self.folder = tempfile.mkdtemp(prefix="fantail-servers-")
        os.chmod(self.folder, 0o755)
        names = ["postgres", "redis-cluster" if self.redis_cluster else "redis", "rabbitmq"]
        done = subprocess.run([SERVERS, "start", self.folder, *names], capture_output=True, text=True, timeout=240)
        check(done.returncode == 0, f"the servers do not start: {done.stderr}")
        for line in subprocess.run([SERVERS, "env", self.folder], capture_output=True, text=True).stdout.splitlines():
            name, value = line.split("=", 1)
            self._saved[name] = os.environ.get(name)
            os.environ[name] = value

    def server_pid(self, name):
        with open(os.path.join(self.folder, name, "pid")) as f:
            return int(f.read())

    def signal(self, name, number):
        """Sends a signal to a server that is the test's own, and to its children."""
        pid = self.server_pid(name)
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
        for one in [pid, *map(int, children)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, number)

    def start_server(self, name):
        done = subprocess.run([SERVERS, "start", self.folder, name], capture_output=True, text=True, timeout=240)
        check(done.returncode == 0, f"{name} does not start again: {done.stderr}")

    # -- the nodes --

    def leader(self, timeout_s=30):
        """The node that leads."""
        return wait_until(lambda: next((n for n in self.nodes if n.alive() and leads(n)), None), timeout_s, "a leader")

    def followers(self):
        return [n for n in self.nodes if n.alive() and not leads(n)]

    def drain(self, timeout_s=GREEN_S):
        """Waits until everything is delivered and the views are answered from again."""
        began = time.monotonic()
        wait_until(lambda: any(n.alive() and is_drained(n) for n in self.nodes), timeout_s, "the pipeline to drain")
        for node in self.nodes:
            if node.alive():
                wait_until(lambda: value(node, "fantail_views_trusted") == 1, timeout_s, "the views to be trusted")
        return time.monotonic() - began

    def close(self):
        for node in self.nodes:
            node.close()
            for proxy in getattr(node, "proxies", {}).values():
                proxy.close()
        if getattr(self, "place", None):
            self.place.close()
        if self.folder:
            subprocess.run([SERVERS, "stop", self.folder], capture_output=True, timeout=120)
            if not os.environ.get("FANTAIL_TEST_KEEP"):
                shutil.rmtree(self.folder, ignore_errors=True)
            for name, old in self._saved.items():
                if old is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = old

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            for i, node in enumerate(self.nodes):
                diag(f"node {i}:\n{node.log_tail(25)}")
        self.close()


def put_proxies(node, listen="127.0.0.1"):
    """Puts a proxy between a node and each of its servers."""
    node.proxies = {}
    for name, variable in (("postgres", "FANTAIL_DB"), ("redis", "FANTAIL_VIEWS"), ("rabbitmq", "FANTAIL_BUS")):
        node.proxies[name], node.env[variable] = through(node.env[variable], listen)


def value(node, name):
    """A metric of a node; None: the node does not answer."""
    try:
        return node.metrics()[name]
    except (OSError, AssertionError):
        return None


def leads(node):
    return value(node, "fantail_node_leads") == 1


def is_drained(node):
    try:
        status = node.operator.get("/v1/admin/status", timeout=10)
        return status.status == 200 and (status.json.get("engine") or {}).get("drained") is True
    except OSError:
        return False


class Crowd:
    """Authors who post through whatever node answers, readers who follow all of them, and what must be true of it."""

    def __init__(self, cluster, authors=4, readers=3):
        self.cluster = cluster
        first = cluster.nodes[0]
        self.authors = [first.sign_up(f"author{i}") for i in range(authors)]
        self.readers = [first.sign_up(f"reader{i}") for i in range(readers)]
        for reader in self.readers:
            for author in self.authors:
                reader.put(f"/v1/accounts/{author.id}/follow").expect(200)
        self.acknowledged = {}  # caption → id
        self.tried, self.deleted = set(), set()
        self.deleting = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._failures = []
        self._said = [0] * authors
        self._silent = {}  # node → until when
        self.errors = self.looks = 0
        self.longest_gap_s = 0.0

    def _some_node(self, rand):
        """Any node, but who was silent is left alone for a while, as those do who stand before nodes."""
        nodes = [n for n in self.cluster.nodes if n.alive() and n.port]
        now = time.monotonic()
        return rand.choice([n for n in nodes if self._silent.get(n, 0) < now] or nodes) if nodes else None

    def _say(self, method, path, token, body, key, node, timeout_s=15):
        if node is None:
            return None
        client = node.client(token)
        try:
            return client.request(method, path, body, headers={"Idempotency-Key": key} if key else None, timeout=timeout_s)
        except TimeoutError:
            self._silent[node] = time.monotonic() + SILENT_S
            return None
        except OSError:
            return None
        finally:
            client.close()

    def persist(self, method, path, token, body, key, wanted, seed):
        """Repeats a request, at another node, until one answers as wanted, or the writing has ended."""
        rand = random.Random(str(seed))
        deadline = None
        for tries in itertools.count(1):
            answer = self._say(method, path, token, body, key, self._some_node(rand))
            if answer is not None and answer.status in wanted:
                answer.tries = tries
                return answer
            check(answer is None or answer.status in (409, 429, 503, 500), f"{method} {path}: {answer}")
            with self._lock:
                self.errors += 1
            if self._stop.is_set():
                deadline = deadline or time.monotonic() + GREEN_S
                if time.monotonic() > deadline:
                    return None
            time.sleep(0.05)

    def _look(self, token, rand):
        """The captions of a person's first page at any node; None: it could not be read."""
        answer = self._say("GET", "/v1/feed?limit=100", token, None, None, self._some_node(rand), timeout_s=5)
        return [item["caption"] for item in answer.json["items"]] if answer is not None and answer.status == 200 else None

    def _run(self, number):
        try:
            self._write(number)
        except BaseException as failure:  # noqa: BLE001: it is raised again where the test sees it
            self._failures.append(failure)

    def _write(self, number):
        author = self.authors[number]
        rand = random.Random(number)
        last = time.monotonic()
        while not self._stop.is_set():
            n = self._said[number]  # over all writings: what is said again with its key is answered as it was then
            self._said[number] += 1
            caption = f"{author.username} {n}"
            with self._lock:
                self.tried.add(caption)
            answer = self.persist("POST", "/v1/posts", author.token, {"caption": caption}, f"p-{caption}".replace(" ", "-"),
                                   (201, 200), (number, n))
            if answer is None:
                return
            now = time.monotonic()
            with self._lock:
                self.acknowledged[caption] = answer.json["id"]
                self.longest_gap_s = max(self.longest_gap_s, now - last)
            last = now
            if rand.random() < 0.15:
                self._check_own(author, caption, answer, rand)
                with self._lock:
                    self.deleting.add(caption)
                gone = self.persist("DELETE", f"/v1/posts/{answer.json['id']}", author.token, None, None, (204, 200, 404),
                                     (number, n, 1))
                if gone is not None:
                    self._check_gone(caption, gone, rand)
                    with self._lock:
                        self.deleted.add(caption)
            time.sleep(0.02)

    # What was done and answered is seen at once, at any node, whatever is broken; unless the answer is about an earlier
    # try, at a node that may have died over it: then it is seen when the leader has found it.

    def _check_own(self, author, caption, answer, rand):
        if answer.tries == 1 and answer.status == 201:
            seen = self._look(author.token, rand)
            check(seen is None or caption in seen, f"{caption} was answered and is not in its author's own feed")
            self.looks += seen is not None

    def _check_gone(self, caption, answer, rand):
        if answer.tries == 1 and answer.status == 204:
            seen = self._look(rand.choice(self.readers).token, rand)
            check(seen is None or caption not in seen, f"{caption} was deleted and is still seen")
            self.looks += seen is not None

    @contextlib.contextmanager
    def writing(self):
        self._stop.clear()
        self._failures.clear()
        threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(len(self.authors))]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(GREEN_S + 30)
        if self._failures:
            raise self._failures[0]

    def has_failed(self):
        """Has one of those who write met something that must not be? It is raised when the writing ends."""
        return bool(self._failures)

    def count(self):
        with self._lock:
            return len(self.acknowledged)

    def await_more(self, n, timeout_s=GREEN_S):
        """Waits until n more posts were acknowledged."""
        wanted = self.count() + n
        wait_until(lambda: self._failures or self.count() >= wanted, timeout_s, f"{n} more posts to be acknowledged")
        if self._failures:
            raise self._failures[0]

    def verify(self):
        """Nothing acknowledged is lost, nothing is there twice, nothing deleted is seen, at any node; feeds, counters and
        edges are what truth says."""
        took = self.cluster.drain()
        alive = [n for n in self.cluster.nodes if n.alive() and "api" in n.settings.get("role", "api")]
        for node in alive:
            for reader in self.readers:
                client = node.client(reader.token)
                captions = [item["caption"] for item in client.pages("/v1/feed", limit=100)]
                client.close()
                seen = set(captions)
                check(len(captions) == len(seen), f"doubled: {[c for c in seen if captions.count(c) > 1][:5]}")
                lost = set(self.acknowledged) - self.deleting - seen
                check(not lost, f"{len(lost)} acknowledged posts are lost, such as {sorted(lost)[:5]}")
                again = seen & self.deleted
                check(not again, f"deleted and seen again: {sorted(again)[:5]}")
                check(seen <= self.tried, "a feed shows a post that no client sent")
        done = alive[-1].command("check", "--all")
        check(done.returncode == 0, f"fantail check: {done.stdout}{done.stderr}")
        diag(f"{len(self.acknowledged)} posts acknowledged, {self.looks} looks in between, {self.errors} tries failed, the "
             f"longest wait for an answer was {self.longest_gap_s:.1f} s, green {took:.1f} s after the end")
        return took
