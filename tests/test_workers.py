"""Worker processes: every task once, bounded memory, and no process that outlives the tool."""
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from ccnn._util import errors, workers


def square(x):
    return os.getpid(), x * x


def die(x):
    os._exit(1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_spread_calls_the_function_once_for_each_task(jobs):
    asked = []

    def tasks():
        for x in range(20):
            asked.append(x)
            yield (x,)
    results, ahead = [], 0
    for pid, y in workers.in_processes(square, tasks(), jobs):
        results.append(y)
        ahead = max(ahead, len(asked) - len(results))
        assert (pid == os.getpid()) == (jobs == 1)
    assert sorted(results) == [x * x for x in range(20)]
    assert ahead <= 2 * jobs                # memory is bounded


def die_once(folder, x):
    """The first task that comes here ends its process."""
    try:
        Path(folder, "died").touch(exist_ok=False)
    except FileExistsError:
        return x
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_work_goes_on_without_a_worker_that_was_ended(method, tmp_path, caplog):
    done = list(workers.in_processes(die_once, [(tmp_path, x) for x in range(20)], 3, method))
    assert sorted(done) == list(range(20))          # every result once, also of what the ended worker had begun
    assert "a worker process was ended, most likely for lack of memory; going on with 2" in caplog.text


def blas_threads(x):
    return os.environ.get(workers.THREADS)


@pytest.mark.parametrize("before", [None, "7"])
def test_workers_have_one_thread_each_and_this_process_keeps_its_own(monkeypatch, before):
    monkeypatch.delenv(workers.THREADS, raising=False)
    if before:
        monkeypatch.setenv(workers.THREADS, before)
    assert list(workers.in_processes(blas_threads, [(1,), (2,), (3,)], 2)) == ["1"] * 3
    assert os.environ.get(workers.THREADS) == before


def test_forked_workers_share_what_is_loaded_here():
    loaded = object()
    assert list(workers.in_processes(lambda x: id(loaded), [(1,), (2,)], 2, "fork")) == [id(loaded)] * 2


def test_a_worker_that_dies_is_an_error_not_a_hang():
    with pytest.raises(errors.UserError, match="the last worker process was ended.*--jobs 1"):
        list(workers.in_processes(die, [(1,)], 2))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_tool(tmp_path, python_bin, number):
    """Each begins a file, named by its number, and would work for a minute."""
    (tmp_path / "slow.py").write_text(textwrap.dedent("""
        import os, time
        from pathlib import Path
        from ccnn._util import workers

        def work(folder):
            Path(folder, str(os.getpid())).touch()
            time.sleep(60)

        if __name__ == "__main__":
            list(workers.in_processes(work, [(os.path.dirname(__file__) + "/begun",)] * 2, 2))
    """))
    (tmp_path / "begun").mkdir()
    tool = subprocess.Popen([python_bin, tmp_path / "slow.py"],
                            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    workers = wait_for(lambda: [int(path.name) for path in (tmp_path / "begun").iterdir()], 2)
    tool.send_signal(number)
    tool.wait()
    assert len(workers) == 2
    assert wait_for(lambda: [pid for pid in workers if alive(pid)], 0) == []


def wait_for(found, count):
    """What is found when it is of that length; or after 20 seconds."""
    end = time.monotonic() + 20
    while len(found()) != count and time.monotonic() < end:
        time.sleep(0.05)
    return found()


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
