#!/usr/bin/env python3
"""What users get from sixty photographs: three sets of three classes, drawn from VOC, learned and scored.

    study/own_photographs.py --before ../old        # an older checkout, built; without it only this version is scored
    study/own_photographs.py --report               # the table of what is done

A set has about 60 photographs of VOC's train: 18 of each class, and 8 that show none. No other class is in them but
persons, whom nobody tags. Another 100 photographs, of val, are segmented and scored. Tags come from the true masks; so
does the bit of size, for a class that covers more than a tenth of the photograph. A seed draws the photographs.

Every run types what the README tells a user to type: tools/learn.py and tools/infer.py of its version. The score is the
mean IoU over the background and the three classes, without a CRF. Each run takes one core for some minutes. Stop at any
time: what is done stays in output/own_photographs, one JSON file per run.
"""
import concurrent.futures
import json
import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.paths import ROOT
from ccnn._util.progress import Progress
from ccnn.cli import command
from ccnn.evaluation.scores import confusion, scored
from ccnn.images.ids import read_split
from ccnn.images.labels import LABELS, VOC_CLASSES, VOID
from ccnn.images.reading import read_mask

SETS = (("cat", "bus", "sheep"), ("aeroplane", "dog", "train"), ("bird", "car", "cow"))

PER_CLASS, WITHOUT, NEW = 18, 8, 100       # photographs: to learn from of each class, of none; to be segmented

KINDS = {"tags": "image,tags", "size": "image,tags,large"}          # what is known, and the head of tags.csv

LARGE = 0.1             # of the labelled pixels, as in the paper

VERSIONS = ("before", "after")


def main(argv=None):
    args = parse_args(argv)
    if not args.report:
        make_runs(args)
    print("\n".join(table(collect(args.folder))))


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--before", type=Path, metavar="DIR", help="a built checkout of an older version")
    add("--root", type=Path, default=Path("data/VOCdevkit/VOC2012"), metavar="DIR", help="(default: %(default)s)")
    add("--folder", type=Path, default=Path("output/own_photographs"), metavar="DIR", help="(default: %(default)s)")
    add("--seeds", type=command.count, default=3, metavar="N", help="draws of each set (default: %(default)s)")
    add("--jobs", type=command.count, default=os.cpu_count(), metavar="N", help="runs at a time (default: all cores)")
    add("--report", action="store_true", help="no runs, only the table")
    args = parser.parse_args(argv)
    if args.before and not (args.before / "tools/learn.py").is_file():
        raise UserError(f"--before {args.before}: is not a checkout of an older version")
    return args


# Sets

def shares(root, split):
    """{id: (21,) share of the labelled pixels of each label} of VOC's masks."""
    found = {}
    for id in Progress(read_split(root, split), desc=f"masks of {split}", unit="mask"):
        pixels = np.bincount(read_mask(root / f"SegmentationClass/{id}.png").ravel(), minlength=VOID + 1)[:LABELS]
        found[id] = pixels / pixels.sum()
    return found


def suitable(areas, labels):
    """(ids that show some of the labels and no other one but persons, ids that show none of the labels)"""
    others = [l for l in range(1, LABELS) if l not in (*labels, VOC_CLASSES.index("person"))]
    return ([id for id, area in areas.items() if area[labels].any() and not area[others].any()],
            [id for id, area in areas.items() if not area[labels].any()])


def pick(ids, areas, labels, per_class, rng):
    """In random order, each id of which a label is shown by fewer than per_class others yet."""
    counts, taken = np.zeros(len(labels), int), []
    for id in rng.permutation(sorted(ids)).tolist():
        present = areas[id][labels] > 0
        if (counts[present] < per_class).any():
            taken.append(id)
            counts += present
    return taken


def draw_set(areas, labels, seed):
    """The ids to learn from. areas : of VOC's train"""
    rng = np.random.default_rng(seed)
    some, none = suitable(areas, labels)
    return [*pick(some, areas, labels, PER_CLASS, rng), *rng.choice(sorted(none), WITHOUT, replace=False).tolist()]


def draw_new(areas, labels):
    """The ids to be segmented, the same for all seeds: a third of each class, then any. areas : of VOC's val"""
    rng = np.random.default_rng(2015)
    some, _ = suitable(areas, labels)
    first = pick(some, areas, labels, NEW // len(labels), rng)
    return [*first, *(id for id in rng.permutation(sorted(some)).tolist() if id not in set(first))][:NEW]


def tags_csv(ids, areas, labels, kind):
    """The text of tags.csv; of kind "size" with the column `large`."""
    def names(area, bound):
        return ";".join(VOC_CLASSES[l] for l in labels if area[l] > bound)
    rows = [[f"{id}.jpg", names(areas[id], 0), names(areas[id], LARGE)] for id in sorted(ids)]
    columns = len(KINDS[kind].split(","))
    return "\n".join([KINDS[kind], *(",".join(row[:columns]) for row in rows)]) + "\n"


# Runs

class Draw(NamedTuple):
    """A set, drawn with a seed, for one version: both kinds of knowledge, one after the other."""
    classes: tuple
    seed: int
    version: str
    ids: list                   # to learn from
    new: list                   # to be segmented
    areas: dict                 # of ids
    root: Path                  # of VOC
    folder: Path                # of all runs
    before: Path                # the older checkout

    @property
    def labels(self):
        return [VOC_CLASSES.index(name) for name in self.classes]

    @property
    def place(self):
        return self.folder.resolve() / "_".join(self.classes) / str(self.seed) / self.version

    def result(self, kind):
        return self.place / f"{kind}.json"


def make_runs(args):
    train, val = (shares(args.root, split) for split in ("train", "val"))
    draws = []
    for seed in range(1, 1 + args.seeds):           # all sets of a seed are done before the next seed
        for classes in SETS:
            labels = [VOC_CLASSES.index(name) for name in classes]
            ids, new = draw_set(train, labels, seed), draw_new(val, labels)
            draws += [Draw(classes, seed, version, ids, new, {id: train[id] for id in ids}, args.root.resolve(),
                           args.folder, args.before and args.before.resolve())
                      for version in VERSIONS if version == "after" or args.before]
    draws = [draw for draw in draws if not all(draw.result(kind).exists() for kind in KINDS)]
    pool = concurrent.futures.ThreadPoolExecutor(args.jobs)
    try:
        for done in Progress(concurrent.futures.as_completed([pool.submit(execute, draw) for draw in draws]),
                             total=len(draws), unit="draw", desc="draws"):
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)          # where a run fails, or ^C comes, no other begins


def execute(draw):
    """Learn from the photographs and score the masks of the new ones, with tags and then with sizes."""
    photos, new = draw.place / "photos", draw.place / "new"
    for folder, ids in ((photos, draw.ids), (new, draw.new)):
        folder.mkdir(parents=True, exist_ok=True)
        for id in ids:
            shutil.copy(draw.root / f"JPEGImages/{id}.jpg", folder)
    (photos / "classes.txt").write_text("\n".join(draw.classes) + "\n")
    for kind in KINDS:
        if draw.result(kind).exists():
            continue
        (photos / "tags.csv").write_text(tags_csv(draw.ids, draw.areas, draw.labels, kind))
        masks, seconds = draw.place / f"masks_{kind}", {}
        shutil.rmtree(masks, ignore_errors=True)
        for line in commands(kind):
            begin = time.time()
            run(line, draw)
            seconds[line.split()[0]] = round(time.time() - begin, 1)
        with whole_file(draw.result(kind)) as part:
            part.write_text(json.dumps({"set": draw.classes, "seed": draw.seed, "version": draw.version, "kind": kind,
                                        **score(draw, masks), "seconds": seconds, "photographs": len(draw.ids)}))


def commands(kind):
    """Of both kinds the first computes the features; --again: the second does not begin with the first's weights."""
    return ["tools/learn.py --no-check --again --jobs 1 {photos}",
            f"tools/infer.py --model {{photos}}/model.ccnn --out {{masks}}_{kind} --no-overlay --jobs 1 {{new}}"]


def run(line, draw):
    """Type a command in the checkout of the draw's version, on one core."""
    places = {name: shlex.quote(str(draw.place / name)) for name in ("photos", "new", "masks")}
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CCNN_ACTIVATED")}
    with open(draw.place / "log.txt", "a") as log:
        status = subprocess.run(
            ["bash", "-c", f". .caffe/activate && {line.format(**places)}"], stdout=log, stderr=log,
            cwd=draw.before if draw.version == "before" else ROOT, env={**environment, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL).returncode
    if status:
        raise UserError(f"{draw.place / 'log.txt'}: {line.split()[0]} ended with status {status}; see there")


def score(draw, masks):
    """Mean IoU over the background and the classes, and each; VOC's other labels count as background."""
    own = np.zeros(VOID + 1, np.uint8)
    own[[*draw.labels, VOID]] = [*range(1, 1 + len(draw.labels)), VOID]
    labels = 1 + len(draw.labels)
    C = sum(confusion(own[read_mask(draw.root / f"SegmentationClass/{id}.png")],
                      read_mask(masks / f"{id}.png", labels), labels) for id in draw.new)
    found = scored(draw.version, "val", False, C)
    return {"miou": found.miou, "iou": found.iou}


# The table

def collect(folder):
    return [json.loads(path.read_text()) for kind in KINDS for path in sorted(folder.glob(f"*/*/*/{kind}.json"))]


def table(results):
    """Lines of Markdown: mean IoU of every draw, the means, and the gain with its standard error."""
    order = [" ".join(classes) for classes in SETS]
    found = {((" ".join(r["set"]), r["seed"]), r["kind"], r["version"]): r["miou"] for r in results}
    draws = sorted({draw for draw, *_ in found}, key=lambda draw: (order.index(draw[0]), draw[1]))
    columns = [(kind, version) for kind in KINDS for version in VERSIONS]

    def row(first, seed, values):
        return f"| {first} | {seed} | {' | '.join('' if v is None else f'{v:.1f}' for v in values)} |"

    def mean(column):
        values = [found[(draw, *column)] for draw in draws if (draw, *column) in found]
        return np.mean(values) if values else None
    return [f"| set | seed | {' | '.join(f'{kind}, {version}' for kind, version in columns)} |",
            "|---|---|" + "---|" * len(columns),
            *(row(draw[0].replace(" ", ", "), draw[1], [found.get((draw, *column)) for column in columns])
              for draw in draws),
            row("mean", "", map(mean, columns)),
            *gain(found, draws, ["tags"]), *gain(found, draws, ["size"]), *gain(found, draws, ["tags", "size"])]


def gain(found, draws, kinds):
    """A line on the differences between the versions; none if there are fewer than two."""
    pairs = [[found.get((draw, kind, version)) for version in VERSIONS] for draw in draws for kind in kinds]
    gains = [after - before for before, after in pairs if before is not None and after is not None]
    return [f"\n{' and '.join(kinds)}: {np.mean(gains):+.1f} ± {standard_error(gains):.1f} in {len(gains)} pairs"] \
        if gains[1:] else []


def standard_error(values):
    return np.std(values, ddof=1) / np.sqrt(len(values))


if __name__ == "__main__":
    command.run(main)
