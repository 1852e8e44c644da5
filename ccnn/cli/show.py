"""Draw figures: predictions beside the truth, the course of a training, what the constraints did to an image.

    ccnn show panel tags=masks/tags size=masks/size --out panel.png
    ccnn show log snapshots/head_tags.log --out curves.png
    ccnn show constraints street.jpg --tags bus,person --large bus --out street.png

`ccnn show panel --help` and so on say more. Figures end in .png, .pdf or .svg.
"""
import argparse
import inspect
from pathlib import Path

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import warn_if_there
from ccnn._util.paths import VOC, named
from ccnn.annotations.tags import parse_large, parse_tags
from ccnn.cli import command
from ccnn.evaluation.mask_runs import parse_run
from ccnn.images.ids import read_split
from ccnn.images.labels import VOC_CLASSES, read_classes
from ccnn.images.reading import read_image
from ccnn.inference.predict import MODEL, find_model, load_model
from ccnn.training.caffe_log import read_log


def main(argv=None):
    args = parse_args(argv)
    from ccnn.evaluation.figures import save_figure, style  # matplotlib takes a second
    with style():
        figure = args.draw(args)
    warn_if_there(args.out)
    save_figure(figure, args.out)


def parse_args(argv):
    parser = command.parser(__doc__)
    commands = parser.add_subparsers(metavar="panel|log|constraints", required=True)

    def subcommand(draw):
        sub = commands.add_parser(draw.__name__, description=inspect.cleandoc(draw.__doc__),
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
        sub.set_defaults(draw=draw)
        sub.add_argument("--out", type=Path, required=True, metavar="PNG", help="the figure: .png, .pdf or .svg")
        return sub.add_argument

    add = subcommand(panel)
    add("runs", nargs="+", metavar="RUN", help="NAME=FOLDER[,FOLDER_WITH_CRF] of masks: one column each")
    add("--ids", metavar="A,B", help="the images (default: six, evenly spread over the split)")
    add("--voc", type=Path, default=VOC, metavar="DIR",
        help=f"VOC folder with images and truth (default: {named(VOC)})")
    add("--split", default="val", metavar="NAME", help="list in ImageSets/Segmentation, or a file (default: val)")
    add("--classes", type=Path, metavar="FILE", help="names of the labels, one per line (default: VOC's)")

    add = subcommand(log)
    add("logs", nargs="+", type=Path, metavar="LOG", help="what `caffe train` wrote to stderr; one colour each")

    add = subcommand(constraints)
    add("image", type=Path, help="a photograph")
    add("--tags", required=True, metavar="A,B", help="the classes in it")
    add("--large", metavar="A,B", help="those above a tenth of the image, if the model was trained with sizes "
        "('' if none is)")
    command.add_model_options(add)

    args = parser.parse_args(argv)
    command.check_suffix("--out", args.out, ".png", ".pdf", ".svg")
    if args.draw is constraints and args.model and (args.net or args.weights or args.classes or args.size):
        raise UserError("--model says it all: leave out --net, --weights, --classes and --size")
    return args


def panel(args):
    """Images, their true masks, and the masks of one or several runs, side by side.

    ccnn show panel tags=masks/tags "tags + size=masks/size,masks/size_crf" --out panel.png
    """
    from ccnn.evaluation.figures import draw_panel, read_panel
    runs = [parse_run(text) for text in args.runs]
    if any(run.origin for run in runs):
        raise UserError("a .json holds no masks; give their folder")
    if not args.voc.is_dir():
        raise UserError(f"--voc {args.voc}: no such folder; ccnn get-voc makes it")
    classes = read_classes(args.classes) if args.classes else VOC_CLASSES
    names = choose(read_split(args.voc, args.split), args.ids)
    columns = [(run.name + (" with CRF" if crf else ""), folder) for run in runs for crf, folder in run.folders.items()]
    rows = read_panel(args.voc, names, [folder for _, folder in columns], len(classes))
    return draw_panel(rows, [title for title, _ in columns], classes)


def choose(names, wanted, count=6):
    """The wanted ids, or `count` of all, evenly spread."""
    if wanted is None:
        return [names[i] for i in np.linspace(0, len(names) - 1, min(count, len(names))).astype(int)]
    wanted = [name for name in wanted.split(",") if name]
    unknown = [name for name in wanted if name not in names]
    if unknown or not wanted:
        raise UserError(f"--ids: {unknown[0] if unknown else 'nothing'} is not in the split")
    return wanted


def log(args):
    """Loss, violations, solver time and learning rate of a training, from Caffe's log.

    ccnn show log snapshots/head_tags.log snapshots/head_size.log --out curves.png

    Violation and time come from the constrained loss layer's second top, four numbers per image, and are missing
    in the logs of other losses. A loss that is NaN or infinite is marked in red. Where a training was resumed in
    one log, the iterations that it repeated are shown as it did them last.
    """
    from ccnn.evaluation.curves import draw_curves
    return draw_curves([(path.stem, read_log(path)) for path in args.logs])


def constraints(args):
    """What the constraints did to one image: the net's output q, the latent distribution p nearest to it that obeys
    them, and the labels' areas in both against their bounds.

    ccnn show constraints street.jpg --tags bus,person --large bus --out street.png
    ccnn show constraints cat.jpg --tags cat --model photos/model.ccnn --out cat.png

    The bounds are those that the model was trained with, as its file has them.
    """
    from ccnn.evaluation.explanation import draw_explanation, trained_constraints
    rgb = read_image(args.image)
    files = find_model(**command.model_options(args), cue=False)         # the cue is no part of the net
    present = parse_tags(args.tags, files.classes, "--tags")
    large = None if args.large is None else parse_large(args.large, present, files.classes, "--large")
    c = trained_constraints(files.settings, present, large, args.model or args.weights or MODEL)
    model = load_model(files)
    return draw_explanation(model.reduce(rgb), model.scores(rgb, args.image).values, c, files.classes)
