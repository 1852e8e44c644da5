"""Guess how much of every image is background, from the masks of a few, for the system `shares`.

    ccnn cache-features --split train_aug
    ccnn guess-shares --split train_aug --masks 100         # writes data/shares.csv
    caffe train -solver solvers/head_shares.prototxt

Tags do not say how large things are, and the paper's bounds on the background are the same for every image. This tool
measures the share of the background in --masks images, chosen at random, and guesses that of every image by ridge
regression on its features (ccnn/data/background_shares.py). The file has a line `image,share` for each.
You can also write it yourself.
"""
import random
from pathlib import Path

from ccnn._util.errors import UserError
from ccnn._util.paths import DATA, FEATURES, VOC, named
from ccnn.cli import command
from ccnn.data.background_shares import guess_shares
from ccnn.images.ids import read_split


def main(argv=None):
    args = parse_args(argv)
    names = read_split(args.root, args.split)
    if args.masks > len(names):
        raise UserError(f"--masks {args.masks}: {args.split} has only {len(names)} images")
    guess_shares(args.root, args.features, names, random.Random(args.seed).sample(names, args.masks), args.out)
    print(args.out)


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("root", nargs="?", type=Path, default=VOC, help=f"VOC folder (default: {named(VOC)})")
    add("--split", default="train_aug", help="the images (default: %(default)s)")
    add("--masks", type=command.count, default=100, metavar="N", help="images to measure (default: %(default)s)")
    add("--seed", type=int, default=1, help="which ones (default: %(default)s)")
    add("--features", type=Path, default=FEATURES, metavar="DIR", help=f"of all images (default: {named(FEATURES)})")
    add("--out", type=Path, default=DATA / "shares.csv", metavar="FILE",
        help=f"the table to write (default: {named(DATA / 'shares.csv')})")
    return parser.parse_args(argv)
