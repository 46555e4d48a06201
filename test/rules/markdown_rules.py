#!/usr/bin/env python3
"""How the documents are set: lines wrap at 100 columns, cells of tables stay short, links lead to files that exist. Tables,
code blocks, and lines that a URL or a link makes long are excepted. Prints TAP."""
import json
import os
import pathlib
import re
import subprocess
import sys

os.chdir(pathlib.Path(__file__).resolve().parent.parent.parent)

COLUMNS, CELL = 100, 160
DOCUMENTS = [pathlib.Path(name) for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
DOCUMENTS = [path for path in DOCUMENTS if path.exists()] + sorted(pathlib.Path("docs").rglob("*.md"))
FENCE, TABLE = re.compile(r"^\s*(```|~~~)"), re.compile(r"^\s*\|")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose_and_tables(path):
    """("prose" | "table", number, line) outside of code."""
    in_fence, blank = False, True
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if FENCE.match(line):
            in_fence = not in_fence
        elif not in_fence and not (line.startswith("    ") and (blank == "code" or blank)):
            yield ("table" if TABLE.match(line) else "prose"), number, line
        blank = "code" if line.startswith("    ") and blank else not line.strip()


def cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def shown(cell):
    """What a reader sees of a cell: of a link, its text."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell)


long_lines, long_cells, broken = [], [], []
for path in DOCUMENTS:
    for kind, number, line in prose_and_tables(path):
        where = f"{path}:{number}"
        if kind == "prose" and len(line) > COLUMNS and not re.search(r"https?://\S{40,}|\]\(\S{30,}\)|<img ", line):
            long_lines.append(f"{where}: {len(line)} columns")
        if kind == "table":
            long_cells += [f"{where}: a cell of {len(shown(c))} characters" for c in cells(line) if len(shown(c)) > CELL]
        for target in LINK.findall(line):
            file = target.split("#")[0]
            if file and "://" not in file and not file.startswith("mailto:") and not (path.parent / file).exists():
                broken.append(f"{where}: {target}")



def tests():
    """Every test by the name that script/test prints: those of the build, and the scripts."""
    listed = subprocess.run(["meson", "introspect", "build", "--tests"], check=True, capture_output=True, text=True).stdout
    scripts = (f"{path.parent.name}/{path.name.removesuffix('_test.py')}" for path in pathlib.Path("test").glob("*/*_test.py"))
    return {test["name"] for test in json.loads(listed)} | set(scripts)


promises = pathlib.Path("docs/guarantees.md").read_text()
known, named = tests(), set(re.findall(r"`([a-z]+(?:/[a-z_]+)+)`", promises)) - {"script/test", "script/mutations"}
untested = [f"{name} is no test" for name in sorted(named - known)]
untested += [f"promise {number} names no test" for number, text in re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^#|\Z)", promises, re.M | re.S)
             if "Tests:" not in text]

# The walks of ARCHITECTURE name functions with their files: `pipe/relay.c` `engine_relay_step`.
walks = pathlib.Path("ARCHITECTURE.md").read_text()
lost = [f"{file} has no {name}" for file, name in re.findall(r"`([a-z_/]+\.[ch])`\s+`([a-z_]+)`", walks)
        if not re.search(rf"\b{name}\(", pathlib.Path("src", file).read_text())]
sources = "\n".join(path.read_text() for path in pathlib.Path("src").rglob("*.[ch]"))
lost += [f"no {name} in src/" for name in sorted(set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", walks))) if not re.search(rf"\b{name}\b", sources)]
bad = 0
checks = (("lines of documents wrap at 100 columns", long_lines), ("cells of tables have at most 160 characters", long_cells),
          ("links between documents lead to files that exist", broken),
          ("every promise names tests that exist", untested),
          ("what ARCHITECTURE walks along is there", lost))
for number, (name, complaints) in enumerate(checks, 1):
    print(f"{'not ok' if complaints else 'ok'} {number} - {name}")
    for complaint in complaints[:60]:
        print("#  ", complaint)
    bad += bool(complaints)
print(f"1..{len(checks)}")
sys.exit(bool(bad))
