#!/usr/bin/env python3
"""More than can be done: the server sheds with 429 or 503 and Retry-After, stays within its memory, and goes on well."""
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.server import Server, check, equal, main, test, wait_until  # noqa: E402


def memory_bytes(server):
    with open(f"/proc/{server.process.pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def flood(threads, work):
    """Runs work(n, answers) on so many threads at once and returns all answers."""
    answers = []
    running = [threading.Thread(target=work, args=(n, answers)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return answers


@test("a flood of log-ins is shed, and others are served meanwhile")
def _():
    with Server(rate_auth=0) as server:
        ada = server.sign_up("ada")
        before = memory_bytes(server)
        stop = threading.Event()
        slowest = [0.0]

        def read(n, answers):
            client = server.client(ada.token)
            while not stop.is_set():
                began = time.monotonic()
                answers.append(client.get("/v1/feed"))
                slowest[0] = max(slowest[0], time.monotonic() - began)

        reads = []
        reader = threading.Thread(target=read, args=(0, reads))
        reader.start()

        def log_in(n, answers):
            client = server.client()
            for _ in range(4):
                answers.append(client.post("/v1/sessions", {"username": f"nobody{n}", "password": "x" * 20}))

        answers = flood(80, log_in)
        stop.set()
        reader.join()
        equal({a.status for a in answers} - {401, 503}, set())
        for answer in answers:
            if answer.status == 503:
                answer.problem(503)
                equal(answer.headers["retry-after"], "1")
        equal({a.status for a in reads}, {200})
        check(slowest[0] < 2.0, f"a feed took {slowest[0]:.2f} s")
        grown = memory_bytes(server) - before
        check(grown < 200 * 1024 * 1024, f"memory grew by {grown} bytes")
        server.log_in("ada").get("/v1/me").expect(200)


@test("rate limits hold per account under a flood, and one's flood is not another's")
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


@test("unknown tokens in their thousands cost nobody else anything")
def _():
    with Server(rate_auth=0) as server:
        ada = server.sign_up("ada")
        before = memory_bytes(server)

        def guess(n, answers):
            for k in range(250):
                client = server.client(f"fts_{n:04d}{k:06d}" + "A" * 33)
                answers.append(client.get("/v1/me").status)
                client.close()

        equal(set(flood(8, guess)) - {401, 503}, set())
        ada.get("/v1/me").expect(200)
        grown = memory_bytes(server) - before
        check(grown < 100 * 1024 * 1024, f"memory grew by {grown} bytes")


@test("clients that go away while they are being answered do no harm")
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


main()
