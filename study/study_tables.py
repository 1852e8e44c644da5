"""The tables and the figure of the study, made from what its runs scored."""
import json

import numpy as np
from experiments import (
    BACKBONE,
    COMPARED,
    CUED,
    EXPERIMENTS,
    FURTHER_ORDERINGS,
    MAIN,
    MASKS,
    ON_OWN,
    ORDERINGS,
    OTHERS,
    bounds_name,
    masks_name,
)
from study_runs import miou, with_stored

from ccnn._util.files import whole_file
from ccnn.evaluation.tables import markdown_table, paper_rows
from ccnn.images.labels import SHORT, VOC_CLASSES
from ccnn.paper import BOUNDS_TRIED, IMAGES

CRFS = ("authors", "untuned", "heads")         # presets of ccnn.crf.dense, as in the columns of the table of systems

TUNED = "crf_100"                               # a file of ccnn tune-crf in study/results/


def summary(results, stored=None):
    """What is kept of runs, with what a stored summary has besides.

    runs    what they scored, without mIoU on sets of images (draws), which say no more than
    images  {row: {kind: standard deviation over sets of images}}
    gaps    {"row > other": standard deviation of their gap over sets of images}
    """
    stored = stored or {"runs": [], "images": {}, "gaps": {}}
    results = with_stored(results, stored["runs"])
    images = {row: dict(kinds) for row, kinds in stored["images"].items()}
    for row in dict.fromkeys(result["row"] for result in results):
        for kind in dict.fromkeys(kind for result in results if result["row"] == row for kind in result["iou"]):
            found = draws(results, row, kind)
            if found is not None:
                images.setdefault(row, {})[kind] = spread(found)
    gaps = dict(stored["gaps"])
    for better, worse in (*ORDERINGS, *FURTHER_ORDERINGS):
        found = draws(results, better), draws(results, worse)
        if found[0] is not None and found[1] is not None:
            gaps[f"{better} > {worse}"] = spread(found[0] - found[1])
    return {"runs": [{key: value for key, value in result.items() if key != "draws"} for result in results],
            "images": images, "gaps": gaps}


def write(found, path):
    """A summary as JSON, one line for each run."""
    with whole_file(path) as part:
        part.write_text(f'{{"images": {json.dumps(found["images"])},\n"gaps": {json.dumps(found["gaps"])},\n"runs": [\n'
                        + ",\n".join(map(json.dumps, found["runs"])) + "\n]}\n")


def tables(found):
    """{title: Markdown} of a summary."""
    results = found["runs"]
    return {"systems": systems_table(found, MAIN), "own": systems_table(found, ON_OWN),
            "others": systems_table(found, OTHERS), "orderings": orderings_table(found, ORDERINGS),
            "further_orderings": orderings_table(found, FURTHER_ORDERINGS),
            "bounds": bounds_table(results), "semi": masks_table(results), "conv5": conv5_table(results),
            "taught": taught_table(results), "pixels": pixels_table(results), "tuned": tuned_table(results),
            "half": half_table(results), "cued": cued_table(results),
            "classes": classes_table(results)}


def systems_table(found, rows):
    """Systems without and with CRF; beside the paper, if it has any of them."""
    results = found["runs"]
    lines, titles = [], ["system", "row", "runs", "mIoU ± seeds", "± images", "authors' CRF", "their untuned",
                         "our CRF", "paper", "paper, CRF"]
    for name in rows:
        title, paper_row = EXPERIMENTS[name].title, EXPERIMENTS[name].paper
        if mious(results, name):
            lines.append(system_line(found, name, title, "", CRFS, paper_row))
        if mious(results, name, "ilp"):
            title, paper_row = f"{title}, image-level prior", f"{paper_row}, ILP"
            lines.append(system_line(found, name, title, "ilp", (None,) * len(CRFS), paper_row))
    columns = len(titles) if any(EXPERIMENTS[name].paper for name in rows) else -2
    return markdown_table(titles[:columns], [line[:columns] for line in lines])


def system_line(found, name, title, kind, presets, paper_row):
    results, images = found["runs"], found["images"].get(name, {}).get(kind)
    ours = mious(results, name, kind)
    return [title, f"`{name}`", str(len(ours)), said(ours), images,
            *(said(mious(results, name, preset)) for preset in presets),
            *(paper_miou(paper_row, crf) for crf in (False, True))]


def orderings_table(found, orderings):
    """Which of two systems is better, and whether the gap exceeds two of its standard errors."""
    lines = []
    for better, worse in orderings:
        if mious(found["runs"], better) and mious(found["runs"], worse):
            holds, gap, seeds, images = compared(found, better, worse)
            theirs = paper_gap(better, worse)
            lines.append([f"{EXPERIMENTS[better].title} > {EXPERIMENTS[worse].title}", holds, signed(gap),
                          f"{seeds:.1f}", f"{images:.1f}", signed(theirs) if theirs else None])
    return markdown_table(["ordering", "holds", "gap", "± seeds", "± images", "in the paper"], lines)


def compared(found, better, worse):
    """(whether the gap exceeds two standard errors, the gap, its error over seeds, its error over sets of images)

    Three runs tell their own deviation badly, and one not at all: a row has at least the usual one. On each set of
    images both systems are scored.
    """
    results = found["runs"]
    ours = [mious(results, name) for name in (better, worse)]
    gap = np.mean(ours[0]) - np.mean(ours[1])
    usual = usual_deviation(results)
    seeds = np.hypot(*[max(deviation(values) or 0, usual) / np.sqrt(len(values)) for values in ours])
    images = found["gaps"].get(f"{better} > {worse}", np.nan)
    error = np.hypot(seeds, images)
    return "yes" if gap > 2 * error else "no" if gap < -2 * error else "undecided", gap, seeds, images


def usual_deviation(results):
    """The median over the rows that have three runs or more; 0 if none has."""
    found = [mious(results, name) for name in COMPARED]
    return float(np.median([deviation(values) for values in found if len(values) > 2] or [0]))


def bounds_table(results):
    """Other bounds of the size constraint, as in the supplement (III), and how much they matter: means of the runs
    whose seeds every line has."""
    seeds = [{result["seed"] for result in results if result["row"] == bounds_name(*bounds)}
             for *bounds, _ in BOUNDS_TRIED]
    shared = set.intersection(*filter(None, seeds)) if any(seeds) else set()
    alike = [result for result in results if result["seed"] in shared]      # as many runs of every line
    found = [(bounds, mious(alike, bounds_name(*bounds)), theirs) for *bounds, theirs in BOUNDS_TRIED]
    found = [(bounds, round(float(np.mean(ours)), 1), theirs) for bounds, ours, theirs in found if ours]
    text = markdown_table(["a_l", "a_0", "b_0", "mIoU", "paper"],
                          [[*map(str, bounds), ours, theirs] for bounds, ours, theirs in found])
    if len(found) < len(BOUNDS_TRIED):
        return text

    def mean_deviation(values):
        """BOUNDS_TRIED has the default first, then three other a_l, four other a_0 and three other b_0."""
        return np.mean([deviation([values[0], *values[a:b]]) for a, b in ((1, 4), (4, 8), (8, 11))])
    ours, theirs = (mean_deviation([line[column] for line in found]) for column in (1, 2))
    return (f"{text}\nStandard deviation along a bound, mean of the three: {ours:.2f} (the paper's figures: "
            f"{theirs:.2f}).\n")


def masks_table(results):
    """mIoU against the number of images with masks (supplement, IV)."""
    alone = dict(by_masks(results, "alone"))
    lines = [[str(count), f"{100 * count / IMAGES['train_aug']:.3g} %", str(len(ours)), said(ours),
              said(alone.get(count))] for count, ours in by_masks(results)]
    return markdown_table(["images with masks", "share", "runs", "mIoU, tags of the others", "masks alone"], lines)


def conv5_table(results):
    """What the last blocks of VGG-16 add to the head that they start with."""
    names = [name for name, experiment in EXPERIMENTS.items() if experiment.learns]
    return before_and_after(results, {name: EXPERIMENTS[name].start for name in names}, "the head",
                            "last blocks learn, too")


def taught_table(results):
    """What a net adds to the one whose masks it learns from."""
    names = [name for name, experiment in EXPERIMENTS.items() if experiment.taught and not experiment.learns]
    return before_and_after(results, {name: EXPERIMENTS[name].taught for name in names}, "the teacher", "the taught")


def pixels_table(results):
    """What larger images add."""
    befores = {name: name.replace(f"_{experiment.size}", "") for name, experiment in EXPERIMENTS.items()
               if experiment.size}
    return before_and_after(results, befores, f"{BACKBONE.size} pixels", "larger")


def tuned_table(results):
    """The CRF that was tuned on 100 images beside the others, on the first run of the rows that were scored with it."""
    lines, first = [], [result for result in results if result["seed"] == 1]
    for name in COMPARED:
        found = [mious(first, name, kind) for kind in ("", *CRFS, TUNED)]
        if found[-1]:
            lines.append([EXPERIMENTS[name].title, *map(said, found)])
    return markdown_table(["system", "no CRF", "authors'", "their untuned", "`heads`", "tuned on 100"], lines)


def cued_table(results):
    """What a cue brings in training and at inference, without and with CRFs."""
    kinds = "", "heads", "cue", *(f"cue_{name}" for name in CRFS)
    lines = [[EXPERIMENTS[name].title, f"`{name}`", str(len(mious(results, name))),
              *(said(mious(results, name, kind)) for kind in kinds)] for name in CUED if mious(results, name)]
    return markdown_table(["system", "row", "runs", "mIoU", "our CRF", "cue at inference", "cue, authors' CRF",
                           "cue, their untuned", "cue, our CRF"], lines)


def before_and_after(results, befores, *titles):
    """Two experiments in a line, of the seeds that both have; `befores` is {the second: the first}."""
    lines = []
    for name, before in befores.items():
        runs = [{result["seed"]: miou(result["iou"][""]) for result in results if result["row"] == row}
                for row in (before, name)]
        seeds = sorted(runs[0].keys() & runs[1].keys())
        if seeds:
            ours = [[run[seed] for seed in seeds] for run in runs]
            lines.append([EXPERIMENTS[name].title, str(len(seeds)), *map(said, ours),
                          f"{np.mean(ours[1]) - np.mean(ours[0]):+.1f}"])
    return markdown_table(["system", "runs", *titles, "gain"], lines)


def half_table(results):
    """mIoU on every second image, from the first on: of val, those that the first version of the study scored."""
    lines = []
    for name in COMPARED:
        values = [result["half"][""] for result in results if result["row"] == name and "" in result.get("half", {})]
        if values:
            lines.append([EXPERIMENTS[name].title, str(len(values)), said(values)])
    return markdown_table(["on every second image of val", "runs", "mIoU"], lines)


def classes_table(results):
    """IoU of every class, the mean of the runs; the paper's before the first row that repeats it."""
    lines, done = [], set()
    for name in COMPARED:
        for kind, crf in (("", False), ("heads", True)):
            ious = [result["iou"][kind] for result in results if result["row"] == name and kind in result["iou"]]
            suffix = " w/ CRF" * crf
            for row in paper_rows():
                key = row.name, crf
                if ious and (row.name, row.split, row.crf) == (EXPERIMENTS[name].paper, "val", crf) and row.iou \
                        and key not in done:
                    done.add(key)
                    lines.append([f"paper: {row.name}{suffix}", "val", *row.iou, row.miou])
            if ious:
                lines.append([EXPERIMENTS[name].title + suffix, "val", *map(miou, zip(*ious)), miou(ious)])
    return markdown_table(["IoU", "set", *(SHORT.get(name, name) for name in VOC_CLASSES), "mIoU"], lines)


def draw(results, path):
    """The figure: mIoU against the number of images with masks, the supplement's curve (IV)."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    figure, axis = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
    for others, colour, text in (("semi", "#1f5fa8", "with the tags of the others"),
                                 ("alone", "#b4552d", "masks alone")):
        points = by_masks(results, others)
        axis.plot([count for count, _ in points], [np.mean(ours) for _, ours in points], color=colour, linewidth=1.5,
                  label=text)
        for count, ours in points:
            axis.plot([count] * len(ours), ours, "o", color=colour, markersize=4)
    axis.legend(frameon=False)
    axis.set(xlabel="images with masks", ylabel="mIoU")
    axis.set_xscale("symlog", linthresh=100)        # from none on
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", alpha=0.3)
    with whole_file(path) as part:
        figure.savefig(part, dpi=150)
    plt.close(figure)


# Numbers

def mious(results, name, kind=""):
    """mIoU of every run of an experiment."""
    return [miou(result["iou"][kind]) for result in results if result["row"] == name and kind in result["iou"]]


def draws(results, name, kind=""):
    """mIoU on sets of images that are the same for every row, the mean of the runs; None if one of them has none."""
    found = [result.get("draws", {}).get(kind) for result in results if result["row"] == name and kind in result["iou"]]
    return np.mean(found, axis=0) if found and None not in found else None


def spread(values):
    """Standard deviation over sets of images."""
    return round(float(np.std(values, ddof=1)), 5)


def by_masks(results, others="semi"):
    """(number of images with masks, mIoU of every run), of those that are done, in ascending order.

    others : of the other images the tags are known ("semi"), or they are not used ("alone")
    """
    images = IMAGES["train_aug"]
    names = {**({0: "tags"} if others == "semi" else {}),
             **{round(images * int(masks[:-2]) / 100): masks_name(masks, others) for masks in MASKS}, images: "full"}
    found = {count: mious(results, name) for count, name in sorted(names.items())}
    return [(count, ours) for count, ours in found.items() if ours]


def paper_miou(name, crf=False):
    """What the paper reports of a row on val; None if nothing."""
    return next((row.miou for row in paper_rows() if (row.name, row.split, row.crf) == (name, "val", crf)), None)


def paper_gap(better, worse):
    """How much more one row scores in the paper than another; None if it does not say, or if they are one there."""
    theirs = [paper_miou(EXPERIMENTS[name].paper) for name in (better, worse)]
    return theirs[0] - theirs[1] if None not in theirs and theirs[0] != theirs[1] else None


def deviation(values):
    """Standard deviation over the seeds; None of a single one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def signed(value):
    """With one digit and its sign; not -0.0."""
    return f"{round(value, 1) + 0:+.1f}"


def said(values):
    """Mean ± standard deviation, as text; None if there are no values."""
    if not values:
        return None
    return f"{np.mean(values):.1f}" + (f" ± {deviation(values):.1f}" if len(values) > 1 else "")
