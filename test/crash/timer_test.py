#!/usr/bin/env python3
"""Timers over crashes: killed before a timer's event is committed and after it, and at any moment, every timer becomes one
event, in the order of due times, not before its time and soon after."""
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.place import is_cluster  # noqa: E402
from support.server import ROOT, Server, check, diag, equal, main, test, wait_until  # noqa: E402
from support.store import store  # noqa: E402

os.environ.setdefault("FANTAIL", os.path.join(ROOT, "build-faults", "fantail"))
LONG = os.environ.get("FANTAIL_TEST_LONG") == "1"
OCCURRENCES = (1, 2, 3, 5) if LONG else (1,) if is_cluster() else (1, 2)
TIMERS = 600  # more than fire at once
SETTINGS = dict(celebrity_adaptive=False, rate_auth=0, rate_write=0)


def set_timers(server, account, first, count, due_ms, step_ms):
    """An event of that account each, whose value is the timer's number. No consumer acts on it."""
    with store(server, write=True) as database:
        database.executemany("INSERT INTO timers (type, key, due_at, version, payload) VALUES ('account.updated', ?, ?, 1, ?)",
                             [(n, due_ms + (n - first) * step_ms, f'{{"actor":"{account}","object":"0","value":{n}}}')
                              for n in range(first, first + count)])


def fired(server):
    """(number, ms) of every timer that became an event, in the order of the events."""
    with store(server) as database:
        rows = database.execute("SELECT id, payload FROM outbox WHERE type = 'account.updated' ORDER BY id").fetchall()
    epoch_ms = 1704067200000
    return [(int(row[1].split('"value":')[1].split("}")[0]), (int(row[0]) >> 22) + epoch_ms) for row in rows]


def verify(server, count, due_ms, step_ms):
    def waiting():
        with store(server) as database:
            return database.execute("SELECT COUNT(*) FROM timers").fetchall()[0][0]

    wait_until(lambda: waiting() == 0, 60, "all timers to fire")
    events = fired(server)
    equal([n for n, _ in events], list(range(count)), "each once, in the order of due times")
    return [at - (due_ms + n * step_ms) for n, at in events]


def crash_at(point, occurrence):
    """True when the point was reached."""
    with Server(**SETTINGS) as server:
        account = server.sign_up("ada").id
        server.stop()
        due_ms = int(time.time() * 1000) - 1000
        set_timers(server, account, 0, TIMERS, due_ms, 5)
        died = False
        try:
            server.start(env={"FANTAIL_FAULT": f"{point}:{occurrence}"})
            wait_until(lambda: server.process.poll() is not None, 30, f"{point} to be reached")
            died = True
        except AssertionError as error:
            died = "ended with -9" in str(error)
        server.kill()
        server.start()
        verify(server, TIMERS, due_ms, 5)
        return died


def add(point):
    @test(f"kill-9-at-{point}-fires-every-timer-once")
    def _():
        reached = [occurrence for occurrence in OCCURRENCES if crash_at(point, occurrence)]
        diag(f"reached: {reached} of {OCCURRENCES}")
        check(1 in reached, f"{point} was never reached: this test shows nothing")


for point in ("timer_before_fire", "timer_after_fire"):
    add(point)


@test("kill-9-at-any-moment-fires-every-timer-once")
def _():
    rand = random.Random(7)
    with Server(**SETTINGS) as server:
        account = server.sign_up("ada").id
        server.stop()
        due_ms = int(time.time() * 1000) + 500
        set_timers(server, account, 0, TIMERS, due_ms, 10)
        server.start()
        for _ in range(4):
            time.sleep(rand.random())  # the moment is what is tested
            server.kill()
            server.start()
        verify(server, TIMERS, due_ms, 10)


@test("timers-fire-at-their-time")
def _():
    with Server(**SETTINGS) as server:
        account = server.sign_up("ada").id
        due_ms = int(time.time() * 1000) + 3000
        server.stop()
        set_timers(server, account, 0, 100, due_ms, 20)
        server.start()
        late = sorted(verify(server, 100, due_ms, 20))
        diag(f"ms late: {late[0]} at least, {late[50]} half of them, {late[-1]} at most")
        check(late[0] >= 0, "one fired before its time")


if __name__ == "__main__":
    main()
