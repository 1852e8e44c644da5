"""Training on many processes: two real ranks of MPI train what one process trains, and end together."""
import importlib.util
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import caffe
import numpy as np
import pytest
from training_runs import (
    children,
    command,
    end,
    environment,
    newest,
    read,
    wait_for,
    weights_of,
    workplace,
)

from ccnn._util.errors import UserError
from ccnn.nets.caffe_files import read_state
from ccnn.training import caffe_log as caffelog
from ccnn.training import ranks

pytest_plugins = "training_runs"        # its fixtures

ROOT = Path(__file__).resolve().parent.parent
MPIEXEC = ROOT / ".caffe/mpi/bin/mpiexec"

needs_mpi = pytest.mark.skipif(not (importlib.util.find_spec("mpi4py") and MPIEXEC.exists()),
                               reason="needs mpi4py and MPICH: make mpi")

SGD = ["type=SGD", "momentum=0.9", "base_lr=0.01", "clip_gradients=-1"]
CLIPPED = ["type=SGD", "momentum=0.9", "base_lr=0.01", "clip_gradients=0.5"]
ADAM = ["type=Adam", "momentum=0.9", "base_lr=0.001", "clip_gradients=-1"]


@pytest.fixture
def mpiexec(tiny, tmp_path, python_bin, caffe_bin):
    """Start ccnn train on two ranks, in a folder with the tiny images and snapshots of its own."""
    workplace(tmp_path)
    (tmp_path / "data").symlink_to(tiny / "data")
    started = []

    def mpiexec(*arguments, n=2, raw=None, **options):
        words = raw or ["-n", str(n), *command(*arguments)]
        run = subprocess.Popen([str(MPIEXEC), *words], cwd=tmp_path, env=environment(python_bin, caffe_bin),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        started.append(run)
        return run
    mpiexec.folder = tmp_path / "snapshots"
    yield mpiexec
    for run in started:
        for pid in (run.pid, *processes(run)):
            end(pid)
        run.communicate()


@pytest.fixture
def together(mpiexec):
    """Run it to its end: (status, stdout, stderr)."""
    def together(*arguments, **options):
        run = mpiexec(*arguments, **options)
        out, error = run.communicate(timeout=600)
        assert "Traceback" not in error, error
        return run.returncode, out, error
    return together


@pytest.fixture
def alone(mpiexec, python_bin, caffe_bin):
    """Train in one process, in the same folder."""
    def alone(*arguments):
        run = subprocess.run(command(*arguments), cwd=mpiexec.folder.parent, env=environment(python_bin, caffe_bin),
                             capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        return run
    return alone


def processes(run):
    """The processes that mpiexec has started, and theirs."""
    found, waiting = [], children(run.pid)
    while waiting:
        found.append(waiting.pop())
        waiting += children(found[-1])
    return found


def computing(run, rank):
    """The number of the process that computes for a rank; None if there is none yet."""
    for pid in processes(run):
        try:
            words, variables = (Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "environ"))
        except OSError:
            continue
        if "ccnn.training.parallel" in words and f"PMI_RANK={rank}\0" in variables:
            return pid
    return None


def errors(text):
    return [line for line in text.splitlines() if "error: " in line]


def moments_of(mpiexec, prefix, iteration):
    """What the solver keeps: its momentum, or Adam's two moments."""
    path = mpiexec.folder / f"{prefix}_iter_{iteration}.solverstate"
    return read_state(path).history


def assert_equal_to_float32(a, b):
    """The order of the sums differs, nothing else."""
    for x, y in zip(a, b):
        np.testing.assert_allclose(x, y, rtol=0, atol=3e-6 * max(np.abs(y).max(), 1e-3))


def assert_same_training(mpiexec, prefix, other, iteration):
    one, two = (weights_of(mpiexec, name, iteration) for name in (prefix, other))
    assert one.keys() == two.keys()
    for name in one:
        assert_equal_to_float32(one[name], two[name])
    assert_equal_to_float32(moments_of(mpiexec, prefix, iteration), moments_of(mpiexec, other, iteration))


# --- equal to one process

@needs_mpi
@pytest.mark.parametrize("settings, iter_size", [(SGD, 2), (CLIPPED, 4), (ADAM, 4)])
def test_two_ranks_train_what_one_process_trains(settings, iter_size, together, alone, mpiexec):
    settings = [*settings, f"iter_size={iter_size}", "max_iter=15", "snapshot=100", "average_loss=4",
                "weight_decay=0.01"]
    alone("one", *settings)
    status, out, error = together("two", *settings)
    assert (status, out) == (0, "snapshots/two_iter_15.caffemodel\n"), error
    assert error == "train.py: starting at random\n"                # once, not once per rank
    assert_same_training(mpiexec, "one", "two", 15)

    # the log shows the loss of all ranks, smoothed as Caffe does
    one, two = (caffelog.read_log(mpiexec.folder / f"{name}.log") for name in ("one", "two"))
    assert list(two.loss) == [0, 3, 6, 9, 12] and two.lr == {i: one.lr[i] for i in two.loss}
    np.testing.assert_allclose(list(two.loss.values()), [one.loss[i] for i in two.loss], rtol=1e-4)
    assert set(two.solver) == set(two.loss)                         # the diagnostics of the loss layer


@needs_mpi
def test_a_run_continues_with_another_number_of_processes(together, alone, mpiexec):
    """Four samples per step, by 2, 1 and 4 processes in turn, with Adam's moments."""
    settings = [*ADAM, "iter_size=4", "snapshot=100"]
    alone("one", *settings, "max_iter=12")
    assert together("two", *settings, "max_iter=4")[0] == 0
    alone("two", *settings, "max_iter=8")
    status, out, error = together("two", *settings, "max_iter=12", n=4)
    assert status == 0, out + error
    assert "continuing from snapshots/two_iter_8.solverstate" in error
    assert_same_training(mpiexec, "one", "two", 12)

    status, out, error = together("two", *settings, "max_iter=12")
    assert (status, out) == (0, "snapshots/two_iter_12.caffemodel\n") and error.count("trained already") == 1


@needs_mpi
def test_every_rank_draws_its_own_dropout(together, alone, mpiexec):
    """Two ranks see the same image. Without dropout they train what one of them trains; with dropout they do not."""
    folder = mpiexec.folder.parent
    shutil.copytree((folder / "data/demo").resolve(), folder / "one_image")
    lists = folder / "one_image/ImageSets/Segmentation/train.txt"
    lists.write_text(lists.read_text().split()[0] + "\n")
    net = (folder / "prototxt/demo_tags.prototxt").read_text().replace('"root": "data/demo"', '"root": "one_image"')
    net = net.replace('"mirror": true', '"mirror": false')
    dropout = 'layer { name: "drop"  type: "Dropout"  bottom: "conv2"  top: "conv2" }\nlayer {\n  name: "fc8"'
    (folder / "plain.prototxt").write_text(net)
    (folder / "dropout.prototxt").write_text(net.replace('layer {\n  name: "fc8"', dropout))
    for kind in ("plain", "dropout"):
        settings = [*SGD, "max_iter=2", f"net={kind}.prototxt"]
        alone(f"{kind}1", *settings, "iter_size=1")
        assert together(f"{kind}2", *settings, "iter_size=2")[0] == 0
    assert_same_training(mpiexec, "plain1", "plain2", 2)
    one, two = (weights_of(mpiexec, name, 2)["fc8"][0] for name in ("dropout1", "dropout2"))
    assert np.abs(one - two).max() > 1e-3 * np.abs(one).max()


def test_a_rank_takes_every_nth_sample(tiny, monkeypatch):
    """Of the net's images; those of a net in the TEST phase are not shared."""
    monkeypatch.chdir(tiny)
    net = 'layer { name: "data"  type: "Python"  top: "data"  top: "tags"  python_param { module: "voc_data" '\
          'layer: "VOCDataLayer" param_str: \'{"root": "data/demo", "split": "train", "mirror": true, ' \
          '"classes": "data/demo/classes.txt"}\' } }'
    (tiny / "data.prototxt").write_text(net)

    def images(phase, count):
        net = caffe.Net("data.prototxt", phase)
        return [net.forward()["data"].copy() for _ in range(count)]

    def assert_same(some, others):
        assert [a.tobytes() for a in some] == [b.tobytes() for b in others]

    all = images(caffe.TRAIN, 10)
    monkeypatch.setenv("CCNN_START_ITERATION", "3")
    try:
        caffe.set_solver_count(3)
        caffe.set_multiprocess(True)
        for rank in range(3):
            caffe.set_solver_rank(rank)
            assert_same(images(caffe.TRAIN, 2), all[3 + rank::3][:2])
        assert_same(images(caffe.TEST, 2), all[:2])
    finally:
        caffe.set_solver_rank(0)
        caffe.set_solver_count(1)
        caffe.set_multiprocess(False)


# --- ends

@needs_mpi
def test_an_interrupt_leaves_a_snapshot_and_the_same_command_continues(mpiexec, together, alone):
    settings = [*CLIPPED, "iter_size=2"]
    run = mpiexec("i", *settings, "max_iter=50000", "snapshot=50000")
    wait_for(lambda: "Iteration 3 " in read(mpiexec.folder / "i.log"), run)
    run.send_signal(signal.SIGINT)
    _, error = run.communicate(timeout=600)
    assert run.returncode == 130, error
    assert error.count("stopping after this iteration") == error.count("the same command continues") == 1
    assert "Traceback" not in error and not errors(error)
    at = newest(mpiexec, "i")
    assert at > 3

    assert together("i", *settings, f"max_iter={at + 4}")[0] == 0
    alone("j", *settings, f"max_iter={at + 4}", "snapshot=100000")
    assert_same_training(mpiexec, "i", "j", at + 4)


@needs_mpi
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_the_job_and_costs_one_snapshot_interval(rank, mpiexec, together, alone):
    settings = [*ADAM, "iter_size=2", "snapshot=4"]
    run = mpiexec("k", *settings, "max_iter=50000")
    wait_for(lambda: newest(mpiexec, "k") >= 8, run)
    end(computing(run, rank))
    out, error = run.communicate(timeout=120)       # not the ten minutes of a hang
    assert (run.returncode, out) == (2, "")         # without a page of mpiexec
    assert len(errors(error)) == 1 and "Traceback" not in error, error
    where = re.search(r"caffe was ended by SIGKILL; is there enough memory\? \((.*)at iteration (\d+)", error)
    assert ("process 1 of 2" in where[1]) == (rank == 1)
    at = newest(mpiexec, "k")
    assert int(where[2]) - at <= 5                  # the last iteration that was read may be one late

    status, _, error = together("k", *settings, f"max_iter={at + 2}")
    assert status == 0 and f"continuing from snapshots/k_iter_{at}.solverstate" in error
    alone("l", *settings, f"max_iter={at + 2}", "snapshot=100000")
    assert_same_training(mpiexec, "k", "l", at + 2)


@needs_mpi
def test_the_death_of_mpiexec_ends_all(mpiexec):
    run = mpiexec("m", *SGD, "iter_size=2", "max_iter=50000", "snapshot=50000")
    wait_for(lambda: "Iteration 3 " in read(mpiexec.folder / "m.log"), run)
    them = processes(run)
    end(run.pid)
    run.communicate(timeout=60)
    gone = subprocess.run(["timeout", "60", "tail", "-f", "/dev/null", *(f"--pid={pid}" for pid in them)])
    assert gone.returncode == 0


@needs_mpi
@pytest.mark.parametrize("system", ["tags", "full"])        # a loss layer of ours refuses NaN; Caffe's own prints it
def test_a_loss_that_is_not_a_number_ends_the_job(system, mpiexec, together):
    status, out, error = together("n", *SGD, "iter_size=2", "base_lr=1e30", "max_iter=50000", "snapshot=50000",
                                  f"net=prototxt/demo_{system}.prototxt")
    assert (status, out) == (2, "") and len(errors(error)) == 1, error
    assert re.search("nan", error, re.IGNORECASE) and re.search(r"at iteration \d+, data/demo/", error)
    assert not list(mpiexec.folder.glob("*.caffemodel"))


@needs_mpi
def test_an_image_that_only_one_rank_reads_ends_the_job(mpiexec, together):
    """In the order of the list, rank 0 reads the even images, and rank 1 the odd ones."""
    folder = mpiexec.folder.parent
    shutil.copytree((folder / "data/demo").resolve(), folder / "damaged")
    bad = sorted((folder / "damaged/JPEGImages").iterdir())[3]
    bad.write_bytes(bad.read_bytes()[:100])
    net = (folder / "prototxt/demo_tags.prototxt").read_text().replace('"root": "data/demo"', '"root": "damaged"')
    (folder / "net.prototxt").write_text(net.replace('"mirror": true', '"mirror": true, "shuffle": false'))
    status, out, error = together("d", *SGD, "iter_size=2", "net=net.prototxt", "max_iter=50")
    assert (status, out) == (2, "") and len(errors(error)) == 1, error
    assert bad.name in error and "(process 1 of 2, on " in error and "at iteration 1" in error

    text = (folder / "net.prototxt").read_text().replace('"shuffle": false', '"shuffle": false, "damaged": "skip"')
    (folder / "net.prototxt").write_text(text)
    status, out, error = together("d", *SGD, "iter_size=2", "net=net.prototxt", "max_iter=5")
    assert status == 0, error
    log = read(mpiexec.folder / "d.log")
    assert re.search(rf"process 1 on .*: VOCDataLayer: skipped \(1 so far\): .*{bad.name}", log)


# --- refused before the first iteration, in one line

@needs_mpi
@pytest.mark.parametrize("changes, complaint", [
    (["iter_size=3"], "iter_size 3 cannot be divided among 2 processes"),
    (["iter_size=2", "net=none.prototxt"], "none.prototxt"),
    (["iter_size=2", "max_itre=2"], "--set max_itre=2"),
])
def test_what_is_wrong_on_all_ranks_is_told_once(changes, complaint, together):
    status, out, error = together("w", *changes)
    assert (status, out) == (2, "") and len(error.splitlines()) == 1 and complaint in error


@needs_mpi
def test_ranks_with_another_solver_or_other_images_are_told(mpiexec, together):
    folder = mpiexec.folder.parent
    one = ["-n", "1", *command("r", *SGD, "iter_size=2", "max_iter=5")]
    other = ["-n", "1", *command("r", *SGD, "iter_size=2", "max_iter=6")]
    status, out, error = together(raw=[*one, ":", *other])
    assert (status, out) == (2, "") and len(errors(error)) == 1
    assert re.search("process 1 on .* has another solver than process 0", error)

    (folder / "elsewhere").mkdir()
    elsewhere = workplace(folder / "elsewhere")
    shutil.copytree((folder / "data/demo").resolve(), elsewhere / "data/demo")
    away = ["-n", "1", "-wdir", str(elsewhere), *one[2:]]
    assert together(raw=[*one, ":", *away])[0] == 0
    image = next((elsewhere / "data/demo/JPEGImages").iterdir())
    image.write_bytes(image.read_bytes() + b" ")
    shutil.rmtree(mpiexec.folder)
    status, out, error = together(raw=[*one, ":", *away])
    assert (status, out) == (2, "") and len(errors(error)) == 1
    assert re.search("process 1 on .* has another list of images or sizes", error)

    shutil.rmtree(elsewhere / "data")
    status, out, error = together(raw=[*one, ":", *away])
    assert (status, out) == (2, "") and len(errors(error)) == 1
    assert re.search(r"data/demo: no such folder.*\(process 1 of 2, on ", error)


@needs_mpi
def test_a_snapshot_that_one_rank_does_not_see_is_told(mpiexec, together):
    folder = mpiexec.folder.parent
    here = command("s", *ADAM, "iter_size=2", "max_iter=4", "snapshot=2")
    assert together(raw=["-n", "2", *here])[0] == 0
    for path in mpiexec.folder.glob("s_iter_4.*"):
        path.unlink()
    (folder / "elsewhere").mkdir()
    elsewhere = workplace(folder / "elsewhere")
    (elsewhere / "data").symlink_to(folder / "data")
    status, _, error = together(raw=["-n", "1", *here, ":", "-n", "1", "-wdir", str(elsewhere), *here])
    assert status == 2 and len(errors(error)) == 1
    assert "put it on a disk that all of them share (process 1 of 2, on " in error


@needs_mpi
def test_a_second_job_with_the_same_prefix_is_refused(mpiexec, together):
    run = mpiexec("t", *SGD, "iter_size=2", "max_iter=50000", "snapshot=50000")
    wait_for(lambda: "Iteration 3 " in read(mpiexec.folder / "t.log"), run)
    status, out, error = together("t", *SGD, "iter_size=2", "max_iter=5")
    assert (status, out) == (2, "") and len(error.splitlines()) == 1 and "is training here" in error
    assert run.poll() is None


# --- without mpiexec

def test_a_rank_knows_its_place(monkeypatch):
    assert ranks.this_rank({}) == ranks.this_rank({"PMI_SIZE": "1", "PMI_RANK": "0"}) == ranks.ALONE
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    mpich = {"PMI_SIZE": "8", "PMI_RANK": "5", "MPI_LOCALNRANKS": "4", "MPI_LOCALRANKID": "1"}
    openmpi = {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
               "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    assert ranks.this_rank(mpich) == ranks.this_rank(openmpi) == (5, 8, 4, 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(10)))
    assert ranks.this_rank(mpich).threads == 2 and ranks.Rank(0, 64, 64, 0).threads == 1


def test_without_mpi4py_one_line_per_machine_says_what_brings_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert ranks.this_rank({}) == ranks.ALONE
    with pytest.raises(UserError, match="mpi4py is not installed on .*; `make mpi` brings it"):
        ranks.this_rank({"PMI_SIZE": "8", "PMI_RANK": "4", "MPI_LOCALNRANKS": "4", "MPI_LOCALRANKID": "0"})
    with pytest.raises(SystemExit):
        ranks.this_rank({"PMI_SIZE": "8", "PMI_RANK": "5", "MPI_LOCALNRANKS": "4", "MPI_LOCALRANKID": "1"})


# --- the bench

@needs_mpi
def test_the_bench_writes_its_tables(root, tmp_path, python_bin):
    run = subprocess.run([python_bin, root / "bench/bench_mpi.py", "--quick", "--out", tmp_path], capture_output=True,
                         text=True)
    assert run.returncode == 0, run.stderr
    report = (tmp_path / "bench_mpi.md").read_text()
    assert report == run.stdout.removesuffix("\n")
    assert "| small net (demonstration) | 4 |" in report and "| head on cached features | 4 |" in report
    assert re.search(r"65.1 million weights: 261 MB .* Allreduce \d\.\d+ s", report)


def test_the_table_on_paper(monkeypatch):
    """Two ranks each send and receive all gradients once; many ranks twice. Nothing overlaps."""
    import bench_mpi
    assert bench_mpi.ring(2, 1000, 4e3) == 1 and bench_mpi.ring(1001, 1000, 4e3) == pytest.approx(2, rel=0.01)
    monkeypatch.setattr(bench_mpi, "GPU", 1e12)
    rows = [row.split(" | ") for row in bench_mpi.paper_table(1e12, 1, 3, 1e9)[2:]]
    assert [row[1] for row in rows] == ["8", "64", "16", "16", "64", "64"]
    assert [float(row[2].split()[0]) for row in rows] == [1, 8, 3, 3, 4, 4]
    assert float(rows[0][4]) == 8 and rows[0][5] == "100% |"            # one gradient costs nothing
    slow = [row.split(" | ") for row in bench_mpi.paper_table(1e12, 1.25e9, 3, 1e9)[2:]]
    assert float(slow[2][3].split()[0]) == pytest.approx(2 * 15 / 16 * 4, rel=0.01)     # 5 GB over 1.25 GB/s
    assert slow[2][5] == "29% |"
