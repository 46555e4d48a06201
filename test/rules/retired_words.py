#!/usr/bin/env python3
"""Words that have been replaced do not come back: docs/glossary.md has the ones in use. Each row is a pattern, what to say
instead, and where it is retired; what may stay is listed below with its reason. Prints TAP."""
import functools
import os
import pathlib
import re
import sys

os.chdir(pathlib.Path(__file__).resolve().parent.parent.parent)

# Everything that is written for readers: sources with their settings, messages and metrics, and the documents.
DOCUMENTS = ("docs", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
ALL = ("src", *DOCUMENTS)
# Prose that names its actors; a folder joins when it does.
PLAIN = (*DOCUMENTS, "src/base", "src/ops", "src/bus", "src/cmd", "src/plan", "src/demo", "src/pipe", "src/api/render")
# Where a word is plain English elsewhere, only its use as a name is retired, or only where it had its old meaning.
RETIRED = [
    (r"inbox[-_]retention|INBOX_(DONE|UNKNOWN|CLAIMED)|pipe/inbox", "dedup", ALL),
    (r"inbox", "dedup", ("src/pipe",)),
    (r"(db|database|view|views|bus|card|cards|storage|truth)[ _-]engine|\bengines\b", "driver", ALL),
    (r"\bbooks?\b|\bbook_|_books?\b|\bbooked\b|\bbookings?\b", "delivery store, record", ALL),
    (r'(?<!in )(?<!in-)(?<!")\bflights?\b|\bflight_|(?<!in)_flight\b', "inflight", ALL),
    (r"\bseats?\b|_seats?\b|\bseat_", "slot", ALL),
    (r"\bunits? of work\b|\bwork units?\b|\bstruct unit\b", "work item", ("src/pipe", "src/bus", "src/port")),
    (r"\bowed\b", "ready", ("src/pipe",)),
    (r"\bmark\.[ch]\b|\bstruct mark\b|\b(save|engine)_mark\b|\bthe mark\b", "watermark", ("src/pipe", "src/node")),
    (r"hand_over|\bhand-over\b", "commit queue", ALL),
    (r"\bhints?\.[ch]|\bhints\b|\bhints_|\bstruct hint", "live events", ("src/live", "src/api", "src/node", *DOCUMENTS)),
    (r"\bstruct room\b|\broom_|\brooms\b", "topic", ("src/live", "src/api")),
    (r"\bguests?\b|_guests?\b|\bguest_", "subscriber", ALL),
    (r"\bnews\b|_news\b|\bnews_", "push message, signal, live event", ALL),
    (r"\bstruct watch\b|port/watch|watch_redis|\bwatch_(open|free|key)", "invalidation", ALL),
    (r"\bjourneys?\b|_journeys?\b|\bjourney_", "round trip", ALL),
    (r"\bdoubted\b|_doubt\b|\bdoubt_", "suspect", ALL),
    (r"\b(views|cards|signal)_(tell|hear|touch)\b", "publish, consume, invalidate", ALL),
    (r"\bopenings\b|_opening\b|\bopening_|\bstruct opening", "first statement",
     ("src/db", "src/port", "src/model", "src/api", *DOCUMENTS)),
    (r"\bbrakes?\b|_brake\b|\bbrake[-_]|BRAKED?\b|\bbraked\b", "overload guard", ALL),
    (r"\bdebts?\b|_debts?\b|\bdebt_", "pending invalidations", ALL),
    (r"\bspill(s|ed|ing)?\b|_spill\b|\bspill_", "local-first bus", ALL),
    (r"\bchores?\b|_chores?\b|\bchore_", "maintenance", ALL),
    (r"\bswitches\.[ch]|\bstruct switches|\bswitches_", "lane overrides", ALL),
    (r"\bgraves?\b|_graves?\b|\bgrave_|graveyard", "tombstones", ALL),
    (r"\bshel(f|ves)\b|_shelf\b|\bshelf_", "bucket cache", ALL),
    (r"\bact\.[ch]\b|pipe/act\b", "deliver_once", ALL),
    (r"\bunwell\b|\bfeels? well\b|_unwell\b", "failing, recovered", ALL),
    (r"\baside\b|_aside\b|\baside_", "quarantined; out of band", ("src/node", "src/pipe", "src/api", *DOCUMENTS)),
    (r"\bstruct edge\b|\bedge_(call|dispatch|new|free)", "dispatcher", ("src/api", "src/node")),
    (r"\bseen\.[ch]\b|\bVIEW_SEEN\b", "last seen", ALL),
    (r"\b([Ww]hoever|[Nn]obody|[Ee]verybody|[Ss]omebody|[Aa]nybody)\b", "the actor's name", PLAIN),
]
# The beginning of a path, a pattern that the line matches, why it may stay.
KEPT = [
    ("docs/adr/", r"", "a decision keeps the words of its time"),
    ("docs/glossary.md", r"", "the glossary names what it replaces"),
    ("src/demo/words.c", r"", "what people of the demo world say"),
    ("src/ops/settings.h", r'X\("(inbox-retention|brake-\w+)", ', "settings keep their old names for one version"),
    ("docs/operations.md", r"`(inbox-retention|brake-\w+)`", "settings keep their old names for one version"),
    ("src/view/redis/keys.h", r'"news\{fantail\}"', "the key's name in Redis, which nodes of the version before read"),
    ("src/node/peer.c", r'"aside"', "nodes of the version before say it"),
]


@functools.lru_cache(None)
def files(places):
    found = []
    for place in map(pathlib.Path, places):
        found += [place] if place.is_file() else sorted(place.rglob("*")) if place.is_dir() else []
    return [path for path in found if path.suffix in (".c", ".h", ".md", ".build", ".py", ".inc", ".sql", ".def")]


@functools.lru_cache(None)
def text_of(path):
    return path.read_text(errors="replace")


def is_kept(path, line):
    return any(str(path).startswith(file) and re.search(pattern, line) for file, pattern, _ in KEPT)


def main():
    bad = 0
    for number, (pattern, instead, places) in enumerate(RETIRED, 1):
        word = re.compile(pattern)
        found = [f"{path}:{at}: {line.strip()[:90]}" for path in files(places) if word.search(text_of(path))
                 for at, line in enumerate(text_of(path).splitlines(), 1)
                 if word.search(line) and not is_kept(path, line)]
        print(f"{'not ok' if found else 'ok'} {number} - {instead}: not /{pattern}/")
        for line in found[:20]:
            print("#  ", line)
        if len(found) > 20:
            print(f"#   and {len(found) - 20} more")
        bad += bool(found)
    print(f"1..{len(RETIRED)}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
