#!/usr/bin/env python3
"""The same as `ccnn learn`: see ccnn/cli/learn.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.learn import main

if __name__ == "__main__":
    run(main)
