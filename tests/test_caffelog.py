"""Caffe's log: curves from whole, cut and resumed logs, and why a training ended."""

import pytest

from ccnn._util.errors import UserError
from ccnn.training import caffe_log as caffelog


def glog(iteration, loss, lr=0.1, outputs=()):
    lines = [f"solver.cpp:239] Iteration {iteration} (1.7 iter/s, 11s/20 iters), loss = {loss}"]
    lines += [f"solver.cpp:258]     Train net output #{k}: {name} = {value}" for k, (name, value) in enumerate(outputs)]
    lines += [f"sgd_solver.cpp:112] Iteration {iteration}, lr = {lr}"]
    return "".join(f"I1116 03:29:12.802891 20579 {line}\n" for line in lines)


def test_resumed_training_replaces_what_it_repeats(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("".join(glog(i, i) for i in (0, 20, 40, 60)) + "".join(glog(i, 100 + i) for i in (40, 60, 80)))
    assert caffelog.read_log(path).loss == {0: 0, 20: 20, 40: 140, 60: 160, 80: 180}
    path.write_text("".join(glog(i, i) for i in (0, 20, 40, 60)) + glog(0, 7) + glog(20, 8))      # from the start
    assert caffelog.read_log(path).loss == {0: 7, 20: 8}


def test_other_outputs_and_cut_lines(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(glog(0, 1, 0.1, [("accuracy", 0.5)] + [("loss2", "3 (* 1 = 3 loss)")] * 4).encode()
                     + b"I1116 test.cpp:1]     Test net output #0: solver = 7\n\xff\xfe\n"
                     + b"I1116 03:29:12.802891 20579 solver.cpp:239] Iteration 20 (1 iter/s), loss = 0.5e\n"
                     + b"I1116 03:29:12.802891 20579 solver.cpp:239] Iteration 40, lo")
    log = caffelog.read_log(path)
    assert (log.loss, log.lr, log.solver) == ({0: 1}, {0: 0.1}, {})


def test_what_ended_a_training():
    def ending(text):
        ending = caffelog.Ending()
        for line in text.splitlines(keepends=True):
            ending.add(line)
        return ending
    fatal = ending("I1116 03:49:01.0 7 net.cpp:1] fine\nF1116 03:49:02.0 7 math.cpp:2] Check failed: too large\n"
                   "*** Check failure stack trace: ***\n    @ 0x7f LogMessage\nPC: @ 0x0 (unknown)\nAborted\n")
    assert (fatal.fatal, fatal.reason, fatal.solving) == ("Check failed: too large", "Check failed: too large", False)
    layer = ending("I1116 03:49:01.0 7 net.cpp:1] Starting Optimization\nVOCDataLayer: no such file\n\n")
    assert (layer.fatal, layer.reason, layer.solving) == (None, "VOCDataLayer: no such file", True)
    dump = ending("I1116 03:49:01.0 7 net.cpp:1] Initializing net from parameters:\nlayer {\n  name: \"data\"\n}\n")
    assert dump.reason is None


def test_a_log_without_losses_is_none(tmp_path):
    (tmp_path / "x.log").write_text("no log\n")
    with pytest.raises(UserError, match="x.log: has no line `Iteration N, loss = x`"):
        caffelog.read_log(tmp_path / "x.log")
