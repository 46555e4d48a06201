#!/usr/bin/env python3
"""API keys: making and revoking them, their scopes, and acting for accounts."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import Server, check, equal, main, test  # noqa: E402
from support.store import store  # noqa: E402

SERVER = Server(rate_auth=0)
ADA, BOB = SERVER.sign_up("ada"), SERVER.sign_up("bob")


def make(client, scopes="act", name="shop"):
    return client.post("/v1/admin/keys", {"name": name, "scopes": scopes})


@test("keys-create-shows-the-key-once-and-the-list-never")
def _():
    made = make(SERVER.operator, "act admin:read", "a shop").expect(201).json
    equal(set(made), {"id", "name", "scopes", "key"})
    equal((made["name"], made["scopes"]), ("a shop", "act admin:read"))
    check(made["key"].startswith("ftk_") and len(made["key"]) > 40)
    answer = SERVER.operator.get("/v1/admin/keys").expect(200)
    listed = {k["id"]: k for k in shapes.listing(answer.json)}[made["id"]]
    equal((listed["name"], listed["scopes"], listed["revoked_at"]), ("a shop", "act admin:read", None))
    check(shapes.is_time(listed["created_at"]))
    check(made["key"] not in answer.text)


@test("keys-expire-after-their-days-and-not-before")
def _():
    made = SERVER.operator.post("/v1/admin/keys", {"name": "guest", "scopes": "admin:read", "days": 2}).expect(201).json
    listed = {k["id"]: k for k in SERVER.operator.get("/v1/admin/keys").json["items"]}
    check(shapes.is_time(listed[made["id"]]["expires_at"]), listed[made["id"]])
    guest = SERVER.client(made["key"])
    guest.get("/v1/admin/status").expect(200)
    for days in (0, -1, 3651, "2", 1.5):
        SERVER.operator.post("/v1/admin/keys", {"name": "x", "scopes": "act", "days": days}).problem(422)
    SERVER.stop()
    with store(SERVER, write=True) as database:
        database.execute("UPDATE api_keys SET expires_at = ? WHERE id = ?", (int(time.time() * 1000) - 1000, int(made["id"])))
    SERVER.start()
    check("expired" in guest.get("/v1/admin/status").problem(401)["detail"])


@test("keys-have-a-rate-of-their-own-whomever-they-act-for")
def _():
    made = SERVER.operator.post("/v1/admin/keys", {"name": "shop", "scopes": "act", "rate": 2}).expect(201).json
    shop, other = SERVER.client(made["key"]), SERVER.key("act")
    answers = [shop.acting(person.id).get("/v1/me") for person in (ADA, BOB) * 20]
    equal({a.status for a in answers}, {200, 429})
    check(all(int(a.headers["retry-after"]) >= 1 for a in answers if a.status == 429))
    for _ in range(40):
        other.acting(ADA.id).get("/v1/me").expect(200)


@test("keys-with-unknown-or-no-scopes-are-422")
def _():
    for scopes in ("", "root", "act root", "ACT", None, 5):
        make(SERVER.operator, scopes).problem(422)
    make(SERVER.operator, "act", "x" * 81).problem(422)


@test("keys-are-made-listed-and-revoked-by-admins-alone")
def _():
    admin, reader, act = SERVER.key("admin"), SERVER.key("admin:read"), SERVER.key("act")
    for client, status in ((SERVER.anonymous, 401), (ADA, 403), (act, 403), (reader, 403)):
        make(client).problem(status)
        client.delete("/v1/admin/keys/" + admin.id).problem(status)
    for client, status in ((SERVER.anonymous, 401), (ADA, 403), (act, 403)):
        client.get("/v1/admin/keys").problem(status)
        client.get("/v1/admin/status").problem(status)
    reader.get("/v1/admin/keys").expect(200)
    reader.get("/v1/admin/status").expect(200)
    make(admin).expect(201)


@test("keys-revoked-are-dead-at-once-and-for-good")
def _():
    with Server(rate_auth=0) as server:
        ada = server.sign_up("ada")
        key = server.key("act", "admin")
        acting = key.acting(ada.id)
        acting.get("/v1/me").expect(200)
        key.get("/v1/admin/status").expect(200)
        server.operator.delete("/v1/admin/keys/" + key.id).expect(204)
        for hard in (None, True):
            if hard:
                server.restart(hard=True)
            acting.get("/v1/me").problem(401)
            key.get("/v1/admin/status").problem(401)
        server.operator.delete("/v1/admin/keys/" + key.id).expect(204, 404)
        listed = [k for k in server.operator.get("/v1/admin/keys").json["items"] if k["id"] == key.id]
        check(not listed or shapes.is_time(listed[0]["revoked_at"]))


@test("keys-with-act-do-everything-for-the-account-they-name-by-id-or-at-name")
def _():
    key = SERVER.key("act")
    for name in (ADA.id, "@ada", "@ADA"):
        acting = key.acting(name)
        equal(acting.get("/v1/me").expect(200).json["id"], ADA.id)
        post = acting.post("/v1/posts", {"caption": "by proxy"}).expect(201).json
        equal(post["author"]["id"], ADA.id)
        equal(shapes.ids(acting.get("/v1/feed?limit=1").json["items"]), [post["id"]])
        acting.delete("/v1/posts/" + post["id"]).expect(204)
    acting.put(f"/v1/accounts/{BOB.id}/follow").expect(200)
    equal(BOB.get("/v1/me").json["follower_count"], 1)
    acting.delete("/v1/sessions/current").problem(422)  # there is none
    ADA.get("/v1/me").expect(200)


@test("keys-act-only-for-accounts-that-exist-and-must-name-one")
def _():
    key = SERVER.key("act")
    check("Fantail-Account" in key.get("/v1/me").problem(401)["detail"])
    key.post("/v1/posts", {"caption": "whose?"}).problem(401)
    for nobody in ("1", "@nobody.here", "ada", "", "@", "x y", "99999999999999999999", "../1", "@" + "a" * 31):
        key.acting(nobody).get("/v1/me").expect(401, 403, 404, 422)
    gone = SERVER.sign_up("soon.gone")
    acting = key.acting(gone.id)
    acting.get("/v1/me").expect(200)
    gone.delete("/v1/me").expect(204)
    acting.get("/v1/me").expect(401, 403, 404)
    acting.post("/v1/posts", {"caption": "from the grave"}).expect(401, 403, 404)


@test("keys-without-act-act-for-no-account-and-sessions-only-for-themselves")
def _():
    for scope in ("admin", "admin:read"):
        key = SERVER.key(scope)
        key.get("/v1/me").problem(403)
        key.acting(ADA.id).get("/v1/me").expect(401, 403)
        key.acting(ADA.id).post("/v1/posts", {"caption": "no"}).expect(401, 403)
    before = BOB.get("/v1/me").json["post_count"]
    ADA.acting(BOB.id).post("/v1/posts", {"caption": "as bob?"}).expect(400, 401, 403)
    equal(BOB.get("/v1/me").json["post_count"], before)


@test("keys-keep-idempotency-and-cursors-apart-between-accounts")
def _():
    key = SERVER.key("act")
    made = [key.acting(who).post("/v1/posts", {"caption": "same"}, headers={"Idempotency-Key": "k"}).expect(201).json
            for who in (ADA.id, BOB.id)]
    equal([m["author"]["id"] for m in made], [ADA.id, BOB.id])
    for n in range(3):
        ADA.post("/v1/posts", {"caption": str(n)}).expect(201)
    cursor = key.acting(ADA.id).get("/v1/feed?limit=1").json["next_cursor"]
    ADA.get("/v1/feed?limit=1&cursor=" + cursor).expect(200)  # the same person
    key.acting(BOB.id).get("/v1/feed?limit=1&cursor=" + cursor).problem(400)


if __name__ == "__main__":
    main()
