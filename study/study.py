#!/usr/bin/env python3
"""Repeat the paper's comparison with a frozen trunk: train, score and tabulate every system (docs/reproduction.md).

    tools/cache_features.py --split train_aug --split val       # VGG-16's features, once
    tools/cache_features.py --split train_aug --split val --blob pool4      # for the rows in which conv5 learns
    study/study.py --crf heads                                  # every row, three seeds
    study/study.py --seeds 1 --crf authors                      # the authors' CRF as well, on the first of them
    study/study.py tags size --seeds 5                          # some rows, more seeds
    study/study.py size --held-out --set base_lr=1e-3 --folder output/slow      # choose settings without touching val
    study/study.py --report                                     # tables of what is done
    study/study.py --report --out docs                          # the same, and study.json and study.png there

A run is a row and a seed: the head_* net of ccnn/nets.py with that seed, trained by tools/train.py as solvers/head_*
say, scored on the cached features of val. The seed sets the order of the images, their mirroring and the first weights;
in the semi-supervised rows also which images keep their masks. Each run takes one core. Stop at any time: finished runs
are kept in output/study/ROW/SEED, begun ones continue from their snapshot. To try other settings, give another
--folder.
"""
import json
import os
from pathlib import Path

import _activate  # noqa: F401
import report
import runs
from experiments import EXPERIMENTS

from ccnn import command
from ccnn.cluster import connected
from ccnn.crf import PRESETS, load_preset
from ccnn.errors import UserError
from ccnn.files import whole_file
from ccnn.lists import read_split
from ccnn.progress import Progress
from ccnn.workers import in_processes

HELD_OUT = Path("output/study/held_out")


def main(argv=None):
    args = parse_args(argv)
    if not args.report:
        make_runs(args)
    results = runs.collect(args.folder)
    print("\n".join(report.tables(results).values()))
    for folder in [args.folder] + ([args.out] if args.out else []):
        with whole_file(folder / "study.json") as part:
            part.write_text("[\n" + ",\n".join(map(json.dumps, results)) + "\n]\n")     # one line per run
        report.draw(results, folder / "study.png")


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("rows", nargs="*", metavar="ROW", help=f"some of {', '.join(EXPERIMENTS)} (default: all)")
    add("--seeds", type=command.count, metavar="N", help="runs of each row (default: 3, of other bounds 1)")
    add("--held-out", action="store_true", help="train on three quarters of train_aug and score on the rest of it")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting of the solver")
    add("--crf", action="append", default=[], metavar="PRESET",
        help=f"also score what a CRF makes of it: {', '.join(PRESETS)}, or a file of tools/tune_crf.py; repeatable")
    add("--root", type=Path, default=Path("data/VOCdevkit/VOC2012"), metavar="DIR", help="(default: %(default)s)")
    add("--features", type=Path, default=Path("data/features"), metavar="DIR", help="(default: %(default)s)")
    add("--pool4", type=Path, default=Path("data/pool4"), metavar="DIR",
        help="for the rows conv5_* (default: %(default)s)")
    add("--folder", type=Path, metavar="DIR",
        help=f"for nets, snapshots, logs and scores (default: {HELD_OUT.parent}, or {HELD_OUT})")
    add("--jobs", type=command.count, default=os.cpu_count(), metavar="N", help="runs at a time (default: all cores)")
    command.add_cluster_option(add)
    add("--report", action="store_true", help="no runs, only the tables")
    add("--out", type=Path, metavar="DIR", help="also write study.json and study.png here")
    args = parser.parse_args(argv)
    unknown = [name for name in args.rows if name not in EXPERIMENTS]
    if unknown:
        raise UserError(f"{unknown[0]}: no such row; there are {', '.join(EXPERIMENTS)}")
    fixed = [name for name in args.rows if EXPERIMENTS[name].images]
    if args.held_out and fixed:
        raise UserError(f"{fixed[0]}: trains on images that --held-out may score; leave the row or --held-out out")
    args.rows = args.rows or [name for name in EXPERIMENTS if not (args.held_out and EXPERIMENTS[name].images)]
    args.folder = args.folder or (HELD_OUT if args.held_out else HELD_OUT.parent)
    args.crf = {Path(name).stem: load_preset(name) for name in args.crf}
    return args


def make_runs(args):
    """Train and score what is not done of the wanted rows and seeds."""
    train, val = hold_out(args.root) if args.held_out else ("train_aug", "val")
    settings = runs.Settings(args.folder, args.root, args.features, args.pool4, train, val, args.set, args.crf)
    wanted = [runs.Run(name, seed, settings) for seed in range(1, 1 + (args.seeds or 3)) for name in args.rows
              if seed <= (args.seeds or EXPERIMENTS[name].seeds)]
    starts = [name for name in args.rows if any(name in needs(other) for other in args.rows)]
    if args.set and starts:
        raise UserError(f"--set would change {starts[0]}, too, which others of these rows start with; name fewer rows")
    needed = {(run.name, run.seed): run for run in wanted}
    for run in wanted:
        for other in needs(run.name):
            needed.setdefault((other, run.seed), run.other(other))
    os.environ["OPENBLAS_NUM_THREADS"] = "1"            # each run on one core; read when Caffe is loaded
    with connected(args.cluster, args.jobs) as jobs:
        for count in sorted({len(needs(name)) for name, _ in needed}):      # what others need comes first
            tasks = [(run,) for run in needed.values() if len(needs(run.name)) == count and runs.missing(run)]
            with Progress(total=len(tasks), unit="run") as bar:
                for line in in_processes(runs.execute, tasks, jobs):
                    bar.write(line)
                    bar.update()


def needs(name):
    """The experiments that must be trained before this one."""
    experiment = EXPERIMENTS[name]
    return {other for first in (experiment.taught, experiment.start) if first for other in {first, *needs(first)}}


def hold_out(root):
    """Paths of two lists: three quarters of the training images, and every fourth one."""
    names = read_split(root, "train_aug")
    held = names[3::4]
    lists = {HELD_OUT / "train.txt": [name for name in names if name not in set(held)], HELD_OUT / "val.txt": held}
    for path, some in lists.items():
        with whole_file(path) as part:
            part.write_text("\n".join(some) + "\n")
    return tuple(map(str, lists))


if __name__ == "__main__":
    command.run(main)
