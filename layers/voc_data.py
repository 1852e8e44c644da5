"""Data layers: every iteration one image of a VOC folder, or its cached features, with its supervision.

Sample t is a pure function of (seed, t), crop and mirroring included, so a run that is resumed at t sees what
an uninterrupted one would have seen. The layers begin at t = CCNN_START_ITERATION (environment; the number of
samples already used, i.e. iterations times iter_size; 0 if not set). Nets in the TEST phase always begin at 0.
"""
import contextlib
import fcntl
import itertools
import json
import os
import pickle
import signal
import sys
import traceback

import caffe
import numpy as np
from reporting import Reporting

from ccnn.errors import UserError
from ccnn.images import to_blob
from ccnn.samples import FeatureSamples, Samples

F_SETPIPE_SZ = 1031     # fcntl has the name from Python 3.10 on


def read_ahead(samples, start):
    """Yield samples[start], samples[start + 1], ...; a child process prepares each while the last one is in use.

    Not a thread: under `caffe train` the main thread keeps the interpreter's lock while Caffe computes. The child
    writes into a pipe and so gets ahead by what that holds. It ends when this process does, however that ends, as
    nobody can read any more; or when this generator is closed. (Caffe never frees a Python layer.)
    """
    reader, writer = os.pipe()
    with contextlib.suppress(OSError):
        # Room for a whole image: with the usual 64 KB the two processes take turns, 25 times as slow. (Linux; an
        # ordinary user may ask for 1 MB.)
        fcntl.fcntl(writer, F_SETPIPE_SZ, 1 << 20)
    sys.stderr.flush()
    child = os.fork()
    if not child:
        try:
            # ^C and hang-up are for Caffe, which answers with a snapshot and may go on
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.close(reader)
            with open(writer, "wb") as pipe:
                for t in itertools.count(start):
                    try:
                        message = samples[t]
                    except UserError as error:
                        message = error
                    except Exception:
                        message = RuntimeError(traceback.format_exc())
                    pickle.dump(message, pipe, protocol=5)
                    pipe.flush()
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
        # it may not notice that the pipe is closed: later children have inherited this end
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def widen(half, out):
    """float16 to float32, finite values only, eight times as fast as NumPy 1.26 does it: shift exponent and fraction
    to their places, clear the copies of the sign, and mend the exponent's bias of 15, which should be 127."""
    bits = out.view(np.int32)
    np.left_shift(half.view(np.int16), 13, out=bits, dtype=np.int32)
    np.bitwise_and(bits, ~np.int32(0x70000000), out=bits)
    np.multiply(out, np.float32(2.0 ** 112), out=out)


class VOCDataLayer(Reporting, caffe.Layer):
    """One image, of any size, with its supervision.

    no bottom
    top[k]     1 x the shape of tops[k], see Samples
    param_str  JSON: the settings of Samples
    """

    Samples = Samples
    stream = staticmethod(read_ahead)

    def setup(self, bottom, top):
        self.samples = self.Samples(self.param_str)
        self.tops = self.samples.tops
        if len(bottom) or len(top) != len(self.tops):
            raise UserError(f"{type(self).__name__}: \"tops\": {json.dumps(self.tops)} needs {len(self.tops)} tops "
                             f"and no bottom; the layer has {len(top)} and {len(bottom)}")
        start = os.environ.get("CCNN_START_ITERATION", "0") if self.phase == caffe.TRAIN else "0"
        if not start.isdecimal():
            raise UserError(f"CCNN_START_ITERATION must be a number of samples, 0 or more; got {start!r}")
        self.queue = self.stream(self.samples, int(start))
        self.sample = None
        self.skipped = 0

    def reshape(self, bottom, top):
        if self.sample is None:         # Caffe reshapes after setup and before every forward; only that uses it up
            self.sample, skipped = next(self.queue)
            for reason in skipped:
                self.skipped += 1
                print(f"{type(self).__name__}: skipped ({self.skipped} so far): {reason}", file=sys.stderr, flush=True)
        for k, name in enumerate(self.tops):        # (Caffe's vector of blobs can be indexed, not iterated)
            shape = self.sample[name].shape
            top[k].reshape(1, *(shape[2:] + shape[:2] if name == "data" else shape))

    def forward(self, bottom, top):
        for k, name in enumerate(self.tops):
            value, blob = self.sample[name], top[k].data[0]
            if name == "features":
                widen(value, blob)
            else:
                blob[...] = to_blob(value) if name == "data" else value
        self.sample = None

    def backward(self, top, propagate_down, bottom):
        pass


class FeatureDataLayer(VOCDataLayer):
    """The same from cached features: tops and settings of FeatureSamples.

    Reading them takes less time than passing them between processes would, so nothing is read ahead.
    """

    Samples = FeatureSamples
    stream = staticmethod(lambda samples, start: map(samples.__getitem__, itertools.count(start)))
