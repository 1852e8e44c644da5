"""What every command shares: its parser, its messages, its one-line errors, its exit status.

The library does not print. It logs, and run() shows that on stderr as `ccnn NAME: message`.
"""
import argparse
import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import Callable, NoReturn, Optional, Union

from ccnn._util.errors import SHOWN, Mistakes, UserError
from ccnn._util.paths import packages
from ccnn._util.settings import sizes_of
from ccnn._util.text import printable


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments, and where they are explained."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, printable(f"{self.prog}: error: {' '.join(message.split())}; {self.prog} --help explains\n"))


def parser(doc: Optional[str]) -> argparse.ArgumentParser:
    """A Parser whose --help opens with the tool's docstring, line breaks kept."""
    return Parser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def count(text: str) -> int:
    """An argparse type: a whole number, at least 1."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"need a whole number, at least 1; got {text!r}")
    return value


def port(text: str) -> int:
    """An argparse type: a port of this machine."""
    value = count(text)
    if value >= 1 << 16:
        raise argparse.ArgumentTypeError(f"need a port, at most 65535; got {text!r}")
    return value


def sizes(text: str) -> Union[int, list[int]]:
    """An argparse type: a long side in pixels that a net may see, or several with commas between them."""
    values = [count(part) for part in text.split(",")]
    size = values if values[1:] else values[0]
    try:
        sizes_of(size)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return size


def add_model_options(add: Callable) -> None:
    """The options that name a model; ccnn.inference.predict.find_model(**model_options(args)) takes them."""
    add("--model", type=Path, metavar="NAME.ccnn", help="a model: photos/model.ccnn of ccnn learn, or a file of "
        "models/ (default: models/head_size.ccnn, which knows VOC's 20 classes)")
    add("--net", type=Path, help="instead of --model, with --weights: a deploy net with input `data` and scores `fc8`")
    add("--weights", type=Path, help="its weights, or head-only weights: VGG-16 then supplies the backbone")
    add("--classes", metavar="FILE", help="with --net: class names, one per line (default: those of WEIGHTS.json or "
        "NET.json, else VOC's)")
    add("--size", type=sizes, metavar="PIXELS[,PIXELS]", help="long side that the net sees; of several, it sees each, "
        "and the mean counts (default: that of its training if the model, WEIGHTS.json or NET.json says, else 500)")


def add_engine_options(add: Callable) -> None:
    """--engine and --gpu, which ccnn.inference.predict and ccnn.training.features take."""
    from ccnn.inference.engines import ENGINES
    add("--engine", choices=("auto", *ENGINES), default="auto",
        help="what runs the net: kernels, our own convolutions with ONNX Runtime for the rest; onnx, ONNX Runtime "
             "alone; or caffe. They agree to 1e-4 of the scores; kernels takes the least time and memory (default: "
             "auto, the first of these that is installed and knows the net's layers; with --gpu, caffe)")
    add("--gpu", type=int, metavar="N", help="run the net on this GPU, with a Caffe that has one (default: on the CPU)")


def add_backbone_option(parser: argparse.ArgumentParser) -> None:
    """--backbone, as soon as there is a choice."""
    from ccnn.nets.backbones import BACKBONES, DEFAULT
    parser.set_defaults(backbone=DEFAULT.name)
    if len(BACKBONES) > 1:
        parser.add_argument("--backbone", choices=[*BACKBONES], default=DEFAULT.name,
                            help="the net below the classifier (default: %(default)s)")


def add_crf_engine_option(add: Callable) -> None:
    """--crf-engine, which ccnn.crf.sharpen takes as its engine."""
    from ccnn.crf import ENGINES
    add("--crf-engine", choices=tuple(ENGINES), default="ccnn",
        help="what computes the CRF: our own code, or pydensecrf, the reference, which needs the package pydensecrf2; "
             "more than 99.9 %% of the labels are the same (default: %(default)s)")


def add_cluster_option(add: Callable) -> None:
    """--cluster, which ccnn._util.cluster.connected(args.cluster, args.jobs) takes."""
    add("--cluster", metavar="WHERE", help="spread the work over a Dask cluster: local (--jobs processes of this "
        "machine, started again when they end), tcp://HOST:PORT, tls://HOST:PORT, or a scheduler's file; needs "
        "the extra `cluster`, or in a clone with Caffe `make cluster` (docs/scale.md)")


def model_options(args: argparse.Namespace) -> dict:
    return {name: getattr(args, name) for name in ("model", "net", "weights", "classes", "size")}


def need_server() -> None:
    """UserError unless the packages of the HTTP server are there, which the studio and ccnn serve need."""
    for name in ("starlette", "uvicorn"):
        if not importlib.util.find_spec(name):
            raise UserError(f"No module named {name!r}; get it with: {packages(make='studio')}")


def check_suffix(option: str, path: Path, *suffixes: str) -> None:
    """UserError unless the file that an option names ends in one of the suffixes."""
    if not path.name.endswith(suffixes):
        raise UserError(f"{option} {path}: need a name that ends in {', '.join(suffixes[:-1])} or {suffixes[-1]}")


def run(main: Callable[[], Optional[int]]) -> NoReturn:
    """Call main() and leave: status 0 or what it returns, 2 after a one-line error, 130 after ^C."""
    show_messages()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        fail("stopped", 130)
    except BrokenPipeError:              # `tool | head`: the reader has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  stays open until the end
        sys.exit(0)
    except MemoryError as e:
        fail(f"out of memory ({e or 'no details'}); use a smaller size or fewer jobs", 2)
    except OSError as e:
        fail(f"{e.filename}: {e.strerror}" if e.filename and e.strerror else e, 2)
    except Mistakes as e:
        if e.lines[1:]:
            fail_with_lines(e)
        fail(e, 2)
    except UserError as e:
        fail(e, 2)
    except ModuleNotFoundError as e:
        fail(f"{e}; get it with: {packages('figures' if e.name == 'matplotlib' else 'photos')}", 2)


def show_messages() -> None:
    """Show what the library logs, one line per message."""
    messages = logging.getLogger("ccnn")
    if not messages.handlers:
        messages.addHandler(AboveBars())
        messages.setLevel(logging.INFO)


class AboveBars(logging.Handler):
    """Writes to stderr, above the progress bars that are shown there."""

    def emit(self, record):
        from tqdm import tqdm
        tqdm.write(printable(f"{tool()}: {' '.join(record.getMessage().split())}"), file=sys.stderr)


def say(message: str) -> None:
    """Show a message of the command itself, as those of the library are shown."""
    logging.getLogger("ccnn").info("%s", message)


def fail(message: object, status: int) -> NoReturn:
    print(printable(f"{tool()}: error: {' '.join(str(message).split())}"), file=sys.stderr)
    sys.exit(status)


def fail_with_lines(mistakes: Mistakes) -> NoReturn:
    """Each mistake on a line of its own, after a line that counts them."""
    path, given = mistakes.given
    print(printable(f"{tool()}: error: {path}: {len(given)} mistakes"), file=sys.stderr)
    for place, text in given[:SHOWN]:
        print(printable(f"  {place + ': ' if place else ''}{' '.join(str(text).split())}"), file=sys.stderr)
    if given[SHOWN:]:
        print(f"  and {len(given) - SHOWN} more", file=sys.stderr)
    sys.exit(2)


def tool() -> str:
    """The name under which the command was called."""
    return Path(sys.argv[0]).name
