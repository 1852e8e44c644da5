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
import tarfile
from pathlib import Path

import _activate  # noqa: F401
import numpy as np
from tqdm import tqdm

from ccnn import command
from ccnn.errors import UserError
from ccnn.files import warn_if_there, whole_file
from ccnn.images import read_image
from ccnn.labels import SHORT, VOC_CLASSES, indexed, read_classes
from ccnn.lists import read_split
from ccnn.paper import paper_rows
from ccnn.runs import parse_run
from ccnn.scores import confusions, prediction_paths, read_prediction, scored, truth_paths
from ccnn.tables import markdown_table, text_table


def main(argv=None):
    args = parse_args(argv)
    if args.server:
        pack(args.server, *args.runs[0].folders.values(), args.voc, args.split, args.labels)
        return
    names = read_split(args.voc, args.split)
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
        warn_if_there(path)
        with whole_file(path) as part:
            part.write_text({".txt": lambda: tables(rows, args.labels, text_table),
                             ".md": lambda: tables(rows, args.labels, markdown_table),
                             ".json": lambda: as_json(about, rows)}[path.suffix]())
    if args.confusion:
        warn_if_there(args.confusion)
        draw([row for row in rows if row.confusion], args.labels, args.confusion)



def parse_args(argv):
    parser = command.parser(__doc__)
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




def check_stored(about, runs):
    """Rows scored on other images or classes must not stand in the same table."""
    for run in runs:
        for key in ("split", "images", "classes") if run.origin else ():
            if run.origin[key] != about[key]:
                raise UserError(f"{run.origin['path']}: was scored with {key} {run.origin[key]}, "
                                f"this with {about[key]}")



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
    with whole_file(path) as part:
        figure.savefig(part, dpi=120)
    plt.close(figure)


def pack(path, folder, voc, split, labels):
    """results/VOC2012/Segmentation/comp6_test_cls/ID.png, indexed PNGs: the layout that VOC's server takes."""
    names = read_split(voc, split)
    warn_if_there(path)
    with whole_file(path) as part, tarfile.open(part, "w" if path.suffix == ".tar" else "w:gz") as tar:
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


if __name__ == "__main__":
    command.run(main)
