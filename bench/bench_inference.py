#!/usr/bin/env python3
"""Measure inference: the net alone in every engine and in a peer, tools/infer.py, and an older version.

    bench/bench_inference.py                        # drawn photographs, 500 x 375
    bench/bench_inference.py --images holiday/      # your own
    bench/bench_inference.py --old ../ccnn-0.1      # also an older checkout with its Caffe, in turn with this one
    bench/bench_inference.py --net-alone            # the first table alone: CPU time holds on a busy machine, too
    bench/bench_inference.py --quick                # three small photographs, random weights, one job: does it run?
    bench/bench_inference.py --out docs             # also write docs/bench_inference.md

The net is that of the model in models/, whose backbone is fetched once. CPU-seconds are what the processor spent;
images per second also depend on its other work. The peer is OpenVINO, if requirements/openvino.txt is installed.
"""
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measure import machine, publish
from PIL import Image
from scipy.ndimage import gaussian_filter
from tqdm import tqdm

from ccnn._util.errors import UserError
from ccnn._util.paths import ROOT
from ccnn.cli import command
from ccnn.crf.dense import LONG_SIDE
from ccnn.images.labels import VOC_CLASSES
from ccnn.images.listing import find_photographs
from ccnn.inference.caffe_net import load_caffe
from ccnn.inference.engines import ENGINES
from ccnn.inference.model_file import write_model
from ccnn.inference.predict import NET, find_model
from ccnn.nets.caffe_files import read_caffemodel, write_caffemodel
from ccnn.nets.cues import DEFAULT
from ccnn.project.learn import RECIPE

SIZE = 321              # long side that the net sees


def main(argv=None):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--images", type=Path, metavar="DIR", help="photographs to use (default: drawn ones)")
    add("--count", type=command.count, default=24, metavar="N", help="how many (default: %(default)s)")
    add("--old", type=Path, metavar="DIR", help="a checkout of an older version, with its .caffe, to compare with")
    add("--quick", action="store_true", help="three small photographs, random weights, one job")
    add("--net-alone", action="store_true", help="the first table alone, printed")
    add("--out", type=Path, metavar="DIR", help="write bench_inference.md there")
    args = parser.parse_args(argv)
    if args.old and not (args.old / ".caffe/bin/python").exists():
        raise UserError(f"--old {args.old}: has no .caffe/bin/python; run `make` there first")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        count, height, width = (3, 45, 60) if args.quick else (args.count, 375, 500)
        photographs = choose(args.images, count) if args.images else draw(folder / "photographs", count, height, width)
        task = Task(write_net(folder), random_weights(folder) if args.quick else shipped_weights(folder), photographs)
        rounds = 1 if args.quick else 3
        if args.net_alone:
            return print("\n".join([machine(), *net_lines(task, rounds)]))
        lines = [
            "# Inference, measured", "",
            f"`bench/bench_inference.py`{' on photographs of our own' if args.images else ''}. {machine()}", "",
            f"{len(photographs)} photographs, net at {SIZE} pixels, CRF at {LONG_SIDE}. Start-up is not counted.",
            *net_lines(task, rounds),
            *tool_lines(task, *(((1,), 1) if args.quick else ((1, 2), 2))),
            *cue_lines(task, rounds=1 if args.quick else 3),
            *(old_lines(task, args.old, *((1, 1) if args.quick else (2, 3))) if args.old else [])]
    publish("\n".join(lines), args.out, "bench_inference.md")


class Task(NamedTuple):
    """What is measured."""
    net: Path
    weights: Path
    photographs: list


class Cost(NamedTuple):
    wall: float         # seconds
    cpu: float          # seconds, of all processes


def net_lines(task, rounds):
    """The net alone, in a process of its own, on one thread. The engines take turns; the fastest round counts."""
    peers = [name for name in ("openvino",) if importlib.util.find_spec(name)]
    found = {engine: [] for engine in (*ENGINES, *peers)}
    for _ in tqdm(range(rounds), desc="the net alone", disable=None):
        for engine, runs in found.items():
            done = subprocess.run([sys.executable, ROOT / "bench/net_alone.py", engine, str(SIZE), task.net,
                                   task.weights, *task.photographs], stdout=subprocess.PIPE, check=True)
            runs.append(json.loads(done.stdout))
    best = {engine: [min(one[key] for one in runs) for key in ("seconds", "megabytes")]
            for engine, runs in found.items()}
    caffe = best["caffe"]
    sizes = {engine: runs[0]["scores"] for engine, runs in found.items()}
    if not np.allclose(list(sizes.values()), sizes["caffe"], rtol=1e-3):
        raise UserError(f"the engines do not agree: mean |score| {sizes}")
    yield from ["", "## The net alone, one thread", "",
                "| engine | CPU-seconds per image | Caffe's / this | peak memory, MB | of Caffe's |",
                "|---|---|---|---|---|"]
    for engine, (seconds, megabytes) in best.items():
        yield (f"| {engine} | {seconds:.3f} | {caffe[0] / seconds:.2f} | {megabytes:.0f} | "
               f"{megabytes / caffe[1]:.2f} |")
    yield from ["", "`kernels` are our convolutions, and ONNX Runtime behind them; `onnx` is ONNX Runtime alone, our "
                "kernels switched off. All compute in float32, OpenVINO too. The load of the machine was "
                f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.", "",
                "Required of our kernels: at least 1.6 times as fast, less than half of the memory."]


def tool_lines(task, jobs, rounds):
    """tools/infer.py with and without CRF."""
    yield from ["", "## tools/infer.py, masks and overlays written", "",
                "| CRF | engine | jobs | images / s | CPU-seconds per image |", "|---|---|---|---|---|"]
    for crf in (None, "authors"):
        for engine in ("caffe", "kernels"):
            rates = []
            for n in jobs:
                cost = per_image(task, n, [two_runs(task, ROOT, n, crf, "--engine", engine) for _ in range(rounds)])
                rates.append(1 / cost.wall)
                yield f"| {crf or 'no'} | {engine} | {n} | {rates[-1]:.2f} | {cost.cpu:.2f} |"
            if len(rates) > 1:
                yield f"| {crf or 'no'} | {engine} | {jobs[-1]} / {jobs[0]} | {rates[-1] / rates[0]:.2f} times | |"
    yield from ["", "Required of our kernels: two jobs at least 1.8 times as fast as one, on two cores that have "
                "nothing else to do."]


def cue_lines(task, rounds):
    """A model with a cue, with and without it in turn, on one thread."""
    model = task.net.with_name("cue.ccnn")
    write_model(model, task.net, task.weights, VOC_CLASSES, SIZE, {
        "cue": {"name": DEFAULT.name, "exponent": RECIPE.exponent, "surfaces": []}})
    found = {"none": [], "cue": []}
    for _ in tqdm(range(rounds), desc="cue", disable=None):
        for name, runs in found.items():
            runs.append(two_runs(task, ROOT, 1, None, "--no-overlay", *(["--cue", "none"] if name == "none" else []),
                                 model=model))
    none, cue = (per_image(task, 1, runs).cpu for runs in found.values())
    yield from ["", f"## The cue {DEFAULT.name} at {DEFAULT.size} pixels; no CRF, no overlays, one job, in turn", "",
                "| cue | CPU-seconds per image | of none |", "|---|---|---|",
                f"| none | {none:.2f} | 1.00 |", f"| {DEFAULT.name} | {cue:.2f} | {cue / none:.2f} |", "",
                "Required: at most 2 times."]


def old_lines(task, old, jobs, rounds):
    """This version and an older one in turn, with CRF."""
    found = {"older": [], "this": []}
    for _ in tqdm(range(rounds), desc="old and new", disable=None):
        for version, checkout in zip(found, (old, ROOT)):
            found[version].append(two_runs(task, checkout, jobs, "authors"))
    costs = {version: per_image(task, jobs, rounds) for version, rounds in found.items()}
    yield from ["", f"## Against an older version, with CRF, {jobs} jobs, in turn", "",
                "| version | images / s | CPU-seconds per image |", "|---|---|---|"]
    for version, cost in costs.items():
        yield f"| {version} | {1 / cost.wall:.2f} | {cost.cpu:.2f} |"
    yield from ["", f"{costs['older'].wall / costs['this'].wall:.2f} times the images per second, "
                f"{costs['older'].cpu / costs['this'].cpu:.2f} times less CPU time (required: 2.5 times the images)."]


def per_image(task, jobs, rounds):
    """The cost of one photograph. rounds : [(start-up, all)], of which the cheapest of each counts: what a busy machine
    adds to one start-up is as much as several photographs take."""
    start, whole = np.min(rounds, axis=0)
    return Cost(*(whole - start) / (len(task.photographs) - jobs))


def two_runs(task, checkout, jobs, crf, *options, model=None):
    """What tools/infer.py of a checkout takes: (on one photograph per job, which is start-up; on all of them).

    model : a .ccnn in place of the task's net and weights
    """
    costs = []
    chosen = ["--model", model] if model else ["--net", task.net, "--weights", task.weights, "--size", str(SIZE)]
    for some in (task.photographs[:jobs], task.photographs):
        with tempfile.TemporaryDirectory(dir=task.net.parent) as out:
            begin, spent = time.perf_counter(), children_seconds()
            subprocess.run([checkout / ".caffe/bin/python", checkout / "tools/infer.py", *chosen, "--out", out,
                            "--jobs", str(jobs), *options, *(["--crf", crf] if crf else []), *some],
                           stdout=subprocess.DEVNULL, check=True)
            costs.append(Cost(time.perf_counter() - begin, children_seconds() - spent))
    return costs


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def choose(folder, count):
    found = find_photographs([str(folder)], None, folder / "out").photographs[:count]
    if len(found) < 3:
        raise UserError(f"{folder}: holds {len(found)} photographs, need 3 or more")
    return [path for path, _ in found]


def draw(folder, count, height, width):
    """Clouds of colour with fine noise: as many different colours as a photograph has."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    paths = []
    for k in range(max(count, 3)):
        rgb = sum(gaussian_filter(rng.normal(size=(height, width, 3)), (s, s, 0)) * s * w
                  for s, w in ((40, 9), (8, 4), (1, 2)))
        paths.append(folder / f"{k}.jpg")
        Image.fromarray((rgb * 8 + 120).clip(0, 255).astype(np.uint8)).save(paths[-1], quality=92)
    return paths


def write_net(folder):
    """Another path than the default net's, because the weights hold the backbone."""
    net = folder / "net.prototxt"
    net.write_text(NET.read_text())
    return net


def random_weights(folder):
    caffe = load_caffe()
    caffe.set_random_seed(1)
    caffe.Net(str(NET), caffe.TEST).save(str(folder / "random.caffemodel"))
    return folder / "random.caffemodel"


def shipped_weights(folder):
    """Backbone and head of the model in models/ as one file, which every version reads."""
    arrays = {}
    with find_model(cue=False).opened() as (_, files):
        for path in files:
            arrays.update(read_caffemodel(path))
    write_caffemodel(folder / "shipped.caffemodel", arrays)
    return folder / "shipped.caffemodel"


if __name__ == "__main__":
    command.run(main)
