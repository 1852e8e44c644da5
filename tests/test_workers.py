"""Worker processes: every task once, bounded memory, and no process that outlives the tool."""
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from waiting import wait_for

from ccnn._util import errors, workers
from ccnn._util.system import is_running


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
    wait_for(lambda: len([*(tmp_path / "begun").iterdir()]) == 2, "two workers", tool)
    workers = [int(path.name) for path in (tmp_path / "begun").iterdir()]
    tool.send_signal(number)
    tool.wait()
    wait_for(lambda: not any(map(is_running, workers)), "the end of the workers")


@pytest.mark.parametrize("hide", ["mount -t tmpfs -o ro none /dev/shm", "mount -t tmpfs none /dev && mknod -m 666 "
                                  "/dev/null c 1 3 && mknod -m 444 /dev/urandom c 1 9"], ids=["read-only", "missing"])
def test_without_shared_memory_one_line_says_what_to_do(hide, tmp_path):
    """multiprocessing's own message is a bare errno."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("only root may hide /dev/shm")
    program = tmp_path / "program.py"
    program.write_text("from ccnn._util.workers import in_processes\n"
                       "from ccnn.cli import command\n"
                       "if __name__ == '__main__':\n"
                       "    command.run(lambda: print(sorted(in_processes(abs, [(-1,), (2,)], 2))))\n")
    lines = [subprocess.run(["unshare", "-m", "sh", "-c", f'{first} && exec "$0" "$1"', sys.executable, program],
                            capture_output=True, text=True) for first in ("true", hide)]
    assert lines[0].stdout == "[1, 2]\n"
    assert lines[1].returncode == 2 and re.fullmatch(
        r"program\.py: error: worker processes cannot be started: /dev/shm is missing or not writable \(.+\); mount it "
        r".*--jobs 1\n", lines[1].stderr), lines[1]
