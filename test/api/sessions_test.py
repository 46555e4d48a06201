#!/usr/bin/env python3
"""Sessions: logging in and out, listing and ending them, the password."""
import os
import sys
import threading
import time
from datetime import datetime

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import PASSWORD, Server, check, equal, main, test  # noqa: E402
from support.store import store  # noqa: E402

SERVER = Server(rate_auth=0)
ANYONE = SERVER.anonymous


def log_in(username, password=PASSWORD, **more):
    return ANYONE.post("/v1/sessions", {"username": username, "password": password}, **more)


@test("sessions-log-in-answers-the-account-and-a-new-token")
def _():
    me = SERVER.sign_up("login", display_name="Log In")
    made = log_in("LogIn").expect(201).json
    equal(set(made), {"account", "token"})
    equal(shapes.account(made["account"], own=True)["id"], me.id)
    check(made["token"] != me.token)
    for token in (me.token, made["token"]):
        equal(SERVER.client(token).get("/v1/me").expect(200).json["id"], me.id)


@test("sessions-a-wrong-name-and-a-wrong-password-are-answered-alike")
def _():
    SERVER.sign_up("victim")
    wrong_password, wrong_name = log_in("victim", "wrong password"), log_in("no.such.one", "wrong password")
    equal(wrong_password.problem(401), wrong_name.problem(401))
    log_in("not a name at all").problem(401)
    log_in("victim", PASSWORD.upper()).problem(401)
    log_in("victim", PASSWORD + " ").problem(401)
    log_in("victim", "").problem(401)
    log_in("victim", "x" * 10000).problem(401)
    for body in ({}, {"username": "victim"}, {"password": PASSWORD}, {"username": 1, "password": 2}):
        ANYONE.post("/v1/sessions", body).problem(422)


@test("sessions-log-out-ends-this-session-alone-and-at-once")
def _():
    me = SERVER.sign_up("logout")
    other = SERVER.log_in("logout")
    me.delete("/v1/sessions/current").expect(204)
    me.get("/v1/me").problem(401)
    me.delete("/v1/sessions/current").problem(401)
    me.get("/v1/feed").problem(401)
    other.get("/v1/me").expect(200)


@test("sessions-end-after-session-age-however-often-they-are-used")
def _():
    with Server(rate_auth=0, session_life="2h", session_age="1h") as server:
        me = server.sign_up("ada")
        one = me.get("/v1/sessions").expect(200).json["items"][0]
        when = lambda text: datetime.fromisoformat(text.replace("Z", "+00:00"))  # noqa: E731
        equal(round((when(one["expires_at"]) - when(one["created_at"])).total_seconds()), 3600)


@test("sessions-the-list-shows-all-with-the-current-one-marked")
def _():
    me = SERVER.sign_up("lister")
    made = log_in("lister", headers={"User-Agent": "Tester/1.0"}).expect(201).json
    other = SERVER.client(made["token"])
    items = shapes.listing(me.get("/v1/sessions").expect(200).json)
    equal(len(items), 2)
    equal([s["current"] for s in items], [False, True])  # newest first
    equal(items[0]["label"], "Tester/1.0")
    for item in items:
        check(shapes.is_id(item["id"]))
        for name in ("created_at", "used_at", "expires_at"):
            check(shapes.is_time(item[name]), name)
        check(item["created_at"] <= item["used_at"] < item["expires_at"])
    equal([s["current"] for s in other.get("/v1/sessions").json["items"]], [True, False])
    check(me.token not in me.get("/v1/sessions").text, "tokens are shown once")


@test("sessions-one-can-end-any-of-ones-own-and-none-of-anothers")
def _():
    me, stranger = SERVER.sign_up("ender"), SERVER.sign_up("stranger")
    other = SERVER.log_in("ender")
    mine = {s["current"]: s["id"] for s in me.get("/v1/sessions").json["items"]}
    stranger.delete("/v1/sessions/" + mine[False]).problem(404)
    other.get("/v1/me").expect(200)
    me.delete("/v1/sessions/" + mine[False]).expect(204)
    other.get("/v1/me").problem(401)
    me.delete("/v1/sessions/" + mine[False]).problem(404)
    me.delete("/v1/sessions/" + mine[True]).expect(204)
    me.get("/v1/me").problem(401)


@test("sessions-change-of-password-ends-every-other-session-at-once")
def _():
    others = [SERVER.sign_up("changer"), SERVER.log_in("changer")]
    me = SERVER.log_in("changer")
    others.append(SERVER.log_in("changer"))  # older and newer ones
    for other in others:
        other.get("/v1/me").expect(200)  # known to every cache
    new = {"current_password": PASSWORD, "new_password": "an even better one"}
    me.put("/v1/me/password", {**new, "current_password": "wrong"}).problem(403)
    me.put("/v1/me/password", {**new, "new_password": "short"}).problem(422)
    me.put("/v1/me/password", {"new_password": "no current one"}).problem(422)
    for other in others:
        other.get("/v1/me").expect(200)
    answer = me.put("/v1/me/password", new).expect(204)
    equal(answer.body, b"")
    for other in others:
        other.get("/v1/me").problem(401)
    me.get("/v1/me").expect(200)
    equal(len(me.get("/v1/sessions").json["items"]), 1)
    log_in("changer").problem(401)
    log_in("changer", "an even better one").expect(201)


@test("sessions-live-through-restarts-and-end-for-good")
def _():
    with Server(rate_auth=0) as server:
        me = server.sign_up("ada")
        ended = server.log_in("ada")
        ended.delete("/v1/sessions/current").expect(204)
        for hard in (False, True):
            server.restart(hard=hard)
            me.get("/v1/me").expect(200)
            ended.get("/v1/me").problem(401)


@test("sessions-unused-for-their-life-are-over")
def _():
    with Server(rate_auth=0, session_life="1m") as server:
        me = server.sign_up("ada")
        me.get("/v1/me").expect(200)
        server.stop()
        with store(server, write=True) as database:  # as if it had been made two minutes ago
            database.execute("UPDATE sessions SET expires_at = ?", (int(time.time() * 1000) - 60_000,))
        server.start()
        me.get("/v1/me").problem(401)
        equal(len(server.log_in("ada").get("/v1/sessions").json["items"]), 1, "an expired one is not listed")


@test("sessions-no-log-in-by-the-old-password-outlives-a-password-change")
def _():
    """A log-in reads the hash, verifies for a while and then makes its session: a change in between must win."""
    me = SERVER.sign_up("racer")
    old = PASSWORD
    for turn in range(6):
        new = f"{PASSWORD} {turn}"
        stop, tokens = threading.Event(), []

        def knock(old=old, stop=stop, tokens=tokens):
            client = SERVER.client(None)
            while not stop.is_set():
                answer = client.post("/v1/sessions", {"username": "racer", "password": old})
                if answer.status != 201:
                    return
                tokens.append(answer.json["token"])

        knockers = [threading.Thread(target=knock) for _ in range(3)]
        for knocker in knockers:
            knocker.start()
        me.put("/v1/me/password", {"current_password": old, "new_password": new}).expect(204)
        stop.set()
        for knocker in knockers:
            knocker.join()
        for token in tokens:
            SERVER.client(token).get("/v1/me").problem(401)
        old = new


@test("sessions-tokens-in-other-shapes-are-401-and-say-so")
def _():
    me = SERVER.sign_up("shapes")
    for header in ("", "Bearer", "Bearer ", "Basic " + me.token, me.token, "Bearer " + me.token[:-1],
                   "Bearer " + me.token + "A", "Bearer fts_" + "A" * 43, "Bearer " + "x" * 4000):
        answer = ANYONE.get("/v1/me", headers={"Authorization": header})
        answer.problem(401)
        check(answer.headers["www-authenticate"].startswith("Bearer"))
    ANYONE.get("/v1/me", headers={"Authorization": "bearer " + me.token}).expect(200)


if __name__ == "__main__":
    main()
