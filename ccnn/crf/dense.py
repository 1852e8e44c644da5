"""The dense CRF of Krähenbühl and Koltun, which sharpens scores along the edges of the photograph.

    q = dense_crf(rgb, scores, "authors")                           # L x H x W
    Q = dense_crf_batch(photographs, scores, "authors")             # many, on all processors
    q, lost = sharpen(rgb, scores, load_preset("heads"))            # the same as dense_crf, but it keeps the objects

Mean field of Potts' model: q <- softmax(f + sum_k w_k K_k q), with two kernels over all pairs of pixels,

    gaussian_weight  * exp(-|dxy|^2 / 2 gaussian_xy^2)
    bilateral_weight * exp(-|dxy|^2 / 2 bilateral_xy^2 - |drgb|^2 / 2 bilateral_rgb^2)

each normalised after filtering (its weights at a pixel sum to 1), as the paper's authors did.

Distances are in pixels of the photograph. A preset that names a `long_side` was tuned on photographs of that size:
its distances grow and shrink with the photograph.

Mean field takes time in proportion to the labels. A label that is nowhere in the photograph more than NEGLIGIBLE times
as likely as the best label stays out: its marginals are 0.

The kernels add up to gaussian_weight + bilateral_weight to a label's score, and the net's own lead in an object is
often less than 1. So the many pixels around a small or thin object outvote it, and it vanishes. `sharpen` bounds
this, see keep_objects, and tells what was lost.
"""
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Union

import numpy as np

from ccnn.crf.engines import ENGINES
from ccnn.crf.mean_field import entering, thread_count
from ccnn.crf.presets import PRESETS, Preset, as_preset, check_preset, load_preset
from ccnn.solver import BACKGROUND

__all__ = ["LONG_SIDE", "NEGLIGIBLE", "PRESETS", "Preset", "check_preset", "dense_crf", "dense_crf_batch",
           "keep_objects", "load_preset", "sharpen"]

LONG_SIDE = 500         # pixels: larger photographs are reduced before the CRF

NEGLIGIBLE = 0.02       # times the probability of a pixel's best label; 0: every label enters mean field

OBJECT = 0.01           # of the photograph: a label that covers less is not counted as an object

REMOVED = 0.1           # of its pixels: a label that keeps less is called removed

SMALLEST = 1e-37        # of a probability before its logarithm is taken: the smallest that float32 holds in full

LEAD = 0.01             # that a kept label gets over the next in log-probability: enough to win in float16, too


def dense_crf(rgb: np.ndarray, scores: np.ndarray, preset: Union[Preset, str] = "authors",
              negligible: float = NEGLIGIBLE, threads: int = 0, engine: str = "ccnn") -> np.ndarray:
    """Marginals after `preset.iterations` of mean field, L x H x W float32; preset.keep plays no part.

    rgb        : H x W x 3 uint8, no mean subtracted
    scores     : L x H x W, defined up to a constant per pixel: a net's scores or the logarithm of probabilities
    preset     : a Preset, or the name of one
    negligible : labels that are nowhere this many times as likely as the best label of the pixel do not enter;
                 their marginals are 0
    threads    : 0 is one per processor; the result does not depend on it
    engine     : "ccnn", or "pydensecrf", the reference (on one thread)
    """
    rgb, scores, preset = np.asarray(rgb), np.asarray(scores), as_preset(preset)
    if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3:
        raise ValueError(f"rgb must be H x W x 3 uint8, got {rgb.shape} {rgb.dtype}")
    if scores.ndim != 3 or scores.shape[1:] != rgb.shape[:2] or not scores.size:
        raise ValueError(f"scores must be L x {rgb.shape[0]} x {rgb.shape[1]}, as the image; got {scores.shape}")
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}; got {engine!r}")
    f, labels = entering(scores, negligible)
    if len(labels) == 1:
        q = np.zeros(scores.shape, np.float32)
        q[labels] = 1
        return q
    return ENGINES[engine](rgb, f, labels, preset, thread_count(threads)).reshape(scores.shape)


def dense_crf_batch(photographs: Sequence[np.ndarray], scores: Sequence[np.ndarray],
                    preset: Union[Preset, str] = "authors", negligible: float = NEGLIGIBLE,
                    threads: int = 0) -> list[np.ndarray]:
    """dense_crf of many photographs, each on one thread: a list, equal to that of dense_crf bit for bit."""
    if len(photographs) != len(scores):
        raise ValueError(f"need scores for every photograph: got {len(photographs)} photographs, {len(scores)} scores")
    with ThreadPoolExecutor(thread_count(threads)) as pool:
        return list(pool.map(lambda rgb, f: dense_crf(rgb, f, preset, negligible, threads=1), photographs, scores))


def sharpen(rgb: np.ndarray, scores: np.ndarray, preset: Preset, threads: int = 1, engine: str = "ccnn"
            ) -> tuple[np.ndarray, dict[int, bool]]:
    """The marginals of dense_crf, bounded by preset.keep; and the labels that lost their pixels to the CRF:

    {label: True}   the bound gave a part of them back, see keep_objects
    {label: False}  it covered OBJECT of the photograph, and less than REMOVED of that is left: there is no bound, or
                    the net was unsure of the label everywhere
    """
    q = dense_crf(rgb, scores, preset, threads=threads, engine=engine)
    kept = keep_objects(q, scores, preset.keep) if preset.keep else []
    before, after = areas(scores), areas(q)
    removed = (before >= OBJECT * q[0].size) & (after < REMOVED * before)
    removed[BACKGROUND] = False
    return q, {**dict.fromkeys(np.flatnonzero(removed).tolist(), False), **dict.fromkeys(kept, True)}


def areas(values: np.ndarray) -> np.ndarray:
    """In how many pixels each label is the best."""
    best = values.max(axis=0)
    return np.array([np.count_nonzero(value == best) for value in values])


def keep_objects(q: np.ndarray, scores: np.ndarray, keep: float) -> list[int]:
    """Change the CRF's marginals q (L x H x W float32), in place, so that no object is lost; return the labels for
    which that was necessary.

    An object is the set R of pixels in which the scores give a label l more than half of the probability, if R covers
    at least OBJECT of the photograph. In at least `keep` of R, l must be the best label. Where it is not,

        q_i(l) <- q_i(l) exp(lam) / Z_i    for i in R,

    with the least lam that does it: the distribution nearest to q in which l has so much of R.
    """
    best = scores.max(axis=0)
    sure = np.exp(scores - best).sum(axis=0) < 2        # the best label has more than all the others together
    kept = []
    for label in range(BACKGROUND + 1, len(scores)):
        R = sure & (scores[label] == best)
        size = np.count_nonzero(R)
        if size < OBJECT * R.size:
            continue
        q_R = q[:, R].astype(float)
        others = np.delete(q_R, label, axis=0).max(axis=0)
        lead = np.log(np.maximum(q_R[label], SMALLEST)) - np.log(np.maximum(others, SMALLEST))
        least = int(np.ceil(keep * size))               # pixels in which the label must be the best
        if np.count_nonzero(lead > 0) < least:
            lam = LEAD - np.partition(lead, size - least)[size - least]
            q_R[label] = np.maximum(q_R[label], SMALLEST) * np.exp(lam)
            q[:, R] = q_R / q_R.sum(axis=0)
            kept.append(label)
    return kept
