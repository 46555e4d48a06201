#!/usr/bin/env python3
"""GET /v1/admin/audit: what operators did, with who, what and why."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import Server, check, equal, main, test  # noqa: E402

SERVER = Server(rate_auth=0)


def acts():
    return SERVER.operator.pages("/v1/admin/audit", limit=3)


@test("acts-of-operators-are-recorded-with-who-what-and-why")
def _():
    eve = SERVER.sign_up("eve")
    key = SERVER.key("admin")
    number = SERVER.operator.get("/v1/admin/keys").json["items"][0]["id"]
    before = len(acts())
    why = {"Fantail-Why": "reported for spam"}
    key.put(f"/v1/admin/accounts/{eve.id}/suspension", headers=why).expect(204)
    key.delete(f"/v1/admin/accounts/{eve.id}/suspension").expect(204)
    SERVER.operator.put("/v1/admin/lanes", {"lane": "cleanup", "stopped": True}, headers={"Fantail-Why": "too slow"}).expect(200)
    SERVER.operator.put("/v1/admin/lanes", {"lane": "cleanup", "stopped": False}).expect(200)
    SERVER.operator.post("/v1/admin/deliveries/redrive", {"all": True}).expect(200)
    SERVER.operator.post("/v1/admin/deliveries/discard", {"all": True, "why": "known bad"}).expect(200)
    replay = SERVER.operator.post("/v1/admin/replays", {"consumer": "timelines", "rate": 1}).expect(201).json["id"]
    SERVER.operator.put(f"/v1/admin/replays/{replay}", {"state": "cancelled"}).expect(200, 409)
    made = SERVER.operator.post("/v1/admin/keys", {"name": "robot", "scopes": "act"}).expect(201).json
    SERVER.operator.delete(f"/v1/admin/keys/{made['id']}").expect(204)
    told = acts()[:len(acts()) - before][::-1]
    suspended = f"/v1/admin/accounts/{eve.id}/suspension"
    equal([(a["who"], a["act"], a["target"], a["why"]) for a in told[:6]], [
        ("key " + number, "admin_suspend", "PUT " + suspended, "reported for spam"),
        ("key " + number, "admin_restore", "DELETE " + suspended, ""),
        ("control socket", "admin_lane", "PUT /v1/admin/lanes", "too slow"),
        ("control socket", "admin_lane", "PUT /v1/admin/lanes", ""),
        ("control socket", "deliveries_redrive", "POST /v1/admin/deliveries/redrive", ""),
        ("control socket", "deliveries_discard", "POST /v1/admin/deliveries/discard", "known bad"),
    ])
    check({"replays_create", "admin_keys_create", "admin_keys_revoke"} <= {a["act"] for a in told[6:]}, str(told))
    equal(json.loads(told[2]["request"]), {"lane": "cleanup", "stopped": True})
    check(all(shapes.is_time(a["at"]) for a in told))
    check(made["key"] not in json.dumps(acts()), "a secret is in the record")


@test("acts-that-were-refused-or-only-looked-are-not-recorded")
def _():
    before = len(acts())
    SERVER.operator.put("/v1/admin/lanes", {"lane": "none"}).problem(422)
    SERVER.operator.put("/v1/admin/accounts/1/suspension").problem(404)
    SERVER.operator.post("/v1/admin/replays/plan", {"consumer": "timelines"}).expect(200)
    SERVER.operator.get("/v1/admin/status").expect(200)
    equal(len(acts()), before)


main()
