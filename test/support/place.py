"""Where a server under test keeps its things: alone in its data folder, or in PostgreSQL, Redis and RabbitMQ.

FANTAIL_TEST_DRIVERS says which: "embedded" (the default) or "cluster". For "cluster" the servers must run; script/servers
starts them and tells where they are (FANTAIL_TEST_POSTGRES, FANTAIL_TEST_REDIS or FANTAIL_TEST_REDIS_CLUSTER,
FANTAIL_TEST_RABBITMQ), as script/test does. Every place has a database of its own, and a Redis database of its own; a
Redis Cluster has one only and is emptied first. At the broker every store has names of its own.

What is about one set of drivers alone says so: a test by @test(name, when=not is_cluster()), a whole script by a line
EMBEDDED_ONLY = "why", which script/test looks for.
"""

import itertools
import os
import subprocess
import threading
import urllib.parse

from support.amqp import remove_store

EMBEDDED, CLUSTER = "embedded", "cluster"
_numbers = itertools.count(1)
_lock = threading.Lock()
REDIS_DATABASES = 512


VARIABLES = {"DRIVERS", "SERVERS", "POSTGRES", "REDIS", "REDIS_CLUSTER", "RABBITMQ", "LONG", "KEEP", "SEED", "READY_S"}


def drivers():
    """The set of drivers that this run of the tests is about. A variable that says nothing here would test something else."""
    unknown = {name for name in os.environ if name.startswith("FANTAIL_TEST_")} - {f"FANTAIL_TEST_{name}" for name in VARIABLES}
    if unknown:
        raise SystemExit(f"no test reads {', '.join(sorted(unknown))}")
    wanted = os.environ.get("FANTAIL_TEST_DRIVERS", EMBEDDED)
    if wanted not in (EMBEDDED, CLUSTER):
        raise SystemExit(f"FANTAIL_TEST_DRIVERS is {EMBEDDED} or {CLUSTER}, not {wanted!r}")
    return wanted


def is_cluster():
    return drivers() == CLUSTER


def _need(name):
    value = os.environ.get(name)
    if not value:
        raise SystemExit(f"{name} is not set: start the servers with script/servers")
    return value


def _psql(url, *statements):
    words = ["psql", "-q", "-X", "-v", "ON_ERROR_STOP=1", "-d", url]
    for statement in statements:
        words += ["-c", statement]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError(f"psql: {done.stderr}")
    return done.stdout


def sql(place, statement):
    """Rows of a statement on the place's PostgreSQL, as lists of text."""
    done = subprocess.run(["psql", "-X", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-d", place.db, "-c", statement],
                          capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError(f"psql: {done.stderr}")
    return [line.split("\t") for line in done.stdout.splitlines() if line]


def redis_cli(url, *words):
    """One command to the Redis at that URL."""
    parts = urllib.parse.urlsplit(url)
    command = ["redis-cli", "-h", parts.hostname, "-p", str(parts.port or 6379)]
    if parts.path.strip("/"):
        command += ["-n", parts.path.strip("/")]
    done = subprocess.run(command + list(words), capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


def _redis_database():
    """The number of a Redis database that no other place has: all tests that run side by side draw from one counter. It is in
    database 0, which no place gets."""
    drawn = int(redis_cli(_need("FANTAIL_TEST_REDIS"), "INCR", "fantail-test-places"))
    return drawn % (REDIS_DATABASES - 1) + 1


def redis_hosts(url):
    """The (host, port) pairs of a redis:// or redis-cluster:// URL."""
    hosts = url.split("://", 1)[1].rsplit("@", 1)[-1].split("/")[0]
    return [(h.rsplit(":", 1)[0], int(h.rsplit(":", 1)[1])) for h in hosts.split(",")]


class Place:
    """One store's drivers. Servers with the same place are nodes of one store."""

    def __init__(self, redis_cluster=False):
        with _lock:
            number = next(_numbers)
        self.name = f"t{os.getpid()}_{number}"
        self._postgres = _need("FANTAIL_TEST_POSTGRES")
        base = urllib.parse.urlsplit(self._postgres)
        self.db = urllib.parse.urlunsplit(base._replace(path="/" + self.name))
        self.bus = _need("FANTAIL_TEST_RABBITMQ")
        _psql(self._postgres, f"CREATE DATABASE {self.name}")
        if redis_cluster:
            self.views = _need("FANTAIL_TEST_REDIS_CLUSTER")
            for host, port in redis_hosts(self.views):
                redis_cli(f"redis://{host}:{port}", "FLUSHALL")
        else:
            self.views = f"{_need('FANTAIL_TEST_REDIS')}/{_redis_database()}"
            redis_cli(self.views, "FLUSHDB")

    def environment(self):
        return {"FANTAIL_DB": self.db, "FANTAIL_VIEWS": self.views, "FANTAIL_BUS": self.bus}

    def close(self):
        """Removes what is left."""
        if os.environ.get("FANTAIL_TEST_KEEP"):
            return
        try:
            opened = sql(self, "SELECT 1 FROM pg_tables WHERE tablename = 'meta'")
            ids = sql(self, "SELECT value FROM meta WHERE name = 'store_id'") if opened else []
            _psql(self._postgres, f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
            if not self.views.startswith("redis-cluster"):
                redis_cli(self.views, "FLUSHDB")
            for row in ids:
                remove_store(self.bus, row[0])
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            pass  # a test may have stopped the server
