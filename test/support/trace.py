"""A server whose system calls are made to fail or to kill it, by strace."""

import contextlib
import os
import shlex
import shutil
import stat
import tempfile

from support.server import program


@contextlib.contextmanager
def traced(server, *options):
    """Whatever is started inside runs under strace with these options. The tracer stays in the background (-D), so that
    server.process is the server itself."""
    check_installed()
    folder = tempfile.mkdtemp(prefix="fantail-trace-")
    script = os.path.join(folder, "fantail")
    # Stopping at the traced calls alone is much faster, but a signal cannot be delivered from such a stop.
    fast = [] if any("signal=" in option for option in options) else ["--seccomp-bpf"]
    words = ["exec", "strace", "-D", "-f", "-qq", *fast, "-o", "/dev/null", *map(shlex.quote, options),
             shlex.quote(os.path.abspath(program()))]
    with open(script, "w") as file:
        file.write("#!/bin/sh\n" + " ".join(words) + ' "$@"\n')
    os.chmod(script, os.stat(script).st_mode | stat.S_IXUSR)
    before = os.environ.get("FANTAIL")
    os.environ["FANTAIL"] = script
    try:
        yield server
    finally:
        if before is None:
            del os.environ["FANTAIL"]
        else:
            os.environ["FANTAIL"] = before
        shutil.rmtree(folder, ignore_errors=True)


def check_installed():
    if not shutil.which("strace"):
        raise AssertionError("strace is missing: script/bootstrap --test installs it")
