#!/usr/bin/env python3
"""Repeat the paper's comparison with a frozen trunk: train, score and tabulate every system (docs/reproduction.md).

    tools/cache_features.py --split train --split val   # VGG-16's features, once
    study/study.py --crf heads                          # every row, three seeds
    study/study.py --seeds 1 --crf authors              # the authors' CRF as well, on the first of them
    study/study.py tags size --seeds 5                  # some rows, more seeds
    study/study.py size --held-out --set base_lr=1e-3 --folder slow    # choose settings without touching val
    study/study.py --report                             # tables of what is done
    study/study.py --report --out docs                  # the same, and study.json and study.png there

A run is a row and a seed: the net of prototxt/nets.py with that seed, trained by tools/train.py as solvers/head_*
say, scored on the cached features of val. The seed sets the order of the images, their mirroring and the first weights;
in the semi-supervised rows also which images keep their masks. Runs take a core each. Stop at any time: finished runs
are kept in study/ROW/SEED, begun ones continue from their snapshot. To try other settings, give another --folder.
"""
import json
import os
import random
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import numpy as np
from tqdm import tqdm

from ccnn import command, nets
from ccnn.baselines import image_level_prior
from ccnn.crf import PRESETS, dense_crf, load_preset
from ccnn.errors import UserError
from ccnn.files import whole_file
from ccnn.grid import Scores, label_map, sample
from ccnn.images import fit, read_image, read_mask
from ccnn.labels import SHORT, VOC_CLASSES
from ccnn.lists import read_split
from ccnn.net import load_caffe, load_net, score_grid
from ccnn.paper import BOUNDS, paper_rows
from ccnn.paths import ROOT
from ccnn.scores import confusion, scored
from ccnn.tables import markdown_table
from ccnn.trunk import VGG16
from ccnn.workers import end_with_parent, in_processes

# title; system of make_nets; changes to its loss; percent of the images that keep masks; solver, if not the system's;
# whether the classifier sees cells only; whether an image-level prior is tried; runs; those of them that are scored
# with CRF too, which takes longer than all the rest; the paper's row (tools/score.py)
Row = namedtuple("Row", "title system loss supervised solver cells ilp seeds crf paper",
                 defaults=({}, None, None, False, False, 3, 3, None))

SHARES = (5, 10, 25, 50)        # percent of the images that keep their masks; 0 is the row tags, 100 the row full


def bounds_row(*bounds):
    """Name of the row with these a_l, a_0, b_0."""
    return "size" if bounds == BOUNDS[0][:3] else "bounds_{:g}_{:g}_{:g}".format(*bounds)

PAPERS = {"small_upper": nets.SYSTEMS["size"].settings["small_upper"]}     # the nets for frozen features have another

ROWS = {
    "mil_fcn": Row("MIL-FCN", "mil_fcn", crf=1, paper="MIL-FCN"),
    "mil_base": Row("MIL-Base", "mil_base", ilp=True, crf=1, paper="MIL-Base"),
    "em_adapt": Row("EM-Adapt", "em_adapt", paper="EM-Adapt tags"),
    "tags": Row("CCNN, tags", "tags", paper="CCNN tags"),
    "tags_cells": Row("CCNN, tags, cells only", "tags", cells=True, crf=1, paper="CCNN tags"),
    "tags_paper": Row("CCNN, tags, the paper's schedule", "tags", solver="tags_paper", crf=1, paper="CCNN tags"),
    "crops": Row("CCNN, tags of random crops", "crops", paper="CCNN crops"),
    "size": Row("CCNN, tags and sizes", "size", paper="CCNN size", loss=PAPERS),
    "size_10": Row("CCNN, tags and sizes, small up to 0.1", "size", paper="CCNN size"),
    "boxes": Row("CCNN, boxes", "boxes", paper="CCNN boxes (CRF unsaid)"),
    "full": Row("full supervision", "full"),
    **{f"semi_{share}": Row(f"CCNN, tags, masks of {share} %", "semi", supervised=share, crf=0)
       for share in SHARES},
    **{bounds_row(*bounds): Row("CCNN, tags and sizes, other bounds", "size", seeds=1, crf=0,
                                loss={**PAPERS, **dict(zip(("fg_lower", "bg_lower", "bg_upper"), bounds))})
       for *bounds, _ in BOUNDS[1:]},
}

SYSTEMS = ("mil_fcn", "mil_base", "em_adapt", "tags_cells", "tags_paper", "tags", "crops", "size", "size_10", "boxes",
           "full")


def main(argv=None):
    args = parse_args(argv)
    if not args.report:
        train, val = hold_out(args.root) if args.held_out else ("train", "val")
        tasks = [(name, seed, args.folder / name / str(seed), args, train, val)
                 for seed in range(1, 1 + (args.seeds or 3)) for name in args.rows
                 if seed <= (args.seeds or ROWS[name].seeds)]
        tasks = [task for task in tasks if missing(*task[:5])]
        os.environ["OPENBLAS_NUM_THREADS"] = "1"            # a run a core; read when Caffe is loaded
        with tqdm(total=len(tasks), unit="run") as bar:
            for line in in_processes(run, tasks, args.jobs):
                bar.write(line)
                bar.update()
    results = collect(args.folder)
    text = "\n".join(tables(results).values())
    print(text)
    for folder in [args.folder] + ([args.out] if args.out else []):
        with whole_file(folder / "study.json") as part:
            part.write_text("[\n" + ",\n".join(map(json.dumps, results)) + "\n]\n")     # a line a run
        draw(results, folder / "study.png")


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("rows", nargs="*", metavar="ROW", help=f"some of {', '.join(ROWS)} (default: all)")
    add("--seeds", type=command.count, metavar="N", help="runs of each row (default: 3, of other bounds 1)")
    add("--held-out", action="store_true", help="train on three quarters of train and score on the rest of it")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting of the solver")
    add("--crf", action="append", default=[], metavar="PRESET",
        help=f"also score what a CRF makes of it: {', '.join(PRESETS)}, or a file of tools/tune_crf.py; repeatable")
    add("--root", type=Path, default=Path("data/VOCdevkit/VOC2012"), metavar="DIR", help="(default: %(default)s)")
    add("--features", type=Path, default=Path("data/features"), metavar="DIR", help="(default: %(default)s)")
    add("--folder", type=Path, metavar="DIR", help="for nets, snapshots, logs and scores (default: study, or "
                                                   "study/held_out)")
    add("--jobs", type=command.count, default=os.cpu_count(), metavar="N", help="runs at a time (default: all cores)")
    add("--report", action="store_true", help="no runs, only the tables")
    add("--out", type=Path, metavar="DIR", help="also write study.json and study.png here")
    args = parser.parse_args(argv)
    unknown = [name for name in args.rows if name not in ROWS]
    if unknown:
        raise UserError(f"{unknown[0]}: no such row; there are {', '.join(ROWS)}")
    args.rows = args.rows or list(ROWS)
    args.folder = args.folder or Path("output/study/held_out" if args.held_out else "output/study")
    args.crf = {Path(name).stem: load_preset(name) for name in args.crf}
    return args


def hold_out(root):
    """Lists of three quarters of the training images, and of every fourth one."""
    names = read_split(root, "train")
    lists = Path("output/study/held_out/train.txt"), Path("output/study/held_out/val.txt")
    held = names[3::4]
    for path, some in zip(lists, ([name for name in names if name not in set(held)], held)):
        with whole_file(path) as part:
            part.write_text("\n".join(some) + "\n")
    return tuple(map(str, lists))


def missing(name, seed, place, args, train):
    """What of a run is still to be scored: "" for the net's own labels, "ilp", and names of CRF presets."""
    row, done = ROWS[name], read_result(place / "score.json") or {"iou": {}, "set": args.set}
    kinds = ["", *["ilp"] * row.ilp, *(args.crf if seed <= row.crf else [])]
    if done["set"] != args.set:
        raise UserError(f"{place / 'score.json'}: is of a run with --set {' --set '.join(done['set']) or 'nothing'}; "
                        "choose another --folder")
    for file, text in sources(row, seed, place, args, train).items() if any(place.glob("head_iter_*")) else ():
        if (place / file).exists() and (place / file).read_text() != text:
            raise UserError(f"{place / file}: is not what the repository has now; remove {place} and all that was "
                            "made with it, or choose another --folder")
    presets = done.get("crf", {})
    return [kind for kind in kinds if kind not in done["iou"]
            or kind in args.crf and presets.get(kind) != args.crf[kind]._asdict()]


def read_result(path):
    """What a run scored so far: its row, seed, settings, seconds and IoU of each kind; None if it has not begun."""
    try:
        result = json.loads(path.read_text()) if path.exists() else None
        if result and not (result["row"] in ROWS and result.keys() >= {"seed", "set", "seconds", "iou"}):
            raise ValueError("of other rows or keys")
    except (ValueError, KeyError, TypeError) as e:
        raise UserError(f"{path}: is not a score of this tool ({e}); remove it, and the run is scored again") from None
    return result


def run(name, seed, place, args, train, val):
    """Train and score, what of it is not done; one line on it."""
    row, place, began = ROWS[name], place.resolve(), time.monotonic()
    kinds, stored = missing(name, seed, place, args, train), place / "score.json"
    place.mkdir(parents=True, exist_ok=True)
    result = read_result(stored) or {"row": name, "seed": seed, "set": args.set, "iou": {}}
    model = train_net(row, seed, place, args, train)
    result.setdefault("seconds", round(time.monotonic() - began))
    result["iou"].update(score_net(kinds, place, model, args, val))
    result.setdefault("crf", {}).update({kind: args.crf[kind]._asdict() for kind in kinds if kind in args.crf})
    with whole_file(stored) as part:
        part.write_text(json.dumps(result))
    figures = ", ".join(f"{miou(iou):.1f} {kind}".strip() for kind, iou in result["iou"].items())
    return f"{name} {seed}: mIoU {figures}; {result['seconds']} s to train, {time.monotonic() - began:.0f} in all"


def sources(row, seed, place, args, train):
    """What a run is made of: {name of a file in its folder: text}."""
    data = {**nets.CACHED, "root": str(args.root), "features": str(args.features), "split": train, "seed": seed,
            "supervised": str(place.resolve() / "masks.txt")}
    net = nets.data_layer(row.system, data) + nets.trained_head(row.system, cells_only=row.cells, **row.loss)
    solver = ROOT / f"solvers/head_{row.solver or row.system}.prototxt"
    return {"net.prototxt": net, "solver.prototxt": solver.read_text()}


def train_net(row, seed, place, args, train):
    """The trained model's path."""
    if row.supervised:
        names = read_split(args.root, train)
        kept = random.Random(seed).sample(names, round(len(names) * row.supervised / 100))
        (place / "masks.txt").write_text("\n".join(kept) + "\n")
    for file, text in sources(row, seed, place, args, train).items():
        (place / file).write_text(text)
    changes = [f"net={place / 'net.prototxt'}", f"snapshot_prefix={place / 'head'}", f"random_seed={seed}", *args.set]
    command = [sys.executable, ROOT / "tools/train.py", place / "solver.prototxt",
               *(word for change in changes for word in ("--set", change))]
    with open(place / "train.log", "a") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=end_with_parent)
    if done.returncode:
        raise UserError((place / "train.log").read_text().strip().splitlines()[-1])
    return done.stdout.strip()


def score_net(kinds, place, model, args, val):
    """{kind: IoU of every class}"""
    load_caffe()
    (place / "deploy.prototxt").write_text(nets.input_layer("features", 1, VGG16.channels, 29, 29) + nets.head())
    net = load_net(place / "deploy.prototxt", model)
    size = json.loads((args.features / "index.json").read_text())["size"]
    grid = score_grid(ROOT / "prototxt/head_deploy.prototxt")
    totals = dict.fromkeys(kinds, 0)
    for name in read_split(args.root, val):
        file = args.features / f"{name}.npy"
        try:
            features = np.load(file)
        except (ValueError, EOFError) as e:
            raise UserError(f"{file}: is damaged: {e}; run tools/cache_features.py again") from None
        if features.shape[0] != VGG16.channels:
            raise UserError(f"{file}: has {features.shape[0]} channels, need {VGG16.channels}; remove {args.features} and "
                            "run tools/cache_features.py again")
        net.blobs["features"].reshape(1, *features.shape)
        net.blobs["features"].data[0] = features
        net.forward()
        f = net.blobs["fc8"].data[0].copy()
        truth, rgb = (args.root / f"{folder}/{name}" for folder in ("SegmentationClass", "JPEGImages"))
        truth, rgb = read_mask(truth.with_suffix(".png")), read_image(rgb.with_suffix(".jpg"))
        cells = Scores(f, fit(*truth.shape, size), *grid).cells(*truth.shape)
        for kind in kinds:
            if kind in args.crf:
                found = dense_crf(rgb, sample(f, *cells), args.crf[kind]).argmax(axis=0)
            else:
                found = label_map(image_level_prior(f) if kind == "ilp" else f, *cells)
            totals[kind] += confusion(truth, found, len(VOC_CLASSES))
    return {kind: [v if v is None else round(v, 2) for v in scored(str(place), val, False, C).iou]
            for kind, C in totals.items()}


def collect(folder):
    """What the finished runs of a folder scored, in the order of ROWS."""
    found = [read_result(path) for path in folder.glob("*/*/score.json")]
    return sorted(found, key=lambda result: (list(ROWS).index(result["row"]), result["seed"]))


def miou(iou):
    """The mean over the classes; None is one that occurs nowhere."""
    return float(np.nanmean(np.array(iou, float)))


def mious(results, name, kind=""):
    """mIoU of every run of a row."""
    return [miou(run["iou"][kind]) for run in results if run["row"] == name and kind in run["iou"]]


def deviation(values):
    """Standard deviation over the seeds; None of a single one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def said(values):
    """Mean +- standard deviation."""
    if not values:
        return None
    return f"{np.mean(values):.1f}" + (f" ± {deviation(values):.1f}" if len(values) > 1 else "")


def tables(results):
    """{title: Markdown} of what is there."""
    paper = {(row.name, row.crf): row.miou for row in paper_rows() if row.split == "val"}
    lines = []
    for name in SYSTEMS:
        row = ROWS[name]
        for kind, presets, title, theirs in [("", ("authors", "heads"), row.title, row.paper)] + \
                [("ilp", (None, None), f"{row.title}, image-level prior", f"{row.paper}, ILP")] * row.ilp:
            ours = mious(results, name, kind)
            if ours:
                seconds = [result["seconds"] for result in results if result["row"] == name]
                lines.append([title, f"`study/study.py {name}`", str(len(ours)), said(ours),
                              *(said(mious(results, name, preset)) for preset in presets),
                              *(paper.get((theirs, crf)) for crf in (False, True)), f"{np.mean(seconds):.0f}"])
    made = {"systems": markdown_table(["system", "command", "runs", "mIoU", "authors' CRF", "our CRF", "paper",
                                       "paper, CRF", "seconds to train"], lines)}

    lines = []
    for better, worse in (("em_adapt", "mil_fcn"), ("em_adapt", "mil_base"), ("tags_cells", "em_adapt"),
                          ("tags", "em_adapt"), ("tags", "tags_cells"), ("tags", "tags_paper"), ("crops", "tags"),
                          ("size", "tags"), ("size_10", "size"), ("boxes", "size"), ("boxes", "size_10"),
                          ("full", "boxes")):
        a, b = (ROWS[name].paper for name in (better, worse))
        ours = [mious(results, name) for name in (better, worse)]
        if all(ours):
            gap = np.mean(ours[0]) - np.mean(ours[1])
            noise = np.hypot(*[(deviation(values) or 0) / np.sqrt(len(values)) for values in ours])
            holds = "yes" if gap > 2 * noise else "no" if gap < -2 * noise else "undecided"
            single = " (of one run)" if min(map(len, ours)) == 1 else ""
            theirs = (a, False) in paper and (b, False) in paper and paper[a, False] - paper[b, False]
            lines.append([f"{ROWS[better].title} > {ROWS[worse].title}", holds + single, f"{gap:+.1f} ± {noise:.1f}",
                          f"{theirs:+.1f}" if theirs else None])
    made["orderings"] = markdown_table(["ordering", "holds", "gap", "in the paper"], lines)

    lines = []
    for *bounds, theirs in BOUNDS:
        ours = mious(results, bounds_row(*bounds))
        if ours:
            lines.append([*map(str, bounds), f"{np.mean(ours):.1f}", theirs])
    made["bounds"] = markdown_table(["a_l", "a_0", "b_0", "mIoU", "paper"], lines)
    if len(lines) == len(BOUNDS):
        along = [float(np.mean([deviation([float(line[column]) for line in [lines[0], *lines[group]]])
                                    for group in (slice(1, 4), slice(4, 8), slice(8, 11))])) for column in (3, 4)]
        made["bounds"] += "\nStandard deviation along a bound, mean of the three: " \
                          "{:.2f} (the paper's figures: {:.2f}).\n".format(*along)

    lines = [[f"{share} %", str(len(ours)), said(ours)] for share, ours in semi(results)]
    made["semi"] = markdown_table(["images with masks", "runs", "mIoU"], lines)

    lines = [[ROWS[name].title + suffix, "val"] + [miou(column) for column in zip(*some)] + [miou(some)]
             for name in SYSTEMS for kind, suffix in (("", ""), ("heads", " w/ CRF"))
             for some in [[r["iou"][kind] for r in results if r["row"] == name and kind in r["iou"]]] if some]
    made["classes"] = markdown_table(["IoU", "set"] + [SHORT.get(name, name) for name in VOC_CLASSES] + ["mIoU"], lines)
    return made


def semi(results):
    """(percent of the images with masks, mIoU of every run), of those that are done."""
    rows = {0: "tags", **{share: f"semi_{share}" for share in SHARES}, 100: "full"}
    found = {share: mious(results, name) for share, name in rows.items()}
    return [(share, ours) for share, ours in found.items() if ours]


def draw(results, path):
    """mIoU against the share of images with masks: the supplement's curve (IV)."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    figure, axis = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
    points = semi(results)
    shares = [share for share, _ in points]
    axis.plot(shares, [np.mean(ours) for _, ours in points], color="#1f5fa8", linewidth=1.5)
    for share, ours in points:
        axis.plot([share] * len(ours), ours, "o", color="#1f5fa8", markersize=4)
    axis.set(xlabel="images with masks, %", ylabel="mIoU", xticks=shares)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", alpha=0.3)
    with whole_file(path) as part:
        figure.savefig(part, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    command.run(main)
