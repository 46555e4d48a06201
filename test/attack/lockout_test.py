#!/usr/bin/env python3
"""Some addresses do their worst: others still get in, and so does the operator."""
import http.client
import itertools
import json
import os
import selectors
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.server import PASSWORD, Answer, Server, check, equal, main, test, wait_until  # noqa: E402


def request(method, path, body=None, headers=""):
    payload = json.dumps(body).encode() if body is not None else b""
    kind = "Content-Type: application/json\r\n" if body is not None else ""
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{kind}{headers}Content-Length: {len(payload)}\r\n\r\n".encode() + payload


def send(server, address, data):
    """Sends a request from that address, on a connection of its own, and does not wait for the answer."""
    connection = socket.create_connection((server.host, server.port), timeout=60, source_address=(address, 0))
    connection.sendall(data)
    return connection


def answer_of(connection):
    """The one answer on this connection, which is then closed."""
    with connection:
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return Answer(answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read())


def ask(server, address, *words):
    return answer_of(send(server, address, request(*words)))


class Flood:
    """Connections that send their request again as soon as it is answered, until the flood ends."""

    def __init__(self, server, addresses, connections, make_request):
        self.statuses = {}
        self._stop = threading.Event()
        self._selector = selectors.DefaultSelector()
        for number in range(connections):
            for address in addresses:
                made = socket.create_connection((server.host, server.port), timeout=60, source_address=(address, 0))
                self._selector.register(made, selectors.EVENT_READ, (lambda a=address, n=number: make_request(a, n)))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        for key in self._selector.get_map().values():
            key.fileobj.sendall(key.data())
        while not self._stop.is_set():
            for key, _ in self._selector.select(timeout=0.1):
                try:
                    told = key.fileobj.recv(65536)
                    if told.startswith(b"HTTP/1.1 "):
                        status = int(told[9:12])
                        self.statuses[status] = self.statuses.get(status, 0) + 1
                        key.fileobj.sendall(key.data())
                except OSError:
                    told = b""
                if not told:
                    self._selector.unregister(key.fileobj)

    def __enter__(self):
        self._thread.start()
        wait_until(lambda: sum(self.statuses.values()) > 100, 20, "the flood to rise")
        return self

    def __exit__(self, kind, error, trace):
        self._stop.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        self._selector.close()


@test("lockout-four-addresses-with-80-connections-each-shut-out-neither-a-fifth-nor-the-operator")
def _():
    numbers = itertools.count()
    with Server(rate_auth=0) as server:
        def sign_up(address, number):
            return request("POST", "/v1/accounts", {"username": f"crowd.{next(numbers)}", "password": PASSWORD})

        with Flood(server, [f"127.0.0.{n}" for n in (2, 3, 4, 5)], 80, sign_up) as flood:
            for n in range(5):
                made = ask(server, "127.0.0.6", "POST", "/v1/accounts", {"username": f"fifth.{n}", "password": PASSWORD})
                equal(made.status, 201, made.text)
            status = server.command("status")
            equal(status.returncode, 0, status.stderr)
        check(set(flood.statuses) <= {201, 503}, flood.statuses)


def log_in(server, address, username, password=PASSWORD):
    return ask(server, address, "POST", "/v1/sessions", {"username": username, "password": password})


def guess_until_closed(server, address, username, wait_s):
    """Wrong passwords until the next try must wait so long."""
    def closed():
        refused = log_in(server, address, username, "wrong password")
        if refused.status == 401:
            return False
        refused.problem(429)
        return int(refused.headers["retry-after"]) >= wait_s

    wait_until(closed, 30, f"{username} to be closed to {address}")


@test("lockout-guessing-one-account-from-one-address-must-wait-and-nobody-else-does")
def _():
    with Server(rate_auth=0, login_tries=4) as server:
        server.sign_up("ada")
        server.sign_up("bob")
        for _ in range(4):
            log_in(server, "127.0.0.2", "ada", "wrong password").problem(401)
        guess_until_closed(server, "127.0.0.2", "Ada", 4)
        log_in(server, "127.0.0.2", "ada").problem(429)
        log_in(server, "127.0.0.2", "bob").expect(201)
        log_in(server, "127.0.0.3", "ada").expect(201)
        guess_until_closed(server, "127.0.0.2", "no.such.one", 2)
        wait_until(lambda: log_in(server, "127.0.0.2", "ada").status == 201, 20, "the wait to end")
        for _ in range(4):
            log_in(server, "127.0.0.2", "ada").expect(201)


@test("lockout-guesses-sent-at-once-count-before-they-are-checked")
def _():
    with Server(rate_auth=0, login_tries=4) as server:
        server.sign_up("ada")
        guesses = [send(server, "127.0.0.2", request("POST", "/v1/sessions", {"username": "ada", "password": f"wrong {n}"}))
                   for n in range(20)]
        statuses = [answer_of(c).status for c in guesses]
        check(statuses.count(401) <= 8, statuses)  # four, and one more after each wait
        equal(set(statuses), {401, 429})


@test("lockout-an-account-guessed-from-everywhere-stays-open-where-its-owner-was-before")
def _():
    with Server(rate_auth=0, login_tries=2) as server:
        server.sign_up("ada")
        log_in(server, "127.0.0.2", "ada").expect(201)
        statuses = [log_in(server, f"127.0.1.{n}", "ada", "wrong password").status for n in range(1, 25)]
        check(429 in statuses, statuses)
        log_in(server, "127.0.0.2", "ada").expect(201)


@test("lockout-the-present-password-cannot-be-guessed-with-a-stolen-token-either")
def _():
    with Server(rate_auth=0, login_tries=3) as server:
        ada = server.sign_up("ada")
        change = {"current_password": "wrong password", "new_password": "an even better one"}
        answers = [ada.put("/v1/me/password", change) for _ in range(10)]
        equal({a.status for a in answers}, {403, 429})
        check(all(int(a.headers["retry-after"]) >= 1 for a in answers if a.status == 429))


@test("lockout-one-address-gets-its-share-of-the-connections-and-no-more")
def _():
    with Server(connections_address=5) as server:
        mine = [socket.create_connection((server.host, server.port), timeout=20, source_address=("127.0.0.2", 0))
                for _ in range(5)]
        for connection in mine:
            connection.sendall(request("GET", "/healthz"))
            check(connection.recv(1000).startswith(b"HTTP/1.1 200 "))
        refused = answer_of(socket.create_connection((server.host, server.port), timeout=20, source_address=("127.0.0.2", 0)))
        refused.problem(429)
        check(int(refused.headers["retry-after"]) >= 1)
        ask(server, "127.0.0.3", "GET", "/healthz").expect(200)
        for connection in mine:
            connection.close()
        wait_until(lambda: ask(server, "127.0.0.2", "GET", "/healthz").status == 200, 10, "room for the address")


@test("lockout-limits-follow-the-client-behind-a-trusted-proxy-and-nobody-elses-word")
def _():
    wrong = {"username": "ada", "password": "wrong password"}
    with Server(rate_auth=0, login_tries=4, trusted_proxy="127.0.0.9, 127.0.1.0/24", log_level="debug") as server:
        server.sign_up("ada")

        def guess(address, headers):
            return ask(server, address, "POST", "/v1/sessions", wrong, headers).status

        eve = "X-Forwarded-For: 198.51.100.7, 203.0.113.9, 127.0.1.3\r\n"
        by_another_header = "Forwarded: for=1.2.3.4, for=203.0.113.9\r\n"
        statuses = [guess("127.0.0.9", n % 2 and eve or by_another_header) for n in range(10)]
        check(429 in statuses, "the same client by either header")
        equal(guess("127.0.0.9", "X-Forwarded-For: 203.0.113.10\r\n"), 401, "another client")
        statuses = [guess("127.0.0.2", f"X-Forwarded-For: 203.0.113.{n}\r\n") for n in range(20, 30)]
        check(429 in statuses, "an address that is not trusted became another")
        addresses = {json.loads(line).get("address") for line in server.log().splitlines() if '"/v1/sessions"' in line}
        check({"203.0.113.9", "203.0.113.10", "127.0.0.2"} <= addresses, addresses)
        check("198.51.100.7" not in addresses, addresses)
    with Server(start=False, trusted_proxy="10.0.0.0/40") as server:
        try:
            server.start()
            raise RuntimeError("it started")
        except AssertionError as error:
            check("trusted-proxy: '10.0.0.0/40'" in str(error), error)


@test("lockout-look-ups-of-unknown-tokens-are-limited-by-address")
def _():
    with Server(rate_auth=0, rate_token=2) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")

        def show(address, token):
            return ask(server, address, "GET", "/v1/me", None, f"Authorization: Bearer {token}\r\n")

        show("127.0.0.2", ada.token).expect(200)  # known from now on
        answers = [show("127.0.0.2", f"fts_{n:043d}") for n in range(100)]
        equal({a.status for a in answers}, {401, 429})
        check(all(int(a.headers["retry-after"]) >= 1 for a in answers if a.status == 429))
        show("127.0.0.2", ada.token).expect(200)
        show("127.0.0.3", bob.token).expect(200)
        many = [server.log_in("bob").token for _ in range(50)]
        equal({show("127.0.0.4", token).status for token in many}, {200}, "good tokens count for nothing")


if __name__ == "__main__":
    main()
