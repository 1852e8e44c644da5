"""Compute the backbone's features of every image once, so that a classifier can be trained on them in minutes.

    ccnn cache-features --split train_aug                           # of data/VOCdevkit/VOC2012, into data/features
    ccnn cache-features photos --out photos/features                # of a folder of your own
    caffe train -solver solvers/head_tags.prototxt                      # trains on data/features
    ccnn cache-features --split train_aug --blob pool4              # into data/pool4: conv5 can learn from there
    ccnn cache-features --split train_aug --blob pool3              # into data/pool3: conv4, too

The convolutions conv1_1 .. conv5_3 (prototxt/trunk.prototxt) stay as ImageNet made them: the frozen-backbone recipe.
Each image, reduced to a long side of --size pixels, becomes one file ID.npy: float16, 1024 channels x rows x columns,
the square roots of conv5_3 and their means over 9x9 cells, a cell every 8 pixels (224 pixels: 29 cells). The number of
images, the disk space and the time are stated before the work begins. It may be stopped at any time; run again, it
continues where it was. Mirrored images are not stored: training flips the features instead, which is nearly the same.
"""
import os
import shutil
from pathlib import Path

from ccnn._util.cluster import connected
from ccnn._util.errors import UserError
from ccnn._util.paths import DATA, FEATURES, VOC, named
from ccnn._util.text import plural
from ccnn.cli import command
from ccnn.inference.caffe_net import load_caffe
from ccnn.nets.backbones import BACKBONES
from ccnn.training.features import check_index, compute, find_images, plan_features


def main(argv=None):
    args = parse_args(argv)
    if args.gpu is not None:
        load_caffe(args.gpu)            # before anything is computed: is there such a GPU?
    files = find_images(args.root, args.split)
    backbone = BACKBONES[args.backbone]
    weights = args.weights or backbone.fetch_weights()
    check_index(backbone, args.out, args.size, weights, args.blob)

    todo, broken, need = plan_features(backbone, files, args.out, args.size, args.blob)
    free = shutil.disk_usage(args.out).free
    print(f"{plural(len(files), 'image')}, {len(files) - len(todo) - len(broken)} done already; {len(todo)} to do take "
          f"{need / 1e9:.2f} GB in {args.out} ({free / 1e9:.1f} GB free)", flush=True)
    if need > free:
        raise UserError(f"{args.out}: {need / 1e9:.2f} GB needed, {free / 1e9:.2f} GB free; use a smaller --size or "
                        "another --out")
    if todo:
        with connected(args.cluster, args.jobs) as jobs:
            broken.update(compute(backbone, weights, todo, args.out, args.size, jobs, blob=args.blob,
                                  engine=args.engine, gpu=args.gpu))
    for error in broken.values():
        print(error)
    print(f"{len(files) - len(broken)} of {plural(len(files), 'image')} have features in {args.out}"
          + (f"; {len(broken)} could not be read: fix them or take them off the list" if broken else ""))
    return 1 if broken else 0


def parse_args(argv):
    parser = command.parser(__doc__)
    parser.add_argument("root", nargs="?", default=str(VOC),
                        help="VOC folder, or a folder of images: those of its tags.csv or Annotations if it has a "
                             f"classes.txt, else all (default: {named(VOC)})")
    parser.add_argument("--split", action="append", metavar="NAME",
                        help="list of images: train, val, train_aug, or the path of a file with one id per line; may "
                             "be repeated (default: train, in a VOC folder)")
    parser.add_argument("--out", type=Path, metavar="DIR",
                        help=f"where the features go (default: features, pool4 or pool3 in {named(DATA)})")
    parser.add_argument("--blob", choices=[*{blob: 0 for backbone in BACKBONES.values() for blob in backbone.blobs}],
                        default="features",
                        help="pool4: what conv5 sees, so that it can learn with the classifier (solvers/conv5_*); half "
                             "the space. pool3: the same for conv4 and conv5 (solvers/conv4_*); a quarter of it "
                             "(default: %(default)s)")
    command.add_backbone_option(parser)
    parser.add_argument("--weights", type=Path, metavar="FILE",
                        help="a caffemodel with conv1_1 .. conv5_3 (default: VGG-16's, downloaded once)")
    parser.add_argument("--size", type=int, metavar="PIXELS",
                        help="long side to which images are reduced; 321 takes twice the time and space, and finds "
                             "smaller things (default: what the backbone is best at; VGG-16: 224)")
    parser.add_argument("--jobs", type=command.count, default=os.cpu_count(), metavar="N",
                        help="images computed at the same time, each on one core and with 0.4 GB of memory, or 1 GB "
                             "with --engine caffe (default: all %(default)s cores)")
    command.add_cluster_option(parser.add_argument)
    command.add_engine_options(parser.add_argument)
    args = parser.parse_args(argv)
    args.out = args.out or FEATURES.with_name(args.blob)
    if args.gpu is not None:
        args.jobs = 1
    backbone = BACKBONES[args.backbone]
    args.size = backbone.size if args.size is None else args.size
    if args.blob not in backbone.blobs:
        parser.error(f"--blob {args.blob}: {backbone.name} has {', '.join(backbone.blobs)}")
    if args.size < 16:
        raise UserError(f"--size {args.size}: expected at least 16 pixels")
    if args.weights and not args.weights.is_file():
        raise UserError(f"{args.weights}: no such file; ccnn init-weights gets the weights")
    return args
