#!/usr/bin/env python3
"""What a server refuses to start with: a duplicate memory that is shorter than what can be delivered again. The message has
both numbers and says what to set; nothing is made or touched."""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.server import Server, check, equal, main, program, test  # noqa: E402

FAILED = 1  # the exit code of a command that could not do what it was asked to


def start(*flags, env=None, conf=None):
    """The finished process of a server that should not have started, and whether it left anything behind."""
    folder = tempfile.mkdtemp(prefix="fantail-refusal-")
    data = os.path.join(folder, "data")
    if conf:
        os.mkdir(data)
        with open(os.path.join(data, "fantail.conf"), "w") as file:
            file.write(conf)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FANTAIL")}
    try:
        done = subprocess.run([program(), "serve", "--data", data, "--listen", "127.0.0.1:0", *flags], capture_output=True,
                              text=True, timeout=30, env={**environment, **(env or {})})
        left = sorted(os.listdir(data)) if os.path.isdir(data) else []
        equal(left, ["fantail.conf"] if conf else [], "it left something behind")
        return done
    finally:
        shutil.rmtree(folder)


def refused(done, *words):
    equal(done.returncode, FAILED, done.stderr)
    equal(done.stdout, "")
    for word in words:
        check(word in done.stderr, f"{word!r} is not in {done.stderr!r}")


@test("refusals-a-duplicate-memory-shorter-than-the-replay-window-with-both-numbers")
def _():
    refused(start("--dedup-retention", "3d", "--retain-events", "14d", "--retain-dead", "1d"),
            "dedup-retention 3 days", "retain-events 14 days", "a replay could repeat", "dedup-retention to at least 14 days")


@test("refusals-a-duplicate-memory-shorter-than-dead-letters-are-kept-with-both-numbers")
def _():
    refused(start("--dedup-retention", "3d", "--retain-events", "1d", "--retain-dead", "10d"),
            "dedup-retention 3 days", "retain-dead 10 days", "re-driving one could repeat",
            "dedup-retention to at least 10 days")


@test("refusals-the-longer-of-the-two-is-what-the-memory-is-compared-with")
def _():
    refused(start("--dedup-retention", "3d", "--retain-events", "14d"), "3 days", "retain-dead 30 days", "at least 30 days")
    refused(start("--dedup-retention", "36h", "--retain-events", "2d", "--retain-dead", "90m"),
            "36 hours", "retain-events 2 days")


@test("refusals-hold-wherever-the-settings-come-from")
def _():
    refused(start(env={"FANTAIL_DEDUP_RETENTION": "3d", "FANTAIL_RETAIN_EVENTS": "14d", "FANTAIL_RETAIN_DEAD": "1d"}),
            "3 days", "14 days")
    refused(start("--retain-events", "14d", conf="dedup-retention = 3d\nretain-dead = 1d\n"), "3 days", "14 days")


@test("refusals-a-memory-as-long-as-both-is-enough")
def _():
    with Server(dedup_retention="14d", retain_events="14d", retain_dead="14d") as server:
        server.anonymous.get("/readyz").expect(200)
        server.restart(hard=True)
        server.stop()
        try:
            server.start(dedup_retention="13d")
            raise AssertionError("it started")
        except AssertionError as error:
            check("ended with 1" in str(error) and "13 days" in str(error), str(error))
        server.start(dedup_retention="14d")


@test("refusals-dead-letters-for-ever-want-a-memory-for-ever")
def _():
    refused(start("--retain-dead", "0"), "dedup-retention 35 days", "retain-dead 0: for ever", "dedup-retention to 0")
    with Server(retain_dead=0, dedup_retention=0) as server:
        server.anonymous.get("/readyz").expect(200)


if __name__ == "__main__":
    main()
