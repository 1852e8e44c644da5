"""Mean field of a dense CRF with any kernels, over pixels or anything else that has features.

    crf = DenseCRF([Kernel(position / 3, 3), Kernel(np.concatenate([position / 60, colour / 20]), 10)])
    q = crf.marginals(scores, iterations=10)            # scores L x n, or L x H x W; q has their shape
    q = crf.marginals(others, iterations=10)            # the lattices are kept

A kernel is exp(-|x_i - x_j|^2 / 2), x the features, normalised. dense_crf has the two kernels of a photograph.
"""
import threading
from collections.abc import Sequence
from typing import NamedTuple, Optional, Union

import numpy as np

import ccnn.solver  # noqa: F401   first: it checks that the processor has what the compiled modules need
from ccnn._util.system import cores
from ccnn.crf._mean_field import MeanField, leads
from ccnn.crf.presets import NORMALIZATIONS

DIMENSIONS = 8          # most of a kernel's features

FARTHEST = 3e4          # standard deviations: features beyond do not find their place in a lattice in float32

THREADS = 64            # most that are started: an image of many millions of pixels has work for as many

FAINTEST = -1e30        # score below the best: its probability is 0, and float32 holds it


class Kernel(NamedTuple):
    """One pairwise term."""
    features: np.ndarray                            # d x n or d x H x W, in standard deviations of the kernel; d <= 8
    compatibility: Union[float, np.ndarray]         # reward for equal labels (Potts), or the cost mu of pairs, L x L
    normalization: str = "after"                    # weights at a pixel sum to 1; or "symmetric"


class DenseCRF:
    """The kernels of one image, their lattices built. threads: 0 is one per processor; results do not depend on it."""

    def __init__(self, kernels: Sequence[Kernel], threads: int = 0) -> None:
        self.threads = thread_count(threads)
        kernels = [check_kernel(kernel) for kernel in kernels]
        sizes = {kernel.features.shape[1] for kernel in kernels}
        if len(sizes) != 1:
            raise ValueError(f"kernels must be of the same number of pixels, got {sorted(sizes) or 'no kernels'}")
        self.pixels = sizes.pop()
        self.matrices: list[Optional[np.ndarray]] = [
            kernel.compatibility if isinstance(kernel.compatibility, np.ndarray) else None for kernel in kernels]
        self.lock = threading.Lock()            # the buffers serve one call at a time
        self.mean_field = MeanField([(x, normalization, 1.0 if np.ndim(weight) else float(weight))
                                     for x, weight, normalization in kernels], self.threads)

    def marginals(self, scores: np.ndarray, iterations: int = 5, negligible: float = 0) -> np.ndarray:
        """q after so many iterations, float32, of the shape of scores.

        scores     : L x n or L x H x W, defined up to a constant per pixel
        negligible : labels that are nowhere this many times as likely as the best label of the pixel do not enter;
                     their marginals are 0
        """
        if type(iterations) is not int or not 0 <= iterations < 2 ** 31:
            raise ValueError(f"iterations must be a whole number in 0..{2 ** 31 - 1}, got {iterations!r}")
        scores = np.asarray(scores)
        if scores.ndim < 2 or not scores.size or scores[0].size != self.pixels:
            raise ValueError(f"scores must be L x {self.pixels} or L x H x W of as many pixels, got {scores.shape}")
        f, labels = entering(scores, negligible)
        for mu in self.matrices:
            if mu is not None and len(mu) != len(f):
                raise ValueError(f"compatibility must be {len(f)} x {len(f)}, one row per label; got {mu.shape}")
        return self.infer(f, labels, iterations).reshape(scores.shape)

    def infer(self, f: np.ndarray, labels: np.ndarray, iterations: int) -> np.ndarray:
        """marginals, of what `entering` returns."""
        q = (np.empty if len(labels) == len(f) else np.zeros)(f.shape, np.float32)
        matrices = [None if mu is None else -mu[np.ix_(labels, labels)] for mu in self.matrices]
        with self.lock:
            self.mean_field.infer(f, labels, q, iterations, matrices, self.threads)
        return q


def entering(scores: np.ndarray, negligible: float) -> tuple[np.ndarray, np.ndarray]:
    """The scores, L x n float32 without gaps, and the labels that are not negligible."""
    if scores.dtype.kind not in "fiub":
        raise ValueError(f"scores must be numbers, got {scores.dtype}")
    if not 0 <= negligible <= 1:
        raise ValueError(f"negligible must be a number in 0..1, got {negligible!r}")
    f = scores.reshape(len(scores), -1)
    if f.dtype != np.float32 and np.isfinite(f).all():
        f = f.astype(np.promote_types(f.dtype, np.float32), copy=False)
        f = np.maximum(f - f.max(axis=0), FAINTEST)             # first: large scores lose digits in float32
    f = np.ascontiguousarray(f, np.float32)
    lead = leads(f)
    if lead is None:
        raise ValueError(f"scores hold {np.count_nonzero(~np.isfinite(scores))} NaN or infinite values")
    return f, np.flatnonzero(np.exp(lead) >= negligible)


def thread_count(threads: int) -> int:
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 0:
        raise ValueError(f"threads must be 0 (one per processor) or positive; got {threads!r}")
    return min(threads or cores(), THREADS)


def check_kernel(kernel: Kernel) -> Kernel:
    """The kernel with features d x n float32; ValueError if a part of it is wrong."""
    x, compatibility, normalization = kernel
    x = np.asarray(x)
    if x.ndim < 2 or not 1 <= len(x) <= DIMENSIONS or not x.size or x.dtype.kind not in "fiub":
        raise ValueError(f"features must be d x n numbers, d at most {DIMENSIONS}; got {x.dtype} of shape {x.shape}")
    x = x.reshape(len(x), -1)
    farthest = max(x.max(), -x.min())
    if not farthest < FARTHEST:         # NaN, too
        raise ValueError(f"features must be finite and less than {FARTHEST:g} standard deviations from 0; "
                         f"got {farthest:g}: give the kernel larger distances")
    x = np.ascontiguousarray(x, np.float32)
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization must be one of {', '.join(NORMALIZATIONS)}, got {normalization!r}")
    return Kernel(x, check_compatibility(compatibility), normalization)


def check_compatibility(compatibility: Union[float, np.ndarray]) -> Union[float, np.ndarray]:
    mu = np.asarray(compatibility)
    if mu.dtype.kind not in "fiu" or mu.ndim not in (0, 2) or not (np.abs(mu) < -FAINTEST).all():     # NaN, too
        raise ValueError(f"compatibility must be a finite number or an L x L matrix of them, got {compatibility!r}")
    if mu.ndim and (mu.shape[0] != mu.shape[1] or not np.array_equal(mu, mu.T)):
        raise ValueError(f"a compatibility matrix must be L x L and symmetric, got {mu.shape}")
    return mu.astype(np.float32) if mu.ndim else float(mu)
