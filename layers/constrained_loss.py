"""The constrained loss (paper, sections 4 and 5) as a Caffe layer, and what every loss layer here shares.

    layer {
      name: "loss"  type: "Python"  bottom: "fc8"  bottom: "tags"  top: "loss"  loss_weight: 1
      python_param {
        module: "constrained_loss"  layer: "ConstrainedLossLayer"
        param_str: '{"supervision": "tags", "fg_lower": 0.05, "fg_beta": 2, "bg_lower": 0.3, "bg_upper": 0.7}'
      }
    }
"""
import functools
import inspect
import json
import sys
import time

import caffe
import numpy as np
from reporting import Reporting

import ccnn
from ccnn.constraints import Constraints, box_constraints, mask_constraints, size_constraints, tag_constraints
from ccnn.errors import UserError
from ccnn.labels import BACKGROUND

LARGEST = float(np.finfo(np.float32).max)       # that a blob holds


class LossLayer(Reporting, caffe.Layer):
    """Mean over the images of a batch of a loss that one image defines; the loss weight; the checks.

    bottom[0]  scores  N x L x H x W
    bottom[1]  tags    N x L, 1 where a label is in the image (the background, label 0, always is)
    top[0]     loss    mean over the images

    A subclass has `defaults`, its settings in param_str, and image_loss(k, f, diff, bottom): the loss of
    image k with scores f (L x n), which fills diff (L x n) with its gradient. What cannot be trained on
    (a wrong setting, NaN scores) raises UserError: `caffe train` prints its line and ends, and the
    snapshots written before stay as they are.
    """

    defaults = {}
    inputs = ("scores", "tags")
    scale = 1.0

    def setup(self, bottom, top):
        self.forwards = 0
        self.shapes = None
        self.options = {**self.defaults, **self.read_settings()}
        self.check_options()
        self.check_blobs(len(bottom), len(top))

    def read_settings(self):
        try:
            settings = json.loads(self.param_str or "{}")
        except json.JSONDecodeError as error:
            self.fail(f"param_str is not JSON ({error}): {self.param_str}")
        if not isinstance(settings, dict):
            self.fail(f"param_str must be a JSON object {{...}}; got {self.param_str}")
        return settings

    def check_options(self):
        """Known names; positive numbers, as all settings of the baselines are."""
        self.check_names(self.defaults)
        for name in self.options:
            self.number(name)

    def check_names(self, known):
        unknown = sorted(set(self.options) - set(known))
        if unknown:
            self.fail(f"unknown setting {unknown[0]!r} in param_str; known: {', '.join(sorted(known)) or 'none'}")

    def number(self, name, positive=True):
        """The setting of that name, a number."""
        value = self.options[name]
        if value == "inf":                              # JSON has no infinity
            value = np.inf
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(f"{name} must be a number; got {value!r}")
        if positive and not 0 < value < np.inf:
            self.fail(f"{name} must be a positive number; got {value!r}")
        return value

    def check_blobs(self, bottoms, tops):
        if bottoms != len(self.inputs) or tops != 1:
            self.fail(f"takes bottoms {', '.join(self.inputs)} and one top; got {bottoms} and {tops}")

    def reshape(self, bottom, top):
        shapes = [bottom[i].data.shape for i in range(len(bottom))]
        if shapes != self.shapes:                       # Caffe asks before every forward pass
            self.fit(shapes, top)

    def fit(self, shapes, top):
        """Blobs of other shapes: check them, and shape the tops."""
        if len(shapes[0]) != 4 or not np.prod(shapes[0]):
            self.fail(f"scores must be N x L x H x W; got shape {shapes[0]}")
        for name, shape in zip(self.inputs[1:], shapes[1:]):
            self.check_shape(name, shape, *shapes[0])
        self.shapes = shapes
        self.sample = slice(None, None, np.prod(shapes[0]) // 32 + 1)
        top[0].reshape(1)

    def check_shape(self, name, shape, images, labels, height, width):
        if shape[:2] != (images, labels) or np.prod(shape) != images * labels:
            self.fail(f"{name} must be {images} x {labels}, images x labels as in the scores; got shape {shape}")

    def forward(self, bottom, top):
        self.forwards += 1
        images, labels, height, width = self.shapes[0]
        f = bottom[0].data.reshape(images, labels, height * width)
        diff = bottom[0].diff.reshape(f.shape)          # the gradient waits where it is wanted: a copy would cost
        total = 0.0                                     # as much as the solver's passes
        for k in range(images):
            try:
                loss = self.image_loss(k, f[k], diff[k], bottom)
            except UserError:
                raise
            except ValueError as error:                 # what solver and constraints refuse
                self.fail(f"{error} ({self.where(k)})")
            if not abs(loss * self.scale) <= LARGEST:
                self.fail(f"the loss is {loss * self.scale:.3g} ({self.where(k)})")
            total += loss
        top[0].data[...] = total / images * self.scale
        self.left = diff.reshape(-1)[self.sample].tobytes()

    def backward(self, top, propagate_down, bottom):
        if propagate_down[0]:
            diff = bottom[0].diff.reshape(-1)
            if diff[self.sample].tobytes() != self.left:        # used before, or written over
                self.forward(bottom, top)
            self.left = None
            factor = top[0].diff.item() * self.scale / self.shapes[0][0]        # the loss weight arrives in top
            if factor != 1:
                diff *= factor
        for i in range(1, len(bottom)):
            if propagate_down[i]:                       # force_backward: the loss has no slope in the tags
                bottom[i].diff[...] = 0

    def present(self, k, bottom):
        """The labels of image k, background first."""
        tags = flags("tags", bottom[1].data[k])
        tags[BACKGROUND] = True
        return np.flatnonzero(tags)

    def where(self, k):
        return f"forward pass {self.forwards} of this run, image {k} of the batch"

    def fail(self, problem):
        raise UserError(f"{type(self).__name__}: {problem}")


def flags(name, values):
    """Entries that are 0 or 1, as (L,) bool."""
    on = values.ravel() == 1
    wrong = values.ravel()[~on & (values.ravel() != 0)]
    if wrong.size:
        raise ValueError(f"{name} must be 0 or 1; got {wrong[0]:g}")
    return on


def finite(f):
    """f, unless it holds NaN or infinite values."""
    bad = f.size - np.count_nonzero(np.isfinite(f))
    if bad:
        raise ValueError(f"scores hold {bad} NaN or infinite values")
    return f

SUPERVISION = {     # constraint function, the bottoms it reads, a call that tries its keyword arguments
    "tags": (tag_constraints, ("tags",), ([1, 1],)),
    "size": (size_constraints, ("tags", "sizes"), ([1, 1], [0, 1])),
    "boxes": (box_constraints, ("boxes",), ([(1, 0, 0, 1, 1)], (1, 2), 2)),
}


class ConstrainedLossLayer(LossLayer):
    """KL(p || q), p the distribution nearest to q = softmax(f) that obeys what is known of the image.

    bottom[0]  scores   N x L x H x W
    then, by supervision,
      "tags"   tags     N x L, 1 where a label is in the image
      "size"   tags, sizes      sizes N x L, 1 where a label covers more than a tenth of the image
      "boxes"  boxes    N x B x 5, (label, y0, x0, y1, x1) on the score grid, half-open; label -1: no box
    then, if wished,
               labels   N x 1 x H x W, the label of a pixel, 255 where it is unknown
    top[0]     loss     mean over images of mean_i KL(p_i || q_i); of the sum over i unless normalize
    top[1]     diagnostics, if wished: N x 4, the largest violation of a constraint by q, the solver's duality
               gap (inf where the constraints contradict each other), its iterations, its seconds

    param_str  JSON: supervision, normalize, hardness (p is nearest to softmax(hardness * f)), method and tol
               of ccnn.maximize, mask_share, and the keyword arguments of the constraint function:
               tag_constraints, size_constraints or box_constraints; "inf" is the price of a hard row

    The gradient is q - p per pixel: at hardness 1 that of the optimal value KL + beta' xi, else that of KL with p
    held fixed, as in the authors' experiments.

    Labels: a known pixel has its label, whatever tags and boxes say; they rule the unknown ones. A mask that knows
    mask_share of the pixels or more is a segmentation: areas need not be guessed, and the bounds are left out.
    With fewer (points, scribbles) the bounds stay.

    Contradictory constraints (status "infeasible": a scribble larger than a hard upper bound) do not end a
    training: the image is trained on the labels each pixel may have, without the bounds. It is counted, as
    is a solution that misses tol ("stalled"; its p is used), and the 1st, 10th, 100th ... go to stderr.
    """

    defaults = {"supervision": "tags", "normalize": True, "hardness": 1.0, "method": "newton", "tol": 1e-6,
                "mask_share": 0.5}

    def check_options(self):
        """Wrong settings fail here, not at iteration 1."""
        supervision = self.options["supervision"]
        if not isinstance(supervision, str) or supervision not in SUPERVISION:
            self.fail(f"supervision must be one of {', '.join(SUPERVISION)}; got {supervision!r}")
        self.constraints, names, trial = SUPERVISION[supervision]
        self.inputs = ("scores", *names)
        keywords = [name for name, p in inspect.signature(self.constraints).parameters.items()
                    if p.default is not p.empty and name != "labels"]
        self.check_names([*self.defaults, *keywords])
        for name in ("hardness", "tol", "mask_share"):
            self.number(name)
        if not isinstance(self.options["normalize"], bool):
            self.fail(f"normalize must be true or false; got {self.options['normalize']!r}")
        self.bounds = {name: self.number(name, positive=False) for name in keywords if name in self.options}
        self.solver = {name: self.options[name] for name in ("hardness", "tol")}
        self.solver["method"] = str(self.options["method"])
        self.from_bits = functools.lru_cache(maxsize=1000)(self.from_bits)      # images repeat them
        self.counts = {"infeasible": 0, "stalled": 0}
        try:
            ccnn.maximize(np.zeros((2, 2), np.float32), self.constraints(*trial, **self.bounds), **self.solver)
        except (TypeError, ValueError) as error:
            self.fail(error)

    def check_blobs(self, bottoms, tops):
        need = len(self.inputs)
        if bottoms not in (need, need + 1) or tops not in (1, 2):
            self.fail(f"takes bottoms {', '.join(self.inputs)}[, labels] with supervision "
                      f"{self.options['supervision']!r}, and tops loss[, diagnostics]; got {bottoms} and {tops}")
        if bottoms > need:
            self.inputs += ("labels",)

    def fit(self, shapes, top):
        super().fit(shapes, top)
        images, _, height, width = shapes[0]
        self.scale = 1.0 if self.options["normalize"] else float(height * width)
        if len(top) > 1:
            top[1].reshape(images, 4)

    def check_shape(self, name, shape, images, labels, height, width):
        if name == "boxes":
            if len(shape) != 3 or shape[0] != images or shape[2] != 5:
                self.fail(f"boxes must be {images} x B x 5 (label, y0, x0, y1, x1); got shape {shape}")
        elif name == "labels":
            if shape[0] != images or shape[-2:] != (height, width) or np.prod(shape) != images * height * width:
                self.fail(f"labels must be {images} x 1 x {height} x {width}, the scores' grid; got shape {shape}")
        else:
            super().check_shape(name, shape, images, labels, height, width)

    def forward(self, bottom, top):
        self.diagnostics = top[1].data if len(top) > 1 else None
        super().forward(bottom, top)

    def image_loss(self, k, f, diff, bottom):
        c = self.image_constraints(k, bottom)
        start = time.perf_counter()
        s = ccnn.maximize(f, c, **self.solver, diff=diff)
        gap, iterations = s.gap, s.iterations
        if s.status != "optimal":
            self.report(s.status, k)
        if s.status == "infeasible":
            gap = np.inf
            s = ccnn.maximize(f, without_rows(c), **self.solver, diff=diff)
        seconds = time.perf_counter() - start
        if self.diagnostics is not None:
            q = s.p + diff * f.shape[1]
            self.diagnostics[k] = violation(c, q), gap, iterations, seconds
        return s.loss

    def image_constraints(self, k, bottom):
        """What is known of image k."""
        _, labels, height, width = self.shapes[0]
        if "boxes" in self.inputs:
            boxes = bottom[1].data[k]
            c = self.constraints(boxes[boxes[:, 0] != -1], (height, width), labels, **self.bounds)
        else:
            bits = range(1, 3 if "sizes" in self.inputs else 2)
            c = self.from_bits(*[bottom[i].data[k].tobytes() for i in bits])
        if "labels" in self.inputs:
            c = self.with_mask(c, mask_constraints(bottom[-1].data[k], labels))
        return c

    def from_bits(self, *blobs):
        """Constraints from the bytes of the tags, and of the sizes."""
        return self.constraints(*[flags(name, np.frombuffer(blob, np.float32))
                                  for name, blob in zip(self.inputs[1:], blobs)], **self.bounds)

    def with_mask(self, c, mask):
        """c and the known pixels, those where mask (no rows) allows one label; the class says what wins."""
        known = mask.allowed.sum(axis=0) == 1
        if not known.any():
            return c
        allowed = np.where(known, mask.allowed, c.allowed.reshape(len(mask.allowed), -1))
        if known.mean() >= self.options["mask_share"]:
            return Constraints(mask.A, mask.b, mask.beta, allowed)
        return Constraints(c.A, c.b, c.beta, allowed, c.regions)

    def report(self, status, k):
        self.counts[status] += 1
        count = self.counts[status]
        if count == 10 ** (len(str(count)) - 1):        # 1, 10, 100, ...
            meaning = {"infeasible": "the constraints contradict each other, trained without the bounds",
                       "stalled": f"the solver missed tol = {self.solver['tol']:g}, its best p is used"}[status]
            print(f"{type(self).__name__}: {status} image no. {count}: {meaning} ({self.where(k)})",
                  file=sys.stderr, flush=True)


def without_rows(c):
    """The labels that c allows, and nothing else of it."""
    return Constraints(c.A[:0], c.b[:0], c.beta[:0], c.allowed)


def violation(c, q):
    """By how much q (L x n) breaks c: the largest of the rows' b - value and of the mass on labels not allowed."""
    forbidden = (q * ~c.allowed.reshape(len(q), -1)).sum(axis=0).mean()
    return max(forbidden, np.max(c.b - c.values(q), initial=0))
