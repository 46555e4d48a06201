#!/usr/bin/env python3
"""Accounts: signing up, profiles, finding people, suspension, deletion, export."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.crew import together  # noqa: E402
from support.server import PASSWORD, Server, check, equal, main, test  # noqa: E402

SERVER = Server(rate_auth=0)
ANYONE = SERVER.anonymous
_count = [0]


def somebody(**fields):
    """A new person with a name that nobody has."""
    _count[0] += 1
    return SERVER.sign_up(f"person.{_count[0]:04d}", **fields)


def sign_up(username, password=PASSWORD, **fields):
    return ANYONE.post("/v1/accounts", {"username": username, "password": password, **fields})


def write(client, caption="hello"):
    return client.post("/v1/posts", {"caption": caption}).expect(201).json["id"]


def follow(follower, followee):
    follower.put(f"/v1/accounts/{followee.id}/follow").expect(200)


# -- signing up ------------------------------------------------------------------------------------------


@test("accounts-sign-up-answers-the-account-and-a-token-that-works")
def _():
    answer = sign_up("Ada.L_1", display_name="Ada Lovelace", email="ada@example.org").expect(201)
    made = answer.json
    equal(set(made), {"account", "token"})
    mine = shapes.account(made["account"], own=True)
    equal((mine["username"], mine["display_name"], mine["email"]), ("ada.l_1", "Ada Lovelace", "ada@example.org"))
    equal((mine["follower_count"], mine["following_count"], mine["post_count"]), (0, 0, 0))
    equal(answer.headers["location"], "/v1/accounts/" + mine["id"])
    equal(SERVER.client(made["token"]).get("/v1/me").expect(200).json, mine)


@test("accounts-usernames-that-break-the-rules-are-422-and-make-nothing")
def _():
    for bad in ("", "ab", "a" * 31, "white space", "dash-ed", "über", "a/b", "né.e", "at@sign", "semi;colon", "a\nb",
                "\u0430da"):
        check("username" in sign_up(bad).problem(422)["detail"], repr(bad))
    for good in ("abc", "a" * 30, "0.0", "___", "..."):
        equal(sign_up(good).expect(201).json["account"]["username"], good)


@test("accounts-usernames-are-one-without-regard-to-case")
def _():
    sign_up("Case.Less").expect(201)
    for taken in ("case.less", "CASE.LESS", "cASE.lESS"):
        sign_up(taken).problem(409)
    equal(SERVER.log_in("CASE.less").username, "case.less")
    found = ANYONE.get("/v1/accounts?username=CaSe.LeSs").expect(200).json
    equal([a["username"] for a in shapes.listing(found)], ["case.less"])


@test("accounts-one-name-wanted-by-many-at-once-goes-to-exactly-one")
def _():
    statuses = []

    def want(n):
        statuses.append(sign_up("Wanted" if n % 2 else "wanted").status)

    together(want, range(8))
    equal(sorted(statuses), [201] + [409] * 7)


@test("accounts-passwords-have-8-to-256-bytes")
def _():
    sign_up("short.pw", "1234567").problem(422)
    sign_up("long.pw", "x" * 257).problem(422)
    sign_up("none.pw", None).problem(422)
    ANYONE.post("/v1/accounts", {"username": "missing.pw"}).problem(422)
    sign_up("least.pw", "1x3y5z7w").expect(201)
    sign_up("most.pw", "x" * 256).expect(201)
    sign_up("emoji.pw", "🔑🔑").expect(201)  # eight bytes
    SERVER.log_in("emoji.pw", "🔑🔑")


@test("accounts-profile-fields-are-checked-at-sign-up")
def _():
    for fields in ({"display_name": "x" * 81}, {"display_name": "bell\a"}, {"email": "no at"}, {"email": "@x"},
                   {"email": "a" * 250 + "@b.org"}, {"display_name": 7}, {"email": ["a@b"]}):
        sign_up("fields.test", **fields).problem(422)
    sign_up("fields.test", display_name="😀" * 80, email="a@b").expect(201)


@test("accounts-sign-up-off-refuses-people-and-lets-an-admin-key-in")
def _():
    with Server(rate_auth=0, sign_up=False) as server:
        body = {"username": "outsider", "password": PASSWORD}
        server.anonymous.post("/v1/accounts", body).problem(403)
        server.key("act").post("/v1/accounts", body).problem(403)
        equal(server.anonymous.get("/v1/accounts?username=outsider").expect(200).json["items"], [])
        made = server.key("admin").post("/v1/accounts", body).expect(201).json
        server.client(made["token"]).get("/v1/me").expect(200)
        server.log_in("outsider")
        server.operator.post("/v1/accounts", {**body, "username": "by.operator"}).expect(201)


# -- profiles --------------------------------------------------------------------------------------------


@test("accounts-patch-me-changes-what-is-given-and-leaves-the-rest")
def _():
    me = somebody(display_name="Before", email="me@example.org")
    mine = me.patch("/v1/me", {"bio": "Engines.", "avatar_url": "https://example.org/a.png"}).expect(200).json
    shapes.account(mine, own=True)
    equal((mine["display_name"], mine["bio"], mine["avatar_url"], mine["email"]),
          ("Before", "Engines.", "https://example.org/a.png", "me@example.org"))
    mine = me.patch("/v1/me", {"display_name": "After", "avatar_url": "", "email": ""}).expect(200).json
    equal((mine["display_name"], mine["bio"], mine["avatar_url"], mine["email"]), ("After", "Engines.", None, None))
    equal(me.get("/v1/me").expect(200).json, mine)
    equal(me.patch("/v1/me", {}).expect(200).json, mine)


@test("accounts-patch-me-refuses-bad-fields-and-changes-nothing")
def _():
    me = somebody(display_name="Same")
    before = me.get("/v1/me").json
    for bad in ({"bio": "x" * 501}, {"avatar_url": "javascript:alert(1)"}, {"avatar_url": "https://x/" + "a" * 2000},
                {"display_name": "y" * 81}, {"email": "nobody"}, {"bio": 5},
                {"display_name": "Changed", "bio": "z" * 501}):
        me.patch("/v1/me", bad).problem(422)
    equal(me.get("/v1/me").json, before)


@test("accounts-a-new-profile-shows-at-once-in-posts-comments-feeds-and-lists")
def _():
    me, reader = somebody(display_name="Old"), somebody()
    follow(reader, me)
    post = write(me)
    me.post(f"/v1/posts/{post}/comments", {"body": "mine"}).expect(201)
    me.put(f"/v1/posts/{post}/like").expect(200)
    SERVER.drain()
    reader.get("/v1/feed").expect(200)  # fills the caches with the old name
    me.patch("/v1/me", {"display_name": "New", "avatar_url": "https://x.org/n.png"}).expect(200)
    for path in ("/v1/feed", f"/v1/accounts/{me.id}/posts", f"/v1/posts/{post}/comments"):
        item = reader.get(path).expect(200).json["items"][0]
        equal((item["author"]["display_name"], item["author"]["avatar_url"]), ("New", "https://x.org/n.png"), path)
    equal(reader.get(f"/v1/posts/{post}").json["author"]["display_name"], "New")
    for path in (f"/v1/posts/{post}/likes", f"/v1/accounts/{reader.id}/following"):
        equal(reader.get(path).json["items"][0]["display_name"], "New", path)


@test("accounts-others-see-a-profile-without-email-and-with-their-relationship")
def _():
    me, other = somebody(email="secret@example.org"), somebody()
    follow(other, me)
    seen = other.get("/v1/accounts/" + me.id).expect(200).json
    shapes.account(seen, own=False, relationship=["following"])
    seen = me.get("/v1/accounts/" + other.id).expect(200).json
    shapes.account(seen, own=False, relationship=["followed_by"])
    shapes.account(ANYONE.get("/v1/accounts/" + me.id).expect(200).json, own=False)
    shapes.account(me.get("/v1/accounts/" + me.id).expect(200).json, own=True)
    for missing in ("1", "9223372036854775807", "18446744073709551615", "99999999999999999999999"):
        ANYONE.get("/v1/accounts/" + missing).problem(404)


# -- finding ---------------------------------------------------------------------------------------------


@test("accounts-search-by-prefix-is-in-order-and-paged-without-gaps")
def _():
    names = sorted(f"seek.{a}{b}" for a in "abc" for b in "xyz")
    for name in reversed(names):
        SERVER.sign_up(name)
    for limit in (1, 2, 3, 4, 9, 50):
        equal([a["username"] for a in ANYONE.pages("/v1/accounts?q=SEEK.", limit=limit)], names, f"limit {limit}")
    for item in shapes.listing(ANYONE.get("/v1/accounts?q=seek.b").expect(200).json):
        shapes.brief(item)
        check(item["username"].startswith("seek.b"))
    equal(ANYONE.get("/v1/accounts?q=seek-").expect(200).json, {"items": [], "next_cursor": None})
    equal(ANYONE.get("/v1/accounts?q=%25").expect(200).json["items"], [])
    equal(ANYONE.get("/v1/accounts?q=see_").expect(200).json["items"], [])  # no wildcard
    ANYONE.get("/v1/accounts").problem(400)
    ANYONE.get("/v1/accounts?q=").problem(400)


@test("accounts-search-cursor-at-a-deleted-account-is-refused-clearly-and-at-a-suspended-one-goes-on")
def _():
    people = [SERVER.sign_up(f"gap.{n}") for n in range(4)]
    cursor = ANYONE.get("/v1/accounts?q=gap.&limit=2").expect(200).json["next_cursor"]
    SERVER.operator.put(f"/v1/admin/accounts/{people[1].id}/suspension").expect(204)
    rest = ANYONE.get(f"/v1/accounts?q=gap.&limit=2&cursor={cursor}").expect(200).json
    equal([a["username"] for a in rest["items"]], ["gap.2", "gap.3"])
    SERVER.operator.delete(f"/v1/admin/accounts/{people[1].id}/suspension").expect(204)
    people[1].delete("/v1/me").expect(204)
    # Its name, where the next page would begin, was given back with everything else.
    check("gone" in ANYONE.get(f"/v1/accounts?q=gap.&limit=2&cursor={cursor}").problem(400)["detail"])


@test("accounts-find-by-username-is-one-or-none-and-hides-across-blocks")
def _():
    me, other = somebody(), somebody()
    equal(shapes.ids(me.get("/v1/accounts?username=" + other.username).expect(200).json["items"]), [other.id])
    equal(me.get("/v1/accounts?username=nobody.here").expect(200).json, {"items": [], "next_cursor": None})
    other.put(f"/v1/accounts/{me.id}/block").expect(200)
    equal(me.get("/v1/accounts?username=" + other.username).expect(200).json["items"], [])
    equal(me.get("/v1/accounts?q=" + other.username).expect(200).json["items"], [])


# -- suspension ------------------------------------------------------------------------------------------


@test("accounts-suspension-hides-everything-at-once-and-restoring-shows-it-again")
def _():
    me, reader = somebody(), somebody()
    follow(reader, me)
    follow(me, reader)
    post, theirs = write(me), write(reader)
    comment = me.post(f"/v1/posts/{theirs}/comments", {"body": "soon gone"}).expect(201).json["id"]
    me.put(f"/v1/posts/{theirs}/like").expect(200)
    SERVER.drain()

    def shown():
        return {
            "account": reader.get("/v1/accounts/" + me.id).status == 200,
            "post": reader.get("/v1/posts/" + post).status == 200,
            "profile": reader.get(f"/v1/accounts/{me.id}/posts").status == 200,
            "feed": post in shapes.ids(reader.get("/v1/feed").expect(200).json["items"]),
            "comment": comment in shapes.ids(reader.get(f"/v1/posts/{theirs}/comments").json["items"]),
            "like": me.id in shapes.ids(reader.get(f"/v1/posts/{theirs}/likes").json["items"]),
            "following": me.id in shapes.ids(reader.get(f"/v1/accounts/{reader.id}/following").json["items"]),
            "search": len(reader.get("/v1/accounts?q=" + me.username).json["items"]) == 1,
            "token": me.get("/v1/me").status == 200,
            "log in": ANYONE.post("/v1/sessions", {"username": me.username, "password": PASSWORD}).status == 201,
        }

    everything = shown()
    equal(set(everything.values()), {True}, str(everything))
    SERVER.operator.put(f"/v1/admin/accounts/{me.id}/suspension").expect(204)
    nothing = shown()
    equal(set(nothing.values()), {False}, str(nothing))
    SERVER.operator.put(f"/v1/admin/accounts/{me.id}/suspension").expect(204)  # twice is once
    SERVER.key("act").acting(me.id).post("/v1/posts", {"caption": "no"}).expect(401, 403, 404)
    reader.put(f"/v1/accounts/{me.id}/follow").problem(404)
    SERVER.operator.delete(f"/v1/admin/accounts/{me.id}/suspension").expect(204)
    everything = shown()
    equal(set(everything.values()), {True}, str(everything))
    new = write(me, "back again")
    SERVER.drain()
    check(new in shapes.ids(reader.get("/v1/feed").json["items"]))


@test("accounts-suspension-is-for-admins-alone")
def _():
    me, other = somebody(), somebody()
    for client, status in ((ANYONE, 401), (other, 403), (SERVER.key("act"), 403), (SERVER.key("admin:read"), 403)):
        client.put(f"/v1/admin/accounts/{me.id}/suspension").problem(status)
    SERVER.key("admin").put(f"/v1/admin/accounts/{me.id}/suspension").expect(204)
    SERVER.key("admin").delete(f"/v1/admin/accounts/{me.id}/suspension").expect(204)
    SERVER.operator.put("/v1/admin/accounts/1/suspension").problem(404)
    me.get("/v1/me").expect(200)


# -- deletion --------------------------------------------------------------------------------------------


@test("accounts-deletion-removes-all-that-is-theirs-everywhere-and-counts-it-out")
def _():
    me, fan, idol = somebody(email="x@y.org"), somebody(), somebody()
    follow(fan, me)
    follow(me, idol)
    follow(fan, idol)
    posts = [write(me, f"post {n}") for n in range(3)]
    kept = write(idol)
    me.put(f"/v1/posts/{kept}/like").expect(200)
    fan.put(f"/v1/posts/{kept}/like").expect(200)
    me.post(f"/v1/posts/{kept}/comments", {"body": "bye"}).expect(201)
    fan.post(f"/v1/posts/{kept}/comments", {"body": "stays"}).expect(201)
    fan.post(f"/v1/posts/{posts[0]}/comments", {"body": "under a post that goes"}).expect(201)
    fan.put(f"/v1/posts/{posts[0]}/like").expect(200)
    SERVER.drain()
    equal(set(shapes.ids(fan.get("/v1/feed").json["items"])), {*posts, kept})
    second = SERVER.log_in(me.username)
    me.delete("/v1/me").expect(204)

    # Hidden from the moment of the answer.
    for token in (me, second):
        token.get("/v1/me").problem(401)
    ANYONE.post("/v1/sessions", {"username": me.username, "password": PASSWORD}).problem(401)
    for path in (f"/v1/accounts/{me.id}", f"/v1/accounts/{me.id}/posts", f"/v1/accounts/{me.id}/followers",
                 f"/v1/accounts/{me.id}/following", *(f"/v1/posts/{p}" for p in posts),
                 f"/v1/posts/{posts[0]}/comments", f"/v1/posts/{posts[0]}/likes"):
        fan.get(path).problem(404)
    equal(shapes.ids(fan.get("/v1/feed").json["items"]), [kept])
    equal([c["body"] for c in fan.get(f"/v1/posts/{kept}/comments").json["items"]], ["stays"])
    equal(shapes.ids(fan.get(f"/v1/posts/{kept}/likes").json["items"]), [fan.id])
    equal(fan.get("/v1/accounts?q=" + me.username).json["items"], [])
    fan.put(f"/v1/accounts/{me.id}/follow").problem(404)

    # Counted out when the cleaning up is done.
    SERVER.drain()
    seen = fan.get(f"/v1/posts/{kept}").json
    equal((seen["like_count"], seen["comment_count"], seen["liked"]), (1, 1, True))
    feed = fan.get("/v1/feed").json["items"][0]
    equal((feed["like_count"], feed["comment_count"]), (1, 1))
    equal(fan.get("/v1/me").json["following_count"], 1)
    equal(fan.get("/v1/accounts/" + idol.id).json["follower_count"], 1)
    equal(shapes.ids(fan.get(f"/v1/accounts/{idol.id}/followers").json["items"]), [fan.id])
    export = fan.get("/v1/me/export").json
    equal([e["account_id"] for e in export["following"]], [idol.id])
    equal([e["post_id"] for e in export["likes"]], [kept])
    equal([c["body"] for c in export["comments"]], ["stays"])
    result = SERVER.command("check", "--all")
    equal(result.returncode, 0, result.stdout + result.stderr)

    # The name is free; the old id stays dead.
    again = SERVER.sign_up(me.username)
    check(again.id != me.id)
    fan.get("/v1/accounts/" + me.id).problem(404)
    equal(again.get("/v1/feed").json["items"], [])


@test("accounts-deletion-survives-a-restart")
def _():
    with Server(rate_auth=0) as server:
        me, fan = server.sign_up("me.gone"), server.sign_up("fan")
        fan.put(f"/v1/accounts/{me.id}/follow").expect(200)
        post = me.post("/v1/posts", {"caption": "x"}).expect(201).json["id"]
        server.drain()
        me.delete("/v1/me").expect(204)
        for hard in (True, False):
            server.restart(hard=hard)
            me.get("/v1/me").problem(401)
            fan.get("/v1/posts/" + post).problem(404)
            fan.get("/v1/accounts/" + me.id).problem(404)
            equal(fan.get("/v1/feed").json["items"], [])
        server.drain()
        equal(fan.get("/v1/me").json["following_count"], 0)


@test("accounts-export-holds-everything-one-has-and-nothing-of-others")
def _():
    me, other = somebody(email="me@x.org", display_name="Me"), somebody(email="hidden@x.org")
    follow(me, other)
    follow(other, me)
    muted, blocked = somebody(), somebody()
    me.put(f"/v1/accounts/{muted.id}/mute").expect(200)
    me.put(f"/v1/accounts/{blocked.id}/block").expect(200)
    mine = [write(me, f"caption {n} \"quoted\" 😀") for n in range(3)]
    gone = write(me, "deleted")
    me.delete("/v1/posts/" + gone).expect(204)
    theirs = write(other, "not mine")
    me.put(f"/v1/posts/{theirs}/like").expect(200)
    me.post(f"/v1/posts/{theirs}/comments", {"body": "my words"}).expect(201)
    answer = me.get("/v1/me/export").expect(200)
    check("attachment" in answer.headers["content-disposition"])
    export = answer.json
    equal(export["account"], me.get("/v1/me").json)
    equal([p["id"] for p in export["posts"]], mine)
    equal(export["posts"][0]["caption"], 'caption 0 "quoted" 😀')
    equal([e["account_id"] for e in export["following"]], [other.id])
    equal([e["account_id"] for e in export["followers"]], [other.id])
    equal([e["account_id"] for e in export["mutes"]], [muted.id])
    equal([e["account_id"] for e in export["blocks"]], [blocked.id])
    equal([e["post_id"] for e in export["likes"]], [theirs])
    equal([(c["post_id"], c["body"]) for c in export["comments"]], [(theirs, "my words")])
    equal(len(export["sessions"]), 1)
    check("hidden@x.org" not in answer.text and "not mine" not in answer.text and "argon2" not in answer.text)
    check(me.token not in answer.text)
    ANYONE.get("/v1/me/export").problem(401)


@test("accounts-export-of-more-than-one-page-of-rows-is-whole")
def _():
    me = somebody()
    lines = "".join(f'{{"type":"post","author":"{me.username}","caption":"{n}"}}\n' for n in range(1203))
    made = SERVER.operator.post("/v1/admin/import", raw=lines.encode(),
                                headers={"Content-Type": "application/x-ndjson"}).expect(200).json
    equal(made["posts"], 1203)
    posts = me.get("/v1/me/export").expect(200).json["posts"]
    equal(sorted(int(p["caption"]) for p in posts), list(range(1203)))


# -- CORS ------------------------------------------------------------------------------------------------


@test("accounts-a-browser-may-call-from-configured-origins-alone")
def _():
    with Server(rate_auth=0, cors_origins="https://one.example,https://two.example") as server:
        for origin, allowed in (("https://one.example", True), ("https://two.example", True),
                                ("https://three.example", False), ("https://one.example.evil", False),
                                ("http://one.example", False), ("null", False)):
            answer = server.anonymous.post("/v1/sessions", {"username": "nobody", "password": PASSWORD},
                                           headers={"Origin": origin})
            equal(answer.headers.get("access-control-allow-origin"), origin if allowed else None)
    with Server(rate_auth=0, cors_origins="*") as server:
        answer = server.anonymous.get("/healthz", headers={"Origin": "https://any.example"})
        check(answer.headers["access-control-allow-origin"] in ("*", "https://any.example"))
    answer = ANYONE.get("/healthz", headers={"Origin": "https://one.example"})
    check("access-control-allow-origin" not in answer.headers)


@test("accounts-deleted-followers-end-an-authors-celebrity-class")
def _():
    with Server(celebrity_threshold=3, celebrity_adaptive=False) as server:
        star = server.sign_up("star")
        fans = [server.sign_up(f"fan{i}") for i in range(3)]
        for fan in fans:
            fan.put(f"/v1/accounts/{star.id}/follow").expect(200)

        def delivery():
            post = star.post("/v1/posts", {"caption": "hello"}).expect(201).json["id"]
            told = server.operator.get(f"/v1/admin/explain?user=fan0&post={post}").expect(200).text
            return "pull" if "delivery is pull" in told else "push"

        equal(delivery(), "pull", "three followers at a threshold of three")
        for fan in fans[1:]:
            fan.delete("/v1/me").expect(204)
        server.drain()
        equal(star.get("/v1/me").expect(200).json["follower_count"], 1)
        equal(delivery(), "push", "one follower is left")


@test("accounts-reserved-usernames-are-for-the-operator")
def _():
    for name in ("admin", "Root", "support", "fantail", "everyone", "null", "SECURITY"):
        check("reserved" in SERVER.anonymous.post("/v1/accounts", {"username": name, "password": PASSWORD}).problem(422)["detail"])
    SERVER.anonymous.post("/v1/accounts", {"username": "admiral", "password": PASSWORD}).expect(201)
    SERVER.operator.post("/v1/accounts", {"username": "support", "password": PASSWORD}).expect(201)
    equal(SERVER.log_in("support").get("/v1/me").json["username"], "support")


@test("accounts-an-email-with-a-control-character-is-refused")
def _():
    ada = SERVER.sign_up("controlled")
    for bad in ("a@b\n", "a\r\nBcc: x@y", "a\tb@c", "a\u0085@b", "a\u0001@b", "a@b\u007f"):
        ada.patch("/v1/me", {"email": bad}).problem(422)
        SERVER.anonymous.post("/v1/accounts", {"username": "nobody.here", "password": PASSWORD, "email": bad}).problem(422)
    equal(ada.patch("/v1/me", {"email": "ada@example.org"}).expect(200).json["email"], "ada@example.org")


@test("accounts-a-common-password-or-the-username-is-refused")
def _():
    for password in ("password", "PassWord1", "12345678", "iloveyou", "Trustno1"):
        check("many people" in sign_up("commoner", password=password).problem(422)["detail"])
    for username in ("commoner", "commoner.x"):
        check("username" in sign_up(username, password=username.upper()).problem(422)["detail"])
    me = SERVER.sign_up("commoner")
    for password in ("password", "Commoner"):
        me.put("/v1/me/password", {"current_password": PASSWORD, "new_password": password}).problem(422)


if __name__ == "__main__":
    main()
