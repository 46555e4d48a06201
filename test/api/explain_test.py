#!/usr/bin/env python3
"""`explain` on a running server: whether a post that should be in a feed will still come."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.server import Server, check, equal, main, test, wait_until  # noqa: E402
from support.store import store  # noqa: E402


def explain(server, reader, post):
    return server.operator.get(f"/v1/admin/explain?user={reader.id}&post={post}").expect(200).json


@test("explain-settled-post-that-no-event-brings-says-repair")
def _():
    with Server() as server:
        ada, bob, eve = (server.sign_up(name) for name in ("ada", "bob", "eve"))
        ada.put(f"/v1/accounts/{eve.id}/follow").expect(200)
        seen = eve.post("/v1/posts", {"caption": "seen"}).expect(201).json["id"]
        post = bob.post("/v1/posts", {"caption": "earlier"}).expect(201).json["id"]
        wait_until(lambda: shapes.ids(ada.get("/v1/feed").json["items"]) == [seen], 10, "the timeline")
        server.stop()
        with store(server, write=True) as database:
            database.execute("INSERT INTO follows (follower_id, followee_id, created_at) VALUES (?, ?, ?)",
                             (int(ada.id), int(bob.id), int(time.time() * 1000)))
        server.start()
        told = wait_until(lambda: (lambda t: t if "under way" not in t["verdict"] else None)(explain(server, ada, post)), 5,
                          "a verdict that does not promise a delivery")
        equal((told["visible"], told["expected"]), (False, True))
        check("has ended: run 'fantail check --repair'" in told["verdict"], told["verdict"])
        check(any("is settled" in fact for fact in told["facts"]), str(told["facts"]))
        server.command("check", "--all", "--repair")
        check(explain(server, ada, post)["visible"])


@test("explain-post-of-a-stopped-lane-says-under-way")
def _():
    with Server() as server:
        ada, bob = (server.sign_up(name) for name in ("ada", "bob"))
        ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
        first = bob.post("/v1/posts", {"caption": "first"}).expect(201).json["id"]
        wait_until(lambda: shapes.ids(ada.get("/v1/feed").json["items"]) == [first], 10, "the first post")
        server.operator.put("/v1/admin/lanes", {"lane": "small", "stopped": True}).expect(200)
        post = bob.post("/v1/posts", {"caption": "second"}).expect(201).json["id"]
        check("under way" in explain(server, ada, post)["verdict"], str(explain(server, ada, post)))
        server.operator.put("/v1/admin/lanes", {"lane": "small", "stopped": False}).expect(200)
        wait_until(lambda: explain(server, ada, post)["visible"], 10, "the post")


main()
