#!/usr/bin/env python3
"""script/cluster: a whole cluster that starts, serves, survives the restart of a node, and leaves nothing behind."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.server import PASSWORD, ROOT, Client, check, equal, main, program, test, wait_until

SCRIPT = os.path.join(ROOT, "script", "cluster")
START_S = 180


class At:
    """Somewhere that answers HTTP, for a Client."""

    process = None

    def __init__(self, url):
        self.port = int(url.rsplit(":", 1)[1])

    def client(self, token=None):
        return Client(self, token)


class Folder:
    """A folder for a cluster, which is stopped and removed in the end, whatever happens."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="fantail-cluster-")
        return self

    def __exit__(self, kind, error, trace):
        if os.path.exists(os.path.join(self.path, ".cluster")):
            self.run("stop")
        left = self.processes()
        shutil.rmtree(self.path, ignore_errors=True)
        if kind is None:
            equal(left, [], "processes that were left behind")

    def words(self, *words):
        return [SCRIPT, "--folder", self.path, *words]

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FANTAIL_TEST_")}
        return {**kept, "FANTAIL": program(), **more}

    def run(self, *words, **env):
        return subprocess.run(self.words(*words), capture_output=True, text=True, timeout=START_S,
                              stdin=subprocess.DEVNULL, env=self.environment(**env))

    def start(self, *words):
        done = self.run("start", *words)
        equal(done.returncode, 0, done.stderr)
        return dict(line.split("=", 1) for line in self.run("env").stdout.splitlines())

    def processes(self):
        """The command lines of all processes that have to do with the folder."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    line = f.read().replace(b"\0", b" ").decode("utf-8", "replace")
                with open(f"/proc/{pid}/stat") as f:
                    is_dead = f.read().rsplit(") ", 1)[1][0] in "ZX"
                where = os.readlink(f"/proc/{pid}/cwd")
            except (OSError, IndexError):
                continue
            if not is_dead and int(pid) != os.getpid() and self.path in line + where:
                found.append(f"{pid} {line[:200]}")
        return found


def free_block():
    """The first of forty ports in a row that nobody listens on, away from those that the kernel gives out."""
    for first in range(10000 + os.getpid() % 200 * 40, 20000, 40):
        taken = False
        for port in range(first, first + 40):
            with socket.socket() as s:
                taken = taken or s.connect_ex(("127.0.0.1", port)) == 0
        if not taken:
            return str(first)
    raise AssertionError("no free ports")


def sign_up(at, name):
    made = at.client().post("/v1/accounts", {"username": name, "password": PASSWORD}).expect(201).json
    return made["token"], made["account"]["id"]


def feed(at, token):
    return [item["caption"] for item in at.client(token).get("/v1/feed?limit=20").expect(200).json["items"]]


def look_past_a_frozen_node(folder, front, author, reader):
    """A node is frozen for longer than the test looks: nginx asks another one, and then leaves it out."""
    with open(os.path.join(folder.path, "node-3", "pid")) as f:
        pid = int(f.read())
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        front.client(author).request("POST", "/v1/posts", {"caption": "three"}, headers={"Idempotency-Key": "frozen"},
                                     timeout=25).expect(201, 200)
        for _ in range(6):
            wait_until(lambda: feed(front, reader) == ["three", "two", "one"], 30, "all posts, past a frozen node")
        check(time.monotonic() - began < 40, "each request waits for the frozen node")
    finally:
        os.kill(pid, signal.SIGCONT)
    equal(feed(front, reader), ["three", "two", "one"])  # the write was made once


@test("a-cluster-serves-at-every-node-and-keeps-what-it-was-told")
def _():
    with Folder() as folder:
        env = folder.start("--port", free_block())
        nodes = [At(url) for url in env["CLUSTER_NODES"].split(",")]
        front = At(env["CLUSTER_URL"])
        equal(len(nodes), 3)
        ada, ada_id = sign_up(nodes[0], "ada")
        bob, _ = sign_up(nodes[1], "bob")
        nodes[2].client(bob).put(f"/v1/accounts/{ada_id}/follow").expect(200, 201, 204)
        nodes[0].client(ada).post("/v1/posts", {"caption": "one"}).expect(201)
        for at in [*nodes, front]:
            wait_until(lambda at=at: feed(at, bob) == ["one"], 20, "the post in the follower's feed")
        equal(folder.run("status").returncode, 0)

        pid = open(os.path.join(folder.path, "node-2", "pid")).read()
        equal(folder.run("stop", "node-2").returncode, 0)
        done = folder.run("status")
        check(done.returncode != 0 and "node-2                   does not run" in done.stdout, done.stdout)
        front.client(ada).post("/v1/posts", {"caption": "two"}).expect(201)
        for _ in range(6):  # whichever node nginx thinks of first
            wait_until(lambda: feed(front, bob) == ["two", "one"], 20, "both posts, without a node")
        equal(folder.run("restart", "node-2").returncode, 0)
        check(open(os.path.join(folder.path, "node-2", "pid")).read() != pid, "it is another process now")
        wait_until(lambda: feed(nodes[1], bob) == ["two", "one"], 20, "both posts at the node that came back")

        look_past_a_frozen_node(folder, front, ada, bob)

        done = folder.run("stop")
        equal(done.returncode, 0, done.stderr)
        equal(folder.processes(), [])
        again = folder.start()
        equal(again["CLUSTER_URL"], env["CLUSTER_URL"])
        for at in nodes:
            wait_until(lambda at=at: feed(at, bob) == ["three", "two", "one"], 20, "all posts after a restart of everything")
        done = folder.run("logs", "node-1", "postgres")
        check("node-1/log" in done.stdout and "listening" in done.stdout, done.stdout)


def heed_interrupts():
    """In a child: a test that runs in the background inherits that SIGINT is ignored, and a shell cannot undo that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@test("a-start-that-is-interrupted-leaves-nothing-running")
def _():
    for word, number, whole_group in (("postgres", signal.SIGINT, True), ("node-1", signal.SIGINT, True),
                                      ("postgres", signal.SIGTERM, False)):
        with Folder() as folder:
            with subprocess.Popen(folder.words("start", "--nodes", "1", "--port", free_block()),
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                  preexec_fn=heed_interrupts, env=folder.environment()) as start:
                for line in start.stderr:
                    if f"starting {word}" in line:
                        break
                wait_until(folder.processes, 20, "something to run")
                (os.killpg if whole_group else os.kill)(start.pid, number)
                start.stderr.read()
                equal(start.wait(60), 130)
            equal(folder.processes(), [], f"after {number!r} at {word}")


@test("a-start-that-cannot-succeed-says-why-and-leaves-nothing-running")
def _():
    first = free_block()
    for offset, who in ((0, "nginx"), (1, "node-1"), (27, "redis-cluster/3")):
        with Folder() as folder, socket.socket() as other:
            port = int(first) + offset
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", port))
            other.listen()
            done = folder.run("start", "--nodes", "1", "--port", first)
            check(done.returncode != 0 and f"port {port}, which {who} wants, is taken" in done.stderr, done.stderr)
            equal(folder.processes(), [])
    with Folder() as folder:
        done = folder.run("start", "--port", first, FANTAIL="/nowhere/fantail")
        check(done.returncode != 0 and "script/bootstrap" in done.stderr, done.stderr)
        done = folder.run("start", "--nodes", "1", "--port", first, FANTAIL_LOG_LEVEL="nonsense")
        check(done.returncode != 0 and "node-1 does not answer; its log ends with" in done.stderr, done.stderr)
        equal(folder.processes(), [])
        done = folder.run("start", "node-4", "--port", first)
        check(done.returncode != 0 and "there is no node-4" in done.stderr, done.stderr)


@test("run-gives-a-command-a-cluster-and-takes-it-away")
def _():
    with Folder() as folder:
        shutil.rmtree(folder.path)
        done = subprocess.run([SCRIPT, "run", "--nodes", "2", "--", "sh", "-c",
                               'echo "$CLUSTER_FOLDER $CLUSTER_NODES $FANTAIL_DB"; exit 7'],
                              capture_output=True, text=True, timeout=START_S, env=folder.environment())
        equal(done.returncode, 7, done.stderr)
        folder.path, nodes, db = done.stdout.split()
        equal(len(nodes.split(",")), 2)
        check(db.startswith("postgresql://"), db)
        check(not os.path.exists(folder.path), "its folder is gone")
        equal(folder.processes(), [])


main()
