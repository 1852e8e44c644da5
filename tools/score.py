#!/usr/bin/env python3
"""The same as `ccnn score`: see ccnn/cli/score.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.score import main

if __name__ == "__main__":
    run(main)
