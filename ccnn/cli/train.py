"""Train with Caffe or with PyTorch, and resume earlier runs.

    ccnn train solvers/ccnn_tags.prototxt --weights data/vgg16_8s.caffemodel
    ccnn train solvers/head_tags.prototxt --set max_iter=3000
    ccnn train solvers/ccnn_tags.prototxt --weights data/vgg16_8s.caffemodel --split train    # VOC without SBD
    ccnn train solvers/ccnn_tags.prototxt --weights data/vgg16_8s.caffemodel --engine torch    # on a GPU if possible

The same command starts, and continues from the newest whole snapshot. A snapshot that a crash has cut off is passed
over, and the images go on in the order that an uninterrupted run would have seen. ^C leaves a snapshot; a loss that
is not a number ends the run without one. Of two runs with the same snapshot prefix, the second one is refused. Caffe's
log is kept beside the snapshots; the trained model is printed. Caffe ends with this process, even if that is killed.

The engines read and write the same files: what one has begun the other can continue. After the same steps the weights
are the same to float32, but for the random numbers of the first weights and of dropout.

The paths inside solvers and nets are relative to the current directory, as for `caffe train`; where the solver's net
is not found from there, to the repository.

Many processes, with PyTorch; they share the images of every step, so iter_size must be a multiple of N:

    torchrun --nproc-per-node N -m ccnn train solvers/head_tags.prototxt --engine torch

The weights are those of one process, to float32, and a run may continue with another N. See docs/scale.md.
"""
import contextlib
import io
import logging
import os
import time
from functools import partial
from pathlib import Path

from ccnn._util.errors import UserError
from ccnn._util.paths import CLONE, ROOT
from ccnn.cli import command
from ccnn.inference.caffe_net import load_caffe
from ccnn.nets.caffe_files import read_solver
from ccnn.training import caffe_training

PATIENCE = 3        # seconds for process 0 to report what is wrong: when one process ends, torchrun ends the others


def main(argv=None):
    here = Path.cwd()
    if int(os.environ.get("RANK", 0)) == 0:         # torchrun numbers its processes
        prepare = find_training(parse_args(argv))
    else:
        prepare = follow(argv)
    training = prepare()
    command.say(training.beginning)
    if training.run():
        command.say("stopped; the same command continues")
        return 130
    if "RANK" not in os.environ or os.environ["RANK"] == "0":
        print(training.model.resolve() if Path.cwd() != here else training.model)
    return 0


def follow(argv):
    """The same without messages: process 0 reports what is wrong with the arguments."""
    logging.getLogger("ccnn").setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return find_training(parse_args(argv))
    except (UserError, OSError, SystemExit):
        time.sleep(PATIENCE)
        raise SystemExit(2) from None


def find_training(args):
    """A function that prepares the training described by the arguments."""
    engine = load_torch() if args.engine == "torch" else load_caffe() and None
    solver = read_solver(args.solver, args.set)
    if CLONE and not Path(solver.net).exists() and (ROOT / solver.net).exists():
        args.weights = args.weights and args.weights.resolve()
        os.chdir(ROOT)
        command.say(f"working in {ROOT}, where the paths of solver and net begin")
    if engine:
        return partial(engine.prepare, solver, args.weights, args.split, args.device or "auto",
                       args.precision or "float32", bool(args.deterministic))
    return partial(caffe_training.prepare, solver, args.weights, args.gpu, split=args.split)


def load_torch():
    """The trainer of PyTorch."""
    try:
        from ccnn.training.torch_engine import training
    except ImportError as error:
        raise UserError(f"--engine torch needs PyTorch ({error}); install it, for example with: pip install torch") \
            from None
    return training


def parse_args(argv):
    parser = command.parser(__doc__)
    parser.add_argument("solver", type=Path, help="a file of solvers/")
    parser.add_argument("--weights", type=Path, help="pre-trained .caffemodel to start from (ccnn init-weights)")
    parser.add_argument("--engine", choices=("caffe", "torch"), default="caffe",
                        help="what computes: Caffe (default), or PyTorch, with the same files")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), help="where PyTorch computes (default: a "
                        "GPU if it finds one)")
    parser.add_argument("--precision", choices=("float32", "bf16"), help="of PyTorch's convolutions (default: float32)")
    parser.add_argument("--deterministic", action="store_true", default=None, help="PyTorch uses algorithms that give "
                        "the same weights every time, which are slower on a GPU")
    parser.add_argument("--gpu", type=int, metavar="N", help="train on this GPU, if Caffe was built for one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="change a setting of the solver; may be repeated")
    parser.add_argument("--split", metavar="NAME", help="train on this list of images instead of the net's: `train` is "
                        "VOC's own 1,464 images, where SBD is missing; or the path of a file with one id per line")
    args = parser.parse_args(argv)
    for name in ("device", "precision", "deterministic") if args.engine == "caffe" else ("gpu",):
        if getattr(args, name) is not None:
            raise UserError(f"--{name}: is for the other engine, not for --engine {args.engine}")
    if not args.solver.is_file():
        raise UserError(f"{args.solver}: {'is not a file' if args.solver.exists() else 'no such file'}")
    if args.weights and not args.weights.is_file():
        raise UserError(f"{args.weights}: no such file; ccnn init-weights makes it")
    return args
