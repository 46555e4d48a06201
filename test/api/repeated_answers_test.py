#!/usr/bin/env python3
"""Answers under a repeated Idempotency-Key: drawn anew, with what the caller may see now."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import Server, check, equal, main, test  # noqa: E402
from support.store import store  # noqa: E402

SERVER = Server(rate_auth=0, rate_write=0)
KEY = {"Idempotency-Key": "again"}
_people = [0]


def somebody():
    _people[0] += 1
    return SERVER.sign_up(f"person{_people[0]}", display_name="secret name", bio="secret bio")


def write(client, caption="secret caption"):
    return client.post("/v1/posts", {"caption": caption}).expect(201).json["id"]


def is_gone(answer):
    """A 404 that says it is a repeated answer, and shows nothing."""
    answer.problem(404)
    equal(answer.headers["idempotent-replayed"], "true")
    check("secret" not in answer.text and "location" not in answer.headers, answer)


def is_repeated(answer, first):
    equal((answer.status, answer.headers.get("idempotent-replayed"), answer.headers.get("location")),
          (first.status, "true", first.headers.get("location")))
    return answer.json if answer.body else None


@test("repeated-like-of-a-deleted-post-does-not-show-it")
def _():
    ada, bob = somebody(), somebody()
    for method in ("PUT", "DELETE"):
        post = write(ada)
        like = lambda: bob.request(method, f"/v1/posts/{post}/like", headers=KEY)  # noqa: E731
        first = like().expect(200)
        equal(is_repeated(like(), first), first.json)
        ada.delete("/v1/posts/" + post).expect(204)
        is_gone(like())


@test("repeated-like-after-a-block-does-not-show-the-post")
def _():
    ada, bob = somebody(), somebody()
    post = write(ada)
    like = lambda: bob.put(f"/v1/posts/{post}/like", headers=KEY)  # noqa: E731
    first = like().expect(200)
    ada.put(f"/v1/accounts/{bob.id}/block").expect(200)
    is_gone(like())
    ada.delete(f"/v1/accounts/{bob.id}/block").expect(200)
    equal(is_repeated(like(), first)["caption"], "secret caption")
    equal(ada.get("/v1/posts/" + post).json["like_count"], 1)


@test("repeated-follow-and-mute-after-a-block-do-not-show-the-profile")
def _():
    ada, bob = somebody(), somebody()
    change = lambda method, noun: bob.request(method, f"/v1/accounts/{ada.id}/{noun}", headers=KEY)  # noqa: E731
    for method, noun in (("PUT", "follow"), ("PUT", "mute"), ("DELETE", "mute"), ("DELETE", "follow"),
                         ("PUT", "block"), ("DELETE", "block")):
        first = change(method, noun).expect(200)
        equal(first.json["bio"], "secret bio")
        is_repeated(change(method, noun), first)
    ada.put(f"/v1/accounts/{bob.id}/block").expect(200)
    for method, noun in (("PUT", "follow"), ("DELETE", "follow"), ("PUT", "mute")):
        is_gone(change(method, noun))
    for method, noun in (("DELETE", "mute"), ("PUT", "block"), ("DELETE", "block")):
        check("secret" not in change(method, noun).expect(200).text)


@test("repeated-follow-shows-how-the-caller-stands-now")
def _():
    ada, bob = somebody(), somebody()
    follow = lambda: bob.put(f"/v1/accounts/{ada.id}/follow", headers=KEY)  # noqa: E731
    first = follow().expect(200)
    bob.delete(f"/v1/accounts/{ada.id}/follow").expect(200)
    shapes.account(is_repeated(follow(), first), relationship=set())
    equal(ada.get("/v1/me").json["follower_count"], 0)


@test("repeated-comment-is-the-comment-as-long-as-the-caller-may-read-it")
def _():
    ada, bob = somebody(), somebody()
    post = write(ada)
    say = lambda on: bob.post(f"/v1/posts/{on}/comments", {"body": "secret words"}, headers=KEY)  # noqa: E731
    first = say(post).expect(201)
    equal(is_repeated(say(post), first), first.json)
    ada.delete("/v1/comments/" + first.json["id"]).expect(204)
    is_gone(say(post))
    other = write(ada)
    say(other).expect(201)
    ada.delete("/v1/posts/" + other).expect(204)
    is_gone(say(other))


@test("repeated-edit-shows-the-post-as-it-is-now")
def _():
    ada = somebody()
    post = write(ada)
    edit = lambda: ada.patch("/v1/posts/" + post, {"caption": "secret two"}, headers=KEY)  # noqa: E731
    first = edit().expect(200)
    ada.patch("/v1/posts/" + post, {"caption": "three"}).expect(200)
    equal(is_repeated(edit(), first)["caption"], "three")
    ada.delete("/v1/posts/" + post).expect(204)
    is_gone(edit())


@test("repeated-post-has-its-location-until-it-is-deleted")
def _():
    ada = somebody()
    send = lambda: ada.post("/v1/posts", {"caption": "secret caption"}, headers=KEY)  # noqa: E731
    first = send().expect(201)
    equal(first.headers["location"], "/v1/posts/" + first.json["id"])
    equal(is_repeated(send(), first), first.json)
    ada.delete(first.headers["location"]).expect(204)
    is_gone(send())
    equal(ada.get("/v1/me").json["post_count"], 0)


@test("repeated-profile-change-shows-the-profile-as-it-is-now")
def _():
    ada = somebody()
    change = lambda: ada.patch("/v1/me", {"bio": "one"}, headers=KEY)  # noqa: E731
    first = change().expect(200)
    ada.patch("/v1/me", {"bio": "two"}).expect(200)
    equal(shapes.account(is_repeated(change(), first), own=True)["bio"], "two")


@test("repeated-group-answers-end-with-the-membership")
def _():
    ada, bob = somebody(), somebody()
    make = lambda: ada.post("/v1/groups", {"name": "secret group", "members": [bob.id]}, headers=KEY)  # noqa: E731
    made = make().expect(201)
    group = made.json["id"]
    rename = lambda: ada.patch(f"/v1/groups/{group}", {"name": "secret name"}, headers=KEY)  # noqa: E731
    role = lambda: ada.put(f"/v1/groups/{group}/members/{bob.id}", {"role": "owner"}, headers=KEY)  # noqa: E731
    renamed, changed = rename().expect(200), role().expect(200)
    equal(is_repeated(make(), made)["name"], "secret name")
    equal(is_repeated(rename(), renamed)["role"], "admin")
    equal(is_repeated(role(), changed), changed.json)
    ada.delete(f"/v1/groups/{group}/members/{ada.id}").expect(204)
    for again in (make, rename, role):
        is_gone(again())


@test("repeated-chat-is-the-same-chat")
def _():
    ada, bob = somebody(), somebody()
    chat = lambda: ada.put(f"/v1/accounts/{bob.id}/chat", headers=KEY)  # noqa: E731
    first = chat().expect(201)
    equal(is_repeated(chat(), first), first.json)


@test("repeated-refusal-is-worked-out-again")
def _():
    ada, bob = somebody(), somebody()
    send = lambda caption: ada.post("/v1/posts", {"caption": caption}, headers=KEY)  # noqa: E731
    send("").problem(422)
    check("idempotent-replayed" not in send("").headers)
    made = send("corrected").expect(201)
    equal(is_repeated(send("corrected"), made), made.json)
    post = write(bob)
    bob.put(f"/v1/accounts/{ada.id}/block").expect(200)
    like = lambda: ada.put(f"/v1/posts/{post}/like", headers=KEY)  # noqa: E731
    like().problem(404)
    bob.delete(f"/v1/accounts/{ada.id}/block").expect(200)
    check("idempotent-replayed" not in like().expect(200).headers)


@test("repeated-answers-are-stored-as-a-status-and-an-id")
def _():
    ada = somebody()
    made = ada.post("/v1/posts", {"caption": "secret caption"}, headers=KEY).expect(201).json
    ada.post("/v1/posts", {"caption": ""}, headers={"Idempotency-Key": "refused"}).problem(422)
    with store(SERVER) as database:
        rows = [dict(row) for row in database.execute("SELECT * FROM idempotency WHERE account_id = ?", (int(ada.id),)).fetchall()]
    equal([(row["status"], row["object_id"]) for row in rows], [(201, int(made["id"]))])
    check("secret" not in str(rows))


if __name__ == "__main__":
    main()
