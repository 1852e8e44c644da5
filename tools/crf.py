#!/usr/bin/env python3
"""The same as `ccnn crf`: see ccnn/cli/crf.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.crf import main

if __name__ == "__main__":
    run(main)
