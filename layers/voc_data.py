"""Data layers: every iteration one image of a data set, or its cached features, with its supervision.

A layer begins with sample t = CCNN_START_ITERATION, an environment variable: the number of samples used already, that
is iterations times iter_size; 0 if it is not set. Sample t depends on nothing but the settings and t. A run that is
resumed therefore sees what an uninterrupted run would have seen. Where N solvers train together, solver r takes every
N-th sample, from r on, as Caffe's own data layer does. Nets in the TEST phase begin with sample 0 and take all.
"""
import itertools
import json
import os
import sys

import caffe
from read_ahead import read_ahead
from reporting import Reporting

from ccnn._util.errors import UserError
from ccnn.data.float16 import widen
from ccnn.data.samples import FeatureSamples, Samples
from ccnn.images.reading import to_blob


class VOCDataLayer(Reporting, caffe.Layer):
    """One image, of any size, with its supervision.

    no bottom
    top[k]     1 x the shape of tops[k]: `data` is 3 x H x W, BGR, mean subtracted; the others are blobs of
               ccnn.supervision.kinds
    param_str  JSON: the settings of ccnn.data.samples.Samples
    """

    Samples = Samples
    stream = staticmethod(read_ahead)

    def setup(self, bottom, top):
        self.samples = self.Samples(self.param_str)
        self.tops = self.samples.tops
        if len(bottom) or len(top) != len(self.tops):
            raise UserError(f"{type(self).__name__}: \"tops\": {json.dumps(self.tops)} needs {len(self.tops)} tops "
                            f"and no bottom; the layer has {len(top)} and {len(bottom)}")
        start, rank, solvers = "0", 0, 1
        if self.phase == caffe.TRAIN:
            start = os.environ.get("CCNN_START_ITERATION", "0")
            rank, solvers = caffe.solver_rank(), caffe.solver_count()
        if not start.isdecimal():
            raise UserError(f"CCNN_START_ITERATION must be a number of samples, 0 or more; got {start!r}")
        self.queue = self.stream(self.samples, int(start) + rank, solvers)
        self.sample = None
        self.skipped = 0

    def reshape(self, bottom, top):
        if self.sample is None:     # Caffe also reshapes after setup; only a forward pass uses the sample up
            self.sample, skipped = next(self.queue)
            for reason in skipped:
                self.skipped += 1
                print(f"{type(self).__name__}: skipped ({self.skipped} so far): {reason}", file=sys.stderr, flush=True)
        for k, name in enumerate(self.tops):        # Caffe's vector of blobs can be indexed, not iterated
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
    """The same with cached features: the settings of ccnn.data.samples.FeatureSamples.

    To read features takes less time than to send them from one process to another, so nothing is read ahead.
    """

    Samples = FeatureSamples
    stream = staticmethod(lambda samples, start, step: map(samples.__getitem__, itertools.count(start, step)))
