"""What every loss layer shares: settings, checks of the blobs, the mean over a batch, the loss weight."""
import contextlib

import caffe
import numpy as np
from reporting import Reporting

from ccnn._util.errors import UserError
from ccnn._util.settings import read_settings
from ccnn.supervision.kinds import TAGS_BLOB

LARGEST = float(np.finfo(np.float32).max)       # the largest number that a blob can hold


class LossLayer(Reporting, caffe.Layer):
    """The mean over the images of a batch of a loss that one image defines.

    bottom[0]  scores  N x L x H x W
    bottom[1]  tags    N x L, 1 where a label is in the image; the background, label 0, always is, but -1 says: not
    top[0]     loss    mean over the images
    param_str  JSON: the settings

    A subclass has SETTINGS, a table as in ccnn._util.settings, and image_loss(k, f, diff, bottom): the loss of image k
    with scores f (L x n), which fills diff (L x n) with its gradient. UserError ends the training: a wrong setting,
    NaN scores. `caffe train` then prints the error's line and stops; the snapshots that it wrote stay as they are.
    """

    SETTINGS = {}
    given = (TAGS_BLOB,)         # the bottoms after the scores; `blobs` would hide those of caffe.Layer: the weights
    scale = 1.0             # factor of loss and gradient

    def setup(self, bottom, top):
        self.forwards = 0
        self.shapes = None
        self.settings = self.read_settings()
        self.check_blobs(len(bottom), len(top))

    # Checks

    def read_settings(self):
        """The settings in param_str. Wrong ones fail here, not at iteration 1."""
        return read_settings(self.param_str, self.SETTINGS, type(self).__name__)

    @property
    def inputs(self):
        """The names of the bottoms."""
        return ["scores", *(blob.name for blob in self.given)]

    def check_blobs(self, bottoms, tops):
        """Fail unless the layer has the right number of bottoms and tops."""
        if bottoms != len(self.inputs) or tops != 1:
            self.fail(f"takes bottoms {', '.join(self.inputs)} and one top; got {bottoms} and {tops}")

    def reshape(self, bottom, top):
        shapes = [bottom[i].data.shape for i in range(len(bottom))]
        if shapes != self.shapes:                       # Caffe calls reshape before every forward pass
            self.fit(shapes, top)

    def fit(self, shapes, top):
        """Check blobs of new shapes, and shape the tops."""
        scores = shapes[0]
        if len(scores) != 4 or not np.prod(scores):
            self.fail(f"scores must be N x L x H x W; got shape {scores}")
        for blob, shape in zip(self.given, shapes[1:]):
            if not blob.fits(shape, *scores):
                self.fail(f"{blob.name} must be {blob.words(*scores)} ({blob.meaning}) for scores of "
                          f"{' x '.join(map(str, scores))}; got shape {shape}")
        self.shapes = shapes
        self.probe = slice(None, None, np.prod(scores) // 32 + 1)
        top[0].reshape(1)

    def where(self, k):
        return f"forward pass {self.forwards} of this run, image {k} of the batch"

    def fail(self, problem):
        raise UserError(f"{type(self).__name__}: {problem}")

    # Loss and gradient

    def forward(self, bottom, top):
        self.forwards += 1
        images, labels, height, width = self.shapes[0]
        f = bottom[0].data.reshape(images, labels, height * width)
        # The gradient goes where Caffe will want it. A copy would cost as much time as the solver.
        diff = bottom[0].diff.reshape(f.shape)
        losses = self.batch_loss(f, diff, bottom)
        for k, loss in enumerate(losses):
            if not abs(loss * self.scale) <= LARGEST:
                self.fail(f"the loss is {loss * self.scale:.3g} ({self.where(k)})")
        top[0].data[...] = sum(losses) / images * self.scale
        self.written = diff.reshape(-1)[self.probe].tobytes()

    def backward(self, top, propagate_down, bottom):
        if propagate_down[0]:
            diff = bottom[0].diff.reshape(-1)
            if diff[self.probe].tobytes() != self.written:      # scaled by an earlier backward pass, or written over
                self.forward(bottom, top)
            self.written = None
            factor = top[0].diff.item() * self.scale / self.shapes[0][0]        # the loss weight arrives in top
            if factor != 1:
                diff *= factor
        for i in range(1, len(bottom)):
            if propagate_down[i]:                       # with force_backward: the supervision has no gradient
                bottom[i].diff[...] = 0

    def batch_loss(self, f, diff, bottom):
        """[loss of image k], from scores f (N x L x n); fills diff (N x L x n) with the gradients of the losses."""
        losses = []
        for k in range(len(f)):
            with self.naming(k):
                losses.append(self.image_loss(k, f[k], diff[k], bottom))
        return losses

    def image_loss(self, k, f, diff, bottom):
        raise NotImplementedError

    @contextlib.contextmanager
    def naming(self, k):
        """Name image k of the batch in the message if the solver or the constraints refuse their input."""
        try:
            yield
        except UserError:
            raise
        except ValueError as error:
            self.fail(f"{error} ({self.where(k)})")

    def present(self, k, bottom):
        """The labels of image k, in ascending order."""
        return np.flatnonzero(TAGS_BLOB.read(bottom[1].data[k]))


def finite(f):
    """f, unless it holds NaN or infinite values."""
    bad = f.size - np.count_nonzero(np.isfinite(f))
    if bad:
        raise ValueError(f"scores hold {bad} NaN or infinite values")
    return f
