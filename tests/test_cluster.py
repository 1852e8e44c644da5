"""Work on a Dask cluster: workers, schedulers and clients that are killed, a photograph that ends every worker, TLS."""
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import soak
import test_crf_search
import test_study
from PIL import Image
from test_workers import die, die_once, square
from tiny_net import make_net
from waiting import wait_for

import ccnn
import study
from ccnn._util import cluster
from ccnn._util.errors import UserError
from ccnn._util.system import is_running
from ccnn._util.workers import in_processes, left_out
from ccnn.cli import cache_features, tune_crf
from ccnn.cli import segment as infer

distributed = pytest.importorskip("distributed", reason="needs Dask: make cluster")
dask = pytest.importorskip("dask")

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DASK_LOGGING__DISTRIBUTED": "critical"}


@pytest.fixture(scope="module")
def local():
    """Two workers of this machine. Killed ones are started again."""
    with cluster.connected("local", 2) as jobs:
        yield jobs


def pids(jobs):
    """Process numbers of the workers."""
    return sorted(worker["metrics"]["memory"] and jobs.client.run(os.getpid)[address]
                  for address, worker in jobs.client.scheduler_info()["workers"].items())


# --- on this machine -----------------------------------------------------------------------------------------

class Loads:
    """A function that loads something at its first call; it leaves a file for every load and every call."""

    def __init__(self, folder):
        self.folder, self.loaded = folder, False

    def __call__(self, x):
        if not self.loaded:
            Path(self.folder, f"loaded_{os.getpid()}_{time.monotonic_ns()}").touch()
            self.loaded = True
        return os.getpid(), x * x


def test_every_task_once_in_both_workers_with_one_load_each_and_a_bounded_window(local, tmp_path):
    asked = []

    def tasks():
        for x in range(300):
            asked.append(x)
            yield (x,)
    results, ahead, used = [], 0, set()
    for pid, y in in_processes(Loads(tmp_path), tasks(), local):
        results.append(y)
        used.add(pid)
        ahead = max(ahead, len(asked) - len(results))
    assert sorted(results) == [x * x for x in range(300)]
    assert len(used) == 2 and os.getpid() not in used
    assert sorted(int(path.name.split("_")[1]) for path in tmp_path.iterdir()) == sorted(used)
    assert ahead <= 2 * cluster.AHEAD       # memory is bounded


def test_an_error_of_the_function_is_raised_here(local):
    with pytest.raises(UserError, match="^x.jpg: is broken$"):
        list(in_processes(broken, [("x.jpg",)], local))
    assert [y for _, y in in_processes(square, [(3,)], local)] == [9]        # and the cluster works on


def broken(name):
    raise UserError(f"{name}: is broken")


def test_a_task_that_is_left_out_is_an_error_unless_the_caller_knows_better():
    with pytest.raises(UserError, match="^x.jpg: ended its worker$"):
        left_out("ended its worker", "x.jpg", 5)


def test_the_work_of_a_killed_worker_is_done_again(local, tmp_path, caplog):
    local.client.wait_for_workers(2)
    local.next_look = 0
    local.look_at_workers()
    done = list(in_processes(die_once, [(tmp_path, x) for x in range(60)], local))
    assert (tmp_path / "died").exists()
    assert sorted(done) == list(range(60))
    local.next_look = 0
    local.look_at_workers()
    assert "1 worker ended; its unfinished tasks are done again" in caplog.text


def test_workers_that_always_end_are_one_error(local, monkeypatch):
    monkeypatch.setattr(cluster, "IN_A_ROW", 1)
    with pytest.raises(UserError, match="1 tasks in a row ended their worker processes, most likely for lack of mem"):
        list(in_processes(die, [(x,) for x in range(8)], local))


def test_a_worker_of_another_version_or_without_the_folder_says_so(local, tmp_path, monkeypatch):
    wait_for(lambda: len(local.client.scheduler_info()["workers"]) == 2, "two workers")     # a later one begins nowhere
    monkeypatch.setattr(os, "getcwd", lambda: str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="nowhere: No such file or directory on a worker .*all machines have"):
        list(in_processes(square, [(1,)], local))
    monkeypatch.undo()
    monkeypatch.setattr(ccnn, "__version__", "0.1")
    with pytest.raises(UserError, match="a worker has version .* of ccnn, this command 0.1"):
        list(in_processes(square, [(1,)], local))


def test_local_workers_listen_on_loopback_alone_and_accept_no_stranger(local):
    listening = {(int(line.split()[1].split(":")[0], 16), int(line.split()[9]))
                 for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"}
    assert not [line for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]
                if line.split()[3] == "0A" and int(line.split()[9]) in sockets([os.getpid(), *pids(local)])]
    ours = [host for host, inode in listening if inode in sockets([os.getpid(), *pids(local)])]
    assert len(ours) >= 3 and set(ours) == {int.from_bytes(bytes([127, 0, 0, 1]), "little")}
    address = local.client.scheduler.address
    assert address.startswith("tls://127.0.0.1:")
    for security in (None, distributed.Security.temporary()):
        scheme = "tls" if security else "tcp"
        with pytest.raises((OSError, ValueError)):
            distributed.Client(f"{scheme}://{address.partition('://')[2]}", security=security, timeout=2)


def sockets(processes):
    found = set()
    for pid in processes:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                name = os.readlink(link)
                if name.startswith("socket:["):
                    found.add(int(name[8:-1]))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_local_workers_end_with_the_tool(tmp_path, python_bin, number):
    """Each begins a file, named by its number, and would work for a minute. ^C goes to all of them, as in a shell."""
    (tmp_path / "slow.py").write_text(textwrap.dedent("""
        import os, time
        from pathlib import Path
        from ccnn._util import cluster
        from ccnn.cli import command
        from ccnn._util import workers

        def work(folder):
            Path(folder, str(os.getpid())).touch()
            time.sleep(60)

        def main():
            with cluster.connected("local", 2) as jobs:
                list(workers.in_processes(work, [(os.path.dirname(__file__) + "/begun",)] * 2, jobs))

        if __name__ == "__main__":
            command.run(main)
    """))
    (tmp_path / "begun").mkdir()
    tool = subprocess.Popen([python_bin, tmp_path / "slow.py"], env=ENVIRONMENT, start_new_session=True,
                            stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len([*(tmp_path / "begun").iterdir()]) == 2, "two workers", tool)
    workers = [int(path.name) for path in (tmp_path / "begun").iterdir()]
    (os.killpg if number == signal.SIGINT else os.kill)(tool.pid, number)
    said = tool.communicate()[1]
    wait_for(lambda: not any(map(is_running, workers)), "the end of the workers")
    assert tool.returncode == (130 if number == signal.SIGINT else -number)
    assert number != signal.SIGINT or said == "slow.py: error: stopped\n"


# --- elsewhere -----------------------------------------------------------------------------------------------

def is_whole(file):
    """Whether the scheduler has written its file: it exists before it has content."""
    with contextlib.suppress(OSError, ValueError):
        return bool(json.loads(file.read_text()))


@contextlib.contextmanager
def dask_processes(folder, python_bin):
    """A scheduler and two workers as one starts them by hand. Yields the scheduler's file, and the processes."""
    file = folder / "scheduler.json"

    def start(*words):
        return subprocess.Popen([python_bin, "-m", "dask", *words], env=ENVIRONMENT, cwd=folder,
                                stdout=subprocess.DEVNULL)
    processes = [start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file",
                       str(file))]
    try:
        wait_for(lambda: is_whole(file), "the scheduler's file", *processes)        # a worker that reads less ends
        processes += [start("worker", "--scheduler-file", str(file), "--host", "127.0.0.1", "--nthreads", "1",
                            "--no-nanny", "--no-dashboard") for _ in range(2)]
        yield file, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_scheduler_by_its_file_and_address_and_workers_killed_for_good(tmp_path, python_bin, caplog, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT", 3)
    with dask_processes(tmp_path, python_bin) as (file, (scheduler, first, second)):
        with cluster.connected(str(file), 2) as jobs:
            jobs.client.wait_for_workers(2)
            answers = in_processes(square_slowly, [(x,) for x in range(60)], jobs)
            results = [next(answers)]
            first.kill()
            results += answers
        assert sorted(y for _, y in results) == [x * x for x in range(60)]
        assert {pid for pid, _ in results[-20:]} == {second.pid}
        address = json.loads(file.read_text())["address"]
        with cluster.connected(address, 2) as jobs:
            assert [y for _, y in in_processes(square, [(5,)], jobs)] == [25]
            answers = in_processes(square_slowly, [(x,) for x in range(60)], jobs)
            next(answers)
            scheduler.kill()
            with pytest.raises(UserError, match=f"--cluster {address}: the scheduler has ended or.*run the same"):
                list(answers)
        with pytest.raises(UserError, match=f"--cluster {address}: no scheduler answers at {address}"):
            next(cluster.connected(address, 2).gen)
    assert "encrypted" not in caplog.text


def square_slowly(x):
    time.sleep(0.1)
    return os.getpid(), x * x


@pytest.fixture(scope="module")
def certificates(tmp_path_factory, root):
    """Two folders, ours and a stranger's, of ca.pem, cluster.pem, cluster.key and dask.yaml, as docs/scale.md says."""
    folders = [tmp_path_factory.mktemp(name) for name in ("ours", "other")]
    page = (root / "docs/scale.md").read_text().splitlines()
    configuration = page[page.index("    distributed:"):]
    for folder in folders:
        for line in page:
            if line.startswith("    openssl "):
                subprocess.run(line.split(), cwd=folder, check=True, capture_output=True)
        (folder / "dask.yaml").write_text("\n".join(configuration[:configuration.index("")]).replace(
            "/shared/ccnn/output/tls", str(folder)))
    return folders


def as_client(folder, **files):
    """The certificates of a folder, in this process; files : others"""
    return dask.config.set({f"distributed.comm.tls.{key}": files.get(key, str(folder / name)) for key, name in (
        ("ca-file", "ca.pem"), ("client.cert", "cluster.pem"), ("client.key", "cluster.key"))})


def test_tls(tmp_path, python_bin, certificates, monkeypatch):
    ours, other = certificates
    monkeypatch.setitem(ENVIRONMENT, "DASK_CONFIG", str(ours / "dask.yaml"))
    with dask_processes(tmp_path, python_bin) as (file, _):
        address = json.loads(file.read_text())["address"]
        assert address.startswith("tls://127.0.0.1:")
        for where in (address, str(file)):
            with as_client(ours), cluster.connected(where, 2) as jobs:
                assert sorted(y for _, y in in_processes(square, [(x,) for x in range(20)], jobs)) == [
                    x * x for x in range(20)]
        monkeypatch.setattr(cluster, "CONNECT", 2)
        for files in ({}, {"ca-file": str(ours / "ca.pem")}):       # a stranger, who trusts us or not
            with as_client(other, **files), \
                    pytest.raises(UserError, match=f"--cluster {address}: no scheduler answers at {address}"):
                next(cluster.connected(address, 2).gen)
        plain = address.replace("tls", "tcp")
        with pytest.raises(UserError, match=f"no scheduler answers at {plain}"):
            next(cluster.connected(plain, 2).gen)
        with pytest.raises(UserError, match=f"scheduler.json: {address} needs certificates; name them in Dask's conf"):
            next(cluster.connected(str(file), 2).gen)
        with as_client(ours / "nowhere"), pytest.raises(FileNotFoundError, match="nowhere/ca.pem"):
            next(cluster.connected(address, 2).gen)


@pytest.mark.parametrize("content", ["[]", "{", "{}", "5"])
def test_a_file_that_is_not_a_schedulers(tmp_path, content):
    path = tmp_path / "cluster.json"
    path.write_text(content)
    with pytest.raises(UserError, match=f"--cluster {path}: is not a scheduler's file; let `dask scheduler"):
        cluster.find_scheduler(str(path))
    path.write_text('{"address": "ucx://h:1"}')
    with pytest.raises(UserError, match=f"--cluster {path}: need local, tcp://.*; got the address ucx://h:1"):
        cluster.find_scheduler(str(path))
    with pytest.raises(FileNotFoundError, match="nowhere.json"):
        cluster.find_scheduler(str(tmp_path / "nowhere.json"))


def test_an_open_address_beyond_this_machine_is_warned_of(caplog):
    for address in ("tcp://127.0.0.1:8786", "tcp://localhost:8786", "tcp://[::1]:8786"):
        assert cluster.find_scheduler(address) == (address, None)
    assert not caplog.text
    for address in ("tcp://10.0.0.5:8786", "tcp://head:8786"):
        caplog.clear()
        cluster.find_scheduler(address)
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert f"{address} is neither encrypted nor authenticated" in caplog.text and "use TLS" in caplog.text


# --- the tools -----------------------------------------------------------------------------------------------

saved, small_search = test_crf_search.saved, test_crf_search.small_search       # fixtures
drawn, here = test_study.drawn, test_study.here


def test_tune_crf_finds_the_same_on_a_cluster(saved, small_search, tmp_path):
    for name, where in (("here", ["--jobs", "1"]), ("there", ["--cluster", "local", "--jobs", "2"])):
        tune_crf.main(["--images", str(saved / "JPEGImages"), "--masks", str(saved / "SegmentationClass"), "--count",
                       "2", "--out", str(tmp_path / f"{name}.json"), str(saved / "probabilities"), *where])
    kept = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("here", "there")]
    assert kept[0]["preset"] == kept[1]["preset"]
    assert sorted(kept[0]["tried"], key=str) == sorted(kept[1]["tried"], key=str)


def test_the_study_trains_the_same_on_a_cluster(here, capfd):
    """A row that the fixture does not shorten: workers have the repository's rows."""
    for words in (["--jobs", "1"], ["--cluster", "local", "--jobs", "2", "--folder", "there"]):
        study.main(["size", "--seeds", "1", "--set", "max_iter=2", *words])
    scores = [json.loads(Path(folder, "size/1/score.json").read_text()) for folder in ("output/study", "there")]
    assert scores[0]["iou"] == scores[1]["iou"]
    assert capfd.readouterr().out.count("size 1: mIoU") == 2


def test_cache_features_writes_the_same_on_a_cluster(drawn, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for image in sorted((drawn / test_study.ROOT / "JPEGImages").iterdir())[:5]:
        shutil.copy(image, "photos")
    Path("photos/broken.jpg").write_text("no image")
    for out, where in ("here", ["--jobs", "1"]), ("there", ["--cluster", "local", "--jobs", "2"]):
        assert cache_features.main(["photos", "--out", out, "--size", "40", "--weights",
                                    str(drawn / test_study.TRUNK), *where]) == 1
        assert "photos/broken.jpg: is not an image" in capsys.readouterr().out
    assert len(files_below("here")) == 6 and files_below("here") == files_below("there")


RED = (1 + np.arange(65) * 3).astype(np.uint8)


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """200 photographs in the folder photos, each one moved otherwise; tiny.prototxt and tiny.caffemodel."""
    monkeypatch.chdir(tmp_path)
    make_net(tmp_path)
    Path("photos/sub").mkdir(parents=True)
    for k in range(200):
        rgb = np.zeros((41, 65, 3), np.uint8)
        rgb[..., 0] = np.roll(RED, k)
        Image.fromarray(np.rot90(rgb, k % 4)).save(f"photos/{'sub/' * (k % 2)}{k:02d}.png")


def words(out, *more):
    return ["--net", "tiny.prototxt", "--weights", "tiny.caffemodel", "--out", out, *map(str, more)]


def files_below(folder):
    """{path: content}, without what killed runs have left."""
    return {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*")
            if path.is_file() and not path.name.startswith(".")}


def worker_processes(tool):
    """Those of a tool that runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == tool.pid and b"spawn_main" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found


def masks(folder):
    return [path for path in Path(folder).rglob("*.png") if not path.name.startswith(".")]


def test_infer_makes_the_same_files_while_clients_and_workers_are_killed(photographs, root, python_bin):
    assert infer.main(words("here", "photos", "--jobs", 1)) == 0
    expected = files_below("here")
    assert len(expected) == 400
    command = [python_bin, root / "tools/infer.py", *words("there", "photos", "--cluster", "local", "--jobs", 2)]

    tool = subprocess.Popen(command, env=ENVIRONMENT)
    wait_for(lambda: len(masks("there")) > 2, "three masks", tool)
    tool.kill()
    tool.wait()
    begun = len(masks("there"))
    assert begun < 200                                      # else the test proves nothing
    assert all(expected[file] == content for file, content in files_below("there").items())     # whole

    tool = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(masks("there")) > begun, "another mask", tool)
    workers = worker_processes(tool)
    assert len(workers) == 2 and len(masks("there")) < 200
    os.kill(workers[0], signal.SIGKILL)
    output, said = tool.communicate()
    assert tool.returncode == 0, said
    assert files_below("there") == expected
    assert f"{200 - begun} masks in there" in output
    assert f"{begun} of 200 were finished before" in said


def test_a_photograph_that_ends_every_worker_is_one_line(photographs, tmp_path, root, python_bin):
    """Every process that opens this photograph is killed at once, as by a system without memory."""
    Path("photos/00.png").rename("poison.png")
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent("""
        import os, sys

        def audit(event, arguments):
            if event == "open" and str(arguments[0]).endswith("poison.png"):
                open("killed.txt", "a").write("x")
                os.kill(os.getpid(), 9)
        sys.addaudithook(audit)
    """))
    done = subprocess.run([python_bin, root / "tools/infer.py", *words(
        "masks", "photos/[0-3][0-9].png", "poison.png", "--cluster", "local", "--jobs", 2)], text=True,
        capture_output=True, env={**ENVIRONMENT, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"})
    assert Path("killed.txt").read_text() == "xxxx"
    assert done.returncode == 1
    assert "19 masks in masks" in done.stdout and len(masks("masks")) == 19      # also of its neighbours
    assert done.stderr.splitlines()[-2:] == [
        "poison.png: ended its worker process 4 times, the last 2 alone; left out. Is it too large for the memory?",
        "1 failed, see above; the rest is done"]


def test_without_dask_one_line_names_the_remedy(photographs, root, python_bin):
    code = ("import sys; from ccnn.cli import command, segment; sys.modules['distributed'] = None; "
            "command.run(segment.main)")
    for more, status in (["--cluster", "local"], 2), (["--jobs", "2"], 0):
        done = subprocess.run([python_bin, "-c", code, *words("masks", *more, "photos/0[0-9].png")], text=True,
                              capture_output=True, env=ENVIRONMENT)
        assert done.returncode == status
        if status:
            assert done.stderr.count("\n") == 1 and "error: --cluster local: " in done.stderr
            assert done.stderr.endswith("; get it with: make cluster\n")


def test_the_soak_run_checks_every_mask(tmp_path, capsys):
    """bench/soak.py, short and without a kill: its masks are right; a wrong one and a missing one are found."""
    arguments = ["--photographs", "12", "--every", "10000", "--folder", str(tmp_path)]
    assert soak.main(arguments) == 0
    assert "masks right: 12\nstatus: 0\n" in capsys.readouterr().out
    assert {label for k in range(12) for label in np.unique(soak.right_mask(k))} == {0, 1, 2}
    with Image.open(tmp_path / "masks/000/0000003.png") as mask:
        wrong = mask.copy()
    wrong.putpixel((5, 7), (wrong.getpixel((5, 7)) + 1) % 3)
    wrong.save(tmp_path / "masks/000/0000003.png")
    assert [soak.is_right(tmp_path / f"masks/000/{k:07d}.png", k) for k in (2, 3, 12)] == [True, False, False]
