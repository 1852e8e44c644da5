"""The process that reads ahead, alone and under the real `caffe train`."""
import os
import signal
import subprocess

import pytest
from data_nets import prototxt, still
from read_ahead import read_ahead
from tiny_voc import make_voc
from waiting import LIMIT, children, wait_for

from ccnn._util.errors import ImageError, UserError
from ccnn._util.system import is_running
from ccnn.data.samples import Samples


@pytest.fixture
def voc(tmp_path):
    return make_voc(tmp_path / "voc")

def test_readers_end_when_nobody_reads(voc):
    samples = Samples(still(voc))
    before = set(children(os.getpid()))
    first, second = read_ahead(samples, 0), read_ahead(samples, 1)
    assert next(first)[0]["tags"][1] == 1 and next(second)[0]["tags"][2] == 1
    readers = [pid for pid in children(os.getpid()) if pid not in before]
    assert len(readers) == 2
    first.close()                       # the second reader holds the first one's pipe open
    assert [os.path.exists(f"/proc/{pid}") for pid in readers] == [False, True]
    os.kill(readers[1], signal.SIGKILL)
    with pytest.raises(UserError, match="the process that reads the images was ended"):
        for _ in range(99):
            next(second)
    assert not os.path.exists(f"/proc/{readers[1]}")


def test_errors_of_the_reader_are_raised_here(voc):
    samples = Samples(still(voc))
    samples.files[1] = str(voc / "nowhere.jpg")
    stream = read_ahead(samples, 0)
    next(stream)
    with pytest.raises(ImageError, match="nowhere.jpg: no such file"):
        next(stream)
    samples.tops = None                 # a mistake in the program, with its traceback
    with pytest.raises(RuntimeError, match="Traceback(.|\n)*TypeError"):
        next(read_ahead(samples, 2))


@pytest.fixture
def train(tmp_path, caffe_bin):
    """train(options) -> a running `caffe train` on a data layer and a tiny net."""
    def start(options):
        (tmp_path / "train.prototxt").write_text(prototxt({"tops": ["data", "tags"], **options}) + """
            layer { name: "c" type: "InnerProduct" bottom: "tags" top: "c" inner_product_param { num_output: 1 } }
            layer { name: "loss" type: "Reduction" bottom: "c" top: "loss" loss_weight: 1 }
            layer { name: "silence" type: "Silence" bottom: "data" }""")
        (tmp_path / "solver.prototxt").write_text(f"""net: "{tmp_path}/train.prototxt" base_lr: 0 lr_policy: "fixed"
            display: 1 max_iter: 1000000 snapshot_prefix: "{tmp_path}/snap" solver_mode: CPU""")
        return subprocess.Popen([caffe_bin, "train", "-solver", "solver.prototxt"], cwd=tmp_path, text=True,
                                env={**os.environ, "GLOG_minloglevel": "0", "GLOG_logtostderr": "1"},
                                stderr=subprocess.PIPE, start_new_session=True)
    return start


def read_until(process, text):
    seen = []
    for line in process.stderr:
        seen.append(line)
        if text in line:
            return
    pytest.fail(f"{text!r} was not said:\n{''.join(seen[-9:])}")


def test_caffe_train_says_what_is_missing_in_one_line(train):
    process = train({"root": "data/VOCdevkit/VOC2012", "split": "train_aug"})
    lines = process.communicate(timeout=LIMIT)[1].splitlines()
    assert process.returncode == 2
    assert lines[-1].startswith("data/VOCdevkit/VOC2012: no such folder; ccnn get-voc fetches")
    assert not any("Traceback" in line or line.startswith(("    @", "***", "F")) for line in lines)


def test_caffe_train_survives_interrupts_and_leaves_no_process(train, voc):
    (voc / "JPEGImages/2007_000002.jpg").write_bytes(b"")
    process = train({"root": str(voc), "split": "train", "damaged": "skip"})
    read_until(process, "Iteration 20")
    reader, = children(process.pid)
    os.kill(reader, signal.SIGINT)
    os.killpg(process.pid, signal.SIGHUP)       # the terminal's signals reach the whole group
    read_until(process, "Snapshotting to binary proto file")
    read_until(process, "skipped (")
    assert is_running(reader)
    os.killpg(process.pid, signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=LIMIT) == 0 and "Snapshotting to binary proto file" in rest
    assert "Traceback" not in rest and "was ended" not in rest
    wait_for(lambda: not is_running(reader), "the end of the reader")

    process = train({"root": str(voc), "split": "train", "damaged": "skip"})
    read_until(process, "Iteration 3")
    reader, = children(process.pid)
    process.kill()
    wait_for(lambda: not is_running(reader), "the end of the reader")

    process = train({"root": str(voc), "split": "train"})
    lines = process.communicate(timeout=LIMIT)[1].splitlines()
    assert process.returncode == 2 and "2007_000002.jpg: is empty (0 bytes)" in lines[-1]
