#!/usr/bin/env python3
"""The same as `ccnn pack-model`: see ccnn/cli/pack_model.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.pack_model import main

if __name__ == "__main__":
    run(main)
