"""Caffe's log: one reader for progress, curves and last words."""
import os
import re

import numpy as np

from ccnn.errors import UserError

ITERATION = re.compile(r"solver\.cpp:\d+\] Iteration (\d+).*, loss = (\S+)")

PER_ITERATION = re.compile(r"solver\.cpp:\d+\] (Iteration \d+, lr =|    Train net output #)")

GLOG = re.compile(r"[IWEF]\d{4,8} [\d:.]+ +\d+ \S+:\d+\] ")

TRACE = re.compile(r"\s*$|\*\*\*|PC: @|\s+@ ")            # what glog prints of the stack

LINE = re.compile(r"Iteration (?P<iteration>\d+)(?: \(.*?\))?, (?P<what>loss|lr) = (?P<value>\S+)"
                  r"|Train net output #\d+: (?P<name>\S+) = (?P<output>\S+)(?P<weighted> \(\*)?")


def read_log(path):
    """{"loss": {iteration: value}, "lr": {iteration: value}, "solver": {iteration: N x 4}} of Caffe's log."""
    log = {"loss": {}, "lr": {}, "solver": {}}
    outputs, last = {}, -1
    with open(path, errors="replace") as lines:
        for line in lines:
            match = LINE.search(line)
            if not match:
                continue
            try:
                value = float(match["value"] or match["output"])
            except ValueError:                              # cut off by a kill
                continue
            if match["name"]:
                if not match["weighted"] and last >= 0:
                    outputs.setdefault(match["name"], []).append(value)
                    if len(outputs[match["name"]]) % 4 == 0:
                        log["solver"][last] = np.reshape(outputs[match["name"]], (-1, 4))
                continue
            iteration = int(match["iteration"])
            if iteration < last:                            # resumed, or started again
                for series in log.values():
                    for i in [i for i in series if i >= iteration]:
                        del series[i]
            if iteration != last:
                outputs = {}
            last = iteration
            log[match["what"]][iteration] = value
    if not log["loss"]:
        raise UserError(f"{path}: has no line `Iteration N, loss = x`; is it the log of `caffe train`?")
    return log


def progress(run):
    """The last iteration in the log."""
    with open(run.log, "rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - 4000))
        seen = re.findall(rb"Iteration (\d+)", log.read())
    return int(seen[-1]) if seen else 0


def last_words(log):
    """What ended a training, from its log: Caffe's fatal line, else the last line that says something."""
    lines = [line for line in log.read_text(errors="replace").splitlines()
             if line.strip() and not line.startswith(("***", "PC: @", "    @"))]
    fatal = [line.partition("] ")[2] for line in lines if re.match(r"F\d{4}", line)]
    return (fatal or lines or ["it wrote nothing"])[-1]
