"""The one way in which a test waits: for a state, with one generous limit.

    wait_for(path.exists, "the lock")               # what the condition returned, as soon as that is true
    wait_for(path.exists, "the lock", process)      # the same, while a process runs: its end is a failure

A test never waits for a time to pass, and never reads what another process may be writing without this. With
CCNN_TEST_SLOW=1 every condition is looked at late and seldom: whoever was faster may then be the other one.
"""
import os
import time
from pathlib import Path

LIMIT = 600             # seconds, on a machine however busy

SLOW = bool(os.environ.get("CCNN_TEST_SLOW"))


def wait_for(condition, what, process=None, limit=LIMIT):
    """What condition() returns, once that is true. AssertionError if it is not within the limit, or if the process, a
    Popen, ends before."""
    end = time.monotonic() + limit
    if SLOW:
        time.sleep(0.5)
    while True:
        ended = process is not None and process.poll() is not None      # first, so that what it did last counts
        if found := condition():
            return found
        assert not ended, f"{what}: the process ended before, with {process.returncode}: {process.communicate()}"
        assert time.monotonic() < end, f"{what}: not within {limit} s"
        time.sleep(0.5 if SLOW else 0.02)


def children(pid):
    """The process ids of the children of a process."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
