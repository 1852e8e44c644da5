"""Score predicted masks on PASCAL VOC as the paper does, beside other runs and the paper's own rows.

    ccnn segment --out masks --only data/VOCdevkit/VOC2012/ImageSets/Segmentation/val.txt \\
        data/VOCdevkit/VOC2012/JPEGImages               # makes masks/ID.png for every id of VOC's val list
    ccnn score masks
    ccnn score masks --paper --out scores.md --out scores.json --confusion confusion.png
    ccnn score "tags=tags,tags_crf" "size=size,size_crf" --paper    # four folders of masks, two lines
    ccnn score masks earlier.json                                   # beside what --out stored earlier
    ccnn score test --split test --server results.tgz               # archive for VOC's test server

A RUN is a folder of masks, NAME=FOLDER, NAME=FOLDER,FOLDER_WITH_CRF (or NAME=,FOLDER_WITH_CRF), or a .json
that --out wrote.

    IoU(l) = C[l,l] / (sum_m C[l,m] + sum_m C[m,l] - C[l,l]),     C[true label, predicted label] in pixels

with one C over all images; void pixels (255) do not count. mIoU is the mean over the labels that occur in the truth
or in the predictions: a label that occurs in neither has no IoU and is left out of the mean.
Accuracy is the share of all pixels that are right; mean accuracy the mean of that share over the true labels.
"""
from pathlib import Path

from ccnn._util.errors import UserError
from ccnn._util.files import warn_if_there, whole_file
from ccnn._util.paths import VOC, named
from ccnn._util.text import plural
from ccnn.cli import command
from ccnn.evaluation.mask_runs import parse_run, result_text, score_runs
from ccnn.evaluation.tables import markdown_table, paper_rows, score_tables, text_table
from ccnn.evaluation.voc_server import pack
from ccnn.images.ids import read_split, truth_paths
from ccnn.images.labels import VOC_CLASSES, read_classes


def main(argv=None):
    args = parse_args(argv)
    names = read_split(args.voc, args.split)
    if args.server:
        check_test_images(args.voc, names, args.split)
        warn_if_there(args.server)
        pack(args.server, *args.runs[0].folders.values(), args.voc, names, len(args.labels))
        print(f"{args.server}: {plural(len(names), 'mask')} of {args.split} for comp6, ready for the server")
        return
    split = Path(args.split).stem
    scores = score_runs(args.runs, truth_paths(args.voc, names), split, args.labels)
    if args.paper:
        scores += [score._replace(name=f"paper: {score.name}") for score in paper_rows()]
    print(f"{plural(len(names), 'image')} of {split}; percent\n\n" + score_tables(scores, args.labels, text_table))
    for path in args.out:
        warn_if_there(path)
        with whole_file(path) as part:
            part.write_text(result_text(scores, split, len(names), args.labels) if path.suffix == ".json" else
                            score_tables(scores, args.labels, markdown_table if path.suffix == ".md" else text_table))
    if args.confusion:
        from ccnn.evaluation.figures import draw_confusions, save_figure
        warn_if_there(args.confusion)
        save_figure(draw_confusions([score for score in scores if score.confusion], args.labels), args.confusion, 120)


def check_test_images(voc, names, split):
    """UserError for images of train and val: the server scores those of the test set, whose masks nobody else has."""
    known = [name for name in names if (voc / f"SegmentationClass/{name}.png").exists()]
    if known:
        raise UserError(f"--split {split}: {known[0]} has a true mask in {voc / 'SegmentationClass'}, so it is not of "
                        "VOC's test set; pack the masks of its images with --split test")


def parse_args(argv):
    parser = command.parser(__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="FOLDER, NAME=FOLDER[,FOLDER_WITH_CRF] or RESULT.json")
    parser.add_argument("--voc", type=Path, default=VOC, metavar="DIR",
                        help=f"VOC folder with the truth (default: {named(VOC)})")
    parser.add_argument("--split", default="val", metavar="NAME",
                        help="list in ImageSets/Segmentation, or the path of a list file (default: val)")
    parser.add_argument("--classes", type=Path, metavar="FILE",
                        help="names of the labels, one per line (default: VOC's)")
    parser.add_argument("--paper", action="store_true", help="add the paper's rows to the tables")
    parser.add_argument("--out", type=Path, action="append", default=[], metavar="FILE",
                        help="also write the tables here: .txt, .md or .json; may be repeated")
    parser.add_argument("--confusion", type=Path, metavar="PNG", help="draw the confusion matrices")
    parser.add_argument("--server", type=Path, metavar="TAR",
                        help="write the archive for VOC's test server (.tar, .tar.gz or .tgz) instead of scoring")
    args = parser.parse_args(argv)
    if args.paper and args.classes:
        raise UserError("--paper has VOC's classes: leave out --classes")
    args.labels = list(read_classes(args.classes) if args.classes else VOC_CLASSES)
    if not args.voc.is_dir():
        raise UserError(f"--voc {args.voc}: no such folder; ccnn get-voc makes it")
    for path in args.out:
        command.check_suffix("--out", path, ".txt", ".md", ".json")
    if args.confusion:
        command.check_suffix("--confusion", args.confusion, ".png", ".pdf", ".svg")
    args.runs = [parse_run(text) for text in args.runs]
    if args.server:
        command.check_suffix("--server", args.server, ".tar", ".tar.gz", ".tgz")
        if len(args.runs) != 1 or len(args.runs[0].folders) != 1:
            raise UserError("--server packs one folder of masks: give one RUN")
    return args
