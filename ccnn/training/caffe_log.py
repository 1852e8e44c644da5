"""Caffe's log, line by line: the one reader for a training that runs and for the log that it left, and its writer.

    read_line(line)       what one line says
    read_log(path)        the curves of a finished or running training
    Ending                why a training ended, from the lines that it wrote
    Writer                the log of a training that is not Caffe's
"""
import datetime
import os
import re
from typing import NamedTuple, Optional, Union

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import append_text

GLOG = re.compile(r"(?P<severity>[IWEF])\d{4,8} [\d:.]+ +\d+ \S+:\d+\] ")

TRACE = re.compile(r"\s*$|\*\*\*|PC: @|\s+@ ")          # what glog prints of the stack

# "Iteration 20 (1.7 iter/s, 11s/20 iters), loss = 2.5", "Iteration 20, lr = 0.1", "Train net output #1: solver = 3".
# An output with a loss weight goes on with " (* 1 = 3 loss)".
SERIES = re.compile(r"Iteration (?P<iteration>\d+)(?: \(.*?\))?, (?P<what>loss|lr) = (?P<value>\S+)"
                    r"|Train net output #\d+: (?P<name>\S+) = (?P<output>\S+)(?P<weighted> \(\*)?")

DIAGNOSTICS = 4         # numbers per image that ConstrainedLossLayer's second top holds


class Line(NamedTuple):
    """A number that Caffe logs in every iteration that it displays."""
    kind: str                           # "loss", "lr", or "output": a top of the net
    value: float
    iteration: int = -1                 # of a loss or rate; an output belongs to the loss before it
    name: str = ""                      # of an output
    weighted: bool = False              # the output is a loss


def read_line(text: str) -> Optional[Line]:
    """The number in a line; None in any other line, and where a kill has cut the number off."""
    match = SERIES.search(text)
    if not match:
        return None
    try:
        value = float(match["value"] or match["output"])
    except ValueError:
        return None
    if match["name"]:
        return Line("output", value, name=match["name"], weighted=bool(match["weighted"]))
    return Line(match["what"], value, int(match["iteration"]))


class Curves:
    """The series of a training, {iteration: value}. Where it was resumed, the last values count.

    loss, lr    what Caffe logs as such
    solver      the diagnostics of ConstrainedLossLayer, one row per image: N x 4
    """

    def __init__(self) -> None:
        self.loss: dict[int, float] = {}
        self.lr: dict[int, float] = {}
        self.solver: dict[int, np.ndarray] = {}
        self._last = -1                                 # the iteration of the line before
        self._outputs: dict[str, list[float]] = {}      # what the tops of that iteration hold, so far

    def add(self, line: Line) -> None:
        if line.kind == "output":
            if not line.weighted and self._last >= 0:
                self._add_output(line.name, line.value)
            return
        if line.iteration < self._last:                 # resumed, or started again
            self._forget(line.iteration)
        if line.iteration != self._last:
            self._outputs = {}
        self._last = line.iteration
        (self.loss if line.kind == "loss" else self.lr)[line.iteration] = line.value

    def _add_output(self, name: str, value: float) -> None:
        values = self._outputs.setdefault(name, [])
        values.append(value)
        if len(values) % DIAGNOSTICS == 0:
            self.solver[self._last] = np.reshape(values, (-1, DIAGNOSTICS))

    def _forget(self, iteration: int) -> None:
        """Drop what comes again."""
        self.loss = {i: value for i, value in self.loss.items() if i < iteration}
        self.lr = {i: value for i, value in self.lr.items() if i < iteration}
        self.solver = {i: value for i, value in self.solver.items() if i < iteration}


def read_log(path: Union[str, "os.PathLike[str]"]) -> Curves:
    """The curves in a log of `caffe train`."""
    curves = Curves()
    with open(path, errors="replace") as lines:
        for line in filter(None, map(read_line, lines)):
            curves.add(line)
    if not curves.loss:
        raise UserError(f"{path}: has no line `Iteration N, loss = x`; is it the log of `caffe train`?")
    return curves


class Ending:
    """Collects from Caffe's lines what may be the reason of an end."""

    def __init__(self) -> None:
        self.solving = False                    # the first iteration has begun
        self.fatal: Optional[str] = None        # Caffe's fatal line
        self.printed: Optional[str] = None      # the last line that a layer, not Caffe, printed
        self._dump = False                      # Caffe prints a net or a solver, over many lines

    def add(self, text: str) -> bool:
        """Read a line; whether a layer has printed it."""
        log = GLOG.match(text)
        if log:
            self._dump = text.rstrip().endswith("from parameters:")
        self.solving |= "Starting Optimization" in text
        if log and log["severity"] == "F":
            self.fatal = text[log.end():].strip()
        elif not log and not self._dump and not TRACE.match(text):
            self.printed = text.strip()
            return True
        return False

    @property
    def reason(self) -> Optional[str]:
        """Caffe's own, else what a layer said last."""
        return self.fatal or self.printed


class Writer:
    """Writes a log as Caffe does, for those who read its logs."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self._file = append_text(path)          # a line is there when it is written

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def line(self, text: str) -> None:
        now = datetime.datetime.now()
        self._file.write(f"I{now:%m%d %H:%M:%S.%f} {os.getpid()} solver.py:1] {text}\n")

    def loss(self, iteration: int, loss: float, speed: str = "") -> None:
        self.line(f"Iteration {iteration}{speed and f' ({speed})'}, loss = {loss:.6g}")

    def rate(self, iteration: int, rate: float) -> None:
        self.line(f"Iteration {iteration}, lr = {rate:.6g}")

    def output(self, number: int, name: str, value: float, weight: float = 0) -> None:
        """A number of a top of the net; weight: of a loss."""
        weighted = f" (* {weight:g} = {weight * value:.6g} loss)" if weight else ""
        self.line(f"    Train net output #{number}: {name} = {value:.6g}{weighted}")
