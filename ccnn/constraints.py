"""What is known about an image, as linear constraints on its latent distribution.

    (1/n) sum_i regions[j,i] sum_l A[j,l] p[l,i]  >=  b[j] - xi[j],   xi >= 0 at a price of beta[j]

p is L labels x n pixels; every row is a mean over the pixels, so b is a fraction of the image and the
price beta is the number the paper quotes: the most that a row may add to a pixel's score. Labels that
a pixel cannot take are no rows but a mask, `allowed`: the solver drops them.

The solver (ccnn.dual) takes them with scores from any framework.
"""

import functools
from typing import Optional

import numpy as np
from scipy import sparse

from ccnn.labels import BACKGROUND, VOID

LARGEST = 1e60      # of a coefficient: squares of larger numbers would overflow


class Constraints:
    """k rows on L labels. Immutable: the solver reads these arrays without the interpreter's protection.

    A        (k, L)      coefficients of the labels
    b        (k,)        lower bounds, as fractions of the image
    beta     (k,)        price of violating a row, in (0, inf]; inf makes it hard
    allowed  (L,) or (L, n) bool   labels that may appear, at all or per pixel; None: every one
    regions  (k, n)      weight of every pixel in a row: a box, a scribble; None: 1 everywhere
    matrix   (k, L*n) sparse or None: coefficients of p[l, i] in column l*n + i; a row has entries in A or here
    """

    __slots__ = ("A", "b", "beta", "allowed", "regions", "matrix")      # in the order of _set

    A: np.ndarray
    b: np.ndarray
    beta: np.ndarray
    allowed: Optional[np.ndarray]
    regions: Optional[np.ndarray]
    matrix: Optional[sparse.csc_matrix]

    def __init__(self, A, b, beta, allowed=None, regions=None):
        A = _frozen(A, float)
        if A.ndim != 2:
            raise ValueError(f"A must be rows x labels; got shape {A.shape}")
        k, labels = A.shape
        b, beta = _vector("b", b, k), _vector("beta", beta, k)
        allowed = None if allowed is None else _frozen(allowed, bool)
        regions = None if regions is None else _frozen(regions, float)
        if not _moderate(A) or not _moderate(b):
            raise ValueError(f"A and b must be finite, and below {LARGEST:g}")
        if not (beta > 0).all():                             # NaN fails too
            raise ValueError(f"prices must be positive (inf = hard); got {beta.min()}")
        if regions is not None:
            if regions.ndim != 2 or len(regions) != k:
                raise ValueError(f"regions must be {k} rows x pixels; got shape {regions.shape}")
            if not _moderate(regions):
                raise ValueError(f"regions must be finite, and below {LARGEST:g}")
        if allowed is not None:
            if allowed.ndim not in (1, 2) or len(allowed) != labels:
                raise ValueError(f"allowed must be ({labels},) or ({labels}, pixels); got shape {allowed.shape}")
            _check_every_pixel_has_a_label(allowed)
        self._set(A, b, beta, allowed, regions, None)

    def _set(self, *values):
        for name, value in zip(self.__slots__, values):
            object.__setattr__(self, name, value)

    def __setattr__(self, name, value):
        raise AttributeError(f"constraints are immutable: make new ones to change {name}")

    def __delattr__(self, name):
        raise AttributeError(f"constraints are immutable: {name} cannot be deleted")

    def __reduce__(self):
        return _rebuilt, (self.A, self.b, self.beta, self.allowed, self.regions, self.matrix)

    @classmethod
    def from_matrix(cls, A, b, beta, allowed=None):
        """Rows of any kind: A is k x (L*n), dense or sparse; entry (j, l*n + i) weighs p[l, i] in row j.

        Without `allowed` nothing here tells L from n: the scores will.
        """
        if sparse.issparse(A) and A.nnz >= 2 ** 31:
            raise ValueError(f"A has {A.nnz} entries; the solver takes less than {2 ** 31}")
        matrix = sparse.csc_matrix(A, dtype=float, copy=True)
        matrix.sum_duplicates()
        try:
            matrix.check_format(full_check=True)        # SciPy takes indices on trust; the solver reads by them
        except ValueError as error:
            raise ValueError(f"A is not a sound sparse matrix: {error}") from None
        k, columns = matrix.shape
        if not _moderate(matrix.data):
            raise ValueError(f"A and b must be finite, and below {LARGEST:g}")
        labels = 0 if allowed is None else len(allowed)
        if labels and columns % labels:
            raise ValueError(f"A has {columns} columns: not a multiple of the {labels} labels")
        if np.ndim(allowed) == 2 and columns != np.size(allowed):
            raise ValueError(f"A has {columns} columns; allowed needs {np.size(allowed)}: labels x pixels")
        return _rebuilt(np.zeros((k, labels)), b, beta, allowed, None, matrix, cls)

    def __len__(self):
        return len(self.b)

    @property
    def labels(self):
        """L; None if the rows are a matrix that leaves it open."""
        return self.A.shape[1] or None

    @property
    def pixels(self):
        """n; None if the rows fit an image of any size."""
        if self.regions is not None:
            return self.regions.shape[1]
        if self.allowed is not None and self.allowed.ndim == 2:
            return self.allowed.shape[1]
        if self.matrix is not None and self.labels:
            return self.matrix.shape[1] // self.labels
        return None

    def __and__(self, other):
        """Both sets of rows, both masks."""
        parts = (self, other)
        labels = _agree("labels", self.labels, other.labels)
        n = _agree("pixels", self.pixels, other.pixels)
        A = np.vstack([c.A if c.labels else np.zeros((len(c), labels or 0)) for c in parts])
        regions = None
        if any(c.regions is not None for c in parts):
            regions = np.vstack([np.ones((len(c), n)) if c.regions is None else c.regions for c in parts])
        masks = [c.allowed for c in parts if c.allowed is not None]
        if len({mask.ndim for mask in masks}) == 2:
            masks = [mask if mask.ndim == 2 else mask[:, None] for mask in masks]
        allowed = functools.reduce(np.logical_and, masks) if masks else None
        columns = _agree("columns", *(None if c.matrix is None else c.matrix.shape[1] for c in parts))
        matrix = None
        if columns:
            matrix = sparse.vstack([sparse.csc_matrix((len(c), columns)) if c.matrix is None else c.matrix
                                    for c in parts], "csc")
        return _rebuilt(A, np.append(self.b, other.b), np.append(self.beta, other.beta), allowed, regions, matrix)

    def with_prices(self, beta):
        """The same rows at other prices."""
        return _rebuilt(self.A, self.b, beta, self.allowed, self.regions, self.matrix)

    def rows(self, which):
        """Some of the rows, by a mask or by numbers, under the same mask of labels."""
        return _rebuilt(self.A[which], self.b[which], self.beta[which], self.allowed,
                        None if self.regions is None else self.regions[which],
                        None if self.matrix is None else sparse.csc_matrix(self.matrix.tocsr()[which]))

    def values(self, p):
        """(k,) the left-hand sides at p (L x n), in float64."""
        p = np.asarray(p, float)
        values = np.zeros(len(self))
        if self.labels:
            weights = p.mean(axis=1) if self.regions is None else self.regions @ p.T / p.shape[1]
            values += (self.A * weights).sum(axis=1)
        if self.matrix is not None:
            values += self.matrix @ p.ravel() / p.shape[1]
        return values

    def as_matrix(self, n):
        """All rows as one k x (L*n) sparse matrix in columns (csc)."""
        if not self.A.any() and self.matrix is not None:
            return self.matrix
        weights = sparse.csr_matrix(np.ones((len(self), n)) if self.regions is None else self.regions)
        blocks = [sparse.diags(self.A[:, l]) @ weights for l in range(self.labels)]
        rows = sparse.hstack(blocks, "csc") if self.matrix is None else sparse.hstack(blocks, "csc") + self.matrix
        rows.eliminate_zeros()
        return rows


def tag_constraints(present, fg_lower=0.05, fg_beta=2.0, bg_lower=0.3, bg_upper=0.7):
    """Constraints from image-level tags (paper, section 5).

    present : (L,) bool, labels in the image; the background always is.

    suppression   p_i(l)    = 0               for every absent l
    foreground    mean p(l) >= fg_lower - xi  for every present l > 0, xi at price fg_beta
    background    mean p(0) >= bg_lower
                  mean p(0) <= bg_upper       unless only background is present

    The background rows are hard, the foreground rows soft: however many labels are present, p exists.
    """
    allowed = _labels("present", present)
    _check_fractions(fg_lower=fg_lower, bg_lower=bg_lower, bg_upper=bg_upper)
    _check_order(bg_lower, bg_upper)
    foreground = np.flatnonzero(allowed)[1:]
    rows = [(l, fg_lower, fg_beta) for l in foreground]
    upper = [(BACKGROUND, bg_upper, np.inf)] if foreground.size else []
    return _label_rows(allowed, [*rows, (BACKGROUND, bg_lower, np.inf)], upper)


def size_constraints(present, large, fg_lower=0.1, fg_beta=np.inf, small_upper=0.01, bg_lower=0.2, bg_upper=0.7,
                     conflict_beta=2.0):
    """Constraints from tags and one bit of size per tag (paper, section 5).

    present : (L,) bool, labels in the image
    large   : (L,) bool, labels that cover more than a tenth of it

    suppression   p_i(l)    = 0                for every absent l
    large         mean p(l) >= fg_lower - xi   for every present, large l > 0, xi at price fg_beta
    small         mean p(l) <= small_upper     for every other present l > 0
    background    mean p(0) >= bg_lower
                  mean p(0) <= bg_upper        unless no class is large: small ones cannot fill the rest

    All rows are hard by default, as in the authors' experiments, but one case: where so many classes
    are large that their bounds leave no room for the background's (count * fg_lower + bg_lower >= 1),
    the large rows are soft at conflict_beta. So p exists for every combination of tags and sizes.
    """
    allowed = _labels("present", present)
    large = _labels("large", large)
    if large.size != allowed.size:
        raise ValueError(f"present has {allowed.size} labels, large has {large.size}")
    _check_fractions(fg_lower=fg_lower, small_upper=small_upper, bg_lower=bg_lower, bg_upper=bg_upper)
    _check_order(bg_lower, bg_upper)
    foreground = np.flatnonzero(allowed)[1:]
    big, small = foreground[large[foreground]], foreground[~large[foreground]]
    if big.size * fg_lower + bg_lower >= 1:
        fg_beta = min(fg_beta, conflict_beta)
    rows = [(l, fg_lower, fg_beta) for l in big] + [(BACKGROUND, bg_lower, np.inf)]
    upper = [(l, small_upper, np.inf) for l in small]
    if big.size:
        upper.append((BACKGROUND, bg_upper, np.inf))
    return _label_rows(allowed, rows, upper)


def box_constraints(boxes, shape, labels=21, fraction=0.75, beta=10.0):
    """Constraints from bounding boxes (paper, section 7.4).

    boxes : [(label, y0, x0, y1, x1)] on the score grid of `shape` (H, W), half-open: rows y0 .. y1 - 1

    inside    sum over the box of p_i(l) >= fraction * its pixels - xi, xi at price beta
    outside   p_i(l) = 0 for every l > 0 and every pixel in none of l's boxes

    Boxes of different classes overlap, and two of them cannot both own three quarters of the same
    pixels: the rows are soft. At the default price a row may raise the odds of its label e^10-fold,
    which is hard in all but name where boxes do not compete.
    """
    height, width = shape
    n = height * width
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be between 0 and 1; got {fraction}")
    allowed = np.zeros((labels, n), bool)
    allowed[BACKGROUND] = True
    A, b, regions = np.zeros((len(boxes), labels)), np.zeros(len(boxes)), np.zeros((len(boxes), n))
    for j, box in enumerate(boxes):
        if len(box) != 5 or not all(float(x).is_integer() for x in box):
            raise ValueError(f"box {j}: need five whole numbers (label, y0, x0, y1, x1); got {tuple(box)}")
        label, y0, x0, y1, x1 = (int(x) for x in box)
        if not 0 < label < labels:
            raise ValueError(f"box {j}: label {label} is not one of 1 .. {labels - 1}")
        if not (0 <= y0 < y1 <= height and 0 <= x0 < x1 <= width):
            raise ValueError(f"box {j}: ({y0}, {x0}, {y1}, {x1}) is empty or not inside the {height} x {width} grid")
        inside = np.zeros(shape, bool)
        inside[y0:y1, x0:x1] = True
        inside = inside.ravel()
        A[j, label] = 1
        b[j] = fraction * ((y1 - y0) * (x1 - x0)) / n
        regions[j] = inside
        allowed[label] |= inside
    return Constraints(A, b, np.full(len(boxes), float(beta)), allowed, regions)


def mask_constraints(mask, labels=21):
    """Pixels whose label is known: full masks, points, scribbles. mask: label ids, 255 where unknown."""
    mask = np.asarray(mask).ravel()
    known = mask != VOID
    wrong = known & ((mask < 0) | (mask >= labels))
    if wrong.any():
        raise ValueError(f"mask holds label {mask[wrong][0]}; need 0 .. {labels - 1} or {VOID}")
    allowed = ~known | (mask == np.arange(labels)[:, None])
    return Constraints(np.zeros((0, labels)), [], [], allowed)


def _label_rows(allowed, lower, upper):
    """mean p(l) >= bound for (l, bound, price) in lower, mean p(l) <= bound for those in upper."""
    A = np.zeros((len(lower) + len(upper), allowed.size))
    for j, (l, _, _) in enumerate(lower):
        A[j, l] = 1
    for j, (l, _, _) in enumerate(upper, len(lower)):
        A[j, l] = -1
    b = [bound for _, bound, _ in lower] + [-bound for _, bound, _ in upper]
    return Constraints(A, b, [price for _, _, price in lower + upper], allowed)


def _labels(name, flags):
    """A copy as booleans; the background is always there."""
    flags = np.array(flags, bool)
    if flags.ndim != 1 or not flags.size:
        raise ValueError(f"{name} must be 1-d, one entry per label; got shape {flags.shape}")
    flags[BACKGROUND] = True
    return flags


def _agree(what, m, n):
    """The one number that both sides mean; None is open to any."""
    if m is not None and n is not None and m != n:
        raise ValueError(f"constraints on {m} and on {n} {what} do not combine")
    return n if m is None else m


def _vector(name, x, k):
    x = _frozen(x, float)
    if x.shape != (k,):
        raise ValueError(f"{name} must have one entry for each of the {k} rows; got shape {x.shape}")
    return x


def _frozen(x, dtype):
    """A contiguous copy that cannot be written to."""
    x = np.array(x, dtype, order="C")
    x.setflags(write=False)
    return x


def _moderate(x):
    """Are all numbers finite, and small enough to be squared?"""
    return bool((np.abs(x) < LARGEST).all())                 # NaN fails


def _rebuilt(A, b, beta, allowed, regions, matrix, cls=Constraints):
    """Constraints with a matrix: k x (L*n) csc, sorted, int32 indices; entries that cannot be written to."""
    self = cls(A, b, beta, allowed, regions)
    if matrix is not None:
        if matrix.shape[0] != len(self.b):
            raise ValueError(f"A has {matrix.shape[0]} rows; b has {len(self.b)}")
        matrix.sort_indices()
        matrix.indices, matrix.indptr = (x.astype(np.int32, copy=False) for x in (matrix.indices, matrix.indptr))
        for x in (matrix.data, matrix.indices, matrix.indptr):
            x.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)
    return self


def _check_every_pixel_has_a_label(allowed):
    if allowed.ndim == 1:
        if not allowed.any():
            raise ValueError("no label is allowed anywhere in the image")
    else:
        nothing = np.flatnonzero(~allowed.any(axis=0))
        if nothing.size:
            raise ValueError(f"no label is allowed at {nothing.size} pixels, the first of them {nothing[0]}")


def _check_fractions(**bounds):
    for name, value in bounds.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be a fraction of the image, 0 .. 1; got {value}")


def _check_order(bg_lower, bg_upper):
    if bg_lower > bg_upper:
        raise ValueError(f"bg_lower = {bg_lower} is above bg_upper = {bg_upper}")
