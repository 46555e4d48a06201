"""The comparison `bench/compare cluster`: nodes on PostgreSQL, Redis and RabbitMQ against what those servers do by themselves.

All servers are script/servers' own, in a temporary folder. Rounds of Fantail and of its peer alternate, so that both meet the
same neighbours; medians and the worst ratio of a round are reported. Two cores are shared by the servers, the nodes and the
clients, so what each process spends on a unit of work says more than the rate does: it is reported, too.
"""
import contextlib, http.client, json, os, pathlib, shutil, socket, statistics, subprocess, sys, tempfile, threading, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SERVERS = ROOT / "script" / "servers"
NAMES = ("postgres", "redis", "rabbitmq")
AUTHORS, POSTER_FOLLOWERS = 20, 5
# So few that a node knows them: whom it believes without asking the store it believes for a second and a half only.
POSTERS, READERS = 200, 200
MEMBERS = 64  # of the busy group: the first posters
ENTRIES = 200  # in each timeline before anything is measured
CARD_BYTES = 150
CONNECTIONS, DATABASE_CLIENTS, CLIENT_THREADS = 64, 32, 2
CAPTION = "x" * 120
TICKS = os.sysconf("SC_CLK_TCK")

# Ids of a moment in the past, a millisecond each: followers, then authors, then posters.
WORLD = """
CREATE FUNCTION pg_temp.id(i bigint) RETURNS bigint LANGUAGE sql AS 'SELECT (60000000000 + i) << 22';
INSERT INTO accounts (id, username, display_name, seen_at, follower_count, following_count)
  SELECT pg_temp.id(i), 'follower' || i, 'Follower ' || i, {now_ms} - 3600000, 0, {authors} FROM generate_series(0, {followers} - 1) i
  UNION ALL SELECT pg_temp.id({followers} + i), 'author' || i, 'Author ' || i, 0, {followers}, 0 FROM generate_series(0, {authors} - 1) i
  UNION ALL SELECT pg_temp.id({followers} + {authors} + i), 'poster' || i, 'Poster ' || i, 0, {each}, 0 FROM generate_series(0, {posters} - 1) i;
INSERT INTO follows (follower_id, followee_id, created_at)
  SELECT pg_temp.id(f), pg_temp.id({followers} + a), 0 FROM generate_series(0, {followers} - 1) f, generate_series(0, {authors} - 1) a
  UNION ALL SELECT pg_temp.id((p * {each} + k) % {followers}), pg_temp.id({followers} + {authors} + p), 0
  FROM generate_series(0, {posters} - 1) p, generate_series(0, {each} - 1) k;
INSERT INTO groups (id, kind, name, created_by, seq, member_count)
  VALUES (pg_temp.id(1), 0, 'birds', pg_temp.id({followers} + {authors}), {members}, {members});
INSERT INTO group_members (group_id, account_id, role, joined_seq, joined_id, read_seq, read_count)
  SELECT pg_temp.id(1), pg_temp.id({followers} + {authors} + i), CASE i WHEN 0 THEN 0 ELSE 2 END, i + 1, pg_temp.id(i + 2), i + 1, 0
  FROM generate_series(0, {members} - 1) i;
INSERT INTO group_log (group_id, seq, kind, author_id, subject_id, messages, created_at)
  SELECT pg_temp.id(1), i + 1, 4, m.id, m.id, 0, 0
  FROM generate_series(0, {members} - 1) i CROSS JOIN LATERAL (SELECT pg_temp.id({followers} + {authors} + i) AS id) m;
ANALYZE;
"""
GROUP = 60000000001 << 22
PEER_SCHEMA = """
CREATE TABLE accounts (id bigint PRIMARY KEY, post_count bigint NOT NULL DEFAULT 0);
CREATE TABLE posts (id bigint PRIMARY KEY, author_id bigint NOT NULL, caption text NOT NULL, delivery int NOT NULL,
  like_count bigint NOT NULL DEFAULT 0, comment_count bigint NOT NULL DEFAULT 0, edited_at bigint, deleted_at bigint);
CREATE INDEX ON posts (author_id, id);
CREATE TABLE outbox (id bigint PRIMARY KEY, type text NOT NULL, version int NOT NULL, payload text NOT NULL);
INSERT INTO accounts SELECT g FROM generate_series(1, {posters}) g;
"""
PEER_POST = """\\set author random(1, {posters})
\\set id random(1, 9000000000000000000)
BEGIN;
UPDATE accounts SET post_count = post_count + 1 WHERE id = :author;
INSERT INTO posts (id, author_id, caption, delivery) VALUES (:id, :author, '{caption}', 0);
INSERT INTO outbox (id, type, version, payload) VALUES (:id, 'post.created', 1, '{payload}');
COMMIT;
"""
PEER_GROUP = """
CREATE TABLE groups (id bigint PRIMARY KEY, seq bigint NOT NULL DEFAULT 0, messages bigint NOT NULL DEFAULT 0, last_id bigint NOT NULL DEFAULT 0);
CREATE TABLE group_members (group_id bigint, account_id bigint, read_seq bigint NOT NULL DEFAULT 0, PRIMARY KEY (group_id, account_id));
CREATE TABLE group_log (group_id bigint, seq bigint, author_id bigint NOT NULL, body text, created_at bigint NOT NULL, PRIMARY KEY (group_id, seq));
INSERT INTO groups VALUES (1);
INSERT INTO group_members SELECT 1, g FROM generate_series(1, {members}) g;
"""
PEER_MESSAGE = """\\set author random(1, {members})
\\set id random(1, 9000000000000000000)
BEGIN;
UPDATE groups SET seq = seq + 1, messages = messages + 1, last_id = greatest(last_id, :id) WHERE id = 1 RETURNING seq \\gset
INSERT INTO group_log VALUES (1, :seq, :author, '{caption}', 0);
UPDATE group_members SET read_seq = :seq WHERE group_id = 1 AND account_id = :author;
INSERT INTO outbox (id, type, version, payload) VALUES (:id, 'group.message', 1, '{payload}');
COMMIT;
"""
PAYLOAD = '{"actor":"1234567890123456789","object":"1234567890123456789","value":0}'


BEGAN = time.monotonic()


def say(text):
    print(f"{time.monotonic() - BEGAN:5.0f} s  {text}", file=sys.stderr, flush=True)


def run(command, wait_s=600, **options):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=wait_s, **options)
    if done.returncode != 0:
        sys.exit(f"compare: {command[0]} failed:\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


def wait_until(condition, what, wait_s=120, every_s=0.02):
    deadline = time.monotonic() + wait_s
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"compare: waited {wait_s} s in vain for {what}")
        time.sleep(every_s)


# ---- what a process and its children have spent ----

def spent_us(roots):
    """CPU time in µs of these processes and all below them, also of children that have ended."""
    parents, ticks = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        parents[int(entry)] = int(fields[1])
        ticks[int(entry)] = sum(map(int, fields[11:15]))
    total = 0
    for pid in ticks:
        above = pid
        while above not in roots and above > 1:
            above = parents.get(above, 0)
        total += ticks[pid] if above in roots else 0
    return total * 1_000_000 // TICKS


# ---- the servers and the nodes ----

class Node:
    def __init__(self, cluster, number, level="warn"):
        self.data = cluster.folder / f"node{number}"
        self.log = cluster.folder / f"node{number}.log"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        words = [cluster.program, "serve", "--data", self.data, "--listen", f"127.0.0.1:{self.port}", "--db", cluster.urls["postgres"],
                 "--views", cluster.urls["redis"], "--bus", cluster.urls["rabbitmq"], "--log-level", level,
                 "--celebrity-threshold", "1000000000", "--celebrity-adaptive", "off", "--rate-write", "0", "--group-rate", "0"]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self.is_ready, "a node to be ready")

    def is_ready(self):
        if self.process.poll() is not None:
            sys.exit(f"compare: a node ended:\n{self.log.read_text()[-1500:]}")
        with contextlib.suppress(OSError):
            return self.get("/readyz")[0] == 200
        return False

    def get(self, path, method="GET", body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metric(self, name):
        """The sum of a metric over its labels; None: this node does not have it."""
        lines = self.get("/metrics")[1].splitlines()
        found = [float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name]
        return sum(found) if found else None

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Cluster:
    """Servers, nodes and a world. Everything ends with it."""

    def __init__(self, program, followers, awake=True):
        self.program, self.followers = program, followers
        self.nodes, self.urls = [], {}
        self.entries = 0  # in the peer's timelines, as in ours
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fantail-compare-"))
        self.folder.chmod(0o755)
        try:
            self.build_peers()
            say("starting PostgreSQL, Redis and RabbitMQ")
            run([SERVERS, "start", self.folder / "servers", *NAMES])
            self.urls = {name: (self.folder / "servers" / name / "url").read_text().strip() for name in NAMES}
            self.redis_port = self.urls["redis"].rsplit(":", 1)[1]
            self.write_world()
            self.add_node()
            wait_until(lambda: self.nodes[0].metric("fantail_views_trusted") == 1, "the views to be loaded")
            say("waking all timelines")
            words = ["key", "create", "--scope", "act", "--name", "bench", "--data", self.nodes[0].data]
            self.key = run([self.program, *words]).strip()
            if awake:
                self.wake_everybody()
        except BaseException:
            self.close()
            raise

    def build_peers(self):
        flags = ["-O2", "-std=c11", "-D_GNU_SOURCE", "-pthread", f"-I{ROOT / 'src'}"]
        base = [ROOT / "src" / "base" / f"{name}.c" for name in ("clock", "hist", "log", "str", "buf", "json_out", "sync", "id")]
        run(["cc", *flags, "-o", self.folder / "redis_peer", ROOT / "bench/peers/redis_peer.c"])
        run(["cc", *flags, "-o", self.folder / "http_load", ROOT / "bench/peers/http_load.c", ROOT / "src/bench/load.c", *base])

    def add_node(self, **options):
        self.nodes.append(Node(self, len(self.nodes) + 1, **options))
        wait_until(lambda: self.total("fantail_node_leads") == 1, "a leader")

    def drop_node(self):
        self.nodes.pop().stop()

    def write_world(self):
        """Rows straight into truth, before there is a node: the leader's first act is to load the views from there."""
        say(f"writing {self.followers * AUTHORS + POSTERS * POSTER_FOLLOWERS:,} follows")
        run([self.program, "migrate", "--db", self.urls["postgres"], "--data", self.folder / "none"])
        self.sql(self.urls["postgres"], WORLD.format(followers=self.followers, authors=AUTHORS, posters=POSTERS, each=POSTER_FOLLOWERS, members=MEMBERS,
                                                     now_ms=int(time.time() * 1000)))
        files = (("followers", "follower", self.followers), ("readers", "follower", READERS), ("posters", "poster", POSTERS), ("members", "poster", MEMBERS))
        for name, first, count in files:
            (self.folder / name).write_text("".join(f"@{first}{i}\n" for i in range(count)))

    def sql(self, url, text):
        return run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", text])

    def wake_everybody(self):
        """Everyone looks at their feed: a timeline is held from then on."""
        asleep = AUTHORS + POSTERS
        for _ in range(10):
            http_load(self, "followers", 0, strict=False)
            if self.nodes[0].metric("fantail_view_timelines_dropped") <= asleep:
                return
        sys.exit("compare: the timelines are not rebuilt")

    def total(self, name):
        """The sum of a metric over the nodes that have it: one must."""
        found = [value for value in (node.metric(name) for node in self.nodes) if value is not None]
        if not found:
            raise LookupError(f"no node has a metric {name}")
        return sum(found)

    def await_drained(self):
        """Until no node has anything undone; settling the last events takes a look at the clock."""
        wait_until(lambda: self.total("fantail_events_undone") == 0, "the pipeline to drain", every_s=0.1)

    def delivered(self):
        return self.total("fantail_lane_delivered_total") + self.total("fantail_lane_repeated_total")

    def processes(self):
        pids = {name: {int((self.folder / "servers" / name / "pid").read_text())} for name in NAMES}
        return {"fantail": {node.process.pid for node in self.nodes}, **pids}

    def close(self):
        for node in reversed(self.nodes):
            node.stop()
        if (self.folder / "servers").exists():
            subprocess.run([SERVERS, "stop", self.folder / "servers"], capture_output=True, timeout=120)
        shutil.rmtree(self.folder, ignore_errors=True)


class Meter:
    """What one kind of round was measured to be, ours and the peer's."""

    def __init__(self, cluster):
        self.cluster, self.ours, self.theirs, self.cpu, self.peer_cpu = cluster, [], [], [], []

    @contextlib.contextmanager
    def spending(self, peer=False):
        """Counts CPU time meanwhile; yields a dict whose "units" the caller sets."""
        roots = self.cluster.processes()
        before = {name: spent_us(pids) for name, pids in roots.items()}
        counted = {"units": 0}
        yield counted
        spent = {name: (spent_us(pids) - before[name]) / max(counted["units"], 1) for name, pids in roots.items()}
        (self.peer_cpu if peer else self.cpu).append(spent)

    def numbers(self, name):
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        ratios = [a / b for a, b in zip(self.ours, self.theirs)]
        out = {f"{name}_per_s": ours, f"{name}_peer_per_s": theirs, f"{name}_ratio": statistics.median(ratios),
               f"{name}_ratio_worst": min(ratios)}
        for process in self.cpu[0]:
            out[f"{name}_us_{process}"] = statistics.median(c[process] for c in self.cpu)
            if self.peer_cpu:
                out[f"{name}_peer_us_{process}"] = statistics.median(c[process] for c in self.peer_cpu)
        return out


# ---- fan-out ----

def post_large(cluster, posts):
    """Every large author posts so often, one request after the other."""
    node = cluster.nodes[0]
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=30)
    body = json.dumps({"caption": CAPTION})
    for _ in range(posts):
        for author in range(AUTHORS):
            headers = {"Authorization": f"Bearer {cluster.key}", "Fantail-Account": f"@author{author}", "Content-Type": "application/json"}
            connection.request("POST", "/v1/posts", body=body, headers=headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 201:
                sys.exit(f"compare: a post was answered by {answer.status}")
    connection.close()


def fan_out_round(cluster, posts):
    """Deliveries a second from the first post until the last timeline has the last one."""
    expected = cluster.delivered() + AUTHORS * posts * cluster.followers
    began = time.monotonic()
    post_large(cluster, posts)
    wait_until(lambda: cluster.delivered() >= expected, "the fan-out to end", wait_s=300)
    return AUTHORS * posts * cluster.followers / (time.monotonic() - began)


def peer_fan_out(cluster, posts):
    to = cluster.entries + AUTHORS * posts
    out = json.loads(run([cluster.folder / "redis_peer", "fanout", cluster.redis_port, cluster.followers, cluster.entries, to,
                          CLIENT_THREADS]))
    cluster.entries = to
    return out["per_s"]


def fill_timelines(cluster):
    """So many entries in ours, by posting, and in the peer's."""
    say(f"filling {cluster.followers:,} timelines with {ENTRIES} entries, ours and the peer's")
    fan_out_round(cluster, ENTRIES // AUTHORS)
    run([cluster.folder / "redis_peer", "fill", cluster.redis_port, cluster.followers, 0, ENTRIES])
    cluster.entries = ENTRIES


def measure_fan_out(cluster, rounds, posts):
    meter = Meter(cluster)
    for _ in range(rounds):
        with meter.spending() as counted:
            meter.ours.append(fan_out_round(cluster, posts))
            counted["units"] = AUTHORS * posts * cluster.followers
        with meter.spending(peer=True) as counted:
            meter.theirs.append(peer_fan_out(cluster, posts))
            counted["units"] = AUTHORS * posts * cluster.followers
        say(f"  fan-out: {meter.ours[-1]:,.0f}/s, Redis alone {meter.theirs[-1]:,.0f}/s")
    return meter


def two_nodes(cluster, rounds, posts):
    """The same with a second node beside the first, in turn. The ratio is two against one."""
    meter = Meter(cluster)
    for _ in range(rounds):
        cluster.add_node()
        with meter.spending() as counted:
            meter.ours.append(fan_out_round(cluster, posts))
            counted["units"] = AUTHORS * posts * cluster.followers
        cluster.drop_node()
        cluster.await_drained()
        meter.theirs.append(fan_out_round(cluster, posts))
        say(f"  fan-out: two nodes {meter.ours[-1]:,.0f}/s, one {meter.theirs[-1]:,.0f}/s")
    return meter


# ---- requests ----

def http_load(cluster, what, seconds, strict=True):
    """Requests of all connections, shared by the nodes."""
    results = []

    def one(node):
        share = CONNECTIONS // len(cluster.nodes)
        file = cluster.folder / {"post": "posters", "feed": "readers", "anew": "readers", "message": "members"}.get(what, what)
        kind = {"post": "post", "anew": "anew", "message": GROUP}.get(what, "feed")
        results.append(json.loads(run([cluster.folder / "http_load", node.port, share, seconds, kind, cluster.key, file])))

    threads = [threading.Thread(target=one, args=(node,)) for node in cluster.nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(results) < len(threads) or strict and any(r["refused"] * 1000 > r["answers"] or r["broken"] for r in results):
        sys.exit(f"compare: the nodes did not answer as they should: {results}")
    return {"per_s": sum(r["per_s"] for r in results), "answers": sum(r["answers"] for r in results), "bytes": results[0]["bytes"],
            "p99_ms": max(r["p99_ms"] for r in results)}


def peer_pages(cluster, cards, seconds):
    return json.loads(run([cluster.folder / "redis_peer", "pages", cluster.redis_port, READERS, cards, seconds, CONNECTIONS,
                           CLIENT_THREADS]))["per_s"]


def measure_feed(cluster, rounds, seconds):
    """First pages, which are kept, and the same with ?limit=20, which are drawn every time; both against the same peer."""
    meter, anew, cards = Meter(cluster), Meter(cluster), 10000
    run([cluster.folder / "redis_peer", "cards", cluster.redis_port, cards, CARD_BYTES])
    http_load(cluster, "feed", 1)  # caches fill
    p99 = []
    for _ in range(rounds):
        with meter.spending() as counted:
            got = http_load(cluster, "feed", seconds)
            counted["units"] = got["per_s"] * (seconds + 0.3)
        meter.ours.append(got["per_s"])
        p99.append(got["p99_ms"])
        with meter.spending(peer=True) as counted:
            meter.theirs.append(peer_pages(cluster, cards, seconds))
            counted["units"] = meter.theirs[-1] * seconds
        with anew.spending() as counted:
            anew.ours.append(http_load(cluster, "anew", seconds)["per_s"])
            counted["units"] = anew.ours[-1] * (seconds + 0.3)
        anew.theirs.append(meter.theirs[-1])
        say(f"  feed: {meter.ours[-1]:,.0f}/s, drawn anew {anew.ours[-1]:,.0f}/s, Redis alone {meter.theirs[-1]:,.0f}/s")
    kept = [cluster.total(f"fantail_page_{what}_total") for what in ("hits", "misses")]
    return meter, anew, {"feed_bytes": got["bytes"], "feed_p99_ms": statistics.median(p99), "feed_kept": kept[0] / max(sum(kept), 1)}


def pgbench(cluster, seconds, text=PEER_POST):
    script = cluster.folder / "post.sql"
    script.write_text(text.format(posters=POSTERS, members=MEMBERS, caption=CAPTION, payload=PAYLOAD))
    out = run(["pgbench", "-n", "-M", "prepared", "-c", DATABASE_CLIENTS, "-j", CLIENT_THREADS, "-T", seconds, "-f", script,
               peer_database(cluster)])
    return float(next(line.split()[2] for line in out.splitlines() if line.startswith("tps = ")))


def peer_database(cluster):
    return cluster.urls["postgres"].rsplit("/", 1)[0] + "/peer"


def measure_writes(cluster, rounds, seconds, what, script):
    """Posts, or messages of one busy group, against pgbench with the same rows."""
    meter, drains = Meter(cluster), []
    cluster.sql(cluster.urls["postgres"], "DROP DATABASE IF EXISTS peer")
    cluster.sql(cluster.urls["postgres"], "CREATE DATABASE peer")
    cluster.sql(peer_database(cluster), (PEER_SCHEMA + PEER_GROUP).format(posters=POSTERS, members=MEMBERS))
    p99 = []
    for _ in range(rounds):
        with meter.spending() as counted:
            got = http_load(cluster, what, seconds)
            began = time.monotonic()
            cluster.await_drained()
            drains.append(time.monotonic() - began)
            counted["units"] = got["per_s"] * (seconds + 0.3)
        meter.ours.append(got["per_s"])
        p99.append(got["p99_ms"])
        with meter.spending(peer=True) as counted:
            meter.theirs.append(pgbench(cluster, seconds, script))
            counted["units"] = meter.theirs[-1] * seconds
        say(f"  {what}s: {meter.ours[-1]:,.0f}/s, PostgreSQL alone {meter.theirs[-1]:,.0f}/s")
    return meter, {f"{what}_p99_ms": statistics.median(p99), f"{what}_drain_s": max(drains)}


# ---- loading ----

def measure_load(cluster, rounds):
    """Rows a second from truth into empty views, by the node that leads: accounts, follows in both directions, members."""
    rows = int(cluster.sql(cluster.urls["postgres"], "SELECT (SELECT count(*) FROM accounts) + (SELECT count(*) FROM follows) "
                                                     "+ (SELECT count(*) FROM group_members)"))
    rates, cpu = [], []
    for _ in range(rounds):
        cluster.drop_node()
        run(["redis-cli", "-p", cluster.redis_port, "flushall"])
        before = {name: spent_us(pids) for name, pids in cluster.processes().items()}  # of the node: nothing yet
        cluster.add_node(level="info")
        wait_until(lambda: cluster.nodes[0].metric("fantail_views_trusted") == 1, "the views to be loaded")
        loads = [json.loads(line) for line in cluster.nodes[0].log.read_text().splitlines() if '"the views are loaded"' in line]
        rates.append(rows * 1000 / max(int(loads[-1]["took_ms"]), 1))
        cpu.append({name: (spent_us(pids) - before[name]) / rows for name, pids in cluster.processes().items()})
        say(f"  load: {rates[-1]:,.0f} rows/s of {rows:,}; µs a row: " + ", ".join(f"{k} {v:.1f}" for k, v in cpu[-1].items()))
    spent = {f"load_us_{name}": statistics.median(c[name] for c in cpu) for name in cpu[0]}
    return {**spent, "load_rows": rows, "load_per_s": statistics.median(rates), "load_per_s_worst": min(rates)}


# ---- importing ----

def measure_import(cluster, rounds):
    """Rows a second by `fantail import` through the node: accounts, then follows by name."""
    rates, cpu = [], []
    for number in range(rounds):
        people, follows = max(cluster.followers // 4, 50), 20
        names = [f"imported{number}.{i}" for i in range(people)]
        lines = [json.dumps({"type": "account", "username": name}) for name in names]
        lines += [json.dumps({"type": "follow", "follower": names[i], "followee": names[(i + k * k) % people]})
                  for i in range(people) for k in range(1, follows + 1)]
        file = cluster.folder / "import.ndjson"
        file.write_text("\n".join(lines) + "\n")
        before = {name: spent_us(pids) for name, pids in cluster.processes().items()}
        began = time.monotonic()
        run([cluster.program, "import", file, "--data", cluster.nodes[0].data])
        rates.append(len(lines) / (time.monotonic() - began))
        cluster.await_drained()  # what the import leaves to be done is its cost, too
        cpu.append({name: (spent_us(pids) - before[name]) / len(lines) for name, pids in cluster.processes().items()})
        say(f"  import: {rates[-1]:,.0f} rows/s of {len(lines):,}; µs a row: " + ", ".join(f"{k} {v:.1f}" for k, v in cpu[-1].items()))
    spent = {f"import_us_{name}": statistics.median(c[name] for c in cpu) for name in cpu[0]}
    return {**spent, "import_per_s": statistics.median(rates), "import_per_s_worst": min(rates)}


# ---- memory ----

def redis_memory(cluster):
    """Bytes an entry of a home timeline costs Redis, its key and all."""
    def ask(*lines):
        out = run(["redis-cli", "-p", cluster.redis_port], input="\n".join(lines) + "\n").splitlines()
        return [int(line) if line.isdigit() else 0 for line in out if line]

    keys = run(["redis-cli", "-p", cluster.redis_port, "--scan", "--pattern", "t{*"]).split()[:2000]
    lengths = dict(zip(keys, ask(*(f"zcard {key}" for key in keys))))  # a dropped timeline is no sorted set
    sample = [key for key in keys if lengths[key] > ENTRIES][:500]
    used = ask(*(f"memory usage {key} samples 0" for key in sample))
    return {"redis_bytes_per_entry": sum(used) / max(sum(lengths[key] for key in sample), 1)}


# ---- all of it ----

PROCESSES = ("fantail", "redis", "postgres", "rabbitmq")


def compare(program, rounds, seconds, followers, posts, parts):
    numbers = {"load_at_start": os.getloadavg()[0], "followers": followers, "cores": os.cpu_count()}
    cluster = Cluster(program, followers, awake=bool({"fanout", "feed", "post", "two"} & set(parts)))
    rows = []

    def add(name, work, unit, peer, meter, more=None):
        numbers.update(meter.numbers(name), **(more or {}))
        rows.append((work, unit, numbers[f"{name}_per_s"], peer, numbers[f"{name}_peer_per_s"]))

    try:
        if {"fanout", "feed", "two"} & set(parts):
            fill_timelines(cluster)
        if "fanout" in parts:
            add("fanout", f"{AUTHORS} authors × {followers:,} followers", "deliveries/s", "Redis, pipelined by 500",
                measure_fan_out(cluster, rounds, posts), redis_memory(cluster))
        if "feed" in parts:
            meter, anew, more = measure_feed(cluster, rounds, seconds)
            add("feed", f"GET /v1/feed, 20 items, {CONNECTIONS} connections", "pages/s", "Redis, ids and cards only", meter, more)
            add("anew", "… each page drawn anew", "pages/s", "Redis, ids and cards only", anew)
        if "post" in parts:
            meter, more = measure_writes(cluster, rounds, seconds, "post", PEER_POST)
            add("post", f"POST /v1/posts, durable, {CONNECTIONS} connections", "posts/s", f"PostgreSQL, {DATABASE_CLIENTS} clients", meter, more)
        if "group" in parts:
            meter, more = measure_writes(cluster, rounds, seconds, "message", PEER_MESSAGE)
            add("group", f"one group, durable messages, {CONNECTIONS} connections", "messages/s", f"PostgreSQL, {DATABASE_CLIENTS} clients",
                meter, more)
        if "load" in parts:
            numbers.update(measure_load(cluster, rounds))
        if "import" in parts:
            numbers.update(measure_import(cluster, rounds))
        if "two" in parts:
            add("two", "two nodes: the fan-out again", "deliveries/s", "one node", two_nodes(cluster, rounds, posts))
    finally:
        cluster.close()
    numbers["load_at_end"] = os.getloadavg()[0]
    return rows, numbers


def print_spending(numbers):
    for name, unit in (("load", "rows/s from truth into empty views"), ("import", "rows/s by fantail import")):
        if f"{name}_per_s" in numbers:
            print(f"{numbers[f'{name}_per_s']:,.0f} {unit}, worst round {numbers[f'{name}_per_s_worst']:,.0f}")
    names = [name for name in ("fanout", "feed", "anew", "post", "group", "two") if f"{name}_ratio" in numbers]
    print(f"{'CPU µs a unit':<14}" + "".join(f"{p:>12}" for p in PROCESSES) + f"{'worst ratio':>14}")
    for name in names:
        if f"{name}_peer_us_redis" in numbers:
            print(f"{name + ', peer':<14}" + "".join(f"{numbers[f'{name}_peer_us_{p}']:>12.1f}" for p in PROCESSES))
        print(f"{name:<14}" + "".join(f"{numbers[f'{name}_us_{p}']:>12.1f}" for p in PROCESSES) + f"{numbers[f'{name}_ratio_worst']:>13.2f}×")
    print(f"load average {numbers['load_at_start']:.1f} before, {numbers['load_at_end']:.1f} after; {numbers['cores']} cores\n", flush=True)
