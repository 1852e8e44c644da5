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
import os
from pathlib import Path

import _activate  # noqa: F401
from tqdm import tqdm

from ccnn import command
from ccnn.crf import PRESETS, load_preset, pair_with_images, refine
from ccnn.errors import UserError
from ccnn.masks import report, save_mask, unfinished
from ccnn.workers import in_processes


def refine_file(source, photograph, mask, preset, settings):
    """Write one mask; return None, or one line on why there is none."""
    try:
        save_mask(mask, refine(source, photograph, preset), settings)
    except UserError as e:
        return str(e)


def main(argv=None):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("probabilities", nargs="+", type=Path, help=".npz files, or folders of them")
    add("--images", type=Path, required=True, metavar="DIR", help="the photographs, same names")
    add("--out", type=Path, required=True, metavar="DIR", help="where NAME.png goes")
    add("--preset", default="authors", metavar="P", help=f"{', '.join(PRESETS)}, or a file of tools/tune_crf.py")
    add("--jobs", type=command.count, default=os.cpu_count(), metavar="N", help="processes (default: all cores)")
    add("--force", action="store_true", help="make masks again, and replace files made otherwise")
    args = parser.parse_args(argv)
    preset = load_preset(args.preset)
    settings = {"tool": "crf", "preset": preset._asdict()}
    photographs = dict(pair_with_images(args.probabilities, args.images))
    todo = unfinished([(path, args.out / f"{path.stem}.png") for path in photographs], settings, args.force)
    tasks = ((path, photographs[path], mask, preset, settings) for path, mask in todo)
    results = tqdm(in_processes(refine_file, tasks, args.jobs), total=len(todo), unit="image", disable=None)
    failures = [failure for failure in results if failure]
    return report(failures, len(todo) - len(failures), args.out)


if __name__ == "__main__":
    command.run(main)
