#!/usr/bin/env python3
"""The same as `ccnn init-weights`: see ccnn/cli/init_weights.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.init_weights import main

if __name__ == "__main__":
    run(main)
