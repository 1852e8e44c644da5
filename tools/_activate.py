"""Every tool imports this first: it goes on in the private runtime if this Python lacks the library.

So a tool works from any directory, and without `source .caffe/activate`.
"""
import os
import sys
from pathlib import Path

try:
    import ccnn  # noqa: F401
except ImportError as error:
    python = Path(__file__).resolve().parents[1] / ".caffe/bin/python"
    if not python.exists() or os.environ.get("CCNN_ACTIVATED"):        # the second: it has been tried, in vain
        print(f"{Path(sys.argv[0]).name}: error: {error}; run `make` first", file=sys.stderr)
        sys.exit(2)
    os.environ["CCNN_ACTIVATED"] = "1"
    os.execv(python, [str(python), *sys.argv])
