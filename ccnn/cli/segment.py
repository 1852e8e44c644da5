"""Segment photographs: one label PNG per photograph, in VOC's colours and at the photograph's size.

    ccnn segment --out masks street.jpg holiday/              # the model we ship
    ccnn segment --out masks --model photos/model.ccnn new_photos     # a model of ccnn learn
    ccnn segment --out masks --crf tuned "holiday/**/*.jpg"   # edges sharpened by a dense CRF
    ccnn segment --out masks --tags cat,person sofa.jpg       # nothing but these and background is there
    ccnn segment --out val --crf --only data/VOCdevkit/VOC2012/ImageSets/Segmentation/val.txt \\
        data/VOCdevkit/VOC2012/JPEGImages
    ccnn segment --out masks --cluster tcp://head:8786 archive/       # on many machines: docs/scale.md
    ccnn segment --out masks cat.jpg \\
        --net prototxt/deploy_8s.prototxt --weights snapshots/ccnn_tags_iter_60000.caffemodel

writes OUT/NAME.png, OUT/overlay/NAME.jpg (the photograph under its labels, long side at most 1280, with a legend) and,
if asked for, OUT/probabilities/NAME.npz. A mask carries the names of its classes, in the PNG's text `classes`.
Photographs of a folder keep their subfolders. A mask that another model or other settings made is not overwritten:
choose another OUT, or --force.

At the end it says which objects the CRF has removed, and of which the preset's bound (`keep`) kept a part.

Run the same command again after a stop: finished photographs are skipped. A photograph that cannot be read is named at
the end, and the exit status is then 1.

Photographs may be of any size: the net sees them with the long side reduced to --size, the CRF to 500 pixels, and the
labels are enlarged to the photograph strip by strip. Each of --jobs has a net of its own and takes 0.4 GB of memory at
--size 321 and 0.5 GB at --size 500 (with --engine caffe 1.1 and 2 GB), and up to 0.4 GB more for the CRF and for a
photograph of 20 megapixels.

From Python: ccnn.load_model("photos/model.ccnn").segment(rgb).
"""
import glob
import os
from pathlib import Path

from ccnn._util.cluster import connected
from ccnn._util.errors import UserError
from ccnn._util.files import remove_parts
from ccnn._util.progress import Progress
from ccnn.annotations.tags import tagged
from ccnn.cli import command
from ccnn.cli.mask_report import print_report
from ccnn.crf.dense import LONG_SIDE, PRESETS, load_preset
from ccnn.images.formats import READ
from ccnn.images.listing import find_photographs, skipped_sentence
from ccnn.images.masks import unfinished
from ccnn.inference.predict import SegmentOptions, find_model, mask_settings_of, segment_files
from ccnn.nets.cues import NONE

MODELS_OWN = "model"        # the preset that the model names


def main(argv=None):
    args = parse_args(argv)
    files = find_model(**command.model_options(args), cue=args.cue is None)
    preset = load_preset(files.crf if args.crf == MODELS_OWN else args.crf) if args.crf else None
    options = SegmentOptions(tagged(args.tags, files.classes), preset, args.ilp, args.mirror, args.crf_engine)
    photographs, skipped = find_photographs(args.photographs, args.only, args.out)
    if skipped:
        command.say(skipped_sentence(skipped))
    work = [(source, *outputs(args, name)) for source, name in photographs]
    remove_parts(args.out)
    todo = unfinished(work, mask_settings_of(files, options), args.force)
    with connected(args.cluster if todo else None, args.jobs) as jobs:
        outcomes = segment_files(todo, files, options, jobs, args.engine, args.gpu)
        return print_report(Progress(outcomes, total=len(todo), unit="image"), args.out)


def outputs(args, name):
    """The files to make of a photograph, the mask first."""
    yield args.out / f"{name}.png"
    if not args.no_overlay:
        yield args.out / f"overlay/{name}.jpg"
    if args.probabilities:
        yield args.out / f"probabilities/{name}.npz"


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("photographs", nargs="*", help=f"files, folders or quoted patterns: {READ}; HEIC if pillow-heif is installed")
    add("--out", type=Path, required=True, metavar="DIR", help="where the masks go")
    command.add_model_options(add)
    add("--crf", nargs="?", const=MODELS_OWN, metavar="PRESET",
        help=f"sharpen with a dense CRF: {', '.join(PRESETS)}, or a file of ccnn tune-crf (default: the one that "
             "the model names, else heads)")
    add("--cue", choices=(NONE,), help="do not use the model's cue, which finds salient objects (docs/cues.md)")
    add("--tags", metavar="A,B", help="the classes that are in the photographs, if known: no other will be found")
    add("--ilp", action="store_true",
        help="weigh each label by the net's own belief that it is in the photograph (for MIL-Base; paper, table 1)")
    add("--mirror", action="store_true",
        help="let the net see the mirror image, too, and take the mean: a little better, for twice the time")
    add("--only", type=Path, metavar="FILE", help="take only these names, one per line, without suffix: a VOC split")
    add("--probabilities", action="store_true",
        help=f"also write NAME.npz: `probabilities`, L x h x w float16, long side at most {LONG_SIDE}, and `classes`")
    add("--no-overlay", action="store_true", help="masks only")
    add("--jobs", type=command.count, metavar="N",
        help="photographs in work at the same time, each on one core (default: as many as there are cores; with --gpu "
             "1, because every job puts a net of its own there)")
    command.add_cluster_option(add)
    command.add_engine_options(add)
    command.add_crf_engine_option(add)
    add("--force", action="store_true", help="make masks again, and overwrite those made with different settings")
    args = parser.parse_args(argv)
    if args.out.exists() and not args.out.is_dir():
        raise UserError(f"--out {args.out}: is a file; name a folder for the masks")
    args.jobs = args.jobs or (os.cpu_count() if args.gpu is None else 1)
    if args.crf and args.crf not in (*PRESETS, MODELS_OWN) and not args.crf.endswith(".json") and \
            (Path(args.crf).exists() or glob.has_magic(args.crf)):      # `--crf cat.jpg`: a photograph, no preset
        args.photographs.insert(0, args.crf)
        args.crf = MODELS_OWN
    if not args.photographs:
        parser.error("give photographs: files, folders or patterns")
    return args
