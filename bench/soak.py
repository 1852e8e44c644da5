#!/usr/bin/env python3
"""A long run of tools/infer.py on a cluster of this machine while a worker is killed every minute.

    bench/soak.py                                   # 20,000 photographs, two workers
    bench/soak.py --photographs 500 --every 5       # a short one

The photographs are drawn and the net is tiny, so that the right mask is known without it: red and green are planes over
the photograph, and so are the net's scores. Every mask is compared with that. The figures are printed and kept in
FOLDER/soak.json. The exit status is 1 if a mask is missing or wrong, or if the memory has grown.
"""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from measure import machine
from PIL import Image

from ccnn._util.files import whole_file
from ccnn._util.paths import ROOT
from ccnn._util.text import duration
from ccnn.cli import command
from ccnn.images.reading import MEAN_BGR, read_mask
from ccnn.inference.caffe_net import load_caffe

SHAPE = 41, 65          # the net's cells lie on pixels 0, 8, 16, ..., so also on the last ones
EDGES = 128.5, 128.25   # of red and green; never a value of both
GROWTH = 20             # MB that a process may take more at the end than after a tenth of the photographs

NET = """
name: "soak"
layer { name: "data"  type: "Input"  top: "data"  input_param { shape { dim: 1  dim: 3  dim: 41  dim: 65 } } }
layer {
  name: "fc8"  type: "Convolution"  bottom: "data"  top: "fc8"
  convolution_param { num_output: 3  kernel_size: 1  stride: 8  weight_filler { type: "msra" } }
}
"""


def main(argv=None):
    args = parse_args(argv)
    photos, masks = args.folder / "photos", args.folder / "masks"
    draw_all(photos, args.photographs)
    net = write_net(args.folder)
    run = run_and_kill(net, photos, masks, args)
    wrong = [k for k in range(args.photographs) if not is_right(masks / name(k, ".png"), k)]
    figures = {"photographs": args.photographs, "masks right": args.photographs - len(wrong), **run,
               "machine": machine()}
    with whole_file(args.folder / "soak.json") as part:
        part.write_text(json.dumps(figures, indent=1) + "\n")
    for key, value in figures.items():
        if key != "samples":
            print(f"{key}: {value}")
    if wrong:
        print(f"wrong or missing: {masks / name(wrong[0], '.png')} and {len(wrong) - 1} more")
    return 1 if wrong or run["status"] or any(growth > GROWTH for growth in run["MB more at the end"].values()) else 0


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--photographs", type=command.count, default=20_000, metavar="N", help="(default: %(default)s)")
    add("--jobs", type=command.count, default=2, metavar="N", help="workers (default: %(default)s)")
    add("--every", type=command.count, default=60, metavar="SECONDS", help="between two kills (default: %(default)s)")
    add("--folder", type=Path, default=Path("output/soak"), metavar="DIR",
        help="for photographs, masks, log and figures; finished masks are not made again (default: %(default)s)")
    return parser.parse_args(argv)


# What is drawn, and what is right

def name(k, suffix):
    return f"{k // 1000:03d}/{k:07d}{suffix}"


def planes(k):
    """Red and green of photograph k, H x W: whole numbers in 0..255 that are linear in x and y."""
    rng = np.random.default_rng(k)
    y, x = np.mgrid[:SHAPE[0], :SHAPE[1]]
    colours = []
    for _ in EDGES:
        plane = rng.integers(-1, 2) * x + rng.integers(-2, 3) * y
        colours.append(plane + rng.integers(-plane.min(), 256 - plane.max()))
    return colours


def draw_all(folder, count):
    for k in range(count):
        path = folder / name(k, ".png")
        if not path.exists():
            rgb = np.zeros((*SHAPE, 3), np.uint8)
            rgb[..., 0], rgb[..., 1] = planes(k)
            with whole_file(path) as part:
                Image.fromarray(rgb).save(part)


def right_mask(k):
    """Label 1 where red exceeds its edge by more than green does, 2 where green does by more, else 0."""
    return np.stack([np.zeros(SHAPE), *(plane - edge for plane, edge in zip(planes(k), EDGES))]).argmax(axis=0)


def is_right(path, k):
    return path.exists() and np.array_equal(read_mask(path), right_mask(k))


def write_net(folder):
    """Scores 0, red - edge and green - edge at every eighth pixel. Returns the options that name it."""
    caffe = load_caffe()
    net, weights = folder / "soak.prototxt", folder / "soak.caffemodel"
    net.write_text(NET)
    loaded = caffe.Net(str(net), caffe.TEST)
    kernel, bias = (blob.data for blob in loaded.params["fc8"])
    kernel[...], bias[...] = 0, 0
    for label, channel, edge in zip((1, 2), (2, 1), EDGES):         # BGR
        kernel[label, channel], bias[label] = 1, MEAN_BGR[channel] - edge
    loaded.save(str(weights))
    (folder / "classes.txt").write_text("background\nred\ngreen\n")
    return ["--net", net, "--weights", weights, "--classes", folder / "classes.txt"]


# The run

def run_and_kill(net, photos, masks, args):
    """Run infer until it ends, kill a worker now and then, and look at the memory every second. A kill waits until
    there are masks since the one before: a machine that is slower than the kills would make none."""
    words = [sys.executable, ROOT / "tools/infer.py", *net, "--no-overlay", "--out", masks, "--cluster", "local",
             "--jobs", args.jobs, photos]
    began, samples, kills, done_before = time.monotonic(), [], 0, finished(masks)
    cpu = {}                                                        # {process: seconds so far}
    with open(args.folder / "infer.log", "w") as log:
        tool = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
        next_kill = began + args.every
        while tool.poll() is None:
            time.sleep(1)
            workers = worker_processes(tool.pid)
            cpu.update((pid, cpu_seconds(pid) or cpu.get(pid, 0)) for pid in (tool.pid, *workers))
            samples.append({"seconds": round(time.monotonic() - began), "done": finished(masks),
                            "client": megabytes(tool.pid), "workers": [megabytes(pid) for pid in workers]})
            if time.monotonic() > next_kill and workers and samples[-1]["done"] > done_before:
                os.kill(workers[kills % len(workers)], signal.SIGKILL)
                kills, next_kill, done_before = kills + 1, time.monotonic() + args.every, samples[-1]["done"]
    seconds = time.monotonic() - began
    milliseconds = {kind: round(1000 * value / args.photographs, 1) for kind, value in (
        ("client", cpu.pop(tool.pid, 0)), ("workers", sum(cpu.values())))}
    return {"status": tool.returncode, "time": duration(seconds),
            "photographs per second": round(args.photographs / seconds, 1), "workers killed": kills,
            "CPU ms per photograph": milliseconds, **memory(samples), "samples": samples}


def finished(masks):
    """How many masks there are, at least: full folders count as such."""
    folders = sorted(masks.glob("*")) if masks.exists() else []
    return sum(len(os.listdir(folder)) for folder in folders)


def memory(samples):
    """Of the client, in which the scheduler is, and of the largest worker: the maximum, and how much more the last
    tenth of the photographs took than the second tenth (medians, because workers start again after a kill)."""
    done = max((sample["done"] for sample in samples), default=0)
    most, more = {}, {}
    for kind, values in (("client", [sample["client"] for sample in samples]),
                         ("worker", [max(sample["workers"], default=0) for sample in samples])):
        early, late = ([value for value, sample in zip(values, samples) if low * done <= sample["done"] <= high * done]
                       for low, high in ((0.1, 0.2), (0.9, 1)))
        most[kind] = max(values, default=0)
        more[kind] = round(float(np.median(late) - np.median(early)), 1) if early and late else 0
    return {"MB at most": most, "MB more at the end": more}


def worker_processes(parent):
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):                          # it has just ended
            its_parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if its_parent == parent and b"spawn_main" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return sorted(found)


def cpu_seconds(pid):
    """What a process has computed so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0


def megabytes(pid):
    """Memory that a process has in RAM."""
    try:
        return round(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)
    except (OSError, IndexError):
        return 0


if __name__ == "__main__":
    command.run(main)
