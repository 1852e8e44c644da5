#!/usr/bin/env python3
"""Fill in the figures and tables of docs/reproduction.md, docs/study_details.md and README.md from study/results/.

    study/study.py --report --out study/results         # study.json, of the runs that are there
    study/choices.py --report --out study/results       # choices.json
    study/pages.py                                      # the pages, from these files and others, see MADE_BY

A page has a marker before and after every figure or table: <!-- mean tags -->31.0<!-- / -->. FIGURES says what may
stand in a marker. Only what is between them is rewritten, so no figure is older than its run, and a test compares them.
"""
import json
import re

import choices
import crf_sizes
import further
import numpy as np
import small_things
import solves
import study_tables
from experiments import EXPERIMENTS

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.paths import ROOT
from ccnn.cli import command
from ccnn.crf.dense import PRESETS, Preset
from ccnn.evaluation.tables import markdown_table
from ccnn.paper import BOUNDS

RESULTS = ROOT / "study/results"

# The files of study/results/, in the order of Study, and the commands that write them.
MADE_BY = {"study.json": "study/study.py --report --out study/results",
           "choices.json": "study/choices.py --report --out study/results",
           "solves.json": "study/solves.py --out study/results",
           "further.json": "study/further.py --out study/results",
           "crf_sizes.json": "study/crf_sizes.py --out study/results",
           "small_things.json": "study/small_things.py --out study/results",
           "crf_100.json": "ccnn tune-crf --out study/results/crf_100.json as docs/study_details.md has it"}

# The rows of README's table.
IN_README = ("mil_fcn", "mil_base", "em_adapt", "em_adapt_image", "tags_cells", "tags", "taught_tags",
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


PAGES = ("README.md", "docs/reproduction.md", "docs/study_details.md")

MARKED = re.compile(r"<!-- (\w+)((?: [\w.-]+)*) -->((?:(?!<!--).)*)<!-- / -->", re.S)


def pages(study):
    """{path: text} of the pages with their figures."""
    return {path: filled(ROOT / path, study) for path in PAGES}


def filled(path, study):
    """A page with its figures."""
    def figure(match):
        verb, words = match[1], match[2].split()
        try:
            return f"<!-- {verb}{match[2]} -->{FIGURES[verb](study, *words)}<!-- / -->"
        except (KeyError, TypeError, ValueError) as e:
            raise UserError(f"{path}: {verb}{match[2]}: is not a figure of study/pages.py, or its runs are missing "
                            f"({type(e).__name__} {e})") from None
    text, found = MARKED.subn(figure, path.read_text())
    opened, closed = len(re.findall(rf"<!-- (?:{'|'.join(FIGURES)})\b", text)), text.count("<!-- / -->")
    if not found == opened == closed:
        raise UserError(f"{path}: has {opened} markers such as <!-- mean tags --> and {closed} <!-- / -->, of which "
                        f"{found} belong together; close each where its figure ends")
    return text


class Study:
    """What study/results/ holds."""
    def __init__(self, found, trials, solved, more, sizes, things, search):
        self.found, self.results, self.trials, self.solved = found, found["runs"], trials, solved
        self.more, self.sizes, self.things, self.search = more, sizes, things, search
        self.tables = {**study_tables.tables(found), "rates": choices.rates_table(trials, choices.GRIDS),
                       "lengths": choices.lengths_table(trials),
                       "starts": choices.rates_table(trials, choices.STARTS),
                       "settings": choices.settings_table(trials), "solves": solves.table(solved),
                       "further": further.table(more), "crf_sizes": crf_sizes.table(sizes),
                       "small_things": small_things.table(things), "search": search_table(search),
                       "results": results_table(self.results)}

    @classmethod
    def read(cls):
        found = [read(RESULTS / file, how) for file, how in MADE_BY.items()]
        try:
            return cls(*found)
        except (KeyError, TypeError, ValueError) as e:
            raise UserError(f"{RESULTS}: one of {', '.join(MADE_BY)} is of another version ({type(e).__name__} "
                            f"{e}); run {', '.join(MADE_BY.values())}") from None

    def mious(self, row, kind=""):
        found = study_tables.mious(self.results, row, kind)
        if not found:
            raise KeyError(f"{row} {kind}".strip())
        return found

    def first(self, row, kind=""):
        """mIoU of the run of the first seed."""
        return study_tables.mious([result for result in self.results if result["seed"] == 1], row, kind)


def read(path, how):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as e:
        raise UserError(f"{path}: is missing or damaged ({e}); run {how}") from None


def results_table(results):
    """README's: fewer rows, fewer columns."""
    lines = []
    for row in IN_README:
        paper = [study_tables.paper_miou(EXPERIMENTS[row].paper, crf) for crf in (False, True)]
        lines.append([EXPERIMENTS[row].title, *(study_tables.said(study_tables.mious(results, row, kind)) or ""
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
    return study_tables.said(study.mious(row, kind))


def gap(study, better, worse, kind=""):
    """How much more one row scores than another."""
    return study_tables.signed(np.mean(study.mious(better, kind)) - np.mean(study.mious(worse, kind)))


def verdict(study, better, worse):
    """Whether a row scores more than another, and how much."""
    study.mious(better), study.mious(worse)
    holds, found, *_ = study_tables.compared(study.found, better, worse)
    return f"{holds}: {study_tables.signed(found)}"


def paper(study, row, prior=""):
    """What the paper reports of a row, perhaps with its image-level prior."""
    return f"{study_tables.paper_miou(EXPERIMENTS[row].paper + ', ILP' * (prior == 'ilp')):.1f}"


def paper_gap(study, better, worse):
    """How much more a row scores in the paper than another."""
    return f"{study_tables.paper_gap(better, worse):+.1f}"


def gain(study, row, kind):
    """What a CRF adds to the first run of a row."""
    (crf,), (plain,) = study.first(row, kind), study.first(row)
    return f"{crf - plain:+.1f}"


def half(study, row):
    """mIoU on every second image of val."""
    study.mious(row)
    return study_tables.said([result["half"][""] for result in study.results if result["row"] == row])


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
    left = [name for name in EXPERIMENTS if not study_tables.mious(study.results, name)]
    return f"Not run: {', '.join(f'`{name}`' for name in left)}." if left else "Every row was run."


def table(study, name):
    return f"\n{study.tables[name]}"


FIGURES = {verb.__name__: verb for verb in (
    mean, gap, verdict, paper, paper_gap, gain, half, held, held_after, found_crf, bounds, paper_bounds,
    deviation, paper_deviation, below_50, cues, p_with, things, not_run, table)}


if __name__ == "__main__":
    command.run(main)
