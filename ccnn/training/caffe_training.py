"""`caffe train`: checked before it starts, watched while it runs, continued from its newest whole snapshot.

    solver = read_solver("solvers/head_tags.prototxt", ["max_iter=3000"])       # of ccnn.nets.caffe_files
    training = prepare(solver)          # every check that needs no running Caffe
    training.run()                      # to the end, with a progress bar; or several at a time:
    run_all([prepare(solver) for solver in solvers], jobs=2)
    training.model                      # the trained weights

Caffe needs no GPU, and runs in a process of its own. As for `caffe train` itself, the paths inside solvers and
nets are relative to the current directory.
"""
import contextlib
import itertools
import json
import logging
import math
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import IO, Any, NoReturn, Optional

from ccnn._util import system
from ccnn._util.errors import UserError
from ccnn._util.files import append_text, lock, unlock, whole_file
from ccnn._util.paths import ROOT
from ccnn._util.progress import Progress
from ccnn.data.samples import SAMPLES_OF_LAYER
from ccnn.nets.backbones import BACKBONES
from ccnn.nets.caffe_files import read_net
from ccnn.nets.weights import Shapes, check_weights, convolutions
from ccnn.training.caffe_log import Ending, Line, read_line
from ccnn.training.snapshots import check_links, check_model, check_space, newest_snapshot, remove_cut, remove_snapshots

FULL = "is the disk full? Free some space, then run the same command again"


log = logging.getLogger(__name__)


def prepare(solver, weights: Optional[Path] = None, gpu: Optional[int] = None, restart: bool = False,
            split: Optional[str] = None) -> "CaffeTraining":
    """Check a training before Caffe starts, and find where it begins.

    The snapshot prefix is locked from here to the end of the training, so that no two of them write the same files.

    solver  : SolverParameter, as read_solver gives it
    weights : pre-trained .caffemodel for the beginning
    gpu     : number of the GPU to train on; None is the CPU
    restart : remove the snapshots of earlier runs instead of continuing from them
    split   : list of images to train on; None is the net's own
    """
    prefix = Path(solver.snapshot_prefix)
    shapes, net = convolutions(solver.net), read_net(solver.net)
    if split:
        change_split(net, split)
    samples = open_samples(net)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as failure:
        held = lock(f"{prefix}.lock", "process {holder} is training here; wait for its end or stop it (kill {holder}), "
                    "or train elsewhere with --set snapshot_prefix=...")
        failure.callback(unlock, held)
        if restart:
            remove_snapshots(prefix)
            Path(f"{prefix}.log").unlink(missing_ok=True)
        training = begin(CaffeTraining(solver, shapes, held, samples, gpu), weights)
        training.net = net if split else None
        if not training.finished:
            failure.pop_all()
    return training


def begin(training: "CaffeTraining", weights: Optional[Path]) -> "CaffeTraining":
    """Find out where a training begins, and with what."""
    solver, shapes = training.solver, training.shapes
    prefix = Path(solver.snapshot_prefix)
    start, snapshot = newest_snapshot(solver, shapes)
    training.start_at = training.iteration = start
    if training.finished:
        training.beginning = f"{prefix}: trained already ({start} iterations); remove its snapshots to begin again"
        return training
    check_space(solver, shapes, start)
    check_links(prefix, start)
    if snapshot:
        training.snapshot = snapshot
        training.beginning = f"continuing from {snapshot}" + ("; --weights were for the beginning" if weights else "")
    elif weights:
        random = check_weights(weights, shapes)
        training.weights = weights
        training.beginning = f"starting from {weights}" + (f"; {', '.join(random)} start at random" if random else "")
    else:
        for backbone in BACKBONES.values():
            if shapes.keys() & set(backbone.layers):
                raise UserError(f"{solver.net}: holds layers of {backbone.name}, which learn nothing from random "
                                "weights; give --weights: ccnn init-weights makes data/vgg16_8s.caffemodel, and joins "
                                "backbone and head")
    return training


def data_layer(net):
    """The settings of the layer of ours that brings a net its images; None if they come from elsewhere."""
    layers = (layer.python_param for layer in net.layer if layer.type == "Python")
    return next((layer for layer in layers if layer.module == "voc_data"), None)


def open_samples(net):
    """The training images of a net, by number of the sample; None if its data come from elsewhere than voc_data."""
    layer = data_layer(net)
    return layer and SAMPLES_OF_LAYER[layer.layer](layer.param_str)


def change_split(net, split: str) -> None:
    layer = data_layer(net)
    if not layer:
        raise UserError(f"--split {split}: the net has no data layer of module voc_data that could read it")
    layer.param_str = json.dumps({**json.loads(layer.param_str), "split": split})


def find_caffe() -> str:
    """The caffe program: that of the environment variable CAFFE, else the private one, else the one on PATH."""
    own = os.environ.get("CAFFE") or str(ROOT / ".caffe/bin/caffe")
    found = shutil.which(own) or shutil.which("caffe")
    if not found:
        raise UserError(f"{own}: no such program; `make` brings Caffe")
    return found


class CaffeTraining:
    """One run of `caffe train`. start() it, poll() it until that is true; run() does both.

    Caffe ends with the thread that has called start(), however that ended.

    solver      SolverParameter
    shapes      of the net's weights
    held        the lock of the snapshot prefix; Caffe holds it too
    samples     the training images, to name the one at which a run ends
    gpu         the number of the GPU to train on; None is the CPU
    start_at    the iteration at which it begins
    snapshot    the .solverstate, or
    weights     the .caffemodel, with which it begins
    beginning   one line: what it begins with
    """

    def __init__(self, solver, shapes: Shapes, held: FileIO, samples=None, gpu: Optional[int] = None) -> None:
        self.solver, self.shapes, self.held, self.samples, self.gpu = solver, shapes, held, samples, gpu
        self.start_at = 0
        self.snapshot: Optional[Path] = None
        self.weights: Optional[Path] = None
        self.net: Any = None                    # NetParameter, if another than the one that the solver names
        self.beginning = "starting at random"
        self.log = Path(f"{solver.snapshot_prefix}.log")
        self.model = Path(f"{solver.snapshot_prefix}_iter_{solver.max_iter}.caffemodel")
        self.iteration = 0                      # that Caffe is computing
        self.loss: Optional[float] = None
        self.stopped = False                    # stop() has ended it, with a snapshot
        self._stops = 0                         # calls of stop()
        self._process: Optional[subprocess.Popen] = None
        self._reader: Optional[threading.Thread] = None
        self._ending = Ending()
        self._complaint: Optional[str] = None   # why it was ended from here

    @property
    def finished(self) -> bool:
        """Nothing was left to do."""
        return self.start_at >= self.solver.max_iter

    def run(self) -> bool:
        """Run Caffe to its end, with a progress bar. True if a signal stopped it.

        The first ^C ends it after the iteration, with a snapshot; the second at once, without.
        """
        if self.finished:
            return False
        with signals_call(self.stop), Progress(total=self.solver.max_iter, initial=self.start_at, unit="it",
                                               desc=self.name, smoothing=0.1, mininterval=1) as bar:
            self.start()
            while not self.poll(0.2):
                self._show(bar)
            self._show(bar)
        return self.stopped

    def start(self, threads: Optional[int] = None) -> None:
        """Start Caffe; threads: how many OpenBLAS may use."""
        kept = append_text(self.log)            # closed by the thread that writes it
        command, environment = self._caffe_train(), self._environment()
        if threads:
            environment["OPENBLAS_NUM_THREADS"] = str(threads)
        # a session of its own: ^C reaches Caffe once, from here, and not the processes its layers have started
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace",
            pass_fds=[] if self.held.closed else [self.held.fileno()],
            **system.child_options(0, system.KILL))
        if self._stops:                         # a signal came before the process was there
            self._process.kill()
        self._reader = threading.Thread(target=self._follow, args=[kept], daemon=True)
        self._reader.start()

    def _caffe_train(self) -> list[str]:
        options = {"-solver": self.write_solver(), "-snapshot": self.snapshot, "-weights": self.weights,
                   "-gpu": self.gpu}
        given = ([name, str(value)] for name, value in options.items() if value is not None)
        return [find_caffe(), "train", *itertools.chain(*given)]

    def _environment(self) -> dict[str, str]:
        return dict(os.environ, GLOG_logtostderr="1", GLOG_minloglevel="0",
                    CCNN_START_ITERATION=str(self.start_at * self.solver.iter_size))

    def poll(self, patience: float = 0) -> bool:
        """Whether Caffe has ended, after waiting up to `patience` seconds for that; UserError if it failed."""
        assert self._process and self._reader, "start() comes first"
        self._reader.join(patience)
        if self._reader.is_alive():
            return False
        status = self._process.wait()
        self.stopped = self._stops == 1 and status in (0, -signal.SIGINT, -system.KILL)
        try:
            if self._complaint or (status and not self.stopped):
                self._fail(status)
            if not self.stopped:
                self._check_end()
        finally:
            unlock(self.held)
        return True

    def _fail(self, status: int) -> NoReturn:
        remove_cut(self.solver, self.shapes, self.start_at)
        raise UserError(self._why(status))

    def _check_end(self) -> None:
        """UserError unless the trained model is whole: of a full disk Caffe may not notice the last few kilobytes."""
        if self.finished or not self.solver.snapshot_after_train:
            return
        try:
            check_model(self.model, self.shapes)
        except (UserError, OSError) as e:
            remove_cut(self.solver, self.shapes, self.start_at)
            raise UserError(f"{e}; {FULL}") from None

    def stop(self) -> None:
        """End the training after the present iteration, with a snapshot; called again, at once and without."""
        self._stops += 1
        if not self._process:
            return
        if self._stops == 1:
            log.info("stopping after this iteration, with a snapshot; once more to stop at once, without")
            self._process.send_signal(signal.SIGINT)
        else:
            self._process.kill()

    def kill(self) -> None:
        """End the training at once; it need not have been started."""
        if self._process:
            self._process.kill()
            self._process.wait()
        unlock(self.held)

    def write_solver(self) -> str:
        """Write the solver that Caffe gets: the user's, but it logs every iteration, and a continued run does not
        draw the same dropout again."""
        solver = type(self.solver).FromString(self.solver.SerializeToString())
        solver.display = 1
        if solver.random_seed >= 0:
            solver.random_seed += self.start_at
        if self.net:
            solver.net = f"{solver.snapshot_prefix}.net.prototxt"
            with whole_file(solver.net) as part:
                part.write_text(f"# Written by ccnn/training/caffe_training.py.\n{self.net}")
        path = f"{solver.snapshot_prefix}.solver.prototxt"
        with whole_file(path) as part:
            part.write_text(f"# Written by ccnn/training/caffe_training.py.\n{solver}")
        return path

    @property
    def name(self) -> str:
        return Path(self.solver.snapshot_prefix).name

    def _show(self, bar: Progress) -> None:
        if self.loss is not None:
            bar.set_postfix_str(f"loss {self.loss:.4g}", refresh=False)
        bar.update(self.iteration - bar.n)

    def _follow(self, kept: IO[str]) -> None:
        """Read what Caffe says as long as it runs; the thread's work."""
        assert self._process and self._process.stderr
        try:
            with kept, self._process.stderr as lines:
                self._read(lines, kept)
        except OSError as e:                    # the disk is full
            self._complaint = f"{self.log}: {e.strerror}; {FULL}"
            self._process.kill()

    def _read(self, lines: IO[str], kept: IO[str]) -> None:
        """Of the iterations, the log keeps those that `display` asks for, and one whose loss is not a number."""
        keep = True
        for text in lines:
            line = read_line(text)
            if line and line.kind == "loss":
                keep = line.iteration % (self.solver.display or 1) == 0 or not math.isfinite(line.value)
                self._note_loss(line)
            if self._ending.add(text) or keep or not line:
                kept.write(text)
                kept.flush()
            if self._complaint:
                return

    def _note_loss(self, line: Line) -> None:
        self.loss, self.iteration = line.value, min(line.iteration + 1, self.solver.max_iter)
        if not math.isfinite(line.value):
            assert self._process
            self._process.kill()                # before it writes a snapshot of this
            self.iteration, self._complaint = line.iteration, f"the loss is {line.value}"

    def _why(self, status: int) -> str:
        """One line: the reason of the end, and where it was."""
        reason = self._complaint or self._ending.fatal
        if reason and "SerializeToOstream" in reason:
            reason = f"a snapshot could not be written; {FULL}"
        if not reason and status == -system.KILL and self._stops > 1:
            reason = "stopped at once, without a snapshot"
        elif not reason and status < 0:         # what a layer printed may be long ago
            reason = f"caffe was ended by {signal.Signals(-status).name}"
            reason += "; is there enough memory?" if status == -system.KILL else \
                f"; the last that it wrote: {self._ending.printed}" if self._ending.printed else ""
        reason = reason or self._ending.printed or f"caffe ended with status {status}"
        return f"{reason} ({self._where()}; log: {self.log})"

    def _where(self) -> str:
        """The iteration and its images."""
        if not self._ending.solving:
            return "before the first iteration"
        where = f"at iteration {self.iteration}"
        if self.samples:
            size = self.solver.iter_size
            images = [self.samples.image(t) for t in range(self.iteration * size, (self.iteration + 1) * size)]
            where += f", {', '.join(images)}"
        return where


def run_all(trainings: Sequence[CaffeTraining], jobs: int) -> None:
    """Run trainings, `jobs` at a time, each on one core; one bar shows the iterations of all.

    Where one fails, or ^C comes, the others are ended too.
    """
    waiting: list[CaffeTraining] = [training for training in trainings if not training.finished]
    busy: list[CaffeTraining] = []
    total = sum(training.solver.max_iter - training.start_at for training in waiting)
    with Progress(total=total, unit="it", desc="training") as bar:
        try:
            while waiting or busy:
                while waiting and len(busy) < jobs:
                    busy.append(waiting.pop(0))
                    busy[-1].start(threads=1)
                time.sleep(0.2)
                busy = [training for training in busy if not training.poll()]
                bar.set_postfix_str(", ".join(training.name for training in busy), refresh=False)
                bar.update(sum(training.iteration - training.start_at for training in trainings) - bar.n)
        finally:
            for training in (*busy, *waiting):
                training.kill()


@contextlib.contextmanager
def signals_call(function) -> Iterator[None]:
    """Call function() at ^C and other requests to end, instead of ending. Only the main thread gets them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: function()) for number in system.STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
