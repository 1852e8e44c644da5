"""Prepare samples in a process of their own while Caffe computes."""
import contextlib
import fcntl
import itertools
import os
import pickle
import signal
import sys
import traceback

from ccnn._util.errors import UserError

F_SETPIPE_SZ = 1031     # fcntl has this name from Python 3.10 on


def read_ahead(samples, start, step=1):
    """Yield samples[start], samples[start + step], ...; a child process prepares the next ones.

    A thread would not do: under `caffe train` the main thread holds the interpreter's lock while Caffe computes. The
    child writes into a pipe, and so it is ahead by what the pipe holds. It ends when this generator is closed, or when
    this process has ended, however that happened, because nobody can read the pipe any more.
    (Caffe never frees a Python layer.)
    """
    reader, writer = os.pipe()
    with contextlib.suppress(OSError):
        # Room for a whole image. With the usual 64 KB the two processes take turns and are 25 times as slow.
        # (Only Linux has this; an ordinary user may ask for 1 MB.)
        fcntl.fcntl(writer, F_SETPIPE_SZ, 1 << 20)
    sys.stderr.flush()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            write_samples(samples, itertools.count(start, step), writer)
        finally:
            os._exit(0)
    os.close(writer)
    try:
        with open(reader, "rb") as pipe:
            while True:
                try:
                    message = pickle.load(pipe)
                except EOFError:
                    raise UserError("the process that reads the images was ended; is there enough memory?") from None
                if isinstance(message, Exception):
                    raise message
                yield message
    finally:
        # The child may not notice that the pipe is closed, because later children have inherited this end of it.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def write_samples(samples, numbers, writer):
    """Write every sample, or the exception that it raised, into the pipe."""
    # ^C and hang-up are for Caffe, which writes a snapshot and may continue
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with open(writer, "wb") as pipe:
        for t in numbers:
            try:
                message = samples[t]
            except UserError as error:
                message = error
            except Exception:
                message = RuntimeError(traceback.format_exc())
            pickle.dump(message, pipe, protocol=5)
            pipe.flush()
