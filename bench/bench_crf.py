#!/usr/bin/env python3
"""Measure the dense CRF: ours and pydensecrf in turn, on real photographs; what the floor is; how the time grows.

    bench/bench_crf.py                      # two photographs of docs/, drawn scores
    bench/bench_crf.py --images holiday/ --probabilities masks/probabilities    # your own, and a net's scores
    bench/bench_crf.py --voc data/VOCdevkit/VOC2012 --probabilities masks/probabilities         # also mIoU
    bench/bench_crf.py --quick              # small photographs, few repeats: does it run?
    bench/bench_crf.py --out docs           # also write docs/bench_crf.md and docs/bench_crf.png

`ccnn segment --probabilities --out masks` writes the scores. CPU seconds are those of one thread; both engines get the
same arrays, and the fastest of a few turns counts. Two threads need two cores with nothing else to do. The reference is
pydensecrf2: requirements/crf-reference.txt.
"""
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measure import clock, machine, publish
from PIL import Image
from scipy.ndimage import gaussian_filter
from tqdm import tqdm

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.paths import ROOT
from ccnn.cli import command
from ccnn.crf import ENGINES, PRESETS, DenseCRF, dense_crf, photograph_kernels
from ccnn.crf.dense import LONG_SIDE, NEGLIGIBLE
from ccnn.evaluation.scores import confusion, scored
from ccnn.images.grid import positions, sample
from ccnn.images.labels import LABELS
from ccnn.images.listing import pair_with_photographs
from ccnn.images.reading import read_image, read_mask, shrink
from ccnn.inference.probabilities import log_probabilities, read_probabilities

PHOTOGRAPHS = ("chelsea.jpg", "motorcycle.jpg")         # of docs/

TIMED = 12          # photographs that are timed; all are compared

BOTH = ("pydensecrf", "ccnn")

# what is required, and the aim
FASTER, FASTER_PRUNED, TWO_THREADS, MEMORY, EQUAL = (3, 6), (2.5, 5), (1.7, 1.9), (0.7, 0.4), 0.999


class Problem(NamedTuple):
    name: str
    rgb: np.ndarray             # H x W x 3
    scores: np.ndarray          # L x H x W


def main(argv=None):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--images", type=Path, metavar="DIR", help="photographs to use (default: two of docs/)")
    add("--probabilities", type=Path, metavar="DIR", help="with --images or --voc: of ccnn segment --probabilities")
    add("--voc", type=Path, metavar="DIR", help="VOC: its photographs, and what both engines score")
    add("--quick", action="store_true", help="small photographs, few repeats")
    add("--memory-of", choices=ENGINES, help="print what one call adds to the memory of a new process, and end")
    add("--out", type=Path, metavar="DIR", help="write bench_crf.md and bench_crf.png there")
    args = parser.parse_args(argv)
    if args.memory_of:
        return print(json.dumps(added_megabytes(args.memory_of, np.load(sys.stdin.buffer))))
    if bool(args.images or args.voc) != bool(args.probabilities):
        raise UserError("--probabilities goes with --images or --voc: give both")
    side, repeats = (90, 1) if args.quick else (LONG_SIDE, 3)
    problems = saved_problems(args) if args.probabilities else drawn_problems(side)
    growth = measure_growth(problems[0], 60 if args.quick else LONG_SIDE, 1 if args.quick else 3)
    lines = ["# The dense CRF, measured", "",
             f"`bench/bench_crf.py`{' on photographs of VOC' if args.voc else ''}. {machine()}", "",
             f"{len(problems)} photographs, long side {max(problems[0].rgb.shape)}, "
             f"{len(problems[0].scores)} labels. Load of the machine: {os.getloadavg()[0]:.1f}; two threads need idle "
             "cores.",
             *speed_lines(problems[:TIMED], repeats), *equality_lines(problems, args.voc),
             *floor_lines(problems[0], repeats), *growth_lines(growth)]
    if args.out:
        draw(growth, args.out / "bench_crf.png")
    publish("\n".join(lines), args.out, "bench_crf.md")


def drawn_problems(side):
    rng = np.random.default_rng(0)
    images = [np.array(shrink(read_image(ROOT / "docs" / name), side)) for name in PHOTOGRAPHS]
    return [Problem(name, rgb, smooth_scores(rng, LABELS, *rgb.shape[:2])) for name, rgb in zip(PHOTOGRAPHS, images)]


def smooth_scores(rng, labels, height, width):
    noise = gaussian_filter(rng.normal(size=(labels, height, width)), (0, *[max(height, width) / 30] * 2))
    return (2 * noise / noise.std()).astype(np.float32)


def saved_problems(args):
    """Photographs with the scores of a net."""
    found = []
    for path, photograph in pair_with_photographs([args.probabilities], args.images or args.voc / "JPEGImages"):
        p, rgb = read_probabilities(path), np.array(shrink(read_image(photograph), LONG_SIDE))
        sides = zip(rgb.shape[:2], p.shape[1:])
        found.append(Problem(photograph.stem, rgb, sample(log_probabilities(p), *(positions(*pair) for pair in sides))))
    return found


def best_seconds(calls, repeats):
    """CPU seconds of each call, the fastest of `repeats` in turn."""
    return np.min([[clock(call)[0] for call in calls] for _ in range(repeats)], axis=0)


def wall_seconds(calls, repeats):
    def wall(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    return np.min([[wall(call) for call in calls] for _ in range(repeats)], axis=0)


def speed_lines(problems, repeats):
    def through(problem, preset, negligible, engine, threads=1):
        return lambda: dense_crf(problem.rgb, problem.scores, preset, negligible, threads, engine)

    rows = []
    for what, preset, negligible, need in (
            ("authors' preset, no pruning", "authors", 0, FASTER),
            ("our preset, pruned, as in `segment --crf`", "heads", NEGLIGIBLE, FASTER_PRUNED)):
        calls = [[through(problem, preset, negligible, engine) for engine in BOTH] for problem in problems]
        seconds = np.sum([best_seconds(pair, repeats) for pair in tqdm(calls, desc=preset, disable=None)], axis=0)
        rows.append((what, *seconds / len(problems), seconds[0] / seconds[1], *need))
    one, two = np.sum([wall_seconds([through(problem, "authors", 0, "ccnn", threads) for threads in (1, 2)], repeats)
                       for problem in tqdm(problems, desc="threads", disable=None)], axis=0) / len(problems)
    theirs, ours = (memory_of(engine, problems[0]) for engine in BOTH)
    yield from ["", "## Speed and memory", "",
                "| what | pydensecrf | ours | ratio | required | aim | met |", "|---|---|---|---|---|---|---|"]
    for what, a, b, ratio, required, aim in rows:
        yield (f"| {what}, CPU s per image | {a:.3f} | {b:.3f} | {ratio:.2f} times faster | {required} | {aim} | "
               f"{met(ratio >= required, ratio >= aim)} |")
    yield (f"| two threads against one, wall s per image | | {one:.3f} / {two:.3f} | {one / two:.2f} | "
           f"{TWO_THREADS[0]} | {TWO_THREADS[1]} | {met(*(one / two >= need for need in TWO_THREADS))} |")
    yield (f"| peak memory added by a call, MB | {theirs:.0f} | {ours:.0f} | {ours / theirs:.2f} | "
           f"{MEMORY[0]} | {MEMORY[1]} | {met(*(ours / theirs <= need for need in MEMORY))} |")


def met(required, aim):
    return "aim" if aim else "yes" if required else "NO"


def memory_of(engine, problem):
    with tempfile.TemporaryFile() as file:
        np.savez(file, rgb=problem.rgb, scores=problem.scores)
        file.seek(0)
        done = subprocess.run([sys.executable, __file__, "--memory-of", engine], stdin=file, stdout=subprocess.PIPE,
                              check=True)
    return json.loads(done.stdout)


def added_megabytes(engine, arrays):
    """Peak memory of this process after one call, less what it was before; the modules are loaded first."""
    rgb, scores = arrays["rgb"], arrays["scores"]
    dense_crf(rgb[:8, :8], scores[:, :8, :8], "authors", engine=engine)
    before = peak_bytes()
    dense_crf(rgb, scores, "authors", 0, threads=1, engine=engine)
    return (peak_bytes() - before) / 1e6


def peak_bytes():
    """Of this process; what getrusage says includes the process that started it."""
    return 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1])


def equality_lines(problems, voc):
    yield from ["", "## The same labels", "", f"{len(problems)} photographs, all labels enter.", "",
                "| preset | labels equal | least of a photograph | mean difference of a marginal |"
                + (" mIoU, pydensecrf | ours |" if voc else ""), "|---|---|---|---|" + "---|---|" * bool(voc)]
    for preset in PRESETS:
        equal, difference, matrices = [], [], np.zeros((2, LABELS, LABELS), int)
        for problem in tqdm(problems, desc=f"{preset}: labels", disable=None):
            theirs, ours = (dense_crf(problem.rgb, problem.scores, preset, 0, threads=1, engine=engine)
                            for engine in BOTH)
            equal.append((theirs.argmax(axis=0) == ours.argmax(axis=0)).mean())
            difference.append(np.abs(theirs - ours).mean())
            if voc:
                truth = read_mask(voc / f"SegmentationClass/{problem.name}.png")
                matrices += [confusion(truth, q.argmax(axis=0).astype(np.uint8), LABELS) for q in (theirs, ours)]
        yield (f"| {preset} | {100 * np.mean(equal):.3f} % | {100 * np.min(equal):.2f} % | {np.mean(difference):.1e} |"
               + "".join(f" {scored(preset, 'val', True, C).miou:.2f} |" for C in matrices if voc))
    yield from ["", f"Required: {100 * EQUAL} % of the labels, mIoU within 0.05."]


def floor_lines(problem, repeats):
    """Bytes that a step must move through memory, over what the machine copies in a second."""
    n, labels, preset = problem.scores[0].size, len(problem.scores), PRESETS["authors"]
    crf = DenseCRF(photograph_kernels(problem.rgb, preset), threads=1)
    f = problem.scores.reshape(labels, -1)
    few, many = wall_seconds([lambda: crf.marginals(f, 2), lambda: crf.marginals(f, 12)], repeats)
    width = labels if labels <= 4 else -(-labels // 8) * 8
    lattices = [one.lattice for one in crf.mean_field.filters]
    pixels = n * (4 * width + sum(8 * (one.dimensions + 1) + 4 for one in lattices))
    vertices = sum(4 * width * (5 * one.slots + one.vertices * (1 + 2 * (one.dimensions + 1))) for one in lattices)
    source = np.ones(1 << 24, np.float32)
    target = np.empty_like(source)
    rate = 2 * source.nbytes / wall_seconds([lambda: np.copyto(target, source)], 5)[0]
    step = (many - few) / 10
    counts = ", ".join(f"{one.vertices} vertices in {one.slots} slots" for one in lattices)
    yield from ["", "## The floor", "",
                f"One step of mean field, authors' preset, {labels} labels, {n} pixels ({counts}): {1e3 * step:.1f} "
                f"ms. It reads {pixels / 1e6:.0f} MB of scores, corners and weights, and moves "
                f"{vertices / 1e6:.0f} MB of vertices, mostly in the caches. This machine copies {rate / 1e9:.0f} "
                f"GB/s, so memory alone would take {1e3 * pixels / rate:.1f} ms, or "
                f"{1e3 * (pixels + vertices) / rate:.1f} ms with the vertices: a step takes "
                f"{step / ((pixels + vertices) / rate):.1f} times as long. The rest is arithmetic: "
                f"{sum(one.dimensions + 1 for one in lattices)} corners to slice and to splat per pixel, "
                f"{width} multiplications and additions each, and {width} exponentials."]


def measure_growth(problem, side, repeats):
    """{what grows: (values, seconds of pydensecrf, seconds of ours)}"""
    def resized(long_side, labels):
        height, width = (max(1, round(long_side * s / max(problem.rgb.shape[:2]))) for s in problem.rgb.shape[:2])
        rgb = np.array(Image.fromarray(problem.rgb).resize((width, height), Image.BICUBIC))
        return rgb, smooth_scores(np.random.default_rng(0), labels, height, width)

    preset = PRESETS["authors"]
    cases = {
        "pixels": [(rgb.shape[0] * rgb.shape[1], rgb, f, preset) for rgb, f in
                   (resized(round(side * factor), 5) for factor in (0.25, 0.5, 1, 2))],
        "labels": [(labels, *resized(side // 2, labels), preset) for labels in (2, 4, 8, 16, 21, 32, 64)],
        "bilateral_rgb, levels": [(rgb, *resized(side // 2, 5), preset._replace(bilateral_rgb=rgb))
                                  for rgb in (2, 4, 8, 16, 32, 64)],
    }
    found = {}
    for what, some in cases.items():
        calls = [[functools.partial(dense_crf, *case[1:], 0, 1, engine) for engine in BOTH] for case in some]
        seconds = [best_seconds(pair, repeats) for pair in tqdm(calls, desc=what, disable=None)]
        found[what] = [case[0] for case in some], *np.transpose(seconds)
    return found


def growth_lines(growth):
    yield from ["", "## Growth", "", "![CPU seconds by pixels, labels and distances](bench_crf.png)", "",
                "| | value | pydensecrf, CPU s | ours | ratio |", "|---|---|---|---|---|"]
    for what, (values, theirs, ours) in growth.items():
        for value, a, b in zip(values, theirs, ours):
            yield f"| {what} | {value} | {a:.3f} | {b:.3f} | {a / b:.2f} |"
    yield ""


def draw(growth, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(1, len(growth), figsize=(12, 3.6), constrained_layout=True)
    for axis, (what, (values, theirs, ours)) in zip(axes, growth.items()):
        axis.loglog(values, theirs, "o-", label="pydensecrf", color="#999999")
        axis.loglog(values, ours, "o-", label="ccnn", color="#1f77b4")
        axis.set_xlabel(what)
        axis.grid(alpha=0.3, which="both")
    axes[0].set_ylabel("CPU seconds, one thread")
    axes[0].legend()
    with whole_file(path) as part:
        figure.savefig(part, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    command.run(main)
