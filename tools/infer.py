#!/usr/bin/env python3
"""The same as `ccnn segment`: see ccnn/cli/segment.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.segment import main

if __name__ == "__main__":
    run(main)
