#!/usr/bin/env python3
"""The same as `ccnn train`: see ccnn/cli/train.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.train import main

if __name__ == "__main__":
    run(main)
