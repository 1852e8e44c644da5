#!/usr/bin/env python3
"""Write every net of the repository, from ccnn/nets/prototxt.py, beside this file, and what a net cannot tell.

    prototxt/make_nets.py
"""
import json

import _activate  # noqa: F401

from ccnn._util.paths import ROOT
from ccnn.cli import command
from ccnn.nets.prototxt import ABOUT, nets


def main(argv=None):
    command.parser(__doc__).parse_args(argv)
    for name, text in nets().items():
        (ROOT / f"prototxt/{name}.prototxt").write_text(text)
    for name, about in ABOUT.items():
        (ROOT / f"prototxt/{name}.json").write_text(json.dumps(about) + "\n")


if __name__ == "__main__":
    command.run(main)
