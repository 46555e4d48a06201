#!/usr/bin/env python3
"""Hostile bodies: malformed, truncated, deeply nested, duplicated, wrongly encoded, oversized. Each gets a clear answer,
nothing is written, and the server goes on."""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.server import Server, check, equal, main, test  # noqa: E402

SERVER = Server(rate_auth=0, rate_write=0)
ADA = SERVER.sign_up("ada")
JSON = {"Content-Type": "application/json"}


def posts():
    return [p["caption"] for p in ADA.pages(f"/v1/accounts/{ADA.id}/posts")]


def refused(raw, *statuses):
    answer = ADA.post("/v1/posts", raw=raw, headers=JSON)
    check(answer.status in (statuses or (400,)), f"{raw[:80]!r}: {answer}")
    answer.problem(answer.status)


@test("malformed JSON is 400")
def _():
    for raw in (b"{", b"}", b"nope", b'{"caption":}', b'{"caption":"x"', b'{"caption":"x"}}', b"{'caption':'x'}",
                b'{"caption":"x",}', b'{caption:"x"}', b'{"caption":"x"} {"caption":"y"}', b'["caption"]', b'"x"', b"1",
                b"null", b"\x00", b'{"caption":"\x00"}', b'{"caption":"\\u0000"}', b'{"caption":"\n"}',
                b"\xef\xbb\xbf{}", b'{"caption":NaN}', b"/*x*/{}"):
        refused(raw)
    equal(posts(), [])


@test("every truncation of a good body is refused")
def _():
    good = '{"caption":"h\u00e9llo \U0001f600","extra":[1,{"a":null}]}'.encode()
    for cut in range(len(good)):
        refused(good[:cut])
    equal(posts(), [])


@test("duplicate keys are 400, at any depth and however they are written")
def _():
    refused(b'{"caption":"a","caption":"b"}')
    refused(b'{"caption":"a","\\u0063aption":"b"}')
    refused(b'{"caption":"a","x":{"y":1,"y":2}}')
    equal(posts(), [])


@test("nesting beyond 32 levels is 400, quickly")
def _():
    for depth in (32, 33, 1000, 30000):
        refused(b'{"caption":' + b"[" * depth + b"]" * depth + b"}")
        refused(b'{"a":' * (depth + 1) + b"1" + b"}" * (depth + 1), 400, 413)
    refused(b"[" * 60000)
    refused(b'{"a":' * 12000)
    problem = ADA.post("/v1/posts", raw=b'{"caption":"x","deep":' + b"[" * 31 + b"]" * 31 + b"}", headers=JSON).problem(422)
    check("deep is not a field" in problem["detail"], problem)  # it was read
    ADA.post("/v1/posts", {"caption": "deep enough"}).expect(201)
    equal(posts(), ["deep enough"])


@test("unknown fields are 422 by name, also names that do not fit into the answer")
def _():
    for name in ("captoin", "Caption", "", "caption ", "a\nb", "\u00e4" * 300, "x" + "\U0001f600" * 500):
        problem = ADA.post("/v1/posts", {"caption": "x", name: 1}).problem(422)
        check(problem["detail"].startswith(name[:19]) and "NewPost" in problem["detail"], problem)
    ADA.patch("/v1/me", {"displayname": "Ada"}).problem(422)
    ADA.post("/v1/groups", {"name": "x", "member": []}).problem(422)
    SERVER.anonymous.post("/v1/sessions", {"username": "ada", "password": "x", "remember": True}).problem(422)
    SERVER.operator.post("/v1/admin/check", {"repiar": True}).problem(422)
    equal(posts(), ["deep enough"])


@test("invalid UTF-8 is 400")
def _():
    for bad in (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80"):
        refused(b'{"caption":"' + bad + b'"}')
        refused(b'{"' + bad + b'":1,"caption":"x"}')
    refused(b'{"caption":"\\ud800"}')
    equal(posts(), ["deep enough"])


@test("fields of the wrong type or size are 422")
def _():
    for raw in (b'{"caption":1}', b'{"caption":[]}', b'{"caption":{}}', b'{"caption":true}', b'{"caption":null}', b"{}"):
        refused(raw, 422)
    refused(b'{"caption":"' + b"x" * 2201 + b'"}', 422)
    equal(posts(), ["deep enough"])


@test("oversized bodies are 413")
def _():
    refused(b'{"caption":"' + b"x" * 65536 + b'"}', 413)
    refused(b" " * 70000, 413)
    huge = b'{"caption":"' + b"x" * (2 * 1024 * 1024) + b'"}'
    try:
        check(ADA.post("/v1/posts", raw=huge, headers=JSON).status == 413)
    except OSError:
        pass  # closed while we were still sending: as good
    equal(posts(), ["deep enough"])


@test("random damage never does harm")
def _():
    chance = random.Random(2)
    good = b'{"caption":"some \\"text\\" \\u00e4 and more","media":[],"n":[1,2.5,-3e4,true,false,null,{"a":{"b":[]}}]}'
    for _ in range(600):
        raw = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            kind = chance.random()
            at = chance.randrange(len(raw))
            if kind < 0.5:
                raw[at] = chance.randrange(256)
            elif kind < 0.75:
                del raw[at:at + chance.randint(1, 10)]
            else:
                raw[at:at] = bytes(chance.choices(b'{}[]",:\\0eE-.u', k=chance.randint(1, 5)))
            if not raw:
                break
        answer = ADA.post("/v1/posts", raw=bytes(raw), headers=JSON)
        check(answer.status in (201, 400, 422), f"{bytes(raw)!r}: {answer}")
    check(SERVER.alive())


@test("the log tells of no fault")
def _():
    check("AddressSanitizer" not in SERVER.log() and "runtime error" not in SERVER.log(), SERVER.log_tail())
    check('"level":"error"' not in SERVER.log(), SERVER.log_tail())


main()
