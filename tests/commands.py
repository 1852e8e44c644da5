"""A command as a user types it, but in this process."""
import contextlib
import io
import logging
import sys
from collections import namedtuple

from ccnn.cli import main

Done = namedtuple("Done", "status out err")


def run_command(*words):
    """`ccnn WORDS`: its exit status, and what it wrote to stdout and stderr."""
    log, argv, out, err = logging.getLogger("ccnn"), sys.argv, io.StringIO(), io.StringIO()
    before = log.handlers[:], log.level
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main([*map(str, words)])
    except SystemExit as end:
        return Done(end.code or 0, out.getvalue(), err.getvalue())
    finally:
        sys.argv = argv
        log.handlers[:] = before[0]
        log.setLevel(before[1])
