#!/usr/bin/env python3
"""Fill in the figures and tables of README.md and of docs/: reproduction, study_details, paper, cues, photographs.

    study/study.py --report --out study/results         # study.json, of the runs that are there
    study/hyperparameters.py --report --out study/results   # hyperparameters.json
    study/fill_pages.py                                 # the pages, from these files and others, see MADE_BY

A page has a marker before and after every figure or table: <!-- mean tags -->31.0<!-- / -->. FIGURES says what may
stand in a marker. Only what is between them is rewritten, so no figure is older than its run, and a test compares them.
"""
import json
import re

import crf_sizes
import cue_choices
import extra_knowledge
import hyperparameters
import numpy as np
import own_photographs
import small_objects
import solver_iterations
import study_tables
import surfaces
from experiments import EXPERIMENTS

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.paths import ROOT
from ccnn.cli import command
from ccnn.crf.dense import PRESETS, Preset
from ccnn.evaluation.tables import markdown_table
from ccnn.paper import BOUNDS_TRIED

RESULTS = ROOT / "study/results"

# The files of study/results/, in the order of Study, and the commands that write them.
MADE_BY = {"study.json": "study/study.py --report --out study/results",
           "hyperparameters.json": "study/hyperparameters.py --report --out study/results",
           "solver_iterations.json": "study/solver_iterations.py --out study/results",
           "extra_knowledge.json": "study/extra_knowledge.py --out study/results",
           "crf_sizes.json": "study/crf_sizes.py --out study/results",
           "small_objects.json": "study/small_objects.py --out study/results",
           "crf_100.json": "ccnn tune-crf --out study/results/crf_100.json as docs/study_details.md has it",
           "own_photographs.json": "study/own_photographs.py --report --out study/results",
           "cue_choices.json": "study/cue_choices.py --report --out study/results",
           "surfaces.json": "study/surfaces.py --report --out study/results"}

# The rows of docs/paper.md, and README's few of them.
IN_PAPER_PAGE = ("mil_fcn", "mil_base", "em_adapt", "em_adapt_image", "tags_cells", "tags", "taught_tags",
             "em_adapt_image_train_321", "tags_train_321", "taught_em_adapt_image_train_321",
             "taught_tags_train_321", "size", "size_hard_started", "size_10", "size_10_hard", "taught_size_hard",
             "conv5_taught_size_hard", "shares", "taught_shares", "filled_boxes", "boxes", "taught_boxes", "full",
             "conv5_full_epoch")
IN_README = ("em_adapt", "tags", "taught_tags_train_321", "size_hard_started", "taught_size_hard", "boxes")


def main(argv=None):
    command.parser(__doc__).parse_args(argv)
    for path, text in pages(Study.read()).items():
        with whole_file(ROOT / path) as part:
            part.write_text(text)
        print(path)


PAGES = ("README.md", "docs/cues.md", "docs/paper.md", "docs/photographs.md", "docs/reproduction.md",
         "docs/study_details.md")

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
            raise UserError(f"{path}: {verb}{match[2]}: is not a figure of study/fill_pages.py, or its runs are "
                            f"missing ({type(e).__name__} {e})") from None
    text, found = MARKED.subn(figure, path.read_text())
    opened, closed = len(re.findall(rf"<!-- (?:{'|'.join(FIGURES)})\b", text)), text.count("<!-- / -->")
    if not found == opened == closed:
        raise UserError(f"{path}: has {opened} markers such as <!-- mean tags --> and {closed} <!-- / -->, of which "
                        f"{found} belong together; close each where its figure ends")
    return text


class Study:
    """What study/results/ holds."""
    def __init__(self, found, trials, solved, more, sizes, things, search, own, choices, textures):
        self.found, self.results, self.trials, self.solved = found, found["runs"], trials, solved
        self.more, self.sizes, self.things, self.search, self.own = more, sizes, things, search, own
        self.tables = {**study_tables.tables(found),
                       "rates": hyperparameters.rates_table(trials, hyperparameters.GRIDS),
                       "lengths": hyperparameters.lengths_table(trials),
                       "starts": hyperparameters.rates_table(trials, hyperparameters.STARTS),
                       "settings": hyperparameters.settings_table(trials),
                       "solver_iterations": solver_iterations.table(solved),
                       "extra_knowledge": extra_knowledge.table(more), "crf_sizes": crf_sizes.table(sizes),
                       "small_objects": small_objects.table(things), "search": search_table(search),
                       "own_photographs": own_photographs.page_table(own), "surfaces": surfaces.table(textures),
                       **{f"cue_{title.replace(' ', '_')}": text for title, text in
                          cue_choices.tables(choices).items()},
                       "results": results_table(self.results, IN_PAPER_PAGE),
                       "front": results_table(self.results, IN_README)}

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


def results_table(results, rows):
    """For readers in a hurry: few rows, few columns."""
    lines = []
    for row in rows:
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
        grid, = (grid for grid in (*hyperparameters.GRIDS, *hyperparameters.STARTS) if grid.row == row)
        changes = grid.trials[grid.rates.index(rate)]
    else:
        changes = hyperparameters.as_in_study(row)
    return f"{hyperparameters.scores(study.trials, row, kind)[tuple(changes)]:.1f}"


def held_after(study, row, steps):
    """mIoU on images held out after so many steps, at the study's rate."""
    changes, = (changes for changes in hyperparameters.longer(row) if changes[-1] == f"max_iter={steps}")
    return f"{hyperparameters.scores(study.trials, row)[tuple(changes)]:.1f}"


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
    theirs = {tuple(values): miou for *values, miou in BOUNDS_TRIED}
    return f"{theirs[tuple(map(float, words))] - BOUNDS_TRIED[0][3]:+.1f}"


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


def own(study, sets, kind, version, score="miou"):
    """What `ccnn learn` scores on these sets of own photographs: the mean of the sets' means."""
    found = own_photographs.by_set(study.own, own_photographs.CHOICES[sets], kind, version, score)
    if not found:
        raise KeyError(sets)
    return f"{np.mean([np.mean(scores) for scores in found]):.1f}"


def own_gain(study, sets, kind="tags", score="miou"):
    """How much more that is with the cue than without."""
    with_cue, without = (float(own(study, sets, kind, version, score)) for version in ("after", "none"))
    return study_tables.signed(with_cue - without)


def not_run(study):
    """The rows of which there is no run."""
    left = [name for name in EXPERIMENTS if not study_tables.mious(study.results, name)]
    return f"Not run: {', '.join(f'`{name}`' for name in left)}." if left else "Every row was run."


def table(study, name):
    return f"\n{study.tables[name]}"


FIGURES = {verb.__name__: verb for verb in (
    mean, gap, verdict, paper, paper_gap, gain, half, held, held_after, found_crf, bounds, paper_bounds,
    deviation, paper_deviation, below_50, cues, p_with, things, own, own_gain, not_run, table)}


if __name__ == "__main__":
    command.run(main)
