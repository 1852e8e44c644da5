#!/usr/bin/env python3
"""Draw images, train on their tags, and show what was learned on a page, output/demo/index.html.

    make demo                               # about 2 minutes on two cores
    demo/demo.py --seeds 3 --scores-only    # three trainings of each system: mean and standard deviation

1. draw a small data set in VOC's layout                demo/draw_demo.py data/demo
2. train six systems on it, two at a time               ccnn train output/demo/solvers/demo_tags.prototxt, ...
3. segment and score the validation images
4. segment photographs with the shipped model           tools/infer.py --crf
5. write the page

The systems share the net, the schedule and the order of the images. Only the loss differs. Photographs need VGG-16's
convolutions from the Python index; without a network the page says how to get them.
"""
import os
import time
from pathlib import Path
from typing import NamedTuple

import draw_demo
import numpy as np
import story
from demo_page import page

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.paths import ROOT
from ccnn.cli import command
from ccnn.inference.caffe_net import load_caffe
from ccnn.nets.caffe_files import read_solver
from ccnn.nets.prototxt import DEMO, SYSTEMS, demo_nets
from ccnn.nets.solvers import demo_solver, write
from ccnn.training.caffe_training import prepare, run_all
from ccnn.training.snapshots import snapshots

COMPARED = ("tags", "size", "em_adapt", "mil_fcn", "mil_base", "full")     # systems, in the page's order


class Run(NamedTuple):
    """One training: a system with a seed."""
    system: str
    seed: int
    solver: Path
    net: Path
    deploy: Path
    prefix: Path                        # of snapshots and log

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
    scores = story.score(runs, data, last_only=args.scores_only)
    print(summary(runs, scores))
    if args.scores_only:
        return
    pictures, reason = story.photographs(work / "output/demo/photographs")
    told = story.tell([run for run in runs if run.seed == 1], scores, data, pictures, reason,
                      minutes=(time.monotonic() - start) / 60)
    path = work / "output/demo/index.html"
    with whole_file(path) as part:
        part.write_text(page(told), encoding="utf-8")
    print(f"\n{path}\nopen it in a browser; it is one file and needs no network")


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--seeds", type=command.count, default=1, metavar="N",
        help="train every system N times (the page shows the first)")
    add("--scores-only", action="store_true", help="print the scores and write no page")
    add("--systems", type=lambda text: text.split(","), default=list(COMPARED), metavar="A,B",
        help=f"only these, with --scores-only: {', '.join(COMPARED)}")
    add("--iterations", type=command.count, metavar="N", help="instead of those in the solvers, for a quick look")
    add("--images", type=command.count, nargs=2, default=(), metavar=("TRAIN", "VAL"), help="draw that many instead")
    add("--jobs", type=command.count, default=2, metavar="N",
        help="trainings at a time, one core each (default: %(default)s)")
    add("--work", type=Path, default=ROOT, metavar="DIR",
        help="where data/, snapshots/ and output/ go (default: the repository)")
    args = parser.parse_args(argv)
    unknown = [name for name in args.systems if name not in COMPARED]
    if unknown:
        raise UserError(f"--systems: {unknown[0]!r} is none of {', '.join(COMPARED)}")
    if not args.scores_only and set(args.systems) != set(COMPARED):
        raise UserError("the page shows all systems: give --scores-only with --systems")
    return args


def plan(system, seed, data, work, iterations):
    """Write net and solver of a training into output/demo/, from the tables of ccnn/nets/, and return its Run."""
    name = f"demo_{system}" + (f"_seed{seed}" if seed > 1 else "")
    folder = work / "output/demo"
    solver, net, deploy = (folder / f"{file}.prototxt"
                           for file in (f"solvers/{name}", f"prototxt/{name}", "prototxt/demo_deploy"))
    for path in (solver, net, work / "snapshots/any"):
        path.parent.mkdir(parents=True, exist_ok=True)

    nets = demo_nets()
    text = nets[f"demo_{system}"].replace('"seed": 1', f'"seed": {seed}').replace(f'"{DEMO["root"]}', f'"{data}')
    net.write_text(text)
    deploy.write_text(nets["demo_deploy"])
    changes = f"random_seed: {seed}" if seed > 1 else ""
    if iterations:
        changes += f"\nmax_iter: {iterations}\nsnapshot: {max(1, iterations // 6)}"
    solver.write_text(write(name, demo_solver(system, changes), f"{folder}/", work / "snapshots", "demo/demo.py"))
    return Run(system, seed, solver, net, deploy, work / "snapshots" / name)


def train(runs, jobs):
    """`caffe train` for every run, `jobs` at a time, each on one core."""
    run_all([prepare(read_solver(run.solver), restart=True) for run in runs], jobs)


def summary(runs, scores):
    """Text: mIoU of every system, and over several seeds their mean and standard deviation."""
    lines = []
    for system in dict.fromkeys(run.system for run in runs):
        values = [scores[run].row.miou for run in runs if run.system == system]
        lines.append(f"  {SYSTEMS[system].title:<20} {np.mean(values):5.1f}")
        if len(values) > 1:
            lines[-1] += f" ± {np.std(values, ddof=1):.1f}  ({', '.join(f'{v:.1f}' for v in values)})"
    return "mean IoU on the validation images, percent\n" + "\n".join(lines)


if __name__ == "__main__":
    command.run(main)
