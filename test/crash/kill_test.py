#!/usr/bin/env python3
"""kill -9 at every named fault point, under load; then one checker looks at what is left.

For each point, at its first and at later occurrences, a server is started that kills itself there. Four threads act at
once, each for two people: they post, delete, edit, like, follow, unfollow, mute and block, and remember what was answered.
When the server has died it is started again (the first time with the fault still in it, so that it may die on the way up),
at last without, and after draining:

  1. every acknowledged post is readable as it was last edited, and in the feed of everyone who surely follows its author
  2. no feed holds a duplicate, and ids fall
  3. nothing acknowledged as deleted is readable anywhere; nobody sees an author they surely do not follow
  4. acknowledged likes are there, once
  5. counters, graph and every feed equal truth (`fantail check --all`)

What was not answered may have happened or not: both are right, as long as all reads agree.

Points that only failing deliveries, operators' re-drives, replays or rebuilds reach have tests of their own (ELSEWHERE).
Those of a consumer's duplicate memory are in code that no consumer of the program uses yet (NOT_YET): from outside nothing
can reach them, and they are skipped here, visibly; the units and the simulator drive that code.
"""
import os, random, subprocess, sys, threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.crew import together
from support.place import is_cluster, redis_cli
from support.server import ROOT, Server, Skip, check, diag, equal, main, program, test

os.environ.setdefault("FANTAIL", os.path.join(ROOT, "build-faults", "fantail"))
LONG = os.environ.get("FANTAIL_TEST_LONG") == "1"
PEOPLE = 8
OCCURRENCES = (1, 2, 3, 5, 9, 17, 33) if LONG else (1,) if is_cluster() else (1, 3, 8)
SETTINGS = dict(celebrity_threshold=4, celebrity_adaptive=False, timeline_cap=12, snapshot_every="1s",
                rate_auth=0, rate_write=0, cleanup_rate=100000)
ELSEWHERE = {
    "retry_test.py": ("record_before_commit", "record_after_commit", "retry_before_publish", "retry_after_done"),
    "dead_letter_test.py": ("redrive_between_slices",),
    "replay_test.py": ("replay_before_begin", "replay_before_save", "replay_after_save", "rebuild_between_slices"),
    "timer_test.py": ("timer_before_fire", "timer_after_fire"),
}
NOT_YET = ("dedup_after_claim", "dedup_before_confirm")


class World:
    """What the clients know: True (surely so), False (surely not), None (unknown)."""

    def __init__(self, server):
        self.server = server
        self.lock = threading.Lock()
        self.posts = {}    # id → {"author": i, "alive": True|False|None, "captions": those it may have}
        self.follows = {}  # (follower, followee) → True|False|None; absent: surely not
        self.muted = {}
        self.likes = {}    # (person, post) → True|False|None
        self.gone = {}     # account index → True|None
        self.unknown_posts = 0
        self.people = [server.sign_up(f"person{i}") for i in range(PEOPLE)]

    def act(self, client, method, path, body=None, want=(200, 201, 204)):
        """True: done. False: refused, nothing changed. None: nobody knows."""
        try:
            answer = client.request(method, path, body, timeout=10)
        except OSError:
            return None, None
        if answer.status in want:
            return True, answer
        # 503 while it goes down may or may not have committed.
        return (None if answer.status >= 500 else False), answer


def set_edge(world, table, key, value, outcome):
    with world.lock:
        if outcome is True:
            table[key] = value
        elif outcome is None and table.get(key, False) is not value:
            table[key] = None


def one_act(world, rng, me):
    """One random act of person `me`. Returns False when the server is gone."""
    client = world.people[me]
    other = rng.choice([i for i in range(PEOPLE) if i != me])
    target = world.people[other].id
    kind = rng.choices(["post", "delete", "follow", "unfollow", "mute", "unmute", "block", "like", "edit", "feed"],
                       [10, 4, 8, 3, 2, 2, 1, 3, 2, 3])[0]
    if kind == "post":
        outcome, answer = world.act(client, "POST", "/v1/posts", {"caption": f"by {me}: {rng.random()}"})
        with world.lock:
            if outcome:
                world.posts[answer.json["id"]] = {"author": me, "alive": True, "captions": {answer.json["caption"]}}
            elif outcome is None:
                world.unknown_posts += 1
    elif kind in ("delete", "edit"):
        with world.lock:
            mine = [p for p, s in world.posts.items() if s["author"] == me and s["alive"]]
        if not mine:
            return True
        post = rng.choice(mine)
        if kind == "edit":
            caption = f"edited: {rng.random()}"
            outcome, _ = world.act(client, "PATCH", f"/v1/posts/{post}", {"caption": caption})
            with world.lock:
                if outcome:
                    world.posts[post]["captions"] = {caption}
                elif outcome is None:
                    world.posts[post]["captions"].add(caption)
        else:
            outcome, _ = world.act(client, "DELETE", f"/v1/posts/{post}")
            with world.lock:
                if outcome is not False:
                    world.posts[post]["alive"] = False if outcome else None
    elif kind in ("follow", "unfollow"):
        outcome, _ = world.act(client, "PUT" if kind == "follow" else "DELETE", f"/v1/accounts/{target}/follow")
        set_edge(world, world.follows, (me, other), kind == "follow", outcome)
    elif kind in ("mute", "unmute"):
        outcome, _ = world.act(client, "PUT" if kind == "mute" else "DELETE", f"/v1/accounts/{target}/mute")
        set_edge(world, world.muted, (me, other), kind == "mute", outcome)
    elif kind == "block":  # only the partner of the same thread: both edges are then this thread's own
        other = me ^ 1
        target = world.people[other].id
        outcome, _ = world.act(client, "PUT", f"/v1/accounts/{target}/block")
        for edge in ((me, other), (other, me)):
            set_edge(world, world.follows, edge, False, outcome)
        if outcome:  # unblock again, so that the graph does not fall apart over time
            outcome, _ = world.act(client, "DELETE", f"/v1/accounts/{target}/block")
    elif kind == "like":
        with world.lock:
            some = list(world.posts)
        if not some:
            return True
        post, on = rng.choice(some), rng.random() < 0.7
        outcome, _ = world.act(client, "PUT" if on else "DELETE", f"/v1/posts/{post}/like")
        set_edge(world, world.likes, (me, post), on, outcome)
    else:
        outcome, _ = world.act(client, "GET", "/v1/feed")
    return outcome is not None


def load(world, acts, seed):
    """Four threads, two people each, until all acts are done or the server is gone."""

    def run(thread):
        rng = random.Random(seed * 100 + thread)
        for _ in range(acts):
            if not one_act(world, rng, thread * 2 + rng.randrange(2)):
                return

    together(run, range(4))


def read_feeds(world):
    """{person: {post: item}} of everyone who is surely there."""
    feeds = {}
    for i, client in enumerate(world.people):
        if i in world.gone:
            if world.gone[i]:
                client.get("/v1/me").problem(401)
            continue
        items = client.pages("/v1/feed", limit=7)
        ids = [item["id"] for item in items]
        equal(len(ids), len(set(ids)), f"person{i}'s feed holds a duplicate")
        equal(ids, sorted(ids, key=int, reverse=True), f"person{i}'s feed is out of order")
        feeds[i] = {item["id"]: item for item in items}
    return feeds


def verify_post(world, feeds, post, state):
    author = state["author"]
    answer = world.people[author].get(f"/v1/posts/{post}")
    answer.expect(200, 404, 401) if author in world.gone else answer.expect(200, 404)
    left = world.gone.get(author, False)
    if state["alive"] is True and author not in world.gone:
        equal(answer.status, 200, f"acknowledged post {post} is lost")
        caption = answer.json["caption"]
        check(caption in state["captions"], f"post {post} says {caption!r}, not {state['captions']}")
        check(post in feeds[author], f"own post {post} is missing from person{author}'s feed")
        equal(feeds[author][post]["caption"], answer.json["caption"])
        equal(feeds[author][post]["like_count"], answer.json["like_count"])
        surely = [liked for (_, liked_post), liked in world.likes.items() if liked_post == post]
        if None not in surely and not world.gone:
            equal(answer.json["like_count"], surely.count(True), f"the likes of post {post}")
    if state["alive"] is False or left:
        check(answer.status != 200, f"deleted post {post} is readable")
        for i, feed in feeds.items():
            check(post not in feed, f"deleted post {post} is in person{i}'s feed")


def verify(world):
    server = world.server
    server.drain()
    feeds = read_feeds(world)
    for post, state in world.posts.items():
        verify_post(world, feeds, post, state)
    for i, feed in feeds.items():
        for post, item in feed.items():
            liked = world.likes.get((i, post), False)
            check(liked is None or item["liked"] is liked, f"person{i} and post {post}: liked is {item['liked']}")
    for (i, j), follows in world.follows.items():
        if i not in feeds or j in world.gone:
            continue
        muted = world.muted.get((i, j), False)
        for post, state in world.posts.items():
            if state["author"] != j or state["alive"] is not True:
                continue
            if follows is True and muted is False:
                check(post in feeds[i], f"post {post} of person{j} is missing from person{i}'s feed")
            if follows is False or muted is True:
                check(post not in feeds[i], f"post {post} of person{j} is in the feed of person{i}, who does not want it")
    result = server.command("check", "--all")
    equal(result.returncode, 0, "fantail check --all: " + result.stdout[-1500:] + result.stderr[-500:])


def wait_dead(server, timeout_s):
    """True when the fault was reached and the server killed itself."""
    try:
        code = server.process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    server.process = None
    equal(code, -9, "the server ended by itself:\n" + server.log_tail())
    return True


def provoke(world, point):
    """What reaches points that ordinary load does not."""
    server = world.server
    if point == "purge_between_slices":
        leaver = PEOPLE - 1 - len(world.gone)
        outcome, _ = world.act(world.people[leaver], "DELETE", "/v1/me")
        if outcome is not False:
            world.gone[leaver] = outcome
    if point.startswith("snapshot") or point == "outbox_before_trim":
        world.act(server.operator, "POST", "/v1/admin/save")
    if point == "rebuild_before_install":
        for client in world.people:
            world.act(client, "GET", "/v1/feed")


def start_with_fault(server, point, occurrence, **settings):
    """True when it is up, False when it died on the way."""
    try:
        server.start(env={"FANTAIL_FAULT": f"{point}:{occurrence}"}, **settings)
    except AssertionError as error:
        check("ended with -9" in str(error), str(error))
        return False
    return True


def crash_at(point, occurrence, seed):
    """True when the point was reached."""
    with Server(**SETTINGS) as server:
        world = World(server)
        load(world, 12, seed)  # a past, part of it in a snapshot
        server.save_views()
        load(world, 6, seed + 1)
        settings = {}
        if point == "rebuild_before_install":  # without saved views every timeline has to be rebuilt
            server.kill()
            if is_cluster():
                redis_cli(server.place.views, "FLUSHDB")
            else:
                os.unlink(os.path.join(server.data, "views.snapshot"))
        elif point == "keeper_before_crossing":
            server.stop()
            settings = dict(celebrity_threshold=2)
        else:
            server.stop()
        died = not start_with_fault(server, point, occurrence, **settings)
        if point == "keeper_before_crossing" and not died and occurrence == 1:
            died = wait_dead(server, 3)  # its sweep comes first: a follow would cross by itself
        for number in range(4):
            if died:
                break
            load(world, 15, seed + 2 + number)
            provoke(world, point)
            died = wait_dead(server, 0.1 if number < 3 and occurrence > 1 else 2.5)
        server.kill()
        if died and start_with_fault(server, point, 1):  # and once more, with the recovery itself under the knife
            load(world, 5, seed + 8)
        server.kill()
        server.start()
        verify(world)
        load(world, 5, seed + 9)  # and it goes on as if nothing had been
        verify(world)
        return died


def fault_points():
    out = subprocess.run([program(), "version", "--faults"], capture_output=True, text=True, check=True).stdout
    return [line.strip() for line in out.splitlines() if line.strip()]


def add(point, number):
    @test(f"kill-9-at-{point}-loses-nothing")
    def _():
        reached = [occurrence for occurrence in OCCURRENCES if crash_at(point, occurrence, number * 1000 + occurrence)]
        diag(f"reached: {reached} of {OCCURRENCES}")
        check(1 in reached, f"{point} was never reached: this test shows nothing")


@test("kill-9-fault-points-are-compiled-in")
def _():
    check(len(fault_points()) > 10, f"{program()} knows no fault points: build it with -Dfaults=true")


@test("kill-9-points-that-are-not-tested-here-are-tested-elsewhere")
def _():
    for file, points in ELSEWHERE.items():
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), file)) as source:
            text = source.read()
        for point in points:
            check(f'"{point}' in text, f"{file} does not speak of {point}")
            check(point in fault_points(), f"there is no point {point} any more")


def skip(point):
    @test(f"kill-9-at-{point}-loses-nothing")
    def _():
        raise Skip("no consumer has a duplicate memory yet")


for index, name in enumerate(fault_points()):
    if name in NOT_YET:
        skip(name)
    elif is_cluster() and name.startswith("snapshot"):
        continue  # shared views are in Redis, not in a file
    elif not any(name in points for points in ELSEWHERE.values()):
        add(name, index)


@test("kill-9-at-any-moment-loses-nothing")
def _():
    """No named point: the harness kills while load runs, again and again, on one data folder."""
    with Server(**SETTINGS) as server:
        world = World(server)
        for round_number in range(60 if LONG else 5 if is_cluster() else 12):
            killer = threading.Timer(0.01 + 0.03 * (round_number % 7), server.process.kill)
            killer.start()
            load(world, 2000, 7000 + round_number)  # more than there is time for
            killer.join()
            server.process.wait()
            server.process = None
            server.start()
            verify(world)


if __name__ == "__main__":
    main()
