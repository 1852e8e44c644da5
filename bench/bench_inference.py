#!/usr/bin/env python3
"""Measure tools/infer.py in images per second, and what ccnn.crf adds to the time of pydensecrf2.

    bench/bench_inference.py                        # drawn photographs, 500 x 375
    bench/bench_inference.py --images holiday/      # your own
    bench/bench_inference.py --quick                # three small photographs, one job: does it run?
    bench/bench_inference.py --out docs             # also write docs/bench_inference.md

The net is prototxt/head_deploy.prototxt with random weights, which take as long as any others. Nothing is fetched.
"""
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _activate  # noqa: F401
import numpy as np
import pydensecrf.densecrf as dcrf
from measure import clock, machine, publish
from PIL import Image
from scipy.ndimage import gaussian_filter
from tqdm import tqdm

from ccnn import command
from ccnn.crf import LONG_SIDE, PRESETS, dense_crf
from ccnn.errors import UserError
from ccnn.images import read_image, shrink
from ccnn.labels import LABELS
from ccnn.net import load_caffe
from ccnn.paths import ROOT
from ccnn.photographs import find_photographs
from ccnn.predict import NET

SIZE = 321              # long side that the net sees: that of the shipped heads


def main(argv=None):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--images", type=Path, metavar="DIR", help="photographs to use (default: drawn ones)")
    add("--count", type=command.count, default=12, metavar="N", help="how many (default: %(default)s)")
    add("--quick", action="store_true", help="three small photographs, one job")
    add("--out", type=Path, metavar="DIR", help="write bench_inference.md there")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        count, height, width = (3, 45, 60) if args.quick else (args.count, 375, 500)
        photographs = choose(args.images, count) if args.images else draw(folder / "photographs", count, height, width)
        weights = random_weights(folder / "random.caffemodel")
        rows = [(crf, jobs, throughput(photographs, weights, folder, crf, jobs))
                for crf in (False, True) for jobs in ((1,) if args.quick else (1, 2))]
        ours, direct = crf_seconds([np.array(shrink(read_image(path), LONG_SIDE)) for path in photographs[:5]],
                                   repeats=1 if args.quick else 5)
    text = "\n".join([
        "# Inference, measured", "",
        f"`bench/bench_inference.py`{' on photographs of our own' if args.images else ''}. {machine()}", "",
        f"{len(photographs)} photographs, net at {SIZE} pixels, CRF at {LONG_SIDE}. Masks and overlays are written; "
        "start-up is not counted.", "",
        "| CRF | jobs | images / s |", "|---|---|---|",
        *(f"| {'authors' if crf else 'no'} | {jobs} | {rate:.2f} |" for crf, jobs, rate in rows), "",
        f"Dense CRF, authors' preset, 21 labels, CPU time per image: {ours:.3f} s through `dense_crf`, "
        f"{direct:.3f} s by calling pydensecrf2 directly: {100 * (ours / direct - 1):+.1f} % "
        "(required: at most +5 %).", ""])
    publish(text, args.out, "bench_inference.md")


def choose(folder, count):
    found = find_photographs([str(folder)], None, folder / "out")[:count]
    if len(found) < 3:
        raise UserError(f"{folder}: holds {len(found)} photographs, need 3 or more")
    return [path for path, _ in found]


def draw(folder, count, height, width):
    """Clouds of colour with fine noise: as many different colours as a photograph has."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    paths = []
    for k in range(max(count, 3)):
        rgb = sum(gaussian_filter(rng.normal(size=(height, width, 3)), (s, s, 0)) * s * w
                  for s, w in ((40, 9), (8, 4), (1, 2)))
        paths.append(folder / f"{k}.jpg")
        Image.fromarray((rgb * 8 + 120).clip(0, 255).astype(np.uint8)).save(paths[-1], quality=92)
    return paths


def random_weights(path):
    caffe = load_caffe()
    caffe.set_random_seed(1)
    caffe.Net(str(NET), caffe.TEST).save(str(path))
    return path


def throughput(photographs, weights, folder, crf, jobs):
    """Photographs per second. A run on one photograph is start-up, and is subtracted."""
    net = folder / "net.prototxt"
    net.write_text(NET.read_text())       # another path than the default net's: these weights hold the trunk
    seconds = []
    for some in (photographs[:1], photographs):
        with tempfile.TemporaryDirectory(dir=folder) as out:
            start = time.perf_counter()
            subprocess.run([sys.executable, ROOT / "tools/infer.py", "--net", net, "--weights", weights, "--out", out,
                            "--size", str(SIZE), "--jobs", str(jobs), *(["--crf", "authors"] if crf else []), *some],
                           stdout=subprocess.DEVNULL, check=True)
            seconds.append(time.perf_counter() - start)
    return (len(photographs) - 1) / (seconds[1] - seconds[0])


def crf_seconds(images, repeats):
    """CPU seconds per image through dense_crf and by direct_crf: the fastest of `repeats`, in turn."""
    preset = PRESETS["authors"]
    rng = np.random.default_rng(0)
    ours, direct = [], []
    for rgb in tqdm(images, desc="CRF", unit="image", disable=None):
        noise = gaussian_filter(rng.normal(size=(LABELS, *rgb.shape[:2])), (0, 15, 15))
        scores = noise.astype(np.float32) * 50
        pairs = [[clock(crf, rgb, scores, preset)[0] for crf in (dense_crf, direct_crf)] for _ in range(repeats)]
        best = np.min(pairs, axis=0)
        ours.append(best[0])
        direct.append(best[1])
    return np.mean(ours), np.mean(direct)


def direct_crf(rgb, scores, preset):
    """From scores to marginals with no more than the calls that pydensecrf2 needs."""
    crf = dcrf.DenseCRF2D(rgb.shape[1], rgb.shape[0], len(scores))
    crf.setUnaryEnergy(-scores.reshape(len(scores), -1))
    crf.addPairwiseGaussian(preset.gaussian_xy, preset.gaussian_weight, dcrf.DIAG_KERNEL, dcrf.NORMALIZE_AFTER)
    crf.addPairwiseBilateral(preset.bilateral_xy, preset.bilateral_rgb, rgb, preset.bilateral_weight, dcrf.DIAG_KERNEL,
                             dcrf.NORMALIZE_AFTER)
    return np.array(crf.inference(preset.iterations)).reshape(scores.shape)


if __name__ == "__main__":
    command.run(main)
