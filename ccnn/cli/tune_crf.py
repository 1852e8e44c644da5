"""Find the dense CRF's parameters for a net on 100 images with masks, coarse to fine; the result is a preset file.

    V=data/VOCdevkit/VOC2012
    ccnn segment --probabilities --no-overlay --out coarse --only $V/ImageSets/Segmentation/val.txt $V/JPEGImages
    ccnn tune-crf --images $V/JPEGImages --masks $V/SegmentationClass --out mine.json coarse/probabilities
    ccnn segment --crf mine.json --out masks street.jpg

The search is DeepLab's: gaussian kernel fixed at 3 / 3, ten iterations; bilateral weight 5..10, xy 50..100, rgb 3..10;
distances for photographs of 500 pixels, scaled with the photograph.
Three values of each come first; then all neighbours of the best, one step (1, 10, 1) away, until none is better. For a
net less confident than DeepLab's the search leaves these ranges, towards weaker terms. What counts is the mIoU over
all the images. For comparison, the table also has the presets and no CRF at all. A preset takes about a third of a
second per image of 321 pixels, and a second for 500: half an hour to two hours on one core, and --jobs divides it. Run
the same command again after a stop: every finished preset is kept in the file.
"""
import os
from pathlib import Path

from ccnn._util.cluster import connected
from ccnn.cli import command
from ccnn.crf.dense import PRESETS
from ccnn.evaluation.crf_search import Search, choose
from ccnn.images.labels import VOC_CLASSES, read_classes


def main(argv=None):
    args = parse_args(argv)
    classes = read_classes(args.classes) if args.classes else VOC_CLASSES
    images = choose(args.probabilities, args.images, args.masks, args.count)
    with connected(args.cluster, args.jobs) as jobs:
        search = Search(args.out, images, len(classes), jobs)
        best = search.run()

    names = {None: "no CRF", **{preset: name for name, preset in PRESETS.items()}}
    names[best] = f"{args.out}, the best found" + (f": {names[best]}" if best in names else "")
    for preset, name in names.items():
        print(f"{search.miou[preset]:6.2f}  {name}")
    print(f"mIoU on {len(images)} images; use it: ccnn segment --crf {args.out} ...")


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("probabilities", nargs="+", type=Path, help=".npz files of ccnn segment --probabilities, or folders of them")
    add("--images", type=Path, required=True, metavar="DIR", help="the photographs, same names")
    add("--masks", type=Path, required=True, metavar="DIR", help="the true masks, same names, .png")
    add("--out", type=Path, required=True, metavar="FILE", help="the preset file, .json")
    add("--count", type=command.count, default=100, metavar="N",
        help="images to use, chosen evenly (default: %(default)s)")
    add("--classes", metavar="FILE", help="class names, one per line (default: VOC's)")
    add("--jobs", type=command.count, default=os.cpu_count(), metavar="N", help="processes (default: all cores)")
    command.add_cluster_option(add)
    return parser.parse_args(argv)
