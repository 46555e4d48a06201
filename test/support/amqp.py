"""Just enough AMQP 0-9-1 to take away what a store left at the broker: the quorum queues of every store would fill it in
a run of all tests."""

import socket
import struct
import urllib.parse

from support.lanes import LANES

QUEUES = (*LANES, "reports")
DELAYS = ("2s", "8s", "32s", "128s", "240s")
METHOD, FRAME_END = 1, b"\xce"
# class, method
START_OK, TUNE_OK, OPEN, CLOSE = (10, 11), (10, 31), (10, 40), (10, 50)
CHANNEL_OPEN, QUEUE_DELETE, EXCHANGE_DELETE = (20, 10), (50, 40), (40, 20)


def _short(text):
    return bytes([len(text)]) + text.encode()


def _long(data):
    return struct.pack(">I", len(data)) + data


def _receive(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the broker hung up")
        data += part
    return data


def _send(connection, channel, method, arguments):
    payload = struct.pack(">HH", *method) + arguments
    connection.sendall(struct.pack(">BHI", METHOD, channel, len(payload)) + payload + FRAME_END)


def _await(connection):
    """The next frame is the answer: here nothing else is said."""
    _, _, size = struct.unpack(">BHI", _receive(connection, 7))
    return _receive(connection, size + 1)


def remove_store(url, store_id):
    """Removes the queues and exchanges of a store; those that are not there are removed already."""
    parts = urllib.parse.urlsplit(url)
    login = b"\0" + urllib.parse.unquote(parts.username).encode() + b"\0" + urllib.parse.unquote(parts.password).encode()
    with socket.create_connection((parts.hostname, parts.port or 5672), timeout=30) as connection:
        connection.sendall(b"AMQP\0\0\x09\x01")
        _await(connection)
        _send(connection, 0, START_OK, _long(b"") + _short("PLAIN") + _long(login) + _short("en_US"))
        _await(connection)
        _send(connection, 0, TUNE_OK, struct.pack(">HIH", 1, 131072, 0))
        _send(connection, 0, OPEN, _short(urllib.parse.unquote(parts.path[1:]) or "/") + _short("") + b"\0")
        _await(connection)
        _send(connection, 1, CHANNEL_OPEN, _short(""))
        _await(connection)
        prefix = f"fantail-{store_id}."
        for name in (*QUEUES, "dead", *(f"delay.{delay}" for delay in DELAYS)):
            _send(connection, 1, QUEUE_DELETE, b"\0\0" + _short(prefix + name) + b"\0")
            _await(connection)
        for delay in DELAYS:
            _send(connection, 1, EXCHANGE_DELETE, b"\0\0" + _short(f"{prefix}delay.{delay}") + b"\0")
            _await(connection)
        _send(connection, 0, CLOSE, struct.pack(">H", 200) + _short("") + struct.pack(">HH", 0, 0))
        _await(connection)
