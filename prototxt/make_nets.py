#!/usr/bin/env python3
"""Write the nets beside this file, or those of a folder of your own photographs.

    prototxt/make_nets.py               # every net of the repository, from ccnn/nets.py
    prototxt/make_nets.py photos        # photos/train.prototxt and photos/deploy.prototxt, from its tags or boxes

The folder has images, classes.txt (one name per line), and either tags.csv (one line `image,tags` or
`image,tags,large` per image, with ; between tags) or Annotations (VOC's XML, one file per image). Its features are in
photos/features already: tools/cache_features.py photos --out photos/features
"""
import _activate  # noqa: F401

from ccnn import command
from ccnn.nets import nets, own_nets
from ccnn.paths import ROOT


def main(argv=None):
    parser = command.parser(__doc__)
    parser.add_argument("folder", nargs="?", help="of your own images (default: write the repository's nets)")
    args = parser.parse_args(argv)
    if args.folder:
        print(own_nets(args.folder))
        return
    for name, text in nets().items():
        (ROOT / f"prototxt/{name}.prototxt").write_text(text)


if __name__ == "__main__":
    command.run(main)
