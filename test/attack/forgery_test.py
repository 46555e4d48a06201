#!/usr/bin/env python3
"""Forged and foreign things: tokens, cursors, headers, other people's resources."""
import base64
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.server import PASSWORD, Server, check, equal, main, test  # noqa: E402

SERVER = Server(rate_auth=0, rate_write=0)
ADA, EVE = SERVER.sign_up("ada"), SERVER.sign_up("eve")
POST = ADA.post("/v1/posts", {"caption": "mine"}).expect(201).json
COMMENT = ADA.post(f"/v1/posts/{POST['id']}/comments", {"body": "mine, too"}).expect(201).json


@test("no changed token passes")
def _():
    for at in range(0, len(ADA.token)):
        other = "A" if ADA.token[at] != "A" else "B"
        SERVER.client(ADA.token[:at] + other + ADA.token[at + 1:]).get("/v1/me").problem(401)
    for token in (ADA.token[:-1], ADA.token + "A", ADA.token.upper(), ADA.token[4:], "ftk_" + ADA.token[4:],
                  "fts_", "x", "a" * 8000, "fts_' OR '1'='1"):
        SERVER.client(token).get("/v1/me").problem(401)


@test("odd Authorization headers are 401, never a fault")
def _():
    for value in ("", "Bearer", "Bearer ", "Basic YWRhOmFkYQ==", f"Token {ADA.token}", f"Bearer{ADA.token}",
                  f"Bearer {ADA.token} {ADA.token}", f"Bearer {ADA.token},", "Bearer \xe4"):
        answer = SERVER.anonymous.get("/v1/me", headers={"Authorization": value})
        answer.problem(401)
        check("bearer" in answer.headers["www-authenticate"].lower())
    equal(SERVER.anonymous.get("/v1/me", headers={"Authorization": "bearer  " + ADA.token}).status, 200)


@test("unsigned, self-signed and strange JWTs are 401 when no key is configured")
def _():
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
    claims = part({"sub": ADA.id, "exp": 9999999999})
    for token in (part({"alg": "none"}) + "." + claims + ".", part({"alg": "HS256"}) + "." + claims + ".AAAA",
                  "..", "a.b.c", "....", part([]) + "." + part([]) + "." + part([])):
        SERVER.client(token).get("/v1/me").problem(401)


@test("no changed or foreign cursor passes")
def _():
    for n in range(3):
        ADA.post("/v1/posts", {"caption": str(n)}).expect(201)
    cursor = ADA.get("/v1/feed?limit=1").expect(200).json["next_cursor"]
    ADA.get("/v1/feed?cursor=" + cursor).expect(200)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    chance = random.Random(3)
    for at in range(len(cursor)):
        other = chance.choice([c for c in alphabet if c != cursor[at]])
        ADA.get("/v1/feed?cursor=" + cursor[:at] + other + cursor[at + 1:]).problem(400)
    EVE.get("/v1/feed?cursor=" + cursor).problem(400)
    ADA.get(f"/v1/accounts/{ADA.id}/posts?cursor={cursor}").problem(400)
    for bad in ("", "0", "A" * 48, "A" * 5000, "%00", "%ff", "..%2f..", cursor + "=", cursor * 2, "1' OR '1'='1"):
        ADA.get("/v1/feed?cursor=" + bad.replace(" ", "%20").replace("'", "%27")).problem(400)


@test("other people's resources stay theirs")
def _():
    EVE.patch("/v1/posts/" + POST["id"], {"caption": "stolen"}).problem(403)
    EVE.delete("/v1/posts/" + POST["id"]).expect(403, 404)
    EVE.delete("/v1/comments/" + COMMENT["id"]).expect(403, 404)
    session = ADA.get("/v1/sessions").expect(200).json["items"][0]["id"]
    EVE.delete("/v1/sessions/" + session).problem(404)
    EVE.acting(ADA.id).get("/v1/me").problem(403)
    EVE.delete("/v1/admin/posts/" + POST["id"]).problem(403)
    EVE.put(f"/v1/admin/accounts/{ADA.id}/suspension").problem(403)
    equal(ADA.get("/v1/posts/" + POST["id"]).expect(200).json["caption"], "mine")
    check("email" not in EVE.get("/v1/accounts/" + ADA.id).expect(200).json)
    ADA.get("/v1/me").expect(200)


@test("a refused log-in leaves no trace: it does not show which accounts exist")
def _():
    known = SERVER.anonymous.post("/v1/sessions", {"username": "ada", "password": "wrong password"})
    unknown = SERVER.anonymous.post("/v1/sessions", {"username": "nobody", "password": "wrong password"})
    equal(known.problem(401), unknown.problem(401))
    SERVER.anonymous.post("/v1/sessions", {"username": "ada", "password": PASSWORD}).expect(201)


@test("headers cannot be split through what we echo")
def _():
    answer = SERVER.raw(b"GET /v1/accounts?q=a&limit=1&x=%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\nHost: x\r\n"
                        b"Origin: https://x\r\nConnection: close\r\n\r\n")
    check(b"Set-Cookie" not in answer.split(b"\r\n\r\n")[0].replace(b"%0d%0aSet-Cookie", b""), answer)
    answer = SERVER.raw(b"GET /v1/accounts?q=a&x=<script>\"'> HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    check(b"<script>" not in answer, answer)


@test("paths that try to be others are 404")
def _():
    for path in ("/v1/../v1/me", "/v1/%2e%2e/me", "/v1/me%00", "/v1/me/", "//v1/me", "/v1//me", "/V1/me", "/v1/me;a=b",
                 "/v1/posts/1%2flike", "/v1/posts/%31", "/v1/posts/-1", "/v1/posts/01", "/v1/posts/1e1",
                 "/v1/posts/99999999999999999999", "/v1/posts/9223372036854775808", "/.git/config", "/data/fantail.db"):
        ADA.get(path).problem(404)


@test("the server is still well")
def _():
    check(SERVER.alive())
    check("AddressSanitizer" not in SERVER.log() and "runtime error" not in SERVER.log(), SERVER.log_tail())


main()
