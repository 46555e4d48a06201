"""The delivery store (the table `deliveries`) as a test sees and turns them, and the file that makes deliveries fail.

Waiting out the ladder of retries (2, 8, 32, 128, 240, 240 s) would take eleven minutes. `hurry` shortens it in the one
place where the time is: with the server stopped it sets the due times in the store back. Nothing else is touched, and what
the server then does is what it would have done later. While a server runs the store is only read.
"""

import os
import tempfile
import time

from support.server import check, equal, wait_until
from support.store import store

STATES = {1: "delayed", 2: "retrying", 3: "waiting", 4: "dead", 5: "done", 6: "discarded", 7: "dropped", 8: "parked",
          9: "released"}
OPEN = ("delayed", "retrying", "waiting", "dead")
LADDER_S = (2, 8, 32, 128, 240, 240)
# The program looks at the file of failures at most every 20 ms; nothing tells when it did.
SEEN_BY_THEN_S = 0.1


class Failures:
    """Deliveries that fail: lines "CONSUMER ERROR [ACTOR]" in a file that a build with -Dfaults=true reads."""

    def __init__(self, *lines):
        handle, self.path = tempfile.mkstemp(prefix="fantail-fail-")
        os.close(handle)
        self.write(*lines)

    @property
    def env(self):
        return {"FANTAIL_FAIL": self.path}

    def write(self, *lines):
        """From now on exactly these fail; none: everything works again."""
        with open(self.path + ".new", "w") as file:
            file.write("".join(line + "\n" for line in lines))
        os.replace(self.path + ".new", self.path)
        time.sleep(SEEN_BY_THEN_S)

    def clear(self):
        self.write()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.unlink(self.path)


class Row:
    """One delivery as the store holds it."""

    def __init__(self, row):
        self.__dict__.update({name: row[name] for name in row.keys()})
        self.state = STATES[self.state]
        self.tried_ms = [int(line.split(" ")[0]) for line in self.history.splitlines()]

    def __repr__(self):
        return f"<{self.consumer} of {self.event_id}: {self.state}, {self.tries} tries, {self.reason}>"


def matching(found, **wanted):
    """Those whose columns are as wanted: matching(found, consumer="timelines", state="dead")."""
    return [row for row in found if all(str(getattr(row, name)) == str(value) for name, value in wanted.items())]


def rows(server, **wanted):
    """Deliveries by falling id, those that match."""
    with store(server) as database:
        found = [Row(row) for row in database.execute("SELECT * FROM deliveries ORDER BY id DESC")]
    return matching(found, **wanted)


def hurry(server):
    """The server is stopped: whatever is delayed is due now."""
    with store(server, write=True) as database:
        database.execute("UPDATE deliveries SET due_at = ? WHERE state = 1", (int(time.time() * 1000) - 1,))


def wear_out(server):
    """The server is stopped: whatever is delayed is due now, and the next failure is its last. The whole way there is climbed
    in test/crash/retry_test.py."""
    hurry(server)
    with store(server, write=True) as database:
        database.execute("UPDATE deliveries SET tries = 6 WHERE state = 1")


def verify_deliveries(server):
    """What must hold of the delivery store at any moment (src/pipe/delivery_store.h): the counts are those of the rows; of one key at most
    one is tried, and it is the first that is open."""
    with store(server) as database:
        counted = {tuple(row)[:5]: row["count"] for row in database.execute("SELECT * FROM delivery_counts") if row["count"]}
        there = {tuple(row)[:5]: row["n"] for row in database.execute(
            "SELECT consumer, type, lane, state, CASE WHEN state IN (4, 8) THEN reason ELSE '' END, COUNT(*) AS n "
            "FROM deliveries GROUP BY 1, 2, 3, 4, 5")}
        keyed = [Row(row) for row in database.execute(
            "SELECT * FROM deliveries WHERE order_key <> 0 AND state <= 4 ORDER BY lane, order_key, event_id, id")]
    equal(counted, there, "the counts of deliveries are not those of the rows")
    first = {}
    for row in keyed:
        leader = first.setdefault((row.lane, row.order_key), row)
        check(row is leader or row.state in ("waiting", "dead"), f"{row} is tried although {leader} is ahead of it")


def await_deliveries(server, condition, what, timeout_s=15):
    """Waits until condition(rows) holds of the whole delivery store, and returns them as they then were."""
    found = []

    def holds():
        found[:] = rows(server)
        return condition(found)

    try:
        wait_until(holds, timeout_s, what)
    except AssertionError as error:
        raise AssertionError(f"{error}; there are {found}") from None
    return found


def await_settled(server):
    """Waits until the watermark has passed every event: a replay leaves those above it to the live engine."""

    def pending():
        with store(server) as database:
            return database.execute("SELECT COUNT(*) FROM outbox WHERE state = 0").fetchone()[0]

    wait_until(lambda: pending() == 0, 15, "every event to be settled")


class Tries:
    """Watches that no row is lost, that tries never fall, and that what is closed stays closed. A row that was done, perhaps
    between two looks, makes way when a restart has to deliver its event once more: then the new one stands for it."""

    def __init__(self):
        self.seen = {}

    @staticmethod
    def _successor(before, found):
        same = [row for row in found.values() if (row.event_id, row.consumer) == (before.event_id, before.consumer)]
        return max(same, key=lambda row: row.tries, default=None)

    def look(self, server):
        found = {row.id: row for row in rows(server)}
        for id_, before in self.seen.items():
            now = found.get(id_) or self._successor(before, found)
            check(now is not None, f"{before} is not in the delivery store any more")
            check(now.tries >= before.tries or now.id != id_, f"{before} has fewer tries now: {now}")
            if before.state not in OPEN and now.id == id_:
                equal(now.state, before.state, f"{before} was closed")
        self.seen = found
        verify_deliveries(server)
        return list(found.values())
