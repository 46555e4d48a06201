#!/usr/bin/env python3
"""What is deleted is erased: a person's messages with the account, posts and comments after their retention."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.server import Server, check, equal, main, test, wait_until  # noqa: E402
from support.store import store  # noqa: E402


def say(client, group, body):
    return client.post(f"/v1/groups/{group}/messages", {"body": body}).expect(201).json["seq"]


def make(owner, *members):
    return owner.post("/v1/groups", {"name": "birds", "members": [m.id for m in members]}).expect(201).json["id"]


def texts(client, group):
    items = client.get(f"/v1/groups/{group}/messages?limit=200").expect(200).json["items"]
    return [(e["author_id"], e["body"]) for e in items if e["kind"] == "message"]


def stored(server, table, column, like):
    with store(server) as database:
        return database.execute(f"SELECT COUNT(*) AS n FROM {table} WHERE {column} LIKE '{like}%'").fetchone()["n"]


@test("deleting-an-account-erases-what-it-wrote-in-groups-and-chats")
def _():
    with Server(rate_auth=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        group, left = make(ada, bob), make(ada, bob)
        chat = bob.put(f"/v1/accounts/{ada.id}/chat").expect(200, 201).json["id"]
        for place in (group, left, chat):
            say(bob, place, "secret of bob")
            say(ada, place, "kept")
        say(bob, group, "secret again")
        bob.delete(f"/v1/groups/{left}/members/{bob.id}").expect(204)
        check("secret" in ada.get("/v1/inbox").expect(200).text, "the inbox shows the last message")
        bob.delete("/v1/me").expect(204)
        server.drain()
        equal(stored(server, "group_log", "body", "secret"), 0)
        for place in (group, left, chat):
            check((bob.id, None) in texts(ada, place), "its number stays")
            check((ada.id, "kept") in texts(ada, place), "what others wrote stays")
            check("secret" not in ada.get(f"/v1/groups/{place}/messages").text)
        check("secret" not in ada.get("/v1/inbox").expect(200).text, "a cache still has the text")
        with store(server) as database:
            equal(database.execute("SELECT COUNT(*) AS n FROM erasures").fetchone()["n"], 0)


@test("texts-of-a-deleted-account-stay-when-the-operator-wants-it")
def _():
    with Server(rate_auth=0, erase_messages=False) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        group = make(ada, bob)
        say(bob, group, "kept of bob")
        bob.delete("/v1/me").expect(204)
        server.drain()
        check((bob.id, "kept of bob") in texts(ada, group))
        ada.get(f"/v1/accounts/{bob.id}").problem(404)  # the id names no person any more
        with store(server) as database:
            equal(database.execute("SELECT COUNT(*) AS n FROM erasures").fetchone()["n"], 0)


@test("deleted-posts-and-comments-are-erased-after-their-retention")
def _():
    with Server(rate_auth=0, deleted_retention="0s") as server:
        ada = server.sign_up("ada")
        kept, gone = (ada.post("/v1/posts", {"caption": f"secret {n}"}).expect(201).json["id"] for n in range(2))
        ada.patch(f"/v1/posts/{gone}", {"caption": "secret later"}).expect(200)
        comments = [ada.post(f"/v1/posts/{kept}/comments", {"body": f"secret {n}"}).expect(201).json["id"] for n in range(2)]
        ada.delete(f"/v1/comments/{comments[0]}").expect(204)
        ada.delete(f"/v1/posts/{gone}").expect(204)
        wait_until(lambda: stored(server, "posts", "caption", "secret") == 1, 20, "the deleted post to be erased")
        wait_until(lambda: stored(server, "comments", "body", "secret") == 1, 20, "the deleted comment to be erased")
        equal(stored(server, "post_versions", "caption", "secret"), 0)
        ada.get(f"/v1/posts/{gone}").problem(404)
        equal(ada.get(f"/v1/posts/{kept}").expect(200).json["comment_count"], 1)
        equal([c["id"] for c in ada.get(f"/v1/posts/{kept}/comments").expect(200).json["items"]], comments[1:])
        done = server.command("check", "--all")
        equal(done.returncode, 0, done.stdout + done.stderr)


@test("what-was-deleted-a-moment-ago-is-kept-for-its-retention")
def _():
    with Server(rate_auth=0) as server:
        ada = server.sign_up("ada")
        post = ada.post("/v1/posts", {"caption": "secret"}).expect(201).json["id"]
        ada.delete(f"/v1/posts/{post}").expect(204)
        server.restart()  # the first look is at the start
        server.drain()
        equal(stored(server, "posts", "caption", "secret"), 1)


main()
