#!/usr/bin/env python3
"""`fantail plan`: the worked examples, refusals, what fits into a terminal, and the server's own numbers."""
import json
import os
import re
import signal
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.server import Server, check, equal, main, program, test  # noqa: E402

EMBEDDED_ONLY = "the command line alone"


def plan(*words, timeout=60):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FANTAIL")}
    return subprocess.run([program(), "plan", *map(str, words)], capture_output=True, text=True, timeout=timeout,
                          env=environment)


def shown(*words):
    done = plan(*words)
    equal((done.returncode, done.stderr), (0, ""))
    widest = max(done.stdout.splitlines(), key=len)
    check(len(widest) < 80, f"{len(widest)} columns: {widest}")
    check("\033" not in done.stdout, "colour where nobody can see it")
    return done.stdout


def asked(*words):
    done = plan(*words, "--json")
    equal((done.returncode, done.stderr), (0, ""))
    return json.loads(done.stdout)


def row(text, name):
    """The table's row: growth, backlog, catch-up, recovery and what it remembers."""
    found = re.search(rf"^{name} +(\S+(?: [MGT])?) +(\S+(?: [MGT])?) +(\S+(?: [MGT])?) +(never|\?|\S+ (?:s|min|h|days))(?:  (.*))?$",
                      text, re.M)
    check(found, f"no row of {name} in:\n{text}")
    return found.groups()


ORDERS = ("--inflow", 150, "--stall", "30m", "--stall-drain", 120, "--relay-drain", 360)
CAMPAIGN = ("--inflow", 4000, "--stall", "20m", "--relay-drain", 10000)


@test("half an hour of a slow relay: 54,000 events, 210 a second to catch up, the slowest consumer nine minutes")
def _():
    consumers = [word for name in ("notification", "fulfillment", "analytics") for word in ("--consumer", f"{name}:1:1000")]
    consumers += ["--consumer", "entitlement:1:250:7"]
    text = shown(*ORDERS, *consumers)
    equal(row(text, "relay"), ("30", "54,000", "210", "4.3 min", None))
    equal(row(text, "entitlement"), ("30", "54,000", "100", "9 min", "90.7 M, 9.1 GB"))
    equal(row(text, "analytics"), ("30", "54,000", "210", "4.3 min", None))
    check(re.search(r"^deliveries in all +216,000$", text, re.M), text)
    answer = asked(*ORDERS, *consumers)
    equal(answer["deliveries"], 216000)
    equal(sum(c["inflow"] for c in answer["consumers"]), 600)
    equal(answer["consumers"][3]["recovery_s"], 540)
    equal(answer["consumers"][3]["dedup_entries"], 150 * 7 * 86400)
    equal(answer["measured"], False)


@test("twenty minutes of a campaign: 4.8 million events, 13 minutes, 28.8 million deliveries")
def _():
    six = [word for i in range(6) for word in ("--consumer", f"c{i}:1:10000")]
    text = shown(*CAMPAIGN, *six)
    equal(row(text, "relay"), ("4,000", "4.80 M", "6,000", "13 min", None))
    check(re.search(r"^deliveries in all +28.8 M$", text, re.M), text)
    equal(asked(*CAMPAIGN)["relay"]["recovery_s"], 800)


@test("3,000 a second of 4,000 never catch up; 6,000 need 40 minutes")
def _():
    text = shown(*CAMPAIGN, "--consumer", "slow:1:3000", "--consumer", "fast:1:6000")
    equal(row(text, "slow"), ("4,000", "4.80 M", "-1,000", "never", None))
    equal(row(text, "fast"), ("4,000", "4.80 M", "2,000", "40 min", None))
    check("slow never catches up: it gets 4,000/s and takes 3,000/s." in text, text)
    slow, fast = asked(*CAMPAIGN, "--consumer", "slow:1:3000", "--consumer", "fast:1:6000")["consumers"]
    equal((slow["recovers"], slow["recovery_s"], slow["net"]), (False, None, -1000))
    equal((fast["recovers"], fast["recovery_s"], fast["net"]), (True, 2400, 2000))


@test("five minutes of sign-ups for six consumers: 600,000 events and 3.6 million deliveries")
def _():
    answer = asked("--inflow", 2000, "--stall", "5m", "--relay-drain", 5000, "--consumer", "all:6:30000")
    equal((answer["relay"]["backlog"], answer["deliveries"]), (600000, 3600000))


@test("the plot rises while the stall lasts and falls to nothing after it")
def _():
    lines = shown(*CAMPAIGN).splitlines()
    field = [line[11:].ljust(66) for line in lines if re.match(r"^.{10}\|", line)]
    axis = next(line[11:] for line in lines if re.match(r"^ +0 \+-", line))
    equal(len(field), 12)
    height = [max((12 - y for y in range(12) if field[y][x] == "*"), default=0) for x in range(66)]
    end = axis.index("|")
    check(height[end] == 12 or height[end - 1] == 12, f"highest when the stall ends: {height}")
    equal(height[:end - 1], sorted(height[:end - 1]))
    equal(height[end + 1:], sorted(height[end + 1:], reverse=True))
    equal((height[0], height[-1]), (0, 0))


@test("what never ends and what never begins are plotted, too")
def _():
    check("The relay never catches up" in shown("--inflow", 10, "--relay-drain", 5), "said so")
    check("nothing to plot" in shown("--inflow", 0, "--relay-drain", 5, "--stall", "0"), "said so")
    many = [word for i in range(24) for word in ("--consumer", f"a-name-of-20-chars-{i % 10}:1000:{i}:3650")]
    shown("--inflow", 1000000000, "--relay-drain", 1, "--stall", "3650d", *many)


@test("numbers that are none are refused")
def _():
    for words, says in [(("--inflow", "x"), "--inflow: 'x' is not a number"), (("--inflow", "-1"), "is not a number"),
                        (("--inflow", "1e3"), "is not a number"), (("--inflow", "nan"), "is not a number"),
                        (("--inflow", "1.2.3"), "is not a number"), (("--relay-drain", "2000000000"), "is not a number"),
                        (("--stall", "30"), "--stall: '30' is not a time"), (("--stall", "4000d"), "is not a time"),
                        (("--consumer", "mail"), "is not NAME:PER_EVENT:DRAIN"), (("--consumer", "mail:1"), "is not NAME"),
                        (("--consumer", ":1:1"), "is not NAME"), (("--consumer", "mail:1:1:x"), "is not NAME"),
                        (("--consumer", "mail:1:1:1:1"), "is not NAME"), (("--entry-bytes", "0"), "whole number from 1"),
                        (["--consumer", "c:1:1"] * 25, "at most 24 consumers"), (("--inflw", "1"), "did you mean --inflow")]:
        done = plan(*words)
        equal(done.returncode, 2)
        check(says in done.stderr, f"{words}: {done.stderr}")


@test("a reader that goes away ends it like any other tool")
def _():
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen([program(), "plan", *map(str, CAMPAIGN)], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    equal(process.communicate(timeout=30)[1], b"")
    equal(process.returncode, -signal.SIGPIPE)


@test("without numbers the server's own are taken, and unmeasured ones are not guessed")
def _():
    with Server() as server:
        ada = server.sign_up("ada")
        bob = server.sign_up("bob")
        bob.put("/v1/accounts/" + ada.id + "/follow").expect(200, 204)
        over = threading.Event()

        def write():
            while not over.is_set():
                ada.post("/v1/posts", {"caption": "again"}).expect(201)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            answer = asked("--data", server.data, "--stall", "10m")
        finally:
            over.set()
            writer.join()
        equal(answer["measured"], True)
        check(answer["inflow"] > 1, answer)
        check(abs(answer["relay"]["backlog"] - 600 * answer["inflow"]) < 1, answer)
        timelines = [c for c in answer["consumers"] if c["name"] == "timelines"]
        equal(len(timelines), 1)
        # Nothing waited, or hardly: a drain rate is null, or one that was really seen.
        for part in [answer["relay"], *answer["consumers"]]:
            check(part["recovers"] in (True, False, None), part)
        text = shown("--data", server.data, "--relay-drain", 1000)
        check("(measured)" in text and re.search(r"^relay ", text, re.M), text)
        check("Nothing came in while it was measured" in text, text)


@test("without a server and without numbers there is nothing to reckon with")
def _():
    with Server() as server:
        data = server.data
        server.stop()
        done = plan("--data", data)
        equal(done.returncode, 1)
        check("no server runs on" in done.stderr and "--inflow" in done.stderr, done.stderr)


main()
