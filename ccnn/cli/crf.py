"""Sharpen saved probabilities with a dense CRF and write one label PNG per photograph.

    ccnn segment --probabilities --out coarse data/VOCdevkit/VOC2012/JPEGImages/2007_0000*.jpg
    ccnn crf --preset tuned --images data/VOCdevkit/VOC2012/JPEGImages --out sharp coarse/probabilities

`ccnn segment --crf` does both at once. This command tries several parameters on one run of the net, and takes
probabilities of other programs: .npz files with an array `probabilities`, L x height x width.

At the end it says which objects the CRF has removed, and of which the preset's bound (`keep`) kept a part.

The energy and its parameters are those of ccnn/crf/dense.py, which is also how to call it from Python.
"""
import os
from pathlib import Path

from ccnn._util.errors import UserError
from ccnn._util.progress import Progress
from ccnn._util.workers import in_processes
from ccnn.cli import command
from ccnn.cli.mask_report import print_report
from ccnn.crf.dense import PRESETS, load_preset
from ccnn.images.listing import pair_with_photographs
from ccnn.images.masks import Lost, checksum, save_mask, unfinished
from ccnn.inference.probabilities import names_of, refine


def main(argv=None):
    args = parse_args(argv)
    preset = load_preset(args.preset)
    settings = {"tool": "crf", "preset": preset._asdict()}
    photographs = dict(pair_with_photographs(args.probabilities, args.images))
    todo = unfinished([(path, args.out / f"{path.stem}.png") for path in photographs], settings, args.force)
    tasks = ((path, photographs[path], mask, preset, args.crf_engine, settings) for path, mask in todo)
    outcomes = Progress(in_processes(refine_file, tasks, args.jobs), total=len(todo), unit="image")
    return print_report(list(outcomes), args.out)


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("probabilities", nargs="+", type=Path, help=".npz files, or folders of them")
    add("--images", type=Path, required=True, metavar="DIR", help="the photographs, same names")
    add("--out", type=Path, required=True, metavar="DIR", help="where NAME.png goes")
    add("--preset", default="heads", metavar="P", help=f"{', '.join(PRESETS)}, or a file of ccnn tune-crf")
    add("--jobs", type=command.count, default=os.cpu_count(), metavar="N", help="processes (default: all cores)")
    command.add_crf_engine_option(add)
    add("--force", action="store_true", help="make masks again, and overwrite those made with different settings")
    return parser.parse_args(argv)


def refine_file(source, photograph, mask, preset, engine, settings):
    """Write one mask; return what was lost to the CRF, or one line on why there is no mask."""
    try:
        made_of = checksum(source)
        found, lost = refine(source, photograph, preset, engine)
        names = names_of(source)
        save_mask(mask, found, settings, names, made_of)
        return [Lost(mask, names[label] if names else f"label {label}", kept) for label, kept in lost.items()]
    except UserError as e:
        return str(e)
