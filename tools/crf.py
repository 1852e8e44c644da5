#!/usr/bin/env python3
"""Sharpen saved probabilities with a dense CRF and write one label PNG per photograph.

    tools/infer.py --probabilities --out coarse data/VOCdevkit/VOC2012/JPEGImages/2007_0000*.jpg
    tools/crf.py --preset tuned --images data/VOCdevkit/VOC2012/JPEGImages --out sharp coarse/probabilities

`tools/infer.py --crf` does both at once; this is for trying several parameters on one run of the net, and for
probabilities of other programs: .npz files with an array `probabilities`, L x height x width.

As a library:  from crf import dense_crf, load_preset
               q = dense_crf(rgb, scores, load_preset("authors"))      # L x H x W

The energy is Krahenbuhl and Koltun's, mean field, Potts: scores plus, for every pair of pixels,

    gaussian_weight  * exp(-|dxy|^2 / 2 gaussian_xy^2)
    bilateral_weight * exp(-|dxy|^2 / 2 bilateral_xy^2 - |drgb|^2 / 2 bilateral_rgb^2)

each kernel normalised after filtering (its weights at a pixel sum to 1), as the paper's authors did.
Distances are in pixels of photographs of VOC's size: a long side of 500.
"""
import json
import os
import sys
from collections import namedtuple
from pathlib import Path

import cli
import numpy as np
from cli import UserError
from images import VOID, InputError, indexed, read_image, shrink
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from tqdm import tqdm

LONG_SIDE = 500         # pixels: the size that the presets' distances are made for
STRIP = 1 << 22         # scores that are enlarged at a time: 16 MB

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


def positions(size, source):
    """Where the pixels 0..size-1 of a side lie on the same side scaled to `source` pixels (centres, in pixels)."""
    return (np.arange(size) + 0.5) * (source / size) - 0.5


def sample(values, y, x):
    """L x h x w values at rows y and columns x, bilinearly, the border repeated: L x len(y) x len(x)."""
    for axis, at in ((1, y), (2, x)):
        at = np.clip(at, 0, values.shape[axis] - 1)
        low = np.minimum(at.astype(int), max(values.shape[axis] - 2, 0))
        if np.array_equal(at, np.arange(values.shape[axis])):
            continue
        high = np.minimum(low + 1, values.shape[axis] - 1)
        t = (at - low).astype(np.float32)[:, None] if axis == 1 else (at - low).astype(np.float32)
        below = values.take(low, axis)
        values = below + t * (values.take(high, axis) - below)
    return values


def label_map(values, y, x):
    """argmax over labels of sample(values, y, x), uint8; in strips of rows: L x 20 megapixels fit nowhere."""
    strip = max(1, STRIP // (values.shape[0] * len(x)))
    return np.concatenate([sample(values, y[k:k + strip], x).argmax(axis=0).astype(np.uint8)
                           for k in range(0, len(y), strip)])


def save_mask(path, mask, settings):
    """An indexed PNG in VOC's colours that carries the settings it was made with."""
    text = PngInfo()
    text.add_text("settings", json.dumps(settings))
    with cli.whole_file(path) as part:
        indexed(mask).save(part, pnginfo=text)


def unfinished(work, settings, force):
    """Those (source, mask, other outputs) of `work` that are still to be made.

    Finished is a mask that carries these settings, is not older than its source, and has its other outputs beside
    it. Any other file in a mask's place is replaced only by force.
    """
    todo, foreign, sources = [], [], {}
    for source, mask, *others in work:
        if sources.setdefault(mask, source) != source:
            raise UserError(f"{sources[mask]} and {source} would both become {mask}; give them different names")
        if mask.exists():
            if mask_settings(mask) != settings:
                foreign.append(mask)
            elif not force and mask.stat().st_mtime >= source.stat().st_mtime and all(o.exists() for o in others):
                continue
        todo.append((source, mask, *others))
    if foreign and not force:
        raise UserError(f"{foreign[0]}{f' and {len(foreign) - 1} more' if foreign[1:] else ''}: made otherwise than "
                        "this command would; choose another --out, or --force to replace")
    if len(todo) < len(work):
        print(f"{len(work) - len(todo)} of {len(work)} were finished before (--force makes them again)")
    if foreign:
        print(f"replacing {len(foreign)} files that were made otherwise")
    return todo


def mask_settings(path):
    """The settings that save_mask wrote; None in a file that is not its work."""
    try:
        with Image.open(path) as image:
            return json.loads(image.info["settings"])
    except (OSError, SyntaxError, ValueError, KeyError, TypeError):     # SyntaxError: Pillow's for a broken PNG
        return None


def report(failures, made, out):
    """Say what was made, and at the end what was not; return the exit status."""
    print(f"{made} masks in {out}")
    for failure in failures:
        print(failure, file=sys.stderr)
    if failures:
        print(f"{len(failures)} failed, see above; the rest is done", file=sys.stderr)
    return 1 if failures else 0


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


def refine_file(source, photograph, mask, preset, settings):
    """Write one mask; return None, or one line on why there is none."""
    try:
        save_mask(mask, refine(source, photograph, preset), settings)
    except (UserError, InputError) as e:
        return str(e)


def main(argv=None):
    parser = cli.parser(__doc__)
    add = parser.add_argument
    add("probabilities", nargs="+", type=Path, help=".npz files, or folders of them")
    add("--images", type=Path, required=True, metavar="DIR", help="the photographs, same names")
    add("--out", type=Path, required=True, metavar="DIR", help="where NAME.png goes")
    add("--preset", default="authors", metavar="P", help=f"{', '.join(PRESETS)}, or a file of tools/tune_crf.py")
    add("--jobs", type=cli.count, default=os.cpu_count(), metavar="N", help="processes (default: all cores)")
    add("--force", action="store_true", help="make masks again, and replace files made otherwise")
    args = parser.parse_args(argv)
    preset = load_preset(args.preset)
    settings = {"tool": "crf", "preset": preset._asdict()}
    photographs = dict(pair_with_images(args.probabilities, args.images))
    todo = unfinished([(path, args.out / f"{path.stem}.png") for path in photographs], settings, args.force)
    tasks = ((path, photographs[path], mask, preset, settings) for path, mask in todo)
    results = tqdm(cli.spread(refine_file, tasks, args.jobs), total=len(todo), unit="image", disable=None)
    failures = [failure for failure in results if failure]
    return report(failures, len(todo) - len(failures), args.out)


if __name__ == "__main__":
    cli.run(main)
