#!/usr/bin/env python3
"""What the size of the photograph changes in the study's columns of CRFs: scores and seconds at three sizes.

    study/study.py size_10 --seeds 1            # the model
    study/crf_sizes.py --out study/results      # the table, and crf_sizes.json

The study's CRFs see photographs reduced to 167 pixels. Here every 14th image of val is scored at other sizes, too. It
is val because its photographs have their original size, whatever that of the training images is. Nothing is chosen
by these figures.
"""
import time

import study_runs as runs
from experiments import BACKBONE
from study_tables import CRFS

from ccnn.cli import command
from ccnn.crf.dense import PRESETS
from ccnn.evaluation.scores import confusion, scored
from ccnn.evaluation.tables import markdown_table
from ccnn.images.ids import read_split, truth_paths
from ccnn.images.labels import LABELS
from ccnn.images.reading import read_image, read_mask
from ccnn.inference.caffe_net import load_caffe, load_net

ROW = "size_10"
EVERY = 14                          # images
SIDES = (500, 250, runs.CRF_SIDE)   # long sides in pixels; smaller photographs stay as they are


def main(argv=None):
    args = runs.arguments(__doc__, argv)
    found = measure(args)
    print(table(found))
    runs.write_results(args.out, "crf_sizes.json", found)


def measure(args):
    """[{"crf", "side", "images", "miou", "seconds"}]; seconds of the processor, the mean of an image"""
    load_caffe()
    folder = args.folder / ROW / "1"
    net = load_net(folder / "deploy.prototxt", runs.last_model(folder))
    names = read_split(args.root, "val")[::EVERY]
    total = {(kind, side): 0 for kind in CRFS for side in SIDES}
    seconds = dict.fromkeys(total, 0.0)
    for name, file in zip(names, truth_paths(args.root, names)):
        truth, rgb = read_mask(file), read_image(args.root / f"JPEGImages/{name}.jpg")
        scores = BACKBONE.scores(runs.forward(net, args.features / f"{name}.npy"), truth.shape,
                                 runs.side_of(args.features))
        for kind, side in total:
            start = time.process_time()
            labels = runs.after_crf(rgb, scores, PRESETS[kind], side)
            seconds[kind, side] += time.process_time() - start
            total[kind, side] += confusion(truth, labels, LABELS)
    return [{"crf": kind, "side": side, "images": len(names), "seconds": round(seconds[kind, side] / len(names), 3),
             "miou": round(float(scored(kind, "val", True, C).miou), 2)} for (kind, side), C in total.items()]


def table(found):
    """mIoU with every CRF, and seconds, at every size."""
    lines = []
    for kind in CRFS:
        of_kind = {one["side"]: one for one in found if one["crf"] == kind}
        lines.append([f"`{kind}`", str(of_kind[SIDES[0]]["images"]), *(of_kind[side]["miou"] for side in SIDES),
                      *(f"{of_kind[side]['seconds']:.2f}" for side in SIDES)])
    return markdown_table(["CRF", "images", *(f"mIoU, {side} pixels" for side in SIDES),
                           *(f"s, {side} pixels" for side in SIDES)], lines)


if __name__ == "__main__":
    command.run(main)
