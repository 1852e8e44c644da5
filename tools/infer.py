#!/usr/bin/env python3
"""Segment photographs: one label PNG per photograph, in VOC's colours and at the photograph's size.

    tools/infer.py --out masks street.jpg holiday/              # the model we ship
    tools/infer.py --out masks --crf tuned "holiday/**/*.jpg"   # edges sharpened by a dense CRF
    tools/infer.py --out masks --tags cat,person sofa.jpg       # nothing but these and background is there
    tools/infer.py --out val --crf --only data/VOCdevkit/VOC2012/ImageSets/Segmentation/val.txt \\
        data/VOCdevkit/VOC2012/JPEGImages
    tools/infer.py --out masks cat.jpg \\
        --net prototxt/deploy_8s.prototxt --weights snapshots/ccnn_tags_iter_60000.caffemodel

writes OUT/NAME.png, OUT/overlay/NAME.jpg (colours over the photograph, long side at most 1280, with a legend) and, if
asked for, OUT/probabilities/NAME.npz. Photographs of a folder keep their subfolders.

Run the same command again after a stop: finished photographs are skipped. A photograph that cannot be read is named at
the end, and the exit status is then 1.

Photographs may be of any size: the net sees them with the long side reduced to --size, the CRF to 500 pixels, and the
labels are enlarged to the photograph strip by strip. Memory, a photograph of 20 megapixels included: 1.1 GB at --size
321 and 2 GB at --size 500 (2.3 GB for the whole VGG-16), and 0.4 GB for each of --jobs.
"""
import glob
import hashlib
import os
from pathlib import Path

import _activate  # noqa: F401
import numpy as np
from tqdm import tqdm

from ccnn import command
from ccnn.baselines import image_level_prior
from ccnn.crf import LONG_SIDE, PRESETS, load_preset
from ccnn.errors import UserError
from ccnn.grid import Scores
from ccnn.images import read_image, shrink
from ccnn.labels import VOC_CLASSES, read_classes
from ccnn.masks import report, unfinished
from ccnn.net import check_scores, forward, load_net, score_grid
from ccnn.predict import HEAD, NET, Recipe, find_photographs, find_weights, finish, read_about
from ccnn.tags import tagged
from ccnn.workers import in_processes


def main(argv=None):
    args = parse_args(argv)
    weights = find_weights(args.net, args.weights)
    about = read_about(args.net, args.weights)
    size = args.size or about.get("size", LONG_SIDE)
    classes = read_classes(args.classes) if args.classes else tuple(about.get("classes", VOC_CLASSES))
    labels = tagged(args.tags, classes)
    preset = args.crf and load_preset(args.crf)
    settings = {
        "tool": "infer", "net": digest(args.net), "weights": [digest(path) for path in weights], "size": size,
        "tags": args.tags and [classes[label] for label in labels], "ilp": args.ilp,
        "crf": preset and preset._asdict(),
    }
    recipe = Recipe(classes, labels, preset, settings)
    work = [(source, args.out / f"{name}.png",
             *([] if args.no_overlay else [args.out / f"overlay/{name}.jpg"]),
             *([args.out / f"probabilities/{name}.npz"] if args.probabilities else []))
            for source, name in find_photographs(args.photographs, args.only, args.out)]
    todo = unfinished(work, settings, args.force)
    failures = []
    if todo:
        net = load_net(args.net, weights, args.gpu, shape=(1, 3, 65, 97))
        check_scores(net, args.net, classes)
        grid = score_grid(args.net)
        with tqdm(total=len(todo), unit="image", disable=None) as bar:
            def predictions():
                for source, *outputs in todo:
                    try:
                        rgb = read_image(source)
                        image = shrink(rgb, size)
                        values = forward(net, image)
                        if not np.isfinite(values).all():
                            raise UserError(f"{source}: the net's scores are not finite; "
                                             "do weights and net belong together?")
                        values = image_level_prior(values) if args.ilp else values
                        yield rgb, Scores(values, image.shape[:2], *grid), recipe, outputs
                    except UserError as e:
                        failures.append(e)
                        bar.update()
            for _ in in_processes(finish, predictions(), args.jobs):
                bar.update()
    return report(failures, len(todo) - len(failures), args.out)


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("photographs", nargs="*", help="files, folders or quoted patterns; any format that Pillow reads")
    add("--out", type=Path, required=True, metavar="DIR", help="where the masks go")
    add("--crf", nargs="?", const="heads", metavar="PRESET",
        help=f"sharpen with a dense CRF: {', '.join(PRESETS)}, or a file of tools/tune_crf.py (default: heads)")
    add("--tags", metavar="A,B", help="the classes that are in the photographs, if known: no other will be found")
    add("--ilp", action="store_true",
        help="weigh each label by the net's own belief that it is in the photograph (for MIL-Base; paper, table 1)")
    add("--net", type=Path, default=NET, help="deploy net with input `data` and scores `fc8` (default: %(default)s)")
    add("--weights", type=Path, default=HEAD,
        help="the net's, or those of a head alone, the trunk being data/vgg16_conv.caffemodel (default: %(default)s)")
    add("--classes", metavar="FILE",
        help="class names, one a line (default: those of WEIGHTS.json or NET.json, else VOC's)")
    add("--size", type=command.count, metavar="PIXELS",
        help="long side that the net sees (default: that of its training if WEIGHTS.json or NET.json tells, "
             f"else {LONG_SIDE})")
    add("--only", type=Path, metavar="FILE", help="take only these names, one a line, without suffix: a VOC split")
    add("--probabilities", action="store_true",
        help=f"also write NAME.npz: `probabilities`, L x h x w float16, long side at most {LONG_SIDE}, and `classes`")
    add("--no-overlay", action="store_true", help="masks only")
    add("--jobs", type=command.count, default=os.cpu_count(), metavar="N",
        help="processes for CRF and files while the net runs (default: all cores; 1: no extra process)")
    add("--gpu", type=int, metavar="ID", help="run the net on this GPU (default: on the CPU)")
    add("--force", action="store_true", help="make masks again, and replace files made otherwise")
    args = parser.parse_args(argv)
    if args.crf and args.crf not in PRESETS and not args.crf.endswith(".json") and \
            (Path(args.crf).exists() or glob.has_magic(args.crf)):      # `--crf cat.jpg`: a photograph, no preset
        args.photographs.insert(0, args.crf)
        args.crf = "heads"
    if not args.photographs:
        parser.error("give photographs: files, folders or patterns")
    if args.size and not 32 <= args.size <= 2000:
        parser.error(f"--size must be 32..2000 pixels, got {args.size}")
    return args


def digest(path):
    """Name and content of a file, short."""
    return f"{path.name} sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


if __name__ == "__main__":
    command.run(main)
