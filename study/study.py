#!/usr/bin/env python3
"""Repeat the paper's comparison with a frozen backbone: train, score and tabulate every system (docs/reproduction.md).

    tools/cache_features.py --split train_aug --split val       # VGG-16's features, once
    tools/cache_features.py --split train_aug --split val --blob pool4      # for the rows in which conv5 learns
    tools/cache_features.py --split train_aug --split val --blob pool3      # for those in which conv4 learns, too
    study/study.py                                              # every row, three seeds
    study/study.py --crf authors --crf untuned --crf heads      # the same, and CRFs on the first run of each
    study/study.py tags size --seeds 5                          # some rows, more seeds
    study/study.py size --held-out --set base_lr=1e-3 --folder output/slow      # try settings without touching val
    study/study.py --report                                     # tables of what is done
    study/study.py --report --out study/results                 # the same, and study.json and study.png there; runs and
                                                                # scores that study.json has besides stay in it

A run is a row and a seed: the head_* net of ccnn/nets/prototxt.py with that seed, trained by tools/train.py as
solvers/head_* say, scored on the cached features of val. The seed sets the order of the images, their mirroring and
the first weights; in the semi-supervised rows also which images keep their masks. Each run takes one core. Stop at any
time: finished runs are kept in output/study/ROW/SEED, begun ones continue from their snapshot. To try other settings,
give another --folder.
"""
from pathlib import Path

import study_runs as runs
import study_tables
from experiments import EXPERIMENTS

from ccnn._util.errors import UserError
from ccnn.cli import command
from ccnn.crf.dense import PRESETS, load_preset


def main(argv=None):
    args = parse_args(argv)
    if not args.report:
        make_runs(args)
    results = runs.collect(args.folder)
    found = study_tables.summary(results, runs.read_stored(args.out / "study.json") if args.out else None)
    print("\n".join(study_tables.tables(found).values()))
    for folder in [args.folder] + ([args.out] if args.out else []):
        study_tables.write(found, folder / "study.json")
        study_tables.draw(found["runs"], folder / "study.png")


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    runs.add_trainings(add, None)
    add("--seeds", type=command.count, metavar="N",
        help="runs of each row (default: 3; of conv4_*, conv5_* and taught_*, which take longer, 1)")
    add("--held-out", action="store_true", help="train on three quarters of train_aug and score on the rest of it")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting of the solver")
    add("--crf", action="append", default=[], metavar="PRESET",
        help=f"also score what a CRF makes of it: {', '.join(PRESETS)}, or a file of tools/tune_crf.py; repeatable")
    add("--cue", action="store_true",
        help="also score with the cue of `ccnn segment` at inference, alone and with these CRFs")
    add("--pool4", type=Path, default=Path("data/pool4"), metavar="DIR",
        help="for the rows conv5_* (default: %(default)s)")
    add("--pool3", type=Path, default=Path("data/pool3"), metavar="DIR",
        help="for the rows conv4_* (default: %(default)s)")
    args = runs.with_rows(parser.parse_args(argv), EXPERIMENTS)
    args.folder = args.folder or (runs.HELD_OUT if args.held_out else runs.HELD_OUT.parent)
    args.crf = {Path(name).stem: load_preset(name) for name in args.crf}
    return args


def make_runs(args):
    """Train and score what is not done of the wanted rows and seeds."""
    lists = runs.hold_out(args.root) if args.held_out else ("train_aug", "train", "val")
    settings = runs.Settings(args.folder, args.folder, args.root, args.features, args.pool4, args.pool3, *lists,
                             args.set, args.crf, args.cue)
    wanted = [runs.Run(name, seed, settings) for seed in range(1, 1 + (args.seeds or 3)) for name in args.rows
              if seed <= (args.seeds or EXPERIMENTS[name].seeds)]
    starts = [name for name in args.rows if any(name in runs.needs(other) for other in args.rows)]
    if args.set and starts:
        raise UserError(f"--set would change {starts[0]}, too, which others of these rows start with; name fewer rows")
    runs.execute_all(wanted, args.cluster, args.jobs)


if __name__ == "__main__":
    command.run(main)
