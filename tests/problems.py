"""Problems whose constraints q violates, one maker per kind of row, for every test of the solver."""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.special import softmax

import ccnn
from ccnn import Constraints, box_constraints, mask_constraints, size_constraints, tag_constraints


def smooth(rng, labels, height, width, std=1.0):
    """Scores that vary slowly over the image, as a net's do."""
    coarse = rng.normal(size=(labels, height // 3 + 2, width // 3 + 2))
    y, x = np.linspace(0, height // 3, height), np.linspace(0, width // 3, width)
    fine = np.stack([(1 - y % 1)[:, None] * c[y.astype(int)] + (y % 1)[:, None] * c[y.astype(int) + 1] for c in coarse])
    fine = (1 - x % 1) * fine[:, :, x.astype(int)] + x % 1 * fine[:, :, x.astype(int) + 1]
    return std * fine.reshape(labels, -1)


def flags(labels, *on):
    return np.isin(np.arange(labels), on)


def tags(rng, size):
    f = smooth(rng, 21, size, size + 2)
    f[0] += 4                                                   # too much background, too little of the tags
    return f, tag_constraints(flags(21, 0, 3, 7, 20))


def sizes(rng, size):
    f = smooth(rng, 21, size, size + 2)
    f[0] += 3
    f[7] += 3                                                   # the small one is too large
    return f, size_constraints(flags(21, 0, 3, 7, 20), flags(21, 3, 20))


def boxes(rng, size):
    f = smooth(rng, 6, size, size + 2)
    f[0] += 4
    h, w = size, size + 2
    return f, box_constraints([(1, 0, 0, h // 2 + 1, w - 1), (2, h // 3, w // 3, h, w), (1, h // 2, 0, h, w // 2),
                               (4, h - 2, w - 1, h, w)], (h, w), labels=6)


def points(rng, size):
    """Tags, and pixels whose label is known: those have one label to take."""
    f, c = tags(rng, size)
    mask = np.full(f.shape[1], 255)
    mask[5:9], mask[-7:] = 3, 0
    return f, c & mask_constraints(mask)


def weighted(rng, size):
    """Regions of a few weights, negative ones too: the pixels fall into few groups."""
    L, h, w = 5, size, size + 2
    f = smooth(rng, L, h, w)
    regions = np.repeat([[0.5, 2, 0], [3, 0, -1.5]], [h * w // 3, h * w // 3, h * w - 2 * (h * w // 3)], axis=1)
    A = [[0, 1, 0, 0, -0.5], [0, 0, 2, 1, 0]]
    return f, Constraints(A, [0.4, 0.8], [np.inf, 1.5], flags(L, 0, 1, 2, 4), regions)


def general(rng, size):
    """Sparse rows of both signs, hard and soft, that some p satisfies with a margin."""
    L, n, k = 5, size * (size + 2), 6
    f = smooth(rng, L, size, size + 2)
    p = softmax(3 * rng.normal(size=(L, n)), axis=0)
    M = sparse.csc_matrix(4 * rng.normal(size=(k, L * n)) * (rng.random((k, L * n)) < 0.3))
    beta = np.where(np.arange(k) % 2, np.inf, 0.3)
    return f, Constraints.from_matrix(M, M @ p.ravel() / n - 0.01, beta)


def mixed(rng, size):
    """Every kind of row and mask at once."""
    L, h, w = 6, size, size + 2
    n = h * w
    f = smooth(rng, L, h, w)
    f[0] += 3
    mask = np.full(n, 255)
    mask[:3], mask[-2:] = 1, 0
    M = sparse.csr_matrix((rng.uniform(0, 3, n), (np.zeros(n, int), 2 * n + np.arange(n))), shape=(1, L * n))
    return f, (tag_constraints(flags(L, 0, 1, 2, 4))
               & box_constraints([(1, 0, 0, h - 1, w), (2, 1, 1, h, w), (4, 0, 0, h, w)], (h, w), labels=L)
               & mask_constraints(mask, labels=L)
               & Constraints.from_matrix(M, [0.3], [5.0], allowed=np.ones(L, bool))
               & Constraints(rng.normal(size=(2, L)), [0.1, 0.05], [1.0, 0.2], regions=rng.uniform(0, 2, (2, n))))


KINDS = dict(tags=tags, sizes=sizes, boxes=boxes, points=points, weighted=weighted, general=general, mixed=mixed)


def priced(c, beta):
    """The same rows, all at one price."""
    return c.with_prices(np.full(len(c.b), beta))


def run(code, *arguments):
    """Run the code in a process of its own, which can be stopped, with the ccnn that is tested here."""
    path = str(Path(ccnn.__file__).parent.parent)
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": path})


def random_rows(rng, L, n, k, hard=0.5, regions=False):
    """Rank-one rows that a random p satisfies."""
    p = softmax(2 * rng.normal(size=(L, n)), axis=0)
    A, beta = rng.normal(size=(k, L)), np.where(rng.random(k) < hard, np.inf, rng.uniform(0.05, 3, k))
    weights = rng.uniform(0, 2, (k, n)) if regions else None
    return Constraints(A, Constraints(A, np.zeros(k), beta, regions=weights).values(p) - 0.005, beta, regions=weights)
