"""Trainings of the demonstration's net with ccnn train, for the tests that disturb them."""
import contextlib
import itertools
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tiny_voc import make_voc
from waiting import children

from ccnn.data.background_shares import write_shares
from ccnn.nets import caffe_files
from ccnn.nets.backbones import VGG16
from ccnn.nets.prototxt import SYSTEMS, demo_nets, nets
from ccnn.nets.solvers import demo_solver, solver_texts, write
from ccnn.training.snapshots import snapshots

ROOT = Path(__file__).resolve().parent.parent
DEMO_CLASSES = ("background", "fish", "beetle", "kite", "snail", "leaf")


def workplace(folder):
    """A folder in which the solvers run as in the repository's root."""
    texts = {"prototxt": {**nets(), **demo_nets()},
             "solvers": {**solver_texts(), **{f"demo_{s}": write(f"demo_{s}", demo_solver(s)) for s in SYSTEMS}}}
    for kind, files in texts.items():
        (folder / kind).mkdir()
        for name, text in files.items():
            (folder / kind / f"{name}.prototxt").write_text(text)
    (folder / "snapshots").mkdir()
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Drawn images of 33 x 25 pixels in the places where the nets look for VOC, features and the demonstration."""
    folder = workplace(tmp_path_factory.mktemp("tiny"))
    make_voc(folder / "data/VOCdevkit/VOC2012", size=(33, 25))
    make_voc(folder / "data/demo", size=(33, 25), images=6, classes=DEMO_CLASSES)
    (folder / "data/demo/classes.txt").write_text("\n".join(DEMO_CLASSES))
    write_shares(folder / "data/demo/shares.csv", {f"2007_{number:06d}": 0.7 for number in range(6)})
    features = folder / "data/features"
    features.mkdir()
    (features / "index.json").write_text('{"size": 321}')
    for number in range(4):
        values = np.random.default_rng(number).exponential(size=(VGG16.channels, VGG16.cells(25), VGG16.cells(33)))
        np.save(features / f"2007_{number:06d}.npy", values.astype(np.float16))
    return folder


# A constant rate: with `poly`, the weights at iteration k would depend on max_iter, in which these runs differ.
SETTINGS = ["type=Adam", "momentum=0.9", "base_lr=0.001", "lr_policy=fixed", "iter_size=2", "snapshot=4", "display=3"]


def command(prefix, *changes, solver="demo_tags"):
    changes = [*SETTINGS, f"snapshot_prefix=snapshots/{prefix}", *changes]
    changes = itertools.chain(*(["--set", change] for change in changes))
    return [str(ROOT / "tools/train.py"), f"solvers/{solver}.prototxt", *changes]


def environment(python_bin, caffe_bin):
    return {**os.environ, "PATH": f"{Path(python_bin).parent}:{os.environ['PATH']}", "CAFFE": caffe_bin,
            "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture
def start(tiny, tmp_path, python_bin, caffe_bin):
    """Start ccnn train in a folder with the tiny images and snapshots of its own."""
    workplace(tmp_path)
    (tmp_path / "data").symlink_to(tiny / "data")
    started = []

    def start(*arguments, solver="demo_tags", more=(), **options):
        run = subprocess.Popen([*command(*arguments, solver=solver), *more], cwd=tmp_path,
                               env=environment(python_bin, caffe_bin), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, **options)
        started.append(run)
        return run
    start.folder = tmp_path / "snapshots"
    yield start
    for run in started:
        for pid in (run.pid, *children(run.pid)):
            end(pid)
        run.communicate()


@pytest.fixture
def finish(start):
    """Run ccnn train to its end: (status, stdout, stderr)."""
    def finish(*arguments, **options):
        run = start(*arguments, **options)
        out, error = run.communicate()
        assert "Traceback" not in error, error
        return run.returncode, out, error
    return finish


def end(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def weights_of(start, prefix, iteration):
    return caffe_files.read_caffemodel(start.folder / f"{prefix}_iter_{iteration}.caffemodel")


def assert_same(a, b):
    """Bit for bit: with one thread of OpenBLAS, Caffe computes the same sums in the same order."""
    assert a.keys() == b.keys()
    for name in a:
        for x, y in zip(a[name], b[name]):
            np.testing.assert_array_equal(x, y, err_msg=name)


def newest(start, prefix):
    """The iteration of the newest snapshot, whole or not; 0 if there is none yet."""
    return max(snapshots(start.folder / prefix), default=0)


def read(path):
    return path.read_text() if path.exists() else ""
