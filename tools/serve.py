#!/usr/bin/env python3
"""The same as `ccnn serve`: see ccnn/cli/serve.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.serve import main

if __name__ == "__main__":
    run(main)
