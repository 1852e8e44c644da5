#!/usr/bin/env python3
"""Whether sizes find the place of things better than tags, and miss small ones (paper, section 7.3, the figure).

    study/study.py tags size size_hard_started size_10 size_10_hard --seeds 1       # the models, and their scores
    study/small_objects.py --out study/results                                       # the table, and small_objects.json

A thing is a class in an image of val. It is small if it fills less than a tenth of the image, which is what the bit of
size says. With C the confusion matrix of the image alone, C[true label, predicted label] in pixels,

    share found    C[l,l] / sum_m C[l,m]            a thing is missed if less than a tenth of it is found
    IoU            C[l,l] / (sum_m C[l,m] + sum_m C[m,l] - C[l,l])

of a thing; the table has the means over things, of one run, ± their standard deviation over sets of images.
"""
from zipfile import BadZipFile

import numpy as np
import study_runs as runs
from experiments import EXPERIMENTS

from ccnn._util.errors import UserError
from ccnn.cli import command
from ccnn.evaluation.tables import markdown_table
from ccnn.images.labels import BACKGROUND
from ccnn.paper import SIZE_BOUNDS

ROWS = ("tags", "size", "size_hard_started", "size_10", "size_10_hard")
MISSED = 0.1            # a thing of which less is found


def main(argv=None):
    args = runs.arguments(__doc__, argv)
    found = [{"row": row, **measure(read_confusions(args.folder / row / "1"))} for row in ROWS]
    print(table(found))
    runs.write_results(args.out, "small_objects.json", found)


def read_confusions(folder):
    """Images x L x L of a run; UserError if it was not scored."""
    path = folder / runs.confusions_name("")
    try:
        return np.load(path)["arr_0"]
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run study/study.py {folder.parent.name} --seeds 1") from None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        raise UserError(f"{path}: is damaged; remove {folder / 'score.json'}, and run study/study.py "
                        f"{folder.parent.name} --seeds 1") from None


def measure(C):
    """{"small", "large": {"things", "missed", "found", "iou"}}: their number; in percent [mean, deviation]"""
    right, true, predicted = np.diagonal(C, axis1=1, axis2=2), C.sum(axis=2), C.sum(axis=1)
    there = true > 0
    there[:, BACKGROUND] = False
    large = true > SIZE_BOUNDS["large"] * C.sum(axis=(1, 2))[:, None]
    with np.errstate(invalid="ignore"):                 # classes that are not there
        found, iou = right / true, right / (true + predicted - right)
    return {name: {"things": int(some.sum()), **{what: mean_of_things(values, some) for what, values in (
        ("missed", found < MISSED), ("found", found), ("iou", iou))}}
            for name, some in (("small", there & ~large), ("large", there & large))}


def mean_of_things(values, some):
    """[mean over some things, its deviation over sets of images], in percent; arrays of images x L."""
    sums, things = np.where(some, values, 0).sum(axis=1), some.sum(axis=1)
    drawn = runs.drawn_images(len(values))
    with np.errstate(invalid="ignore"):                 # a set without such things
        means = (drawn @ sums) / (drawn @ things)
    return [round(100 * float(share), 1) for share in (sums.sum() / things.sum(), np.nanstd(means, ddof=1))]


def table(found):
    lines = [[EXPERIMENTS[one["row"]].title, *("{:.1f} ± {:.1f}".format(*one[size][what])
                                               for what in ("missed", "found", "iou") for size in ("small", "large"))]
             for one in found]
    return markdown_table(["system", *(f"{what}, {size}" for what in ("missed", "share found", "IoU")
                                       for size in ("small", "large"))], lines)


if __name__ == "__main__":
    command.run(main)
