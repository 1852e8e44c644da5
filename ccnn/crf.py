"""The dense CRF."""
import json
from collections import namedtuple
from pathlib import Path

import numpy as np
from PIL import Image

from ccnn.errors import UserError
from ccnn.grid import label_map, positions, sample
from ccnn.images import read_image, shrink
from ccnn.labels import VOID

LONG_SIDE = 500         # pixels: the size that the presets' distances are made for

Preset = namedtuple("Preset", "gaussian_xy gaussian_weight bilateral_xy bilateral_rgb bilateral_weight iterations "
                              "normalization", defaults=("after",))

PRESETS = {
    "authors": Preset(3, 3, 60, 20, 10, 10),            # the defaults of the authors' Caffe
    "untuned": Preset(6, 6, 50, 4, 5, 10),              # their nets' comment
    "tuned": Preset(19, 15, 61, 10, 35, 10),            # active in their nets
    "heads": Preset(3, 3, 30, 8, 10, 10),               # for models/: tune_crf, on 50 images of 321 pixels held out
    "pydensecrf": Preset(3, 3, 80, 13, 10, 5, "symmetric"),     # that library's example, its normalisation too
}

NORMALIZATION = {"after": "NORMALIZE_AFTER", "symmetric": "NORMALIZE_SYMMETRIC"}     # pydensecrf's names


def load_preset(name):
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


def check_preset(preset):
    for field, value in zip(preset._fields[:5], preset):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e4:
            raise ValueError(f"{field} must be a number in 0..10000, got {value!r}")
    if type(preset.iterations) is not int or not 0 <= preset.iterations <= 1000:
        raise ValueError(f"iterations must be a whole number in 0..1000, got {preset.iterations!r}")
    if preset.normalization not in NORMALIZATION:
        raise ValueError(f"normalization must be one of {', '.join(NORMALIZATION)}, got {preset.normalization!r}")
    return preset


def dense_crf(rgb, scores, preset):
    """Marginals after `preset.iterations` of mean field, L x H x W float32.

    rgb    : H x W x 3 uint8, no mean subtracted
    scores : L x H x W, defined up to a constant per pixel: a net's scores or the logarithm of probabilities
    """
    import pydensecrf.densecrf as dcrf  # not needed for masks without CRF
    rgb, scores = np.asarray(rgb), np.asarray(scores)
    if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3:
        raise ValueError(f"rgb must be H x W x 3 uint8, got {rgb.shape} {rgb.dtype}")
    if scores.ndim != 3 or scores.shape[1:] != rgb.shape[:2] or not scores.size:
        raise ValueError(f"scores must be L x {rgb.shape[0]} x {rgb.shape[1]}, as the image; got {scores.shape}")
    check_preset(preset)
    energy = np.ascontiguousarray(scores.max(axis=0) - scores, np.float32)      # -log-softmax, up to a constant
    if not np.isfinite(energy.max()):
        raise ValueError(f"scores hold {np.count_nonzero(~np.isfinite(scores))} NaN or infinite values")
    labels, height, width = scores.shape
    normalization = getattr(dcrf, NORMALIZATION[preset.normalization])
    crf = dcrf.DenseCRF2D(width, height, labels)
    crf.setUnaryEnergy(energy.reshape(labels, -1))
    crf.addPairwiseGaussian(preset.gaussian_xy, preset.gaussian_weight, dcrf.DIAG_KERNEL, normalization)
    crf.addPairwiseBilateral(preset.bilateral_xy, preset.bilateral_rgb, np.require(rgb, None, "CW"),
                             preset.bilateral_weight, dcrf.DIAG_KERNEL, normalization)
    return np.array(crf.inference(preset.iterations), np.float32).reshape(scores.shape)


def read_probabilities(path):
    """The array `probabilities` of an .npz file, L x h x w float32, checked."""
    try:
        with np.load(path) as file:
            done = str(file["crf"]) if "crf" in file else ""
            p = file["probabilities"].astype(np.float32)
    except Exception as e:      # a damaged archive fails in many ways: zipfile, zlib, struct, pickle, EOF, ...
        raise UserError(f"{path}: holds no probabilities ({e}); make it with tools/infer.py --probabilities") from None
    if done:
        raise UserError(f"{path}: went through the CRF before; make it with tools/infer.py without --crf")
    if p.ndim != 3 or not p.size or p.shape[0] >= VOID:
        raise UserError(f"{path}: probabilities must be L x height x width with L < {VOID}, got {p.shape}")
    if not (p.min() >= 0 and abs(p.sum(axis=0) - 1).max() < 0.01):      # false for NaN too
        raise UserError(f"{path}: holds values that are not probabilities: each pixel's must sum to 1")
    return p


def log_probabilities(p):
    """Scores for dense_crf. What float16 rounds to 0 becomes its smallest number: log(0) must not be."""
    return np.log(np.maximum(p, 6e-8))


def pair_with_images(sources, folder):
    """(file, photograph) for every .npz file, those of folders included; the photograph is found by its name."""
    if not folder.is_dir():
        raise UserError(f"--images {folder}: no such folder")
    images = {}
    for path in folder.iterdir():
        if path.suffix.lower() in Image.registered_extensions():
            images.setdefault(path.stem, path)
    files = [f for source in sources for f in (sorted(source.rglob("*.npz")) if source.is_dir() else [source])]
    if not files:
        raise UserError(f"{sources[0]}: holds no .npz files; make them with tools/infer.py --probabilities")
    for path in files:
        if not path.is_file():
            raise UserError(f"{path}: no such file or folder")
        if path.stem not in images:
            raise UserError(f"{path}: there is no photograph named {path.stem} in {folder}")
    return [(path, images[path.stem]) for path in files]


def refine(source, photograph, preset):
    """What the CRF makes of a file of probabilities, at the photograph's size; without preset, their argmax."""
    p, rgb = read_probabilities(source), read_image(photograph)
    small = shrink(rgb, LONG_SIDE)
    (height, width), (h, w), (rows, columns) = rgb.shape[:2], small.shape[:2], p.shape[1:]
    if abs(rows * width - columns * height) > max(height, width):       # more than a pixel of rounding
        raise UserError(f"{source}: {rows} x {columns} is not the shape of {photograph}, {height} x {width}")
    scores = sample(log_probabilities(p), positions(h, rows), positions(w, columns))
    q = dense_crf(small, scores, preset) if preset else scores
    return label_map(q, positions(height, h), positions(width, w))
