#!/usr/bin/env python3
"""The stream: who is told what, and what ends it."""
import base64
import hashlib
import hmac
import json
import os
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.server import Server, check, equal, main, test, wait_until  # noqa: E402
from support.sse import Stream  # noqa: E402

SERVER = Server(rate_auth=0, rate_write=0, rate_read=0, streams_person=3)
count = 0


def people(*names):
    global count
    count += 1
    return [SERVER.sign_up(f"{name}{count}") for name in names]


def make(owner, *members, **more):
    body = {"name": "birds", "members": [m.id for m in members], **more}
    return owner.post("/v1/groups", body).expect(201).json["id"]


def say(client, group, body="hello"):
    return client.post(f"/v1/groups/{group}/messages", {"body": body}).expect(201).json["seq"]


def log(client, group, after):
    page = client.get(f"/v1/groups/{group}/messages?after={after}&limit=200").expect(200).json
    return [(e["seq"], e["kind"]) for e in page["items"]]


@test("a-stream-begins-with-a-hello-and-is-for-accounts-alone")
def _():
    ada, = people("ada")
    with Stream(SERVER, ada) as stream:
        equal(stream.events, [("hello", {"account": ada.id})])
        check(stream.headers["content-type"].startswith("text/event-stream"))
        equal(stream.headers["cache-control"], "no-store")
        check(stream.retry)
    SERVER.anonymous.get("/v1/stream").problem(401)
    equal(ada.request("HEAD", "/v1/stream").expect(200).body, b"")


@test("what-a-stream-says-is-what-the-api's-description-says")
def _():
    ada, bob = people("ada", "bob")
    document = SERVER.anonymous.get("/openapi.json").expect(200).json
    answer = document["paths"]["/v1/stream"]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
    shapes = document["components"]["schemas"][answer["$ref"].rsplit("/", 1)[1]]["x-events"]
    ada.put(f"/v1/accounts/{bob.id}/follow").expect(200)
    with Stream(SERVER, ada) as stream:
        group = make(bob, ada)
        seq = say(bob, group)
        stream.wait("group", group=group, seq=seq)  # a group that is told of for the first time is told of with its mark
        ada.put(f"/v1/groups/{group}/read", {"seq": seq}).expect(200)
        bob.post("/v1/posts", {"caption": "hello"}).expect(201)
        for name in ("read", "feed"):
            stream.wait(name)
        ada.delete("/v1/sessions/current").expect(204)
        stream.wait_end()
        equal({name for name, _ in stream.events}, set(shapes))
        for name, data in stream.events:
            equal(set(data), set(shapes[name]["required"]), name)
        check(stream.all("bye")[0]["reason"] in shapes["bye"]["properties"]["reason"]["enum"])


@test("a-product's-server-may-listen-for-its-people")
def _():
    ada, bob = people("ada", "bob")
    group = make(ada, bob)
    with Stream(SERVER, SERVER.key("act").acting(bob.id)) as stream:
        stream.wait("group", group=group, seq=say(ada, group))
        ada.delete("/v1/sessions/current").expect(204)  # somebody else's end is no end
        bob.delete("/v1/sessions/current").expect(204)  # nor is that of a session that it does not use
        equal(stream.ended, False)


@test("a-message-is-streamed-with-its-number-to-every-member-and-no-one-else")
def _():
    ada, bob, eve = people("ada", "bob", "eve")
    group, other = make(ada, bob), make(ada, eve)
    with Stream(SERVER, ada) as at_ada, Stream(SERVER, bob) as at_bob, Stream(SERVER, eve) as at_eve:
        seq = say(bob, group)
        for stream in (at_ada, at_bob):
            equal(stream.wait("group", group=group, seq=seq), {"group": group, "seq": seq})
        last = say(ada, other)
        at_eve.wait("group", group=other, seq=last)
        equal(at_eve.all("group", group=group), [])
        equal(at_bob.all("group", group=other), [])


@test("what-happened-between-two-live-events-is-read-from-the-log-at-once")
def _():
    ada, bob = people("ada", "bob")
    group = make(ada, bob)
    with Stream(SERVER, bob) as stream:
        first = say(ada, group)
        stream.wait("group", group=group, seq=first)
        seqs = [say(ada, group, f"m{i}") for i in range(20)]
        ada.patch(f"/v1/groups/{group}/messages/{seqs[0]}", {"body": "changed"}).expect(200)
        last = say(ada, group)
        # Whatever a live event names is in the log when it arrives, and so is everything below it.
        event = wait_until(lambda: next(iter(reversed(stream.all("group", group=group))), None), 15, "a live event")
        entries = log(bob, group, first)
        check(entries[-1][0] >= event["seq"])
        equal([seq for seq, _ in entries], list(range(first + 1, entries[-1][0] + 1)))
        stream.wait("group", group=group, seq=last)
        equal(log(bob, group, last - 2), [(last - 1, "edit"), (last, "message")])


@test("being-added-to-a-group-is-told-and-who-left-is-told-nothing-more")
def _():
    ada, bob, eve = people("ada", "bob", "eve")
    with Stream(SERVER, bob) as stream:
        group = make(ada, bob, eve)
        stream.wait("group", group=group)
        say(ada, group)
        bob.delete(f"/v1/groups/{group}/members/{bob.id}").expect(204)
        SERVER.drain()
        before = len(stream.all("group", group=group))
        for _ in range(5):
            seq = say(ada, group)
        other = make(ada, bob)
        stream.wait("group", group=other)
        SERVER.drain()
        after = stream.all("group", group=group)[before:]
        check(all(event["seq"] < seq - 4 for event in after), f"told after leaving: {after}")


@test("every-entry-of-the-log-is-told-with-its-number")
def _():
    ada, bob, cat, dan = people("ada", "bob", "cat", "dan")
    group = make(ada, bob, cat)
    path = f"/v1/groups/{group}"
    with Stream(SERVER, ada) as at_ada, Stream(SERVER, bob) as at_bob, Stream(SERVER, dan) as at_dan:
        first = say(ada, group, "one")
        second = say(bob, group, "two")
        acts = [
            lambda: ada.patch(f"{path}/messages/{first}", {"body": "uno"}).expect(200),
            lambda: ada.delete(f"{path}/messages/{first}").expect(204),
            lambda: ada.delete(f"{path}/messages/{second}").expect(204),
            lambda: ada.patch(path, {"name": "more birds"}).expect(200),
            lambda: ada.patch(path, {"history": "all"}).expect(200),
            lambda: ada.put(f"{path}/members/{bob.id}", {"role": "admin"}).expect(200),
            lambda: bob.put(f"{path}/members/{dan.id}", {}).expect(201),
            lambda: cat.delete(f"{path}/members/{cat.id}").expect(204),
        ]
        seq = second
        for act in acts:
            act()
            seq += 1
            for stream in (at_ada, at_bob):
                stream.wait("group", group=group, seq=seq)
        kinds = [kind for number, kind in log(ada, group, second)]
        equal(kinds, ["edit", "delete", "moderation", "rename", "history", "role", "join", "leave"])
        at_dan.wait("group", group=group, seq=seq)
        for stream in (at_ada, at_bob, at_dan):
            numbers = [event["seq"] for event in stream.all("group", group=group)]
            equal(numbers, sorted(numbers), "numbers do not go back")
        check(all(event["seq"] > seq - 2 for event in at_dan.all("group", group=group)), "before dan was there")


@test("an-entry-that-is-no-message-neither-counts-as-unread-nor-moves-a-group-up")
def _():
    ada, bob = people("ada", "bob")
    quiet, busy = make(ada, bob), make(ada, bob)
    with Stream(SERVER, bob) as stream:
        seq = say(ada, quiet)
        bob.put(f"/v1/groups/{quiet}/read", {"seq": seq}).expect(200)
        stream.wait("group", group=busy, seq=say(ada, busy))
        ada.patch(f"/v1/groups/{quiet}/messages/{seq}", {"body": "changed"}).expect(200)
        ada.patch(f"/v1/groups/{quiet}", {"name": "quiet birds"}).expect(200)
        stream.wait("group", group=quiet, seq=seq + 2)
        SERVER.drain()
        inbox = bob.get("/v1/inbox").expect(200).json["items"]
        equal([(item["group"]["id"], item["unread"]) for item in inbox], [(busy, 1), (quiet, 0)])


@test("who-was-removed-is-told-that-and-nothing-after")
def _():
    ada, bob, eve = people("ada", "bob", "eve")
    group = make(ada, bob, eve)
    with Stream(SERVER, bob) as at_bob, Stream(SERVER, eve) as at_eve:
        seq = say(ada, group)
        at_bob.wait("group", group=group, seq=seq)
        ada.delete(f"/v1/groups/{group}/members/{bob.id}").expect(204)
        at_bob.wait("group", group=group, seq=seq + 1)
        for i in range(5):
            ada.patch(f"/v1/groups/{group}/messages/{seq}", {"body": f"edit {i}"}).expect(200)
        at_eve.wait("group", group=group, seq=seq + 6)
        other = make(ada, bob)
        ada.patch(f"/v1/groups/{other}", {"name": "later"}).expect(200)
        at_bob.wait("group", group=other, seq=ada.get(f"/v1/groups/{other}").json["seq"])
        equal([h["seq"] for h in at_bob.all("group", group=group) if h["seq"] > seq], [seq + 1])
        equal(log(bob, group, seq), [(seq + 1, "leave")])


@test("entries-of-a-group-far-down-in-the-inbox-are-told-too")
def _():
    ada, bob = people("ada", "bob")
    groups = [make(ada, bob) for _ in range(60)]
    before = [say(ada, group) for group in groups]
    SERVER.drain()
    with Stream(SERVER, bob) as stream:
        for group, seq in list(zip(groups, before))[:5]:
            ada.patch(f"/v1/groups/{group}/messages/{seq}", {"body": "changed"}).expect(200)
            stream.wait("group", group=group, seq=seq + 1)
        equal({h["group"] for h in stream.all("group")}, set(groups[:5]))


@test("many-editors-at-once-and-every-stream-gets-the-last")
def _():
    members = people("ada", "bob", "cat", "dan")
    groups = [make(members[i % 4], *members[:i % 4], *members[i % 4 + 1:]) for i in range(6)]
    streams = [Stream(SERVER, m) for m in members]

    def edit(number):
        client = SERVER.client(members[number % 4].token)
        mine = {group: say(client, group) for group in groups}
        rand = random.Random(number)
        for i in range(40):
            group = rand.choice(groups)
            client.patch(f"/v1/groups/{group}/messages/{mine[group]}", {"body": f"edit {i}"}).expect(200)

    threads = [threading.Thread(target=edit, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stream in streams:
        for group in groups:
            stream.wait("group", group=group, seq=members[0].get(f"/v1/groups/{group}").expect(200).json["seq"])
            numbers = [h["seq"] for h in stream.all("group", group=group)]
            equal(numbers, sorted(numbers), "numbers do not go back")
        stream.close()


@test("a-read-mark-reaches-the-other-devices")
def _():
    ada, bob = people("ada", "bob")
    group = make(ada, bob)
    phone, desk = bob, SERVER.log_in(bob.username)
    with Stream(SERVER, phone) as at_phone, Stream(SERVER, desk) as at_desk, Stream(SERVER, ada) as at_ada:
        seqs = [say(ada, group) for _ in range(3)]
        phone.put(f"/v1/groups/{group}/read", {"seq": seqs[1]}).expect(200)
        for stream in (at_phone, at_desk):
            stream.wait("read", group=group, seq=seqs[1])
        phone.put(f"/v1/groups/{group}/read", {"seq": seqs[0]}).expect(200)
        phone.put(f"/v1/groups/{group}/read", {"seq": seqs[2]}).expect(200)
        at_desk.wait("read", group=group, seq=seqs[2])
        check(seqs[0] not in [e["seq"] for e in at_desk.all("read", group=group)])
        check(all(e["seq"] >= seqs[0] for e in at_ada.all("read", group=group)), "ada's own marks alone")


@test("a-post-in-the-feed-is-told-unless-its-author-is-muted")
def _():
    ada, bob, eve = people("ada", "bob", "eve")
    for author in (bob, eve):
        ada.put(f"/v1/accounts/{author.id}/follow").expect(200)
    ada.put(f"/v1/accounts/{eve.id}/mute").expect(200)
    with Stream(SERVER, ada) as stream:
        muted = eve.post("/v1/posts", {"caption": "unseen"}).expect(201).json["id"]
        SERVER.drain()
        post = bob.post("/v1/posts", {"caption": "hello"}).expect(201).json["id"]
        stream.wait("feed", id=post)
        equal(ada.get("/v1/feed").json["items"][0]["id"], post)
        equal(stream.all("feed", id=muted), [])


@test("a-pulled-post-is-told-to-followers-on-every-set-of-drivers")
def _():
    with Server(rate_auth=0, celebrity_threshold=2, celebrity_adaptive=False) as server:
        star, ada, bob, eve = (server.sign_up(name) for name in ("star", "ada", "bob", "eve"))
        for fan in (ada, bob):
            fan.put(f"/v1/accounts/{star.id}/follow").expect(200)
        with Stream(server, ada) as followed, Stream(server, eve) as stranger:
            post = star.post("/v1/posts", {"caption": "pulled"}).expect(201).json["id"]
            followed.wait("feed", id=post)
            equal(ada.get("/v1/feed").json["items"][0]["id"], post)
            server.drain()
            equal(stranger.all("feed", id=post), [])


@test("many-groups-at-once-are-all-told")
def _():
    ada, bob = people("ada", "bob")
    groups = [make(ada, bob) for _ in range(80)]
    with Stream(SERVER, bob) as stream:
        last = {group: say(ada, group) for group in groups}
        SERVER.drain()

        def told():
            events = {h["group"]: h["seq"] for h in stream.all("group")}
            return len(stream.all("hello")) > 1 or all(events.get(g) == last[g] for g in groups)
        wait_until(told, 15, "every group, or another hello")


@test("no-live-event-is-lost-while-all-talk-at-once")
def _():
    members = people("ada", "bob", "cat", "dan", "eve")
    groups = [make(members[i % 5], *members[:i % 5], *members[i % 5 + 1:]) for i in range(12)]
    streams = [Stream(SERVER, m) for m in members]
    last, lock = {}, threading.Lock()

    def talk(number):
        rand = random.Random(number)
        client = SERVER.client(members[number % 5].token)
        for _ in range(60):
            group = rand.choice(groups)
            seq = say(client, group)
            with lock:
                last[group] = max(last.get(group, 0), seq)
            if rand.random() < 0.1:
                client.put(f"/v1/groups/{group}/read", {"seq": seq}).expect(200)

    threads = [threading.Thread(target=talk, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stream in streams:
        for group, seq in last.items():
            stream.wait("group", group=group, seq=seq)
            events = [h["seq"] for h in stream.all("group", group=group)]
            equal(events, sorted(events), "numbers do not go back")
        stream.close()


@test("a-person-has-so-many-streams-and-no-more")
def _():
    ada, bob = people("ada", "bob")
    streams = [Stream(SERVER, ada) for _ in range(3)]
    refused = Stream(SERVER, ada)
    equal(refused.status, 429)
    check(refused.headers.get("retry-after"))
    with Stream(SERVER, bob):
        pass
    streams[0].close()

    def again():
        stream = Stream(SERVER, ada)
        streams.append(stream)
        return stream.status == 200
    wait_until(again, 10, "room for another stream")
    for stream in streams:
        stream.close()


@test("a-server-has-so-many-streams-and-no-more")
def _():
    with Server(streams_max=2) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        with Stream(server, ada), Stream(server, bob):
            equal(Stream(server, ada).status, 503)
            ada.get("/v1/feed").expect(200)


def rss(server):
    with open(f"/proc/{server.process.pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@test("a-client-that-does-not-read-is-cut-off-and-holds-up-no-other")
def _():
    with Server(rate_auth=0, rate_write=0, streams_person=16) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        slow = [Stream(server, bob, reading=False, narrow=True) for _ in range(15)]
        with Stream(server, ada) as at_ada, Stream(server, bob) as at_bob:
            seq = say(ada, make(ada, bob))
            at_bob.wait("group", seq=seq)
            before = rss(server)
            # Each group is a live event of its own that cannot take another's place: a buffer is full after about a thousand.
            for made in range(4000):
                group = make(ada, bob)
                if made % 100 == 0:
                    for stream in (at_ada, at_bob):
                        stream.wait("group", timeout_s=5, group=group)
                    if server.metrics()["fantail_streams_slow_total"] >= len(slow):
                        break
            metrics = server.metrics()
            equal(metrics["fantail_streams_slow_total"], len(slow))
            equal(metrics["fantail_streams"], 2)
            grown = rss(server) - before
            check(grown < 64 << 20, f"the server has grown by {grown >> 20} MiB")
            for stream in slow:
                stream.read()
                check(not stream.wait_end().all("bye"), "cut off, not sent away")
                check(len(stream.all("group")) < made)
            with Stream(server, bob) as again:
                again.wait("group", group=make(ada, bob))
            equal((at_ada.ended, at_bob.ended), (False, False))


@test("a-client-that-takes-nothing-for-too-long-is-let-go-however-little-waits")
def _():
    with Server(rate_auth=0, rate_write=0) as server:
        ada, bob = server.sign_up("ada"), server.sign_up("bob")
        slow = Stream(server, bob, reading=False, narrow=True)
        with Stream(server, ada) as at_ada:
            for _ in range(600):  # more than both kernels hold, less than a stream does
                group = make(ada, bob)
            at_ada.wait("group", group=group)
            equal(server.metrics()["fantail_streams"], 2)
            wait_until(lambda: server.metrics()["fantail_streams"] == 1, 45, "the end of the stream")
            equal(server.metrics()["fantail_streams_slow_total"], 0)
            equal(at_ada.ended, False)
            slow.close()


@test("a-stream-ends-with-its-token")
def _():
    secret = b"0123456789abcdef0123456789abcdef"

    def token(**claims):
        def part(value):
            return base64.urlsafe_b64encode(value).rstrip(b"=")
        text = part(b'{"alg":"HS256","typ":"JWT"}') + b"." + part(json.dumps(claims).encode())
        return (text + b"." + part(hmac.new(secret, text, hashlib.sha256).digest())).decode()

    with tempfile.NamedTemporaryFile() as key:
        key.write(secret + b"\n")
        key.flush()
        with Server(jwt_key="hs256:" + key.name, jwt_waive="iss,aud", rate_auth=0, rate_write=0, stream_heartbeat="100ms") as server:
            ada = server.client(token(sub="host|1", preferred_username="ada", exp=time.time() + 600))
            mine = ada.get("/v1/me").expect(200).json["id"]
            # Half a minute of leeway is left to every token, as clocks differ.
            brief = server.client(token(sub="host|1", exp=time.time() - 27))
            with Stream(server, ada) as lasting, Stream(server, brief) as ending:
                equal(ending.events[0], ("hello", {"account": mine}))
                began = time.monotonic()
                equal(ending.wait_end().wait("bye"), {"reason": "expired"})
                check(time.monotonic() - began < 20, "it ended long after its token")
                equal(Stream(server, brief).status, 401)
                lasting.wait("group", group=make(ada))
                equal(lasting.ended, False)


@test("a-stream-ends-with-its-session-wherever-that-is-ended")
def _():
    ada, bob = people("ada", "bob")
    desk = SERVER.log_in(ada.username)
    sessions = desk.get("/v1/sessions").expect(200).json["items"]
    phone_id = next(s["id"] for s in sessions if not s["current"])
    with Stream(SERVER, ada) as at_phone, Stream(SERVER, bob) as at_bob:
        desk.delete(f"/v1/sessions/{phone_id}").expect(204)
        equal(at_phone.wait_end().wait("bye"), {"reason": "session"})
        equal(Stream(SERVER, ada).status, 401)
        at_bob.wait("group", group=make(bob))


@test("a-stream-ends-when-the-key-that-opened-it-is-revoked")
def _():
    ada, bob = people("ada", "bob")
    made = SERVER.operator.post("/v1/admin/keys", {"name": "product", "scopes": "act"}).expect(201).json
    product = SERVER.client(made["key"])
    with Stream(SERVER, product.acting(ada.id)) as for_ada, Stream(SERVER, product.acting(bob.id)) as for_bob, \
            Stream(SERVER, people("eve")[0]) as other:
        SERVER.operator.delete(f"/v1/admin/keys/{made['id']}").expect(204)
        equal(for_ada.wait_end().wait("bye"), {"reason": "session"})
        equal(for_bob.wait_end().wait("bye"), {"reason": "session"})
        equal(other.ended, False)
        equal(Stream(SERVER, product.acting(ada.id)).status, 401)


@test("a-stream-ends-with-its-session-however-many-others-there-are")
def _():
    with Server(rate_auth=0, rate_write=0, streams_person=64) as server:
        ada = server.sign_up("ada")
        first = ada.get("/v1/sessions").expect(200).json["items"][0]["id"]
        streams = [Stream(server, ada)]
        for _ in range(18):
            desk = server.log_in("ada")
            streams.append(Stream(server, desk))
        desk.delete(f"/v1/sessions/{first}").expect(204)
        equal(streams[0].wait_end().wait("bye"), {"reason": "session"})
        for stream in streams:
            stream.close()


@test("a-stream-ends-with-its-session-and-others-come-back")
def _():
    ada, = people("ada")
    desk = SERVER.log_in(ada.username)
    with Stream(SERVER, ada) as at_phone, Stream(SERVER, desk) as at_desk:
        ada.delete("/v1/sessions/current").expect(204)
        equal(at_phone.wait_end().wait("bye"), {"reason": "session"})
        at_desk.wait_end()
        equal(Stream(SERVER, ada).status, 401)
        with Stream(SERVER, desk) as again:
            again.wait("hello")


@test("a-stream-ends-when-its-account-is-suspended-or-deleted")
def _():
    ada, bob = people("ada", "bob")
    with Stream(SERVER, ada) as at_ada, Stream(SERVER, bob) as at_bob:
        SERVER.operator.put(f"/v1/admin/accounts/{ada.id}/suspension").expect(204)
        bob.delete("/v1/me").expect(204)
        at_ada.wait_end()
        at_bob.wait_end()
        check(Stream(SERVER, ada).status in (401, 403))


@test("a-stream-has-a-pulse-and-an-end-and-a-stop-is-announced")
def _():
    with Server(stream_life="1s", stream_heartbeat="100ms") as server:
        ada = server.sign_up("ada")
        stream = Stream(server, ada)
        wait_until(lambda: stream.comments >= 2, 10, "two heartbeats")
        equal(stream.wait_end().wait("bye"), {"reason": "expired"})
        check(500 <= stream.retry <= 5000)
    with Server() as server:
        ada = server.sign_up("ada")
        stream = Stream(server, ada)
        server.stop()
        stream.wait_end().wait("bye")


@test("what-happened-without-a-stream-is-not-streamed-but-is-there")
def _():
    ada, bob = people("ada", "bob")
    group = make(ada, bob)
    with Stream(SERVER, bob) as stream:
        first = say(ada, group)
        stream.wait("group", group=group, seq=first)
    missed = [say(ada, group) for _ in range(3)]
    SERVER.drain()
    with Stream(SERVER, bob) as stream:
        equal([seq for seq, _ in log(bob, group, first)], missed)
        after = say(ada, group)
        stream.wait("group", group=group, seq=after)


if __name__ == "__main__":
    main()
