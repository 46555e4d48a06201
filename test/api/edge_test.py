#!/usr/bin/env python3
"""The edge of the API: problems, methods, CORS, pages, rate limits, idempotency, who calls, what is logged."""
import http.client
import json
import os
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.crew import together  # noqa: E402
from support.lanes import LANES  # noqa: E402
from support.place import is_cluster  # noqa: E402
from support.jwt import jwt  # noqa: E402
from support.server import PASSWORD, Server, check, equal, main, test, wait_until  # noqa: E402

ORIGIN = "https://app.example"
SERVER = Server(log_level="debug", rate_auth=0, cors_origins=ORIGIN)
ADA = SERVER.sign_up("ada")
BOB = SERVER.sign_up("bob")


def post(client, caption="hello", **more):
    return client.post("/v1/posts", {"caption": caption}, **more)


# -- problems and methods ----------------------------------------------------------------------------


@test("problems are problem+json with type, title, status and a detail that helps")
def _():
    equal(SERVER.anonymous.get("/nowhere").problem(404)["code"], "not_found")
    SERVER.anonymous.get("/v1/posts/abc").problem(404)
    SERVER.anonymous.get("/v1/posts/1/").problem(404)
    SERVER.anonymous.get("/v1/feed").problem(401)
    check("caption" in ADA.post("/v1/posts", {}).problem(422)["detail"])
    check("limit" in ADA.get("/v1/feed?limit=0").problem(400)["detail"])
    ADA.get("/v1/feed?limit=1000").problem(400)
    ADA.get("/v1/feed?limit=x").problem(400)


@test("headers-that-decide-who-calls-appear-once-or-the-request-is-400")
def _():
    token = f"Authorization: Bearer {ADA.token}\r\n"
    key, acting = "Idempotency-Key: k\r\n", f"Fantail-Account: {ADA.id}\r\n"

    def send(lines):
        with socket.create_connection(("127.0.0.1", SERVER.port), timeout=60) as connection:
            connection.sendall(f"PUT /v1/accounts/{BOB.id}/mute HTTP/1.1\r\n{lines}Content-Length: 0\r\n\r\n".encode())
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return answer.status, answer.read().decode()

    equal(send("Host: x\r\n" + token + key)[0], 200)
    for name, lines in (("Authorization", token + token), ("Authorization", token + token.lower().replace("bearer", "Bearer")),
                        ("Authorization", "authorization: Bearer x\r\n" + token), ("Idempotency-Key", token + key + key),
                        ("Idempotency-Key", token + key + "idempotency-key:\r\n"),
                        ("Fantail-Account", token + acting + acting)):
        status, body = send("Host: x\r\n" + lines)
        check(status == 400 and name in body, (status, body))
    for hosts in ("Host: x\r\nHost: x\r\n", "Host: x\r\nhost: y\r\n"):
        equal(send(hosts + token)[0], 400)


@test("answers-say-nosniff-and-personal-ones-no-store")
def _():
    ada, anyone = SERVER.log_in("ada"), SERVER.anonymous
    made = post(ADA).expect(201)
    answers = {
        True: [made, ada.get("/v1/feed"), ada.get("/v1/feed"), ada.get("/v1/me"), ada.get("/v1/posts/1"), ada.get("/v1/feed?limit=0"),
               anyone.post("/v1/sessions", {"username": "ada", "password": PASSWORD}), anyone.post("/v1/sessions", {}),
               ada.delete("/v1/posts/" + made.json["id"]), SERVER.operator.get("/v1/admin/keys")],
        False: [anyone.get("/v1/posts/1"), anyone.get("/nowhere"), anyone.get("/docs"), anyone.get("/openapi.json"),
                anyone.get(f"/v1/accounts/{ADA.id}"), anyone.request("OPTIONS", "/v1/me")],
    }
    for personal, several in answers.items():
        for answer in several:
            equal(answer.headers.get("x-content-type-options"), "nosniff", answer)
            equal(answer.headers.get("cache-control"), "no-store" if personal else None, answer)
            check("strict-transport-security" not in answer.headers)


@test("strict-transport-security-is-sent-when-the-operator-says-so")
def _():
    with Server(rate_auth=0, hsts="365d") as server:
        ada = server.sign_up("ada")
        for answer in (ada.get("/v1/feed"), ada.get("/v1/feed"), ada.get("/v1/posts/1"), server.anonymous.get("/nowhere"),
                       server.anonymous.get("/docs")):
            equal(answer.headers.get("strict-transport-security"), "max-age=31536000", answer)


@test("problems-have-a-code-and-a-type-that-leads-to-a-page")
def _():
    page = SERVER.anonymous.get("/docs").expect(200).text
    found = {SERVER.anonymous.get("/nowhere").problem(404)["code"], SERVER.anonymous.get("/v1/me").problem(401)["code"],
             SERVER.anonymous.post("/v1/feed").problem(405)["code"], post(ADA, "").problem(422)["code"],
             ADA.get("/v1/feed?limit=0").problem(400)["code"]}
    equal(found, {"not_found", "unauthenticated", "method", "invalid", "bad_input"})
    for code in found:
        check(f'id="problem-{code}"' in page, code)


@test("405 names what is allowed")
def _():
    answer = SERVER.anonymous.post("/v1/feed")
    answer.problem(405)
    equal(answer.headers["allow"], "GET, HEAD, OPTIONS")
    equal(SERVER.anonymous.request("OPTIONS", "/v1/me").expect(204).headers["allow"],
          "GET, HEAD, PATCH, DELETE, OPTIONS")


@test("HEAD is GET without its body")
def _():
    full, head = SERVER.anonymous.get("/openapi.json"), SERVER.anonymous.request("HEAD", "/openapi.json")
    equal(head.expect(200).body, b"")
    equal(head.headers["content-length"], full.headers["content-length"])
    SERVER.anonymous.request("HEAD", "/v1/feed").expect(401)


@test("204 has no body and no length")
def _():
    mine = post(ADA).expect(201).json
    answer = ADA.delete("/v1/posts/" + mine["id"]).expect(204)
    equal(answer.body, b"")
    check("content-length" not in answer.headers and "content-type" not in answer.headers)


@test("bodies must be JSON, of one type, and not too large")
def _():
    ADA.post("/v1/posts", raw=b"caption=x", headers={"Content-Type": "application/x-www-form-urlencoded"}).problem(415)
    ADA.post("/v1/posts", raw=b"{}", headers={"Content-Type": "text/plain"}).problem(415)
    ADA.post("/v1/posts", raw=b'{"caption":"plain"}', headers={"Content-Type": ""}).expect(201)
    ADA.post("/v1/posts", raw=b'{"caption":"charset"}',
             headers={"Content-Type": "application/json; charset=utf-8"}).expect(201)
    ADA.post("/v1/posts", {"caption": "x" * 70000}).problem(413)
    ADA.post("/v1/posts").problem(400)
    ADA.post("/v1/posts", raw=b"[]").problem(400)


# -- CORS ------------------------------------------------------------------------------------------------


@test("a listed origin may call, another may not, and answers vary")
def _():
    good = SERVER.anonymous.get("/v1/accounts/" + ADA.id, headers={"Origin": ORIGIN}).expect(200)
    equal(good.headers["access-control-allow-origin"], ORIGIN)
    check("access-control-allow-credentials" not in good.headers)
    bad = SERVER.anonymous.get("/v1/accounts/" + ADA.id, headers={"Origin": "https://evil.example"}).expect(200)
    check("access-control-allow-origin" not in bad.headers)
    for answer in (good, bad, SERVER.anonymous.get("/healthz")):
        equal(answer.headers["vary"], "Origin")
    problem = SERVER.anonymous.get("/v1/feed", headers={"Origin": ORIGIN}).expect(401)
    equal(problem.headers["access-control-allow-origin"], ORIGIN)


@test("a preflight is answered without a token")
def _():
    ask = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST",
           "Access-Control-Request-Headers": "authorization, content-type, idempotency-key"}
    answer = SERVER.anonymous.request("OPTIONS", "/v1/posts", headers=ask).expect(204)
    check("POST" in answer.headers["access-control-allow-methods"])
    for name in ("authorization", "content-type", "idempotency-key", "fantail-account"):
        check(name in answer.headers["access-control-allow-headers"], name)
    ask["Origin"] = "https://evil.example"
    answer = SERVER.anonymous.request("OPTIONS", "/v1/posts", headers=ask).expect(204)
    check("access-control-allow-methods" not in answer.headers)


# -- pages -------------------------------------------------------------------------------------------------


@test("pages follow the Link header and the cursor alike, and belong to their caller and list")
def _():
    writer = SERVER.sign_up("writer")
    made = [post(writer, f"post {n}").expect(201).json["id"] for n in range(7)]
    path = f"/v1/accounts/{writer.id}/posts"
    equal([p["id"] for p in writer.pages(path, limit=3)], made[::-1])
    first = writer.get(path + "?limit=3").expect(200)
    link = first.headers["link"]
    check(link.endswith('>; rel="next"'), link)
    second = writer.get(link[1:link.index(">")]).expect(200)
    equal([p["id"] for p in second.json["items"]], made[::-1][3:6])
    check("limit=3" in link)
    last = writer.get(second.headers["link"].split(">")[0][1:]).expect(200)
    equal(last.json["next_cursor"], None)
    check("link" not in last.headers)
    cursor = first.json["next_cursor"]
    check("another caller" in ADA.get(f"{path}?cursor={cursor}").problem(400)["detail"])
    SERVER.anonymous.get(f"{path}?cursor={cursor}").problem(400)
    check("another list" in writer.get(f"/v1/accounts/{ADA.id}/posts?cursor={cursor}").problem(400)["detail"])
    writer.get(f"/v1/feed?cursor={cursor}").problem(400)
    writer.get(f"{path}?cursor={cursor[:-1]}").problem(400)
    writer.get(f"{path}?cursor=%zz").problem(400)


@test("cursors outlive a restart")
def _():
    with Server(rate_auth=0) as server:
        ada = server.sign_up("ada")
        for n in range(4):
            post(ada, str(n)).expect(201)
        page = ada.get("/v1/feed?limit=2").expect(200).json
        server.restart()
        rest = ada.get("/v1/feed?limit=2&cursor=" + page["next_cursor"]).expect(200).json
        equal([p["caption"] for p in page["items"] + rest["items"]], ["3", "2", "1", "0"])


# -- rate limits -------------------------------------------------------------------------------------------


@test("limits answer 429 with when to try again, per account; answers to writes tell what is left")
def _():
    with Server(rate_write=1, rate_read=1, rate_auth=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        answers = [post(ada, str(n)) for n in range(12)]
        statuses = {a.status for a in answers}
        equal(statuses, {201, 429})
        check(sum(a.status == 201 for a in answers) <= 8)
        limited = next(a for a in answers if a.status == 429)
        limited.problem(429)
        check(int(limited.headers["retry-after"]) >= 1)
        equal(limited.headers["ratelimit-limit"], "5")
        equal(limited.headers["ratelimit-remaining"], "0")
        check(int(limited.headers["ratelimit-reset"]) >= 1)
        equal(answers[0].headers["ratelimit-remaining"], "4")
        post(bob).expect(201)
        check(any(ada.get("/v1/me").status == 429 for _ in range(12)), "reads are limited apart")
        for _ in range(20):
            server.operator.acting(ada.id).get("/v1/me").expect(200)
        check(server.metrics()["fantail_http_limited_total"] >= 2)
    with Server(rate_auth=1) as server:
        answers = []  # at once: a slow machine takes a while for each
        together(lambda _: answers.append(server.anonymous.post("/v1/sessions", {"username": "nobody", "password": "x" * 10})),
                 range(15))
        equal({a.status for a in answers}, {401, 429})


# -- idempotency ---------------------------------------------------------------------------------------------


def count_posts(client):
    return len(client.pages(f"/v1/accounts/{client.id}/posts"))


@test("the same key and body are done once and answered twice")
def _():
    writer = SERVER.sign_up("once")
    first = post(writer, "one", headers={"Idempotency-Key": '"k-1"'}).expect(201)
    check("idempotent-replayed" not in first.headers)
    again = post(writer, "one", headers={"Idempotency-Key": "k-1"}).expect(201)
    equal(again.body, first.body)
    equal(again.headers["idempotent-replayed"], "true")
    check("another body" in post(writer, "two", headers={"Idempotency-Key": "k-1"}).problem(422)["detail"])
    check("another body" in post(writer, "", headers={"Idempotency-Key": "k-1"}).problem(422)["detail"])  # before what is wrong with it
    equal(count_posts(writer), 1)
    post(ADA, "one", headers={"Idempotency-Key": "k-1"}).expect(201)  # another caller's key is another key
    writer.delete("/v1/posts/" + first.json["id"], headers={"Idempotency-Key": "k-1"}).expect(204)  # another route's, too
    equal(writer.delete("/v1/posts/" + first.json["id"], headers={"Idempotency-Key": "k-1"}).expect(204)
          .headers["idempotent-replayed"], "true")


@test("a refusal wrote nothing and is not remembered")
def _():
    writer = SERVER.sign_up("refused")
    key = {"Idempotency-Key": "gone"}
    for _ in range(2):
        refused = writer.delete("/v1/posts/123", headers=key)
        refused.problem(404)
        check("idempotent-replayed" not in refused.headers)
    post(writer, "x" * 2201, headers={"Idempotency-Key": "long"}).problem(422)
    post(writer, "short", headers={"Idempotency-Key": "long"}).expect(201)
    writer.post("/v1/posts", raw=b"{", headers={"Idempotency-Key": "bad"}).problem(400)
    post(writer, "good", headers={"Idempotency-Key": "bad"}).expect(201)


@test("keys are 1 to 255 printable characters")
def _():
    post(ADA, headers={"Idempotency-Key": "x" * 255}).expect(201)
    post(ADA, headers={"Idempotency-Key": "x" * 256}).problem(400)
    post(ADA, headers={"Idempotency-Key": ""}).problem(400)
    post(ADA, headers={"Idempotency-Key": '""'}).problem(400)


@test("many at once with one key make one post")
def _():
    writer = SERVER.sign_up("crowd")
    answers = []

    def send():
        client = SERVER.client(writer.token)
        for _ in range(10):
            answers.append(post(client, "same", headers={"Idempotency-Key": "crowd"}))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal({a.status for a in answers} - {201, 409}, set())
    for answer in answers:
        if answer.status == 409:
            answer.problem(409)
            equal(answer.headers["retry-after"], "1")
    equal(len({a.json["id"] for a in answers if a.status == 201}), 1)
    equal(count_posts(writer), 1)


@test("a key outlives kill -9")
def _():
    with Server(rate_auth=0) as server:
        ada = server.sign_up("ada")
        first = post(ada, "one", headers={"Idempotency-Key": "k"}).expect(201)
        server.restart(hard=True)
        equal(post(ada, "one", headers={"Idempotency-Key": "k"}).expect(201).body, first.body)
        equal(count_posts(ada), 1)


# -- who calls ---------------------------------------------------------------------------------------------


@test("a session ends at once: log-out, another session, a changed password, suspension, deletion")
def _():
    zoe = SERVER.sign_up("zoe")
    other = SERVER.log_in("zoe")
    zoe.get("/v1/me").expect(200)
    zoe.delete("/v1/sessions/current").expect(204)
    zoe.get("/v1/me").problem(401)
    third = SERVER.log_in("zoe")
    third.get("/v1/me").expect(200)
    session = next(s for s in other.get("/v1/sessions").expect(200).json["items"] if not s["current"])
    other.delete("/v1/sessions/" + session["id"]).expect(204)
    third.get("/v1/me").problem(401)
    fourth = SERVER.log_in("zoe")
    other.put("/v1/me/password", {"current_password": PASSWORD, "new_password": "another one"}).expect(204)
    fourth.get("/v1/me").problem(401)
    other.get("/v1/me").expect(200)
    SERVER.operator.put(f"/v1/admin/accounts/{zoe.id}/suspension").expect(204)
    other.get("/v1/me").problem(401)
    SERVER.operator.delete(f"/v1/admin/accounts/{zoe.id}/suspension").expect(204)
    other.get("/v1/me").expect(200)
    other.delete("/v1/me").expect(204)
    other.get("/v1/me").problem(401)


@test("API keys act for the account that they name, and only with the scope; a revoked key ends at once")
def _():
    key = SERVER.key("act")
    equal(key.acting(ADA.id).get("/v1/me").expect(200).json["username"], "ada")
    equal(key.acting("@Bob").get("/v1/me").expect(200).json["username"], "bob")
    key.acting("@nobody_here").get("/v1/me").problem(404)
    key.acting("not an id").get("/v1/me").problem(422)
    SERVER.key("admin").acting(ADA.id).get("/v1/me").problem(403)
    ADA.acting(BOB.id).get("/v1/me").problem(403)
    check("Fantail-Account" in key.get("/v1/me").problem(401)["detail"])
    SERVER.operator.delete("/v1/admin/keys/" + key.id).expect(204)
    key.acting(ADA.id).get("/v1/me").problem(401)
    SERVER.operator.delete("/v1/admin/keys/" + key.id).problem(404)
    listed = SERVER.operator.get("/v1/admin/keys").expect(200).json["items"]
    check(all("key" not in k for k in listed) and any(k["id"] == key.id and k["revoked_at"] for k in listed))


@test("a host product's JWTs are accepted: an account on first sight, the same one afterwards")
def _():
    secret = b"0123456789abcdef0123456789abcdef"
    with tempfile.NamedTemporaryFile() as key:
        key.write(secret + b"\n")
        key.flush()
        with Server(jwt_key="hs256:" + key.name, jwt_issuer="host", jwt_audience="fantail", rate_auth=0) as server:
            claims = {"sub": "host|1", "iss": "host", "aud": ["fantail"], "exp": time.time() + 60,
                      "preferred_username": "Ada", "name": "Ada Lovelace"}
            ada = server.client(jwt(secret, claims))
            me = ada.get("/v1/me").expect(200).json
            equal((me["username"], me["display_name"]), ("ada", "Ada Lovelace"))
            mine = post(ada, "from the host").expect(201).json
            again = server.client(jwt(secret, claims | {"exp": time.time() + 90, "name": "changed"}))
            equal(again.get("/v1/me").expect(200).json["id"], me["id"])
            equal(again.get("/v1/feed").expect(200).json["items"][0]["id"], mine["id"])
            other = server.client(jwt(secret, claims | {"sub": "host|2"}))
            check(other.get("/v1/me").expect(200).json["username"] != "ada")
            for bad in (claims | {"exp": time.time() - 31}, claims | {"aud": "elsewhere"}, claims | {"iss": "eve"},
                        {k: v for k, v in claims.items() if k != "exp"}, claims | {"sub": ""}):
                server.client(jwt(secret, bad)).get("/v1/me").problem(401)
            server.client(jwt(secret, claims, alg="none")).get("/v1/me").problem(401)
            server.client(jwt(b"x" * 32, claims)).get("/v1/me").problem(401)
            expiring = server.client(jwt(secret, claims | {"exp": time.time() - 28}))
            expiring.get("/v1/me").expect(200)  # within the leeway, remembered until it ends
            wait_until(lambda: expiring.get("/v1/me").status == 401, 10, "the token to expire")


@test("a stale token does not stop a log-in")
def _():
    SERVER.client("fts_stale").post("/v1/sessions", {"username": "ada", "password": PASSWORD}).expect(201)


@test("sign-up can be switched off")
def _():
    with Server(sign_up=False) as server:
        server.anonymous.post("/v1/accounts", {"username": "ada", "password": PASSWORD}).problem(403)


# -- operators -----------------------------------------------------------------------------------------------


@test("operators see status, explain, check, save, change lanes, import and back up")
def _():
    operator = SERVER.operator
    status = operator.get("/v1/admin/status").expect(200).json
    for part in ("engine", "views", "cards", "db", "http", "auth", "audit", "celebrity"):
        check(part in status, part)
    equal([lane["name"] for lane in status["engine"]["lanes"]], list(LANES))
    mine = post(ADA, "explain me").expect(201).json
    SERVER.drain()
    for who in (ADA.id, "ada", "@ada"):
        said = operator.get(f"/v1/admin/explain?user={who}&post={mine['id']}").expect(200).json
        equal(said["visible"], True)
    operator.get("/v1/admin/explain?user=ada").problem(400)
    operator.get(f"/v1/admin/explain?user=nobody_at_all&post={mine['id']}").problem(404)
    start, feeds = None, 0
    while True:
        said = operator.post("/v1/admin/check", {"limit": 3} | ({"from": start} if start else {})).expect(200).json
        equal(said["differences"], [])
        feeds += said["feeds"]
        start = said["next"]
        if not start:
            break
    check(feeds > 3, f"{feeds} feeds checked")
    operator.post("/v1/admin/check").expect(200)
    operator.post("/v1/admin/check", {"limit": 0}).problem(422)
    operator.post("/v1/admin/check", {"repair": "yes"}).problem(422)
    if is_cluster():
        check("the leader saves" in operator.post("/v1/admin/save").problem(422)["detail"])
    else:
        check(int(operator.post("/v1/admin/save").expect(200).json["position"]) > 0)
    lane = operator.put("/v1/admin/lanes", {"lane": "cleanup", "rate": 77}).expect(200).json
    equal((lane["name"], lane["rate"], lane["concurrency"]), ("cleanup", 77, 2))
    operator.put("/v1/admin/lanes", {"lane": "fast"}).problem(422)
    operator.put("/v1/admin/lanes", {"lane": "cleanup", "rate": -1}).problem(422)


@test("a backup of a shared store is left to its own tools", when=is_cluster())
def _():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "copy.db")
        check("PostgreSQL" in SERVER.operator.post("/v1/admin/backup", {"path": path}).problem(422)["detail"])
        check(not os.path.exists(path))


@test("a backup goes to a new file, through the control socket only", when=not is_cluster())
def _():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "copy.db")
        SERVER.key("admin").post("/v1/admin/backup", {"path": path}).problem(403)
        said = SERVER.operator.post("/v1/admin/backup", {"path": path}).expect(200).json
        equal(said["bytes"], os.path.getsize(path))
        SERVER.operator.post("/v1/admin/backup", {"path": path}).problem(409)
        SERVER.operator.post("/v1/admin/backup", {"path": "relative"}).problem(422)


@test("an import takes NDJSON, counts, and says which line was wrong")
def _():
    lines = [{"type": "account", "username": "imported1"}, {"type": "account", "username": "imported2"},
             {"type": "follow", "follower": "imported1", "followee": "imported2"},
             {"type": "post", "author": "imported2", "caption": "old news"}, {"type": "nonsense"}]
    raw = "\n".join(json.dumps(line) for line in lines).encode()
    kind = {"Content-Type": "application/x-ndjson"}
    said = SERVER.key("admin").post("/v1/admin/import?first_line=100", raw=raw, headers=kind).expect(200).json
    equal((said["accounts"], said["follows"], said["posts"], said["rejected"]), (2, 1, 1, 1))
    check("104" in json.dumps(said["errors"]), said["errors"])
    again = SERVER.key("admin").post("/v1/admin/import", raw=raw, headers=kind).expect(200).json
    equal((again["accounts"], again["follows"]), (0, 0))
    SERVER.key("admin").post("/v1/admin/import", raw=raw, headers={"Content-Type": "application/json"}).problem(415)
    SERVER.key("admin").post("/v1/admin/import", raw=b"\xff", headers=kind).problem(400)
    SERVER.key("admin").post("/v1/admin/import?first_line=x", raw=raw, headers=kind).problem(400)


# -- documents, health, logs -------------------------------------------------------------------------------------


@test("the documents and metrics are there, and health says ready")
def _():
    page = SERVER.anonymous.get("/docs").expect(200)
    check(page.headers["content-type"].startswith("text/html"))
    check("default-src 'none'" in page.headers["content-security-policy"])
    equal(SERVER.anonymous.get("/healthz").expect(200).json, {"status": "ok"})
    parts = {"dependencies": {"db": "up", "views": "up", "bus": "up", "leader": "known"}} if is_cluster() else {}
    equal(SERVER.anonymous.get("/readyz").expect(200).json, {"status": "ready", **parts})
    kind = SERVER.anonymous.get("/metrics").expect(200).headers["content-type"]
    check(kind.startswith("text/plain; version=0.0.4"), kind)
    metrics = SERVER.metrics()
    for name in ("fantail_build_info", "fantail_db_commits_total", "fantail_audit_drift", "fantail_celebrity_threshold",
                 "fantail_card_hit_rate", "fantail_pool_reads_depth"):
        check(any(key.split("{")[0] == name for key in metrics), name)
    for lane in ("mentions", "graph", "small", "active", "rest", "cleanup"):
        check(f'fantail_lane_oldest_age_seconds{{lane="{lane}"}}' in metrics, lane)
    check(metrics['fantail_http_answers_total{route="posts_create",class="2xx"}'] > 0)


@test("the admin status has every number that OpenAPI names, and no other")
def _():
    named = SERVER.anonymous.get("/openapi.json").expect(200).json["components"]["schemas"]["StatusNumbers"]["properties"]
    status = SERVER.operator.get("/v1/admin/status").expect(200).json
    for part in ("process", "views", "cards", "pages", "invalidation", "db", "http", "streams", "live", "auth", "audit", "celebrity"):
        equal(sorted(status[part]), sorted(named[part]["properties"]), part)
    for part in ("engine", "overload_guard", "groups"):
        check(set(named[part]["properties"]) <= set(status[part]), part)


@test("a request's trace is in the log; tokens, passwords and queries are not")
def _():
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    ADA.get("/v1/me?secret=searched", headers={"traceparent": trace}).expect(200)
    wait_until(lambda: trace in SERVER.log(), 5, "the trace in the log")
    line = json.loads(next(l for l in SERVER.log().splitlines() if trace in l))
    equal((line["method"], line["path"], line["status"], line["account"]), ("GET", "/v1/me", 200, ADA.id))
    log = SERVER.log()
    for secret in (ADA.token, ADA.token[4:20], PASSWORD, "searched"):
        check(secret not in log, secret)
    SERVER.anonymous.get("/healthz", headers={"traceparent": "evil\"text"}).expect(200)
    check("evil" not in SERVER.log())


@test("the server is still well")
def _():
    check(SERVER.alive())
    check("AddressSanitizer" not in SERVER.log() and "runtime error" not in SERVER.log())


main()
