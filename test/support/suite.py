#!/usr/bin/env python3
"""Every test as a job of one pool: what script/test runs after the ordinary build.

    test/support/suite.py [--quick | --long] [--tsan] [FILTER...]

A job is a command that prints TAP, or whose exit code alone is its result. Jobs that compute take a core; jobs that mostly
wait for servers run several to a core, so that the machine computes while they wait. A job may need something that another
job makes: a build folder, or the servers that tests share. The log of each job is build/test-logs/NAME.log.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LOGS = ROOT / "build" / "test-logs"
CORES = os.cpu_count() or 1
# What a job takes of a core's three shares.
CORE, HALF, WAIT = 3, 2, 1
SHARES = CORE * max(CORES, 2)
RESULT = re.compile(r"^(ok|not ok)\b\s*\d*\s*-?\s*(.*)")
TIMED = re.compile(r"^# ([0-9.]+) s$")
SHOWN_LINES = 60
SHARED = ("postgres", "redis", "rabbitmq")  # started once; tests have databases and names of their own there


class Job:
    """`needs`: what must have been made before; `makes`: what this one makes. `first`: those with more begin earlier."""

    def __init__(self, name, command, seconds, share=CORE, needs=(), makes=None, env=None, first=0, folder=ROOT, quiet=False):
        self.name, self.command, self.seconds, self.share = name, [str(word) for word in command], seconds, share
        self.needs, self.makes, self.env, self.first, self.folder = set(needs), makes, env or {}, first, folder
        self.quiet = quiet  # only a failure, or the sum of its part, is shown
        self.process, self.took, self.code = None, 0.0, None

    @property
    def part(self):
        return self.name.split("/")[0]

    @property
    def log(self):
        return LOGS / (self.name.replace("/", "-") + ".log")

    def run(self):
        """Runs it in a process group of its own, and interrupts that when its time is over: servers are then stopped."""
        began = time.monotonic()
        with open(self.log, "wb") as log:
            try:
                self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                cwd=self.folder, env={**os.environ, **self.env}, start_new_session=True)
                self.code = self.process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                self.end()
                self.code = "it took more than %d s" % self.seconds
            except OSError as error:
                self.code = str(error)
        self.took = time.monotonic() - began

    def end(self):
        for number, patience in ((signal.SIGINT, 15), (signal.SIGTERM, 5), (signal.SIGKILL, None)):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                pass
            try:
                self.process.wait(patience)
                return
            except subprocess.TimeoutExpired:
                continue

    def results(self):
        """(passed, failed, [(seconds, name)]) of what it printed."""
        good = bad = said = plan = 0
        times, last = [], None
        for line in self.log.read_text(errors="replace").splitlines():
            found = RESULT.match(line)
            if found:
                said += 1
                skipped = "# SKIP" in line.upper()
                good += found[1] == "ok" and not skipped
                bad += found[1] != "ok"
                last = found[2]
            elif line.startswith("1.."):
                plan += int(re.match(r"1\.\.(\d*)", line)[1] or 0)
            elif last and TIMED.match(line):
                times.append((float(TIMED.match(line)[1]), f"{self.name}: {last}"))
        if not said and not plan:
            good, bad = (1, 0) if self.code == 0 else (0, 1)
        elif not bad and (self.code != 0 or plan > said):
            bad = 1  # it ended before its time
        return good, bad, times or [(self.took, self.name)]


# ---- running ----

class Pool:
    """Runs jobs as there is room, and counts."""

    def __init__(self):
        self.changed = threading.Condition()
        self.waiting, self.running = [], []
        self.made, self.lost = set(), set()
        self.passed = self.failed = 0
        self.times = []
        self.sums = collections.defaultdict(lambda: [0, 0, 0, 0.0])  # part → jobs to come, passed, failed, seconds
        self.over = False

    def add(self, jobs):
        self.waiting += jobs
        for job in jobs:
            self.sums[job.part][0] += 1

    def drop_unneeded(self):
        """Preparations of which no job is left, and those of these."""
        while True:
            needed = set().union(*(job.needs for job in self.waiting))
            idle = [job for job in self.waiting if job.makes and job.makes not in needed]
            if not idle:
                return
            self.waiting = [job for job in self.waiting if job not in idle]

    def next_job(self):
        """One that can begin now, and its share; those that cannot because something was not made are given up."""
        for job in [job for job in self.waiting if job.needs & self.lost]:
            self.waiting.remove(job)
            self.sums[job.part][0] -= 1
            if job.makes:
                self.lost.add(job.makes)
        used = sum(job.share for job in self.running)
        ready = [job for job in self.waiting if job.needs <= self.made and used + job.share <= SHARES]
        return max(ready, key=lambda job: job.first, default=None)

    def run(self):
        self.drop_unneeded()
        with self.changed:
            while (self.waiting or self.running) and not self.over:
                job = self.next_job()
                if job is None:
                    self.changed.wait(1)
                    continue
                self.waiting.remove(job)
                self.running.append(job)
                threading.Thread(target=self.run_one, args=(job,), daemon=True).start()

    def run_one(self, job):
        job.run()
        with self.changed:
            self.running.remove(job)
            self.count(job)
            if job.makes:
                (self.made if job.code == 0 else self.lost).add(job.makes)
            if job.makes == "servers":
                self.pass_addresses_on()
            self.changed.notify_all()

    def pass_addresses_on(self):
        told = subprocess.run(["script/servers", "env", LOGS / "servers"], cwd=ROOT, capture_output=True, text=True).stdout
        for job in self.waiting:
            if "servers" in job.needs:
                job.env = {**dict(line.split("=", 1) for line in told.splitlines()), **job.env}

    def count(self, job):
        good, bad, times = job.results()
        if job.part == "make" and not bad:
            print(f"    {job.name:44} {'made':>12} {job.took:7.1f} s", flush=True)
            return
        self.passed += good
        self.failed += bad
        self.times += times
        of_part = self.sums[job.part]
        for at, more in enumerate((-1, good, bad, job.took)):
            of_part[at] += more
        if bad:
            print(f"    {job.name:44} {good:5} passed, {bad} FAILED ({job.log.relative_to(ROOT)}): {job.code}")
            show_failure(job)
        elif not job.quiet:
            print(f"    {job.name:44} {good:5} passed {job.took:7.1f} s")
        if job.quiet and of_part[0] == 0:
            print(f"    {job.part + ': all':44} {of_part[1]:5} passed {of_part[3]:7.1f} s one after the other")
        sys.stdout.flush()

    def interrupt(self):
        """Ends whatever runs."""
        self.over = True
        enders = [threading.Thread(target=job.end) for job in list(self.running) if job.process]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()


def say(text):
    print("==>", text, flush=True)


def show_failure(job):
    """What failed, with what was said before and after it; else the end of the log."""
    lines = job.log.read_text(errors="replace").splitlines()
    bad = [at for at, line in enumerate(lines) if line.startswith("not ok")]
    if not bad:
        shown = lines[-SHOWN_LINES:]
    else:
        shown, end = [], 0
        for at in bad[:5]:
            begin = at
            while begin > end and not RESULT.match(lines[begin - 1]) and at - begin < SHOWN_LINES:
                begin -= 1
            end = at + 1
            while end < len(lines) and not RESULT.match(lines[end]) and end - at < SHOWN_LINES:
                end += 1
            shown += lines[begin:end]
    for line in shown:
        print("        " + line)


# ---- what is built ----

def clang():
    return "ccache clang" if shutil.which("ccache") else "clang"


SANITIZED = ["-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dbuildtype=debugoptimized"]
# Undefined behaviour ends the program. Without its own signal stacks AddressSanitizer does not trip over threads that end.
STRICT = {"ASAN_OPTIONS": "detect_leaks=1:handle_segv=1:abort_on_error=0:use_sigaltstack=0",
          "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}


def build_jobs(folder, options, first):
    """Configures a folder, once, and builds all of it."""
    setup = f'[ -e {folder}/build.ninja ] || meson setup {folder} {" ".join(options)} || {{ rm -rf {folder}; exit 1; }}'
    return [Job(f"make/{folder} configured", ["bash", "-c", setup], 600, makes=f"{folder} configured", first=first + 5,
                env={"CC": clang()}),
            Job(f"make/{folder}", ["ninja", "-C", folder, "--quiet"], 3600, needs=[f"{folder} configured"], makes=folder,
                first=first)]


def tests_of(folder):
    """What Meson knows of the tests in a folder."""
    text = subprocess.run(["meson", "introspect", folder, "--tests"], cwd=ROOT, check=True, capture_output=True).stdout
    return json.loads(text)


def starts_servers(test):
    return any("servers" in suite for suite in test["suite"])


def unit_jobs(part, folder, patience, wrapper=(), needs=(), chosen=lambda test: True, first=0):
    """The tests of one build folder. The list is that of build/: every folder has the same."""
    jobs = []
    for test in tests_of("build"):
        if not chosen(test):
            continue
        here = lambda word: word.replace(str(ROOT / "build") + "/", str(ROOT / folder) + "/")
        own = {*needs, "servers"} if "share" in test["cmd"][1:2] else set(needs)
        jobs.append(Job(f"{part}/{test['name']}", [*wrapper, *map(here, test["cmd"])], test["timeout"] * patience,
                        WAIT if starts_servers(test) else CORE, own, env={**test["env"], **STRICT}, quiet=True,
                        first=first + test["priority"], folder=test["workdir"] or ROOT / folder))
    return jobs


# ---- the parts ----

def lint_jobs():
    """clang-tidy is the longest of all jobs, one file after the other: it begins first, or the other core waits for it."""
    return [Job(f"lint/{what}", ["test/support/lint.sh", what, LOGS], 3600, needs=needs, first=first)
            for what, first, needs in (("format", 0, []), ("cppcheck", 20, []), ("tidy", 90, ["build-asan configured"]))]


def rules_jobs():
    return [Job(f"rules/{file.stem}", ["bash" if file.suffix == ".sh" else "python3", file], 600)
            for file in sorted((ROOT / "test" / "rules").glob("*.*")) if file.suffix in (".sh", ".py")]


def mark_of(file, word):
    """The reason in a script's line WORD = "why", if there is one."""
    found = re.search(rf'^{word} = "(.*)"$', file.read_text(), re.M)
    return found and found[1]


# The longest begin first. Of these, many wait for seconds: a node that died holds its lease for a while.
FIRST = {("crash", "cluster"): 60, ("cluster", "cluster"): 50, ("crash", "embedded"): 40, ("api", "embedded"): 10}


def script_jobs(part, long, drivers="embedded"):
    """Scripts that test a running program, with its path in $FANTAIL: those with faults test the sanitized one."""
    jobs, seconds = [], 7200 if long else 1800
    for file in sorted((ROOT / "test" / part).glob("*_test.py")):
        name, env, needs, share = f"{part}/{file.stem[:-5]}", {}, set(), WAIT
        if drivers == "cluster" and part != "cluster":
            if mark_of(file, "EMBEDDED_ONLY") or (mark_of(file, "CLUSTER_LONG") and not long):
                continue
            name = f"cluster/{part}-{file.stem[:-5]}"
        if drivers == "cluster":
            env, needs, share = {"FANTAIL_TEST_DRIVERS": "cluster"}, {"servers"}, HALF
        faults = part == "crash" or mark_of(file, "NEEDS_FAULTS")
        env["FANTAIL"] = str(ROOT / ("build-asan" if faults else "build") / "fantail")
        if faults:
            needs.add("build-asan")
            env.update(STRICT)
        jobs.append(Job(name, [file], seconds, share, needs, env=env, first=FIRST.get((part, drivers), 30)))
    return jobs


def fuzz_jobs(seconds):
    jobs = []
    for file in sorted((ROOT / "test" / "fuzz").glob("*.c")):
        folder, seeds = LOGS / f"fuzz-{file.stem}", ROOT / "test" / "fuzz" / "corpus" / file.stem
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "corpus").mkdir(parents=True)
        (folder / "found").mkdir()
        jobs.append(Job(f"fuzz/{file.stem}", [
            f"build-asan/test/fuzz/{file.stem}", f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-verbosity=1",
            "-print_final_stats=1", f"-artifact_prefix={folder}/found/", folder / "corpus", *([seeds] if seeds.is_dir() else [])],
            seconds + 120, needs=["build-asan"], env=STRICT, first=-10))
    return jobs


LONG_SIMS = (("truth_sim", "100000"), ("nodes_sim", "10000"), ("feed_histories", "--long"), ("group_histories", "--long"))


def tsan_jobs():
    # Without this ThreadSanitizer cannot find its shadow memory on kernels that spread addresses widely.
    plain = subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0
    return unit_jobs("tsan", "build-tsan", 20, ["setarch", "-R"] if plain else [], ["build-tsan"],
                     lambda test: not test["name"].startswith("sim/"))


def all_jobs(options):
    long = options.long
    jobs = unit_jobs("unit", "build", 100 if long else 4)
    if not options.quick:
        jobs += lint_jobs() + rules_jobs()
        jobs += unit_jobs("asan", "build-asan", 10, needs=["build-asan"],
                          chosen=lambda test: not test["name"].startswith("sim/") and (long or not starts_servers(test)))
        for part in ("api", "attack", "crash"):
            jobs += script_jobs(part, long) + script_jobs(part, long, "cluster")
        jobs += script_jobs("cluster", long, "cluster") + fuzz_jobs(120 if long else 10)
    if long:
        jobs += [Job(f"long/{name}", [f"build/test/sim/{name}", *words], 36000, first=50) for name, *words in LONG_SIMS]
        jobs += [Job("long/mutations", ["script/mutations"], 36000, first=60)]
    if options.tsan:
        jobs += tsan_jobs()
    return jobs


def make_jobs():
    """What other jobs need."""
    return [*build_jobs("build-asan", ["-Dfaults=true", "-Dfuzz=true", *SANITIZED], 80),
            *build_jobs("build-tsan", ["-Db_sanitize=thread", *SANITIZED[1:]], 70),
            Job("make/servers", ["script/servers", "start", LOGS / "servers", *SHARED], 240, HALF, makes="servers", first=100)]


# ---- all of it ----

def stop_servers():
    if (LOGS / "servers" / ".servers").exists():
        subprocess.run(["script/servers", "stop", LOGS / "servers"], cwd=ROOT, timeout=120)


def show_times(pool):
    say("the ten slowest tests")
    for seconds, name in sorted(pool.times, reverse=True)[:10]:
        print(f"    {seconds:7.1f} s  {name}")


def run(pool, filters):
    """Runs what is in the pool; whatever happens, nothing stays behind."""
    def leave(number, _):
        raise KeyboardInterrupt(number)

    signal.signal(signal.SIGTERM, leave)
    stop_servers()
    shutil.rmtree(LOGS / "servers", ignore_errors=True)
    try:
        pool.run()
    except KeyboardInterrupt:
        pool.interrupt()
        return 130
    finally:
        stop_servers()
    if pool.passed + pool.failed == 0:
        print("no test has a name that contains:", *filters, file=sys.stderr)
        pool.failed = 1
    show_times(pool)
    print(f"{pool.passed} passed, {pool.failed} failed")
    return 1 if pool.failed else 0


def main():
    parser = argparse.ArgumentParser()
    for flag in ("--quick", "--long", "--tsan"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("filters", nargs="*")
    options = parser.parse_args()
    os.chdir(ROOT)
    LOGS.mkdir(parents=True, exist_ok=True)
    for old in LOGS.glob("*.log"):
        old.unlink()
    if options.long:
        os.environ["FANTAIL_TEST_LONG"] = "1"
    pool = Pool()
    # That the tree builds with clang, where warnings are errors, is a result by itself.
    jobs = all_jobs(options) + ([] if options.quick else [Job("asan/build", ["true"], 10, 0, ["build-asan"])])
    pool.add([job for job in jobs if not options.filters or any(word in job.name for word in options.filters)])
    pool.add(make_jobs())
    return run(pool, options.filters)


if __name__ == "__main__":
    sys.exit(main())
