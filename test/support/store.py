"""A server's truth as a test sees and turns it: the file of SQLite, or the database in PostgreSQL.

    with store(server) as database:
        database.execute("SELECT id FROM jobs WHERE state = ?", (0,)).fetchone()["id"]

It is one transaction, and one snapshot. While the server runs its truth is only read. PostgreSQL is asked through psql,
since Python's standard library cannot.
"""

import contextlib
import json
import os
import sqlite3
import subprocess
import tempfile
import threading
import time

from support.server import check


class _Row(list):
    """A row whose values are found by place and by name, as sqlite3.Row has them."""

    def __init__(self, pairs):
        super().__init__(value for _, value in pairs)
        self._names = [name for name, _ in pairs]

    def __getitem__(self, at):
        return super().__getitem__(self._names.index(at) if isinstance(at, str) else at)

    def keys(self):
        return self._names


class _Rows(list):
    rowcount = -1

    def fetchone(self):
        return self[0] if self else None

    def fetchall(self):
        return self


def _literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, (int, float)):
        return repr(value)
    return "'" + str(value).replace("'", "''") + "'"


class _Postgres:
    """psql as a child that gets one statement at a time."""

    END = "-- that was all --"

    def __init__(self, url):
        self._errors = tempfile.TemporaryFile("w+")
        # psql keeps what it says to itself until it ends, unless it is made to say it line by line.
        self._psql = subprocess.Popen(
            ["stdbuf", "-oL", "psql", "-q", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)

    def tell(self, statement):
        """What it answers, line by line."""
        try:
            self._psql.stdin.write(f"{statement};\n\\echo {self.END}\n")
            self._psql.stdin.flush()
        except BrokenPipeError:
            pass  # why shows below
        lines = []
        for line in self._psql.stdout:
            line = line.rstrip("\n")
            if line == self.END:
                return lines
            lines.append(line)
        self._errors.seek(0)
        raise AssertionError(f"psql: {self._errors.read()}in {statement[:400]}")

    def execute(self, statement, values=()):
        parts = statement.split("?")
        check(len(parts) == len(values) + 1, f"{len(values)} values for {statement}")
        told = parts[0] + "".join(_literal(value) + part for value, part in zip(values, parts[1:]))
        if not told.lstrip().upper().startswith("SELECT"):
            rows = _Rows()
            rows.rowcount = int(self.tell(f"WITH changed AS ({told} RETURNING 1) SELECT COUNT(*) FROM changed")[0])
            return rows
        return _Rows(json.loads(line, object_pairs_hook=_Row)
                     for line in self.tell(f"SELECT row_to_json(found) FROM ({told}) AS found"))

    def executemany(self, statement, many):
        """In few statements: each is a way to the server and back."""
        check(statement.count(" VALUES ") == 1, "rows to insert")
        into, row = statement.split(" VALUES ")
        many = list(many)
        for at in range(0, len(many), 1000):
            some = many[at:at + 1000]
            self.execute(into + " VALUES " + ", ".join([row] * len(some)), [value for one in some for value in one])

    def close(self):
        self._psql.stdin.close()
        self._psql.stdout.close()
        self._psql.wait(30)
        self._errors.close()


@contextlib.contextmanager
def _sqlite(server, write):
    path = os.path.join(server.data, "fantail.db")
    database = sqlite3.connect(f"file:{path}?mode={'rw' if write else 'ro'}", uri=True, isolation_level=None, timeout=10)
    database.row_factory = sqlite3.Row
    try:
        database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        yield database
        database.execute("COMMIT")
    finally:
        database.close()


_kept = threading.local()  # the last psql of each thread: many tests look again and again


@contextlib.contextmanager
def _postgres(server):
    url, database = getattr(_kept, "psql", (None, None))
    if url != server.place.db:
        if database:
            database.close()
        database = _Postgres(server.place.db)
    _kept.psql = (None, None)
    try:
        database.tell("BEGIN ISOLATION LEVEL REPEATABLE READ")
        yield database
        database.tell("COMMIT")
    except BaseException:
        database.close()
        raise
    _kept.psql = (server.place.db, database)


_last_id = 0


def new_id():
    """An id such as a server would give now (src/base/id.h): above all that were given before."""
    global _last_id
    _last_id = max(_last_id + 1, int(time.time() * 1000) - 1704067200000 << 22)
    return _last_id


def store(server, write=False):
    """The server's store in one transaction; to write the server must be stopped."""
    check(not write or not server.alive(), "the store belongs to the server while it runs")
    return _postgres(server) if server.place else _sqlite(server, write)
