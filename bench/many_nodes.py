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
ANALYZE;
"""
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
    def __init__(self, cluster, number):
        self.data = cluster.folder / f"node{number}"
        self.log = cluster.folder / f"node{number}.log"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        words = [cluster.program, "serve", "--data", self.data, "--listen", f"127.0.0.1:{self.port}", "--db", cluster.urls["postgres"],
                 "--views", cluster.urls["redis"], "--bus", cluster.urls["rabbitmq"], "--log-level", "warn",
                 "--celebrity-threshold", "1000000000", "--celebrity-adaptive", "off", "--rate-write", "0"]
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

    def __init__(self, program, followers):
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
            say("waking everybody")
            words = ["key", "create", "--scope", "act", "--name", "bench", "--data", self.nodes[0].data]
            self.key = run([self.program, *words]).strip()
            self.wake_everybody()
        except BaseException:
            self.close()
            raise

    def build_peers(self):
        flags = ["-O2", "-std=c11", "-D_GNU_SOURCE", "-pthread", f"-I{ROOT / 'src'}"]
        base = [ROOT / "src" / "base" / f"{name}.c" for name in ("clock", "hist", "check", "log", "str", "buf", "json_out")]
        run(["cc", *flags, "-o", self.folder / "redis_peer", ROOT / "bench/peers/redis_peer.c"])
        run(["cc", *flags, "-o", self.folder / "http_load", ROOT / "bench/peers/http_load.c", ROOT / "src/bench/http_load.c", *base])

    def add_node(self):
        self.nodes.append(Node(self, len(self.nodes) + 1))
        wait_until(lambda: self.total("fantail_node_leads") == 1, "a leader")

    def drop_node(self):
        self.nodes.pop().stop()

    def write_world(self):
        """Rows straight into truth, before there is a node: the leader's first act is to load the views from there."""
        say(f"writing {self.followers * AUTHORS + POSTERS * POSTER_FOLLOWERS:,} follows")
        run([self.program, "migrate", "--db", self.urls["postgres"], "--data", self.folder / "none"])
        self.sql(self.urls["postgres"], WORLD.format(followers=self.followers, authors=AUTHORS, posters=POSTERS, each=POSTER_FOLLOWERS,
                                                     now_ms=int(time.time() * 1000)))
        files = (("followers", "follower", self.followers), ("readers", "follower", READERS), ("posters", "poster", POSTERS))
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
        file = cluster.folder / {"post": "posters", "feed": "readers", "anew": "readers"}.get(what, what)
        kind = what if what in ("post", "anew") else "feed"
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


def pgbench(cluster, seconds):
    script = cluster.folder / "post.sql"
    script.write_text(PEER_POST.format(posters=POSTERS, caption=CAPTION, payload=PAYLOAD))
    out = run(["pgbench", "-n", "-M", "prepared", "-c", DATABASE_CLIENTS, "-j", CLIENT_THREADS, "-T", seconds, "-f", script,
               peer_database(cluster)])
    return float(next(line.split()[2] for line in out.splitlines() if line.startswith("tps = ")))


def peer_database(cluster):
    return cluster.urls["postgres"].rsplit("/", 1)[0] + "/peer"


def measure_post(cluster, rounds, seconds):
    meter, drains = Meter(cluster), []
    cluster.sql(cluster.urls["postgres"], "CREATE DATABASE peer")
    cluster.sql(peer_database(cluster), PEER_SCHEMA.format(posters=POSTERS))
    p99 = []
    for _ in range(rounds):
        with meter.spending() as counted:
            got = http_load(cluster, "post", seconds)
            began = time.monotonic()
            cluster.await_drained()
            drains.append(time.monotonic() - began)
            counted["units"] = got["per_s"] * (seconds + 0.3)
        meter.ours.append(got["per_s"])
        p99.append(got["p99_ms"])
        with meter.spending(peer=True) as counted:
            meter.theirs.append(pgbench(cluster, seconds))
            counted["units"] = meter.theirs[-1] * seconds
        say(f"  posts: {meter.ours[-1]:,.0f}/s, PostgreSQL alone {meter.theirs[-1]:,.0f}/s")
    return meter, {"post_p99_ms": statistics.median(p99), "post_drain_s": max(drains)}


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
    cluster = Cluster(program, followers)
    rows = []

    def add(name, work, unit, peer, meter, more=None):
        numbers.update(meter.numbers(name), **(more or {}))
        rows.append((work, unit, numbers[f"{name}_per_s"], peer, numbers[f"{name}_peer_per_s"]))

    try:
        fill_timelines(cluster)
        if "fanout" in parts:
            add("fanout", f"{AUTHORS} authors × {followers:,} followers", "deliveries/s", "Redis, pipelined by 500",
                measure_fan_out(cluster, rounds, posts), redis_memory(cluster))
        if "feed" in parts:
            meter, anew, more = measure_feed(cluster, rounds, seconds)
            add("feed", f"GET /v1/feed, 20 items, {CONNECTIONS} connections", "pages/s", "Redis, ids and cards only", meter, more)
            add("anew", "… each page drawn anew", "pages/s", "Redis, ids and cards only", anew)
        if "post" in parts:
            meter, more = measure_post(cluster, rounds, seconds)
            add("post", f"POST /v1/posts, durable, {CONNECTIONS} connections", "posts/s", f"PostgreSQL, {DATABASE_CLIENTS} clients", meter, more)
        if "two" in parts:
            add("two", "two nodes: the fan-out again", "deliveries/s", "one node", two_nodes(cluster, rounds, posts))
    finally:
        cluster.close()
    numbers["load_at_end"] = os.getloadavg()[0]
    return rows, numbers


def print_spending(numbers):
    names = [name for name in ("fanout", "feed", "anew", "post", "two") if f"{name}_ratio" in numbers]
    print(f"{'CPU µs a unit':<14}" + "".join(f"{p:>12}" for p in PROCESSES) + f"{'worst ratio':>14}")
    for name in names:
        if f"{name}_peer_us_redis" in numbers:
            print(f"{name + ', peer':<14}" + "".join(f"{numbers[f'{name}_peer_us_{p}']:>12.1f}" for p in PROCESSES))
        print(f"{name:<14}" + "".join(f"{numbers[f'{name}_us_{p}']:>12.1f}" for p in PROCESSES) + f"{numbers[f'{name}_ratio_worst']:>13.2f}×")
    print(f"load average {numbers['load_at_start']:.1f} before, {numbers['load_at_end']:.1f} after; {numbers['cores']} cores\n", flush=True)
