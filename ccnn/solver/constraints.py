"""Linear constraints on the latent distribution of an image.

    (1/n) sum_i regions[j,i] sum_l A[j,l] p[l,i]  >=  b[j] - xi[j],   xi >= 0 at a price of beta[j]

p is L labels x n pixels; every row is a mean over the pixels, so b is a fraction of the image and the
price beta is the number the paper quotes: the most that a row may add to a pixel's score. Labels that
a pixel cannot take are no rows but a mask, `allowed`: the solver drops them.

The solver (ccnn.solver.dual) takes them with scores from any framework. ccnn.supervision.tags_sizes_boxes makes them
from tags, sizes, boxes and masks.
"""

import functools
from typing import Optional

import numpy as np
import scipy  # not scipy.sparse, which takes 0.1 s to load and few problems need

BACKGROUND = 0

VOID = 255          # a pixel whose label is unknown

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
    matrix: Optional["scipy.sparse.csc_matrix"]

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
        if scipy.sparse.issparse(A) and A.nnz >= 2 ** 31:
            raise ValueError(f"A has {A.nnz} entries; the solver takes less than {2 ** 31}")
        matrix = scipy.sparse.csc_matrix(A, dtype=float, copy=True)
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
            matrix = scipy.sparse.vstack([scipy.sparse.csc_matrix((len(c), columns)) if c.matrix is None else c.matrix
                                          for c in parts], "csc")
        return _rebuilt(A, np.append(self.b, other.b), np.append(self.beta, other.beta), allowed, regions, matrix)

    def with_prices(self, beta):
        """The same rows at other prices."""
        return _rebuilt(self.A, self.b, beta, self.allowed, self.regions, self.matrix)

    def rows(self, which):
        """Some of the rows, by a mask or by numbers, under the same mask of labels."""
        return _rebuilt(self.A[which], self.b[which], self.beta[which], self.allowed,
                        None if self.regions is None else self.regions[which],
                        None if self.matrix is None else scipy.sparse.csc_matrix(self.matrix.tocsr()[which]))

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
        weights = scipy.sparse.csr_matrix(np.ones((len(self), n)) if self.regions is None else self.regions)
        blocks = [scipy.sparse.diags(self.A[:, l]) @ weights for l in range(self.labels)]
        rows = scipy.sparse.hstack(blocks, "csc")
        rows = rows if self.matrix is None else rows + self.matrix
        rows.eliminate_zeros()
        return rows


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
