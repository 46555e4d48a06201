"""A client of /v1/stream: reads Server-Sent Events on a thread of its own."""

import json
import socket
import threading

from support.server import wait_until


class Stream:
    """Opens the stream of a client (support.server.Client) at a node. `events`: (name, data), as they came.

        with Stream(server, ada) as stream:     # waits for "hello"
            ...
            stream.wait("group", group=g, seq=3)
    """

    def __init__(self, server, client, hello=True, reading=True, narrow=False):
        """`reading` False: nothing is read before read() is called; `narrow`: into as small a buffer as can be."""
        self.events, self.comments, self.retry = [], 0, None
        self.status, self.headers, self.ended = None, {}, False
        self._lock = threading.Lock()
        self._sock = socket.socket()
        self._sock.settimeout(30)
        if narrow:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self._sock.connect(("127.0.0.1", server.port))
        headers = "".join(f"{name}: {value}\r\n" for name, value in client.headers.items())
        headers += f"Authorization: Bearer {client.token}\r\n" if client.token else ""
        self._sock.sendall(f"GET /v1/stream HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n{headers}\r\n".encode())
        self._file = self._sock.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        for line in iter(self._file.readline, b"\r\n"):
            name, _, value = line.decode().partition(":")
            self.headers[name.lower()] = value.strip()
        self._thread = threading.Thread(target=self._read, daemon=True)
        if self.status != 200:
            self.ended = True
        elif reading:
            self.read()
            if hello:
                self.wait("hello")

    def read(self):
        self._sock.settimeout(None)
        self._thread.start()

    def _read(self):
        name, data = "", ""
        try:
            for raw in self._file:
                line = raw.decode().rstrip("\r\n")
                if line.startswith(":"):
                    self.comments += 1
                elif line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    data = line[6:]
                elif line.startswith("retry: "):
                    self.retry = int(line[7:])
                elif not line and name:
                    with self._lock:
                        self.events.append((name, json.loads(data)))
                    name = data = ""
        except OSError:
            pass
        self.ended = True

    def all(self, name, **fields):
        with self._lock:
            return [d for n, d in self.events if n == name and all(d.get(k) == v for k, v in fields.items())]

    def wait(self, name, timeout_s=15, count=1, **fields):
        """The last event of that name with these fields, when there are so many."""
        def found():
            events = self.all(name, **fields)
            return events[-1] if len(events) >= count else None
        try:
            return wait_until(found, timeout_s, f"{name} {fields}")
        except AssertionError as e:
            raise AssertionError(f"{e}; came: {self.events[-10:]}, ended: {self.ended}") from None

    def wait_end(self, timeout_s=15):
        wait_until(lambda: self.ended, timeout_s, "the end of the stream")
        return self

    def close(self):
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._sock.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()
