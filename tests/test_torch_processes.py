"""torchrun: two real processes train what one trains, and end together."""
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch installs it beside this Python")

from torch_runs import change, distance, first_weights, make_place, write_solver  # noqa: E402
from training_runs import end  # noqa: E402
from waiting import LIMIT, children, wait_for  # noqa: E402

from ccnn.nets.caffe_files import read_state  # noqa: E402
from ccnn.training.caffe_log import read_log  # noqa: E402
from ccnn.training.snapshots import snapshots  # noqa: E402

SGD = {"type": '"SGD"', "momentum": 0.9, "base_lr": "1e-3", "iter_size": 4, "lr_policy": '"fixed"', "max_iter": 6}
CLIPPED = {**SGD, "clip_gradients": 0.5}
ADAM = {**SGD, "type": '"Adam"', "delta": "1e-2"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = make_place(tmp_path_factory.mktemp("place"))
    first_weights(folder, "ccnn_size")
    return folder


@pytest.fixture
def train(place):
    """Start ccnn train on so many processes."""
    started = []

    def train(solver, *more, processes=1, net="ccnn_size"):
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        words = [*(launcher if processes > 1 else []), "-m", "ccnn", "train", solver, "--engine", "torch",
                 "--device", "cpu", "--weights", f"data/{net}.caffemodel", *more]
        run = subprocess.Popen([sys.executable, *words], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        started.append(run)
        return run
    yield train
    for run in started:
        for pid in (*children(run.pid), run.pid):
            end(pid)
        run.communicate()


def finished(run, status=0):
    """(stdout, stderr) of a run that ends with this status, or with any other than 0 if it is None."""
    out, error = run.communicate(timeout=LIMIT)
    assert run.returncode == status if status is not None else run.returncode, error
    return out, error


def said(error):
    """What ccnn says, and not torchrun."""
    return re.findall(r"^ccnn train: (?!starting|continuing|stopping)(.*)$", error, re.M)


def snapshot(place, prefix, iteration, suffix="caffemodel"):
    return place / f"snapshots/{prefix}_iter_{iteration}.{suffix}"


@pytest.mark.parametrize("settings", [SGD, CLIPPED, ADAM], ids=["sgd", "clipped", "adam"])
def test_two_processes_train_what_one_trains(settings, place, train):
    name, count = settings["type"].strip('"') + str(settings.get("clip_gradients", "")), settings["max_iter"]
    for processes in (1, 2):
        solver = write_solver(place, "ccnn_size", f"{name}_{processes}", **settings)
        out, error = finished(train(solver, processes=processes))
        assert out.split() == [f"snapshots/{name}_{processes}_iter_{count}.caffemodel"], error
    one, two = (change(place, "data/ccnn_size.caffemodel", snapshot(place, f"{name}_{n}", count)) for n in (1, 2))
    off, largest = distance(one, two)
    assert off <= 1e-5 and largest > 1e-4
    for x, y in zip(*(read_state(snapshot(place, f"{name}_{n}", count, "solverstate")).history for n in (1, 2))):
        assert np.abs(x - y).max() <= 1e-5 * max(np.abs(x).max(), 1e-6)
    losses = [read_log(place / f"snapshots/{name}_{n}.log").loss for n in (1, 2)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def workers(run):
    """The processes of a job, by their numbers."""
    numbered = {}
    for pid in children(run.pid):
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        numbered.update({int(word[5:]): pid for word in words if word.startswith(b"RANK=")})
    return numbered


LONG = {**SGD, "max_iter": 100000, "snapshot": 5}


@pytest.mark.parametrize("number", [0, 1])
def test_a_killed_process_ends_the_job_with_one_line(number, place, train):
    prefix = f"killed_{number}"
    solver = write_solver(place, "ccnn_size", prefix, **LONG)
    run = train(solver, processes=2)
    wait_for(snapshot(place, prefix, 5, "solverstate").exists, "a snapshot", run)
    end(workers(run)[number])
    _, error = finished(run, None)
    assert len(said(error)) == 1 and "another process of this training has ended" in said(error)[0], error
    # the same command continues, with any number of processes
    solver = write_solver(place, "ccnn_size", prefix, **{**LONG, "max_iter": 0, "snapshot": 0})
    newest = max(snapshots(place / f"snapshots/{prefix}"))
    _, error = finished(train(solver, "--set", f"max_iter={newest + 2}"))
    assert f"continuing from snapshots/{prefix}_iter_{newest}.solverstate" in error
    assert snapshot(place, prefix, newest + 2).exists()


def test_an_interrupt_leaves_a_snapshot_and_the_same_command_continues(place, train):
    solver = write_solver(place, "ccnn_size", "interrupted", **LONG)
    run = train(solver, processes=2)
    wait_for(snapshot(place, "interrupted", 5).exists, "a snapshot", run)
    run.send_signal(signal.SIGINT)
    _, error = finished(run, None)
    assert said(error) == ["stopped; the same command continues"], error
    log = (place / "snapshots/interrupted.log").read_text()
    assert log.rstrip().endswith("Optimization stopped early.")
    last = int(re.findall(r"Snapshotting to binary proto file snapshots/interrupted_iter_(\d+)", log)[-1])
    _, error = finished(train(solver, "--set", f"max_iter={last + 2}", processes=2))
    assert f"continuing from snapshots/interrupted_iter_{last}.solverstate" in error


def test_a_loss_that_is_not_a_number_ends_the_job(place, train):
    solver = write_solver(place, "ccnn_size", "exploded", **{**LONG, "base_lr": "1e30", "snapshot": 1})
    _, error = finished(train(solver, processes=2), None)
    assert len(said(error)) == 1 and re.search(r"NaN or infinite|the loss is (nan|inf)", said(error)[0]), error


@pytest.mark.parametrize("settings, more, complaint", [
    ({"iter_size": 3}, [], "iter_size 3 cannot be divided among 2 processes: .*; give --set iter_size=2"),
    ({}, ["--split", "nothing"], "no such list of images"),
    ({"type": '"RMSProp"'}, [], "the solver's type is 'RMSProp'"),
    ({}, ["--set", "nonsense=1"], "--set nonsense=1"),
])
def test_what_is_wrong_on_all_is_told_once(settings, more, complaint, place, train):
    solver = write_solver(place, "ccnn_size", "wrong", **{**SGD, **settings})
    _, error = finished(train(solver, *more, processes=2), None)
    assert len(said(error)) == 1 and re.search(complaint, said(error)[0]), error


def test_a_second_job_with_the_same_prefix_is_refused(place, train):
    solver = write_solver(place, "ccnn_size", "twice", **LONG)
    run = train(solver, processes=2)
    wait_for(snapshot(place, "twice", 5).exists, "a snapshot", run)
    _, error = finished(train(solver), 2)
    assert re.search(r"process \d+ is training here", error)
