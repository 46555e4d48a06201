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


if __name__ == "__main__":
    main()
