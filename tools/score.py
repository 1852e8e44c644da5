#!/usr/bin/env python3
"""Score predicted masks on PASCAL VOC as the paper does, beside other runs and the paper's own rows.

    tools/infer.py --out masks --only data/VOCdevkit/VOC2012/ImageSets/Segmentation/val.txt \\
        data/VOCdevkit/VOC2012/JPEGImages               # makes masks/ID.png for every id of VOC's val list
    tools/score.py masks
    tools/score.py masks --paper --out scores.md --out scores.json --confusion confusion.png
    tools/score.py "tags=tags,tags_crf" "size=size,size_crf" --paper    # four folders of masks, two lines
    tools/score.py masks earlier.json                                   # beside what --out stored earlier
    tools/score.py test --split test --server results.tgz               # archive for VOC's test server

A RUN is a folder of masks, NAME=FOLDER, NAME=FOLDER,FOLDER_WITH_CRF (or NAME=,FOLDER_WITH_CRF), or a .json
that --out wrote.

    IoU(l) = C[l,l] / (sum_m C[l,m] + sum_m C[m,l] - C[l,l]),     C[true label, predicted label] in pixels

with one C over all images; void pixels (255) do not count. mIoU is the mean over the labels that occur in
the truth or in the predictions: a label that occurs in neither has no IoU and is left out of the mean.
Accuracy is the share of all pixels that are right; mean accuracy the mean of that share over the true labels.
"""
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple, Optional

import cli
import numpy as np
from cli import UserError
from images import VOC_CLASSES, VOID, indexed, read_classes, read_image, read_mask
from tqdm import tqdm

SHORT = dict(zip(VOC_CLASSES, (         # the paper's columns, in its order: VOC's
    "bgnd", "aero", "bike", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "table", "dog", "horse",
    "mbike", "person", "plant", "sheep", "sofa", "train", "tv")))


class Row(NamedTuple):
    """One line of the tables; numbers in percent, None where there is none."""
    name: str
    split: str                          # val, test, ...
    crf: bool
    miou: float
    iou: list                           # one entry a class, or empty
    overall: Optional[float] = None     # share of all pixels that are right
    mean: Optional[float] = None        # mean over the true labels of the share of their pixels that is right
    confusion: Optional[list] = None


# What the paper reports: Table 1, Table 2 and the text on boxes (val), Table 3 (test, where the paper leaves the
# background's column out). Method | set | with CRF | mIoU, and below it the IoU of every class.
PAPER = """
MIL-FCN                 | val  | no  | 24.9
MIL-Base                | val  | no  | 17.8
    37.0 10.4 12.4 10.8  5.3  5.7 25.2 21.1 25.2  4.8 21.5  8.6 29.1 25.1 23.6 25.5 12.0 28.4  8.9 22.0 11.6
MIL-Base, ILP           | val  | no  | 32.6
    73.2 25.4 18.2 22.7 21.5 28.6 39.5 44.7 46.6 11.9 40.4 11.8 45.6 40.1 35.5 35.2 20.8 41.7 17.0 34.7 30.4
EM-Adapt tags           | val  | no  | 32.0
    65.3 28.2 16.9 27.4 21.1 28.1 45.4 40.5 42.3 13.2 32.1 23.3 38.7 32.0 39.9 31.3 22.7 34.2 22.8 37.0 30.0
EM-Adapt tags           | val  | yes | 33.8
    67.2 29.2 17.6 28.6 22.2 29.6 47.0 44.0 44.2 14.6 35.1 24.9 41.0 34.8 41.6 32.1 24.8 37.4 24.0 38.1 31.6
CCNN tags               | val  | no  | 33.3
    66.3 24.6 17.2 24.3 19.5 34.4 45.6 44.3 44.7 14.4 33.8 21.4 40.8 31.6 42.8 39.1 28.8 33.2 21.5 37.4 34.4
CCNN tags               | val  | yes | 35.3
    68.5 25.5 18.0 25.4 20.2 36.3 46.8 47.1 48.0 15.8 37.9 21.0 44.5 34.5 46.2 40.7 30.4 36.3 22.2 38.8 36.9
EM-Adapt crops          | val  | no  | 34.3
EM-Adapt crops          | val  | yes | 36.0
CCNN crops              | val  | no  | 34.4
CCNN crops              | val  | yes | 36.4
CCNN size               | val  | no  | 40.5
CCNN size               | val  | yes | 42.4
CCNN boxes (CRF unsaid) | val  | no  | 54.0
SDS, full               | test | no  | 51.6
       - 63.3 25.7 63.0 39.8 59.2 70.9 61.4 54.9 16.8 45.0 48.2 50.5 51.0 57.7 63.3 31.8 58.7 31.2 55.7 48.5
FCN-8s, full            | test | no  | 62.2
       - 76.8 34.2 68.9 49.4 60.3 75.3 74.7 77.6 21.4 62.5 46.8 71.8 63.9 76.5 73.9 45.2 72.4 37.4 70.9 55.1
Zoomout, full           | test | no  | 64.4
       - 81.9 35.1 78.2 57.4 56.5 80.5 74.0 79.8 22.4 69.6 53.7 74.0 76.0 76.6 68.8 44.3 70.2 40.2 68.9 55.3
DeepLab-CRF, full       | test | yes | 66.4
       - 78.4 33.1 78.2 55.6 65.3 81.3 75.5 78.6 25.3 69.2 52.7 75.2 69.0 79.1 77.6 54.7 78.3 45.1 73.3 56.2
CCNN tags               | test | yes | 35.6
       - 24.2 19.9 26.3 18.6 38.1 51.7 42.9 48.2 15.6 37.2 18.3 43.0 38.2 52.2 40.0 33.8 36.0 21.6 33.4 38.3
CCNN size               | test | yes | 43.3
       - 36.7 23.6 47.1 30.2 40.6 59.5 54.3 51.9 15.9 43.3 34.8 48.2 42.5 59.2 43.1 35.5 45.2 31.4 46.2 42.2
CCNN size, tuned CRF    | test | yes | 45.1
       - 42.3 24.5 56.0 30.6 39.0 58.8 52.7 54.8 14.6 48.4 34.2 52.7 46.9 61.1 44.8 37.4 48.8 30.6 47.7 41.7
"""


def main(argv=None):
    args = parse_args(argv)
    if args.server:
        pack(args.server, *args.runs[0].folders.values(), args.voc, args.split, args.labels)
        return
    names = read_list(args.voc, args.split)
    split = Path(args.split).stem
    about = dict(split=split, images=len(names), classes=args.labels)
    check_stored(about, args.runs)
    folders = [folder for run in args.runs for folder in run.folders.values()]
    matrices = iter(confusions(truth_paths(args.voc, names), folders, len(args.labels)))
    rows = []
    for run in args.runs:
        rows += run.stored + [scored(run.name, split, crf, next(matrices)) for crf in run.folders]
    if args.paper:
        rows = rows + [row._replace(name=f"paper: {row.name}") for row in paper_rows()]
    print(f"{len(names)} images of {split}; percent\n\n" + tables(rows, args.labels, text_table))
    for path in args.out:
        say_if_replaced(path)
        with cli.whole_file(path) as part:
            part.write_text({".txt": lambda: tables(rows, args.labels, text_table),
                             ".md": lambda: tables(rows, args.labels, markdown_table),
                             ".json": lambda: as_json(about, rows)}[path.suffix]())
    if args.confusion:
        say_if_replaced(args.confusion)
        draw([row for row in rows if row.confusion], args.labels, args.confusion)


class Run(NamedTuple):
    name: str
    folders: dict                       # {with CRF or not: folder of masks}
    stored: list = []                   # rows of an earlier result
    origin: dict = {}                   # that result


def parse_args(argv):
    parser = cli.parser(__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="FOLDER, NAME=FOLDER[,FOLDER_WITH_CRF] or RESULT.json")
    parser.add_argument("--voc", type=Path, default=Path("data/VOCdevkit/VOC2012"), metavar="DIR",
                        help="VOC folder with the truth (default: data/VOCdevkit/VOC2012)")
    parser.add_argument("--split", default="val", metavar="NAME",
                        help="list in ImageSets/Segmentation, or the path of a list file (default: val)")
    parser.add_argument("--classes", type=Path, metavar="FILE", help="names of the labels, one a line (default: VOC's)")
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
        raise UserError(f"--voc {args.voc}: no such folder; tools/get_voc.py makes it")
    for path in args.out:
        if path.suffix not in (".txt", ".md", ".json"):
            raise UserError(f"--out {path}: need a name that ends in .txt, .md or .json")
    if args.confusion and args.confusion.suffix not in (".png", ".pdf", ".svg"):
        raise UserError(f"--confusion {args.confusion}: need a name that ends in .png, .pdf or .svg")
    args.runs = [parse_run(text) for text in args.runs]
    if args.server:
        if not args.server.name.endswith((".tar", ".tar.gz", ".tgz")):
            raise UserError(f"--server {args.server}: need a name that ends in .tar, .tar.gz or .tgz")
        if len(args.runs) != 1 or len(args.runs[0].folders) != 1:
            raise UserError("--server packs one folder of masks: give one RUN")
    return args


def parse_run(text):
    """FOLDER, NAME=FOLDER, NAME=FOLDER,FOLDER, NAME=,FOLDER or RESULT.json."""
    if text.endswith(".json"):
        return stored_run(Path(text))
    name, equals, rest = text.partition("=")
    if Path(text).is_dir() or not equals:                   # a folder's name may hold = and ,
        name, rest = Path(text).resolve().name, text
    folders = [rest] if Path(rest).is_dir() else rest.split(",")
    if len(folders) > 2:
        raise UserError(f"{text}: {len(folders)} folders; a run has one, or two: without and with CRF")
    folders = {crf: Path(folder) for crf, folder in zip((False, True), folders) if folder}
    if not folders:
        raise UserError(f"{text!r}: names no folder of masks")
    for folder in folders.values():
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder of masks; tools/infer.py makes one")
    return Run(name, folders)


def stored_run(path):
    """The rows of a result that --out wrote, computed again from their confusion matrices."""
    try:
        result = json.loads(path.read_text())
        about = {key: result[key] for key in ("split", "images", "classes")}
        rows = [Row(**row) for row in result["rows"] if row["confusion"]]
        matrices = [np.array(row.confusion) for row in rows]
        for row, C in zip(rows, matrices):
            size = len(about["classes"])
            if C.shape != (size, size) or C.dtype != int or C.min() < 0 or not isinstance(row.name, str):
                raise ValueError
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: not a result that --out wrote") from None
    return Run(path.stem, {}, [scored(row.name, about["split"], row.crf, C) for row, C in zip(rows, matrices)],
               {**about, "path": path})


def check_stored(about, runs):
    """Rows scored on other images or classes must not stand in the same table."""
    for run in runs:
        for key in ("split", "images", "classes") if run.origin else ():
            if run.origin[key] != about[key]:
                raise UserError(f"{run.origin['path']}: was scored with {key} {run.origin[key]}, "
                                f"this with {about[key]}")


# --- files ---------------------------------------------------------------------------------------------------

def read_list(voc, split):
    """The image ids of a split: the name of a VOC list, or the path of a file with one id a line."""
    path = voc / f"ImageSets/Segmentation/{split}.txt"
    if not path.is_file():
        if not Path(split).is_file():
            raise UserError(f"--split {split}: neither {path} nor a file of that name is there")
        path = Path(split)
    try:
        names = path.read_text().split()
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file") from None
    if not names:
        raise UserError(f"{path}: lists no images")
    for name in names:
        if Path(name).name != name:
            raise UserError(f"{path}: {name!r} is not an image id")
    if len(set(names)) < len(names):
        raise UserError(f"{path}: lists {len(names) - len(set(names))} ids twice")
    return names


def truth_paths(voc, names):
    """Where the true masks lie: SegmentationClass, or SegmentationClassAug for images that only SBD labelled."""
    places = [voc / "SegmentationClass", voc / "SegmentationClassAug"]
    paths = [next((p / f"{name}.png" for p in places if (p / f"{name}.png").is_file()), None) for name in names]
    if None in paths:
        raise UserError(f"{places[0] / names[paths.index(None)]}.png: missing; "
                        f"{paths.count(None)} of {len(names)} images have no true mask")
    return paths


def prediction_paths(folder, names):
    paths = [folder / f"{name}.png" for name in names]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise UserError(f"{missing[0]}: missing, as are {len(missing) - 1} more of {len(names)} predictions; "
                        "finish tools/infer.py first, or give --split a list of those that are there"
                        if len(missing) > 1 else f"{missing[0]}: missing; tools/infer.py makes it")
    return paths


def read_prediction(path, labels, size, of):
    """A mask of labels 0 .. labels - 1 whose shape is `size`, that of the file `of`."""
    mask = read_mask(path, labels)
    if mask.shape != size:
        raise UserError(f"{path}: is {mask.shape[1]} x {mask.shape[0]}, need {size[1]} x {size[0]} as {of}")
    if mask.max() == VOID:
        raise UserError(f"{path}: holds {VOID} (void); a prediction gives every pixel a label 0..{labels - 1}")
    return mask


# --- scores --------------------------------------------------------------------------------------------------

def confusion(truth, prediction, labels):
    """C[true label, predicted label] in pixels, L x L; void pixels of the truth (255) do not count."""
    pairs = truth.astype(np.intp) * 256 + prediction
    return np.bincount(pairs.ravel(), minlength=1 << 16).reshape(256, 256)[:labels, :labels]


def confusions(truths, folders, labels):
    """One confusion matrix for each folder, summed over all images."""
    names = [path.stem for path in truths]
    for folder in folders:
        prediction_paths(folder, names)
    total = np.zeros((len(folders), labels, labels), np.int64)
    for path in tqdm(truths if folders else (), desc="scoring", unit="image", disable=None):
        truth = read_mask(path, labels)
        for C, folder in zip(total, folders):
            C += confusion(truth, read_prediction(folder / path.name, labels, truth.shape, path), labels)
    return total


def scored(name, split, crf, C):
    """The numbers of a confusion matrix."""
    right, true, predicted = C.diagonal(), C.sum(axis=1), C.sum(axis=0)
    if not C.any():
        raise UserError(f"{name}: the truth has only void pixels; there is nothing to score")
    with np.errstate(invalid="ignore"):                     # 0 / 0: the label does not occur
        iou = 100 * right / (true + predicted - right)
        recall = 100 * right / true
    return Row(name, split, bool(crf), np.nanmean(iou), [None if np.isnan(v) else v for v in iou],
               100 * right.sum() / C.sum(), np.nanmean(recall), C.tolist())


def paper_rows():
    rows = []
    for line in PAPER.strip().splitlines():
        if line.startswith(" "):
            rows[-1].iou.extend(None if v == "-" else float(v) for v in line.split())
        else:
            name, split, crf, miou = map(str.strip, line.split("|"))
            rows.append(Row(name, split, crf == "yes", float(miou), []))
    return rows


# --- tables --------------------------------------------------------------------------------------------------

def tables(rows, classes, table):
    """Without and with CRF side by side, then IoU class by class in the paper's columns."""
    lines = {}                                              # (name, set, number): {crf: row}
    for row in rows:                                        # two runs of one name stay two lines
        key = next(k for k in ((row.name, row.split, n) for n in range(len(rows))) if row.crf not in lines.get(k, {}))
        lines.setdefault(key, {})[row.crf] = row
    kinds = sorted({row.crf for row in rows})
    suffix = {False: " w/o CRF", True: " w/ CRF"} if True in kinds else {False: ""}
    numbers = [(key, title, crf) for key, title in (("miou", "mIoU"), ("overall", "accuracy"), ("mean", "mean acc."))
               for crf in kinds if any(row.crf == crf and getattr(row, key) is not None for row in rows)]
    side_by_side = [[name, split] + [getattr(line[crf], key) if crf in line else None for key, _, crf in numbers]
                    for (name, split, _), line in lines.items()]
    detail = [[row.name + suffix[row.crf], row.split] + row.iou + [row.miou]
              for line in lines.values() for _, row in sorted(line.items()) if row.iou]
    return (table(["method", "set"] + [title + suffix[crf] for _, title, crf in numbers], side_by_side) + "\n"
            + table(["IoU", "set"] + [SHORT.get(name, name) for name in classes] + ["mIoU"], detail))


def cells(lines):
    return [[v if isinstance(v, str) else "-" if v is None else f"{v:.1f}" for v in line] for line in lines]


def text_table(header, lines):
    lines = [header] + cells(lines)
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "".join("  ".join(v.ljust(w) if i < 2 else v.rjust(w) for i, (v, w) in enumerate(zip(line, widths))).rstrip()
                   + "\n" for line in lines)


def markdown_table(header, lines):
    rule = ["---" if i < 2 else "---:" for i in range(len(header))]
    return "".join(f"| {' | '.join(v.replace('|', '&#124;') for v in line)} |\n"
                   for line in [header, rule] + cells(lines))


def as_json(about, rows):
    lines = ",\n".join(json.dumps(row._asdict()) for row in rows)          # a line a row: a diff shows what changed
    return json.dumps({**about, "rows": []})[:-2] + f"\n{lines}\n]}}\n"


def draw(rows, classes, path):
    """A confusion matrix a row: where the pixels of each true label went, in percent of them."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    across = min(len(rows), 2)
    down = -(-len(rows) // across)
    names = [SHORT.get(name, name) for name in classes]
    side = 1.5 + 0.31 * len(names)
    figure, axes = plt.subplots(down, across, figsize=(side * across, side * down), squeeze=False, layout="constrained")
    for axis in axes.flat[len(rows):]:
        axis.remove()
    crf = any(row.crf for row in rows)
    for axis, row in zip(axes.flat, rows):
        C = np.array(row.confusion, float)
        share = 100 * C / np.maximum(C.sum(axis=1, keepdims=True), 1)
        axis.imshow(share, cmap="Blues", vmin=0, vmax=100)
        for (t, p), v in np.ndenumerate(share):
            if v >= 0.5:
                axis.text(p, t, f"{v:.0f}", ha="center", va="center", fontsize=7,
                          color="white" if v > 55 else "#222222")
        axis.set_title(f"{row.name}{' w/ CRF' if row.crf else ' w/o CRF' if crf else ''}: mIoU {row.miou:.1f}")
        axis.set_xticks(range(len(names)), names, rotation=90)
        axis.set_yticks(range(len(names)), names)
        axis.set_xlabel("predicted")
        axis.set_ylabel("true (a row adds up to 100 %)")
        axis.tick_params(length=0)
    with cli.whole_file(path) as part:
        figure.savefig(part, dpi=120)
    plt.close(figure)


# --- the test server -----------------------------------------------------------------------------------------

def pack(path, folder, voc, split, labels):
    """results/VOC2012/Segmentation/comp6_test_cls/ID.png, indexed PNGs: the layout that VOC's server takes."""
    names = read_list(voc, split)
    say_if_replaced(path)
    with cli.whole_file(path) as part, tarfile.open(part, "w" if path.suffix == ".tar" else "w:gz") as tar:
        for source in tqdm(prediction_paths(folder, names), desc="packing", unit="image", disable=None):
            photo = voc / "JPEGImages" / f"{source.stem}.jpg"
            size = read_image(photo).shape[:2]
            data = io.BytesIO()
            indexed(read_prediction(source, len(labels), size, photo)).save(data, "PNG")
            member = tarfile.TarInfo(f"results/VOC2012/Segmentation/comp6_test_cls/{source.name}")
            member.size, member.mode = data.tell(), 0o644
            data.seek(0)
            tar.addfile(member, data)
    print(f"{path}: {len(names)} masks of {split} for comp6, ready for the server")


def say_if_replaced(path):
    if path.exists():
        print(f"replacing {path}", file=sys.stderr)


if __name__ == "__main__":
    cli.run(main)
