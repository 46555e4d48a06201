"""A TCP proxy on loopback between a node and one of its servers, which loses what a test says.

    with Proxy("127.0.0.1", 5432) as proxy:
        proxy.lose(COMMIT, 0.3, seed=1)   # three of ten COMMITs meet one of the LOSSES
        proxy.stall(); proxy.resume()     # a network that is cut, and healed: bytes wait, silently
        proxy.deafen(); proxy.cut()       # what the server says is lost from now on, then all connections are

One thread moves the bytes. What a connection may hold back is limited: a sender of more waits, as with any socket.
"""

import contextlib
import random
import selectors
import socket
import threading
import time
import urllib.parse

# A COMMIT as the store's driver sends it: the text of a Parse message without a name.
COMMIT = b"\0COMMIT\0"
# A change of the views, as their driver sends it.
SCRIPT = b"\r\nEVALSHA\r\n"
# The answer is lost; the request is lost; the client is cut and its request arrives late; it never arrives, and the
# server does not learn that its client is gone.
ANSWER, REQUEST, LATE, FORGOTTEN = LOSSES = ("answer", "request", "late", "forgotten")
HELD_MAX = 1 << 20
CHUNK = 1 << 16
ANSWER_S, LATE_S, FORGOTTEN_S = 0.05, 0.2, 5.0


class _Side:
    """One of the two sockets of a connection, and what is still to be written to it."""

    def __init__(self, sock):
        self.sock, self.out, self.other, self.link = sock, bytearray(), None, None
        self.open = True


class _Link:
    def __init__(self, client, server):
        self.client, self.server = client, server
        client.other, server.other = server, client
        client.link = server.link = self
        self.tail = b""       # the end of what the client said last: what is looked for may come in two pieces
        self.is_marked = False
        self.deaf = False     # what the server says is thrown away
        self.ends_at = None
        self.late = None      # what the server gets at the end

    def sides(self):
        return self.client, self.server


class Proxy:
    def __init__(self, host, port, listen="127.0.0.1"):
        self._target = (host, port)
        self._listener = socket.create_server((listen, 0), backlog=256)
        self._listener.setblocking(False)
        self.host, self.port = self._listener.getsockname()[:2]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, "wake")
        self._links = set()
        self._orders = []
        self._lock = threading.Lock()
        self._stalled = self._answers_stalled = self._closed = False
        self._pattern, self._chance, self._rand = None, 0.0, random.Random(0)
        self._trap = None
        self.lost = {loss: 0 for loss in LOSSES}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # -- orders: carried out by the thread, in order; returns when that is done --

    def _order(self, function):
        done = threading.Event()
        with self._lock:
            self._orders.append((function, done))
        self._wake_write.send(b"!")
        if not done.wait(10):
            raise AssertionError("the proxy does not answer")

    def lose(self, pattern, chance, seed=0):
        """Of what clients send and what holds the pattern, so many meet a loss. chance 0: none any more."""
        def set_it():
            self._pattern, self._chance, self._rand = pattern, chance, random.Random(seed)
        self._order(set_it)

    def deafen(self):
        """What the server says to those who are connected now is lost; what they say arrives."""
        def deafen_all():
            for link in self._links:
                link.deaf = True
        self._order(deafen_all)

    def cut(self):
        """Ends all connections."""
        self._order(lambda: [self._end(link) for link in list(self._links)])

    def stall(self):
        """Nothing passes in either direction, and no side notices."""
        self._order(lambda: self._set_stalled(True, True))

    def stall_answers(self, after=None):
        """Clients' bytes arrive; the server's do not, and no side notices. `after`: from the moment on in
        which a client has said the first of these and then the second, which arrives."""
        def begin():
            self._trap = after
            if not after:
                self._set_stalled(False, True)
        self._order(begin)

    def has_stalled(self):
        return self._answers_stalled

    def resume(self):
        self._order(lambda: self._set_stalled(False, False))

    def close(self):
        if not self._closed:
            self._order(lambda: setattr(self, "_closed", True))
            self._thread.join(10)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    # -- the thread --

    def _run(self):
        while not self._closed:
            for key, events in self._selector.select(0.02):
                if key.data is None:
                    self._accept()
                elif key.data == "wake":
                    self._obey()
                elif key.data.open:
                    self._move(key.data, events)
            now = time.monotonic()
            for link in [l for l in self._links if l.ends_at is not None and l.ends_at <= now]:
                self._end(link)
        for link in list(self._links):
            self._end(link)
        for one in (self._listener, self._wake_read, self._wake_write, self._selector):
            one.close()

    def _obey(self):
        with contextlib.suppress(BlockingIOError):
            self._wake_read.recv(4096)
        with self._lock:
            orders, self._orders = self._orders, []
        for function, done in orders:
            function()
            done.set()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target, timeout=5)
                except OSError:
                    sock.close()
                    continue
                for one in (sock, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    one.setblocking(False)
                link = _Link(_Side(sock), _Side(server))
                self._links.add(link)
                for side in link.sides():
                    self._watch(side)

    def _set_stalled(self, stalled, answers):
        if stalled and not self._stalled:
            self._selector.unregister(self._listener)
        elif self._stalled and not stalled:
            self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._stalled, self._answers_stalled = stalled, answers
        for link in self._links:
            for side in link.sides():
                self._watch(side)

    def _watch(self, side):
        """Waits for what this socket can do for us now."""
        wanted = 0
        if side.open and not self._stalled:
            wanted |= selectors.EVENT_WRITE if side.out else 0
            mute = self._answers_stalled and side is side.link.server
            wanted |= selectors.EVENT_READ if len(side.other.out) < HELD_MAX and not mute else 0
        known = side.sock.fileno() >= 0 and side.sock in self._selector.get_map()
        if wanted and known:
            self._selector.modify(side.sock, wanted, side)
        elif wanted:
            self._selector.register(side.sock, wanted, side)
        elif known:
            self._selector.unregister(side.sock)

    def _move(self, side, events):
        link = side.link
        try:
            if events & selectors.EVENT_WRITE and side.out:
                del side.out[:side.sock.send(side.out)]
            if events & selectors.EVENT_READ:
                got = side.sock.recv(CHUNK)
                if not got:
                    return self._ended(side)
                self._pass_on(side, got)
        except BlockingIOError:
            pass
        except OSError:
            return self._ended(side)
        if link in self._links:
            for one in link.sides():
                self._watch(one)

    def _ended(self, side):
        """One side is gone, so the other one goes, too, unless the network is said to hide it for a while."""
        if side.link.ends_at is None:
            self._end(side.link)
        else:
            self._shut(side)

    def _pass_on(self, side, got):
        link = side.link
        if side is link.server:
            if not link.deaf:
                link.client.out += got
                self._flush(link.client)
            return
        if link.late is not None:
            link.late += got
            return
        if self._pattern and link.ends_at is None and self._is_met(link, got):
            return
        link.server.out += got
        self._flush(link.server)
        if self._trap:
            link.is_marked = link.is_marked or self._trap[0] in got
            if link.is_marked and self._trap[1] in got:
                self._trap = None
                self._set_stalled(False, True)

    @staticmethod
    def _flush(side):
        if side.open and side.out:
            with contextlib.suppress(OSError):
                del side.out[:side.sock.send(side.out)]

    def _is_met(self, link, got):
        """Does this message meet a loss? Then it is dealt with."""
        seen = link.tail + got
        link.tail = seen[-len(self._pattern) + 1:]
        if self._pattern not in seen or self._rand.random() >= self._chance:
            return False
        loss = self._rand.choice(LOSSES)
        self.lost[loss] += 1
        link.deaf = True
        now = time.monotonic()
        if loss == ANSWER:
            link.server.out += got
            self._flush(link.server)
            link.ends_at = now + self._rand.random() * ANSWER_S
        elif loss == REQUEST:
            link.ends_at = now
        else:
            link.late = bytearray(got)
            link.ends_at = now + (LATE_S * self._rand.random() if loss == LATE else FORGOTTEN_S)
            if loss == FORGOTTEN:
                link.late = bytearray()
            self._shut(link.client)
        return True

    def _shut(self, side):
        if side.open:
            side.open = False
            self._watch(side)
            side.sock.close()

    def _end(self, link):
        self._links.discard(link)
        if link.late:
            link.server.out += link.late
        self._flush(link.server)
        for side in link.sides():
            self._shut(side)


def through(url, listen="127.0.0.1"):
    """A proxy for the server of a URL, and the URL that leads through it."""
    parts = urllib.parse.urlsplit(url)
    proxy = Proxy(parts.hostname, parts.port, listen)
    user = parts.netloc.rpartition("@")[0]
    place = f"{user}@{proxy.host}:{proxy.port}" if user else f"{proxy.host}:{proxy.port}"
    return proxy, urllib.parse.urlunsplit(parts._replace(netloc=place))
