#!/usr/bin/env python3
"""The same as `ccnn tune-crf`: see ccnn/cli/tune_crf.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.tune_crf import main

if __name__ == "__main__":
    run(main)
