#!/usr/bin/env python3
"""What a feed means: the newest posts by the people you follow now and by yourself, minus deleted, blocked and muted,
newest first, to any depth. Push, pull, caps, backfill, dropped timelines and restarts may not change the answer.

`World` keeps its own model in a few sets and says what every feed should be; the server is asked and compared. The
settings are tiny (a celebrity has three followers, a timeline holds ten posts), so that every mechanism is at work.
"""
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import shapes  # noqa: E402
from support.crew import Crew  # noqa: E402
from support.place import is_cluster, redis_cli  # noqa: E402
from support.server import Server, check, diag, equal, main, test, wait_until  # noqa: E402

LONG = os.environ.get("FANTAIL_TEST_LONG") == "1"
TINY = dict(rate_auth=0, rate_write=0, celebrity_threshold=3, celebrity_adaptive=False, timeline_cap=10, cleanup_rate=100000)
CAP = TINY["timeline_cap"]


class World:
    """People on a server, and what they did."""

    def __init__(self, server, count, prefix="person"):
        self.server = server
        self.people = [server.sign_up(f"{prefix}.{n}") for n in range(count)]
        self.follows, self.mutes, self.blocks, self.suspended = set(), set(), set(), set()
        self.posts = []  # (id, author), in order
        self.deleted = set()

    def edge(self, kind, i, j, on=True):
        answer = self.people[i].request("PUT" if on else "DELETE", f"/v1/accounts/{self.people[j].id}/{kind}")
        table = {"follow": self.follows, "mute": self.mutes, "block": self.blocks}[kind]
        if kind == "follow" and on and {(i, j), (j, i)} & self.blocks:
            answer.problem(403)
            return
        ends_one = not on and (i, j) in table
        if (j, i) in self.blocks and not ends_one and not (kind == "block" and on):
            answer.expect(200, 404)  # hidden from i, and nothing of theirs is ended
            if answer.status == 404:
                return
        answer.expect(200)
        (table.add if on else table.discard)((i, j))
        if kind == "block" and on:
            self.follows -= {(i, j), (j, i)}

    def follow(self, i, *others):
        for j in others:
            self.edge("follow", i, j)

    def post(self, i, times=1):
        made = []
        for _ in range(times):
            answer = self.people[i].post("/v1/posts", {"caption": f"post {len(self.posts)} by {i}"}).expect(201)
            self.posts.append((answer.json["id"], i))
            made.append(answer.json["id"])
        return made

    def delete(self, post):
        author = next(a for p, a in self.posts if p == post)
        self.people[author].delete("/v1/posts/" + post).expect(204)
        self.deleted.add(post)

    def suspend(self, i, on=True):
        path = f"/v1/admin/accounts/{self.people[i].id}/suspension"
        self.server.operator.request("PUT" if on else "DELETE", path).expect(204)
        (self.suspended.add if on else self.suspended.discard)(i)

    def expected(self, i):
        seen = {j for a, j in self.follows if a == i and (i, j) not in self.mutes and j not in self.suspended} | {i}
        return [p for p, author in sorted(self.posts, key=lambda x: -int(x[0])) if author in seen and p not in self.deleted]

    def verify(self, *who, limits=(3, 7, 100), drain=True):
        if drain:
            self.server.drain()
        for i in who or range(len(self.people)):
            if i in self.suspended:
                continue
            for limit in limits:
                got = shapes.ids(self.people[i].pages("/v1/feed", limit=limit))
                equal(got, self.expected(i), f"the feed of person {i} by {limit}")

    def delivery(self, viewer, post):
        path = f"/v1/admin/explain?user={self.people[viewer].id}&post={post}"
        facts = self.server.operator.get(path).expect(200).json["facts"]
        return next(word for word in ("push", "pull") if any(f"its delivery is {word}" in fact for fact in facts))

    def check_all(self):
        result = self.server.command("check", "--all")
        equal(result.returncode, 0, result.stdout[-1500:] + result.stderr[-500:])


# -- push, pull and the crossing ---------------------------------------------------------------------------


@test("feed-of-a-celebritys-follower-is-the-same-by-pull-as-by-push")
def _():
    with Server(**TINY) as server:
        world = World(server, 6)
        for fan in (1, 2, 3):
            world.follow(fan, 0)
        world.follow(1, 4)
        pulled, pushed = world.post(0, 3), world.post(4, 3)
        world.post(1, 2)
        pulled += world.post(0, 2)
        equal({world.delivery(1, p) for p in pulled}, {"pull"})
        equal({world.delivery(1, p) for p in pushed}, {"push"})
        world.verify()
        world.delete(pulled[1])
        world.verify(drain=False)
        world.edge("mute", 1, 0)
        world.verify(drain=False)
        world.edge("mute", 1, 0, on=False)
        world.verify(drain=False)
        world.edge("follow", 2, 0, on=False)
        world.verify(drain=False)
        world.follow(5, 0)  # backfilled with what was pulled, without doubling
        world.verify()
        world.check_all()


@test("feed-crossing-into-celebrity-and-back-loses-and-doubles-nothing")
def _():
    with Server(**TINY) as server:
        world = World(server, 8)
        world.follow(1, 0)
        world.follow(2, 0)
        classes = []
        for turn in range(3):
            classes.append(world.delivery(1, world.post(0, 2)[0]))
            world.verify()
            world.follow(3, 0)  # the third: crosses up
            classes.append(world.delivery(1, world.post(0, 2)[0]))
            world.verify()
            world.follow(4, 0)  # nothing more happens on the way up
            world.post(0)
            world.edge("follow", 4, 0, on=False)  # three are left: within the hysteresis
            classes.append(world.delivery(1, world.post(0)[0]))
            world.verify()
            world.edge("follow", 3, 0, on=False)  # two: crosses down
            classes.append(world.delivery(1, world.post(0, 2)[0]))
            world.verify()
            world.follow(5 + turn, 1)
        equal(classes, ["push", "pull", "pull", "push"] * 3)
        world.follow(6, 0)  # one who comes late gets all of both kinds
        world.verify()
        world.check_all()
        server.restart(hard=True)
        world.verify()


@test("feed-crossings-happen-while-posts-and-reads-run-and-nothing-is-lost")
def _():
    with Server(**TINY) as server:
        world = World(server, 6)
        world.follow(1, 0)
        world.follow(2, 0)

        def cross():
            world.people[3].put(f"/v1/accounts/{world.people[0].id}/follow").expect(200)
            world.people[3].delete(f"/v1/accounts/{world.people[0].id}/follow").expect(200)

        def read():
            got = shapes.ids(world.people[1].get("/v1/feed?limit=100").expect(200).json["items"])
            equal(got, sorted(set(got), key=int, reverse=True), "a feed out of order or with repeats")

        with Crew() as crew:
            crew.start(cross)
            crew.start(read)
            while {world.delivery(1, post) for post in world.post(0, 60)} != {"push", "pull"}:
                check(len(world.posts) < 2000, "both kinds of delivery are met sooner or later")
        world.verify()
        world.check_all()


# -- depth, caps, backfill ---------------------------------------------------------------------------------


@test("feed-reads-on-past-the-timelines-cap-from-truth")
def _():
    with Server(**TINY) as server:
        world = World(server, 4)
        world.follow(0, 1, 2)
        for turn in range(3 * CAP):
            world.post(1 + turn % 2)
            if turn % 5 == 0:
                world.post(0)
        server.drain()
        # The table holds no more than its cap, the feed shows all. Redis trims one push in 64 and hides the rest meanwhile.
        entries = server.operator.get("/v1/admin/status").json["views"]["entries"]
        check(is_cluster() or entries <= 4 * CAP, f"{entries} entries for 4 people and a cap of {CAP}")
        check(len(world.expected(0)) > 3 * CAP)
        world.verify(limits=(1, 3, CAP - 1, CAP, CAP + 1, 100))
        for post, author in world.posts[::4]:  # deep and shallow
            world.delete(post)
        world.verify(limits=(3, CAP, 100))
        world.edge("follow", 0, 1, on=False)
        world.verify(0)
        world.follow(0, 1)
        world.verify(0)
        world.check_all()


@test("feed-pulled-and-pushed-posts-interleave-far-below-the-cap")
def _():
    with Server(**TINY) as server:
        world = World(server, 5)
        world.follow(0, 1, 2)
        for fan in (3, 4):
            world.follow(fan, 2)  # with the viewer they are three: pulled
        for turn in range(3 * CAP):
            world.post(1)
            world.post(2, 1 + turn % 3)
        equal((world.delivery(0, world.posts[0][0]), world.delivery(0, world.posts[1][0])), ("push", "pull"))
        world.verify(limits=(1, 3, CAP, CAP + 1, 100))
        for post, _ in world.posts[::3]:
            world.delete(post)
        world.verify(limits=(2, 7, 100))
        world.edge("follow", 3, 2, on=False)  # ceases: what was pulled is still read
        world.post(2, 3)
        world.verify(limits=(2, 7, 100))
        server.restart(hard=True)
        world.verify(limits=(2, 7, 100))
        world.check_all()


@test("feed-deleting-the-newest-brings-older-posts-up-from-below-the-cap")
def _():
    with Server(**TINY) as server:
        world = World(server, 2)
        world.follow(0, 1)
        made = world.post(1, 2 * CAP)
        server.drain()
        for post in made[:CAP - 1:-1]:
            world.delete(post)
            equal(shapes.ids(world.people[0].get("/v1/feed?limit=5").json["items"]), world.expected(0)[:5])
        world.verify()


@test("feed-backfill-puts-old-posts-in-their-place-at-any-depth")
def _():
    with Server(**TINY) as server:
        world = World(server, 5)
        world.follow(0, 1)
        for turn in range(2 * CAP):
            world.post(1)
            world.post(2)
            world.post(3)
        world.follow(0, 2)
        world.verify(0)
        world.follow(0, 3)
        world.follow(4, 3)
        world.verify()
        world.edge("follow", 0, 1, on=False)
        world.verify(0)


@test("feed-unmuting-and-restoring-bring-all-back-at-once")
def _():
    with Server(**TINY) as server:
        world = World(server, 5)
        world.follow(0, 1, 2)
        world.post(1, 3)
        world.edge("mute", 0, 1)
        world.post(1, 2)  # while muted
        world.post(2, CAP)  # pushes the muted ones down
        world.verify()
        world.edge("mute", 0, 1, on=False)
        world.verify()
        world.suspend(2)
        world.verify(drain=False)
        world.post(1, 2)
        world.suspend(2, on=False)
        world.verify()
        world.check_all()


@test("feed-a-muted-or-unfollowed-majority-does-not-empty-a-page")
def _():
    with Server(**TINY) as server:
        world = World(server, 3)
        world.follow(0, 1, 2)
        world.post(1, 3)
        world.post(2, 5 * CAP)
        world.edge("mute", 0, 2)
        server.drain()
        equal(shapes.ids(world.people[0].get("/v1/feed?limit=3").json["items"]), world.expected(0))
        world.verify(0)


# -- inactive people ---------------------------------------------------------------------------------------


@test("feed-of-an-inactive-person-is-dropped-and-whole-at-the-first-read-back")
def _():
    with Server(**{**TINY, "inactive_after": "1s"}) as server:
        world = World(server, 5)
        world.follow(0, 1, 2)
        for fan in (1, 3, 4):
            world.follow(fan, 2)  # a celebrity among them
        world.post(1, 4)
        world.post(2, 4)
        server.drain()
        world.verify(0)

        def dropped():
            views = server.operator.get("/v1/admin/status").expect(200).json["views"]
            return views["dropped"] >= 5

        wait_until(dropped, 15, "every timeline to be dropped")
        world.post(1, 2)  # into no timeline
        world.post(2, 1)
        world.delete(world.posts[0][0])
        page = world.people[0].get("/v1/feed?limit=100").expect(200).json
        equal(shapes.ids(page["items"]), world.expected(0), "the first page after coming back")
        world.verify()
        server.restart(hard=True)
        world.verify()
        world.check_all()


@test("feed-is-rebuilt-by-many-readers-at-once-while-posts-arrive-without-loss")
def _():
    with Server(**{**TINY, "inactive_after": "1s"}) as server:
        world = World(server, 3)
        world.follow(0, 1)
        old = world.post(1, 2)
        server.drain()

        def read():
            got = shapes.ids(world.people[0].get("/v1/feed?limit=100").expect(200).json["items"])
            equal(got, sorted(set(got), key=int, reverse=True), "a feed out of order or with repeats")
            check(len(got) == 100 or set(old) <= set(got), "a page without what was there long before")

        with Crew() as crew:
            for _ in range(3):
                crew.start(read)
            until = time.monotonic() + (20 if LONG else 4)
            while time.monotonic() < until:
                world.post(1)
                time.sleep(0.02)
        world.verify(0)


# -- removals never lag ------------------------------------------------------------------------------------


class Timeline:
    """When something was surely gone: answered-at by post or author, for one viewer."""

    def __init__(self):
        self.lock = threading.Lock()
        self.gone = {}  # post id or author id → monotonic time of the answer

    def removed(self, what):
        with self.lock:
            self.gone[what] = time.monotonic()

    def judge(self, began, items):
        """The items that a read begun at `began` may not show."""
        with self.lock:
            return [(item["id"], what) for item in items for what in (item["id"], item["author"]["id"])
                    if self.gone.get(what, began) < began]


def hammer(settings, authors, posts_each, followers_each):
    """Readers of one feed at full speed, while posts are deleted and authors unfollowed, blocked, muted, suspended and
    deleted, each once. Returns the number of reads and all that they showed and should not have."""
    with Server(**settings) as server:
        viewer = server.sign_up("viewer")
        people = [server.sign_up(f"author.{n}") for n in range(authors)]
        fans = [server.sign_up(f"fan.{n}") for n in range(followers_each)]
        posts = {p.id: [] for p in people}
        for author in people:
            viewer.put(f"/v1/accounts/{author.id}/follow").expect(200)
            for fan in fans:
                fan.put(f"/v1/accounts/{author.id}/follow").expect(200)
        for _ in range(posts_each):
            for author in people:
                posts[author.id].append(author.post("/v1/posts", {"caption": "x"}).expect(201).json["id"])
        server.drain()
        timeline, errors, reads = Timeline(), [], [0]

        def read(rng):
            began = time.monotonic()
            query = rng.choice(("?limit=100", "?limit=10", ""))
            page = viewer.get("/v1/feed" + query).expect(200).json
            errors.extend(timeline.judge(began, page["items"]))
            if query == "?limit=10" and page["next_cursor"]:
                began = time.monotonic()
                page = viewer.get("/v1/feed?limit=10&cursor=" + page["next_cursor"]).expect(200).json
                errors.extend(timeline.judge(began, page["items"]))
            reads[0] += 1

        def write(rng):  # new posts of all, also of those who are no longer wanted
            rng.choice(people).post("/v1/posts", {"caption": "more"}).expect(201, 401, 403)
            time.sleep(0.002)

        rng = random.Random(7)
        work = [("delete", post, author) for author in people for post in posts[author.id]]
        rng.shuffle(work)
        kinds = ["unfollow", "block", "blocked", "mute", "suspend", "leave"]
        for n, author in enumerate(people):
            work.insert(rng.randrange(len(work) // 2, len(work)), (kinds[n % len(kinds)], None, author))
        away = set()
        with Crew() as crew:
            for n in range(3):
                crew.start(read, random.Random(n))
            crew.start(write, random.Random(99))
            for kind, post, author in work:
                if kind == "delete":
                    if author.id in away:
                        continue
                    author.delete("/v1/posts/" + post).expect(204)
                    timeline.removed(post)
                    continue
                if kind == "unfollow":
                    viewer.delete(f"/v1/accounts/{author.id}/follow").expect(200)
                elif kind == "block":
                    viewer.put(f"/v1/accounts/{author.id}/block").expect(200)
                elif kind == "blocked":
                    author.put(f"/v1/accounts/{viewer.id}/block").expect(200)
                elif kind == "mute":
                    viewer.put(f"/v1/accounts/{author.id}/mute").expect(200)
                elif kind == "suspend":
                    server.operator.put(f"/v1/admin/accounts/{author.id}/suspension").expect(204)
                    away.add(author.id)
                else:
                    author.delete("/v1/me").expect(204)
                    away.add(author.id)
                timeline.removed(author.id)
        equal(viewer.get("/v1/feed").json["items"], [], "all are gone")
        return reads[0], errors


@test("feed-no-read-begun-after-the-answer-shows-what-was-removed-by-push")
def _():
    reads, errors = hammer({**TINY, "celebrity_threshold": 1000, "timeline_cap": 40}, 24, 60 if LONG else 12, 1)
    diag(f"{reads} reads")
    equal(errors, [])


@test("feed-no-read-begun-after-the-answer-shows-what-was-removed-by-pull")
def _():
    reads, errors = hammer(TINY, 18, 60 if LONG else 12, 3)
    diag(f"{reads} reads")
    equal(errors, [])


@test("feed-ones-own-post-is-in-every-read-begun-after-its-answer")
def _():
    with Server(**{**TINY, "inactive_after": "1s"}) as server:
        me, other = server.sign_up("mine"), server.sign_up("other")
        me.put(f"/v1/accounts/{other.id}/follow").expect(200)
        answered = []

        def read():
            must = answered[-1:]
            got = shapes.ids(me.get("/v1/feed?limit=100").expect(200).json["items"])
            check(set(must) <= set(got), f"{must} is not in the feed")

        def noise():
            other.post("/v1/posts", {"caption": "noise"}).expect(201)
            time.sleep(0.01)

        with Crew() as crew:
            for work in (read, read, noise):
                crew.start(work)
            until = time.monotonic() + 2.5
            while time.monotonic() < until:
                answered.append(me.post("/v1/posts", {"caption": "mine"}).expect(201).json["id"])
                time.sleep(0.003)


@test("feed-single-posts-profiles-and-comments-are-gone-for-every-read-begun-after-the-answer")
def _():
    with Server(**TINY) as server:
        me = server.sign_up("author")
        posts = [me.post("/v1/posts", {"caption": "x"}).expect(201).json["id"] for _ in range(60)]
        keep = me.post("/v1/posts", {"caption": "keep"}).expect(201).json["id"]
        comments = [me.post(f"/v1/posts/{keep}/comments", {"body": "x"}).expect(201).json["id"] for _ in range(60)]
        gone = {}

        def read(rng):
            client, post, began = server.anonymous, rng.choice(posts), time.monotonic()
            status = client.get("/v1/posts/" + post).expect(200, 404).status
            check(status == 404 or gone.get(post, began) >= began, f"{post} was deleted and is read")
            for path in (f"/v1/accounts/{me.id}/posts?limit=100", f"/v1/posts/{keep}/comments?limit=200"):
                began = time.monotonic()
                for item in client.get(path).expect(200).json["items"]:
                    check(gone.get(item["id"], began) >= began, f"{item['id']} was deleted and is in {path}")

        with Crew() as crew:
            for n in range(3):
                crew.start(read, random.Random(n))
            for post, comment in zip(posts, comments):
                me.delete("/v1/posts/" + post).expect(204)
                gone[post] = time.monotonic()
                me.delete("/v1/comments/" + comment).expect(204)
                gone[comment] = time.monotonic()


# -- restarts and histories --------------------------------------------------------------------------------


def random_act(world, rng):
    n = len(world.people)
    i, j = rng.sample(range(n), 2)
    kind = rng.choices(("post", "delete", "follow", "unfollow", "mute", "unmute", "block", "unblock", "suspend", "restore",
                        "read"), (30, 10, 20, 7, 4, 4, 2, 4, 1, 3, 8))[0]
    if {i, j} & world.suspended and kind not in ("restore", "read"):
        return
    if kind == "post":
        world.post(i, rng.choice((1, 1, 1, 5)))
    elif kind == "delete":
        alive = [p for p, a in world.posts if p not in world.deleted and a not in world.suspended]
        if alive:
            world.delete(rng.choice(alive))
    elif kind in ("follow", "mute", "block"):
        world.edge(kind, i, j)
    elif kind in ("unfollow", "unmute", "unblock"):
        world.edge(kind[2:], i, j, on=False)
    elif kind == "suspend" and not world.suspended:
        world.suspend(i)
    elif kind == "restore" and world.suspended:
        world.suspend(next(iter(world.suspended)), on=False)
    elif kind == "read" and i not in world.suspended:
        world.people[i].get("/v1/feed").expect(200)


def lose_views(server, half=False):
    """The server is stopped, and its views are gone; `half`: half of the file, where there is one."""
    if is_cluster():
        redis_cli(server.place.views, "FLUSHDB")
        return
    for name in os.listdir(server.data):
        if "snapshot" in name:
            path = os.path.join(server.data, name)
            os.truncate(path, os.path.getsize(path) // 2) if half else os.unlink(path)


def history(seed, acts, rounds, **settings):
    rng = random.Random(seed)
    with Server(**{**TINY, **settings}) as server:
        world = World(server, 9)
        for number in range(rounds):
            for _ in range(acts):
                random_act(world, rng)
            if "inactive_after" in settings:
                wait_until(lambda: server.operator.get("/v1/admin/status").json["views"]["dropped"] >= 9, 15,
                           "every timeline to be dropped")
                for _ in range(10):
                    random_act(world, rng)
            how = rng.choice(("nothing", "clean", "hard", "hard", "save and hard"))
            if how == "save and hard":
                server.save_views()
                for _ in range(5):
                    random_act(world, rng)
            if how == "clean":
                server.restart()
            elif how != "nothing":
                server.restart(hard=True)
            try:
                world.verify(limits=(4, 100))
                world.check_all()
            except AssertionError:
                diag(f"seed {seed}, round {number}, after: {how}")
                raise


@test("feed-equals-the-model-over-random-histories-with-restarts-and-kill-9")
def _():
    for seed in range(60 if LONG else 3 if is_cluster() else 8):
        history(seed, 60, 5)


@test("feed-equals-the-model-when-timelines-are-dropped-all-the-time")
def _():
    for seed in range(100, 120 if LONG else 101 if is_cluster() else 102):
        history(seed, 60, 4, inactive_after="1s")


@test("feed-equals-the-model-with-a-cache-that-holds-little")
def _():
    for seed in range(200, 230 if LONG else 201 if is_cluster() else 204):
        history(seed, 60, 4, card_cache="1M", snapshot_every="1s")


@test("feed-is-the-same-after-a-clean-stop-after-kill-9-and-without-its-snapshot")
def _():
    with Server(**TINY) as server:
        world = World(server, 6)
        for i in range(6):
            world.follow(i, *(j for j in range(6) if j != i and (i + j) % 2))
        for turn in range(4):
            for i in range(6):
                world.post(i)
        deleted = [p for p, _ in world.posts[::5]]
        for post in deleted:
            world.delete(post)
        world.verify()
        world.check_all()
        server.restart()
        world.verify(drain=False)
        server.restart(hard=True)
        world.verify()
        server.stop()
        lose_views(server)
        server.start()
        world.verify()
        server.stop()
        lose_views(server, half=True)  # as good as none
        server.start()
        world.verify()
        for post in deleted:
            for client in world.people:
                client.get("/v1/posts/" + post).problem(404)
        world.check_all()


@test("feed-what-was-answered-before-kill-9-mid-fan-out-reaches-every-follower")
def _():
    with Server(**{**TINY, "celebrity_threshold": 1000}) as server:
        world = World(server, 12)
        for fan in range(1, 12):
            world.follow(fan, 0)
        for turn in range(4):
            world.post(0, 15)
            world.delete(world.posts[-3][0])
            server.restart(hard=True)  # with the pipeline full
            world.verify(limits=(100,))


if __name__ == "__main__":
    main()
