#!/usr/bin/env python3
"""More than can be done: the server sheds with 429 or 503 and Retry-After, stays within its memory, and goes on well."""
import http.client
import json
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.crew import Crew, together  # noqa: E402
from support.server import PASSWORD, Answer, Metrics, Server, check, equal, main, test, wait_until  # noqa: E402


def memory_bytes(server):
    with open(f"/proc/{server.process.pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def flood(threads, work):
    """Runs work(n, answers) on so many threads at once and returns all answers."""
    answers = []
    together(lambda n: work(n, answers), range(threads))
    return answers


def send_all(server, requests):
    """Every request on a connection of its own, all of them sent before any answer is read."""
    connections = []
    for request in requests:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        connection.sendall(request)
        connections.append(connection)
    return connections


def read_answer(connection):
    """Status, headers and body of the one answer on this connection, which is then closed."""
    with connection:
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return Answer(answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read())


def sign_up_request(username):
    body = json.dumps({"username": username, "password": PASSWORD})
    return (f"POST /v1/accounts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


@test("overload-more-sign-ups-than-the-queue-takes-are-shed-while-others-are-served")
def _():
    with Server(rate_auth=0, rate_write=0) as server:
        ada = server.sign_up("ada")
        before = memory_bytes(server)
        slowest, count = [0.0], [0]

        def live():
            began = time.monotonic()
            ada.get("/v1/feed").expect(200)
            ada.post("/v1/posts", {"caption": "meanwhile"}).expect(201)
            slowest[0] = max(slowest[0], time.monotonic() - began)
            count[0] += 1

        with Crew() as crew:
            crew.start(live)
            answers = [read_answer(c) for c in send_all(server, [sign_up_request(f"crowd.{n}") for n in range(900)])]
        statuses = [a.status for a in answers]
        equal(set(statuses), {201, 503})
        for answer in answers:
            if answer.status == 503:
                answer.problem(503)
                check(int(answer.headers["retry-after"]) >= 1)
        check(count[0] > 10, f"only {count[0]} reads and posts went through meanwhile")
        check(slowest[0] < 2.0, f"a read and a post took {slowest[0]:.2f} s")
        grown = memory_bytes(server) - before
        check(grown < 200 * 1024 * 1024, f"memory grew by {grown} bytes")
        check(server.metrics()["fantail_http_connections"] <= 10, "connections that ended are still counted")
        # Nothing of what was shed happened, all of what was answered did, and now there is room for the rest.
        for n, status in enumerate(statuses[::30]):
            found = server.anonymous.get(f"/v1/accounts?username=crowd.{n * 30}").expect(200).json["items"]
            equal(len(found), 1 if status == 201 else 0)
        shed = statuses.index(503)
        server.sign_up(f"crowd.{shed}").get("/v1/me").expect(200)


@test("overload-connections-beyond-the-limit-are-refused-and-the-others-served")
def _():
    with Server(rate_auth=0, connections_max=40) as server:
        ada = server.sign_up("ada")
        ada.get("/v1/me").expect(200)  # has a connection now
        idle = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(80)]

        def count_refused():
            return Metrics(ada.get("/metrics").expect(200).text)["fantail_http_refused_total"]

        wait_until(lambda: count_refused() >= 40, 10, "40 to be refused")
        refused = 0
        for connection in idle:
            connection.setblocking(False)
            try:
                told = connection.recv(1000)
            except BlockingIOError:
                continue  # open, and waiting for a request
            except OSError:
                told = b""
            check(told == b"" or told.startswith(b"HTTP/1.1 503 "), told)
            refused += 1
        check(refused >= 40, f"{refused} of 80 were refused")
        ada.get("/v1/feed").expect(200)  # on the connection that it has
        ada.post("/v1/posts", {"caption": "still served"}).expect(201)
        for connection in idle:
            connection.close()
        wait_until(lambda: server.anonymous.get("/healthz").status == 200, 10, "room for new connections")


@test("overload-by-one-account-meets-its-rate-limit-and-is-not-anothers")
def _():
    with Server(rate_write=20, rate_auth=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")

        def write(n, answers):
            client = server.client(ada.token)
            for k in range(60):
                answers.append(client.post("/v1/posts", {"caption": f"{n}.{k}"}))

        began = time.monotonic()
        answers = flood(8, write)
        took = time.monotonic() - began
        made = sum(a.status == 201 for a in answers)
        equal({a.status for a in answers}, {201, 429})
        check(made <= 100 + 20 * (took + 1), f"{made} posts in {took:.1f} s")
        for answer in answers:
            if answer.status == 429:
                check(int(answer.headers["retry-after"]) >= 1)
        bob.post("/v1/posts", {"caption": "in peace"}).expect(201)
        equal(len(ada.pages(f"/v1/accounts/{ada.id}/posts", limit=100)), made)


@test("overload-by-unknown-tokens-costs-other-callers-nothing")
def _():
    with Server(rate_auth=0) as server:
        ada = server.sign_up("ada")
        ada.get("/v1/me").expect(200)  # known here: not one who guesses
        before = memory_bytes(server)

        def guess(n, answers):
            for k in range(250):
                client = server.client(f"fts_{n:04d}{k:06d}" + "A" * 33)
                answers.append(client.get("/v1/me").status)
                client.close()

        equal(set(flood(8, guess)) - {401, 429, 503}, set())
        ada.get("/v1/me").expect(200)
        grown = memory_bytes(server) - before
        check(grown < 100 * 1024 * 1024, f"memory grew by {grown} bytes")


@test("overload-guard-refuses-whatever-makes-the-store-grow-and-deletes-go-on")
def _():
    with Server(guard_free=0, guard_backlog=20, rate_auth=0, rate_write=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        bob.put(f"/v1/accounts/{ada.id}/follow").expect(200)
        post = ada.post("/v1/posts", {"caption": "before"}).expect(201).json["id"]
        comment = bob.post(f"/v1/posts/{post}/comments", {"body": "before"}).expect(201).json["id"]
        group = ada.post("/v1/groups", {"name": "before", "members": [bob.id]}).expect(201).json["id"]
        sent = ada.post(f"/v1/groups/{group}/messages", {"body": "before"}).expect(201).json["seq"]
        server.operator.put("/v1/admin/lanes", {"lane": "small", "stopped": True}).expect(200)
        level = lambda: server.operator.get("/v1/admin/status").expect(200).json["overload_guard"]["level"]  # noqa: E731
        wait_until(lambda: ada.post("/v1/posts", {"caption": "x"}).status == 503 and level() == 2, 15, "level 2")
        message = f"/v1/groups/{group}/messages"
        growing = [("POST", "/v1/posts", {"caption": "x"}), ("PATCH", "/v1/posts/" + post, {"caption": "x"}),
                   ("PUT", f"/v1/posts/{post}/like", None), ("POST", f"/v1/posts/{post}/comments", {"body": "x"}),
                   ("PUT", f"/v1/accounts/{bob.id}/follow", None), ("PUT", f"/v1/accounts/{bob.id}/mute", None),
                   ("PUT", f"/v1/accounts/{bob.id}/block", None), ("PUT", f"/v1/accounts/{bob.id}/chat", None),
                   ("PATCH", "/v1/me", {"bio": "x"}), ("POST", "/v1/groups", {"name": "x"}),
                   ("PATCH", f"/v1/groups/{group}", {"name": "x"}), ("POST", message, {"body": "x"}),
                   ("PATCH", f"{message}/{sent}", {"body": "x"}),
                   ("PUT", f"/v1/groups/{group}/members/{bob.id}", {"role": "admin"})]
        for headers in ({}, {"Idempotency-Key": "k"}):
            for method, path, body in growing:
                check("backlog" in ada.request(method, path, body, headers=headers).problem(503)["detail"], path)
        for path in (f"/v1/comments/{comment}", f"{message}/{sent}", f"/v1/posts/{post}"):
            ada.delete(path, headers={"Idempotency-Key": "k"}).expect(204)
        server.log_in("bob").delete(f"/v1/accounts/{ada.id}/follow").expect(200)


@test("overload-by-clients-that-go-away-does-no-harm")
def _():
    with Server(rate_auth=0) as server:
        ada = server.sign_up("ada")
        request = (f"POST /v1/posts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ada.token}\r\n"
                   "Content-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"caption\":\"x\"}").encode()
        for _ in range(300):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(request * 3)
        wait_until(lambda: server.metrics()["fantail_http_connections"] <= 2, 10, "the connections to be gone")
        ada.post("/v1/posts", {"caption": "still here"}).expect(201)
        check(server.alive())


if __name__ == "__main__":
    main()
