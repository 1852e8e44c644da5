"""What every command shares: its parser, its one-line errors, its exit status."""
import argparse
import os
import sys
from pathlib import Path

from ccnn.errors import UserError


def parser(doc):
    """An ArgumentParser whose --help opens with the tool's docstring, line breaks kept."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def count(text):
    """An argparse type: a whole number, at least 1."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"need a whole number, at least 1; got {text!r}")
    return value


def run(main):
    """Call main() and leave: status 0 or what it returns, 2 after a one-line error, 130 after ^C."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        fail("stopped", 130)
    except BrokenPipeError:              # `tool | head`: the reader has seen enough
        sys.stdout = open(os.devnull, "w")
        sys.exit(0)
    except MemoryError as e:
        fail(f"out of memory ({e or 'no details'}); use a smaller size or fewer jobs", 2)
    except OSError as e:
        fail(f"{e.filename}: {e.strerror}" if e.filename and e.strerror else e, 2)
    except UserError as e:
        fail(e, 2)
    except ModuleNotFoundError as e:     # of a Caffe of one's own, whose Python need not have all
        fail(f"{e}; get it with: {sys.executable} -m pip install -r requirements.txt", 2)


def fail(message, status):
    print(f"{Path(sys.argv[0]).name}: error: {' '.join(str(message).split())}", file=sys.stderr)
    sys.exit(status)
