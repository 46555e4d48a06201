#!/usr/bin/env python3
"""Every route of /openapi.json × every kind of caller: the class of the answer follows from the route's policy alone."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.server import Server, check, main, test  # noqa: E402

SERVER = Server(rate_auth=0)
OPERATIONS = [
    (method.upper(), path, operation)
    for path, item in SERVER.anonymous.get("/openapi.json").expect(200).json["paths"].items()
    for method, operation in item.items()
]
count = 0


def path_of(template):
    return re.sub(r"\{\w+\}", "1", template.replace("{name}", "crm"))


def newcomer():
    global count
    count += 1
    return SERVER.sign_up(f"person{count}")


def callers():
    """name → a function that makes such a caller, fresh: some routes end the one who calls."""
    target = newcomer()
    return {
        "anonymous": lambda: SERVER.anonymous,
        "forged token": lambda: SERVER.client("fts_" + "A" * 43),
        "account": newcomer,
        "act key": lambda: SERVER.key("act"),
        "act key for an account": lambda: SERVER.key("act").acting(newcomer().id),
        "admin:read key": lambda: SERVER.key("admin:read"),
        "admin:read key for an account": lambda: SERVER.key("admin:read").acting(target.id),
        "admin key": lambda: SERVER.key("admin"),
        "control socket": lambda: SERVER.operator,
        "control socket for an account": lambda: SERVER.operator.acting(newcomer().id),
    }


# What the policy alone decides: 401, 403, or None when the caller may pass.
ACCOUNT_ONLY = {
    "anonymous": 401, "forged token": 401, "account": None, "act key": 401, "act key for an account": None,
    "admin:read key": 403, "admin:read key for an account": 403, "admin key": 403, "control socket": 401,
    "control socket for an account": None,
}
ADMIN_READ = {
    "anonymous": 401, "forged token": 401, "account": 403, "act key": 403, "act key for an account": 403,
    "admin:read key": None, "admin:read key for an account": 403, "admin key": None, "control socket": None,
    "control socket for an account": None,
}
EXPECTED = {
    "anyone": dict.fromkeys(ACCOUNT_ONLY) | {"forged token": 401, "admin:read key for an account": 403},
    "account": ACCOUNT_ONLY,
    "admin_read": ADMIN_READ,
    "admin": ADMIN_READ | {"admin:read key": 403},
}


def expected(operation, caller):
    security = operation["security"]
    if not any(scheme for scheme in security):  # tokens are not looked at
        return None
    if operation.get("x-control-only") and EXPECTED["admin"][caller] is None and "control" not in caller:
        return 403
    return EXPECTED[operation["x-policy"]][caller]


def make_test(caller, make):
    @test(f"{caller}: {len(OPERATIONS)} routes answer as their policy says")
    def _():
        wrong = []
        for method, path, operation in OPERATIONS:
            body = {} if "requestBody" in operation else None
            if path == "/v1/stream":  # an answer to GET would not end
                method = "HEAD"
            answer = make().request(method, path_of(path), body)
            wanted = expected(operation, caller)
            refused = answer.status in (401, 403)
            if (wanted or None) != (answer.status if refused else None):
                wrong.append(f"{method} {path}: {answer.status}, wanted {wanted or 'to pass'}: {answer.text[:150]}")
            if answer.status == 401 and "bearer" not in answer.headers.get("www-authenticate", "").lower():
                wrong.append(f"{method} {path}: 401 without WWW-Authenticate")
            if answer.status >= 500:
                wrong.append(f"{method} {path}: {answer.status} {answer.text[:150]}")
        check(not wrong, "\n".join(wrong))


for caller_name, caller_make in callers().items():
    make_test(caller_name, caller_make)


@test("the document names all policies and no route is open by mistake")
def _():
    policies = {operation["x-policy"] for _, _, operation in OPERATIONS}
    check(policies == {"anyone", "account", "admin_read", "admin"}, str(policies))
    writable = {(m, p) for m, p, o in OPERATIONS if o["x-policy"] == "anyone" and m != "GET"}
    check(writable == {("POST", "/v1/accounts"), ("POST", "/v1/sessions")}, str(writable))


main()
