#!/usr/bin/env python3
"""Runs tests of one Meson build folder and prints all their results as one TAP stream.

    test/support/meson_tap.py BUILD [--timeout-multiplier N] [--wrapper COMMAND] -- NAME...

Meson itself counts programs; this counts what the programs tested. A program that died, timed out or printed no results
counts as one failure under its own name: Meson says of one that printed no TAP at all that it was skipped.
"""
import argparse
import json
import os
import re
import subprocess
import sys

RESULT = re.compile(r"^(ok|not ok)\b\s*\d*\s*-?\s*(.*)")


def run(build, names, multiplier, wrapper):
    """Runs the named tests; returns Meson's records of them, in the order in which they ended."""
    # Meson names the log after the wrapper's program.
    program = "-" + os.path.basename(wrapper.split()[0]) if wrapper else ""
    log = os.path.join(build, "meson-logs", f"testlog{program}.json")
    if os.path.exists(log):
        os.unlink(log)
    command = ["meson", "test", "-C", build, "--no-rebuild", "--timeout-multiplier", str(multiplier)]
    if wrapper:
        command += ["--wrapper", wrapper]
    done = subprocess.run(command + names, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    try:
        with open(log, errors="replace") as lines:
            return [json.loads(line) for line in lines]
    except OSError:
        print(done.stdout)
        return []


def results(record):
    """(passed, name, what it said) for each test in one program's output."""
    found, said, skipped = [], [], 0
    for line in record.get("stdout", "").splitlines():
        match = RESULT.match(line)
        if match:
            if "# SKIP" in line.upper():
                skipped += 1
                continue
            found.append([match[1] == "ok", match[2], []])
            said = found[-1][2]
        else:
            said.append(line)
    broken = record["result"] not in ("OK", "SKIP")
    if broken and all(passed for passed, _, _ in found) or not found and not skipped:
        found.append([False, f"{record['result'].lower()} (exit {record.get('returncode')})", said])
    for result in found:
        if not result[0]:
            result[2] = result[2] + record.get("stderr", "").splitlines()[-20:]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--timeout-multiplier", type=float, default=1)
    parser.add_argument("--wrapper")
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    records = run(options.build, options.names, options.timeout_multiplier, options.wrapper)
    number, bad = 0, 0
    for record in records:
        for passed, name, said in results(record):
            number += 1
            bad += not passed
            print(f"{'ok' if passed else 'not ok'} {number} - {record['name']}: {name}")
            if not passed:
                for line in said:
                    print(f"# {line}")
    missing = set(options.names) - {record["name"] for record in records}
    for name in sorted(missing):
        number += 1
        bad += 1
        print(f"not ok {number} - {name}: did not run")
    print(f"1..{number}")
    return 1 if bad else 0


sys.exit(main())
