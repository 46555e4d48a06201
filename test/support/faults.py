"""Servers that die at a named point: a build with faults kills itself there (FANTAIL_FAULT)."""
import subprocess

from support.server import check, equal


def died(server, timeout_s):
    """Waits for its end, which must be that of the fault."""
    try:
        code = server.process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    server.process = None
    equal(code, -9, "the server ended by itself:\n" + server.log_tail())
    return True


def start_with_fault(server, point, occurrence):
    """True when it is up, False when it died on the way."""
    try:
        server.start(env={"FANTAIL_FAULT": f"{point}:{occurrence}"})
    except AssertionError as error:
        check("ended with -9" in str(error), str(error))
        return False
    return True
