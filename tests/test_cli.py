"""tools/cli.py: errors in one line, whole files, and a Caffe that cannot take the tool down with it."""
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from tiny_net import make_net

import ccnn.net
from ccnn import command, errors, files, workers
from ccnn.errors import ImageError

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_net(tmp_path_factory.mktemp("tiny"))


# --- run ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("error, status, text", [
    (errors.UserError("a.txt: is\n  wrong"), 2, "a.txt: is wrong"),
    (ImageError("a.jpg: is damaged"), 2, "a.jpg: is damaged"),
    (FileNotFoundError(2, "No such file or directory", "b.txt"), 2, "b.txt: No such file or directory"),
    (OSError("disk on fire"), 2, "disk on fire"),
    (MemoryError("9 TB"), 2, "out of memory (9 TB); use a smaller size or fewer jobs"),
    (ModuleNotFoundError("No module named 'matplotlib'"), 2,
     f"No module named 'matplotlib'; get it with: {sys.executable} -m pip install -r requirements.txt"),
    (KeyboardInterrupt(), 130, "stopped"),
])
def test_an_error_is_one_line(error, status, text, capsys, monkeypatch):
    def main():
        raise error
    monkeypatch.setattr(sys, "argv", ["somewhere/infer.py"])
    with pytest.raises(SystemExit) as exit:
        command.run(main)
    assert exit.value.code == status
    assert capsys.readouterr().err == f"infer.py: error: {text}\n"


TOOLS = [path for path in sorted((ROOT / "tools").glob("*.py")) if "__main__" in path.read_text()]


@pytest.mark.parametrize("tool", [path for path in TOOLS if path.name != "cli.py"], ids=lambda path: path.stem)
def test_a_python_without_the_packages_is_an_error_in_one_line(tool, python_bin):
    """-E ignores PYTHONPATH, -S the installed packages; CCNN_ACTIVATED: the private runtime has been tried."""
    done = subprocess.run([python_bin, "-E", "-S", tool, "--help"], capture_output=True, text=True,
                          env={**os.environ, "CCNN_ACTIVATED": "1"})
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"{tool.name}: error: No module named .*; run `make` first\n", done.stderr)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.stem)
def test_without_activate_a_tool_goes_on_in_the_private_runtime(tool, python_bin, tmp_path):
    done = subprocess.run([python_bin, "-E", "-S", tool, "--help"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and f"tools/{tool.name}" in done.stdout


@pytest.mark.parametrize("returned", [None, 0, 1])
def test_the_status_is_what_main_returns(returned):
    with pytest.raises(SystemExit) as exit:
        command.run(lambda: returned)
    assert exit.value.code == returned


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        command.run(lambda: 1 / 0)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "two", ""])
def test_a_count_is_at_least_one(text, capsys):
    parser = command.parser("doc")
    parser.add_argument("--jobs", type=command.count)
    assert parser.parse_args(["--jobs", "3"]).jobs == 3
    with pytest.raises(SystemExit):
        parser.parse_args(["--jobs", text])
    assert "at least 1" in capsys.readouterr().err


# --- whole_file --------------------------------------------------------------------------------------------

def test_a_file_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "new/folder/a.png"
    with files.whole_file(target) as part:
        part.write_text("half")
        assert not target.exists() and part.suffix == ".png" and part.parent == target.parent
        part.write_text("whole")
    assert target.read_text() == "whole"

    os.link(target, tmp_path / "reader")                # somebody who has it open: replaced, not written into
    with files.whole_file(target) as part:
        part.write_text("new")
    assert (tmp_path / "reader").read_text() == "whole" and target.read_text() == "new"

    with pytest.raises(RuntimeError), files.whole_file(target) as part:
        part.write_text("broken")
        raise RuntimeError
    assert target.read_text() == "new"
    assert os.listdir(target.parent) == ["a.png"]


def test_a_file_that_was_never_begun_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), files.whole_file(tmp_path / "a.png"):
        pass


# --- spread ------------------------------------------------------------------------------------------------

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


def test_a_worker_that_dies_is_an_error_not_a_hang():
    with pytest.raises(errors.UserError, match="fewer --jobs"):
        list(workers.in_processes(die, [(1,)], 2))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_tool(tmp_path, python_bin, number):
    """Each begins a file, named by its number, and would work for a minute."""
    (tmp_path / "slow.py").write_text(textwrap.dedent("""
        import os, time
        from pathlib import Path
        from ccnn import workers

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


# --- Caffe -------------------------------------------------------------------------------------------------

def test_a_net_is_loaded_with_its_weights(tiny):
    net = ccnn.net.load_net(*tiny, shape=(1, 3, 9, 17))
    net.blobs["data"].reshape(1, 3, 9, 17)
    net.blobs["data"].data[...] = 0
    scores = net.forward()["fc8"]
    assert scores.shape == (1, 21, 2, 3)
    assert np.allclose(scores[0, 1], 122.67891434 - 128, atol=1e-4)


def no_gpu():
    return ccnn.net.rehearse(lambda: ccnn.net.load_caffe().set_device(0))


def test_no_gpu_is_a_user_error():
    if no_gpu() is None:
        pytest.skip("there is a GPU")
    with pytest.raises(errors.UserError, match="--gpu 0: .*leave --gpu out"):
        ccnn.net.load_caffe(gpu=0)


def edit(path, tmp_path, old, new):
    copy = tmp_path / path.name
    text = path.read_text()
    assert old in text
    copy.write_text(text.replace(old, new))
    return copy


@pytest.mark.parametrize("old, new, complaint", [
    ("num_output: 21", "num_output: 7", "[Ss]hape mismatch"),
    ("num_output: 21", "num_output: 0", "num_output"),
    ("num_output: 21", "num_output: 999999999", "."),           # 24 GB of weights
    ("kernel_size: 1", "kernel_size: 1 nonsense: 2", "nonsense"),
    ("Convolution", "Convolutoin", "Convolutoin"),
    ('name: "fc8"', 'name: "fc9"', "no weights for fc9"),
    ('bottom: "data"', 'bottom: "date"', "date"),
    ("layer {", "layer {{", "."),
])
def test_a_wrong_prototxt_is_a_user_error(tiny, tmp_path, old, new, complaint):
    prototxt = edit(tiny[0], tmp_path, old, new)
    with pytest.raises(errors.UserError, match=complaint) as error:
        ccnn.net.load_net(prototxt, tiny[1])
    assert str(prototxt) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_net_for_one_size_only_is_a_user_error(tiny, tmp_path):
    prototxt = edit(tiny[0], tmp_path, "kernel_size: 1  stride: 8", "kernel_size: 1  stride: 8")
    prototxt.write_text(prototxt.read_text() + textwrap.dedent("""
        layer { name: "bad" type: "Reshape" bottom: "fc8" top: "bad" reshape_param { shape { dim: 5 dim: 105 } } }
    """))
    ccnn.net.load_net(prototxt, tiny[1])
    with pytest.raises(errors.UserError, match=str(prototxt)):
        ccnn.net.load_net(prototxt, tiny[1], shape=(1, 3, 65, 97))


def test_a_training_net_is_a_user_error(tiny, tmp_path):
    prototxt = edit(tiny[0], tmp_path, 'type: "Input"  top: "data"  input_param',
                    'type: "DummyData"  top: "data"  dummy_data_param')
    with pytest.raises(errors.UserError, match="no input blob `data`"):
        ccnn.net.load_net(prototxt, tiny[1], shape=(1, 3, 65, 97))


def test_bilinear_upsampling_needs_no_weights(tiny, tmp_path):
    prototxt = edit(tiny[0], tmp_path, 'name: "tiny"', 'name: "tiny"')
    up = 'layer {{ name: "up" type: "Deconvolution" bottom: "fc8" top: "up" convolution_param {{ ' \
         'num_output: 21 group: 21 kernel_size: 4 stride: 2 bias_term: false weight_filler {{ type: "{}" }} }} }}\n'
    plain = prototxt.read_text()
    prototxt.write_text(plain + up.format("bilinear"))
    assert ccnn.net.load_net(prototxt, tiny[1]).params["up"][0].data.any()
    prototxt.write_text(plain + up.format("gaussian"))
    with pytest.raises(errors.UserError, match="no weights for up"):
        ccnn.net.load_net(prototxt, tiny[1])


@pytest.mark.parametrize("damage, complaint", [
    (lambda data: data[:-7], "not a whole .caffemodel"),
    (lambda data: b"", "holds no weights"),
    (lambda data: b"not a model at all", "not a whole .caffemodel|holds no weights"),
])
def test_damaged_weights_are_a_user_error(tiny, tmp_path, damage, complaint):
    weights = tmp_path / "damaged.caffemodel"
    weights.write_bytes(damage(tiny[1].read_bytes()))
    with pytest.raises(errors.UserError, match=complaint) as error:
        ccnn.net.load_net(tiny[0], weights)
    assert str(weights) in str(error.value)


def test_nan_weights_are_a_user_error(tiny, tmp_path):
    net = ccnn.net.load_net(*tiny)
    net.params["fc8"][1].data[3] = np.nan
    net.save(str(tmp_path / "nan.caffemodel"))
    with pytest.raises(errors.UserError, match="fc8 hold NaN"):
        ccnn.net.load_net(tiny[0], tmp_path / "nan.caffemodel")


def test_missing_files_are_named(tiny, tmp_path):
    with pytest.raises(FileNotFoundError, match="absent.prototxt"):
        ccnn.net.load_net(tmp_path / "absent.prototxt", tiny[1])
    with pytest.raises(FileNotFoundError, match="absent.caffemodel"):
        ccnn.net.load_net(tiny[0], tmp_path / "absent.caffemodel")


def test_a_rehearsal_reports_every_way_to_end():
    assert ccnn.net.rehearse(lambda: None) is None
    assert ccnn.net.rehearse(lambda: 1 / 0) == "division by zero"
    assert ccnn.net.rehearse(lambda: os._exit(3)) is not None
    assert "signal 9" in ccnn.net.rehearse(lambda: os.kill(os.getpid(), 9))
