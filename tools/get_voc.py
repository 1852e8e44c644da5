#!/usr/bin/env python3
"""The same as `ccnn get-voc`: see ccnn/cli/get_voc.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.get_voc import main

if __name__ == "__main__":
    run(main)
