#!/usr/bin/env python3
"""Groups over crashes: 64 people at once send, edit, delete, leave and come back in a few groups, while the server kills itself
at the points of both stages: where a message becomes durable and is answered, and where it is delivered to the inboxes.

When it has died it is started again without the fault. Whoever got no answer sends the same again under the same client_id.
Then, drained:

  1. each group's log has no gap and nothing twice: numbers from 1 to the group's own, each client_id once
  2. what was answered is there under its number, as it was last edited; what was deleted has no text anywhere
  3. everybody reads the same entries, from their joining on; who left reads up to that and has the group in no inbox
  4. every inbox has the member's groups, with the last message and the unread count that the log gives, and all agree on the
     order
  5. `fantail check --all` finds no difference
"""
import os
import random
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import faults  # noqa: E402
from support.crew import together  # noqa: E402
from support.place import is_cluster  # noqa: E402
from support.server import ROOT, Server, check, diag, equal, main, test  # noqa: E402

os.environ.setdefault("FANTAIL", os.path.join(ROOT, "build-faults", "fantail"))
LONG = os.environ.get("FANTAIL_TEST_LONG") == "1"
PEOPLE, GROUPS, SENDERS = 64, 3, 40  # the others also leave and come back
ACTS = 12 if LONG else 5
SETTINGS = dict(rate_auth=0, rate_write=0, rate_read=0, group_rate=0, snapshot_every="1s")
STAGE_1 = ("db_before_commit", "db_after_commit", "outbox_after_commit", "answer_before_send")
STAGE_2 = ("relay_before_publish", "relay_after_publish", "batch_before_sink", "batch_after_sink", "done_before_watermark")
OCCURRENCES = (1, 4, 12) if LONG else (4,)
SELDOM = ("done_before_watermark",)  # by time, not by message


class Group:
    """What the clients know of one group. Each message, edit and leave belongs to one thread alone."""

    def __init__(self, world, name):
        self.world = world
        owner = world.people[0]
        others = [p.id for p in world.people[1:]]
        self.id = owner.post("/v1/groups", {"name": name, "members": others}).expect(201).json["id"]
        self.lock = threading.Lock()
        self.sent = {}     # client_id → {"author", "bodies": those it may have, "seq": None while unknown, "alive"}
        self.joined = {}   # person → True|False|None; absent: always a member

    def messages(self):
        return f"/v1/groups/{self.id}/messages"


class World:
    def __init__(self, server):
        self.server = server
        self.people = [None] * PEOPLE
        for first in range(0, PEOPLE, 8):  # one address has a share of the queue for passwords
            together(self._sign_up, range(first, min(first + 8, PEOPLE)))
        self.rounds = 0

    def _sign_up(self, i):
        self.people[i] = self.server.sign_up(f"person{i}")

    def new_groups(self):
        self.rounds += 1
        self.groups = [Group(self, f"round {self.rounds}, group {i}") for i in range(GROUPS)]


def ask(client, method, path, body=None):
    """The answer, or None when nobody knows what became of it."""
    try:
        answer = client.request(method, path, body, timeout=10)
    except OSError:
        return None
    return None if answer.status >= 500 else answer


def send(group, me, client_id, body, mentions=()):
    with group.lock:
        known = group.sent.setdefault(client_id, {"author": me, "bodies": {body}, "seq": None, "alive": True})
    answer = ask(group.world.people[me], "POST", group.messages(),
                 {"client_id": client_id, "body": body, "mentions": list(mentions)})
    if answer is None:
        return False
    if answer.status in (200, 201):
        check(known["seq"] in (None, answer.json["seq"]), f"{client_id} became {answer.json['seq']} and {known['seq']}")
        known["seq"] = answer.json["seq"]
    else:  # no member any more, or somebody who is named is none
        with group.lock:
            del group.sent[client_id]
    return True


def change(group, rng, me):
    """Edits or deletes one of the own messages."""
    with group.lock:
        mine = [s for s in group.sent.values() if s["author"] == me and s["seq"] and s["alive"]]
    if not mine:
        return True
    message = rng.choice(mine)
    path = f"{group.messages()}/{message['seq']}"
    if rng.random() < 0.5:
        body = f"edited: {rng.random()}"
        answer = ask(group.world.people[me], "PATCH", path, {"body": body})
        if answer is None:
            message["bodies"] = message["bodies"] | {body}
        elif answer.status == 200:
            message["bodies"] = {body}
    else:
        answer = ask(group.world.people[me], "DELETE", path)
        if answer is None or answer.status in (200, 204):
            message["alive"] = None if answer is None else False
    return answer is not None


def move(group, me):
    """Leaves; or comes back, added by the owner."""
    member = f"/v1/groups/{group.id}/members/{group.world.people[me].id}"
    away = group.joined.get(me, True) is False
    answer = ask(group.world.people[0 if away else me], "PUT" if away else "DELETE", member)
    if answer is None:
        group.joined[me] = None
    elif answer.status < 300:
        group.joined[me] = away
    return answer is not None


def one_act(world, rng, me, number):
    group = rng.choice(world.groups)
    dice = rng.random()
    if dice < 0.6:
        named = [world.people[rng.randrange(SENDERS)].id] if rng.random() < 0.2 else []
        return send(group, me, f"{world.rounds}-{me}-{number}", f"by {me}: {rng.random()}", named)
    if dice < 0.8 or me < SENDERS:
        return change(group, rng, me)
    return move(group, me)


def load(world, seed):
    """All of them at once, until they are done or the server is gone."""

    def run(me):
        rng = random.Random(seed * 1000 + me)
        for number in range(ACTS):
            if not one_act(world, rng, me, seed * 100 + number):
                return

    together(run, range(PEOPLE))


# ---- the checker ----


def settle(world):
    """Nobody knows of some whether they are there: they are sent again, and membership is looked up."""
    for group in world.groups:
        for client_id, known in list(group.sent.items()):
            if known["seq"] is None:
                check(send(group, known["author"], client_id, sorted(known["bodies"])[0]), "the server does not answer")
        for me, state in group.joined.items():
            if state is None:
                answer = world.people[me].get(f"/v1/groups/{group.id}").expect(200, 404)
                group.joined[me] = answer.status == 200


def read_log(client, group):
    entries, after = [], 0
    while True:
        page = client.get(f"{group.messages()}?after={after}&limit=100").expect(200).json["items"]
        if not page:
            return entries
        entries += page
        after = page[-1]["seq"]


def verify_log(world, group, entries):
    owner = world.people[0]
    equal([e["seq"] for e in entries], list(range(1, len(entries) + 1)), "the log has a gap, or something twice")
    equal(owner.get(f"/v1/groups/{group.id}").expect(200).json["seq"], len(entries))
    ids = [e["client_id"] for e in entries if e["client_id"]]
    equal(len(ids), len(set(ids)), "a client_id is in the log twice")
    for client_id, known in group.sent.items():
        entry = entries[known["seq"] - 1]
        equal((entry["kind"], entry["client_id"], entry["author_id"]),
              ("message", client_id, world.people[known["author"]].id), f"message {known['seq']} is another one")
        if known["alive"] is True:
            check(entry["body"] in known["bodies"], f"{client_id} says {entry['body']!r}, not {known['bodies']}")
        if known["alive"] is False:
            check(entry["deleted"] and entry["body"] is None, f"{client_id} was deleted and is {entry}")
    for entry in entries:
        check(not (entry["deleted"] and entry["body"]), f"a deleted text is readable: {entry}")
    equal(set(ids), set(group.sent), "the log holds a message that nobody sent, or lacks one")


def verify_reader(world, group, me, entries):
    """The same entries as the owner's, from the joining to the leaving."""
    client = world.people[me]
    mine = read_log(client, group)
    moves = [e for e in entries if e.get("subject_id") == client.id and e["kind"] in ("join", "leave")]
    joined = [e["seq"] for e in moves if e["kind"] == "join"][-1]
    there = moves[-1]["kind"] == "join"
    equal(there, group.joined.get(me, True), f"person{me} was told otherwise")
    last = len(entries) if there else moves[-1]["seq"]
    equal([e["seq"] for e in mine], list(range(joined, last + 1)), f"person{me} reads other numbers")
    for entry in mine:
        truth = entries[entry["seq"] - 1]
        if entry["body"] is None:  # of an edit from before joining, or after leaving, the text is not shown
            truth = {**truth, "body": None}
        if not there:  # what was changed later is not theirs to see
            entry, truth = ({**e, "edited_at": None, "deleted": None, "body": None} for e in (entry, truth))
        equal(entry, truth, f"person{me} reads entry {entry['seq']} otherwise")
    return there


def verify_inbox(world, me, logs, there):
    """There: the groups of this round that the person is in. Their order."""
    items = world.people[me].pages("/v1/inbox", limit=7)
    ids = [item["group"]["id"] for item in items]
    equal(len(ids), len(set(ids)), f"person{me}'s inbox holds a group twice")
    for group, entries in logs:
        check((group.id in ids) == (group.id in there), f"person{me}'s inbox and group {group.id}")
        if group.id not in there:
            continue
        item = items[ids.index(group.id)]
        messages = [e for e in entries if e["kind"] == "message"]
        joined, read = item["group"]["joined_seq"], item["group"]["read_seq"]
        equal(item["unread"], len([e for e in messages if e["seq"] > read and not e["deleted"]]), f"person{me}'s unread messages")
        last = messages[-1] if messages and messages[-1]["seq"] >= joined else None
        shown = item["last_message"]
        equal(shown and (shown["seq"], shown["body"]), last and (last["seq"], last["body"]), f"person{me}'s last message")
    return [i for i in ids if i in there]


def verify(world):
    world.server.drain()
    settle(world)
    world.server.drain()
    logs = [(group, read_log(world.people[0], group)) for group in world.groups]
    for group, entries in logs:
        verify_log(world, group, entries)
    orders = []
    lock = threading.Lock()

    def read(me):
        there = {group.id for group, entries in logs if verify_reader(world, group, me, entries)}
        order = verify_inbox(world, me, logs, there)
        if me < SENDERS:  # a joining is activity, too, of the person alone
            with lock:
                orders.append(order)

    for first in range(0, PEOPLE, 8):
        together(read, range(first, first + 8))
    check(all(order == orders[0] for order in orders), f"they disagree on the order: {orders}")
    result = world.server.command("check", "--all")
    equal(result.returncode, 0, "fantail check --all: " + result.stdout[-1500:] + result.stderr[-500:])


# ---- crashes ----


def crash_at(world, point, occurrence, seed):
    server = world.server
    world.new_groups()
    server.stop()
    died = not faults.start_with_fault(server, point, occurrence)
    for number in range(4):
        if died:
            break
        load(world, seed + number)
        died = faults.died(server, 2.5 if number == 3 else 0.3)
    server.kill()
    server.start()
    verify(world)
    return died


WORLD = None


def world():
    global WORLD
    if WORLD is None:
        WORLD = World(Server(**SETTINGS))
    return WORLD


def add(point, number):
    @test(f"groups-kill-9-at-{point}-everybody-agrees")
    def _():
        occurrences = (1,) if point in SELDOM else OCCURRENCES
        reached = [o for o in occurrences if crash_at(world(), point, o, number * 100 + o)]
        diag(f"reached: {reached} of {occurrences}")
        check(reached, f"{point} was never reached: this test shows nothing")


for index, name in enumerate(STAGE_1 + STAGE_2):
    add(name, index + 1)


@test("groups-kill-9-at-any-moment-all-members-agree")
def _():
    server = world().server
    for number in range(12 if LONG else 3):
        world().new_groups()
        killer = threading.Timer(0.05 + 0.1 * number, server.process.kill)
        killer.start()
        load(world(), 5000 + number)
        killer.join()
        server.process.wait()
        server.process = None
        server.start()
        verify(world())


@test("groups-deliveries-that-fail-over-a-crash-are-made-up-for")
def _():
    """While every page fails the log goes on; after a crash and without the fault all inboxes are as they should be."""
    server = world().server
    world().new_groups()
    server.stop()
    path = os.path.join(server.data, "fail")
    with open(path, "w") as file:
        file.write("inboxes UNAVAILABLE\nmentions UNAVAILABLE\n")
    server.start(env={"FANTAIL_FAIL": path})
    load(world(), 9000)
    server.kill()
    server.start()
    verify(world())


if __name__ == "__main__":
    main()
