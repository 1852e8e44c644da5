"""What is killed, started twice or out of disk: nothing is lost, nothing is doubled, the next run completes."""
import contextlib
import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import caffe
import numpy as np
import pytest
from PIL import Image
from tiny_net import make_net
from tiny_voc import make_voc
from training_runs import assert_same, end, newest, read, weights_of
from waiting import children, wait_for

from ccnn._util import files, system, workers
from ccnn._util.errors import UserError

pytest_plugins = "training_runs"        # its fixtures

pytestmark = pytest.mark.faults

ROOT = Path(__file__).resolve().parent.parent


def wait_for_end(processes):
    wait_for(lambda: not any(map(system.is_running, processes)), f"the end of {processes}")


def error_line(error):
    """The last line, which is the error; no other line is one."""
    lines = error.strip().splitlines()
    assert "Traceback" not in error and sum("error: " in line for line in lines) == 1, error
    return lines[-1]


# --- a training: the tool, Caffe, the process that reads the images

def caffe_of(run):
    return next(iter(children(run.pid)), None)


def reader_of(run):
    return caffe_of(run) and next(iter(children(caffe_of(run))), None)


def processes(run):
    return [run.pid, *children(run.pid), *(pid for child in children(run.pid) for pid in children(child))]


VICTIMS = {"tool": lambda run: run.pid, "caffe": caffe_of, "reader": reader_of}


def kill_at(start, victim, changes, moment):
    """Start a training of the prefix `a`, kill -9 one of its processes at a moment, and wait for the end of all."""
    run = start("a", "max_iter=10000", *changes)           # with a snapshot of each, 4 GB must be free
    wait_for(moment, "the moment of the kill", run)
    alive = [*processes(run), wait_for(lambda: VICTIMS[victim](run), f"the {victim}", run)]
    end(alive[-1])
    error = run.communicate()[1]
    assert "Traceback" not in error
    assert run.returncode == (-signal.SIGKILL if victim == "tool" else 2), error
    if victim != "tool":
        assert error_line(error).startswith("train.py: error: ")
    return alive


@pytest.mark.parametrize("victims", [("tool", "tool", "tool"), ("caffe", "caffe", "reader")], ids=" ".join)
def test_after_kills_at_any_moment_the_weights_are_those_of_a_quiet_run(start, finish, victims):
    log, folder = start.folder / "a.log", start.folder
    before, within, between = victims

    # 1. before the first snapshot
    alive = kill_at(start, before, ["snapshot=10000"], lambda: "Iteration 3 " in read(log))
    assert not list(folder.glob("a_iter_*"))
    wait_for_end(alive)                                     # nobody goes on writing

    # 2. while Caffe writes snapshots, one per iteration; 3. between two; the next run starts at once, without waiting
    kill_at(start, within, ["snapshot=1"], lambda: list(folder.glob("a_iter_*.caffemodel")))
    first = max([0, *(int(path.stem[7:]) for path in folder.glob("a_iter_*.caffemodel"))])
    kill_at(start, between, ["snapshot=4"],
            lambda: any(int(path.stem[7:]) > first + 4 for path in folder.glob("a_iter_*.solverstate")))

    # 4. the end
    last = newest(start, "a") + 5
    status, _, error = finish("a", f"max_iter={last}")
    assert status == 0 and "continuing from snapshots/a_iter_" in error
    assert finish("b", f"max_iter={last}", "snapshot=1000000")[0] == 0
    assert_same(weights_of(start, "a", last), weights_of(start, "b", last))


@pytest.mark.parametrize("moment", ["before the fork", "after it", "at the first line"])
def test_a_tool_killed_while_caffe_starts_leaves_no_caffe(start, moment):
    run = start("a", "max_iter=50000")
    wait_for((start.folder / "a.solver.prototxt").exists, "the solver", run)
    if moment != "before the fork":
        wait_for(lambda: caffe_of(run), "Caffe", run)
    if moment == "at the first line":
        wait_for(lambda: read(start.folder / "a.log"), "the log", run)
    os.kill(run.pid, signal.SIGSTOP)            # now its children are known
    alive = processes(run)
    end(run.pid)
    run.communicate()
    wait_for_end(alive)
    files.lock(start.folder / "a.lock", "held").close()


def test_a_process_whose_parent_has_ended_already_ends_at_once():
    child = os.fork()
    if not child:
        workers.end_with_parent(parent=1)       # as if it had been given to init before prctl was called
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 1 << 8


def test_of_two_at_once_one_is_refused(start):
    runs = [start("a", "max_iter=50000", "snapshot=50000") for _ in range(2)]
    wait_for(lambda: any(run.poll() is not None for run in runs), "the end of one")
    refused, = (run for run in runs if run.poll() is not None)
    other, = (run for run in runs if run is not refused)
    error = error_line(refused.communicate()[1])
    assert refused.returncode == 2
    assert error.startswith(f"train.py: error: snapshots/a.lock: process {other.pid} is training here; wait for its")
    wait_for(lambda: "Iteration 3 " in read(start.folder / "a.log"), "iteration 3", other)
    assert len(children(other.pid)) == 1
    os.kill(other.pid, signal.SIGINT)
    assert "the same command continues" in other.communicate()[1] and other.returncode == 130
    assert len(list(start.folder.glob("a_iter_*.solverstate"))) == 1


def test_the_lock_lasts_as_long_as_a_process_that_inherited_it(tmp_path):
    path = tmp_path / "a.lock"
    held = files.lock(path, "taken by {holder}")
    with pytest.raises(UserError, match=f"a.lock: taken by {os.getpid()}$"):
        files.lock(path, "taken by {holder}")
    child = subprocess.Popen(["sleep", "1000"], pass_fds=[held.fileno()])
    path.write_text("999999999\n")                      # as if the process that took it had ended
    held.close()
    try:
        with pytest.raises(UserError, match="taken by 999999999"):
            files.lock(path, "taken by {holder}", patience=0)
    finally:
        child.kill()
        child.wait()
    held = files.lock(path, "")
    child = subprocess.Popen(["sleep", "1000"], pass_fds=[held.fileno()])
    files.unlock(held)                                  # for all
    files.lock(path, "").close()
    child.kill()
    child.wait()


# --- cached features

IMAGES = 40


@pytest.fixture(scope="module")
def trunk(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "random.caffemodel"
    caffe.Net(str(ROOT / "prototxt/trunk.prototxt"), caffe.TEST).save(str(path))
    return path


@pytest.fixture
def cache(tmp_path, trunk, python_bin):
    """Start ccnn cache-features with two workers, on images enough that a test comes before the end."""
    voc = make_voc(tmp_path / "voc", images=IMAGES, size=(160, 120))
    started = []

    def cache(out):
        run = subprocess.Popen([python_bin, ROOT / "tools/cache_features.py", voc, "--out", out, "--weights", trunk,
                                "--size", "160", "--jobs", "2"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(run)
        return run
    yield cache
    for run in started:
        run.kill()
        run.communicate()


def workers_of(run):
    """The process ids of the workers of a tool. Another child of it tracks what they share."""
    found = []
    for pid in children(run.pid):
        with contextlib.suppress(OSError):
            found += [pid] * ("spawn_main" in Path(f"/proc/{pid}/cmdline").read_text())
    return found


def made(out):
    """{file: when it was written}"""
    return {path: path.stat().st_mtime_ns for path in out.glob("2007_*.npy")}


def assert_whole(out, run, kept):
    """A run that completes the features, and leaves what was finished."""
    text, error = run.communicate()
    assert run.returncode == 0 and f"{IMAGES} of {IMAGES} images have features" in text, error
    assert len(made(out)) == IMAGES and made(out).items() >= kept.items()
    return error


def test_features_are_completed_without_the_worker_that_was_killed(cache, tmp_path):
    out = tmp_path / "features"
    run = cache(out)
    wait_for(lambda: made(out), "the first features", run)
    kept = made(out)
    end(workers_of(run)[0])
    error = assert_whole(out, run, kept)
    assert "a worker process was ended, most likely for lack of memory; going on with 1" in error


def test_when_every_worker_is_killed_one_line_says_so_and_the_next_run_completes(cache, tmp_path):
    out = tmp_path / "features"
    run = cache(out)
    wait_for(lambda: made(out), "the first features", run)
    while run.poll() is None:
        for worker in workers_of(run):
            end(worker)
    assert run.returncode == 2
    assert "the last worker process was ended, most likely for lack of memory" in error_line(run.communicate()[1])
    assert_whole(out, cache(out), made(out))


def test_features_are_completed_after_the_tool_was_killed(cache, tmp_path):
    out = tmp_path / "features"
    run = cache(out)
    wait_for(lambda: made(out), "the first features", run)
    alive = processes(run)
    end(run.pid)
    wait_for_end(alive[1:])
    run.communicate()
    assert_whole(out, cache(out), made(out))


# --- a full disk

@pytest.fixture
def disk(tmp_path):
    """disk(bytes) -> a folder that is a disk of that size."""
    mounted = []

    def disk(size, folder=tmp_path / "disk"):
        folder.mkdir(exist_ok=True)
        if not shutil.which("mount"):
            pytest.skip("a small disk cannot be made here: there is no mount")
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
                               capture_output=True, text=True)
        if mount.returncode:
            pytest.skip(f"a small disk cannot be made here: {mount.stderr.strip()}")
        mounted.append(folder)
        return folder
    yield disk
    for folder in mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder):
    """Take all that is free."""
    with open(folder / "filler", "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


def test_a_file_that_does_not_fit_is_named_and_leaves_nothing(disk):
    folder = disk(1 << 17)
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3), np.uint8)
    (folder / "old.png").write_bytes(b"old")
    for name, write in {
        "a.txt": lambda part: part.write_text("x" * (1 << 18)),
        "a.npy": lambda part: np.save(part, noise),
        "a.jpg": lambda part: Image.fromarray(noise).save(part, quality=95),
        "old.png": lambda part: Image.fromarray(noise).save(part),
    }.items():
        with pytest.raises(OSError, match="cannot be written .*; is the disk full.*the same command again") as error, \
                files.whole_file(folder / name) as part:
            write(part)
        assert error.value.filename == str(folder / name)
    assert [path.name for path in folder.iterdir()] == ["old.png"]
    assert (folder / "old.png").read_bytes() == b"old"


def test_a_training_on_a_full_disk(start, finish, disk):
    """It fills while Caffe computes; where it is full before, the tool says so (test_training.py)."""
    disk(1 << 24, start.folder)
    assert finish("a", "max_iter=4")[0] == 0
    run = start("a", "max_iter=50000", "snapshot=50000")
    wait_for(lambda: "Iteration 6" in read(start.folder / "a.log"), "iteration 6", run)
    fill(start.folder)
    os.kill(run.pid, signal.SIGINT)                 # a snapshot, if Caffe's log does not notice it before
    _, error = run.communicate()
    assert run.returncode == 2
    assert "is the disk full? Free some space, then run the same command again" in error_line(error)

    (start.folder / "filler").unlink()
    status, _, error = finish("a", "max_iter=9")
    assert status == 0 and "passing over" not in error and "continuing from snapshots/a_iter_4.solverstate" in error
    assert finish("b", "max_iter=9", "snapshot=1000000")[0] == 0
    assert_same(weights_of(start, "a", 9), weights_of(start, "b", 9))


def test_a_model_whose_last_bytes_are_missing_is_not_taken_for_trained(start, finish):
    """Caffe does not notice that the last few kilobytes could not be written, and ends well."""
    sgd = ["type=SGD", "max_iter=3"]
    assert finish("whole", *sgd)[0] == 0
    size = {kind: (start.folder / f"whole_iter_3.{kind}").stat().st_size for kind in ("caffemodel", "solverstate")}
    limit = size["caffemodel"] - 100
    assert size["solverstate"] < limit
    status, out, error = finish(
        "a", *sgd, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert (status, out) == (2, "") and "Optimization Done" in read(start.folder / "a.log")
    assert "a_iter_3.caffemodel: is not a whole .caffemodel" in error_line(error) and "is the disk full?" in error
    assert not list(start.folder.glob("a_iter_*.caffemodel"))
    assert finish("a", *sgd)[0] == 0
    assert_same(weights_of(start, "a", 3), weights_of(start, "whole", 3))


def test_features_on_a_full_disk(cache, disk):
    out = disk(1 << 26) / "features"
    run = cache(out)
    wait_for(lambda: made(out), "the first features", run)
    fill(out.parent)
    _, error = run.communicate()
    assert run.returncode == 2
    assert f"{out}/2007_" in error_line(error) and "is the disk full?" in error
    assert not list(out.glob(".*"))
    (out.parent / "filler").unlink()
    assert_whole(out, cache(out), made(out))


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_masks_on_a_full_disk(disk, tmp_path, python_bin, jobs):
    net, weights = make_net(tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (6, 300, 200, 3), np.uint8)
    (tmp_path / "photos").mkdir()
    for number, rgb in enumerate(noise):
        Image.fromarray(rgb).save(tmp_path / f"photos/{number}.png")
    out = disk(1 << 17) / "masks"
    command = [python_bin, ROOT / "tools/infer.py", "--net", net, "--weights", weights, "--out", out, "--jobs", jobs,
               "--probabilities", tmp_path / "photos"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 2 and f"{out}/" in error_line(run.stderr) and "is the disk full?" in run.stderr
    assert "Exception" not in run.stderr
    kept = {path: path.stat().st_mtime_ns for path in out.glob("*.png")}
    assert len(kept) < 6 and not [path for path in out.rglob(".*")]
    subprocess.run(["mount", "-o", "remount,size=64m", out.parent], check=True)
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(list(out.glob("*.png"))) == 6 == len(list(out.glob("overlay/*.jpg")))
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())
