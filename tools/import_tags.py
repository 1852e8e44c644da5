#!/usr/bin/env python3
"""The same as `ccnn import-tags`: see ccnn/cli/import_tags.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.import_tags import main

if __name__ == "__main__":
    run(main)
