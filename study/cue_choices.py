#!/usr/bin/env python3
"""How the rows of a cue, its exponent and the rates of `ccnn learn` were chosen: on training photographs held out.

    study/cue_choices.py                                # every trial on six sets; a core-hour
    study/cue_choices.py --report --out study/results   # the tables of what is done, and cue_choices.json there

The photographs are those that study/own_photographs.py learns from with its first seed: about 60 of VOC's train in each
set. Each is held out once, a third of a set at a time, and scored with its mask: mean IoU at the photograph's
resolution, over all photographs of the set. val is not touched. The net sees photographs at 224 pixels alone, which
takes a third of the time of `learn`. Stop at any time: the same command continues.
"""
import contextlib
import functools
import json
import shutil
from pathlib import Path
from typing import NamedTuple, Optional
from unittest import mock

import numpy as np
import own_photographs
from own_photographs import CHOICES, draw_set, shares, tags_csv

from ccnn._util.errors import UserError
from ccnn._util.files import unlock, whole_file
from ccnn._util.progress import Progress
from ccnn.cli import command
from ccnn.data.dataset import read_map
from ccnn.evaluation.scores import confusion, scored
from ccnn.evaluation.tables import markdown_table
from ccnn.images.grid import label_map
from ccnn.images.labels import VOC_CLASSES
from ccnn.images.reading import read_mask
from ccnn.inference.cue_maps import weigh
from ccnn.project.feature_cache import maps_folder
from ccnn.project.folder import read_folder
from ccnn.project.learn import RECIPE, Project
from ccnn.project.predictions import predict
from ccnn.project.results import folds, write_list
from ccnn.supervision import constraint_builder
from ccnn.supervision.cue_rows import BOUNDS, CueBounds, with_cue

SETS = CHOICES["all"]

EXPONENTS = (0.0, 0.3, 0.6, 1.0, 1.5, 2.0)

SIZES = (224,)          # at which the net sees the photographs


class Trial(NamedTuple):
    """What is tried; by default what `ccnn learn` does."""
    rows: Optional[CueBounds] = BOUNDS          # of the cue; None: no rows
    rates: tuple = (RECIPE.rate, RECIPE.second_rate)
    second: float = RECIPE.second               # steps of the second round, as a share of the first's

    @property
    def name(self):
        rows = "_".join(f"{value:g}" for value in self.rows) if self.rows else "none"
        return "-".join([rows, *(f"{rate:g}" for rate in self.rates), f"{self.second:g}"])


ROWS = [BOUNDS, None, CueBounds(0.75, 0.1, 0.15), CueBounds(price=1), CueBounds(0.65, 0.15, 0.2), CueBounds(price=10)]

RATES = [((1e-3, 2e-3), 1.0), ((2e-3, 2e-3), 1.0), ((5e-4, 2e-3), 1.0), ((2e-3, 2e-3), 0.5)]

TRIALS = list(dict.fromkeys([*(Trial(rows) for rows in ROWS),
                             *(Trial(rows, *rates) for rates in RATES for rows in (BOUNDS, None))]))


def main(argv=None):
    args = parse_args(argv)
    if not args.report:
        areas, work = shares(args.root, "train"), [(trial, classes) for trial in TRIALS for classes in SETS]
        for trial, classes in Progress(work, desc="trials", unit="trial"):
            execute(trial, classes, args.folder.resolve() / "_".join(classes), args.root.resolve(), areas)
    found = collect(args.folder)
    print(*(title + "\n\n" + text for title, text in tables(found).items()), sep="\n")
    if args.out:
        with whole_file(args.out / "cue_choices.json") as part:
            part.write_text(json.dumps(found, indent=0) + "\n")


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--root", type=Path, default=Path("data/VOCdevkit/VOC2012"), metavar="DIR", help="(default: %(default)s)")
    add("--folder", type=Path, default=Path("output/cue_choices"), metavar="DIR", help="(default: %(default)s)")
    add("--report", action="store_true", help="no trainings, only the tables")
    add("--out", type=Path, metavar="DIR", help="write cue_choices.json there")
    return parser.parse_args(argv)


# Trainings

class Part(Project):
    """A project that learns from some of its photographs only."""
    learned: Optional[Path] = None          # their list

    def write_net(self, path, **options):
        return super().write_net(path, split=self.learned, **options)


def execute(trial, classes, place, root, areas):
    """A trial on one set, unless it is done."""
    result, photos = place / f"{trial.name}.json", place / "photos"
    if result.exists():
        return
    labels = [VOC_CLASSES.index(name) for name in classes]
    ids = draw_set(areas, labels, seed=1)
    photos.mkdir(parents=True, exist_ok=True)
    for id in ids:
        shutil.copy(root / f"JPEGImages/{id}.jpg", photos)
    (photos / "classes.txt").write_text("\n".join(classes) + "\n")
    (photos / "tags.csv").write_text(tags_csv(ids, areas, labels, "tags"))
    found = score(trial, photos, {id: truth_of(root, id, labels) for id in ids})
    with whole_file(result) as part:
        part.write_text(json.dumps({"set": classes, "trial": trial.name, "miou": found}))


def truth_of(root, id, labels):
    return own_photographs.own_labels(labels)[read_mask(root / f"SegmentationClass/{id}.png")]


def score(trial, photos, truths):
    """{exponent: mean IoU over photographs held out}"""
    recipe = RECIPE._replace(sizes=SIZES, rate=trial.rates[0], second_rate=trial.rates[1], second=trial.second)
    project = Part(read_folder(str(photos)), again=True, recipe=recipe)
    labels = len(project.folder.classes)
    C = {exponent: np.zeros((labels, labels), int) for exponent in EXPONENTS}
    try:
        project.compute_features(1)
        surfaces = [label for label, kind in project.kinds.items() if not kind.is_object]
        maps = maps_folder(project.work, project.cue.name)
        for held in folds(project):
            project.learned = write_list(project.work / "learned.txt", sorted({*truths} - {*held}))
            with rows(trial.rows):
                if project.train():
                    raise KeyboardInterrupt
            for one in predict(project, project.new_weights, held, write_list(project.work / "held.txt", held)):
                S = read_map(maps / f"{one.id}.npy")
                for exponent in EXPONENTS:
                    scores = weigh(one.scores, S, one.shape, exponent, surfaces)
                    mask = label_map(scores.values, *scores.cells(*one.shape))
                    C[exponent] += confusion(truths[one.id], mask, labels)
    finally:
        unlock(project.lock)
    return {f"{exponent:g}": scored("", "", False, C[exponent]).miou for exponent in EXPONENTS}


def rows(bounds):
    """A context in which the rows of the cue have these bounds; None: there are none."""
    if bounds == BOUNDS:
        return contextlib.nullcontext()
    other = functools.partial(with_cue, bounds=bounds) if bounds else lambda c, S, surfaces: c
    return mock.patch.object(constraint_builder, "with_cue", other)


# Tables

def collect(folder):
    """What is done: [{"set", "trial", "miou": {exponent: mean IoU}}]"""
    paths = [folder / "_".join(classes) / f"{trial.name}.json" for trial in TRIALS for classes in SETS]
    found = [json.loads(path.read_text()) for path in paths if path.exists()]
    if not found:
        raise UserError(f"{folder}: has no finished trial; run study/cue_choices.py first")
    return found


def tables(found):
    """{title: Markdown}: of the sets that have results, the lines that have some; no table of one line."""
    done = {(one["trial"], tuple(one["set"])): one["miou"] for one in found}
    sets = [classes for classes in SETS if any(classes == other for _, other in done)]

    def line(title, trial, exponent):
        values = [done[trial.name, classes][f"{exponent:g}"] if (trial.name, classes) in done else None
                  for classes in sets]
        bold = "**" if trial == Trial() and exponent == RECIPE.exponent else ""
        mean = float(np.mean(values)) if values and None not in values else None
        return [f"{bold}{title}{bold}", f"{exponent:g}", *values, mean]
    lines = {
        "rows": [line(rows_title(rows), Trial(rows), exponent) for rows in ROWS for exponent in (0, RECIPE.exponent)],
        "exponents": [line("as shipped", Trial(), exponent) for exponent in EXPONENTS],
        "rates": [line(rates_title(*rates), Trial(BOUNDS, *rates), RECIPE.exponent) for rates in RATES],
        "rates without a cue": [line(rates_title(*rates), Trial(None, *rates), 0) for rates in RATES]}
    some = {title: [one for one in those if one[2:] != [None] * len(one[2:])] for title, those in lines.items()}
    header = ["", "exponent", *(" ".join(classes) for classes in sets), "mean"]
    return {title: markdown_table(header, those) for title, those in some.items() if len(those) > 1}


def rows_title(bounds):
    if not bounds:
        return "no rows"
    text = f"inside {bounds.inside:g}, outside {bounds.outside:g}, margin {bounds.margin:g}"
    return text if bounds.price == BOUNDS.price else f"{text}, price {bounds.price:g}"


def rates_title(rates, second):
    return f"{rates[0]:g}, then {rates[1]:g} for {RECIPE.steps * second:g} steps"


if __name__ == "__main__":
    command.run(main)
