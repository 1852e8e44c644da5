"""Trainings of the same solver with Caffe and with PyTorch, which never share a process: they meet in files."""
import json
import re
import subprocess
from pathlib import Path

import numpy as np
from tiny_voc import make_voc
from training_runs import workplace

from ccnn.data.background_shares import write_shares
from ccnn.nets.backbones import VGG16
from ccnn.nets.caffe_files import read_caffemodel, write_caffemodel
from ccnn.nets.weights import convolutions
from ccnn.training.caffe_log import read_log

NARROW = {64: 4, 128: 5, 256: 6, 512: 7, 1024: 8, 4096: 9}         # outputs of a layer, in a test
SIZE = 41, 33

# runs in Caffe's Python: {"folder", "runs": {name: [solver, weights or snapshot, steps]}}
CAFFE = """
import json, os, sys
orders = json.loads(sys.argv[1])
os.chdir(orders["folder"])
os.environ.update(GLOG_logtostderr="1", GLOG_minloglevel="0", CCNN_START_ITERATION=str(orders["first"]))
import caffe
for name, (path, start, steps) in orders["runs"].items():
    print("RUN", name, file=sys.stderr, flush=True)
    caffe.set_random_seed(1)
    solver = caffe.get_solver(path)
    solver.restore(start) if start.endswith(".solverstate") else solver.net.copy_from(start)
    solver.step(steps)
    solver.snapshot()
"""


def make_place(folder):
    """A folder in which the solvers of the repository run: narrow nets, tiny images, no dropout."""
    workplace(folder)
    root = make_voc(folder / "data/VOCdevkit/VOC2012", size=SIZE, images=6)
    ids = [path.stem for path in sorted((root / "JPEGImages").iterdir())]
    write_shares(folder / "data/shares.csv", {id: 0.7 for id in ids})
    for blob, (channels, fewer) in VGG16.blobs.items():
        cache = folder / "data" / blob
        cache.mkdir()
        (cache / "index.json").write_text(json.dumps({"size": 321, "blob": blob}))
        for number, id in enumerate(ids):
            shape = channels, VGG16.cells(SIZE[1]) - fewer, VGG16.cells(SIZE[0]) - fewer
            values = np.random.default_rng(number).exponential(size=shape)
            np.save(cache / f"{id}.npy", values.astype(np.float16))
    for net in (folder / "prototxt").iterdir():
        net.write_text(narrowed(re.sub(r"layer \{[^{}]*type: \"Dropout\".*?\n\}\n", "", net.read_text(), flags=re.S)))
    return folder


def narrowed(text):
    """A net with few channels, for tiny images."""
    text = re.sub(r"num_output: (\d+)", lambda m: f"num_output: {NARROW.get(int(m[1]), m[1])}", text)
    return text.replace('"crop": 321', '"crop": 25').replace('"crop": 144', '"crop": 24') \
        .replace('"supervised": 1058', '"supervised": 2')


def write_solver(folder, name, prefix, **changes):
    """A solver of the repository with other settings, in a file of its own; its path, from the folder."""
    text = (folder / f"solvers/{name}.prototxt").read_text()
    changes = {"display": 1, "average_loss": 1, "snapshot": 0, "snapshot_prefix": f'"snapshots/{prefix}"', **changes}
    for key, value in changes.items():
        text = re.sub(rf"^{key}:.*\n", "", text, flags=re.M) + f"{key}: {value}\n"
    (folder / f"solvers/{prefix}.prototxt").write_text(text)
    return f"solvers/{prefix}.prototxt"


def first_weights(folder, net, name=None):
    """Random weights for a net, of a scale at which every layer's gradient is felt; the path of the .caffemodel."""
    rng, path = np.random.default_rng(0), folder / f"data/{name or net}.caffemodel"
    shapes = convolutions(folder / f"prototxt/{net}.prototxt")
    scale = {name: (2 / np.prod(shape[1:])) ** 0.5 / (64 if name == "conv1_1" else 1) for name, shape in shapes.items()}
    write_caffemodel(path, {name: [rng.normal(0, scale[name], shape), rng.normal(0, 0.1, shape[:1])]
                            for name, shape in shapes.items()})
    return str(path.relative_to(folder))


def run_caffe(python, folder, runs, first=0):
    """{name: losses} of trainings in one process of Caffe; first: number of the first sample."""
    orders = json.dumps({"folder": str(folder), "runs": runs, "first": first})
    done = subprocess.run([python, "-c", CAFFE, orders], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    losses, logs = {}, Path(folder, "snapshots")
    for part in done.stderr.split("RUN ")[1:]:
        name, _, text = part.partition("\n")
        (logs / f"{name}.caffe.log").write_text(text)
        losses[name] = read_log(logs / f"{name}.caffe.log").loss
    return losses


def change(folder, start, end):
    """(largest change of a weight, {layer: arrays}) from one .caffemodel to another."""
    before, after = (read_caffemodel(folder / path) for path in (start, end))
    return {name: [new - old for new, old in zip(after[name], before[name])] for name in before}


def distance(one, other):
    """The largest difference of two changes, relative to the largest change."""
    largest = max(np.abs(array).max() for arrays in one.values() for array in arrays)
    return max(np.abs(x - y).max() for name in one for x, y in zip(one[name], other[name])) / largest, largest
