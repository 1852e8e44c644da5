"""The dense CRF of Krahenbuhl and Koltun, which sharpens scores along the edges of the photograph.

    q = dense_crf(rgb, scores, load_preset("authors"))      # L x H x W

Mean field of Potts' model: q <- softmax(f + sum_k w_k K_k q), with two kernels over all pairs of pixels,

    gaussian_weight  * exp(-|dxy|^2 / 2 gaussian_xy^2)
    bilateral_weight * exp(-|dxy|^2 / 2 bilateral_xy^2 - |drgb|^2 / 2 bilateral_rgb^2)

each normalised after filtering (its weights at a pixel sum to 1), as the paper's authors did. Distances are in
pixels of photographs of VOC's size: a long side of 500.

Mean field takes time in proportion to the labels. A label that is nowhere in the photograph more than NEGLIGIBLE times
as likely as the best label stays out: its marginals are 0.
"""
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ccnn.errors import UserError

LONG_SIDE = 500         # pixels: the size that the presets' distances are made for

NEGLIGIBLE = 0.02       # times the probability of a pixel's best label; 0: every label enters mean field


class Preset(NamedTuple):
    """The parameters of the CRF; distances in pixels and in levels of 0..255."""
    gaussian_xy: float
    gaussian_weight: float
    bilateral_xy: float
    bilateral_rgb: float
    bilateral_weight: float
    iterations: int
    normalization: str = "after"

PRESETS = {
    "authors": Preset(3, 3, 60, 20, 10, 10),            # the defaults of the authors' Caffe
    "untuned": Preset(6, 6, 50, 4, 5, 10),              # their nets' comment
    "tuned": Preset(19, 15, 61, 10, 35, 10),            # active in their nets
    "heads": Preset(3, 3, 30, 8, 10, 10),               # for models/: tune_crf, on 50 images of 321 pixels held out
    "pydensecrf": Preset(3, 3, 80, 13, 10, 5, "symmetric"),     # that library's example, its normalisation too
}

NORMALIZATION = {"after": "NORMALIZE_AFTER", "symmetric": "NORMALIZE_SYMMETRIC"}     # pydensecrf's names


def load_preset(name: str) -> Preset:
    """The Preset of that name, or of a JSON file as tools/tune_crf.py writes it."""
    if name in PRESETS:
        return PRESETS[name]
    if not Path(name).is_file():
        raise UserError(f"no CRF preset {name!r}: give one of {', '.join(PRESETS)}, or a file of tools/tune_crf.py")
    try:
        values = json.loads(Path(name).read_text())["preset"]
        return check_preset(Preset(**values))
    except (ValueError, KeyError, TypeError) as e:
        raise UserError(f"{name}: not a finished CRF preset ({type(e).__name__}: {e}); "
                        "make one with tools/tune_crf.py") from None


def check_preset(preset: Preset) -> Preset:
    """The preset, if every parameter is in its range; ValueError otherwise."""
    for field, value in zip(preset._fields[:5], preset):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e4:
            raise ValueError(f"{field} must be a number in 0..10000, got {value!r}")
    if type(preset.iterations) is not int or not 0 <= preset.iterations <= 1000:
        raise ValueError(f"iterations must be a whole number in 0..1000, got {preset.iterations!r}")
    if preset.normalization not in NORMALIZATION:
        raise ValueError(f"normalization must be one of {', '.join(NORMALIZATION)}, got {preset.normalization!r}")
    return preset


def dense_crf(rgb: np.ndarray, scores: np.ndarray, preset: Preset, negligible: float = NEGLIGIBLE) -> np.ndarray:
    """Marginals after `preset.iterations` of mean field, L x H x W float32.

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
    crf.addPairwiseGaussian(preset.gaussian_xy, preset.gaussian_weight, dcrf.DIAG_KERNEL, normalization)
    crf.addPairwiseBilateral(preset.bilateral_xy, preset.bilateral_rgb, np.require(rgb, None, ["C", "W"]),
                             preset.bilateral_weight, dcrf.DIAG_KERNEL, normalization)
    q = np.zeros(scores.shape, np.float32)
    q[entering] = np.reshape(crf.inference(preset.iterations), (labels, height, width))
    return q
