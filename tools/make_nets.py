#!/usr/bin/env python3
"""The same as `ccnn make-nets`: see ccnn/cli/make_nets.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.make_nets import main

if __name__ == "__main__":
    run(main)
