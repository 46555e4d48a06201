#!/usr/bin/env python3
"""The background audit: it finds a feed that differs from truth, says so, and stops saying so after a repair."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import Server, main, test, wait_until  # noqa: E402
from support.store import store  # noqa: E402


def drift(server):
    return server.metrics()["fantail_audit_drift"]


@test("audit-drift-falls-after-a-repair")
def _():
    with Server(rate_auth=0, audit_every="100ms") as server:
        bob, eve, ada = (server.sign_up(name) for name in ("bob", "eve", "ada"))
        ada.put(f"/v1/accounts/{eve.id}/follow").expect(200)
        seen = eve.post("/v1/posts", {"caption": "seen"}).expect(201).json["id"]
        bob.post("/v1/posts", {"caption": "missing"}).expect(201)
        wait_until(lambda: shapes.ids(ada.get("/v1/feed").json["items"]) == [seen], 10, "the timeline")
        server.stop()
        with store(server, write=True) as database:
            database.execute("INSERT INTO follows (follower_id, followee_id, created_at) VALUES (?, ?, ?)",
                             (int(ada.id), int(bob.id), int(time.time() * 1000)))
        server.start()
        wait_until(lambda: drift(server) == 1, 30, "the audit to find the feed")
        server.command("check", "--all", "--repair")
        wait_until(lambda: drift(server) == 0, 30, "the gauge to fall")


main()
