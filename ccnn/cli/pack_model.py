"""Make one file of a model: its net, its weights, its class names, its input size.

    ccnn pack-model --out my.ccnn --weights snapshots/head_size_iter_5290.caffemodel
    ccnn pack-model --out my.ccnn --net prototxt/deploy_8s.prototxt \\
        --weights snapshots/ccnn_tags_iter_60000.caffemodel --classes classes.txt --size 321

Any result of `caffe train` will do; only what the deploy net needs is kept. If WEIGHTS holds a head alone, the
backbone's weights stay outside, and the model remembers their checksum. WEIGHTS.json may say more: supervision, bounds
and crf (what it was trained with, and the preset that suits it), cue (name, exponent, surfaces), system, data,
settings, seed, commands, score.
"""
from pathlib import Path

from ccnn._util.errors import UserError
from ccnn._util.files import warn_if_there
from ccnn._util.paths import named
from ccnn.cli import command
from ccnn.crf.dense import LONG_SIDE
from ccnn.images.labels import VOC_CLASSES, read_classes
from ccnn.inference.model_file import read_model, write_model
from ccnn.inference.predict import NET, read_about


def main(argv=None):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="NAME.ccnn", help="the file to write")
    add("--net", type=Path, default=NET,
        help=f"deploy net with input `data` and scores `fc8` (default: {named(NET)})")
    add("--weights", type=Path, required=True, help="a .caffemodel")
    add("--classes", type=Path, metavar="FILE",
        help="class names, one per line (default: those of WEIGHTS.json or NET.json, else VOC's)")
    add("--size", type=command.count, metavar="PIXELS",
        help=f"long side that the net saw in training (default: that of WEIGHTS.json or NET.json, else {LONG_SIDE})")
    args = parser.parse_args(argv)
    if args.out.suffix != ".ccnn":
        raise UserError(f"--out {args.out}: a model's name ends in .ccnn")
    if args.size and not 32 <= args.size <= 2000:
        parser.error(f"--size must be 32..2000 pixels, got {args.size}")
    about = read_about(args.net, args.weights)
    classes = read_classes(args.classes) if args.classes else about.get("classes", VOC_CLASSES)
    size = args.size or about.get("size", LONG_SIDE)
    settings, training = ({key: about[key] for key in keys if key in about} for keys in (
        ("supervision", "bounds", "crf", "cue"), ("system", "data", "settings", "seed", "commands")))
    warn_if_there(args.out)
    write_model(args.out, args.net, args.weights, classes, size, settings, training, about.get("score"))
    backbone = read_model(args.out).trunk
    kept = f"the weights of a head; {backbone['name']}'s stay outside" if backbone else "all weights"
    print(f"{args.out}: {len(classes) - 1} classes, images of {size} pixels, {kept}")
