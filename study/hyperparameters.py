#!/usr/bin/env python3
"""How rates, lengths and settings of the study were chosen: tried on training images, scored on others of them.

    study/hyperparameters.py                    # every trial, one run each; about a minute a trial and core
    study/hyperparameters.py boxes full         # some rows
    study/hyperparameters.py --report --out study/results   # the tables of what is done, and hyperparameters.json there

Every fourth image of train_aug is held out, and the rest trained on; val is not touched. The rate in bold is the one
that the study trains with. It should be the best of its line, and not the first or the last. Of some rows, the length
of the training is tried as well; and other settings, TRIALS of study/experiments.py, beside those of the study. What a
row starts with is trained for as many steps as in the study. Stop at any time: the same command continues. What
hyperparameters.json has of trials that are not in the folder stays there.
"""
import itertools
import json
import math
import re
from typing import NamedTuple

import study_runs as runs
from experiments import DECAYS, EVERY_EXPERIMENT, EXPERIMENTS, SHARES, SLOW

from ccnn._util.errors import UserError
from ccnn.cli import command
from ccnn.evaluation.tables import markdown_table

# Epochs of the 7,936 images that are not held out.
ONE, TWO = {"max_iter": 1984}, {"max_iter": 3968}                   # 4 images a step
SINGLE = {"max_iter": 15872, "stepsize": 5290}                      # two epochs, 1 image a step
TWENTY = {"max_iter": 794, "stepsize": 265}                         # two epochs, 20 images a step
SIX = {"max_iter": 1647}                                            # six epochs of VOC's own images, 4 images a step


class Grid(NamedTuple):
    """The rates that were tried for a row."""
    row: str
    length: dict                # of the training: changes of the solver
    rates: tuple

    @property
    def trials(self):
        """The changes of the solver, one list for each rate."""
        return [[f"base_lr={rate}", *(f"{key}={value}" for key, value in self.length.items())] for rate in self.rates]


GRIDS = (
    Grid("mil_fcn", ONE, ("3e-5", "1e-4", "3e-4")),
    Grid("mil_fcn_random", ONE, ("1e-2", "2e-2", "4e-2")),
    Grid("mil_base", ONE, ("3e-6", "5e-6", "1e-5", "2e-5", "3e-5")),
    Grid("mil_base_random", ONE, ("1e-3", "2e-3", "4e-3", "8e-3")),
    Grid("em_adapt", ONE, ("1e-4", "5e-4", "1e-3", "2e-3")),
    Grid("em_adapt_random", ONE, ("2e-3", "5e-3", "1e-2", "2e-2")),
    Grid("em_adapt_image", ONE, ("5e-4", "1e-3", "2e-3", "4e-3", "8e-3")),
    Grid("em_adapt_image_random", ONE, ("5e-4", "2e-3", "5e-3", "1e-2")),
    Grid("em_adapt_crops", ONE, ("5e-4", "1e-3", "2e-3", "4e-3")),
    Grid("mil_fcn_train", SIX, ("3e-5", "1e-4", "3e-4")),
    Grid("em_adapt_train", SIX, ("2e-4", "5e-4", "1e-3", "2e-3")),
    Grid("em_adapt_image_train", SIX, ("2e-4", "5e-4", "1e-3", "2e-3", "4e-3")),
    Grid("tags", ONE, ("1e-3", "2e-3", "4e-3")),
    Grid("tags_cells_started", ONE, ("5e-4", "1e-3", "2e-3", "4e-3")),
    Grid("tags_paper", SINGLE, ("1e-4", "3e-4", "1e-3")),
    Grid("tags_batch", TWENTY, ("3e-3", "1e-2", "3e-2", "1e-1", "3e-1")),
    Grid("size_10", TWO, ("1e-3", "2e-3", "4e-3")),
    Grid("filled_boxes", TWO, ("1e-3", "2e-3", "4e-3")),
    Grid("boxes", TWO, ("1e-3", "2e-3", "4e-3")),
    Grid("full", TWO, ("1e-3", "2e-3", "4e-3", "8e-3")),
)

# Rows that start with another classifier than in the study, at the rates of the same system above.
STARTS = (
    Grid("mil_fcn_long", ONE, ("3e-5", "1e-4", "3e-4")),
    Grid("em_adapt_long", ONE, ("1e-5", "2e-5", "5e-5", "1e-4", "5e-4", "1e-3", "2e-3")),
    Grid("mil_base_short", ONE, ("3e-6", "5e-6", "1e-5", "2e-5")),
)

def decays(row):
    """A row, and those that try other weight decays of the classifier, in ascending order."""
    found = [f"{row}_decay_{DECAYS[0]}", row, *(f"{row}_decay_{decay}" for decay in DECAYS[1:])]
    return [name for name in found if name in EVERY_EXPERIMENT]


# {question: the experiments that answer it}, each at the rate of the study and for as many epochs.
SETTINGS = {
    "weight decay of the classifier": (*decays("classifier"), "classifier_long", *decays("mil_fcn"),
                                       *decays("em_adapt"), *decays("classifier_train"), *decays("mil_fcn_train"),
                                       *decays("em_adapt_train")),
    "EM-Adapt's shares": ("em_adapt_train", "em_adapt_train_0.2_0.3",
                          *(f"em_adapt_train_{fg}_{bg}" for fg, bg in SHARES)),
    "start of EM-Adapt": ("em_adapt", *(f"em_adapt_long_{rate}" for rate in SLOW)),
    "MIL-Base's r": ("mil_base_r_2", "mil_base", "mil_base_r_10"),
    "hardness": ("tags", "tags_started", "tags_hardness_10", "tags_hardness_1000", "size_10", "size_10_hard", "boxes",
                 "boxes_hardness_10"),
    "guessed areas": ("shares_margin_0.2", "shares_margin_0.1", "shares", "shares_1000"),
    "rate on 1,464 images": ("tags_train", "tags_train_4e-3"),
    "bounds for all images": ("tags", "tags_0.3_0.8", "tags_0.4_0.75"),
}

# {row: the lengths that are tried at its rate, in steps}: one, two and four epochs, or three, six and twelve
LENGTHS = {**dict.fromkeys(("mil_fcn", "em_adapt", "tags"), (1984, 3968, 7936)), "tags_hold_2": (3968, 7936),
           **dict.fromkeys(("mil_fcn_train", "em_adapt_train", "tags_train"), (824, 1647, 3294))}


def rows():
    """The names of all that is tried."""
    return list(dict.fromkeys([*(grid.row for grid in (*GRIDS, *STARTS)), *LENGTHS,
                               *(row for some in SETTINGS.values() for row in some)]))


def trials(row):
    """Every change of the solver that is tried for a row."""
    found = [changes for grid in (*GRIDS, *STARTS) if grid.row == row for changes in grid.trials] + longer(row)
    if any(row in some for some in SETTINGS.values()):
        found.append(as_in_study(row))
    return [list(changes) for changes in dict.fromkeys(map(tuple, found))]


def longer(row):
    """The changes of the solver that try the length of the training, at the rate of the study."""
    return [[f"base_lr={chosen(row, 'base_lr')}", f"max_iter={steps}"] for steps in LENGTHS.get(row, ())]


def as_in_study(row):
    """The changes of the solver that train for as many epochs as the study, at its rate."""
    steps = math.ceil(int(chosen(row, "max_iter")) * 3 / 4)             # of the images three quarters are left
    return [f"base_lr={chosen(row, 'base_lr')}", f"max_iter={steps}"]


def main(argv=None):
    args = parse_args(argv)
    if not args.report:
        lists = runs.hold_out(args.root)
        runs.execute_all([run_of(row, changes, args, lists) for row in args.rows for changes in trials(row)],
                         args.cluster, args.jobs)
    found = collect(args.folder)
    if args.out:
        found = with_stored(found, args.out / "hyperparameters.json")
    print(rates_table(found, GRIDS), lengths_table(found), rates_table(found, STARTS), settings_table(found), sep="\n")
    runs.write_results(args.out, "hyperparameters.json", found)


def run_of(row, changes, args, lists):
    settings = runs.Settings(trial_folder(args.folder, changes), args.folder, args.root, args.features, None, None,
                             *lists, changes, {})
    return runs.Run(row, 1, settings)


def trial_folder(folder, changes):
    return folder / "_".join(changes)           # no comma: Caffe would cut the path of weights there


def collect(folder):
    """What the trials scored that are done: [{"row", "set", "made_of", "miou"}], and "ilp" of those that have an
    image-level prior, too. UserError if there is none."""
    found = []
    for row in rows():
        for changes in trials(row):
            result = runs.finished(trial_folder(folder, changes) / row / "1")
            if result:
                found.append({"row": row, "set": changes, "made_of": result["made_of"],
                              **{KINDS[kind]: round(runs.miou(iou), 2) for kind, iou in result["iou"].items()}})
    if not found:
        raise UserError(f"{folder}: has no finished trial; run study/hyperparameters.py first")
    return found


def with_stored(found, path):
    """The trials that are done, and those that the file has besides, in the order of all trials."""
    stored = json.loads(path.read_text()) if path.exists() else []
    done = {(trial["row"], *trial["set"]): trial for trial in [*stored, *found]}
    wanted = [(row, *changes) for row in rows() for changes in trials(row)]
    return [done[key] for key in wanted if key in done]


KINDS = {"": "miou", "ilp": "ilp"}          # of scores: their names in hyperparameters.json

PRIOR = {"miou": "", "ilp": ", image-level prior"}     # what titles say of them


def scores(found, row, kind="miou"):
    """{changes of the solver: mIoU} of the trials of a row that are done."""
    return {tuple(trial["set"]): trial[kind] for trial in found if trial["row"] == row and kind in trial}


def rates_table(found, grids):
    """A line for every row: its rates, and what they score. That of the study is bold."""
    lines = []
    for grid, kind in itertools.product(grids, PRIOR):
        done = scores(found, grid.row, kind)
        cells = [bold(f"{rate}: {done[tuple(changes)]:.1f}", rate == chosen(grid.row, "base_lr"))
                 for rate, changes in zip(grid.rates, grid.trials) if tuple(changes) in done]
        if cells:
            lines.append([EVERY_EXPERIMENT[grid.row].title + PRIOR[kind], str(grid.length["max_iter"]),
                          ", ".join(cells)])
    return markdown_table(["row", "steps", "base_lr: mIoU on images held out"], lines)


def lengths_table(found):
    """A line for every row whose length was tried. That of the study is bold."""
    lines = []
    for row, lengths in LENGTHS.items():
        done = scores(found, row)
        cells = [bold(f"{steps}: {done[tuple(changes)]:.1f}", changes == as_in_study(row))
                 for steps, changes in zip(lengths, longer(row)) if tuple(changes) in done]
        if cells:
            lines.append([EVERY_EXPERIMENT[row].title, chosen(row, "base_lr"), ", ".join(cells)])
    return markdown_table(["row", "base_lr", "steps: mIoU on images held out"], lines)


def settings_table(found):
    """A line for every experiment that answers a question. The rows of the study are bold."""
    lines = []
    for question, some in SETTINGS.items():
        for row, kind in itertools.product(some, PRIOR):
            miou = scores(found, row, kind).get(tuple(as_in_study(row)))
            if miou is not None:
                lines.append([question, bold(EVERY_EXPERIMENT[row].title + PRIOR[kind], row in EXPERIMENTS), miou])
    return markdown_table(["question", "setting", "mIoU on images held out"], lines)


def bold(text, really):
    return f"**{text}**" if really else text


def chosen(row, key):
    """A setting of the solver that the study trains a row with, as text."""
    experiment = EVERY_EXPERIMENT[row]
    own = [change for change in experiment.changes if change.startswith(f"{key}=")]
    return (own[0].partition("=")[2] if own
            else re.search(rf"^{key}: (\S+)", runs.solver_text(experiment), re.M)[1])


def parse_args(argv):
    parser = command.parser(__doc__)
    runs.add_trainings(parser.add_argument, runs.HELD_OUT)
    return runs.with_rows(parser.parse_args(argv), rows())


if __name__ == "__main__":
    command.run(main)
