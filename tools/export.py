#!/usr/bin/env python3
"""The same as `ccnn export`: see ccnn/cli/export.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.export import main

if __name__ == "__main__":
    run(main)
