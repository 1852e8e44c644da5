#!/usr/bin/env python3
"""The same as `ccnn studio`: see ccnn/cli/studio.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.studio import main

if __name__ == "__main__":
    run(main)
