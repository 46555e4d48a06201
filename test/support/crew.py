"""Threads of a test, whose failures are the test's own.

    with Crew() as crew:
        crew.start(read)            # called again and again until the crew stops
        crew.start(read, times=5)   # or so many times
        …                           # what happens meanwhile
    # here all have ended, and the first failure among them was raised
"""

import threading


class Crew:
    def __init__(self):
        self.stop = threading.Event()
        self._threads = []
        self._failures = []

    def start(self, work, *arguments, times=None):
        def run():
            done = 0
            try:
                while (times is None and not self.stop.is_set()) or (times is not None and done < times):
                    work(*arguments)
                    done += 1
            except BaseException as failure:  # noqa: BLE001: it is raised again where the test sees it
                self._failures.append(failure)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.stop.set()
        for thread in self._threads:
            thread.join()
        if kind is None and self._failures:
            raise self._failures[0]


def together(work, each):
    """Calls work(x) for every x at the same time and returns when all are done."""
    with Crew() as crew:
        for one in each:
            crew.start(work, one, times=1)
