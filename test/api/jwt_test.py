#!/usr/bin/env python3
"""JWTs of a host product: which keys are taken, and what signing up by a token is held to."""
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.jwt import jwt  # noqa: E402
from support.server import Server, check, equal, main, program, test, wait_until  # noqa: E402

SECRET = b"0123456789abcdef0123456789abcdef"
FOLDER = tempfile.TemporaryDirectory(prefix="fantail-jwt-")
KEY = FOLDER.name + "/secret"
with open(KEY, "wb") as file:
    file.write(SECRET + b"\n")
JWT = dict(jwt_key="hs256:" + KEY, jwt_issuer="host", jwt_audience="fantail")


def token(sub, **claims):
    return jwt(SECRET, {"sub": sub, "iss": "host", "aud": "fantail", "exp": time.time() + 600, **claims})


def refused_start(*words):
    """What `fantail serve` says when it does not start."""
    done = subprocess.run([program(), "serve", "--data", FOLDER.name + "/none", "--listen", "127.0.0.1:0", *words],
                          capture_output=True, text=True, timeout=60)
    equal(done.returncode, 1, done.stderr)
    return done.stderr


@test("jwt-a-secret-must-be-named-as-one-and-a-public-key-never-becomes-one")
def _():
    required = ["--jwt-issuer", "host", "--jwt-audience", "fantail"]
    check("hs256:FILE" in refused_start("--jwt-key", KEY, *required))
    for name, text in (("pem", "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n"),
                       ("jwks", ' {"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}'), ("ssh", "ssh-rsa " + "A" * 300)):
        path = f"{FOLDER.name}/{name}"
        with open(path, "w") as file:
            file.write(text)
        check("looks like a public key" in refused_start("--jwt-key", "hs256:" + path, *required))


@test("jwt-issuer-and-audience-are-required-unless-waived-by-name")
def _():
    key = ["--jwt-key", "hs256:" + KEY]
    check("jwt-waive iss" in refused_start(*key, "--jwt-audience", "fantail"))
    check("jwt-waive aud" in refused_start(*key, "--jwt-issuer", "host"))
    check("jwt-waive aud" in refused_start(*key, "--jwt-waive", "iss"))
    with Server(jwt_key="hs256:" + KEY, jwt_waive="iss,aud") as server:
        server.client(jwt(SECRET, {"sub": "a", "exp": time.time() + 600})).get("/v1/me").expect(200)
        check('"algorithm":"HS256"' in server.log(), "the start does not name the algorithm")


@test("jwt-sign-up-obeys-sign-up-off-and-known-people-still-get-in")
def _():
    with Server(**JWT) as server:
        known = server.client(token("host|1", preferred_username="ada"))
        me = known.get("/v1/me").expect(200).json
        server.restart(sign_up=False)
        equal(known.get("/v1/me").expect(200).json["id"], me["id"])
        refused = server.client(token("host|2", preferred_username="bob")).get("/v1/me")
        check("sign-up is switched off" in refused.problem(403)["detail"])
        equal(server.anonymous.get("/v1/accounts?username=bob").expect(200).json["items"], [])


@test("jwt-sign-up-counts-against-the-rate-of-sign-ups")
def _():
    with Server(rate_auth=1, **JWT) as server:
        statuses = [server.client(token(f"host|{n}")).get("/v1/me").status for n in range(30)]
        equal(set(statuses), {200, 429})
        check(statuses.count(200) <= 20, statuses)
        first = statuses.index(429)
        check(int(server.client(token("host|more")).get("/v1/me").headers.get("retry-after", "0")) >= 1)
        equal(server.client(token("host|0")).get("/v1/me").status, 200, f"known since before the {first}th")


@test("jwt-sign-up-waits-while-the-store-is-at-risk")
def _():
    with Server(guard_free="1024T", **JWT) as server:
        wait_until(lambda: server.metrics()["fantail_overload_guard_level"] == 2, 10, "the overload guard")
        refused = server.client(token("host|1", preferred_username="ada")).get("/v1/me")
        refused.problem(503)
        check(int(refused.headers["retry-after"]) >= 1)
        equal(server.anonymous.get("/v1/accounts?username=ada").expect(200).json["items"], [])


@test("jwt-a-deleted-account-comes-back-only-with-consent")
def _():
    with Server(**JWT) as server:
        ada = server.client(token("host|1", preferred_username="ada"))
        gone = ada.get("/v1/me").expect(200).json["id"]
        ada.delete("/v1/me").expect(204)
        again = server.client(token("host|1", preferred_username="ada", n=2))
        for _ in range(2):
            check("deleted" in again.get("/v1/me").problem(403)["detail"])
        equal(server.anonymous.get("/v1/accounts?username=ada").expect(200).json["items"], [])
        server.restart(jwt_return=True)
        for turn in range(2):  # and may go once more
            me = again.get("/v1/me").expect(200).json
            check(me["id"] != gone)
            again.delete("/v1/me").expect(204)
            again = server.client(token("host|1", preferred_username="ada", n=3 + turn))
        server.restart(jwt_return=False)
        again.get("/v1/me").problem(403)


if __name__ == "__main__":
    main()
