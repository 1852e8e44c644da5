#!/usr/bin/env python3
"""The same as `ccnn convert`: see ccnn/cli/convert.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.convert import main

if __name__ == "__main__":
    run(main)
