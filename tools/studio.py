#!/usr/bin/env python3
"""The studio: tag photographs in a browser, train, look at the masks, correct. studio/studio.py --help tells more."""
import os
import sys
from pathlib import Path

import _activate  # noqa: F401

if __name__ == "__main__":
    program = str(Path(__file__).resolve().parents[1] / "studio/studio.py")
    os.execv(sys.executable, [sys.executable, program, *sys.argv[1:]])
