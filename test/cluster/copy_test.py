#!/usr/bin/env python3
"""`fantail copy` and `fantail migrate`: a store from one driver into the other, and its tables from version to version."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.place import Place, sql
from support.server import ROOT, Server, check, diag, equal, main, program, test, wait_until


def fantail(*words):
    return subprocess.run([program(), *words], capture_output=True, text=True, timeout=120)


def expect(done, code, *words):
    equal(done.returncode, code, done.stdout + done.stderr)
    for word in words:
        check(word in done.stdout + done.stderr, f"'{word}' is not in: {done.stdout}{done.stderr}")


class Folder:
    """A path where nothing is yet."""

    def __enter__(self):
        self.root = tempfile.mkdtemp(prefix="fantail-copy-")
        return os.path.join(self.root, "data")

    def __exit__(self, *_):
        shutil.rmtree(self.root, ignore_errors=True)


def captions(server, token):
    client = server.client(token)
    found = [item["caption"] for item in client.pages("/v1/feed", limit=50)]
    client.close()
    return found


AWKWARD = ["plain", "a\ttab, a\nline, a\\backslash and \\N", "Füchse 🦊 und “quotes”", "\\.", "ends with \\"]


def fill(server):
    ada, bob = server.sign_up("ada", bio=AWKWARD[1]), server.sign_up("bob")
    ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
    for caption in AWKWARD:
        bob.post("/v1/posts", {"caption": caption}).expect(201)
    server.drain()
    return ada, bob


@test("copy-there-and-back-keeps-everything")
def _():
    place = Place()
    with Server(place=False) as server, Folder() as back:
        ada, bob = fill(server)
        wanted = captions(server, ada.token)
        equal(wanted, list(reversed(AWKWARD)))
        expect(fantail("copy", "--from", server.data, "--to", place.db), 1, "another server")
        server.stop()
        expect(fantail("copy", "--from", server.data, "--to", place.db), 0, "copied and verified", "fantail serve --db")
        equal(sql(place, "SELECT count(*) FROM posts"), [[str(len(AWKWARD))]])
        expect(fantail("copy", "--from", server.data, "--to", place.db), 1, "not empty")
        expect(fantail("copy", "--from", place.db, "--to", back), 0, "copied and verified", f"fantail serve --data {back}")
        expect(fantail("copy", "--from", place.db, "--to", back), 1, "holds a store already")
        with Server(data=back, place=False) as again:
            equal(captions(again, ada.token), wanted)
            equal(again.log_in("bob").id, bob.id)
            # Ids go on above those that were copied.
            post = again.client(bob.token).post("/v1/posts", {"caption": "later"}).expect(201).json["id"]
            newest = max(int(row[0]) for row in sql(place, "SELECT id FROM posts"))
            check(int(post) > newest, f"{post} is not above {newest}")
            wait_until(lambda: captions(again, ada.token)[0] == "later", 10, "the later post")
            equal(again.command("check").returncode, 0)
    place.close()


@test("a-store-copied-into-postgresql-is-served-by-nodes")
def _():
    place = Place()
    with Server(place=False) as server:
        ada, bob = fill(server)
        server.stop()
        expect(fantail("copy", "--from", server.data, "--to", place.db), 0)
        with Server(place=place) as node:
            wait_until(lambda: captions(node, ada.token) == list(reversed(AWKWARD)), 20, "the feed from the copy")
            node.client(bob.token).post("/v1/posts", {"caption": "at the node"}).expect(201)
            wait_until(lambda: captions(node, ada.token)[0] == "at the node", 20, "the later post")
            expect(fantail("copy", "--from", server.data, "--to", place.db), 1, "not empty")
    place.close()


@test("places-that-cannot-be-are-refused-with-words")
def _():
    place = Place()
    with Folder() as empty:
        expect(fantail("copy", "--from", empty), 2, "--to")
        expect(fantail("copy", "--from", empty, "--to", empty), 2, "the same place")
        expect(fantail("copy", "--from", empty, "--to", place.db), 1, "there is no store")
        expect(fantail("copy", "--from", place.db, "--to", empty), 1, "there is no store")
        wrong = fantail("copy", "--from", "postgresql://fantail:secret@127.0.0.1:1/nothing", "--to", empty)
        expect(wrong, 1, "PostgreSQL")
        check("secret" not in wrong.stdout + wrong.stderr, "a password is shown")
    place.close()


def kill_when(words, condition):
    """Starts the command and kills it as soon as the condition holds; False: it was faster."""
    process = subprocess.Popen([program(), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not condition():
        time.sleep(0.001)
    process.kill()
    return process.wait() == -signal.SIGKILL


@test("a-copy-that-was-killed-is-never-taken-for-a-store")
def _():
    place = Place()
    with Folder() as world, Folder() as target:
        expect(fantail("demo", "--people", "300", "--data", world), 0)
        # Into PostgreSQL: nothing is there, and the next copy simply begins.
        busy = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{place.name}' AND query LIKE 'COPY %'"
        killed = kill_when(["copy", "--from", world, "--to", place.db], lambda: sql(place, busy) != [["0"]])
        diag(f"into PostgreSQL: {'killed' if killed else 'too fast to be killed'}")
        if killed:
            wait_until(lambda: sql(place, busy.replace("query LIKE 'COPY %'", "application_name = 'fantail copy'")) == [["0"]],
                       10, "the end of the killed copy's connection")
            equal(sql(place, "SELECT count(*) FROM accounts"), [["0"]])
            expect(fantail("copy", "--from", world, "--to", place.db), 0, "copied and verified")
        # Into a folder: a server does not see it, a copy refuses it.
        part = os.path.join(target, "copy.part")
        for _ in range(5):
            killed = kill_when(["copy", "--from", place.db, "--to", target], lambda: os.path.exists(part))
            if killed and os.path.exists(part):
                break
            shutil.rmtree(target, ignore_errors=True)
        check(os.path.exists(part), "the copy could not be killed in time")
        check(not os.path.exists(os.path.join(target, "fantail.db")), "half a copy has the store's name")
        expect(fantail("copy", "--from", place.db, "--to", target), 1, "was not finished", "--again")
        expect(fantail("copy", "--from", place.db, "--to", target, "--again"), 0, "copied and verified")
        check(not os.path.exists(part), "the part is still there")
    place.close()


@test("migrate-says-what-it-does")
def _():
    place = Place()
    expect(fantail("migrate", "--check", "--db", place.db), 1, "no tables yet")
    expect(fantail("migrate", "--db", place.db), 0, "made the tables of schema")
    expect(fantail("migrate", "--check", "--db", place.db), 0, "nothing to do")
    present = int(sql(place, "SELECT value FROM meta WHERE name = 'schema'")[0][0])
    place.close()
    place = Place()
    with open(os.path.join(ROOT, "test/unit/db/old/postgres_2.sql")) as tables:
        sql(place, tables.read() + "INSERT INTO meta (name, value) VALUES ('schema', '2');"
            """INSERT INTO idempotency VALUES (1, 'posts_create 0', 'a', '', 201, '{"id":"1234567890123456789","x":1}', 5),
            (1, 'like_put 7', 'b', '', 404, '{"type":"about:blank"}', 5), (1, 'posts_delete 7', 'c', '', 204, '', 5),
            (1, 'messages_send 7', 'd', '', 201, '42', 5)""")
    expect(fantail("migrate", "--check", "--db", place.db), 1, f"has schema 2; this program brings it to {present}")
    equal(sql(place, "SELECT value FROM meta WHERE name = 'schema'"), [["2"]])
    expect(fantail("migrate", "--db", place.db), 0, f"brought from schema 2 to {present}")
    equal(sql(place, "SELECT count(*) FROM leases"), [["0"]])
    equal(sql(place, "SELECT key, object_id FROM idempotency ORDER BY key"),
          [["a", "1234567890123456789"], ["c", "0"], ["d", "42"]])
    sql(place, "UPDATE meta SET value = '99' WHERE name = 'schema'")
    expect(fantail("migrate", "--db", place.db), 1, "newer version")
    expect(fantail("copy", "--from", place.db, "--to", "/nonexistent/place"), 1, "newer version")
    place.close()
    with Server(place=False) as server:
        expect(fantail("migrate", "--data", server.data), 1, "another server")
        expect(fantail("migrate", "--check", "--data", server.data), 0, "nothing to do")


main()
