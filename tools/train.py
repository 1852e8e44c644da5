#!/usr/bin/env python3
"""Train with `caffe train`, and go on where an earlier run ended.

    tools/train.py solvers/ccnn_tags.prototxt --weights data/vgg16_8s.caffemodel
    tools/train.py solvers/head_tags.prototxt --set max_iter=3000
    tools/train.py solvers/ccnn_tags.prototxt --weights data/vgg16_8s.caffemodel --split train    # VOC without SBD

The same command starts, and continues from the newest whole snapshot. A snapshot that a crash has cut off is passed
over, and the images go on in the order that an uninterrupted run would have seen. ^C leaves a snapshot; a loss that
is not a number ends the run without one. Caffe ends with this process, even if that is killed. Of two runs with the
same snapshot prefix, the second one is refused. Caffe's log is kept beside the snapshots; the trained model is printed.

The paths inside solvers and nets are relative to the current directory, as for `caffe train`; where the solver's net
is not found from there, to the repository.
"""
import os
from pathlib import Path

import _activate  # noqa: F401

from ccnn import command
from ccnn.errors import UserError
from ccnn.net import load_caffe
from ccnn.paths import ROOT
from ccnn.proto import read_solver
from ccnn.training import prepare


def main(argv=None):
    args = parse_args(argv)
    load_caffe()
    solver = read_solver(args.solver, args.set)
    elsewhere = not Path(solver.net).exists() and (ROOT / solver.net).exists()
    if elsewhere:
        args.weights = args.weights and args.weights.resolve()
        os.chdir(ROOT)
        command.say(f"working in {ROOT}, where the paths of solver and net begin")
    training = prepare(solver, args.weights, args.gpu, split=args.split)
    command.say(training.beginning)
    if training.run():
        command.say("stopped; the same command continues")
        return 130
    print(training.model.resolve() if elsewhere else training.model)
    return 0


def parse_args(argv):
    parser = command.parser(__doc__)
    parser.add_argument("solver", type=Path, help="a file of solvers/")
    parser.add_argument("--weights", type=Path, help="pre-trained .caffemodel to start from (tools/init_weights.py)")
    parser.add_argument("--gpu", type=int, metavar="N", help="train on this GPU, if Caffe was built for one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="change a setting of the solver; may be repeated")
    parser.add_argument("--split", metavar="NAME", help="train on this list of images instead of the net's: `train` is "
                        "VOC's own 1,464 images, where SBD is missing; or the path of a file with one id per line")
    args = parser.parse_args(argv)
    if not args.solver.is_file():
        raise UserError(f"{args.solver}: no such file")
    if args.weights and not args.weights.is_file():
        raise UserError(f"{args.weights}: no such file; tools/init_weights.py makes it")
    return args


if __name__ == "__main__":
    command.run(main)
