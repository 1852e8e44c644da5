"""From everything known about an image to its constraints, and from the constraints to p.

This is the only module that combines sources of supervision, and the only one that decides what to do when they
contradict each other. The loss layer, `ccnn learn`, the studio, the figures and the study all call it.

    builder = ConstraintBuilder(SUPERVISION["tags"], bounds, rules)
    c = builder.build([tags], labels, shape, pixels=marks)
    solved = solve(f, c)                        # solved.p, solved.dropped

An image has n pixels (cells of the score grid) and L labels. Constraints are rows and allowed labels:

    mean_i regions_ji sum_l A_jl p_i(l)  >=  b_j - xi_j         xi_j >= 0 at price beta_j
    p_i(l) = 0                                                  for l not in S_i, the labels that pixel i may take

There are five sources. They are combined in this order, and a later one overrides the earlier ones:

    1  kind     tags, sizes, boxes or the share of the background: rows and S_i (ccnn.supervision.kinds)
    2  cue      rows of a map of what stands out (ccnn.supervision.cue_rows), which replace guesses of 1
    3  extra    more rows; a pixel may take what both 1 and 3 allow
    4  rules    rows of constraints.toml. A row of 1 to 3 is left out if it bounds an area that the file bounds in the
                same direction, or if it is hard and contradicts the file (ccnn.supervision.rules)
    5  pixels   label l_i at the pixels i in M, from a mask, points or scribbles: S_i = {l_i} for i in M. If M covers
                mask_share of the image or more, it is a segmentation: areas need not be guessed, and there are no rows

p minimises mean_i KL(p_i || softmax(f)_i) + beta' xi. It exists unless hard rows contradict each other or S_i, for
example if more pixels are marked as cat than `most` allows. In that case all rows are dropped, and p is softmax(f)
restricted to the allowed labels:

    p_i(l)  =  q_i(l) / sum_{m in S_i} q_i(m)    for l in S_i,   0 otherwise
"""
import functools
from typing import NamedTuple

import numpy as np

from ccnn.solver.constraints import Constraints
from ccnn.solver.dual import Solution, maximize, maximize_batch
from ccnn.supervision.cue_rows import with_cue
from ccnn.supervision.kinds import CUE_BLOB, LABELS_BLOB
from ccnn.supervision.tags_sizes_boxes import mask_constraints

MASK_SHARE = 0.5        # of the pixels: a mask that labels this many is a segmentation


class ConstraintBuilder:
    """Builds the constraints of images that share a kind of supervision, its bounds and the rules.

    kind        ccnn.supervision.kinds.Supervision
    bounds      {name: number}, keyword arguments of its constraint function; "inf" is the price of a hard row
    rules       the rules of constraints.toml, or None
    mask_share  see with_known_pixels
    surfaces    labels of which a cue tells nothing, because they are no objects
    """

    def __init__(self, kind, bounds=None, rules=None, mask_share=MASK_SHARE, surfaces=()):
        self.kind, self.rules, self.mask_share, self.surfaces = kind, rules, mask_share, surfaces
        self.bounds = {name: float(value) for name, value in (bounds or {}).items()}
        self._cached = functools.lru_cache(maxsize=1000)(self._from_bytes)

    def build(self, arrays, labels, shape, pixels=None, extra=None, cue=None):
        """The Constraints of one image.

        arrays  one per blob of the kind, as the data layer delivers them
        labels  L
        shape   (H, W) of the score grid
        pixels  None, or H x W label ids, 255 where the label is unknown
        extra   None, or Constraints on the same grid
        cue     None, or H x W: the map of a cue, 0..1
        """
        if self.kind.fits_any_image:            # many images have the same tags: build their constraints once
            c = self._cached(labels, *(np.asarray(array, np.float32).tobytes() for array in arrays))
        else:
            c = self.kind.constraints(arrays, labels, shape, **self.bounds)
        if cue is not None:
            c = with_cue(c, CUE_BLOB.read(cue), self.surfaces)
        if extra is not None:
            c = c & extra
        if self.rules:
            c = self.rules.apply(c, shape)
        if pixels is not None:
            c = with_known_pixels(c, mask_constraints(LABELS_BLOB.read(pixels), labels), self.mask_share)
        return c

    def _from_bytes(self, labels, *arrays):
        return self.kind.constraints([np.frombuffer(array, np.float32) for array in arrays], labels, None,
                                     **self.bounds)


def with_known_pixels(c, known, mask_share=MASK_SHARE):
    """The constraints c where the labels of some pixels are known. known : constraints without rows, allowed L x n.

    A known pixel has its label even if c forbids it; c rules the other pixels. If at least mask_share of the pixels are
    known, the rows of c are left out. If fewer are known (points, scribbles), the rows stay.
    """
    certain = known.allowed.sum(axis=0) == 1
    if not certain.any():
        return c
    allowed = np.where(certain, known.allowed, True if c.allowed is None else c.allowed.reshape(len(known.allowed), -1))
    if certain.mean() >= mask_share:
        return Constraints(known.A, known.b, known.beta, allowed)
    if c.matrix is not None:
        return Constraints.from_matrix(c.as_matrix(allowed.shape[1]), c.b, c.beta, allowed)
    return Constraints(c.A, c.b, c.beta, allowed, c.regions)


class Solved(NamedTuple):
    """p of one image, and what became of its constraints."""

    solution: Solution      # without the dropped rows
    attempt: Solution       # with all rows; the same object unless rows were dropped
    dropped: np.ndarray     # (k,) bool, the rows that were dropped because they contradict each other

    @property
    def p(self):
        """(L, n)"""
        return self.solution.p

    @property
    def loss(self):
        """None, or mean_i KL(p_i || softmax(f_i)) if diff was passed."""
        return self.solution.loss

    @property
    def status(self):
        """Of the attempt with all rows: "infeasible" if some were dropped."""
        return self.attempt.status

    @property
    def gap(self):
        """Of the attempt with all rows."""
        return np.inf if self.dropped.any() else self.solution.gap

    @property
    def iterations(self):
        """Of the attempt with all rows."""
        return self.attempt.iterations

    @property
    def lam(self):
        """(k,) the duals; 0 for a dropped row."""
        return np.zeros(len(self.dropped)) if self.dropped.any() else self.solution.lam


def solve(f, c, diff=None, **options):
    """Solved: p of an image with scores f (L x n, or L x H x W) under c. If the rows contradict, they are dropped.

    diff, options : of ccnn.maximize
    """
    f = np.reshape(f, (len(f), -1))
    if diff is not None:
        diff = diff.reshape(f.shape)

    def again(c):
        return maximize(f, c, diff=diff, **options)

    return _without_contradictions(c, len(f), again(c), again)


def solve_batch(F, constraints, diff=None, **options):
    """[Solved] of N images, F N x L x n. options : of ccnn.maximize_batch"""
    def again(k, c):
        return maximize_batch(F[k:k + 1], [c], diff=None if diff is None else diff[k:k + 1], **options)[0]

    solutions = maximize_batch(F, constraints, diff=diff, **options)
    return [_without_contradictions(c, F.shape[1], s, functools.partial(again, k))
            for k, (c, s) in enumerate(zip(constraints, solutions))]


def _without_contradictions(c, labels, attempt, again):
    if attempt.status != "infeasible":
        return Solved(attempt, attempt, np.zeros(len(c), bool))
    return Solved(again(without_rows(c, labels)), attempt, np.ones(len(c), bool))


def without_rows(c, labels):
    """Only the labels that c allows."""
    return Constraints(np.zeros((0, labels)), [], [], c.allowed)


def violation(c, q):
    """By how much q (L x n) breaks c: the largest of the rows' b - value, and the mass on labels not allowed."""
    forbidden = 0.0 if c.allowed is None else (q * ~c.allowed.reshape(len(q), -1)).sum(axis=0).mean()
    return max(forbidden, np.max(c.b - c.values(q), initial=0))
