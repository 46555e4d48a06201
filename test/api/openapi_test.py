#!/usr/bin/env python3
"""The OpenAPI document says what the server does: every operation is called, and each answer has a status that the document
names and a body that fits its schema."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.server import PASSWORD, Server, check, equal, main, test  # noqa: E402

SERVER = Server(rate_auth=0, rate_write=0)
DOCUMENT = SERVER.anonymous.get("/openapi.json").expect(200).json
TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict, "array": list, "null": type(None)}
OPERATIONS = [(path, method.upper(), operation) for path, item in DOCUMENT["paths"].items() for method, operation in item.items()]


def resolve(node):
    while "$ref" in node:
        target = DOCUMENT
        for step in node["$ref"].split("/")[1:]:
            target = target[step]
        node = target
    return node


def is_type(value, name):
    return isinstance(value, TYPES[name]) and (name in ("boolean",) or not isinstance(value, bool))


def faults(value, schema, where="$"):
    """What of the value does not fit the schema: of JSON Schema, the words that the document uses."""
    schema = resolve(schema)
    found = []
    if "anyOf" in schema:
        return [] if any(not faults(value, one, where) for one in schema["anyOf"]) else [f"{where} fits none of several"]
    for one in schema.get("allOf", []):
        found += faults(value, one, where)
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where} is {value!r}, none of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{where} is {value!r}")
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(is_type(value, name) for name in types):
        return found + [f"{where} is {value!r}, no {types}"]
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{where} is {value!r}, not {schema['pattern']}")
    if "minimum" in schema and isinstance(value, (int, float)) and value < schema["minimum"]:
        found.append(f"{where} is {value}, less than {schema['minimum']}")
    if isinstance(value, dict):
        members = schema.get("properties", {})
        found += [f"{where} has no {name}" for name in schema.get("required", []) if name not in value]
        for name, one in value.items():
            if name in members:
                found += faults(one, members[name], f"{where}.{name}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{where} has {name}")
    if isinstance(value, list) and "items" in schema:
        for n, one in enumerate(value):
            found += faults(one, schema["items"], f"{where}[{n}]")
    return found


class World:
    """Something of every kind, so that most operations find what they name."""

    def __init__(self):
        self.ada, self.bob = SERVER.sign_up("ada"), SERVER.sign_up("bob")
        self.post = self.ada.post("/v1/posts", {"caption": "hello @bob"}).expect(201).json["id"]
        self.comment = self.bob.post(f"/v1/posts/{self.post}/comments", {"body": "well said"}).expect(201).json["id"]
        self.bob.put(f"/v1/posts/{self.post}/like").expect(200)
        self.bob.put(f"/v1/accounts/{self.ada.id}/follow").expect(200)
        self.group = self.ada.post("/v1/groups", {"name": "birds", "members": [self.bob.id]}).expect(201).json["id"]
        self.seq = self.ada.post(f"/v1/groups/{self.group}/messages", {"body": "hello"}).expect(201).json["seq"]
        SERVER.drain()
        self.event = SERVER.operator.get("/v1/events?limit=1").expect(200).json["items"][0]["id"]
        self.ids = {"accounts": self.bob.id, "posts": self.post, "comments": self.comment, "groups": self.group,
                    "events": self.event, "sessions": "1", "keys": "1", "replays": "1", "rebuilds": "1"}
        self.bodies = {
            "NewAccount": {"username": "eve", "password": PASSWORD}, "AccountChange": {"bio": "x"},
            "PasswordChange": {"current_password": PASSWORD, "new_password": PASSWORD},
            "Credentials": {"username": "bob", "password": PASSWORD}, "NewPost": {"caption": "x"}, "PostChange": {"caption": "y"},
            "NewComment": {"body": "x"}, "NewGroup": {"name": "x"}, "GroupChange": {"name": "y"}, "MemberChange": {"role": "admin"},
            "NewMessage": {"body": "x"}, "MessageChange": {"body": "y"}, "ReadMark": {"seq": 1}, "NewKey": {"name": "x", "scopes": "act"},
            "CheckRequest": {"limit": 1}, "BackupRequest": {"path": os.path.join(SERVER.data, "copy.db")},
            "LaneChange": {"lane": "small", "stopped": False}, "RedriveRequest": {"all": True}, "ReleaseRequest": {"all": True},
            "DiscardRequest": {"all": True, "why": "x"}, "NewReplay": {"consumer": "timelines"},
            "ReplayPlanRequest": {"consumer": "timelines"}, "NewRebuild": {"what": "counters"}, "JobChange": {"state": "paused"},
            "ConsumerPosition": {"cursor": self.event}}
        self.queries = {"accounts_find": "?q=a", "admin_explain": f"?user={self.bob.id}&post={self.post}"}

    def call(self, path, method, operation):
        parts = path.split("/")
        for n, part in enumerate(parts):
            parts[n] = {"{id}": self.ids.get(parts[n - 1]), "{account}": self.bob.id, "{seq}": str(self.seq),
                        "{name}": "crm"}.get(part, part)
        admin = operation["x-policy"].startswith("admin")
        client = SERVER.operator if admin else self.ada if operation["security"] and operation["x-policy"] == "account" \
            else SERVER.anonymous
        body, more = None, {}
        for kind, shape in operation.get("requestBody", {}).get("content", {}).items():
            if kind == "application/json":
                body = self.bodies[shape["schema"]["$ref"].split("/")[-1]]
            else:
                more = {"raw": b'{"type":"account","username":"imported"}\n', "headers": {"Content-Type": kind}}
        return client.request(method, "/".join(parts) + self.queries.get(operation["operationId"], ""), body, **more)


def verify(answer, operation):
    responses = operation["responses"]
    check(str(answer.status) in responses, f"{answer} is not among {sorted(responses)}")
    content = resolve(responses[str(answer.status)]).get("content")
    if not content:
        equal(answer.body, b"", answer)
        return
    kind = answer.headers["content-type"].split(";")[0]
    check(kind in content, f"{answer} came as {kind}")
    if kind.endswith("json"):
        equal(faults(answer.json, content[kind]["schema"]), [], answer.request)


@test("openapi-every-operation-answers-as-its-document-says")
def _():
    world = World()
    done = 0
    # What takes away comes last, and the caller's account at the very end.
    order = {"GET": 0, "POST": 1, "PATCH": 2, "PUT": 3, "DELETE": 4}
    for path, method, operation in sorted(OPERATIONS, key=lambda o: (o[0] == "/v1/me" and o[1] == "DELETE",
                                                                      o[0] == "/v1/sessions/current", order[o[1]], o[0])):
        if operation["operationId"] == "stream_open":  # does not end; test/api/stream_test.py reads it
            continue
        answer = world.call(path, method, operation)
        check(answer.status < 500 or operation["operationId"] == "admin_backup", answer)
        verify(answer, operation)
        done += 1
    equal(done, len(OPERATIONS) - 1)


@test("openapi-every-operation-refuses-a-stranger-as-its-document-says")
def _():
    for path, method, operation in OPERATIONS:
        if operation["x-policy"] == "anyone":
            continue
        answer = SERVER.client("fts_unknown").request(method, re.sub(r"{\w+}", "1", path))
        equal(answer.status, 401, answer)
        verify(answer, operation)


@test("openapi-limits-of-lists-are-the-real-ones")
def _():
    eve = SERVER.sign_up("eve2")
    tried = 0
    for path, method, operation in OPERATIONS:
        limit = [p["schema"] for p in operation["parameters"] if p["name"] == "limit" and "maximum" in p["schema"]]
        if not limit or "{" in path:
            continue
        client = SERVER.operator if operation["x-policy"].startswith("admin") else eve
        joint = "?q=a&" if operation["operationId"] == "accounts_find" else "?"
        client.get(f"{path}{joint}limit={limit[0]['maximum']}").expect(200)
        client.get(f"{path}{joint}limit={limit[0]['maximum'] + 1}").problem(400)
        tried += 1
    check(tried >= 7, tried)


if __name__ == "__main__":
    main()
