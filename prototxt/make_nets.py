#!/usr/bin/env python3
"""Write the nets beside this file, or those of a folder of your own photographs.

    prototxt/make_nets.py               # every net of the repository, from ccnn/nets.py
    prototxt/make_nets.py photos        # photos/train.prototxt and photos/deploy.prototxt, from its tags or boxes
"""
from ccnn import command
from ccnn.nets import nets, own_nets
from ccnn.paths import ROOT


def main(argv=None):
    parser = command.parser(__doc__)
    parser.add_argument("folder", nargs="?", help="of your own images (default: write the repository's nets)")
    args = parser.parse_args(argv)
    if args.folder:
        return own_nets(args.folder)
    for name, text in nets().items():
        (ROOT / f"prototxt/{name}.prototxt").write_text(text)


if __name__ == "__main__":
    command.run(main)
