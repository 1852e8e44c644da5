"""The dense CRF of Krahenbuhl and Koltun, which sharpens scores along the edges of the photograph.

    q = dense_crf(rgb, scores, load_preset("authors"))              # L x H x W
    q, lost = sharpen(rgb, scores, load_preset("heads"))            # the same, but it keeps the objects

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
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ccnn._util.errors import UserError
from ccnn.solver.constraints import BACKGROUND

LONG_SIDE = 500         # pixels: larger photographs are reduced before the CRF

NEGLIGIBLE = 0.02       # times the probability of a pixel's best label; 0: every label enters mean field

OBJECT = 0.01           # of the photograph: a label that covers less is no object

REMOVED = 0.1           # of its pixels: a label that keeps less is called removed

SMALLEST = 1e-37        # of a probability before its logarithm is taken: the smallest that float32 holds in full

LEAD = 0.01             # that a kept label gets over the next in log-probability: enough to win in float16, too


class Preset(NamedTuple):
    """The parameters of the CRF; distances in pixels and in levels of 0..255. The defaults are the plain CRF."""
    gaussian_xy: float
    gaussian_weight: float
    bilateral_xy: float
    bilateral_rgb: float
    bilateral_weight: float
    iterations: int
    normalization: str = "after"
    long_side: int = 0          # of photographs that the distances in pixels are for; 0: of any
    keep: float = 0             # least share of an object that `sharpen` keeps; 0: no bound

PRESETS = {
    "authors": Preset(3, 3, 60, 20, 10, 10),            # the defaults of the authors' Caffe
    "untuned": Preset(6, 6, 50, 4, 5, 10),              # their nets' comment
    "tuned": Preset(19, 15, 61, 10, 35, 10),            # active in their nets
    # for models/: tune_crf, on 50 images of 321 pixels held out
    "heads": Preset(3, 3, 30, 8, 10, 10, long_side=321, keep=0.3),
    "pydensecrf": Preset(3, 3, 80, 13, 10, 5, "symmetric"),     # that library's example, its normalisation too
}

NORMALIZATION = {"after": "NORMALIZE_AFTER", "symmetric": "NORMALIZE_SYMMETRIC"}     # pydensecrf's names


def load_preset(name: str) -> Preset:
    """The Preset of that name, or of a JSON file as ccnn tune-crf writes it."""
    if name in PRESETS:
        return PRESETS[name]
    if not Path(name).is_file():
        raise UserError(f"no CRF preset {name!r}: give one of {', '.join(PRESETS)}, or a file of ccnn tune-crf")
    try:
        values = json.loads(Path(name).read_text())["preset"]
        return check_preset(Preset(**values))
    except (ValueError, KeyError, TypeError) as e:
        raise UserError(f"{name}: not a finished CRF preset ({type(e).__name__}: {e}); "
                        "make one with ccnn tune-crf") from None


def check_preset(preset: Preset) -> Preset:
    """The preset, if every parameter is in its range; ValueError otherwise."""
    for field, value in zip(preset._fields[:5], preset):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e4:
            raise ValueError(f"{field} must be a number in 0..10000, got {value!r}")
    if type(preset.iterations) is not int or not 0 <= preset.iterations <= 1000:
        raise ValueError(f"iterations must be a whole number in 0..1000, got {preset.iterations!r}")
    if preset.normalization not in NORMALIZATION:
        raise ValueError(f"normalization must be one of {', '.join(NORMALIZATION)}, got {preset.normalization!r}")
    if type(preset.long_side) is not int or not 0 <= preset.long_side < 1e5:
        raise ValueError(f"long_side must be a whole number of pixels, got {preset.long_side!r}")
    if isinstance(preset.keep, bool) or not isinstance(preset.keep, (int, float)) or not 0 <= preset.keep <= 1:
        raise ValueError(f"keep must be a number in 0..1, got {preset.keep!r}")
    return preset


def dense_crf(rgb: np.ndarray, scores: np.ndarray, preset: Preset, negligible: float = NEGLIGIBLE) -> np.ndarray:
    """Marginals after `preset.iterations` of mean field, L x H x W float32; preset.keep plays no part.

    rgb        : H x W x 3 uint8, no mean subtracted
    scores     : L x H x W, defined up to a constant per pixel: a net's scores or the logarithm of probabilities
    negligible : labels that are nowhere this many times as likely as the best label of the pixel do not enter;
                 their marginals are 0
    """
    import pydensecrf.densecrf as dcrf  # not needed for masks without CRF
    rgb, scores = np.asarray(rgb), np.asarray(scores)
    if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3:
        raise ValueError(f"rgb must be H x W x 3 uint8, got {rgb.shape} {rgb.dtype}")
    if scores.ndim != 3 or scores.shape[1:] != rgb.shape[:2] or not scores.size:
        raise ValueError(f"scores must be L x {rgb.shape[0]} x {rgb.shape[1]}, as the image; got {scores.shape}")
    check_preset(preset)
    energy = np.asarray(scores.max(axis=0) - scores, np.float32)        # -log-softmax, up to a constant
    if not np.isfinite(energy.max()):
        raise ValueError(f"scores hold {np.count_nonzero(~np.isfinite(scores))} NaN or infinite values")
    entering = np.exp(-energy.min(axis=(1, 2))) >= negligible           # at least the best label of some pixel
    labels, height, width = np.count_nonzero(entering), *rgb.shape[:2]
    normalization = getattr(dcrf, NORMALIZATION[preset.normalization])
    crf = dcrf.DenseCRF2D(width, height, labels)
    crf.setUnaryEnergy(np.ascontiguousarray(energy[entering]).reshape(labels, -1))
    scale = max(height, width) / preset.long_side if preset.long_side else 1
    crf.addPairwiseGaussian(preset.gaussian_xy * scale, preset.gaussian_weight, dcrf.DIAG_KERNEL, normalization)
    crf.addPairwiseBilateral(preset.bilateral_xy * scale, preset.bilateral_rgb, np.require(rgb, None, ["C", "W"]),
                             preset.bilateral_weight, dcrf.DIAG_KERNEL, normalization)
    q = np.zeros(scores.shape, np.float32)
    q[entering] = np.reshape(crf.inference(preset.iterations), (labels, height, width))
    return q


def sharpen(rgb: np.ndarray, scores: np.ndarray, preset: Preset) -> tuple[np.ndarray, dict[int, bool]]:
    """The marginals of dense_crf, bounded by preset.keep; and the labels that lost their pixels to the CRF:

    {label: True}   the bound gave a part of them back, see keep_objects
    {label: False}  it covered OBJECT of the photograph, and less than REMOVED of that is left: there is no bound, or
                    the net was unsure of the label everywhere
    """
    q = dense_crf(rgb, scores, preset)
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
