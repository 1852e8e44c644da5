#!/usr/bin/env python3
"""Write the solver files beside this one, from the recipes of ccnn/nets/solvers.py.

    solvers/make_solvers.py
"""
import _activate  # noqa: F401

from ccnn._util.paths import ROOT
from ccnn.cli import command
from ccnn.nets.solvers import solver_texts


def main(argv=None):
    command.parser(__doc__).parse_args(argv)
    for name, text in solver_texts().items():
        (ROOT / f"solvers/{name}.prototxt").write_text(text)


if __name__ == "__main__":
    command.run(main)
