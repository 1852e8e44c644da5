#!/usr/bin/env python3
"""Time training on many processes: one process against two ranks of MPI, and the Allreduce alone. `make mpi` first.

    bench/bench_mpi.py                # about five minutes on two quiet cores
    bench/bench_mpi.py --quick        # a few steps, without VGG-16: does it run?
    bench/bench_mpi.py --out docs/    # also write the page there

No data set is needed: images are drawn, weights and features are random.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from bench_training import draw_features, draw_voc
from measure import machine, publish

from ccnn._util.errors import UserError
from ccnn._util.paths import ROOT
from ccnn.cli import command
from ccnn.inference.caffe_net import load_caffe
from ccnn.nets.caffe_files import parse_net, write_caffemodel
from ccnn.nets.prototxt import demo_nets, nets
from ccnn.nets.solvers import demo_solver, solvers, write
from ccnn.nets.weights import convolutions
from ccnn.training.ranks import LIBRARY

MPIEXEC = ROOT / ".caffe/mpi/bin/mpiexec"

STEP = re.compile(r"^I\d{4,8} (\d+):(\d+):([\d.]+) .*Iteration (\d+)[ ,].*loss = ", re.M)

GPU = 10e12             # operations per second that a GPU may reach here: assumed
PCI = 12e9              # bytes per second between a GPU and its machine: assumed
NETWORKS = {"10 Gbit/s": 1.25e9, "100 Gbit/s": 12.5e9}      # bytes per second, the whole of it: assumed


def draw_small(folder):
    """Images of the demonstration's size and classes."""
    draw_voc(folder / "demo", (96, 128), 16, labels=6)
    (folder / "demo/classes.txt").write_text("background\n1\n2\n3\n4\n5\n")
    return {"root": str(folder / "demo"), "classes": str(folder / "demo/classes.txt")}


def draw_large(folder):
    draw_voc(folder / "square", (321, 321), 4)
    return {"root": str(folder / "square")}


NETS = {        # what: (solver, how to draw its data, images per step, steps, those of --quick)
    "small net (demonstration)": ("demo_tags", draw_small, 4, 200, 5),
    "head on cached features": ("head_size", draw_features, 4, 40, 3),
    "VGG-16 8s, 321 x 321": ("ccnn_tags", draw_large, 2, 2, 0),
}


def prepare(folder, name, settings):
    """Write the net of a solver with other data, and random weights for it: the options of tools/train.py."""
    net = parse_net({**nets(), **demo_nets()}[name].encode(), name)
    data = net.layer[0].python_param
    data.param_str = json.dumps({**json.loads(data.param_str), **settings})
    (folder / "net.prototxt").write_text(str(net))
    rng = np.random.default_rng(4)
    weights = {layer: [rng.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape).astype(np.float32),
                       np.zeros(shape[0], np.float32)]
               for layer, shape in convolutions(folder / "net.prototxt").items()}
    write_caffemodel(folder / "weights.caffemodel", weights)
    (folder / "solver.prototxt").write_text(write(name, {**solvers(), "demo_tags": demo_solver("tags")}[name]))
    return [str(folder / "solver.prototxt"), "--weights", str(folder / "weights.caffemodel"),
            "--set", f"net={folder}/net.prototxt", "--set", "snapshot=0", "--set", "snapshot_after_train=false",
            "--set", "display=1"]


def seconds_per_step(folder, options, images, steps, ranks, threads):
    """Run tools/train.py; the mean time of a step, without the first, in which memory is allocated."""
    prefix = folder / f"{ranks}_{threads}"
    start = [str(MPIEXEC), "-n", str(ranks)] if ranks > 1 else []
    run = subprocess.run(
        [*start, sys.executable, str(ROOT / "tools/train.py"), *options, "--set", f"snapshot_prefix={prefix}", "--set",
         f"iter_size={images}", "--set", f"max_iter={steps + 1}"],
        env={**os.environ, "OPENBLAS_NUM_THREADS": str(threads)}, capture_output=True, text=True)
    if run.returncode:
        raise UserError(f"tools/train.py failed: {run.stderr.splitlines()[-1]}")
    found = {int(i): 3600 * int(h) + 60 * int(m) + float(s)
             for h, m, s, i in STEP.findall(Path(f"{prefix}.log").read_text())}
    return ((found[steps] - found[0]) % 86400) / steps


def training_table(quick):
    """(Markdown lines, {net: seconds per step of one process and of two ranks})"""
    lines = ["| net | images per step | one process, 1 thread | one process, 2 threads | 2 ranks, 1 thread each | "
             "2 ranks against 1 thread |", "|---|---|---|---|---|---|"]
    times = {}
    for what, (name, draw, images, steps, few) in NETS.items():
        steps = few if quick else steps
        if not steps:
            continue
        with tempfile.TemporaryDirectory() as folder:
            options = prepare(Path(folder), name, draw(Path(folder)))
            one, two, ranks = (seconds_per_step(Path(folder), options, images, steps, *shape)
                               for shape in ((1, 1), (1, 2), (2, 1)))
        times[what] = one, ranks
        lines.append(f"| {what} | {images} | {1 / one:.3g} it/s | {1 / two:.3g} it/s | {1 / ranks:.3g} it/s | "
                     f"{one / ranks:.2f} |")
    return lines, times


def allreduce(count, turns):
    """What a rank does with `count` gradients: the median seconds of copying there and back, and of the Allreduce."""
    from mpi4py import MPI
    comm, diff, sums = MPI.COMM_WORLD, np.ones(count, np.float32), np.empty(count, np.float32)
    times = []
    for _ in range(turns + 1):
        comm.Barrier()
        start = time.perf_counter()
        sums[:] = diff
        middle = time.perf_counter()
        comm.Allreduce(MPI.IN_PLACE, sums)
        end = time.perf_counter()
        np.divide(sums, comm.size, out=diff)
        times.append((middle - start + time.perf_counter() - end, end - middle))
    copying, reducing = np.median(times[1:], axis=0)        # memory is allocated in the first
    assert diff[0] == 1                                     # the mean of ones
    if comm.rank == 0:
        print(json.dumps([copying, reducing]))


def time_allreduce(count, turns):
    words = [sys.executable, Path(__file__).resolve(), "--allreduce", count, turns]
    run = subprocess.run([str(MPIEXEC), "-n", "2", *map(str, words)],
                         env={**os.environ, "MPI4PY_LIBMPI": str(LIBRARY)}, capture_output=True, text=True)
    if run.returncode:
        raise UserError(f"the Allreduce failed: {run.stderr.splitlines()[-1]}")
    return json.loads(run.stdout)


def operations(caffe):
    """Of one image in VGG-16 8s at 321 x 321: forward, and twice as many backward."""
    net = caffe.Net(str(ROOT / "prototxt/deploy_8s.prototxt"), caffe.TEST)
    net.blobs["data"].reshape(1, 3, 321, 321)
    net.reshape()
    cells = {name: np.prod(net.blobs[net.top_names[name][0]].shape[2:]) for name in net.params}
    return 3 * sum(2 * blobs[0].data.size * int(cells[name]) for name, blobs in net.params.items())


def ring(size, count, bandwidth):
    """Seconds of an Allreduce of `count` float32 over a ring: each rank sends and receives 2 (N - 1) / N of them."""
    return 2 * (size - 1) / size * 4 * count / bandwidth


def paper_table(flops, count, step, host):
    """step: measured seconds per image and thread; host: bytes per second of the measured Allreduce."""
    lines = ["| machine | images per step | computing | Allreduce and copies | images/s | of N times one |",
             "|---|---|---|---|---|---|"]
    one = flops / GPU
    exchange = ring(8, count, host) + 2 * 4 * count / PCI
    rows = [("8 GPUs in one machine, 1 image each", 8, one, exchange),
            ("the same, 8 images each", 64, 8 * one, exchange)]
    rows += [(f"16 nodes of one such thread each, {network}", 16, step, ring(16, count, bandwidth))
             for network, bandwidth in NETWORKS.items()]
    rows += [(f"16 nodes with a GPU each, 4 images each, {network}", 64, 4 * one,
              ring(16, count, bandwidth) + 2 * 4 * count / PCI) for network, bandwidth in NETWORKS.items()]
    for what, images, compute, reduce in rows:
        lines.append(f"| {what} | {images} | {compute:.3g} s | {reduce:.3g} s | {images / (compute + reduce):.3g} | "
                     f"{compute / (compute + reduce):.0%} |")
    return lines


def full_net_report(caffe, times, turns):
    """Markdown lines on the Allreduce at the size of the full net, and on machines that are not here."""
    shapes = convolutions(ROOT / "prototxt/ccnn_tags.prototxt").values()
    count = sum(int(np.prod(shape)) + shape[0] for shape in shapes)
    copying, reducing = time_allreduce(count, turns)
    host = ring(2, count, 1) / reducing
    lines = ["## The Allreduce at the size of the full net", "",
             f"VGG-16 8s has {count / 1e6:.1f} million weights: {4 * count / 1e6:.0f} MB per step and rank. Two ranks "
             f"on one machine, through shared memory, median of {turns}: Allreduce {reducing:.3f} s "
             f"({host / 1e9:.1f} GB/s per rank), copying the gradients there and back {copying:.3f} s."]
    large = next((times[what] for what in times if what.startswith("VGG")), None)
    if not large:
        return lines
    one, ranks = large
    lines += [f"A step of two ranks with one image each takes {ranks:.1f} s: the exchange is "
              f"{(copying + reducing) / ranks:.1%} of it.", "",
              "## On paper: not tried", "",
              "There was no GPU and no second machine. This table is arithmetic: T = computing + exchange, nothing "
              "overlaps. A ring Allreduce sends 2 (N - 1) / N of the gradients over the slowest connection. "
              f"An image costs {operations(caffe) / 1e12:.2f} million million operations, and a GPU is assumed to do "
              f"{GPU / 1e12:.0f} of them per second; between GPU and machine {PCI / 1e9:.0f} GB/s, because pycaffe "
              f"exchanges through the machine's memory; the thread is the measured one, {one / 2:.1f} s per image.", "",
              *paper_table(operations(caffe), count, one / 2, host), "",
              "The last column is the share of the time in which the ranks compute. It falls where an image is fast "
              "and the network slow: then give each rank more images per step (`--set iter_size=`). A step of more "
              "images is another training: the paper found one image per step best for its solver."]
    return lines


def main(argv=None):
    parser = command.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="a few steps, no VGG-16")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write bench_mpi.md there")
    parser.add_argument("--allreduce", nargs=2, type=command.count, metavar=("COUNT", "TURNS"),
                        help="what this program starts on two ranks: time the exchange of so many gradients")
    args = parser.parse_args(argv)
    if args.allreduce:
        return allreduce(*args.allreduce)
    if not MPIEXEC.exists():
        raise UserError(f"{MPIEXEC}: no such program; `make mpi` brings it")
    caffe = load_caffe()
    report = ["# Training on many processes, measured", "",
              f"`bench/bench_mpi.py --out docs/{' --quick' * args.quick}`", "",
              f"{machine()}; MPICH; load {os.getloadavg()[0]:.1f} before the start", "",
              "Steps per second of the same solver, the same images per step and the same weights. Each shape has been "
              "started with tools/train.py; the first step does not count.", ""]
    lines, times = training_table(args.quick)
    report += [*lines, "", *full_net_report(caffe, times, turns=2 if args.quick else 10), ""]
    publish("\n".join(report), args.out, "bench_mpi.md")
    return 0


if __name__ == "__main__":
    command.run(main)
