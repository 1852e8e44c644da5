#!/usr/bin/env python3
"""The same as `ccnn show`: see ccnn/cli/show.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.show import main

if __name__ == "__main__":
    run(main)
