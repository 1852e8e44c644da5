"""A training with Caffe and with PyTorch, in turn on the same data: seconds per step, and the most memory.

Both write a line into the log when they have a step's gradients: what a run needs from the second line to the last
belongs to the steps between.
"""
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bench_training import draw_features, draw_voc
from tqdm import tqdm

from ccnn.nets.caffe_files import write_caffemodel
from ccnn.nets.prototxt import nets
from ccnn.nets.solvers import solver_texts
from ccnn.nets.weights import convolutions

REPOSITORY = Path(__file__).resolve().parents[1]

ENGINES = {             # {name: (command, options)}
    "Caffe": ([REPOSITORY / "tools/train.py"], []),
    "PyTorch": ([Path(sys.executable).with_name("ccnn"), "train"], ["--engine", "torch", "--device", "cpu"]),
    "PyTorch, bf16": ([Path(sys.executable).with_name("ccnn"), "train"],
                      ["--engine", "torch", "--device", "cpu", "--precision", "bf16"]),
}

LOSS = re.compile(r"Iteration \d+ \(.*\), loss = (\S+)")

ROUNDS = 2

NETS = {                # {solver: (what it is, steps that are measured, limit: PyTorch's share of Caffe's time)}
    "head_tags": ("linear head, tags, 4 images", 100, 0.5),
    "head_full": ("linear head, masks, 4 images", 100, 0.5),
    "ccnn_tags": ("VGG-16 8s, 321 x 321", 1, 1.0),
}


class Run(NamedTuple):
    cpu: float          # seconds per step, of all its processes
    wall: float         # seconds per step
    memory: int         # bytes, the most of one of its processes
    loss: float         # of the last step


def report(folder, quick):
    """Markdown lines."""
    load, rows, met = os.getloadavg()[0], [], []
    for name in ["head_tags"] if quick else NETS:
        what, steps, limit = NETS[name]
        solver, weights = prepare(folder / name, name)
        runs = {engine: [] for engine in ENGINES}
        for _ in tqdm(range(1 if quick else ROUNDS), desc=name, unit="round", leave=False):
            for engine, done in runs.items():
                done.append(run(folder / name, solver, weights, engine, 20 if quick else steps))
        found = {engine: Run(*map(min, zip(*done))) for engine, done in runs.items()}
        caffe, torch = found["Caffe"], found["PyTorch"]
        for engine, own in found.items():
            rows.append(f"| {what} | {engine} | {own.cpu:.3g} | {own.cpu / caffe.cpu:.2f} | {own.wall:.3g} | "
                        f"{own.wall / caffe.wall:.2f} | {own.memory / 1e9:.2f} | {own.loss:.4g} |")
        wall = verdict(torch.wall <= limit * caffe.wall) if load < 1 else "not judged: the machine is busy"
        met.append(f"- {what}: at most {limit:g} of Caffe's time: by CPU time {torch.cpu / caffe.cpu:.2f} "
                   f"({verdict(torch.cpu <= limit * caffe.cpu)}), by wall time {torch.wall / caffe.wall:.2f} ({wall}); "
                   f"no more memory: {verdict(torch.memory <= caffe.memory)}.")
    return ["## Engines", "", "A step of `ccnn train` with each engine, in turn, from the same weights: CPU time of "
            f"all threads and processes and wall time, the least of {ROUNDS} rounds, start-up not counted; the most "
            "memory of one process; the loss of the last step, in which dropout differs. Wall times need a machine "
            f"that has nothing else to do: the load was {load:.1f} at the beginning and {os.getloadavg()[0]:.1f} at "
            f"the end, on {os.cpu_count()} cores. Threads that wait for each other there cost CPU time, too.", "",
            "| net | engine | CPU s a step | of Caffe's | wall s a step | of Caffe's | memory, GB | loss |",
            "|---|---|---|---|---|---|---|---|", *rows, "", *met, "",
            "PyTorch itself, loaded, takes most of the memory beside a head.", ""]


def verdict(met):
    return "met" if met else "NOT MET"


def prepare(folder, name):
    """A solver on drawn data, and weights to begin with."""
    folder.mkdir()
    if name.startswith("head"):
        data = draw_features(folder)
    else:
        draw_voc(folder / "voc", (321, 321) if name == "ccnn_tags" else (168, 224), 8)
        data = {"root": str(folder / "voc")}
    net = nets()[name]
    for key, value in data.items():
        net = re.sub(rf'"{key}": "[^"]*"', f'"{key}": {json.dumps(value)}', net, count=1)
    (folder / "net.prototxt").write_text(net)
    text = re.sub(r"^(net|snapshot|display|average_loss):.*\n", "", solver_texts()[name], flags=re.M)
    (folder / "solver.prototxt").write_text(
        text + f'net: "{folder}/net.prototxt"\nsnapshot: 0\nsnapshot_after_train: false\ndisplay: 1\naverage_loss: 1\n')
    rng, shapes = np.random.default_rng(0), convolutions(folder / "net.prototxt")
    write_caffemodel(folder / "first.caffemodel", {
        layer: [rng.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape), np.zeros(shape[0])]
        for layer, shape in shapes.items()})
    return folder / "solver.prototxt", folder / "first.caffemodel"


def run(folder, solver, weights, engine, steps):
    """A training of so many steps after the gradients of its second; short steps do not end with the process."""
    (command, options), prefix = ENGINES[engine], folder / re.sub(r"\W+", "_", engine)
    log, seen = Path(f"{prefix}.log"), {}           # {losses in the log: (CPU seconds, clock, bytes) when first seen}
    log.unlink(missing_ok=True)
    words = [*command, solver, "--weights", weights, *options, "--set", f"max_iter={steps + 2 + steps // 5}", "--set",
             f"snapshot_prefix={prefix}"]
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        losses = len(LOSS.findall(log.read_text())) if log.exists() else 0
        if losses not in seen:
            cpu, memory = usage(process.pid)
            seen[losses] = cpu, time.perf_counter(), memory
        time.sleep(0.01)
    if process.returncode:
        raise SystemExit(f"{engine}: ended with status {process.returncode}; {log.read_text()[-500:]}")
    first, last = min(key for key in seen if key >= 2), max(key for key in seen if key <= steps + 2)
    cpu, wall, _ = np.subtract(seen[last], seen[first]) / (last - first)
    return Run(cpu, wall, seen[last][2], float(LOSS.findall(log.read_text())[steps + 1]))


def usage(pid):
    """(CPU seconds of a process and all that it has started, the most memory that one of them has had)"""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, TypeError):              # it has ended, or is no program
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            peak = re.search(r"VmHWM:\s*(\d+) kB", (path / "status").read_text())[1]
            parents[path.name], used[path.name] = fields[1], (sum(map(int, fields[11:15])), 1024 * int(peak))
    tree = {str(pid)}
    for _ in range(4):                                                  # generations
        tree |= {child for child, parent in parents.items() if parent in tree}
    ticks, peaks = zip(*(used[one] for one in tree if one in used))
    return sum(ticks) / os.sysconf("SC_CLK_TCK"), max(peaks)
