"""Train with `caffe train`, and go on where an earlier run ended.

    ccnn train solvers/ccnn_tags.prototxt --weights data/vgg16_8s.caffemodel
    ccnn train solvers/head_tags.prototxt --set max_iter=3000
    ccnn train solvers/ccnn_tags.prototxt --weights data/vgg16_8s.caffemodel --split train    # VOC without SBD

The same command starts, and continues from the newest whole snapshot. A snapshot that a crash has cut off is passed
over, and the images go on in the order that an uninterrupted run would have seen. ^C leaves a snapshot; a loss that
is not a number ends the run without one. Caffe ends with this process, even if that is killed. Of two runs with the
same snapshot prefix, the second one is refused. Caffe's log is kept beside the snapshots; the trained model is printed.

The paths inside solvers and nets are relative to the current directory, as for `caffe train`; where the solver's net
is not found from there, to the repository.

Many processes, after `make mpi`; they share the images of every step, so iter_size must be a multiple of N:

    .caffe/mpi/bin/mpiexec -n 4 ccnn train solvers/head_tags.prototxt

The weights are those of one process, to float32, and a run may continue with another N. See docs/mpi.md.
"""
import contextlib
import io
import logging
import os
from pathlib import Path

from ccnn._util.errors import UserError
from ccnn._util.paths import ROOT
from ccnn.cli import command
from ccnn.inference.caffe_net import load_caffe
from ccnn.nets.caffe_files import read_solver
from ccnn.training.caffe_training import prepare
from ccnn.training.ranks import EndedElsewhere, fail_together, this_rank


def main(argv=None):
    rank, here = this_rank(), Path.cwd()
    if not rank.leads:
        return follow(argv, rank)
    try:
        training = find_training(parse_args(argv), rank)
    except (UserError, OSError) as error:
        fail_together(rank, error)
        raise
    command.say(training.beginning)
    try:
        stopped = training.run()
    except EndedElsewhere:
        return 2
    if stopped:
        command.say("stopped; the same command continues")
        return 130
    print(training.model.resolve() if Path.cwd() != here else training.model)
    return 0


def follow(argv, rank):
    """What every rank but 0 does: the same in silence. Its errors are told by rank 0, but for the death of Caffe."""
    logging.getLogger("ccnn").setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            args = parse_args(argv)
        training = find_training(args, rank)
    except (UserError, OSError) as error:
        fail_together(rank, error)
        return 2
    except KeyboardInterrupt:
        return 130
    try:
        return 130 if training.run() else 0
    except EndedElsewhere:
        return 2


def find_training(args, rank):
    """The training that the arguments ask for, checked."""
    load_caffe()
    solver = read_solver(args.solver, args.set)
    if not Path(solver.net).exists() and (ROOT / solver.net).exists():
        args.weights = args.weights and args.weights.resolve()
        os.chdir(ROOT)
        command.say(f"working in {ROOT}, where the paths of solver and net begin")
    return prepare(solver, args.weights, args.gpu, split=args.split, rank=rank)


def parse_args(argv):
    parser = command.parser(__doc__)
    parser.add_argument("solver", type=Path, help="a file of solvers/")
    parser.add_argument("--weights", type=Path, help="pre-trained .caffemodel to start from (ccnn init-weights)")
    parser.add_argument("--gpu", type=int, metavar="N", help="train on this GPU, if Caffe was built for one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="change a setting of the solver; may be repeated")
    parser.add_argument("--split", metavar="NAME", help="train on this list of images instead of the net's: `train` is "
                        "VOC's own 1,464 images, where SBD is missing; or the path of a file with one id per line")
    args = parser.parse_args(argv)
    if not args.solver.is_file():
        raise UserError(f"{args.solver}: no such file")
    if args.weights and not args.weights.is_file():
        raise UserError(f"{args.weights}: no such file; ccnn init-weights makes it")
    return args
