#!/usr/bin/env python3
"""Train with `caffe train`, and go on where an earlier run ended.

    tools/train.py solvers/ccnn_tags.prototxt --weights data/vgg16_8s.caffemodel
    tools/train.py solvers/head_tags.prototxt --set max_iter=3000

The same command starts, and continues from the newest whole snapshot: one that a crash has cut off is passed
over, and the images go on in the order an uninterrupted run would have seen. ^C leaves a snapshot; a loss that
is not a number ends the run without one. Caffe's log is kept beside the snapshots; the trained model is printed.
"""
from pathlib import Path

import _activate  # noqa: F401

from ccnn import command
from ccnn.errors import UserError
from ccnn.net import load_caffe, read_net
from ccnn.training import Training, check_space, check_weights, newest_snapshot, open_samples, read_solver, say
from ccnn.weights import convolutions


def main(argv=None):
    parser = command.parser(__doc__)
    parser.add_argument("solver", type=Path, help="a file of solvers/")
    parser.add_argument("--weights", type=Path, help="pre-trained .caffemodel to start from (tools/init_weights.py)")
    parser.add_argument("--gpu", type=int, metavar="N", help="train on this GPU, if Caffe was built for one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting of the file")
    args = parser.parse_args(argv)
    for path in (args.solver, args.weights):
        if path and not path.is_file():
            raise UserError(f"{path}: no such file" + "; tools/init_weights.py makes it" * (path == args.weights))
    load_caffe()

    solver = read_solver(args.solver, args.set)
    shapes = convolutions(solver.net)
    samples = open_samples(read_net(solver.net))
    Path(solver.snapshot_prefix).parent.mkdir(parents=True, exist_ok=True)
    start, snapshot = newest_snapshot(solver, shapes)
    model = f"{solver.snapshot_prefix}_iter_{solver.max_iter}.caffemodel"
    if start >= solver.max_iter:
        say(f"{solver.snapshot_prefix}: trained already ({start} iterations); remove its snapshots to begin again")
        print(model)
        return 0
    check_space(solver, shapes, start)

    if snapshot:
        options = ["-snapshot", str(snapshot)]
        say(f"continuing from {snapshot}" + ("; --weights were for the beginning" if args.weights else ""))
    elif args.weights:
        random = check_weights(args.weights, shapes)
        options = ["-weights", str(args.weights)]
        say(f"starting from {args.weights}" + (f"; {', '.join(random)} start at random" if random else ""))
    else:
        options = []
        say("starting at random")
    if args.gpu is not None:
        options += ["-gpu", str(args.gpu)]
    if Training(solver, start, samples).run(options):
        say("stopped; the same command continues")
        return 130
    print(model)
    return 0


if __name__ == "__main__":
    command.run(main)
