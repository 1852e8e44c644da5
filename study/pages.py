#!/usr/bin/env python3
"""Write docs/reproduction.md, docs/study_details.md and README's results from what the study found.

    study/study.py --report --out docs          # docs/study.json, of the runs that are there
    study/choices.py --report --out docs        # docs/choices.json
    study/pages.py                              # the pages, from these files and others of docs/, see MADE_BY

The sentences stand in study/texts/, with {{...}} where a figure or a table belongs; FIGURES says what may stand there.
So no figure of these pages is older than its run, and a test compares them.
"""
import json
import re

import choices
import crf_sizes
import further
import numpy as np
import report
import small_things
import solves
from experiments import EXPERIMENTS

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.paths import ROOT
from ccnn.cli import command
from ccnn.crf.dense import PRESETS, Preset
from ccnn.evaluation.tables import markdown_table
from ccnn.paper import BOUNDS

# The files of docs/, in the order of Study, and the commands that write them.
MADE_BY = {"study.json": "study/study.py --report --out docs", "choices.json": "study/choices.py --report --out docs",
           "solves.json": "study/solves.py --out docs", "further.json": "study/further.py --out docs",
           "crf_sizes.json": "study/crf_sizes.py --out docs", "small_things.json": "study/small_things.py --out docs",
           "crf_100.json": "tools/tune_crf.py --out docs/crf_100.json as docs/study_details.md has it"}

# The rows of README's table.
RESULTS = ("mil_fcn", "mil_base", "em_adapt", "em_adapt_image", "tags_cells", "tags", "taught_tags",
           "em_adapt_image_train_321", "tags_train_321", "taught_em_adapt_image_train_321",
           "taught_tags_train_321", "size", "size_hard_started", "size_10", "size_10_hard", "taught_size_hard",
           "conv5_taught_size_hard", "shares", "taught_shares", "filled_boxes", "boxes", "taught_boxes", "full",
           "conv5_full_epoch")


def main(argv=None):
    command.parser(__doc__).parse_args(argv)
    for path, text in pages(Study.read()).items():
        with whole_file(ROOT / path) as part:
            part.write_text(text)
        print(path)


def pages(study):
    """{path: text} of what this program writes."""
    readme, found = re.subn(r"(?<=\n## Results\n).*?(?=\n## )", lambda _: filled("results.md", study),
                            (ROOT / "README.md").read_text(), flags=re.S)
    if found != 1:
        raise UserError(f"{ROOT / 'README.md'}: has {found} sections \"## Results\" before another one, need 1")
    return {"docs/reproduction.md": filled("reproduction.md", study),
            "docs/study_details.md": filled("study_details.md", study), "README.md": readme}


def filled(name, study):
    """A text of study/texts with its figures."""
    path = ROOT / "study/texts" / name

    def figure(match):
        verb, *words = match[1].split()
        try:
            return FIGURES[verb](study, *words)
        except (KeyError, TypeError, ValueError) as e:
            raise UserError(f"{path}: {match[0]}: is not a figure of study/pages.py, or its runs are missing "
                            f"({type(e).__name__} {e})") from None
    return re.sub(r"\{\{(.+?)\}\}", figure, path.read_text())


class Study:
    """What docs/ holds of the study."""
    def __init__(self, results, trials, solved, more, sizes, things, search):
        self.results, self.trials, self.solved, self.more, self.sizes = results, trials, solved, more, sizes
        self.things, self.search = things, search
        self.tables = {**report.tables(results), "rates": choices.rates_table(trials, choices.GRIDS),
                       "lengths": choices.lengths_table(trials),
                       "starts": choices.rates_table(trials, choices.STARTS),
                       "settings": choices.settings_table(trials), "solves": solves.table(solved),
                       "further": further.table(more), "crf_sizes": crf_sizes.table(sizes),
                       "small_things": small_things.table(things), "search": search_table(search),
                       "results": results_table(results)}

    @classmethod
    def read(cls):
        found = [read(ROOT / "docs" / file, how) for file, how in MADE_BY.items()]
        try:
            return cls(*found)
        except (KeyError, TypeError, ValueError) as e:
            raise UserError(f"{ROOT / 'docs'}: one of {', '.join(MADE_BY)} is of another version ({type(e).__name__} "
                            f"{e}); run {', '.join(MADE_BY.values())}") from None

    def mious(self, row, kind=""):
        found = report.mious(self.results, row, kind)
        if not found:
            raise KeyError(f"{row} {kind}".strip())
        return found

    def first(self, row, kind=""):
        """mIoU of the run of the first seed."""
        return report.mious([result for result in self.results if result["seed"] == 1], row, kind)


def read(path, how):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as e:
        raise UserError(f"{path}: is missing or damaged ({e}); run {how}") from None


def results_table(results):
    """README's: fewer rows, fewer columns."""
    lines = []
    for row in RESULTS:
        paper = [report.paper_miou(EXPERIMENTS[row].paper, crf) for crf in (False, True)]
        lines.append([EXPERIMENTS[row].title, *(report.said(report.mious(results, row, kind)) or ""
                                                for kind in ("", "heads")),
                      " / ".join(f"{value:.1f}" for value in paper if value)])
    return markdown_table(["", "without CRF", "with CRF", "the paper, VOC val"], lines)


def search_table(search):
    """What no CRF, the named presets and the best of the search score on the images that it was tuned on."""
    names = {None: "no CRF", **{preset: f"`{name}`" for name, preset in PRESETS.items()},
             Preset(**search["preset"]): "the best found"}
    tried = {preset and Preset(**preset): miou for preset, miou in search["tried"]}
    return markdown_table(["CRF", f"mIoU on {search['images']} images"],
                          [[name, f"{tried[preset]:.1f}"] for preset, name in names.items()])


# What may stand between {{ and }}: a verb and its words.

def mean(study, row, kind=""):
    """mIoU of a row, mean ± deviation."""
    return report.said(study.mious(row, kind))


def gap(study, better, worse, kind=""):
    """How much more one row scores than another."""
    return report.signed(np.mean(study.mious(better, kind)) - np.mean(study.mious(worse, kind)))


def verdict(study, better, worse):
    """Whether a row scores more than another, and how much."""
    study.mious(better), study.mious(worse)
    holds, found, *_ = report.compared(study.results, better, worse)
    return f"{holds}: {report.signed(found)}"


def paper(study, row, prior=""):
    """What the paper reports of a row, perhaps with its image-level prior."""
    return f"{report.paper_miou(EXPERIMENTS[row].paper + ', ILP' * (prior == 'ilp')):.1f}"


def paper_gap(study, better, worse):
    """How much more a row scores in the paper than another."""
    return f"{report.paper_gap(better, worse):+.1f}"


def gain(study, row, kind):
    """What a CRF adds to the first run of a row."""
    (crf,), (plain,) = study.first(row, kind), study.first(row)
    return f"{crf - plain:+.1f}"


def half(study, row):
    """mIoU on every second image of val."""
    study.mious(row)
    return report.said([result["half"][""] for result in study.results if result["row"] == row])


def held(study, row, rate=None, kind="miou"):
    """mIoU of a trial on images held out: at this rate of its grid, or at the study's rate and length; with an
    image-level prior, if `kind` is "ilp"."""
    if rate:
        grid, = (grid for grid in (*choices.GRIDS, *choices.STARTS) if grid.row == row)
        changes = grid.trials[grid.rates.index(rate)]
    else:
        changes = choices.as_in_study(row)
    return f"{choices.scores(study.trials, row, kind)[tuple(changes)]:.1f}"


def held_after(study, row, steps):
    """mIoU on images held out after so many steps, at the study's rate."""
    changes, = (changes for changes in choices.longer(row) if changes[-1] == f"max_iter={steps}")
    return f"{choices.scores(study.trials, row)[tuple(changes)]:.1f}"


def reduced(study, kind):
    """How much more a CRF scores on photographs of the study's size than on the largest."""
    found = {one["side"]: one["miou"] for one in study.sizes if one["crf"] == kind}
    return f"{found[crf_sizes.SIDES[-1]] - found[crf_sizes.SIDES[0]]:+.1f}"


def found_crf(study):
    """The kernel that the search on 100 images found: its weight, its distances in pixels and in levels of colour."""
    preset = Preset(**study.search["preset"])
    return (f"weight {preset.bilateral_weight:g}, {preset.bilateral_xy:g} pixels of {preset.long_side}, "
            f"{preset.bilateral_rgb:g} levels")


def bounds(study, *words):
    """How far mIoU falls behind the paper's bounds with these a_l, a_0, b_0."""
    return gap(study, f"bounds_{'_'.join(words)}", "size")


def paper_bounds(study, *words):
    """The same of the paper's figures."""
    theirs = {tuple(values): miou for *values, miou in BOUNDS}
    return f"{theirs[tuple(map(float, words))] - BOUNDS[0][3]:+.1f}"


def deviation(study):
    """Of mIoU along a bound."""
    return re.search(r"mean of the three: ([\d.]+)", study.tables["bounds"])[1]


def paper_deviation(study):
    """The same of the paper's figures."""
    return re.search(r"the paper's figures: ([\d.]+)", study.tables["bounds"])[1]


def below_50(study, row):
    """Percent of the images that projected gradient ascent solves in fewer than 50 iterations."""
    solved, = (one for one in study.solved if (one["row"], one["method"]) == (row, "pga"))
    return f"{100 * np.mean(np.array(solved['iterations']) < 50):.0f}"


def cues(study, what):
    """Percent of the classifier's cues that are right."""
    return f"{100 * study.more['right cues'][what]:.0f}"


def p_with(study, *words):
    """mIoU of p on training images of which this is known."""
    return f"{study.more['miou'][' '.join(words)]:.1f}"


def things(study, row, size, what):
    """Of the small or large things: percent that are missed, share that is found, or IoU; "things": their number."""
    found, = (one[size][what] for one in study.things if one["row"] == row)
    return f"{found:,}" if what == "things" else f"{found[0]:.1f}"


def not_run(study):
    """The rows of which there is no run."""
    left = [name for name in EXPERIMENTS if not report.mious(study.results, name)]
    return f"Not run: {', '.join(f'`{name}`' for name in left)}." if left else "Every row was run."


def table(study, name):
    return study.tables[name].rstrip("\n")


FIGURES = {verb.__name__: verb for verb in (
    mean, gap, verdict, paper, paper_gap, gain, half, held, held_after, reduced, found_crf, bounds, paper_bounds,
    deviation, paper_deviation, below_50, cues, p_with, things, not_run, table)}


if __name__ == "__main__":
    command.run(main)
