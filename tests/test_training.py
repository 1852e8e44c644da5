"""`caffe train` runs every solver; ccnn train survives what ends a run."""
import math
import os
import re
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import voc_data
from caffe.proto import caffe_pb2
from google.protobuf import text_format
from sample_voc import make_sample
from tiny_voc import make_voc
from training_runs import (
    DEMO_CLASSES,
    SETTINGS,
    assert_same,
    command,
    end,
    environment,
    newest,
    read,
    weights_of,
    workplace,
)
from waiting import children, wait_for

from ccnn._util.errors import UserError
from ccnn.cli import train
from ccnn.data.background_shares import write_shares
from ccnn.images.ids import read_split
from ccnn.nets import caffe_files, weights
from ccnn.nets.backbones import VGG16
from ccnn.nets.solvers import solvers
from ccnn.training import caffe_log as caffelog
from ccnn.training import caffe_training as training
from ccnn.training import snapshots

pytest_plugins = "training_runs"        # its fixtures

ROOT = Path(__file__).resolve().parent.parent


# --- every solver

@pytest.fixture(scope="module")
def real(tmp_path_factory, python_bin):
    """Four photographs, reduced to 49 pixels, with ImageNet's VGG-16 and its features."""
    folder = tmp_path_factory.mktemp("real")
    voc = make_sample(folder / "data/VOCdevkit/VOC2012")
    shutil.copy(voc / "ImageSets/Segmentation/train.txt", voc / "ImageSets/Segmentation/train_aug.txt")
    weights = VGG16.fetch_weights()         # once
    (folder / "solvers").symlink_to(ROOT / "solvers")
    (folder / "prototxt").mkdir()
    for path in (ROOT / "prototxt").glob("*.prototxt"):
        text = path.read_text()
        if "VOCDataLayer" in text:
            text = text.replace(', "size": 224', '').replace('"split": "train_aug"', '"split": "train_aug", "size": 49')
        (folder / "prototxt" / path.name).write_text(text)
    for blob in VGG16.blobs:
        cache = subprocess.run([python_bin, ROOT / "tools/cache_features.py", voc, "--split", "train", "--size", "49",
                                "--jobs", "1", "--weights", weights, "--blob", blob, "--out", folder / "data" / blob],
                               capture_output=True, text=True)
        assert cache.returncode == 0, cache.stderr
    write_shares(folder / "data/shares.csv", dict.fromkeys(read_split(voc, "train"), 0.6))
    return folder, weights


def losses(name, folder, caffe_bin, *options):
    """The losses that `caffe train` logs before and after an iteration of a solver, without snapshots."""
    solver = text_format.Parse((folder / f"solvers/{name}.prototxt").read_text(), caffe_pb2.SolverParameter())
    solver.max_iter, solver.iter_size, solver.display, solver.average_loss = 1, 1, 1, 1
    solver.snapshot, solver.snapshot_after_train = 0, False
    path = folder / f"{name}.short.prototxt"
    path.write_text(str(solver))
    run = subprocess.run([caffe_bin, "train", "-solver", path, *options], cwd=folder, capture_output=True, text=True,
                         env={**os.environ, "GLOG_minloglevel": "0", "GLOG_logtostderr": "1"})
    assert run.returncode == 0, run.stderr[-3000:]
    assert "Optimization Done" in run.stderr
    return [loss for _, loss in logged_losses(run.stderr)]


def logged_losses(text):
    """[(iteration, loss)]"""
    lines = filter(None, map(caffelog.read_line, text.splitlines()))
    return [(line.iteration, line.value) for line in lines if line.kind == "loss"]


# With all of VGG-16 below, one of each kind; the others, whose losses the heads have, are in make test-faults.
OFTEN = [name for name in solvers() if name.startswith("head_")] + ["ccnn_tags", "ccnn_tags_32s", "classifier",
                                                                    "conv4_full", "conv5_boxes", "largefov_size"]


@pytest.mark.parametrize("name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.faults)
                                  for name in solvers()])
def test_caffe_trains_with_every_solver(name, real, caffe_bin):
    folder, weights = real
    found = losses(name, folder, caffe_bin, *([] if name.startswith("head_") else ["-weights", str(weights)]))
    assert len(found) >= 2 and all(math.isfinite(loss) and loss > 0 for loss in found)


def test_without_data_one_line_says_what_gets_them(tmp_path, caffe_bin):
    workplace(tmp_path)
    run = subprocess.run([caffe_bin, "train", "-solver", "solvers/ccnn_tags.prototxt"], cwd=tmp_path,
                         capture_output=True, text=True)
    assert run.returncode > 0                               # not ended by a signal
    said = [line for line in run.stderr.splitlines() if "ccnn get-voc" in line]
    assert len(said) == 1 and said[0].startswith("data/VOCdevkit/VOC2012: no such folder")
    assert "Traceback" not in run.stderr and "terminate" not in run.stderr


def test_nothing_is_written_through_a_link(start, finish, tmp_path):
    """Not the log, and not the snapshots, which Caffe writes itself."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name, said in (("a.log", "is a link, which ccnn does not follow"),
                       ("a_iter_4.caffemodel", "is a link, to which"), ("a_iter_4.solverstate", "is a link, to which")):
        (start.folder / name).symlink_to(precious)
        status, _, error = finish("a", "max_iter=4")
        assert status == 2 and f"snapshots/{name}: {said}" in error
        assert precious.read_text() == "precious"
        (start.folder / name).unlink()


# --- runs that end early

@pytest.mark.faults
def test_a_run_that_was_interrupted_and_killed_ends_in_the_same_weights(start, finish):
    # 1. ^C, once an iteration is past: a snapshot is left
    run = start("a", "max_iter=50000", "snapshot=50000")
    wait_for(lambda: "Iteration 3 " in read(start.folder / "a.log"), "iteration 3", run)
    os.kill(run.pid, signal.SIGINT)
    _, error = run.communicate()
    assert run.returncode == 130 and "the same command continues" in error
    first = newest(start, "a")
    assert first > 3

    # 2. kill -9, of Caffe and of the tool, in the middle of training
    run = start("a", "max_iter=50000")
    wait_for(lambda: newest(start, "a") > first, "a snapshot", run)
    for pid in (*children(run.pid), run.pid):
        end(pid)
    assert "continuing from snapshots/a_iter_" in run.communicate()[1]
    second = newest(start, "a")

    # 3. the end, and the same without interruptions
    status, out, error = finish("a", f"max_iter={second + 5}")
    assert status == 0 and out == f"snapshots/a_iter_{second + 5}.caffemodel\n", error
    assert finish("b", f"max_iter={second + 5}", "snapshot=1000000")[0] == 0
    assert_same(weights_of(start, "a", second + 5), weights_of(start, "b", second + 5))

    # 4. nothing is left to do
    status, out, error = finish("a", f"max_iter={second + 5}")
    assert (status, out) == (0, f"snapshots/a_iter_{second + 5}.caffemodel\n") and "already" in error


def test_what_ended_caffe_is_named(start):
    run = start("killed", "max_iter=50000")
    wait_for(lambda: "Iteration 3 " in read(start.folder / "killed.log"), "iteration 3", run)
    os.kill(children(run.pid)[0], signal.SIGTERM)
    _, error = run.communicate()
    assert run.returncode == 2
    assert re.search(r"train.py: error: caffe was ended by SIGTERM \(at iteration \d+, .*; log: .*killed.log\)", error)


@pytest.mark.faults
def test_a_kill_in_the_middle_of_a_snapshot(start, finish):
    """A limit on the size of files ends Caffe in the middle of writing one, as a kill would, but at a chosen byte."""
    assert finish("whole", "max_iter=10")[0] == 0
    size = {kind: (start.folder / f"whole_iter_8.{kind}").stat().st_size for kind in ("caffemodel", "solverstate")}
    assert size["caffemodel"] < size["solverstate"]

    def limit(bytes):
        return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, bytes))}

    # 1. the first snapshot, in the weights: there is nothing to continue from
    status, _, error = finish("c", "max_iter=10", **limit(size["caffemodel"] - 1000))
    assert status == 2 and "error: a snapshot could not be written; is the disk full?" in error
    assert "removing a part of a snapshot: snapshots/c_iter_4.caffemodel" in error
    assert not list(start.folder.glob("c_iter_*"))
    # 2. again, in the solver's state: the weights are whole and stay, the state does not
    status, _, error = finish("c", "max_iter=10", **limit(size["solverstate"] - 1000))
    assert status == 2 and "starting at random" in error
    assert [path.name for path in start.folder.glob("c_iter_*")] == ["c_iter_4.caffemodel"]
    # 3. a cut file is still there where the tool was killed too; then a whole one at last, and the next cut
    state = (start.folder / "whole_iter_4.solverstate").read_bytes()
    (start.folder / "c_iter_4.solverstate").write_bytes(state[:-1000])
    status, _, error = finish("c", "max_iter=4")
    assert status == 0 and "passing over a snapshot: snapshots/c_iter_4.solverstate: is not a whole" in error
    assert finish("c", "max_iter=10", **limit(size["solverstate"] - 1000))[0] == 2
    (start.folder / "c_iter_8.solverstate").write_bytes((start.folder / "c_iter_8.caffemodel").read_bytes()[:-9])
    # 4. continues from the whole one
    status, _, error = finish("c", "max_iter=10")
    assert status == 0 and "passing over a snapshot: snapshots/c_iter_8" in error
    assert "continuing from snapshots/c_iter_4.solverstate" in error
    assert_same(weights_of(start, "c", 10), weights_of(start, "whole", 10))


@pytest.fixture(scope="module")
def snapshot(tiny, python_bin, caffe_bin):
    """(solver, shapes, state file) of a snapshot by Adam."""
    run = subprocess.run(command("s", "max_iter=1"), cwd=tiny, env=environment(python_bin, caffe_bin),
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    solver = caffe_files.read_solver(tiny / "solvers/demo_tags.prototxt", SETTINGS)
    shapes = weights.convolutions(tiny / "prototxt/demo_tags.prototxt")
    return solver, shapes, tiny / "snapshots/s_iter_1.solverstate"


def test_cut_and_broken_snapshots_are_told_from_whole_ones(snapshot, tmp_path):
    solver, shapes, state_file = snapshot
    state = caffe_pb2.SolverState.FromString(state_file.read_bytes())
    state.learned_net = str(tmp_path / "s.caffemodel")
    model = caffe_pb2.NetParameter.FromString(state_file.with_suffix(".caffemodel").read_bytes())
    path = tmp_path / "s.solverstate"

    def check(state, model):
        """state, model: messages or bytes"""
        path.write_bytes(state if isinstance(state, bytes) else state.SerializeToString())
        (tmp_path / "s.caffemodel").write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return snapshots.check_snapshot(path, shapes, solver)

    def copy(message):
        return type(message).FromString(message.SerializeToString())

    assert check(state, model) == 1

    # cut anywhere, between two fields too, where what is left is valid protobuf
    data = state.SerializeToString()
    for cut in {0, 1, len(data) // 3, len(data) // 2, len(data) - 1, *boundaries(data)} - {len(data)}:
        with pytest.raises((UserError, OSError)):
            check(data[:cut], model)
    data = model.SerializeToString()
    last = max(number for number, l in enumerate(model.layer) if l.blobs)
    needed = len(data) - sum(len(l.SerializeToString()) for l in model.layer[last + 1:])     # those have no weights
    for cut in {0, 1, len(data) // 3, len(data) // 2, needed - 100, *boundaries(data)}:
        if cut < needed - 50:
            with pytest.raises((UserError, OSError)):
                check(state, data[:cut])

    broken = copy(model)
    [l for l in broken.layer if l.blobs][1].blobs[0].data[3] = np.nan
    with pytest.raises(UserError, match="NaN"):
        check(state, broken)
    broken = copy(state)
    broken.history[-1].data[0] = np.inf
    with pytest.raises(UserError, match="NaN or infinite"):
        check(broken, model)
    broken = copy(state)
    del broken.history[len(broken.history) // 2:]                   # what SGD would have kept
    assert len(state.history) == 4 * len(shapes)                    # two moments of weights and of biases
    with pytest.raises(UserError, match=f"keeps {len(broken.history)} of {len(state.history)} blobs"):
        check(broken, model)
    with pytest.raises(UserError, match="another net"):
        path.write_bytes(state.SerializeToString())
        (tmp_path / "s.caffemodel").write_bytes(model.SerializeToString())
        snapshots.check_snapshot(path, {**shapes, "fc8": (21, *shapes["fc8"][1:])}, solver)


def boundaries(data):
    """Where the top-level fields of a protobuf message end."""
    def varint(at):
        value = shift = 0
        while True:
            byte = data[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value, at
    at, ends = 0, []
    while at < len(data):
        key, at = varint(at)
        length, at = varint(at)
        at += length if key & 7 == 2 else 0
        ends.append(at)
    return ends


@pytest.mark.parametrize("system", ["tags", "full"])        # a loss layer of ours refuses NaN; Caffe's own prints it
def test_a_loss_that_is_not_a_number_ends_the_run(system, start, finish):
    status, out, error = finish("n", "base_lr=1e30", "max_iter=50000", "snapshot=50000", solver=f"demo_{system}")
    assert (status, out) == (2, "")
    line = error.splitlines()[-1]
    assert line.startswith("train.py: error: ") and re.search("nan", line, re.IGNORECASE)
    iteration = int(re.search(r"at iteration (\d+)", line)[1])
    assert 1 <= iteration < 20
    logged = logged_losses(read(start.folder / "n.log"))
    bad = [number for number, loss in logged if not math.isfinite(loss)]
    assert bad == ([] if system == "tags" else [iteration])     # the first, though display is 3
    folder = start.folder.parent
    net = caffe_files.read_net(folder / f"prototxt/demo_{system}.prototxt")
    data = net.layer[0].python_param.param_str.replace("data/demo", f"{folder}/data/demo")
    samples = voc_data.VOCDataLayer.Samples(data)
    for t in (2 * iteration, 2 * iteration + 1):
        assert os.path.relpath(samples.image(t), folder) in line
    assert not list(start.folder.glob("*.caffemodel"))      # nothing is kept of it


def test_the_log_keeps_what_display_asks_for(start, finish):
    assert finish("d", "max_iter=8", "snapshot=5")[0] == 0
    log = read(start.folder / "d.log")
    assert [iteration for iteration, _ in logged_losses(log)] == [0, 3, 6]
    assert log.count("Train net output #0: loss") == 3 and log.count(", lr = ") == 3
    assert "Snapshotting to binary proto file snapshots/d_iter_5.caffemodel" in log


def test_several_trainings_at_a_time(start, monkeypatch, caffe_bin):
    """As a library: two at a time, all whole at the end; where one fails, the others are ended."""
    monkeypatch.chdir(start.folder.parent)
    monkeypatch.setenv("CAFFE", caffe_bin)

    def prepare(name, *changes):
        changes = [*SETTINGS, f"snapshot_prefix=snapshots/{name}", *changes]
        return training.prepare(caffe_files.read_solver("solvers/demo_tags.prototxt", changes), restart=True)
    some = [prepare(name, "max_iter=6") for name in "abc"]
    training.run_all(some, jobs=2)
    for one in some:
        assert one.iteration == 6 and caffe_files.stored_layers(one.model)
        assert list(caffelog.read_log(one.log).loss) == [0, 3, 6]      # the last after the end
    assert prepare("a", "max_iter=6").start_at == 0                 # started again
    assert not list(start.folder.glob("a_iter_*"))

    long, bad = prepare("long", "max_iter=50000"), prepare("bad", "max_iter=50000", "base_lr=1e30")
    with pytest.raises(UserError, match=r"at iteration \d+, .*; log: snapshots/bad.log"):
        training.run_all([long, bad], jobs=2)
    assert long._process.returncode == -signal.SIGKILL


def test_the_repositorys_solvers_train_from_any_directory(tmp_path, python_bin):
    """Their paths begin at the repository, which here has no data: that is what ends the run."""
    run = subprocess.run([python_bin, ROOT / "tools/train.py", ROOT / "solvers/head_tags.prototxt", "--set",
                          f"snapshot_prefix={tmp_path}/s", "--set", "max_iter=1"], cwd=tmp_path,
                         capture_output=True, text=True)
    assert f"train.py: working in {ROOT}, where the paths of solver and net begin" in run.stderr
    assert (run.returncode == 2 and "data/" in run.stderr) or run.returncode == 0


# --- what is checked before Caffe starts

@pytest.fixture
def here(tiny, tmp_path, monkeypatch):
    workplace(tmp_path)
    (tmp_path / "data").symlink_to(tiny / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", None)          # Caffe must not be reached
    return tmp_path


def refused(*arguments):
    with pytest.raises((UserError, OSError)) as error:
        train.main([str(a) for a in arguments])
    assert "\n" not in str(error.value)
    return str(error.value)


DEMO = "solvers/demo_tags.prototxt"


@pytest.mark.parametrize("text, arguments, complaint", [
    (None, ["none.prototxt"], "none.prototxt: no such file"),
    (None, [DEMO, "--weights", "none.caffemodel"], "ccnn init-weights makes it"),
    ("max_itre: 5", ["bad.prototxt"], "bad.prototxt: is not a solver"),
    ("max_iter: 5", ["bad.prototxt"], "bad.prototxt: has no net"),
    (None, [DEMO, "--set", "max_itre=5"], "--set max_itre=5"),
    (None, [DEMO, "--set", "max_iter=many"], "--set max_iter=many"),
    (None, [DEMO, "--set", "net=none.prototxt"], "none.prototxt"),
    (None, [DEMO, "--set", "type=Adma"], "type 'Adma' is none of"),
    ("layer {", [DEMO, "--set", "net=bad.prototxt"], "bad.prototxt: is not a net"),
])
def test_a_bad_solver_is_refused_before_caffe_starts(here, text, arguments, complaint):
    if text:
        (here / "bad.prototxt").write_text(text)
    assert complaint in refused(*arguments)


def test_missing_data_are_told_before_caffe_starts(here):
    net = (here / "prototxt/demo_tags.prototxt").read_text()
    (here / "net.prototxt").write_text(net.replace("data/demo", "data/none"))
    assert "data/none" in refused(DEMO, "--set", "net=net.prototxt")


@pytest.mark.parametrize("name", ["conv5_size", "conv4_full"])
def test_some_of_vggs_layers_need_weights_to_begin_with(here, real, monkeypatch, name):
    monkeypatch.chdir(real[0])
    told = refused(f"solvers/{name}.prototxt")
    assert f"{name}.prototxt: holds layers of vgg16, which learn nothing from random weights; give" in told


def test_a_folder_of_another_blob_is_refused_before_caffe_starts(here, real, monkeypatch):
    monkeypatch.chdir(real[0])
    net = Path("prototxt/conv4_full.prototxt").read_text()
    (here / "net.prototxt").write_text(net.replace("data/pool3", "data/pool4"))
    told = refused("solvers/conv4_full.prototxt", "--set", f"net={here / 'net.prototxt'}", "--weights", real[1])
    assert "data/pool4: holds the backbone's pool4, the net needs pool3; ccnn cache-features --blob pool3" in told


def test_bad_weights_are_refused_before_caffe_starts(here):
    shapes = weights.convolutions("prototxt/demo_tags.prototxt")
    fit = {name: [np.ones(shape, "f4"), np.ones(shape[:1], "f4")] for name, shape in shapes.items()}
    caffe_files.write_caffemodel("fit.caffemodel", fit)
    Path("cut.caffemodel").write_bytes(Path("fit.caffemodel").read_bytes()[:-5])
    assert "cut.caffemodel: is not a whole" in refused(DEMO, "--weights", "cut.caffemodel")
    caffe_files.write_caffemodel("one,two.caffemodel", fit)
    assert "one,two.caffemodel: has a comma" in refused(DEMO, "--weights", "one,two.caffemodel")
    fit["conv2"] = [np.ones((32, 8, 3, 3), "f4"), np.ones(32, "f4")]
    caffe_files.write_caffemodel("other.caffemodel", fit)
    expected = f"layer conv2 is 32x8x3x3, but the net's is {caffe_files.by(shapes['conv2'])}"
    assert expected in refused(DEMO, "--weights", "other.caffemodel")
    caffe_files.write_caffemodel("vgg.caffemodel", {"conv1_1": [np.ones((64, 3, 3, 3), "f4"), np.ones(64, "f4")]})
    assert "holds no layer of the net" in refused(DEMO, "--weights", "vgg.caffemodel")


def test_a_full_disk_is_told_before_caffe_starts(here, monkeypatch):
    usage = type(shutil.disk_usage("."))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 10**6, 10**6))
    assert "MB do not fit into the 1 MB free" in refused(DEMO, "--set", "snapshot=10")


def test_vgg_is_not_trained_from_nothing(here):
    told = refused("solvers/ccnn_tags.prototxt")
    assert "give --weights: ccnn init-weights makes data/vgg16_8s.caffemodel" in told


def test_voc_without_sbd_trains_on_its_own_list(start, finish):
    """The net wants train_aug; --split takes another list."""
    folder = start.folder.parent
    (folder / "data").unlink()
    make_voc(folder / "data/demo", size=(33, 25), classes=DEMO_CLASSES)
    (folder / "data/demo/classes.txt").write_text("\n".join(DEMO_CLASSES))
    (folder / "data/demo/ImageSets/Segmentation/train_aug.txt").unlink()
    (folder / "data/demo/ImageSets/Segmentation/train.txt").write_text("2007_000001\n")
    net = (folder / "prototxt/demo_tags.prototxt").read_text()
    assert '"split": "train"' in net
    (folder / "aug.prototxt").write_text(net.replace('"split": "train"', '"split": "train_aug"'))

    status, _, error = finish("v", "net=aug.prototxt", "max_iter=2")
    assert status == 2 and "train on VOC alone with ccnn train --split train" in error.splitlines()[-1]
    status, out, error = finish("v", "net=aug.prototxt", "max_iter=2", more=["--split", "train"])
    assert (status, out) == (0, "snapshots/v_iter_2.caffemodel\n"), error
    assert finish("w", "max_iter=2")[0] == 0                    # whose net has that list
    assert_same(weights_of(start, "v", 2), weights_of(start, "w", 2))
