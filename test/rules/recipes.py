#!/usr/bin/env python3
"""Follows the recipes of CONTRIBUTING ("How to add ..."): each changes the files that it names and no other, at most three; the
program then builds, and what was added shows up in it. All recipes are followed in one scratch copy. Prints TAP."""
import collections
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILES_MAX = 3
Edit = collections.namedtuple("Edit", "file after text")  # after: a pattern; None: at the end; the file may be new
Recipe = collections.namedtuple("Recipe", "what edits")


def next_step():
    """The file of the schema's next step."""
    last = max(int(path.name.split("-")[0]) for path in (ROOT / "src/db/schema").glob("*.sql"))
    return f"src/db/schema/{last + 1:04}-recipes.sql"


RECIPES = [
    Recipe("a table", [
        Edit(next_step(), None, "-- Recipes.\nCREATE TABLE recipes (\n    id   INTEGER PRIMARY KEY,\n    body TEXT NOT NULL\n);\n")]),
    Recipe("a route", [
        Edit("src/api/edge/routes.def", None,
             'ROUTE(Accounts, GET, "/v1/recipe", recipe_show, READ, ANYONE, READ, NULL, NULL, 204, 0, "", "A recipe")\n'),
        Edit("src/api/resource/comments.c", None, "\nenum err recipe_show(struct call *c, struct tx *tx)\n{\n    (void)tx;\n"
             "    c->status = 204;\n    return OK;\n}\n")]),
    Recipe("a setting", [
        Edit("src/ops/settings.h", r"#define SETTINGS_TABLE\(X\)\s*\\\n",
             '    X(recipes_max, "recipes-max", NUMBER, "7", 1, 100, "recipes at most") \\\n')]),
    Recipe("a metric", [
        Edit("src/api/resource/metrics_rows.c", r"const struct metric metric_rows\[\] = \{\n",
             '    {"process", "recipes", "recipes", GAUGE, N(recipes), "Recipes that are known."},\n'),
        Edit("src/api/resource/metrics.h", r"struct numbers \{\n", "    uint64_t recipes;\n"),
        Edit("src/api/resource/metrics.c", r"(?=        \.shed = )", "        .recipes = 7,\n")]),
    Recipe("an event with rule and sink", [
        Edit("src/port/event.h", r"#define EVENT_TABLE\(X\)\s*\\\n", '    X(RECIPE_WRITTEN, "recipe.written", 1, STORED) \\\n'
             '    X(RECIPE_DUE, "recipe.due", 1, STORED) \\\n'),
        Edit("src/model/rules.def", None,
             '\nRULE(sink_recipe,\n     .consumer = "recipes",\n     .on = EVENT_RECIPE_WRITTEN,\n     .audience = TO_ACTOR,\n'
             '     .lane = LANE_GRAPH,\n     .batch = 1,\n     .priority = PRIORITY_LOW,\n     .effect = EFFECT_VIEWS,\n'
             '     .late_means = "dinner waits")\n'
             # A new account sets a timer; when it is due, the cook and a guest get something from outside.
             '\nTX_RULE(sink_recipe_timer,\n     .consumer = "recipe_timers",\n     .on = EVENT_ACCOUNT_CREATED,\n'
             '     .audience = TO_ACTOR,\n     .lane = LANE_PURGE,\n     .batch = 1,\n     .priority = PRIORITY_NORMAL,\n'
             '     .effect = EFFECT_TRUTH,\n     .dedup = DEDUP_BY_EVENT,\n     .late_means = "the water boils later")\n'
             '\nAUDIENCE(audience_table)\nOUTSIDE_RULE(send_recipe,\n     .consumer = "recipe_mails",\n'
             '     .on = EVENT_RECIPE_DUE,\n     .audience = &audience_table,\n     .lane = LANE_OUTSIDE,\n     .batch = 8,\n'
             '     .priority = PRIORITY_NORMAL,\n     .effect = EFFECT_OUTSIDE,\n     .channel = "recipes",\n'
             '     .dedup = DEDUP_BY_EVENT,\n     .late_means = "dinner is late")\n'),
        Edit("src/model/sinks.c", None,
             '\n#include "base/log.h"\n#include "port/timer.h"\n'
             "enum err sink_recipe_timer(struct tx *tx, struct sink_env *env, const struct event *e, uint64_t member,\n"
             "                           struct sink_result *result)\n{\n"
             "    struct event due = {.type = EVENT_RECIPE_DUE, .actor = member, .subject = 7};\n    (void)e;\n"
             "    result->delivered = 1;\n    return timer_set(tx, &due, member, clock_wall_ms(env->clock) + 50);\n}\n"
             "\nstatic void give_table(struct sink_env *env, const struct event *const *events, struct audience_page *pages,\n"
             "                       size_t n)\n{\n    (void)env;\n    for (size_t i = 0; i < n; i++) {\n"
             "        pages[i].members[0] = events[i]->actor;\n        pages[i].members[1] = events[i]->subject;\n"
             "        pages[i].n = 2;\n        pages[i].cursor.end = true;\n        pages[i].error = OK;\n    }\n}\n"
             'const struct audience audience_table = {.name = "table", .pages = give_table};\n'
             "\nvoid send_recipe(struct sink_env *env, struct outside_call *call)\n{\n    (void)env;\n"
             '    log_info("a recipe was sent", LOG_ID("cook", call->event->actor), LOG_ID("to", call->member));\n'
             "    call->result.delivered = 1;\n    outside_end(call, OK);\n}\n"
             "\nenum err sink_recipe(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,\n"
             "                     struct sink_result *result)\n{\n    (void)env, (void)e, (void)members;\n"
             "    result->delivered = n;\n    return OK;\n}\n")]),
    Recipe("a background step", [
        Edit("src/node/steps.c", r"#define STEP_TABLE\(X\)\s*\\\n",
             "    X(recipes, ANY, 0, false, 5, 1, RUN_BY_CLOCK, maintenance_recipe_step(KEEP)) \\\n"),
        Edit("src/node/maintenance.h", None, "\nint64_t maintenance_recipe_step(struct maintenance *c);\n"),
        Edit("src/node/maintenance.c", None,
             '\nint64_t maintenance_recipe_step(struct maintenance *c)\n{\n'
             '    log_info("a recipe was cooked");\n    return clock_mono_us(c->api->clock) + INT64_C(3600000000);\n}\n')]),
    Recipe("an operation of a view", [
        Edit("src/port/timelines.h", r"struct timelines_ops \{\n", "    enum err (*recipe)(struct timelines *t);\n"),
        Edit("src/view/memory/timelines.c", r"(?=const struct timelines_ops memory_timelines_ops = \{\n)",
             "static enum err recipe(struct timelines *t)\n{\n    (void)t;\n    return OK;\n}\n\n"),
        Edit("src/view/redis/timelines.c", r"(?=const struct timelines_ops redis_timelines_ops = \{\n)",
             "static enum err recipe(struct timelines *t)\n{\n    (void)t;\n    return OK;\n}\n\n")]),
]
# The second change of a file that a recipe changed before, in the same place.
ROWS = [Edit(f"src/view/{name}/timelines.c", rf"const struct timelines_ops {name}_timelines_ops = \{{\n", "    .recipe = recipe,\n")
        for name in ("memory", "redis")]


class Results:
    def __init__(self):
        self.count = self.bad = 0

    def tell(self, what, trouble):
        self.count += 1
        self.bad += bool(trouble)
        print(f"{'not ok' if trouble else 'ok'} {self.count} - {what}")
        for line in str(trouble or "").splitlines()[-40:]:
            print("#  ", line)


def copy_tree(target):
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True,
                           capture_output=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def apply(tree, edit):
    """Why it cannot be made, or None."""
    path = tree / edit.file
    if edit.after is None:
        path.write_text((path.read_text() if path.exists() else "") + edit.text)
        return None
    source = path.read_text() if path.exists() else ""
    found = list(re.finditer(edit.after, source))
    if len(found) != 1:
        return f"{edit.file} has the place /{edit.after}/ {len(found)} times"
    path.write_text(source[:found[0].end()] + edit.text + source[found[0].end():])
    return None


def is_named(file, what, contributing):
    """Does the row of the table under "How to add" name the file? By its path, with NOUN, NNNN or name for what is new; by its
    name alone, its folder or its ending; or as the port's header."""
    row = re.search(rf"^\| {re.escape(what)} \|(.*)\|$", contributing, re.M)
    if not row:
        return False
    for word in re.findall(r"`([^`]+)`", row[1]):
        pattern = re.sub(r"NOUN|NNNN|\bname\b", r"\\w+", re.escape(word))
        if re.fullmatch(pattern, file) or pathlib.Path(file).name == word or file.startswith(word + "/") or \
                (word in (".c", ".h") and file.endswith(word)):
            return True
    return "the port's header" in row[1] and file.startswith("src/port/")


def build(tree):
    env = dict(os.environ, CCACHE_BASEDIR=str(tree), CCACHE_NOHASHDIR="1")
    for command in (["meson", "setup", "build"], ["ninja", "-C", "build", "fantail"]):
        done = subprocess.run(command, cwd=tree, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            return done.stdout
    return None


class Served:
    """The program that was built, serving; everything ends with it."""

    def __init__(self, tree):
        self.tree, self.data = tree, tree / "data"
        self.program = str(tree / "build" / "fantail")
        self.log_path = tree / "log"

    def __enter__(self):
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([self.program, "serve", "--data", self.data, "--listen", "127.0.0.1:0"],
                                            stdout=log, stderr=log)
        until = time.monotonic() + 60
        while not (found := re.search(r'"port":(\d+)', self.log())):
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit("not ok - the program does not serve:\n" + self.log())
            time.sleep(0.02)
        self.url = f"http://127.0.0.1:{found[1]}"
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return answer.status, answer.read().decode()

    def sign_up(self, name):
        body = json.dumps({"username": name, "password": "correct horse battery"}).encode()
        request = urllib.request.Request(self.url + "/v1/accounts", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["account"]["id"]

    def await_log(self, pattern):
        """What the log says that matches, once it does; None: it does not, in time."""
        until = time.monotonic() + 60
        while not (found := re.findall(pattern, self.log())) and time.monotonic() < until:
            time.sleep(0.02)
        return found

    def run(self, *words):
        return subprocess.run([self.program, *words, "--data", self.data], capture_output=True, text=True, timeout=60).stdout


def shows_up(served):
    """(recipe, what is missing or None) once the program serves. Of an operation of a view nothing shows but that it builds."""
    tables = sqlite3.connect(f"file:{served.data}/fantail.db?mode=ro", uri=True)
    sqlite = [row[0] for row in tables.execute("SELECT name FROM sqlite_master")]
    tables.close()
    steps = (served.tree / "build/src/db/schema_steps.c").read_text()
    yield "a table", None if "recipes" in sqlite and "CREATE TABLE recipes ( id BIGINT PRIMARY KEY" in steps else steps[-500:]
    paths = json.loads(served.get("/openapi.json")[1])["paths"]
    yield "a route", None if "/v1/recipe" in paths and served.get("/v1/recipe")[0] == 204 else sorted(paths)
    config = served.run("config")
    yield "a setting", None if re.search(r"^recipes-max\s.*\b7\b", config, re.M) else config
    metrics = served.get("/metrics")[1]
    yield "a metric", None if re.search(r"^fantail_recipes 7$", metrics, re.M) else metrics[:2000]
    yield "an event with rule and sink", None if 'consumer="recipes"' in metrics else metrics[-2000:]
    cook = served.sign_up("cook")
    sent = served.await_log(rf'a recipe was sent","cook":"{cook}","to":"7"')
    yield "its timer, its audience and its effect outside", None if sent else served.log()
    yield "a background step", None if served.await_log("a recipe was cooked") else served.log()


def main():
    results = Results()
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    with tempfile.TemporaryDirectory(prefix="fantail-recipes-") as folder:
        tree = pathlib.Path(folder)
        copy_tree(tree)
        for recipe in RECIPES:
            trouble = [why for edit in recipe.edits for why in [apply(tree, edit)] if why]
            named = {edit.file for edit in recipe.edits}
            if len(named) > FILES_MAX:
                trouble.append(f"it touches {len(named)} files")
            trouble += [f"CONTRIBUTING's row for {recipe.what} does not name {file}" for file in sorted(named)
                        if not is_named(file, recipe.what, contributing)]
            results.tell(f"{recipe.what} touches {len(named)} files", "\n".join(trouble))
        trouble = "\n".join(why for edit in ROWS for why in [apply(tree, edit)] if why)
        results.tell("all of it builds", trouble or build(tree))
        if not results.bad:
            with Served(tree) as served:
                for what, missing in shows_up(served):
                    results.tell(f"{what} shows up", missing)
    print(f"1..{results.count}")
    return 1 if results.bad else 0


if __name__ == "__main__":
    sys.exit(main())
