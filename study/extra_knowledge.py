#!/usr/bin/env python3
"""What p becomes if more is known of an image than its tags: labels for the next net, before any is trained.

    study/study.py classifier tags shares --seeds 1         # the models, and the guessed areas
    study/extra_knowledge.py --out study/results                    # the table, and extra_knowledge.json

The scores are those of the head from tags. p is solved with further constraints on every 40th training image, and
scored against its mask as a net's answer is.
"""
import random

import numpy as np
import points
import study_runs as runs
from experiments import BACKBONE, EXPERIMENTS
from scipy.ndimage import uniform_filter
from scipy.special import softmax
from superpixels import superpixels
from teacher_masks import TINY

import ccnn
from ccnn.cli import command
from ccnn.data.background_shares import background_share, read_shares
from ccnn.evaluation.scores import confusion, scored
from ccnn.evaluation.tables import markdown_table
from ccnn.images.grid import label_map
from ccnn.images.ids import read_split, truth_paths
from ccnn.images.labels import BACKGROUND, LABELS, VOID
from ccnn.images.reading import read_image, read_mask
from ccnn.inference.caffe_net import load_caffe, load_net
from ccnn.paper import TAG_BOUNDS
from ccnn.solver.constraints import Constraints
from ccnn.supervision.constraint_builder import with_known_pixels
from ccnn.supervision.kinds import share_constraints
from ccnn.supervision.marks import known_cells
from ccnn.supervision.tags_sizes_boxes import mask_constraints, tag_constraints

EVERY = 40              # images
CUES = 0.05, 0.2        # the hottest cells of a class, and the coldest of the image: parts of all cells
CUE_SHARE = 0.7         # of the cells of a cue have its label, if cues are rows
CUE_PRICE = 2.0         # of such a row, as of the tags' own
QUANTILES = 0.1, 0.9    # of areas: bounds that are learned from masks
RIM = 1 / 8, 0.8        # of a photograph: as wide as this part of its sides; this much of it is background


def main(argv=None):
    args = runs.arguments(__doc__, argv)
    load_caffe()
    nets = {row: load_net(args.folder / row / "1/deploy.prototxt", runs.last_model(args.folder / row / "1"))
            for row in ("classifier", "tags")}
    names = read_split(args.root, "train_aug")
    guessed = read_shares(args.folder / "shares/1/shares.csv", names)
    known_areas = random.Random(1).sample(names, EXPERIMENTS["shares"].areas)       # as the first run of shares does
    bounds = learn_bounds([read_mask(file) for file in truth_paths(args.root, known_areas)])
    found, contradictory, right = {}, {}, {"classes": [], "background": []}
    for number, (name, file) in list(enumerate(zip(names, truth_paths(args.root, names))))[::EVERY]:
        truth = read_mask(file)
        f, heat = (runs.forward(nets[row], args.features / f"{name}.npy") for row in ("tags", "classifier"))
        grid = BACKBONE.scores(f, truth.shape, runs.side_of(args.features)).cells(*truth.shape)
        pixels = [np.interp(np.arange(cells), at, np.arange(len(at))) for cells, at in zip(f.shape[1:], grid)]
        cues = cells_of_cues(heat.reshape(LABELS, -1), np.setdiff1d(truth, (BACKGROUND, VOID)))
        clicks = known_cells(points.points(truth, np.random.default_rng(number)), *pixels)
        at_cells = np.ix_(*(np.rint(at).astype(int) for at in pixels))
        compare(cues, truth[at_cells].ravel(), right)
        parts = superpixels(around(read_image(args.root / f"JPEGImages/{name}.jpg"), f.shape[1:])[at_cells]).ravel()
        flat = np.ascontiguousarray(f.reshape(LABELS, -1))
        for what, (scores, c) in further(flat, truth, cues, clicks, parts, rim(*f.shape[1:]), guessed[name],
                                         bounds).items():
            solved = ccnn.maximize(scores, c)
            labels = label_map(np.log(np.maximum(solved.p, TINY)).astype(np.float32).reshape(f.shape), *grid)
            contradictory[what] = contradictory.get(what, 0) + (solved.status == "infeasible")
            found[what] = found.get(what, 0) + confusion(truth, labels, LABELS)
    result = {"miou": {what: round(float(scored("p", "train_aug", False, C).miou), 2) for what, C in found.items()},
              "contradictory": contradictory, "images": len(names[::EVERY]),
              "right cues": {what: round(float(np.mean(flags)), 3) for what, flags in right.items()}}
    print(table(result), "Cues that are right: ", result["right cues"], sep="")
    runs.write_results(args.out, "extra_knowledge.json", result)


def further(f, truth, cues, clicks, parts, edge, guess, bounds):
    """{what is known of an image: (scores, constraints)}

    f : scores, L x cells;  cues, clicks : labels of cells, VOID where nothing is known;  parts : superpixels of cells
    edge : whether a cell is in the rim;  guess : area of the background;  bounds : of learn_bounds
    """
    there = np.isin(np.arange(LABELS), truth) | (np.arange(LABELS) == BACKGROUND)
    tags, about = tag_constraints(there), share_constraints(there, guess)
    lower, upper = bounds
    rows = {"tags, and cells of the classifier's cues": known(tags, cues),
            "tags, and the cues as rows of regions": with_rows(tags, by_label(cues)),
            "tags, and the superpixels of the cues as rows of regions": with_rows(tags, by_superpixel(cues, parts)),
            "tags, and a rim that is mostly background": with_rows(tags, [(BACKGROUND, edge)], RIM[1]),
            "tags, and the area of the background that the net itself finds": share_constraints(there, own_area(f)),
            "tags, and a point of each class": known(tags, clicks),
            "tags, and lower bounds of each class from masks": with_bounds(tags, lower),
            "tags, and bounds of each class and of the background from masks": with_bounds(
                tag_constraints(there, bg_lower=lower[BACKGROUND], bg_upper=upper), lower),
            "tags and guessed areas": about,
            "tags and guessed areas, and cells of the cues": known(about, cues),
            "tags and guessed areas, and the superpixels of the cues as rows of regions": with_rows(
                about, by_superpixel(cues, parts)),
            "tags and guessed areas, and a point of each class": known(about, clicks),
            "tags and the true area of the background": share_constraints(there, background_share(truth))}
    return {"tags": (f, tags), "tags, and one p for all cells of a superpixel": (averaged(f, parts), tags),
            **{what: (f, c) for what, c in rows.items()}}


def cells_of_cues(heat, tags):
    """The label of every cell, VOID where the classifier is not sure: the hottest cells of every tagged class, and the
    coldest of all for the background."""
    heat = heat[tags]
    hottest, coldest = (max(1, round(part * heat.shape[1])) for part in CUES)
    cells = np.full(heat.shape[1], VOID)
    cells[np.argsort(heat.max(axis=0))[:coldest]] = BACKGROUND
    for row, label in enumerate(tags):
        top = np.argsort(heat[row])[-hottest:]
        cells[top[heat[:, top].argmax(axis=0) == row]] = label
    return cells


def compare(cues, true, right):
    """Add to `right`, for every cue of a class and of the background, whether the mask agrees."""
    for what, of_kind in (("classes", cues != BACKGROUND), ("background", cues == BACKGROUND)):
        sure = of_kind & (cues != VOID) & (true != VOID)
        right[what] += (cues == true)[sure].tolist()


def known(c, cells):
    """The constraints c where the labels of some cells are known."""
    return with_known_pixels(c, mask_constraints(cells.ravel(), LABELS), mask_share=np.inf)


def with_rows(c, rows, share=CUE_SHARE):
    """The constraints c, and a row for every (label, region of cells):
    (1/n) sum_{i in region} p[l,i] >= share |region| / n, at a price."""
    labels, regions = zip(*rows)
    ones = np.ones((len(c), len(regions[0])))
    return Constraints(np.vstack([c.A, np.eye(LABELS)[list(labels)]]),
                       [*c.b, *(share * region.mean() for region in regions)],
                       [*c.beta, *[CUE_PRICE] * len(labels)], c.allowed, np.vstack([ones, *regions]))


def by_label(cues):
    """[(label, the cells of its cues)]"""
    return [(label, cues == label) for label in np.setdiff1d(cues, [VOID])]


def by_superpixel(cues, parts):
    """[(label, the cells of a superpixel)] of those that hold a cue, and the label of most of their cues."""
    sure = cues != VOID
    return [(np.bincount(cues[sure & (parts == part)]).argmax(), parts == part) for part in np.unique(parts[sure])]


def rim(height, width):
    """Whether a cell is in the rim of the photograph; cells in the order of the scores."""
    y, x = ((np.arange(cells) + 0.5) / cells for cells in (height, width))
    inside = [np.minimum(at, 1 - at) >= RIM[0] for at in (y, x)]
    return ~np.outer(*inside).ravel()


def own_area(f):
    """The share of the background in q, the net's output."""
    return float(softmax(f, axis=0)[BACKGROUND].mean())


def around(rgb, cells):
    """At every pixel the mean colour of the photograph around it, over the extent of a cell."""
    return uniform_filter(rgb.astype(np.float32), [*(-(-size // count) for size, count in zip(rgb.shape, cells)), 1])


def averaged(f, parts):
    """The scores with the mean of its superpixel at every cell.

    With rows on the whole image, p of these scores is that of f if all cells of a superpixel must have the same p: the
    sum of KL(p || q_i) over them depends on the mean of log q_i alone, but for a constant.
    """
    return np.array([np.bincount(parts, row) / np.bincount(parts) for row in f])[:, parts]


def learn_bounds(masks):
    """(low quantile of the area of every label in the masks that show it, high quantile of the background's)

    A class that no mask shows has the paper's lower bound.
    """
    areas = np.array([np.bincount(mask.ravel(), minlength=VOID + 1)[:LABELS] / np.count_nonzero(mask != VOID)
                      for mask in masks])
    low, high = QUANTILES
    lower = [np.quantile(some[some > 0], low) if some.any() else TAG_BOUNDS["fg_lower"] for some in areas.T]
    return np.array(lower), np.quantile(areas[:, BACKGROUND], high)


def with_bounds(c, lower):
    """The constraints c of tags with other lower bounds of the classes."""
    of_class = c.A[:, BACKGROUND] == 0
    return Constraints(c.A, np.where(of_class, c.A @ lower, c.b), c.beta, c.allowed)


def table(result):
    return markdown_table(["known of a training image", "mIoU of p", "images where it is contradictory"],
                          [[what, f"{miou:.1f}", f"{result['contradictory'][what]} of {result['images']}"]
                           for what, miou in result["miou"].items()])


if __name__ == "__main__":
    command.run(main)
