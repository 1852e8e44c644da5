#!/usr/bin/env python3
"""All of VGG-16 learns, without fc6 and fc7: train the nets largefov_* with PyTorch, and score them.

    study/largefov.py tags size full em_adapt               # in this order; hours each. The same command continues
    study/largefov.py tags_held                             # from the weights of tags; p is found once per image
    study/largefov.py taught --masks output/masks           # from labels that another net gave, NAME.png per image
    study/largefov.py tags size full em_adapt --val         # then, once: VOC val
    study/largefov.py tags --split train --set max_iter=348 --out output/largefov_train   # VOC without SBD, 2 epochs

Every 20th image of the list is held out; choices are made on these. Needs PyTorch, VOC and SBD in data/, and VGG-16
(data/vgg16_conv.caffemodel, which is fetched). Everything goes to output/largefov.
"""
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.paths import ROOT
from ccnn.cli import command
from ccnn.images.ids import read_split
from ccnn.nets.backbones import VGG16
from ccnn.nets.caffe_files import read_solver
from ccnn.nets.prototxt import REDUCED, data_layer, large_field, loss_layer, titled, vgg16
from ccnn.nets.solvers import Solver, write

HELD = 20               # every so many images is held out

FOREVER = 1000          # visits of an image: more than it has


class Run(NamedTuple):
    system: str
    changes: dict = {}      # of the loss layer's settings
    start: str = ""         # another run, whose weights it begins with
    taught: bool = False    # by the masks of --masks


RUNS = {
    **{system: Run(system) for system in ("tags", "size", "boxes", "full", "em_adapt")},
    "size_10": Run("size", {"small_upper": 0.1}),           # as where the backbone is frozen
    "tags_held": Run("tags", {"hold": FOREVER}, start="tags"),
    "size_held": Run("size", {"hold": FOREVER}, start="size"),
    "taught": Run("full", taught=True),
}


def main(argv=None):
    args = parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    write_lists(args.root, args.split, args.out)
    for name in args.runs:
        weights = train(name, args)
        for split in ["held", *["val"] * args.val]:
            score(name, weights, split, args)


def write_lists(root, split, out):
    """train.txt and held.txt, which together are the list of training images."""
    ids = read_split(root, split)
    held = ids[::HELD]
    for name, listed in (("held", held), ("train", sorted(set(ids) - set(held)))):
        with whole_file(out / f"{name}.txt") as part:
            part.write_text("".join(f"{id}\n" for id in listed))


def train(name, args):
    """The weights of a run, trained as far as they were not yet."""
    run, net, solver = RUNS[name], args.out / f"{name}.prototxt", args.out / f"{name}.solver.prototxt"
    data = {**REDUCED, "root": str(args.root), "split": str((args.out / "train.txt").resolve()), "seed": args.seed}
    if run.taught:
        data["masks"] = str(args.masks.resolve())
    held = run.changes.get("hold", 1) > 1
    text = data_layer(run.system, data, held=held) + vgg16() + large_field() + loss_layer(run.system, **run.changes)
    written = write(name, Solver("largefov", f"largefov_{run.system}, without the images held out"), "", args.out,
                    "study/largefov.py").replace(f'net: "prototxt/{name}.prototxt"', f'net: "{net}"')
    for path, content in ((net, titled(name, text, "study/largefov.py")), (solver, written)):
        with whole_file(path) as part:
            part.write_text(content)
    start = args.out / f"{run.start}_iter_{read_solver(solver, args.set).max_iter}.caffemodel" if run.start else \
        VGG16.fetch_weights()
    if run.start and not start.exists():
        raise UserError(f"{start}: no such file; train {run.start} first")
    changes = [word for change in args.set for word in ("--set", change)]
    ccnn("train", solver, "--engine", "torch", "--precision", args.precision, "--weights", start, *changes,
         "--set", f"random_seed={args.seed}")
    return args.out / f"{name}_iter_{read_solver(solver, args.set).max_iter}.caffemodel"


def score(name, weights, split, args):
    """Masks of the images of a split, and their score beside them."""
    masks, listed = args.out / f"{split}_{name}", args.out / "held.txt"
    if split == "val":
        listed = args.root / "ImageSets/Segmentation/val.txt"
    ccnn("segment", "--net", ROOT / "prototxt/largefov_deploy.prototxt", "--weights", weights, "--out", masks,
         "--only", listed, "--no-overlay", args.root / "JPEGImages")
    result = args.out / f"{split}_{name}.json"
    result.unlink(missing_ok=True)
    ccnn("score", f"{name}={masks}", "--voc", args.root, "--split", listed.resolve(), "--out", result)
    command.say(f"{result}: {json.loads(result.read_text())['images']} images of {split}")


def ccnn(*words):
    """Run a command. ^C reaches it, too: it is waited for, because a training ends with a snapshot."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    done = subprocess.run([Path(sys.executable).with_name("ccnn"), *map(str, words)])
    signal.signal(signal.SIGINT, before)
    if done.returncode:
        sys.exit(done.returncode)           # it has said why


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("runs", nargs="+", choices=RUNS, metavar="RUN", help=f"one or more of {', '.join(RUNS)}")
    add("--root", type=Path, default=Path("data/VOCdevkit/VOC2012"), metavar="DIR", help="(default: %(default)s)")
    add("--split", default="train_aug", metavar="NAME", help="the list of training images (default: %(default)s)")
    add("--out", type=Path, default=Path("output/largefov"), metavar="DIR", help="(default: %(default)s)")
    add("--masks", type=Path, metavar="DIR", help="for the run `taught`")
    add("--precision", default="bf16", choices=("float32", "bf16"), help="(default: %(default)s)")
    add("--seed", type=int, default=1, help="(default: %(default)s)")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="of the solver, as for ccnn train")
    add("--val", action="store_true", help="score VOC val, too")
    args = parser.parse_args(argv)
    if any(RUNS[name].taught for name in args.runs) and not (args.masks and args.masks.is_dir()):
        raise UserError("the run `taught` needs --masks DIR, with NAME.png for every training image")
    return args


if __name__ == "__main__":
    command.run(main)
