#!/usr/bin/env python3
"""The same as `ccnn guess-shares`: see ccnn/cli/guess_shares.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.guess_shares import main

if __name__ == "__main__":
    run(main)
