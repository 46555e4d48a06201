#!/usr/bin/env python3
"""The command line, run as a person would: with and without a server, with wrong input, with pipes that close."""
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.lanes import LANES  # noqa: E402
from support.server import Server, check, equal, main, program, test, wait_until  # noqa: E402

EMBEDDED_ONLY = "data folders, backup and restore"


def fantail(*words, stdin=None, env=None, timeout=120):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FANTAIL")}
    environment.update(env or {})
    return subprocess.run([program(), *map(str, words)], capture_output=True, text=True, timeout=timeout, input=stdin,
                          env=environment)


def expect(done, code, out=None, err=None):
    said = f"{' '.join(done.args[1:])}: exit {done.returncode}, stdout {done.stdout[-500:]!r}, stderr {done.stderr[-500:]!r}"
    check(done.returncode == code, f"wanted exit {code}: {said}")
    check(out is None or re.search(out, done.stdout), f"wanted {out!r} in {said}")
    check(err is None or re.search(err, done.stderr), f"wanted {err!r} in {said}")
    check("AddressSanitizer" not in done.stderr and "runtime error" not in done.stderr, said)
    return done


class Folder:
    """A folder to work in that is gone afterwards."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="fantail-cli-")
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


WORLD = "\n".join([
    '{"type":"account","username":"ada","password":"correct horse battery"}',
    '{"type":"account","username":"grace"}',
    '{"type":"follow","follower":"ada","followee":"grace"}',
    '{"type":"post","author":"grace","caption":"hello","id":"100000000000000000"}',
]) + "\n"
POST = "100000000000000000"

COMMANDS = "serve demo status plan check explain event dead replay rebuild bench key backup restore import config version".split()


# ---- help and mistakes ----

@test("help lists every command and each explains itself")
def _():
    overview = expect(fantail("help"), 0).stdout
    for name in COMMANDS:
        check(re.search(rf"^  {name} ", overview, re.M), f"{name} is not in the overview")
        for words in ((name, "--help"), ("help", name)):
            expect(fantail(*words), 0, out=rf"^fantail {name}: .*\n\nusage: fantail {name}")
    expect(fantail("serve", "--help"), 0, out="--celebrity-threshold 10000")


@test("a wrong command line is refused with 2 and a suggestion")
def _():
    expect(fantail(), 2, out="usage:")
    expect(fantail("sevre"), 2, err="did you mean 'serve'")
    expect(fantail("frobnicate"), 2, err="there is no command 'frobnicate'\n")
    expect(fantail("status", "--jsn"), 2, err="did you mean --json")
    expect(fantail("serve", "--lisen", "x"), 2, err="did you mean --listen")
    expect(fantail("status", "extra"), 2, err="unexpected argument 'extra'")
    expect(fantail("status", "-j"), 2, err="two dashes")
    expect(fantail("status", "--json=yes"), 2, err="--json takes no value")
    expect(fantail("explain", "ada"), 2, err="expected: USER POST")
    expect(fantail("serve", "--loops"), 2, err="--loops needs a value")
    expect(fantail("serve", "--loops", "many"), 2, err="loops: 'many' \\(from the command line\\)")
    expect(fantail("serve", env={"FANTAIL_LOOPS": "99"}), 2, err="FANTAIL_LOOPS\\) is out of range: 0 to 64")
    expect(fantail("check", "--depth", "0"), 2, err="whole number from 1 to")
    expect(fantail("check", "--all", "--user", "ada"), 2, err="either --all or --user")
    expect(fantail("key", "create"), 2, err="--scope SCOPE is required: act, admin or admin:read")
    expect(fantail("key", "frob"), 2, err="not create, list or revoke")
    expect(fantail("demo", "--people", "1"), 2, err="--people")


@test("version says how it was built")
def _():
    expect(fantail("version"), 0, out=r"^Fantail \d+\.\d+\.\d+\nfault points: (on|off)\n$")
    equal(fantail("--version").stdout, fantail("version").stdout)
    listed = fantail("version", "--faults")
    if "fault points: on" in fantail("version").stdout:
        expect(listed, 0, out="(?m)^db_before_commit$")
    else:
        expect(listed, 1, err="no fault points")


@test("config says what is in force and from where")
def _():
    with Folder() as folder:
        with open(folder + "/fantail.conf", "w") as f:
            f.write("# ours\ntimeline-cap = 77\n")
        shown = expect(fantail("config", "--json", "--data", folder, "--readers=7", env={"FANTAIL_LOOPS": "3"}), 0)
        values = json.loads(shown.stdout)
        equal(values["timeline-cap"], {"value": "77", "from": "file"})
        equal(values["loops"], {"value": "3", "from": "environment"})
        equal(values["readers"], {"value": "7", "from": "command line"})
        equal(values["max-following"], {"value": "10000", "from": "default"})
        expect(fantail("config", "--data", folder), 0, out=r"(?m)^timeline-cap +77 +file ")
        with open(folder + "/fantail.conf", "a") as f:
            f.write("timeline-cop = 1\n")
        expect(fantail("config", "--data", folder), 2, err="line 3: there is no setting 'timeline-cop'; did you mean 'timeline-cap'")
    expect(fantail("config", "--config", "/nowhere.conf"), 2, err="cannot read the settings file /nowhere.conf")


@test("a variable that names no setting is warned about, one that tests use is not")
def _():
    done = expect(fantail("config", env={"FANTAIL_LOPS": "1"}), 0, err='"variable":"FANTAIL_LOPS"')
    equal(len(done.stderr.splitlines()), 1)
    equal(fantail("config", env={"FANTAIL_FAULT": "none:1"}).stderr, "")


# ---- no store ----

@test("a setting given by its old name works and is warned about")
def _():
    done = expect(fantail("config", "--json", "--inbox-retention", "40d"), 0, err='"old":"inbox-retention","name":"dedup-retention"')
    equal(json.loads(done.stdout)["dedup-retention"]["value"], "40d")
    equal(fantail("config", "--dedup-retention", "40d").stderr, "")


@test("commands that need a store say that there is none, and make none")
def _():
    with Folder() as folder:
        missing = folder + "/none"
        for words in (["status"], ["check"], ["explain", "ada", "1"], ["event", "1"], ["dead", "groups"], ["replay", "list"],
                      ["rebuild", "counters"], ["replay", "plan", "--consumer", "timelines"], ["key", "list"], ["key", "revoke", "1"],
                      ["backup", folder + "/copy"]):
            expect(fantail(*words, "--data", missing), 1, err=f"there is no store in {missing}")
        check(not os.path.exists(missing), "a folder was made")


@test("a folder that cannot be written is named")
def _():
    with Folder() as folder:
        open(folder + "/file", "w").close()
        expect(fantail("serve", "--data", folder + "/file"), 1, err=f"^fantail serve: .*{folder}/file.*\n$")
        expect(fantail("import", "-", "--data", folder + "/file/deeper", stdin=WORLD), 1, err="Not a directory")


@test("cli-passwords-of-urls-are-never-shown-and-urls-come-from-files")
def _():
    secret = "s3cr3t"
    with Folder() as folder, socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}/db"
        with open(folder + "/db.url", "w") as file:
            file.write(f"postgresql://fantail:{secret}@{place}?password={secret}\n")
        words = ["--db-file", folder + "/db.url", "--views", f"redis://:{secret}@127.0.0.1:1/0", "--data", folder + "/data"]
        environment = {"FANTAIL_BUS": f"amqp://fantail:{secret}@127.0.0.1:1/x"}
        for more in ([], ["--json"]):
            shown = expect(fantail("config", *words, *more, env=environment), 0, out="postgresql://fantail:\\*@" + place)
            check(secret not in shown.stdout and "redis://:*@127.0.0.1:1/0" in shown.stdout, shown.stdout)
            check("amqp://fantail:*@127.0.0.1:1/x" in shown.stdout, shown.stdout)
        expect(fantail("config", *words, "--db", "postgresql://x/y"), 2, err="db and db-file are both given")
        expect(fantail("config", "--db-file", folder + "/none"), 2, err="db-file: cannot read .*/none: No such file")
        serving = subprocess.Popen([program(), "serve", *words, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **environment})
        try:
            title = wait_until(lambda: (lambda t: b"serve" in t and b"*@" in t and t)(
                open(f"/proc/{serving.pid}/cmdline", "rb").read()), 10, "the title")
            check(secret.encode() not in title, title)
        finally:
            serving.kill()
            said = serving.communicate()[1]
        check(secret not in said, said)


@test("cli-the-files-of-a-store-are-their-owners-alone-whatever-the-folders-mode-is")
def _():
    with Folder() as folder:
        data = folder + "/data"
        os.mkdir(data)
        os.chmod(data, 0o777)
        for before in (None, 0o644):
            with Server(data=data, place=False) as server:
                server.sign_up("ada" if before is None else "bob")
                server.operator.post("/v1/admin/save").expect(200)
                modes = {name: stat.S_IMODE(os.lstat(f"{data}/{name}").st_mode) for name in os.listdir(data)}
                check({"fantail.db", "fantail.db-wal", "views.snapshot"} <= set(modes), modes)
                equal({name: mode for name, mode in modes.items() if mode & 0o077}, {})
                server.kill()
            for name in os.listdir(data):  # as an earlier version left them
                if name.startswith("fantail.db"):
                    os.chmod(f"{data}/{name}", 0o644)


@test("too few open files are named with the limit that the server needs")
def _():
    with Folder() as folder:
        few = subprocess.run(["prlimit", "--nofile=64:64", program(), "serve", "--data", folder + "/data", "--listen", "127.0.0.1:0"],
                             capture_output=True, text=True, timeout=60)
        expect(few, 1, err="allows 64 open files, and the server needs at least [0-9]+ .*ulimit -n")


# ---- every command, with and without a server ----

def each_way(name):
    """Runs the body twice: on a folder that nobody serves, and on one that a server has open."""

    def register(body):
        @test(name + ", without a server")
        def _():
            with Folder() as folder:
                body(folder + "/data", folder)

        @test(name + ", through the running server")
        def _():
            with Folder() as folder, Server(data=folder + "/data") as server:
                body(server.data, folder)
                check(server.alive(), "the server is gone")
                equal(server.stop(), 0)

    return register


@each_way("import, check, explain and status work")
def _(data, folder):
    with open(folder + "/world", "w") as f:
        f.write(WORLD)
    expect(fantail("import", folder + "/world", "--data", data), 0, out="2 accounts, 1 follows, 1 posts, 0 rejected")
    expect(fantail("import", "-", "--data", data, stdin=WORLD), 0, out="4 already there, 0 rejected")
    expect(fantail("check", "--data", data), 0, out="2 feeds, .* 0 differences")
    expect(fantail("check", "--user", "ada", "--data", data), 0, out="1 feeds, .* 0 differences")
    expect(fantail("check", "--user", "nobody", "--data", data), 1, err="nobody|not found")
    report = json.loads(expect(fantail("check", "--json", "--data", data), 0).stdout)
    equal((report["feeds"], report["differences"]), (2, []))
    expect(fantail("explain", "ada", POST, "--data", data), 0, out="^in the feed: ")
    expect(fantail("explain", "grace", "5", "--data", data), 0, out="^not in the feed: ")
    expect(fantail("explain", "nobody", POST, "--data", data), 1, err="fantail explain: ")
    expect(fantail("status", "--data", data), 0, out=r"(?m)^views +2 accounts, 1 follows")
    status = json.loads(expect(fantail("status", "--json", "--data", data), 0).stdout)
    equal(status["views"]["accounts"], 2)
    equal({lane["name"] for lane in status["engine"]["lanes"]}, set(LANES))


@each_way("keys are created, listed and revoked")
def _(data, folder):
    made = expect(fantail("key", "create", "--scope", "act", "--scope", "admin:read", "--name", "robot", "--data", data), 0,
                  out=r"^ftk_[A-Za-z0-9_-]+\n$", err="this once only")
    expect(fantail("key", "create", "--scope", "everything", "--data", data), 1, err="act, admin, admin:read")
    keys = json.loads(expect(fantail("key", "list", "--json", "--data", data), 0).stdout)["items"]
    equal([(k["name"], k["scopes"], k["revoked_at"]) for k in keys], [("robot", "act admin:read", None)])
    check(made.stdout.strip() not in json.dumps(keys), "the key is shown again")
    expect(fantail("key", "revoke", keys[0]["id"], "--data", data), 0, out="revoked")
    expect(fantail("key", "list", "--data", data), 0, out=r"robot \(revoked\)")
    expect(fantail("key", "revoke", "5", "--data", data), 1, err="fantail key: ")
    expect(fantail("key", "revoke", "x", "--data", data), 2)


@each_way("a backup is a whole copy that can be restored")
def _(data, folder):
    expect(fantail("import", "-", "--data", data, stdin=WORLD), 0)
    copy, other = folder + "/copy.db", folder + "/other"
    expect(fantail("backup", copy, "--data", data), 0, out="copy.db: ")
    expect(fantail("backup", copy, "--data", data), 1, err="exists")
    expect(fantail("backup", folder + "/no/such/folder", "--data", data), 1)
    expect(fantail("restore", copy, "--data", other), 0, out="whole, 2 accounts\nrestored")
    expect(fantail("restore", copy, "--data", other), 1, err="--force replaces it")
    expect(fantail("import", "-", "--data", other, stdin='{"type":"account","username":"later"}\n'), 0, out="1 accounts")
    expect(fantail("restore", copy, "--data", other, "--force"), 0)
    expect(fantail("check", "--data", other), 0, out="2 feeds, .* 0 differences")
    expect(fantail("explain", "ada", POST, "--data", other), 0, out="^in the feed: ")


@test("restore refuses what is no whole backup, and leaves nothing behind")
def _():
    with Folder() as folder:
        data = folder + "/data"
        with open(folder + "/text", "w") as f:
            f.write("this is not a database\n" * 100)
        expect(fantail("restore", folder + "/text", "--data", data), 1, err="not a whole backup")
        expect(fantail("restore", folder + "/missing", "--data", data), 1, err="cannot read")
        expect(fantail("restore", folder, "--data", data), 1, err="cannot read")
        expect(fantail("import", "-", "--data", folder + "/source", stdin=WORLD), 0)
        expect(fantail("backup", folder + "/good", "--data", folder + "/source"), 0)
        with open(folder + "/good", "r+b") as f:
            f.truncate(os.path.getsize(folder + "/good") // 2)
        expect(fantail("restore", folder + "/good", "--data", data), 1, err="not a whole backup")
        equal(os.listdir(data), ["lock"])


@test("restore replaces the views too, and feeds show the backup alone")
def _():
    with Folder() as folder, Server(data=folder + "/data", rate_auth=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        post = bob.post("/v1/posts", {"caption": "before"}).expect(201).json["id"]
        expect(fantail("backup", folder + "/copy", "--data", server.data), 0)
        bob.post("/v1/posts", {"caption": "after"}).expect(201)
        ada.delete(f"/v1/accounts/{bob.id}/follow").expect(200)
        server.drain()
        server.save_views()
        server.stop()
        expect(fantail("restore", folder + "/copy", "--data", server.data, "--force"), 0)
        check(not os.path.exists(server.data + "/views.snapshot"), "the old store's views are still there")
        server.start()
        equal([item["id"] for item in ada.get("/v1/feed").expect(200).json["items"]], [post])
        expect(fantail("check", "--all", "--data", server.data), 0, out="0 differences")


@test("restore refuses a folder that a server uses")
def _():
    with Folder() as folder, Server(data=folder + "/data") as server:
        expect(fantail("backup", folder + "/copy", "--data", server.data), 0)
        expect(fantail("restore", folder + "/copy", "--data", server.data, "--force"), 1, err=r"another server \(pid \d+\) uses")


@test("bad import lines are listed with their numbers and the others are kept")
def _():
    with Folder() as folder:
        lines = [
            '{"type":"account","username":"ada"}',
            'not json',
            '{"type":"follow","follower":"ada","followee":"nobody"}',
            '',
            '{"type":"planet"}',
            '{"type":"post","author":"ada","caption":"' + "x" * 1000000 + '"}',
            '{"type":"account","username":"grace"}',
        ]
        done = expect(fantail("import", "-", "--data", folder + "/data", stdin="\n".join(lines)), 1,
                      out="2 accounts, 4 rejected", err="line 6: longer than 900 KiB")
        for number in (2, 3, 5, 6):
            check(f"line {number}: " in done.stderr, f"line {number} is not listed: {done.stderr}")
        expect(fantail("import", folder, "--data", folder + "/data"), 1, err="it is a folder")
        expect(fantail("import", folder + "/none", "--data", folder + "/data"), 1, err="No such file")


@test("many lines go in in chunks and keep their numbers")
def _():
    with Folder() as folder:
        lines = ['{"type":"account","username":"user%d"}' % i for i in range(2500)]
        lines[2400] = "{"
        expect(fantail("import", "-", "--data", folder + "/data", stdin="\n".join(lines) + "\n"), 1,
               out="2,499 accounts, 1 rejected", err="line 2401: ")


@test("a demo world is made once, is sound, and can be logged in to")
def _():
    with Folder() as folder, Server(data=folder + "/data") as server:
        expect(fantail("demo", "--people", 60, "--data", server.data), 0, out="60 accounts, .* 0 rejected\n\nYou can log in as")
        expect(fantail("demo", "--people", 60, "--data", server.data), 0, out="is in .* already")
        ada = server.log_in("ada", "fantail-demo")
        check(len(ada.get("/v1/feed").expect(200).json["items"]) == 20, "ada's feed is thin")
        expect(fantail("check", "--data", server.data), 0, out=" 0 differences")


@test("the same seed makes the same world")
def _():
    with Folder() as folder:
        worlds = []
        for name in "ab":
            expect(fantail("demo", "--people", 40, "--seed", 7, "--data", folder + "/" + name), 0)
            with Server(data=folder + "/" + name) as server:
                ada = server.log_in("ada", "fantail-demo")
                items = ada.get("/v1/feed?limit=100").expect(200).json["items"]
                worlds.append(sorted((i["author"]["username"], i["caption"]) for i in items))
        equal(worlds[0], worlds[1])


@test("demo --live serves, acts and ends at a signal")
def _():
    with Folder() as folder:
        data = folder + "/data"
        live = subprocess.Popen([program(), "demo", "--people", "40", "--live", "--data", data, "--listen", "127.0.0.1:0"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            said = []
            for line in live.stdout:
                said.append(line)
                if re.match(r"\d\d:\d\d:\d\d  @", line):
                    break
            check(any("Serving on http://localhost:" in line for line in said), f"no address: {said}")
            expect(fantail("status", "--data", data), 0)
            live.send_signal(signal.SIGINT)
            rest, errors = live.communicate(timeout=30)
            equal(live.returncode, 0, errors)
        finally:
            live.kill()
        expect(fantail("check", "--data", data), 0, out=" 0 differences")


# ---- pipes, signals, locks ----

@test("a reader that goes away ends a command quietly")
def _():
    for words in (["config"], ["help"], ["serve", "--help"]):
        process = subprocess.Popen([program(), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        errors = process.stderr.read()
        code = process.wait(30)
        process.stderr.close()
        check(code in (0, -signal.SIGPIPE), f"{words}: exit {code}")
        equal(errors, b"", str(words))


@test("status --watch ends when its reader is gone")
def _():
    with Folder() as folder, Server(data=folder + "/data") as server:
        process = subprocess.Popen([program(), "status", "--watch", "--data", server.data], stdout=subprocess.PIPE)
        check(b"Fantail" in process.stdout.readline(), "no status")
        process.stdout.close()
        check(process.wait(30) in (1, -signal.SIGPIPE), f"exit {process.returncode}")
        check(server.alive(), "the server is gone")


@test("output that cannot be written is a failure")
def _():
    with open("/dev/full", "w") as full:
        done = subprocess.run([program(), "config"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=30)
    equal(done.returncode, 1)
    check("cannot write the output" in done.stderr, done.stderr)


@test("a second server is told who holds the folder; a port in use is named")
def _():
    with Folder() as folder, Server(data=folder + "/data") as server:
        expect(fantail("serve", "--data", server.data, "--listen", "127.0.0.1:0"), 1,
               err=f"^fantail serve: another server \\(pid {server.process.pid}\\) uses {server.data}\n$")
        expect(fantail("serve", "--data", folder + "/other", "--listen", f"127.0.0.1:{server.port}"), 1,
               err=f"^fantail serve: .*{server.port}.*in use\n$")


@test("a killed server leaves a socket that does not stop the next one")
def _():
    with Folder() as folder, Server(data=folder + "/data") as server:
        server.sign_up("ada")
        server.kill()
        expect(fantail("status", "--data", server.data), 0, out=r"(?m)^views +1 accounts")
        server.start()
        expect(fantail("status", "--data", server.data), 0, out=r"(?m)^views +1 accounts")


@test("a data folder with a very long name is served and reached")
def _():
    with Folder() as folder:
        deep = folder + "/" + "/".join(["d" * 60] * 3)
        os.makedirs(os.path.dirname(deep))
        with Server(data=deep) as server:
            server.sign_up("ada")
            expect(fantail("status", "--data", deep), 0, out=r"(?m)^views +1 accounts")
            equal(server.stop(), 0)


@test("SIGTERM and SIGINT end the server with 0, and the store is whole")
def _():
    with Folder() as folder:
        for number in (signal.SIGTERM, signal.SIGINT):
            with Server(data=folder + "/data") as server:
                if number == signal.SIGTERM:
                    server.sign_up("ada").post("/v1/posts", {"caption": "hello"}).expect(201)
                server.process.send_signal(number)
                equal(server.wait_exit(), 0)
        expect(fantail("check", "--data", folder + "/data"), 0, out="1 feeds, .* 0 differences")


@test("damaged counters are found, repaired, and gone")
def _():
    import sqlite3
    with Folder() as folder:
        data = folder + "/data"
        expect(fantail("import", "-", "--data", data, stdin=WORLD), 0)
        store = sqlite3.connect(data + "/fantail.db")
        store.execute("UPDATE accounts SET follower_count = 41 WHERE username = 'grace'")
        store.commit()
        store.close()
        expect(fantail("check", "--data", data), 1, out="(?s)follower_count.* 1 differences")
        expect(fantail("check", "--repair", "--data", data), 1, out="1 repaired")
        expect(fantail("check", "--data", data), 0, out=" 0 differences")


main()
