#!/usr/bin/env python3
"""What users get from sixty photographs: sets of three or four classes, drawn from VOC, learned and scored.

    study/own_photographs.py                        # this version
    study/own_photographs.py --before ../old        # and an older checkout, built
    study/own_photographs.py --caffe                # and this version with learn --trainer caffe, the reference
    study/own_photographs.py --none                 # and this version with learn --cue none
    study/own_photographs.py --sets all             # every class of VOC but person, in six sets
    study/own_photographs.py --report               # the table of what is done
    study/own_photographs.py --report --out study/results       # and own_photographs.json there

A set has about 60 photographs of VOC's train: 18 of each class, and 8 that show none. No other class is in them but
persons, whom nobody tags. Another 100 photographs, of val, are segmented and scored. Tags come from the true masks; so
does the bit of size, for a class that covers more than a tenth of the photograph. A seed draws the photographs.

Every run types what the README tells a user to type: tools/learn.py and tools/infer.py of its version. The scores are
the mean IoU over the background and the classes, without a CRF, and how well masks follow edges (ccnn.evaluation.
boundaries). Each run takes one core for some minutes. Stop at any time: what is done stays in output/own_photographs,
one JSON file per run.
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
from ccnn.evaluation.boundaries import BAND, band_confusion, boundary_counts, boundary_f
from ccnn.evaluation.scores import confusion, scored
from ccnn.evaluation.tables import markdown_table
from ccnn.images.ids import read_split
from ccnn.images.labels import LABELS, VOC_CLASSES, VOID
from ccnn.images.reading import read_mask

SETS = (("cat", "bus", "sheep"), ("aeroplane", "dog", "train"), ("bird", "car", "cow"))

HARD = (("chair", "bottle", "pottedplant"), ("diningtable", "tvmonitor", "boat"))     # they stand out least

REST = (("bicycle", "horse", "motorbike", "sofa"),)

CHOICES = {"easy": SETS, "hard": HARD, "all": SETS + HARD + REST}

PER_CLASS, WITHOUT, NEW = 18, 8, 100       # photographs: to learn from of each class, of none; to be segmented

SEEN = 40               # the first of the new ones were looked at when rows and rates of `ccnn learn` were chosen

KINDS = {"tags": "image,tags", "size": "image,tags,large"}          # what is known, and the head of tags.csv

KEPT = ("set", "seed", "version", "kind", "miou", "rest", "boundary", "band")     # of a run, in own_photographs.json

LARGE = 0.1             # of the labelled pixels, as in the paper

VERSIONS = ("before", "caffe", "none", "after")     # an older checkout, the reference trainer, no cue, what users get


def main(argv=None):
    args = parse_args(argv)
    if not args.report:
        make_runs(args)
    found = collect(args.folder)
    print("\n".join(table(found)))
    if args.out:
        with whole_file(args.out / "own_photographs.json") as part:
            part.write_text("[" + ",\n".join(json.dumps({key: one[key] for key in KEPT}) for one in found) + "]\n")


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--before", type=Path, metavar="DIR", help="a built checkout of an older version")
    add("--caffe", action="store_true", help="train with Caffe, too")
    add("--none", action="store_true", help="train without a cue, too")
    add("--root", type=Path, default=Path("data/VOCdevkit/VOC2012"), metavar="DIR", help="(default: %(default)s)")
    add("--folder", type=Path, default=Path("output/own_photographs"), metavar="DIR", help="(default: %(default)s)")
    add("--sets", choices=tuple(CHOICES), default="easy", help="(default: %(default)s)")
    add("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS), help="what is known (default: all)")
    add("--seeds", type=command.count, default=3, metavar="N", help="draws of each set (default: %(default)s)")
    add("--jobs", type=command.count, default=os.cpu_count(), metavar="N", help="runs at a time (default: all cores)")
    add("--report", action="store_true", help="no runs, only the table")
    add("--out", type=Path, metavar="DIR", help="write own_photographs.json there")
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
    kinds: list                 # of KINDS

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
    wanted = [*["before"] * bool(args.before), *["caffe"] * args.caffe, *["none"] * args.none, "after"]
    draws = []
    for seed in range(1, 1 + args.seeds):           # all sets of a seed are done before the next seed
        for classes in CHOICES[args.sets]:
            labels = [VOC_CLASSES.index(name) for name in classes]
            ids, new = draw_set(train, labels, seed), draw_new(val, labels)
            draws += [Draw(classes, seed, version, ids, new, {id: train[id] for id in ids}, args.root.resolve(),
                           args.folder, args.before and args.before.resolve(), args.kinds)
                      for version in wanted]
    draws = [draw for draw in draws if not all(draw.result(kind).exists() for kind in draw.kinds)]
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
    for kind in draw.kinds:
        if draw.result(kind).exists():
            continue
        (photos / "tags.csv").write_text(tags_csv(draw.ids, draw.areas, draw.labels, kind))
        masks, seconds = draw.place / f"masks_{kind}", {}
        shutil.rmtree(masks, ignore_errors=True)
        for line in commands(kind, draw.version):
            begin = time.time()
            run(line, draw)
            seconds[line.split()[0]] = round(time.time() - begin, 1)
        with whole_file(draw.result(kind)) as part:
            part.write_text(json.dumps({"set": draw.classes, "seed": draw.seed, "version": draw.version, "kind": kind,
                                        **score(draw, masks), "seconds": seconds, "photographs": len(draw.ids)}))


def commands(kind, version):
    """Of both kinds the first computes the features; --again: the second does not begin with the first's weights."""
    option = {"caffe": " --trainer caffe", "none": " --cue none"}.get(version, "")
    return [f"tools/learn.py --no-check --again --jobs 1{option} {{photos}}",
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


def own_labels(labels):
    """(256,) from VOC's labels to those of a set: 1 for the first of `labels`; others are background."""
    own = np.zeros(VOID + 1, np.uint8)
    own[[*labels, VOID]] = [*range(1, 1 + len(labels)), VOID]
    return own


def score(draw, masks):
    """Mean IoU over the background and the classes, and each; the mean on photographs that no choice has seen; F of the
    boundaries; mean IoU in a band around them. VOC's other labels count as background."""
    own, labels = own_labels(draw.labels), 1 + len(draw.labels)
    C = rest = band = np.zeros((labels, labels), int)
    edges = np.zeros((labels, 4), int)
    for k, id in enumerate(draw.new):
        truth, mask = own[read_mask(draw.root / f"SegmentationClass/{id}.png")], read_mask(masks / f"{id}.png", labels)
        one = confusion(truth, mask, labels)
        C, rest, band = C + one, rest + one * (k >= SEEN), band + band_confusion(truth, mask, labels)
        edges += boundary_counts(truth, mask, labels)
    found = scored(draw.version, "val", False, C)
    return {"miou": found.miou, "rest": scored(draw.version, "val", False, rest).miou, "iou": found.iou,
            "boundary": boundary_f(edges),
            "band": scored(draw.version, "val", False, band).miou}


# The table

def collect(folder):
    return [json.loads(path.read_text()) for kind in KINDS for path in sorted(folder.glob(f"*/*/*/{kind}.json"))]


def table(results):
    """Lines of Markdown: mean IoU of every draw, the means, and what this version gains, with its standard error."""
    order = [" ".join(classes) for classes in CHOICES["all"]]
    found = {((" ".join(r["set"]), r["seed"]), r["kind"], r["version"]): r["miou"] for r in results}
    draws = sorted({draw for draw, *_ in found}, key=lambda draw: (order.index(draw[0]), draw[1]))
    versions = [version for version in VERSIONS if any(version == other for *_, other in found)]
    columns = [(kind, version) for kind in KINDS for version in versions]

    def row(first, seed, values):
        return f"| {first} | {seed} | {' | '.join('' if v is None else f'{v:.1f}' for v in values)} |"

    def mean(column):
        values = [found[(draw, *column)] for draw in draws if (draw, *column) in found]
        return np.mean(values) if values else None
    return [f"| set | seed | {' | '.join(f'{kind}, {version}' for kind, version in columns)} |",
            "|---|---|" + "---|" * len(columns),
            *(row(draw[0].replace(" ", ", "), draw[1], [found.get((draw, *column)) for column in columns])
              for draw in draws),
            row("mean", "", map(mean, columns)), *edge_lines(results),
            *(line for version in versions if version != "after" for kinds in (["tags"], ["size"], ["tags", "size"])
              for line in gain(found, draws, kinds, version))]


def edge_lines(results):
    """The means of the scores of edges, one line per version."""
    lines = []
    for version in VERSIONS:
        those = [r for r in results if r["version"] == version and "boundary" in r]
        if those:
            F, band = (np.mean([r[key] for r in those]) for key in ("boundary", "band"))
            lines.append(f"\n{version}: boundary F {F:.1f}, IoU within {BAND} pixels of an edge {band:.1f}")
    return lines


def gain(found, draws, kinds, version):
    """A line on what this version gains over another; none if there are fewer than two pairs."""
    pairs = [[found.get((draw, kind, version)) for version in (version, "after")] for draw in draws for kind in kinds]
    gains = [after - other for other, after in pairs if other is not None and after is not None]
    return [f"\n{' and '.join(kinds)}, against {version}: {np.mean(gains):+.1f} ± {standard_error(gains):.1f} in "
            f"{len(gains)} pairs"] if gains[1:] else []


def standard_error(values):
    return np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0


# The table of docs/cues.md

COLUMNS = (("tags", "none", "miou"), ("tags", "after", "miou"), ("tags", "after", "rest"), ("size", "after", "miou"),
           ("tags", "none", "boundary"), ("tags", "after", "boundary"), ("tags", "none", "band"),
           ("tags", "after", "band"))

TITLES = {"miou": "IoU", "rest": f"IoU of the last {NEW - SEEN}", "boundary": "F", "band": "band"}


def page_table(results):
    """Means over the seeds of every set; then means over the sets, with both standard errors. No column is empty."""
    columns = [column for column in COLUMNS if any(by_set(results, [classes], *column) for classes in CHOICES["all"])]
    lines = []
    for name in ("easy", "hard"):
        done = [classes for classes in CHOICES[name] if any(tuple(r["set"]) == classes for r in results)]
        for classes in done:
            lines.append([", ".join(classes), *(said(by_set(results, [classes], *column)) for column in columns)])
        if len(done) > 1:
            lines.append([f"**mean of {name}**", *(said(by_set(results, done, *column)) for column in columns)])
    return markdown_table(["set", *(f"{kind}, {'no ' * (version == 'none')}cue: {TITLES[score]}"
                                    for kind, version, score in columns)], lines)


def by_set(results, sets, kind, version, score):
    """[scores of the seeds] of each set; of none, unless all sets have some"""
    found = [[r[score] for r in results
              if (tuple(r["set"]), r["kind"], r["version"]) == (classes, kind, version) and score in r]
             for classes in sets]
    return found if all(found) else []


def said(found):
    """The mean of a set ± standard deviation of its seeds. Of several sets, the mean ± its standard error over sets,
    as if they were drawn from many, ± its standard error over seeds, with these sets, if all have several."""
    if not found:
        return None
    text = f"{np.mean([np.mean(scores) for scores in found]):.1f}"
    if len(found) == 1:
        return f"{text} ± {np.std(found[0], ddof=1):.1f}" if len(found[0]) > 1 else text
    text += f" ± {standard_error([np.mean(scores) for scores in found]):.1f}"
    if min(map(len, found)) == 1:
        return text
    return f"{text} ± {np.sqrt(np.sum([standard_error(scores) ** 2 for scores in found])) / len(found):.1f}"


if __name__ == "__main__":
    command.run(main)
