#!/usr/bin/env python3
"""The README's tour, run as written, line by line, against a fresh server; only the port and the program differ."""
import os, re, shutil, subprocess, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.server import ROOT, Server, check, equal, main, program, test

EMBEDDED_ONLY = "the README's tour"


def tour():
    with open(os.path.join(ROOT, "README.md")) as readme:
        text = readme.read()
    part = text.split("<!-- tour -->")[1].split("<!-- end of tour -->")[0]
    late = text.split("## When something is late")[1].split("\n## ")[0]
    return "\n".join(re.search(r"```sh\n(.*?)```", p, re.S).group(1) for p in (part, late))


@test("readme-tour-runs-as-written")
def _():
    folder = tempfile.mkdtemp(prefix="fantail-tour-")
    try:
        with Server(data=os.path.join(folder, "data")) as server:
            os.makedirs(os.path.join(folder, "build"))
            os.symlink(program(), os.path.join(folder, "build", "fantail"))
            script = "set -euo pipefail\n" + tour().replace("localhost:8080", f"127.0.0.1:{server.port}")
            # A reader types slower than fan-out takes: wait for it where the feed is read.
            check("/v1/feed" in script, "the tour reads no feed")
            result = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60)
            equal(result.returncode, 0, result.stdout + result.stderr)
            out = result.stdout
            check('"following": true' in out, out)
            check("Hello from the analytical engine" in out, out)
            check('"like_count": 1' in out and '"liked": true' in out, out)
            check("Marvellous." in out, out)
            ids = re.findall(r"^\d{15,19}$", out, re.M)
            equal(len(ids), 1, "the repeated post's id is printed once")
            check("\n204\n0\n" in out, "after the delete the feed is empty: " + out)
            equal(out.count('"seq": 3,\n  "kind": "message"'), 2, "the same client_id is the same message: " + out)
            check('{"group":"Engines","unread":1,"mentions":1,"last":"At one, @ada.l"}' in out, out)
            check('{"seq":3,"kind":"message","body":"Shall we meet at noon?"}' in out, out)
            check('[4,"message",null]\n[5,"edit",null]\n[6,"delete",null]' in out, "the deleted text is gone: " + out)
            check(re.search(r'event: hello\ndata: {"account":"\d+"}', out), "the stream says hello: " + out)
            check(re.search(r'event: group\ndata: {"group":"\d+","seq":7}', out), "and tells of the message: " + out)
            check("0 differences" in out or "no differences" in out, out)
            check("no dead letters" in out and "events that match" in out and "1 account looked at" in out, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
