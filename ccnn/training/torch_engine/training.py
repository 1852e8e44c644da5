"""A training with PyTorch: what `caffe train` does with the same solver, and the same files.

    training = prepare(solver)          # a SolverParameter; every check
    training.run()                      # to the end, with a progress bar; continues from the newest snapshot
    training.model                      # the trained weights

After the same steps from the same weights, the weights agree with Caffe's to 1e-4 of what has changed
(tests/test_torch_engine.py), and each of the two continues a snapshot of the other. The random numbers are others: the
first weights, and what dropout drops.
"""
import collections
import contextlib
import itertools
import logging
import math
import platform
import time
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch

from ccnn._util.errors import UserError
from ccnn._util.files import unlock
from ccnn._util.progress import Progress
from ccnn.nets.caffe_files import (
    TrainingState,
    parse_net,
    parse_solver,
    read_caffemodel,
    read_net,
    read_state,
    write_caffemodel,
    write_state,
)
from ccnn.nets.weights import convolutions
from ccnn.training import caffe_training, schedule
from ccnn.training.caffe_log import Writer
from ccnn.training.caffe_training import open_samples, signals_call
from ccnn.training.torch_engine import devices
from ccnn.training.torch_engine.layers import LayerContext
from ccnn.training.torch_engine.net import Net, to_array
from ccnn.training.torch_engine.optimisers import OPTIMISERS, check_solver
from ccnn.training.torch_engine.processes import Group, check_division, check_same, facts_of, join
from ccnn.training.torch_engine.reader import Reader

log = logging.getLogger(__name__)


def prepare(solver: Any, weights: Optional[Path] = None, split: Optional[str] = None, device: str = "auto",
            precision: str = "float32", deterministic: bool = False, group: Optional[Group] = None) -> "TorchTraining":
    """Check a training, and find where it begins. The first arguments are those of caffe_training.prepare.

    device, precision, deterministic : see ccnn.training.torch_engine.devices
    group : the processes that train together; None: those that torchrun has started
    """
    group, plan = group or join(), None
    with group.together():
        check_solver(solver)
        check_division(solver, group)
        place = devices.find_place(device, precision, group.place)
        if group.leads:                             # locks the snapshots; a wrong file ends here
            plan = caffe_training.prepare(solver, weights, split=split)
    with contextlib.ExitStack() as failure:
        if plan and plan.held:
            failure.callback(unlock, plan.held)
        text, net, start_at = group.share(
            plan and (str(plan.solver), str(plan.net or read_net(solver.net)), plan.start_at))
        with group.together():
            training = TorchTraining(text, net, start_at, group, place, deterministic)
            facts = facts_of(training.samples)
        gathered = group.gather((platform.node(), facts))
        with group.together():
            check_same(gathered)
        if plan:
            training.load(plan)
        training.begin()
        failure.pop_all()
    return training


class TorchTraining:
    """One training, or the part of it that this process computes.

    start_at    the iteration at which it begins
    beginning   one line: what it begins with
    """

    def __init__(self, solver: str, net: str, start_at: int, group: Group, place: devices.Place,
                 deterministic: bool) -> None:
        """solver, net : as text, the leader's"""
        self.solver = s = parse_solver(solver.encode(), "solver")
        message = parse_net(net.encode(), s.net)
        self.group, self.place, self.start_at = group, place, start_at
        self.samples = open_samples(message)
        if not self.samples:
            raise UserError(f"{s.net}: has no data layer of module voc_data; PyTorch's engine knows no other")
        generator = torch.Generator()
        seed = s.random_seed if s.random_seed >= 0 else generator.seed() % 2**31
        generator.manual_seed(seed)
        shapes = convolutions(s.net)
        # a continued run does not draw the same dropout again, and no two processes draw the same
        devices.configure(place, deterministic, seed + start_at + 1_000_003 * group.number,
                          sum(map(math.prod, shapes.values())), group.neighbours)
        self.net = Net(message, s.net, LayerContext(shapes, generator, group.size))
        self.tops = self.net.sources
        if len(self.tops) != len(self.samples.tops):
            raise UserError(f"{s.net}: the data layer has {len(self.tops)} tops, its settings name "
                            f"{len(self.samples.tops)}: {', '.join(self.samples.tops)}")
        self.net.to(place.device, memory_format=place.memory_format)
        self.optimiser = OPTIMISERS[s.type](s, list(self.net.parameters()), *self.net.multiples())
        self.log = Path(f"{s.snapshot_prefix}.log")
        self.model = self.snapshot_path(s.max_iter, ".caffemodel")
        self.beginning = ""
        self.held: Any = None                   # the lock of the snapshot prefix; the leader's
        self.stopping = False
        self.losses: collections.deque[float] = collections.deque(maxlen=max(1, s.average_loss))
        self.outputs: dict[str, torch.Tensor] = {}          # of the last forward pass

    @property
    def finished(self) -> bool:
        """Nothing was left to do."""
        return self.start_at >= self.solver.max_iter

    def snapshot_path(self, iteration: int, suffix: str) -> Path:
        return Path(f"{self.solver.snapshot_prefix}_iter_{iteration}{suffix}")

    def load(self, plan: caffe_training.CaffeTraining) -> None:
        """The weights and moments with which it begins."""
        self.beginning = plan.beginning
        if plan.finished:
            return
        self.held = plan.held
        state = read_state(plan.snapshot) if plan.snapshot else None
        source = state.weights if state else plan.weights
        if source:
            self.net.load(read_caffemodel(source))
        for moment, array in zip(self.optimiser.history, state.history if state else []):
            moment.copy_(torch.from_numpy(array.reshape(moment.shape)))

    def begin(self) -> None:
        """Every process gets what the leader has loaded."""
        self.wrapped = self.group.wrap(self.net)
        self.group.spread(self.optimiser.history)

    def run(self) -> bool:
        """Train to the end, with a progress bar. True if a signal stopped it, with a snapshot.

        The first ^C ends it after the iteration; the second at once, without a snapshot.
        """
        if self.finished:
            return False
        s, leads = self.solver, self.group.leads
        with contextlib.ExitStack() as open_until_the_end:
            enter = open_until_the_end.enter_context
            if self.held:
                open_until_the_end.callback(unlock, self.held)
            enter(signals_call(self.stop))
            kept = enter(Writer(self.log)) if leads else None
            bar = enter(Progress(total=s.max_iter, initial=self.start_at, unit="it", desc=self.model.stem.rpartition(
                "_iter_")[0], smoothing=0.1, mininterval=1, disable=not leads))
            self.reader = Reader(self.samples, self.tops, self.numbers(), self.place.pinned)
            open_until_the_end.callback(self.reader.close)
            with self.group.reporting_once():
                stopped = self.steps(kept, bar)
                self.group.leave()
            return stopped

    def numbers(self):
        """The samples of this process: every size-th of all."""
        return itertools.count(self.start_at * self.solver.iter_size + self.group.number, self.group.size)

    def steps(self, kept: Optional[Writer], bar: Progress) -> bool:
        s, shown = self.solver, time.monotonic()
        if kept:
            kept.line("Starting Optimization")
        for iteration in range(self.start_at, s.max_iter):
            loss, ending = self.gradients(iteration)
            if kept and (not math.isfinite(loss) or (s.display and iteration % s.display == 0)):
                now = time.monotonic()
                self.write_log(kept, iteration, now - shown)
                shown = now
                bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
            if not math.isfinite(loss):
                raise UserError(f"the loss is {loss} ({self.where(iteration)}; log: {self.log})")
            self.optimiser.step(iteration, self.group.size)
            bar.update()
            done = iteration + 1
            last = done == s.max_iter and s.snapshot_after_train
            if kept and (ending or last or (s.snapshot and done % s.snapshot == 0)):
                self.write_snapshot(kept, done)
            if ending and done < s.max_iter:
                if kept:
                    kept.line("Optimization stopped early.")
                return True
        if kept:
            kept.loss(s.max_iter, float(np.mean(self.losses)))
            kept.line("Optimization Done.")
        return False

    def gradients(self, iteration: int) -> tuple[float, bool]:
        """(mean loss of the step's samples, whether a process was asked to end); the gradients are in the net."""
        passes, losses = self.solver.iter_size // self.group.size, []
        for k in range(passes):
            try:
                losses.append(self.one_pass(last=k == passes - 1))
            except UserError as error:
                t = iteration * self.solver.iter_size + self.group.number + k * self.group.size
                raise UserError(f"{error} (at iteration {iteration}, {self.samples.image(t)}; log: {self.log})") \
                    from None
        total, asked = self.group.add(float(sum(losses)), self.stopping)
        self.losses.append(total / self.solver.iter_size)
        return self.losses[-1], bool(asked)

    def one_pass(self, last: bool) -> torch.Tensor:
        """The loss of the next sample, whose gradient is added. Processes exchange theirs after the last of a step."""
        blobs = self.place.takes(next(self.reader), self.net.on_the_cpu)
        alone = self.group.size == 1 or last
        with contextlib.nullcontext() if alone else self.wrapped.no_sync():
            with self.place.autocast():
                loss, self.outputs = self.wrapped(blobs)
            loss.backward()
        return loss.detach()

    def stop(self) -> None:
        """End after this step, with a snapshot; called again, at once and without."""
        if self.stopping and self.group.size == 1:
            raise KeyboardInterrupt
        if self.group.leads and not self.stopping:
            log.info("stopping after this iteration, with a snapshot; once more to stop at once, without")
        self.stopping = True

    def where(self, iteration: int) -> str:
        size = self.solver.iter_size
        images = [self.samples.image(t) for t in range(iteration * size, (iteration + 1) * size)]
        return f"at iteration {iteration}, {', '.join(images)}"

    def write_log(self, kept: Writer, iteration: int, seconds: float) -> None:
        steps = min(self.solver.display or 1, iteration - self.start_at) or 1
        kept.loss(iteration, float(np.mean(self.losses)), f"{steps / seconds:.5g} iter/s, {seconds:.3g}s/{steps} iters")
        numbers = itertools.count()
        for name, values in self.outputs.items():
            for value in values.flatten().tolist():
                kept.output(next(numbers), name, value, self.net.loss_weights.get(name, 0))
        kept.rate(iteration, schedule.rate(self.solver, iteration))

    def write_snapshot(self, kept: Writer, iteration: int) -> None:
        """The state comes last: it says that both are whole."""
        weights, state = (self.snapshot_path(iteration, suffix) for suffix in (".caffemodel", ".solverstate"))
        kept.line(f"Snapshotting to binary proto file {weights}")
        write_caffemodel(weights, self.net.arrays())
        history = [to_array(moment) for moment in self.optimiser.history]
        step = schedule.steps_taken(self.solver, iteration)
        write_state(state, TrainingState(iteration, str(weights), history, step))
