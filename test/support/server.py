"""A Fantail server under test, an HTTP client for it, and TAP output.

    import os, sys
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
    from support.server import Server, check, equal, test, main

    @test("a post that was answered is readable after kill -9")
    def _():
        with Server() as server:
            ada = server.sign_up("ada")
            post = ada.post("/v1/posts", {"caption": "hello"}).expect(201).json
            server.kill()
            server.start()
            equal(ada.get("/v1/posts/" + post["id"]).status, 200)

    main()

The program is $FANTAIL, else build/fantail in the repository. Every server gets a fresh data folder unless it is
given one, an unused port, and is stopped when the test ends, however it ends. Only the standard library is used.
"""

import atexit
import http.client
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from support.place import Place, is_cluster, sql

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
READY_TIMEOUT_S = float(os.environ.get("FANTAIL_TEST_READY_S", "90"))
# Waits are this many times as long as a test says: its seconds are those of an idle machine, and a busy one is slower. Only a
# test that fails waits so long.
PATIENCE = 4
PASSWORD = "correct horse battery"

_servers = []


@atexit.register
def _stop_everything():
    for server in list(_servers):
        server.close()


def program():
    """The path of the program under test."""
    return os.environ.get("FANTAIL") or os.path.join(ROOT, "build", "fantail")


def wait_until(condition, timeout_s=10.0, what="the condition"):
    """Polls until condition() is truthy and returns its value; fails loudly after PATIENCE times timeout_s."""
    deadline, pause_s = time.monotonic() + timeout_s * PATIENCE, 0.005
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s * PATIENCE:g} s in vain for {what}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.2, 0.03)  # asking costs the server something, too


class Answer:
    """What came back: status, headers (names in lower case), body as bytes."""

    def __init__(self, status, headers, body, request=""):
        self.status = status
        self.headers = headers
        self.body = body
        self.request = request

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    def expect(self, *statuses):
        """This answer, when its status is one of these; otherwise the test fails and shows it."""
        if self.status not in statuses:
            raise AssertionError(f"{self.request}: got {self.status}, wanted {statuses}: {self.text[:400]}")
        return self

    def problem(self, status):
        """Checks that this is a well-formed problem+json of that status and returns it."""
        self.expect(status)
        kind = self.headers.get("content-type", "")
        if kind != "application/problem+json":
            raise AssertionError(f"{self.request}: {status} came as {kind!r}, not as problem+json")
        problem = self.json
        if problem.get("status") != status or not problem.get("title") or not problem.get("code") \
                or problem.get("type") != "/docs#problem-" + problem["code"]:
            raise AssertionError(f"{self.request}: malformed problem {problem}")
        return problem

    def __repr__(self):
        return f"<{self.request} -> {self.status} {self.text[:200]}>"


class NoSuchMetric(LookupError):
    """A test asked for a metric that the server does not have. A loop that waits for a server must not swallow it."""


class Metrics(dict):
    """/metrics as {'name{labels}': value}. A metric that is not there is an error, never a zero: a test that reads a
    renamed metric fails."""

    def __init__(self, text):
        super().__init__()
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                self[name] = float(value)

    def __missing__(self, name):
        raise NoSuchMetric(f"there is no metric {name}")

    def get(self, name):
        return self[name]

    def total(self, family):
        """The sum of a metric over its labels."""
        found = [value for name, value in self.items() if name.split("{")[0] == family]
        if not found:
            raise NoSuchMetric(f"there is no metric {family}")
        return sum(found)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Client:
    """A caller: a token and headers of its own, and one kept connection per thread."""

    def __init__(self, server, token=None, headers=None, control=False, account=None):
        self.server = server
        self.token = token
        self.headers = dict(headers or {})
        self.control = control
        self.account = account or {}
        self._local = threading.local()

    @property
    def id(self):
        return self.account["id"]

    @property
    def username(self):
        return self.account["username"]

    def acting(self, account):
        """The same caller with Fantail-Account: for API keys with the scope act, and the control socket."""
        headers = dict(self.headers)
        headers["Fantail-Account"] = str(account)
        return Client(self.server, self.token, headers, self.control)

    def _connection(self, timeout):
        made_for = (self.server.process.pid if self.server.process else 0, self.server.port)
        kept = getattr(self._local, "kept", None)
        if kept and kept[0] == made_for:
            kept[1].timeout = timeout
            return kept[1], True
        if kept:
            kept[1].close()
        if self.control:
            connection = _UnixConnection(self.server.control_socket(), timeout)
        else:
            connection = http.client.HTTPConnection(getattr(self.server, "host", "127.0.0.1"), self.server.port,
                                                    timeout=timeout)
        self._local.kept = (made_for, connection)
        return connection, False

    def close(self):
        kept = getattr(self._local, "kept", None)
        if kept:
            kept[1].close()
            self._local.kept = None

    def request(self, method, path, body=None, headers=None, raw=None, timeout=60.0):
        """One request. `body` is sent as JSON; `raw` (bytes) as it is. Raises OSError when no answer came."""
        lines = dict(self.headers)
        if self.token is not None:
            lines.setdefault("Authorization", "Bearer " + self.token)
        payload = raw
        if body is not None:
            payload = json.dumps(body).encode()
            lines.setdefault("Content-Type", "application/json")
        lines.update(headers or {})
        for attempt in (1, 2):
            connection, reused = self._connection(timeout)
            try:
                connection.request(method, path, body=payload, headers=lines)
                answer = connection.getresponse()
                data = answer.read()
            except (http.client.HTTPException, OSError) as error:
                self.close()
                # An idle connection may be closed under us: that alone is retried, and only where it is safe.
                if attempt == 1 and reused and method in ("GET", "HEAD") and not isinstance(error, TimeoutError):
                    continue
                if isinstance(error, OSError):
                    raise
                raise ConnectionError(str(error)) from error
            got = {name.lower(): value for name, value in answer.getheaders()}
            if got.get("connection", "").lower() == "close":
                self.close()
            return Answer(answer.status, got, data, f"{method} {path}")
        raise AssertionError("unreachable")

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body=None, **more):
        return self.request("POST", path, body, **more)

    def put(self, path, body=None, **more):
        return self.request("PUT", path, body, **more)

    def patch(self, path, body=None, **more):
        return self.request("PATCH", path, body, **more)

    def delete(self, path, body=None, **more):
        return self.request("DELETE", path, body, **more)

    def pages(self, path, limit=None, pages_max=10000):
        """All items of a list, page by page."""
        items, cursor = [], None
        for _ in range(pages_max):
            query = []
            if limit:
                query.append(f"limit={limit}")
            if cursor:
                query.append(f"cursor={cursor}")
            joint = "&" if "?" in path else "?"
            page = self.get(path + (joint + "&".join(query) if query else "")).expect(200).json
            items += page["items"]
            cursor = page["next_cursor"]
            if not cursor:
                return items
        raise AssertionError(f"{path} has no end")


class Server:
    """`fantail serve` in a process of its own. Settings are keyword arguments: Server(celebrity_threshold=3).

    It runs on the drivers that FANTAIL_TEST_DRIVERS names (support/place.py). `place`: those of another server, whose
    fellow node it becomes; False: alone, whatever the tests are about.
    """

    def __init__(self, data=None, env=None, start=True, log_level="info", place=None, **settings):
        self._own_data = data is None
        self.data = data or tempfile.mkdtemp(prefix="fantail-test-")
        self.settings = settings
        self.log_level = log_level
        self.env = dict(env or {})
        self._own_place = place is None and is_cluster()
        self.place = Place() if self._own_place else place or None
        if self.place:
            self.env.update(self.place.environment())
        self.process = None
        self.host, self.port = "127.0.0.1", 0
        self.within = []  # words that run a command elsewhere, such as in a network namespace
        self.log_path = self.data.rstrip("/") + ".log"
        self.anonymous = Client(self)
        self.operator = Client(self, control=True)
        _servers.append(self)
        if start:
            self.start()

    # -- life ------------------------------------------------------------------------------------

    def start(self, wait=True, env=None, led=True, **settings):
        """Starts it and, unless asked not to, waits until /readyz answers 200; of a node also until one leads."""
        assert self.process is None, "it is running"
        self.settings.update(settings)
        command = [*self.within, program(), "serve", "--data", self.data, "--listen", f"{self.host}:0",
                   "--log-level", self.log_level]
        for name, value in self.settings.items():
            if isinstance(value, bool):
                value = "on" if value else "off"
            command += ["--" + name.replace("_", "-"), str(value)]
        environment = self.environment(**(env or {}))
        log_start = os.path.getsize(self.log_path) if os.path.exists(self.log_path) else 0
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        self.port = 0
        if wait:
            deadline = time.monotonic() + READY_TIMEOUT_S
            self.port = self._await(lambda: self._bound_port(log_start), deadline, "its port in the log")
            self._await(self._is_ready, deadline, "/readyz")
            if self.place and led:
                self.await_leader()
        return self

    def _await(self, condition, deadline, what):
        while True:
            value = condition()
            if value:
                return value
            if self.process.poll() is not None:
                code, self.process = self.process.returncode, None
                raise AssertionError(f"the server ended with {code} while starting:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the server did not show {what} in time:\n{self.log_tail()}")
            time.sleep(0.02)

    def _bound_port(self, log_start):
        """The server says in a log line which port it bound: {…,"port":8080,…}."""
        with open(self.log_path, "rb") as log:
            log.seek(log_start)
            for line in log:
                try:
                    port = json.loads(line).get("port")
                except (ValueError, AttributeError):
                    continue
                if port:
                    return int(port)
        return 0

    def _is_ready(self):
        try:
            return self.anonymous.get("/readyz", timeout=5).status == 200
        except OSError:
            return False

    def environment(self, **more):
        """What the program gets: not what is for the tests alone."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FANTAIL_TEST_")}
        return {**kept, **self.env, **more}

    def await_leader(self):
        self._await(self._is_led, time.monotonic() + READY_TIMEOUT_S, "a leader")

    def _is_led(self):
        """A node leads, and the views are trusted: as on a standalone server from the start."""
        try:
            return (self.operator.get("/v1/admin/freshness").status == 200
                    and self.metrics()["fantail_views_trusted"] == 1)
        except (OSError, AssertionError):
            return False

    def wait_exit(self, timeout_s=30):
        """Waits until it ends by itself and returns its exit code (negative: the signal that killed it)."""
        code = self.process.wait(timeout_s)
        self.process = None
        return code

    def stop(self, timeout_s=30):
        """SIGTERM: drains and ends. Returns the exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        return self.wait_exit(timeout_s)

    def kill(self):
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self, hard=False, **settings):
        if hard:
            self.kill()
        else:
            code = self.stop()
            if code != 0:
                raise AssertionError(f"the server ended with {code} on SIGTERM:\n{self.log_tail()}")
        return self.start(**settings)

    def close(self):
        """Ends it and removes what it left behind."""
        self.kill()
        if self in _servers:
            _servers.remove(self)
        if self._own_place and self.place:
            self.place.close()
            self.place = None
        if self._own_data and not os.environ.get("FANTAIL_TEST_KEEP"):
            shutil.rmtree(self.data, ignore_errors=True)
            if os.path.exists(self.log_path):
                os.unlink(self.log_path)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            print("# the server's last words:\n" + "\n".join("# " + l for l in self.log_tail().splitlines()))
        self.close()

    def alive(self):
        return self.process is not None and self.process.poll() is None

    # -- what it says ------------------------------------------------------------------------------

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def log(self):
        with open(self.log_path, "rb") as log:
            return log.read().decode("utf-8", "replace")

    def log_tail(self, lines=20):
        return "\n".join(self.log().splitlines()[-lines:]) if os.path.exists(self.log_path) else ""

    def control_socket(self):
        """The operator's socket in the data folder."""
        for name in sorted(os.listdir(self.data)):
            path = os.path.join(self.data, name)
            if stat.S_ISSOCK(os.stat(path).st_mode):
                return path
        raise ConnectionError("no control socket in " + self.data)

    def command(self, *words, timeout=60, stdin=None):
        """Runs `fantail WORD… --data DATA`; the finished process with .returncode, .stdout and .stderr as text."""
        return subprocess.run([program(), *map(str, words), "--data", self.data], capture_output=True, text=True,
                              timeout=timeout, input=stdin, env=self.environment())

    def metrics(self):
        """/metrics as {'name{labels}': value}; see Metrics."""
        return Metrics(self.anonymous.get("/metrics").expect(200).text)

    # -- people ------------------------------------------------------------------------------------

    def client(self, token=None, **more):
        return Client(self, token, **more)

    def sign_up(self, username, password=PASSWORD, **fields):
        """A new account, as a client that is logged in and knows its .id and .username."""
        body = {"username": username, "password": password, **fields}
        made = self.anonymous.post("/v1/accounts", body).expect(201).json
        return Client(self, made["token"], account=made["account"])

    def log_in(self, username, password=PASSWORD):
        made = self.anonymous.post("/v1/sessions", {"username": username, "password": password}).expect(201).json
        return Client(self, made["token"], account=made["account"])

    def key(self, *scopes, name="test"):
        """A client with a fresh API key of these scopes, made through the control socket."""
        made = self.operator.post("/v1/admin/keys", {"name": name, "scopes": " ".join(scopes)}).expect(201).json
        return Client(self, made["key"], account={"id": made["id"]})

    def drain(self, timeout_s=30):
        """Waits until everything that was committed so far has been delivered."""
        wait_until(lambda: self.operator.get("/v1/admin/status").expect(200).json["engine"]["drained"], timeout_s,
                   "the pipeline to drain")

    def save_views(self):
        """What was delivered outlives a crash: in a snapshot, or in Redis, where it is saved before it is settled."""
        if self.place:
            wait_until(lambda: sql(self.place, "SELECT COUNT(*) FROM outbox WHERE state = 0") == [["0"]], 20,
                       "every event to be settled")
        else:
            self.operator.post("/v1/admin/save").expect(200)

    def raw(self, data, timeout=5.0, wait_close=True, pause_s=0.0, chunks=None):
        """Sends bytes as they are and returns all that came back until the server closed or went silent."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as connection:
            try:
                connection.sendall(data)
                for chunk in chunks or ():
                    time.sleep(pause_s)
                    connection.sendall(chunk)
            except OSError:
                pass  # it closed on us early: what it said is still to be read
            got = b""
            connection.settimeout(timeout if wait_close else 0.5)
            try:
                while True:
                    part = connection.recv(65536)
                    if not part:
                        break
                    got += part
            except OSError:
                pass
            return got


# -- TAP ---------------------------------------------------------------------------------------------

_tests = []


def test(name, when=True):
    """Registers a function as a test; main() runs them in order. `when`: does it belong to this run at all? What is
    about one set of drivers alone is no test of the other."""

    def register(function):
        if when:
            _tests.append((name, function))
        return function

    return register


class Skip(Exception):
    """raise Skip("why") inside a test."""


def check(condition, message="a condition does not hold"):
    if not condition:
        raise AssertionError(message)


def equal(got, wanted, message=""):
    if got != wanted:
        raise AssertionError(f"{message + ': ' if message else ''}got {got!r}, wanted {wanted!r}")


def diag(text):
    for line in str(text).splitlines():
        print("# " + line, flush=True)


def main():
    """Runs the registered tests (or those whose name holds the first argument) and prints TAP."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [(name, function) for name, function in _tests if wanted in name]
    print(f"1..{len(chosen)}", flush=True)
    failed = 0
    for number, (name, function) in enumerate(chosen, 1):
        began = time.monotonic()
        try:
            function()
            print(f"ok {number} - {name}", flush=True)
        except Skip as why:
            print(f"ok {number} - {name} # SKIP {why}", flush=True)
        except Exception:  # noqa: BLE001: a test may fail in any way
            failed += 1
            diag(traceback.format_exc())
            print(f"not ok {number} - {name}", flush=True)
        diag(f"{time.monotonic() - began:.2f} s")
    sys.exit(1 if failed else 0)
