"""What the losses of all systems share, and those of the systems that the paper compares with (section 7).

A loss is a class with a table of settings and image_loss; Caffe's layers (layers/) and PyTorch's engine
(ccnn.training.torch_engine) call it alike:

    loss = MILBaseLoss(param_str, bottoms=2, tops=1)
    loss.fit([scores.shape, tags.shape])
    value = loss.compute([scores, tags], diff)          # diff: the gradient, but for loss.factor

In the equations f_i(l) is the score of label l at pixel i of n, q_i = softmax(f_i), and z is the set of labels in the
image, background included. The paper's own loss, and the table of all, is in ccnn.supervision.constrained_loss.
"""
import contextlib

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.settings import COUNT, POSITIVE, SHARE, SWITCH, Setting, read_settings
from ccnn.images.labels import BACKGROUND
from ccnn.solver.dual import maximize
from ccnn.supervision.baselines import adaptive_bias, log_mean_exp, log_softmax
from ccnn.supervision.cue_rows import log_odds
from ccnn.supervision.kinds import CUE_BLOB, TAGS_BLOB
from ccnn.supervision.tags_sizes_boxes import mask_constraints

LARGEST = float(np.finfo(np.float32).max)       # the largest number that a blob can hold


class Loss:
    """The mean over the images of a batch of a loss that one image defines.

    blobs[0]   scores  N x L x H x W
    blobs[1]   tags    N x L, 1 where a label is in the image; the background, label 0, always is, but -1 says: not
    param_str  JSON: the settings

    A subclass has SETTINGS, a table as in ccnn._util.settings, and image_loss(k, f, diff, blobs): the loss of image k
    with scores f (L x n), which fills diff (L x n) with its gradient. Whatever is wrong, a setting or NaN scores, is a
    UserError that begins with `name`, the layer's.
    """

    SETTINGS: dict = {}
    given: tuple = (TAGS_BLOB,)     # the blobs after the scores
    scale = 1.0                     # factor of loss and gradient

    def __init__(self, param_str, bottoms=2, tops=1, name=None, processes=1):
        """bottoms, tops : numbers of blobs   processes : how many train together"""
        self.param_str, self.name, self.processes = param_str, name or f"{type(self).__name__}Layer", processes
        self.forwards = 0
        self.shapes: list = []          # of the blobs, as fit() has checked them
        self.settings = self.read_settings()
        self.check_blobs(bottoms, tops)

    # Checks

    def read_settings(self):
        """The settings in param_str. Wrong ones fail here, not at iteration 1."""
        return read_settings(self.param_str, self.SETTINGS, self.name)

    @property
    def inputs(self):
        """The names of the blobs."""
        return ["scores", *(blob.name for blob in self.given)]

    def check_blobs(self, bottoms, tops):
        """Fail unless the layer has the right number of bottoms and tops."""
        if bottoms != len(self.inputs) or tops != 1:
            self.fail(f"takes bottoms {', '.join(self.inputs)} and one top; got {bottoms} and {tops}")

    def fit(self, shapes):
        """Check blobs of new shapes."""
        scores = shapes[0]
        if len(scores) != 4 or not np.prod(scores):
            self.fail(f"scores must be N x L x H x W; got shape {scores}")
        for blob, shape in zip(self.given, shapes[1:]):
            if not blob.fits(shape, *scores):
                self.fail(f"{blob.name} must be {blob.words(*scores)} ({blob.meaning}) for scores of "
                          f"{' x '.join(map(str, scores))}; got shape {shape}")
        self.shapes = shapes

    def where(self, k):
        return f"forward pass {self.forwards} of this run, image {k} of the batch"

    def fail(self, problem):
        raise UserError(f"{self.name}: {problem}")

    # Loss and gradient

    @property
    def factor(self):
        """Of the gradients in diff: those of the mean over images are smaller than those of each."""
        return self.scale / self.shapes[0][0]

    def compute(self, blobs, diff, diagnostics=None):
        """The loss; fills diff (like the scores) with the gradient of every image's own loss.

        diagnostics : None, or N x 4, which a loss may fill
        """
        self.forwards += 1
        images, labels, height, width = self.shapes[0]
        f = blobs[0].reshape(images, labels, height * width)
        self.diagnostics = diagnostics
        losses = self.batch_loss(f, diff.reshape(f.shape), blobs)
        for k, loss in enumerate(losses):
            if not abs(loss * self.scale) <= LARGEST:
                self.fail(f"the loss is {loss * self.scale:.3g} ({self.where(k)})")
        return sum(losses) / images * self.scale

    def batch_loss(self, f, diff, blobs):
        """[loss of image k], from scores f (N x L x n); fills diff (N x L x n) with the gradients of the losses."""
        losses = []
        for k in range(len(f)):
            with self.naming(k):
                losses.append(self.image_loss(k, f[k], diff[k], blobs))
        return losses

    def image_loss(self, k, f, diff, blobs):
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

    def present(self, k, blobs):
        """The labels of image k, in ascending order."""
        return np.flatnonzero(TAGS_BLOB.read(blobs[1][k]))


def finite(f):
    """f, unless it holds NaN or infinite values."""
    bad = f.size - np.count_nonzero(np.isfinite(f))
    if bad:
        raise ValueError(f"scores hold {bad} NaN or infinite values")
    return f


class EMAdaptLoss(Loss):
    """Hard EM with an adaptive bias.

    Source: Papandreou, Chen, Murphy, Yuille: Weakly- and semi-supervised learning of a deep convolutional
    network for semantic image segmentation, ICCV 2015 (EM-Adapt; the shares are the paper's).

    E-step     y_i = argmax_{l in z} f_i(l) + b_l, where b gives the background at least rho_bg of the pixels
               and every other label of z at least rho_fg (see adaptive_bias)
    M-step     loss = -mean_i log q_i(y_i), y held fixed: the gradient is q_i - onehot(y_i), per pixel

    With the map S of a cue, which is ours and no part of EM-Adapt, the E-step adds log S_i / (1 - S_i) to f_i(l) of
    every label but the background, as ccnn.inference.cue_maps does where photographs are segmented.

    blobs[2]   cue     N x 1 x H x W, 0..1, with the setting cue
    param_str  {"rho_fg": 0.2, "rho_bg": 0.4, "rounds": 5}
    """

    SETTINGS = {
        "rho_fg": Setting(SHARE, 0.2, "share of the image for every label but the background"),
        "rho_bg": Setting(SHARE, 0.4, "share of the image for the background"),
        "rounds": Setting(COUNT, 5, "see adaptive_bias"),
        "cue": Setting(SWITCH, False, "the map of a cue is known; its blob comes last"),
    }

    def read_settings(self):
        settings = super().read_settings()
        if settings.pop("cue"):
            self.given += (CUE_BLOB,)
        return settings

    def image_loss(self, k, f, diff, blobs):
        labels = self.present(k, blobs)
        scores = finite(f)[labels]
        if CUE_BLOB in self.given:
            scores[labels != BACKGROUND] += log_odds(CUE_BLOB.read(blobs[2][k]))
        b = adaptive_bias(scores, **self.settings, background=labels[0] == BACKGROUND)
        y = labels[(scores + b[:, None]).argmax(axis=0)]
        return maximize(f, mask_constraints(y, len(f)), diff=diff).loss


class MILFCNLoss(Loss):
    """Multi-class multiple instance learning: every label of the image is right somewhere.

    Source: Pathak, Shelhamer, Long, Darrell: Fully convolutional multi-class multiple instance learning,
    ICLR workshop 2015 (arXiv 1412.7144).

    i_l  = argmax_i q_i(l)                             the pixel where l is most likely
    loss = -(1/|z|) sum_{l in z} log q_{i_l}(l)        nothing is asked of the other pixels
    """

    def image_loss(self, k, f, diff, blobs):
        labels = self.present(k, blobs)
        log_q = log_softmax(finite(f))
        pixels = log_q[labels].argmax(axis=1)
        diff[...] = 0
        for l, i in zip(labels, pixels):                # two labels may share a pixel
            diff[:, i] += np.exp(log_q[:, i]) / labels.size
            diff[l, i] -= 1 / labels.size
        return -log_q[labels, pixels].mean(dtype=np.float64)


class MILBaseLoss(Loss):
    """Multiple instance learning with a smooth maximum over the pixels.

    Source: Pinheiro, Collobert: From image-level to pixel-level labeling with convolutional networks,
    CVPR 2015. There an image has one label. Here the labels of an image share its mass equally. The background is
    one of them, because every image of VOC shows it.

    s(l) = (1/r) log mean_i exp(r f_i(l))              r = 5: between mean (0) and maximum (inf)
    P(l) = softmax(s)_l
    loss = -(1/|z|) sum_{l in z} log P(l)

    Inference weighs every pixel by P: see ccnn.supervision.baselines.image_level_prior.

    param_str  {"r": 5}
    """

    SETTINGS = {"r": Setting(POSITIVE, 5, "sharpness of the maximum: 0 is the mean, inf the maximum")}

    def image_loss(self, k, f, diff, blobs):
        labels = self.present(k, blobs)
        r = self.settings["r"]
        s = log_mean_exp(finite(f), r)
        log_P = log_softmax(s)
        target = np.zeros(len(f))
        target[labels] = 1 / labels.size
        share = np.exp(r * (f - s[:, None])) / f.shape[1]         # ds(l) / df_i(l)
        diff[...] = (np.exp(log_P) - target)[:, None] * share
        return -log_P[labels].mean()
