"""Every tool imports this first: if its Python lacks the library or Caffe, it goes on in the private runtime.

So a tool works from any directory, with any Python 3, and without `source .caffe/activate`. A Python that has the
library and PyTorch stays: PyTorch and Caffe never share one.
"""
import importlib.util
import os
import sys
from pathlib import Path

try:
    import ccnn  # noqa: F401
    missing = None if importlib.util.find_spec("caffe") or importlib.util.find_spec("torch") else "caffe"
    error = None
except ImportError as e:
    missing, error = "ccnn", e

if missing:
    python = Path(__file__).resolve().parents[1] / ".caffe/bin/python"
    if python.exists() and not os.environ.get("CCNN_ACTIVATED"):        # else it was tried, in vain
        os.environ["CCNN_ACTIVATED"] = "1"
        os.execv(python, [str(python), *sys.argv])
    if error:                                                           # some programs need no Caffe, all the library
        print(f"{Path(sys.argv[0]).name}: error: {error}; run `make` first", file=sys.stderr)
        sys.exit(2)
