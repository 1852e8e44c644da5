#!/usr/bin/env python3
"""Draw images, train on their tags, and show what came of it in demo/index.html.

    make demo                               # about three minutes on two cores
    tools/demo.py --seeds 3 --scores-only   # three trainings of each system: mean and spread

1. draw a small data set in VOC's layout            tools/draw_demo.py data/demo
2. train six systems on it, two at a time           caffe train -solver solvers/demo_tags.prototxt, ...
3. segment and score the validation images
4. segment three photographs with the shipped model tools/py
5. write the page

The systems share net, schedule and order of images; the loss alone differs. Photographs need VGG-16's convolutions from
the Python index; without a network the page says how to get them.
"""
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import demo_page
import draw_demo
import numpy as np
from scipy.special import softmax
from tqdm import tqdm

import ccnn
from ccnn import command
from ccnn.caffelog import read_log
from ccnn.constraints import tag_constraints
from ccnn.errors import UserError
from ccnn.files import whole_file
from ccnn.grid import Scores, label_map
from ccnn.images import read_image, read_mask
from ccnn.labels import read_classes
from ccnn.lists import read_split
from ccnn.net import forward, load_caffe, load_net, score_grid
from ccnn.paths import ROOT
from ccnn.predict import HEAD
from ccnn.proto import read_solver
from ccnn.scores import confusion, scored
from ccnn.snapshots import snapshots
from ccnn.training import prepare, run_all

DEPLOY = ROOT / "prototxt/demo_deploy.prototxt"

DATA = ROOT / "data/demo"               # where the nets look for it

SYSTEMS = {                             # as in the file names: title, what training knows of an image
    "tags": ("CCNN, tags", "its tags"),
    "size": ("CCNN, tags + size", "tags, and which cover a tenth of it"),
    "em_adapt": ("EM-Adapt", "its tags"),
    "mil_fcn": ("MIL-FCN", "its tags"),
    "mil_base": ("MIL-Base", "its tags"),
    "full": ("full supervision", "the label of every pixel"),
}

PHOTOGRAPHS = ("chelsea.png", "astronaut.png", "motorcycle_left.png")      # a cat, a person, a motorbike

PATIENCE = 180                          # seconds for the photographs: a slow network must not keep the page


class Run(NamedTuple):
    """One training: `system` of SYSTEMS with a seed."""
    system: str
    seed: int
    solver: Path
    net: Path
    prefix: Path                        # of snapshots and log
    iterations: int

    def snapshots(self):
        """{iteration: .caffemodel}, in order."""
        return snapshots(self.prefix, ".caffemodel")

    @property
    def log(self):
        return self.prefix.with_name(self.prefix.name + ".log")


def main(argv=None):
    args = parse_args(argv)
    start = time.monotonic()
    work = args.work.resolve()
    os.chdir(ROOT)                      # the nets' paths begin there
    load_caffe()
    data = draw_demo.draw(work / "data/demo", *args.images)
    runs = [plan(system, seed, data, work, args.iterations)
            for seed in range(1, args.seeds + 1) for system in args.systems]
    train(runs, args.jobs)
    scored = score(runs, data, last_only=args.scores_only)
    print(summary(runs, scored))
    if args.scores_only:
        return
    pictures, reason = photographs(work)
    story = tell(runs, scored, data, pictures, reason, (time.monotonic() - start) / 60)
    page = work / "output/demo/index.html"
    with whole_file(page) as part:
        part.write_text(demo_page.page(story), encoding="utf-8")
    print(f"\n{page}\nopen it in a browser; it is one file and needs no network")


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--seeds", type=command.count, default=1, metavar="N", help="train every system N times (the page shows the first)")
    add("--scores-only", action="store_true", help="print the scores and write no page")
    add("--systems", type=lambda text: text.split(","), default=list(SYSTEMS), metavar="A,B",
        help=f"only these, with --scores-only: {', '.join(SYSTEMS)}")
    add("--iterations", type=command.count, metavar="N", help="instead of those in the solvers, for a quick look")
    add("--images", type=command.count, nargs=2, default=(), metavar=("TRAIN", "VAL"), help="draw that many instead")
    add("--jobs", type=command.count, default=2, metavar="N",
        help="trainings at a time, one core each (default: %(default)s)")
    add("--work", type=Path, default=ROOT, metavar="DIR", help="where data/, snapshots/ and demo/ go (default: here)")
    args = parser.parse_args(argv)
    unknown = [name for name in args.systems if name not in SYSTEMS]
    if unknown:
        raise UserError(f"--systems: {unknown[0]!r} is none of {', '.join(SYSTEMS)}")
    if not args.scores_only and set(args.systems) != set(SYSTEMS):
        raise UserError("the page shows all systems: give --scores-only with --systems")
    return args


def plan(system, seed, data, work, iterations):
    """The Run of solvers/demo_SYSTEM.prototxt, as it is or, with another seed, data set or length, a copy of it."""
    from caffe.proto import caffe_pb2
    from google.protobuf import text_format
    source = ROOT / f"solvers/demo_{system}.prototxt"
    solver = text_format.Parse(source.read_text(), caffe_pb2.SolverParameter())
    prefix = work / solver.snapshot_prefix
    prefix = prefix.with_name(prefix.name + (f"_seed{seed}" if seed > 1 else ""))
    prefix.parent.mkdir(parents=True, exist_ok=True)
    if (seed, iterations, data) == (1, None, DATA):
        return Run(system, seed, source, ROOT / solver.net, prefix, solver.max_iter)

    net = re.sub('"seed": 1', f'"seed": {seed}', (ROOT / solver.net).read_text()).replace(
        f'"{DATA.relative_to(ROOT)}', f'"{data}')
    solver.random_seed = seed
    solver.snapshot = (iterations or solver.max_iter) * solver.snapshot // solver.max_iter
    solver.max_iter = iterations or solver.max_iter
    solver.net, solver.snapshot_prefix = f"{prefix}_net.prototxt", str(prefix)
    Path(solver.net).write_text(net)
    copy = Path(f"{prefix}_solver.prototxt")
    copy.write_text(text_format.MessageToString(solver))
    return Run(system, seed, copy, Path(solver.net), prefix, solver.max_iter)


def train(runs, jobs):
    """`caffe train` for every run, `jobs` at a time, each on one core."""
    run_all([prepare(read_solver(run.solver, [f"net={run.net}", f"snapshot_prefix={run.prefix}"]), anew=True)
             for run in runs], jobs)


class Scored(NamedTuple):
    row: object                         # score.Row of the last snapshot
    course: dict                        # {iteration: mIoU}
    masks: dict                         # {image id: H x W} of the last snapshot


def score(runs, data, last_only):
    """{run: Scored} on the validation images."""
    classes = read_classes(data / "classes.txt")
    names = read_split(data, "val")
    images = [read_image(data / f"JPEGImages/{name}.jpg") for name in names]
    truths = [read_mask(data / f"SegmentationClass/{name}.png", len(classes)) for name in names]
    grid = score_grid(DEPLOY)
    results = {}
    models = [(run, iteration, model) for run in runs
              for iteration, model in list(run.snapshots().items())[-1 if last_only else 0:]]
    for run, iteration, model in tqdm(models, desc="scoring", unit="model", disable=None):
        net = load_net(DEPLOY, model)
        masks = []
        for image in images:
            scores = Scores(forward(net, image), image.shape[:2], *grid)
            masks.append(label_map(scores.values, *scores.cells(*image.shape[:2])))
        C = sum(confusion(truth, mask, len(classes)) for truth, mask in zip(truths, masks))
        row = scored(SYSTEMS[run.system][0], "val", False, C)
        course = {**(results[run].course if run in results else {}), iteration: row.miou}
        results[run] = Scored(row, course, dict(zip(names, masks)))
    return results


def summary(runs, scored):
    """Text: mIoU of every system, and over several seeds their mean and standard deviation."""
    lines = []
    for system in dict.fromkeys(run.system for run in runs):
        values = [scored[run].row.miou for run in runs if run.system == system]
        lines.append(f"  {SYSTEMS[system][0]:<18} {np.mean(values):5.1f}")
        if len(values) > 1:
            lines[-1] += f" +- {np.std(values, ddof=1):.1f}  ({', '.join(f'{v:.1f}' for v in values)})"
    return "mean IoU on the validation images, percent\n" + "\n".join(lines)


def tell(runs, scored, data, pictures, reason, minutes):
    """The Story of the first seed's runs."""
    first = {run.system: run for run in runs if run.seed == 1}
    logs = {system: read_log(run.log) for system, run in first.items()}
    classes = read_classes(data / "classes.txt")
    systems = [demo_page.System(system, *SYSTEMS[system], scored[run].row.iou, scored[run].row.miou,
                                logs[system].loss, scored[run].course) for system, run in first.items()]
    train_names, names = read_split(data, "train"), read_split(data, "val")

    def load(name):
        return (read_image(data / f"JPEGImages/{name}.jpg"),
                read_mask(data / f"SegmentationClass/{name}.png", len(classes)))
    examples = []
    for name in names:
        image, truth = load(name)
        if image.shape[1] > image.shape[0] and len(examples) < 6:
            examples.append(demo_page.Example(image, truth, {s: scored[run].masks[name] for s, run in first.items()}))

    # the solver's part, on the first wide training image with two tags
    for name in train_names:
        image, truth = load(name)
        present = np.isin(np.arange(len(classes)), truth)
        if image.shape[1] > image.shape[0] and present[1:].sum() == 2:
            break
    models = list(first["tags"].snapshots().items())
    steps = [solve(iteration, model, image, present) for iteration, model in (models[0], models[-1])]
    diagnostics = np.array([[i, *values.mean(axis=0)] for i, values in logs["tags"].solver.items()])
    return demo_page.Story(classes, (len(train_names), len(names)), minutes, systems, examples, image, steps,
                           diagnostics, pictures, reason)


def solve(iteration, model, image, present):
    """The Step of an image at a snapshot: q, p, and the areas that the tags demand."""
    scores = forward(load_net(DEPLOY, model), image)
    f = np.ascontiguousarray(scores.reshape(len(scores), -1))
    c = tag_constraints(present)
    s = ccnn.maximize(f, c)
    labels = np.flatnonzero(c.allowed)
    q = softmax(f, axis=0)
    bounds, forces = {l: [None, None] for l in labels}, dict.fromkeys(labels, 0.0)
    for row, b, lam in zip(c.A, c.b, s.lam):
        label, = np.flatnonzero(row)
        bounds[label][0 if row[label] > 0 else 1] = b / row[label]
        forces[label] += lam * row[label]
    shape = (len(labels), *scores.shape[1:])
    return demo_page.Step(iteration, list(labels), q[labels].reshape(shape), s.p[labels].reshape(shape),
                          [bounds[l] for l in labels], [forces[l] for l in labels], 1 - q[labels].sum(axis=0).mean(),
                          s.iterations, s.gap)


def photographs(work):
    """([(name, overlay)], None), or ([], why there are none). Nothing here may end the demonstration."""
    if not HEAD.exists():
        return [], f"{HEAD.relative_to(ROOT)} is not there"
    try:
        import skimage
    except ImportError:
        return [], "scikit-image, whose photographs these would be, is not installed"
    sources = [Path(skimage.__file__).parent / "data" / name for name in PHOTOGRAPHS]
    sources = [path for path in sources if path.exists()]
    if not sources:
        return [], "this scikit-image carries no photographs"
    print(f"segmenting photographs with {HEAD.relative_to(ROOT)}", flush=True)
    out = work / "output/demo/photographs"
    try:
        done = subprocess.run([sys.executable, ROOT / "tools/py", "--out", out, "--crf", "tuned", *sources],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return [], f"tools/py took more than {PATIENCE} seconds, the fetching of VGG-16 included"
    if done.returncode:
        words = (done.stderr.strip().splitlines() or ["tools/py failed"])[-1]
        return [], words.partition("error: ")[2] or words
    return [(path.stem, read_image(out / f"overlay/{path.stem}.jpg")) for path in sources], None


if __name__ == "__main__":
    command.run(main)
