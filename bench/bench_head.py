#!/usr/bin/env python3
"""Compare the two trainers of `ccnn learn`: processor time for 62 photographs, features apart, and the weights.

    bench/bench_head.py                 # a table, two minutes on one core
    bench/bench_head.py --quick         # a tenth of the steps: does it run?
    bench/bench_head.py --out docs/     # also write docs/bench_head.md

Both rounds of the recipe, 400 and 200 steps of four photographs, from the same weights. No data set is needed:
photographs and features are random numbers of the usual sizes, because time does not depend on what they show.
"""
import json
import os
import resource
import tempfile
from pathlib import Path

import numpy as np
from measure import machine, publish
from PIL import Image

from ccnn._util.paths import ROOT
from ccnn.cli import command
from ccnn.images.reading import fit
from ccnn.inference.caffe_net import load_caffe
from ccnn.nets.backbones import VGG16
from ccnn.nets.caffe_files import read_caffemodel, write_caffemodel
from ccnn.project.folder import read_folder
from ccnn.project.learn import LABELS, RECIPE, Project
from ccnn.training import caffe_training, head

PHOTOGRAPHS, CLASSES = 62, ("cat", "bus", "sheep")

SHAPES = (375, 500), (500, 375), (333, 500)         # VOC's usual sizes

SHARE = 0.5                 # of Caffe's processor time that the NumPy trainer may take


def main(argv=None):
    args = parse_args(argv)
    load_caffe()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        project = make_project(Path(folder) / "photos", RECIPE.steps // (10 if args.quick else 1))
        rounds = [measure(project, "first"), measure(project, "second")]
    publish(report(rounds), args.out, "bench_head.md")


def parse_args(argv):
    parser = command.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where bench_head.md goes")
    return parser.parse_args(argv)


def make_project(folder, steps):
    """A folder of photographs with features and labels of random numbers."""
    rng = np.random.default_rng(1)
    folder.mkdir()
    rows = ["image,tags"]
    for number in range(PHOTOGRAPHS):
        Image.fromarray(rng.integers(0, 256, (*SHAPES[number % 3], 3), np.uint8)).save(folder / f"{number:02}.jpg")
        shown = [name for label, name in enumerate(CLASSES) if number % 4 == label or number % 7 == label]
        rows.append(f"{number:02}.jpg,{';'.join(shown)}")
    (folder / "classes.txt").write_text("\n".join(CLASSES))
    (folder / "tags.csv").write_text("\n".join(rows) + "\n")
    project = Project(read_folder(str(folder)), steps, cue="none")
    for size in RECIPE.sizes:
        place = project.work / f"features/{size}"
        place.mkdir(parents=True)
        (place / "index.json").write_text(json.dumps({"size": size}))
        for number in range(PHOTOGRAPHS):
            grid = [VGG16.cells(length) for length in fit(*SHAPES[number % 3], size)]
            np.save(place / f"{number:02}.npy", rng.gamma(0.5, 1, (VGG16.channels, *grid)).astype(np.float16))
    (project.work / LABELS).mkdir()
    for number in range(PHOTOGRAPHS):
        blocks = rng.integers(0, 1 + len(CLASSES), [side // 40 for side in SHAPES[number % 3]], np.uint8)
        Image.fromarray(blocks).resize(SHAPES[number % 3][::-1], Image.NEAREST).save(
            project.work / LABELS / f"{number:02}.png")
    return project


def measure(project, name):
    """(name, steps, CPU seconds of NumPy and of Caffe, the largest difference of the weights, the largest weight)"""
    steps = round(project.steps * (1 if name == "first" else RECIPE.second))
    net = project.write_net(project.work / f"{name}.prototxt", labels=name == "second")
    start, seconds, weights = project.work / f"{name}-start.caffemodel", [], []
    for trainer, prepare, who in (("numpy", head.prepare, resource.RUSAGE_SELF),
                                  ("caffe", caffe_training.prepare, resource.RUSAGE_CHILDREN)):
        solver = project.solver(steps, net, project.work / f"{name}-{trainer}")
        if trainer == "numpy":
            begin = head.HeadNet(head.read_net(solver.net), net)
            write_caffemodel(start, begin.to_arrays(begin.random(1)))
        training, before = prepare(solver, start), resource.getrusage(who)
        if training.run():
            raise KeyboardInterrupt
        after = resource.getrusage(who)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        weights.append(read_caffemodel(training.model))
    ours, caffes = weights
    difference = max(float(np.abs(a - b).max()) for layer in ours for a, b in zip(ours[layer], caffes[layer]))
    return name, steps, *seconds, difference, max(float(np.abs(a).max()) for layer in ours for a in ours[layer])


def report(rounds):
    numpy, caffe = (sum(row[column] for row in rounds) for column in (2, 3))
    lines = [f"| {name} | {steps} | {ours:.1f} | {caffes:.1f} | {ours / caffes:.0%} | {apart:.1e} | {largest:.2f} |"
             for name, steps, ours, caffes, apart, largest in rounds]
    return "\n".join([
        "# The NumPy trainer of `ccnn learn` against Caffe",
        "", "Written by `bench/bench_head.py`. " + machine() + ".", "",
        f"{PHOTOGRAPHS} photographs, features apart; CPU seconds of all threads and processes, Caffe's start included.",
        "", "| round | steps | NumPy, s | Caffe, s | share | largest difference of the weights | largest weight |",
        "|---|---|---|---|---|---|---|", *lines, "",
        f"The NumPy trainer takes {numpy / caffe:.0%} of Caffe's processor time ({numpy:.1f} s of {caffe:.1f} s; "
        f"required: at most {SHARE:.0%}). The weights agree to {max(row[4] for row in rounds):.1e}.", ""])


if __name__ == "__main__":
    os.chdir(ROOT)
    command.run(main)
