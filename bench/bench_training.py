#!/usr/bin/env python3
"""Time what the loss layers and the data layers cost in training, on the CPU.

    bench/bench_training.py                # three tables, two to three minutes on two cores
    bench/bench_training.py --quick        # a few repetitions and no VGG-16: does it run?
    bench/bench_training.py --out docs/    # also write docs/bench_training.md

1. every loss layer, forward + backward of one image at 63 x 63 x 21, against one plain NumPy softmax of the same blob
2. one iteration of VGG-16 8s at 321 x 321: the share of the loss layer and of the data layer
3. the frozen-backbone recipe: iterations per second, and the same shares

No data set is needed: images are drawn, weights and features are random.
"""
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import clock, machine, publish
from PIL import Image
from scipy import ndimage
from tqdm import tqdm

from ccnn._util.paths import ROOT
from ccnn.cli import command
from ccnn.data.samples import FeatureSamples, Samples
from ccnn.images.labels import LABELS, indexed
from ccnn.inference.caffe_net import load_caffe
from ccnn.nets.backbones import DEFAULT

SIDE = 63

LIMIT = 1.5                 # softmaxes that CCNN's loss from tags may cost

DATA_LIMIT = 0.02           # of a VGG-16 iteration, for reading and decoding

CCNN = "constrained_loss", "ConstrainedLossLayer"

LOSSES = {                  # layer, its param_str, its bottoms after the scores
    "CCNN, tags": (CCNN, {"supervision": "tags"}, ["tags"]),
    "CCNN, tags, with diagnostics": (CCNN, {"supervision": "tags"}, ["tags"]),
    "CCNN, size": (CCNN, {"supervision": "size"}, ["tags", "sizes"]),
    "CCNN, boxes": (CCNN, {"supervision": "boxes"}, ["boxes"]),
    "CCNN, tags and mask": (CCNN, {"supervision": "tags"}, ["tags", "labels"]),
    "EM-Adapt": (("baseline_losses", "EMAdaptLossLayer"), {}, ["tags"]),
    "MIL-FCN": (("baseline_losses", "MILFCNLossLayer"), {}, ["tags"]),
    "MIL-Base": (("baseline_losses", "MILBaseLossLayer"), {}, ["tags"]),
}


def image(rng):
    """{blob: array} of one image: smooth random scores of standard deviation 0.1 to 5, one to five tags."""
    scores = ndimage.gaussian_filter(rng.normal(size=(1, LABELS, SIDE, SIDE)), (0, 0, 4, 4))
    scores *= rng.choice([0.1, 0.5, 1, 2, 5]) / scores.std()
    tags, sizes = np.zeros((2, 1, LABELS))
    shown = rng.choice(np.arange(1, LABELS), rng.integers(1, 6), replace=False)
    tags[0, 0] = tags[0, shown] = 1
    sizes[0, shown[:2]] = 1
    boxes, labels = np.full((1, len(shown), 5), -1.0), np.zeros((1, 1, SIDE, SIDE))
    for j, label in enumerate(shown):
        (y0, x0), (height, width) = rng.integers(0, SIDE // 2, 2), rng.integers(4, SIDE // 2, 2)
        boxes[0, j] = label, y0, x0, y0 + height, x0 + width
        labels[0, 0, y0:y0 + height, x0:x0 + width] = label
    return dict(scores=scores, tags=tags, sizes=sizes, boxes=boxes, labels=labels)


def softmax(f):
    """Over axis 1, the plain way."""
    e = np.exp(f - f.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def loss_net(caffe, folder, layer, settings, bottoms, diagnostics):
    shapes = {"scores": (1, LABELS, SIDE, SIDE), "tags": (1, LABELS), "sizes": (1, LABELS), "boxes": (1, 1, 5),
              "labels": (1, 1, SIDE, SIDE)}
    text = "force_backward: true\n"
    for name in ["scores", *bottoms]:
        shape = " ".join(f"dim: {d}" for d in shapes[name])
        text += f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {shape} }} }} }}\n'
    blobs = " ".join(f'bottom: "{b}"' for b in ["scores", *bottoms]) + ' top: "loss" loss_weight: 1 '
    blobs += 'top: "diagnostics" loss_weight: 0 ' * diagnostics
    text += (f'layer {{ name: "loss" type: "Python" {blobs} '
             f"python_param {{ module: \"{layer[0]}\" layer: \"{layer[1]}\" param_str: '{json.dumps(settings)}' }} }}")
    path = Path(folder) / "loss.prototxt"
    path.write_text(text)
    return caffe.Net(str(path), caffe.TRAIN)


def loss_table(caffe, folder, images, turns):
    """Markdown lines; layer and softmax take turns on every image, so that noise hits both alike."""
    rng = np.random.default_rng(1)
    problems = [image(rng) for _ in range(images)]
    lines = ["| loss layer, forward + backward | median us | p95 us | softmaxes (median) | limit |",
             "|---|---|---|---|---|"]
    softmaxes = []
    for name, (layer, settings, bottoms) in LOSSES.items():
        net = loss_net(caffe, folder, layer, settings, bottoms, "diagnostics" in name)
        last = len(net.layers) - 1
        own, plain = np.zeros((2, images, turns))
        for k, problem in enumerate(tqdm(problems, desc=name, unit="image", leave=False)):
            for blob in ["scores", *bottoms]:
                net.blobs[blob].reshape(*problem[blob].shape)
                net.blobs[blob].data[...] = problem[blob]
            f = net.blobs["scores"].data
            net.forward()
            for turn in range(turns):       # the layer alone: net.forward() also looks up names
                plain[k, turn] = clock(softmax, f)[0]
                own[k, turn] = clock(net._forward, last, last)[0] + clock(net._backward, last, last)[0]
        own, plain = 1e6 * own.min(axis=1), 1e6 * plain.min(axis=1)     # the least disturbed of the turns
        softmaxes.extend(plain)
        ratio = np.median(own / plain)
        limit = f"{LIMIT}: {'met' if ratio <= LIMIT else 'NOT MET'}" if name == "CCNN, tags" else ""
        lines.append(f"| {name} | {np.median(own):.0f} | {np.percentile(own, 95):.0f} | {ratio:.2f} | {limit} |")
    lines.append(f"| one plain NumPy softmax | {np.median(softmaxes):.0f} | {np.percentile(softmaxes, 95):.0f} | 1 | |")
    return lines


def draw_voc(root, size, images, labels=LABELS):
    """A VOC folder of smooth noise with rectangles of random classes."""
    rng = np.random.default_rng(2)
    for name in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (root / name).mkdir(parents=True)
    ids = [f"{k:06d}" for k in range(images)]
    for id in ids:
        rgb = ndimage.gaussian_filter(rng.normal(size=(*size, 3)), (2, 2, 0))
        Image.fromarray(np.uint8(np.clip(128 + 300 * rgb, 0, 255))).save(root / f"JPEGImages/{id}.jpg", quality=90)
        mask = np.zeros(size, np.uint8)
        for label in rng.choice(np.arange(1, labels), 2, replace=False):
            y, x = rng.integers(0, np.array(size) // 2)
            mask[y:y + size[0] // 2, x:x + size[1] // 2] = label
        indexed(mask).save(root / f"SegmentationClass/{id}.png")
    for split in ("train", "train_aug"):
        (root / f"ImageSets/Segmentation/{split}.txt").write_text("\n".join(ids) + "\n")
    return ids


def draw_features(folder, height=168, width=224, images=16):
    """Images of VOC's size as tools/cache_features.py reduces them, and random features: the settings to find them."""
    ids = draw_voc(folder / "voc", (height, width), images)
    (folder / "features").mkdir()
    (folder / "features/index.json").write_text(json.dumps({"size": width}))
    rng = np.random.default_rng(3)
    shape = DEFAULT.channels, DEFAULT.cells(height), DEFAULT.cells(width)
    for id in ids:
        np.save(folder / f"features/{id}.npy", np.maximum(rng.normal(0, 2, shape), 0).astype(np.float16))
    return {"root": str(folder / "voc"), "features": str(folder / "features")}


def make_solver(caffe, folder, name, settings):
    """The solver of that name on drawn data: (solver, images per step, settings of the data layer)."""
    from caffe.proto import caffe_pb2
    from google.protobuf import text_format
    solver, net = caffe_pb2.SolverParameter(), caffe_pb2.NetParameter()
    text_format.Merge((ROOT / f"solvers/{name}.prototxt").read_text(), solver)
    text_format.Merge((ROOT / solver.net).read_text(), net)
    data = net.layer[0].python_param
    data.param_str = json.dumps({**json.loads(data.param_str), **settings})
    solver.net, solver.snapshot_prefix = str(folder / "net.prototxt"), str(folder / "snapshot")
    solver.snapshot = solver.display = 0
    (folder / "net.prototxt").write_text(str(net))
    (folder / "solver.prototxt").write_text(str(solver))
    return caffe.get_solver(str(folder / "solver.prototxt")), max(1, solver.iter_size), data.param_str


class Stopwatch:
    """Adds up the seconds spent in a layer class's methods."""

    def __init__(self, layer):
        self.seconds = 0.0
        for name in ("reshape", "forward", "backward"):
            setattr(layer, name, self.timed(getattr(layer, name)))

    def timed(self, method):
        def run(*arguments):
            start = time.perf_counter()
            method(*arguments)
            self.seconds += time.perf_counter() - start
        return run


def iteration_table(caffe, folder, name, settings, steps, watches, reader):
    """(Markdown lines, seconds per step, images per step, share of the data): a training step and the shares in it."""
    solver, images, data = make_solver(caffe, folder, name, settings)
    solver.step(1)                          # memory is allocated in the first
    for watch in watches.values():
        watch.seconds = 0.0
    start, work = time.perf_counter(), time.process_time()
    for _ in tqdm(range(steps), desc=name, unit="step", leave=False):
        solver.step(1)
    seconds, work = (time.perf_counter() - start) / steps, (time.process_time() - work) / steps
    samples = reader(data)
    decode = np.median([clock(samples.__getitem__, t)[0] for t in range(len(samples))]) * images
    parts = {what: watch.seconds / steps for what, watch in watches.items()}
    parts["reading and decoding, in the data layer's own process"] = decode
    lines = [f"| {name} | seconds | share |", "|---|---|---|",
             f"| one iteration ({images} image{'s' * (images > 1)}) | {seconds:.3g} | |",
             f"| its CPU time, all threads together | {work:.3g} | {work / seconds:.0%} |"]
    lines += [f"| {what} | {part:.2g} | {part / seconds:.3%} |" for what, part in parts.items()]
    return lines, seconds, images, max(decode, parts["data layer"]) / seconds


def loss_report(caffe, folder, quick):
    """Markdown lines on every loss layer."""
    images, turns = (4, 5) if quick else (40, 15)
    return [f"One image, {SIDE} x {SIDE} x {LABELS}, float32. Layer and softmax run in turn on the same blob, {turns} "
            f"times for each of {images} images; CPU time of the thread, the least of each image:", "",
            *loss_table(caffe, folder, images, turns), ""]


def whole_net_report(caffe, folder, watches):
    """Markdown lines on an iteration of VGG-16."""
    draw_voc(folder / "square", (321, 321), 8)
    lines, _, _, share = iteration_table(caffe, folder, "ccnn_tags", {"root": str(folder / "square")}, 2, watches,
                                         Samples)
    met = "met" if share <= DATA_LIMIT else "NOT MET"
    return ["VGG-16 8s, 321 x 321 (`solvers/ccnn_tags.prototxt`), wall time:", "", *lines, "",
            f"Limit for reading and decoding: {DATA_LIMIT:.0%}, {met}.", ""]


def frozen_backbone_report(caffe, folder, watches, steps):
    """Markdown lines on an iteration of a classifier on cached features."""
    lines, seconds, images, _ = iteration_table(caffe, folder, "head_size", draw_features(folder), steps, watches,
                                                FeatureSamples)
    return ["Frozen-backbone recipe, features of 224 x 168 images (`solvers/head_size.prototxt`), wall time:",
            "", *lines, "", f"{1 / seconds:.2f} iterations per second, {images / seconds:.1f} images per second.", ""]


def main(argv=None):
    parser = command.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="a few repetitions, no VGG-16")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write bench_training.md there")
    args = parser.parse_args(argv)
    report = ["# Training, measured", "", f"`bench/bench_training.py --out docs/{' --quick' * args.quick}`", "",
              f"{machine()}; load {os.getloadavg()[0]:.1f} before the start", ""]
    caffe = load_caffe()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        report += loss_report(caffe, folder, args.quick)

        from constrained_loss import ConstrainedLossLayer
        from voc_data import VOCDataLayer
        watches = {"loss layer": Stopwatch(ConstrainedLossLayer), "data layer": Stopwatch(VOCDataLayer)}
        if not args.quick:
            report += whole_net_report(caffe, folder, watches)
        report += frozen_backbone_report(caffe, folder, watches, steps=2 if args.quick else 10)
    publish("\n".join(report), args.out, "bench_training.md")


if __name__ == "__main__":
    command.run(main)
