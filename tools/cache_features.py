#!/usr/bin/env python3
"""The same as `ccnn cache-features`: see ccnn/cli/cache_features.py."""
import _activate  # noqa: F401

from ccnn.cli.cache_features import main
from ccnn.cli.command import run

if __name__ == "__main__":
    run(main)
