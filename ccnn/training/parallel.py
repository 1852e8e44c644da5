"""One training on many processes: synchronous data-parallel gradient descent in Caffe, over MPI.

A step takes the I = iter_size samples t = I i, ..., I i + I - 1. Let g(t) be the gradient of sample t.

    one process     w <- update(w, 1/I sum of g(t) over all t of the step)
    rank r of N     sums g(t) over its own t = r mod N; one Allreduce adds these sums; every rank makes the same update

So N ranks train what one process trains, to float32, and N can differ from one run to the next. Random layers such as
dropout draw from another seed on every rank: with them, the weights are other ones, and as good.

    python -m ccnn.training.parallel '{"solver": "s.prototxt", ...}'         as ccnn train starts it, on every rank

What a rank hands to the others beside its gradient is one number each for the loss, for "stop" and for "I have
failed". All ranks therefore end at the same iteration. An error of any rank is told by rank 0.
"""
import contextlib
import json
import math
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

import numpy as np

from ccnn._util.errors import UserError
from ccnn.nets.caffe_files import read_net, read_solver
from ccnn.training.ranks import ENDED_ELSEWHERE, STOPPED, EndedElsewhere, first_difference, this_rank

EXTRA = 3                       # numbers behind the gradient
LOSS, STOP, FAILED = range(-EXTRA, 0)

PATIENCE = 5                    # seconds that mpiexec has to end this process after another


class NotANumber(Exception):
    """The loss is no number, on every rank."""


def meet(comm, orders: Mapping[str, Any]) -> Optional[dict]:
    """Compare what the ranks have, and receive from rank 0 what to do. None: nothing is left to do."""
    agree(comm, orders.get("error"))
    hosts, facts = (comm.allgather(value) for value in (platform.node(), orders["common"]))
    plan, difference = None, first_difference(facts, hosts)
    with together(comm):
        if comm.rank == 0 and difference:
            raise UserError(difference)
        if "solver" in orders:          # on rank 0
            plan = {**orders, "solver": divided(orders["solver"], comm.size)}
    return comm.bcast(plan)


def agree(comm, error: Optional[str] = None) -> None:
    """Raise on every rank if one of them has an error: its text on rank 0, EndedElsewhere on the others."""
    errors = comm.allgather(error and [error, platform.node()])
    for number, found in enumerate(errors):
        if found:
            if comm.rank:
                raise EndedElsewhere
            raise UserError(found[0] if number == 0 else f"{found[0]} (process {number} of {comm.size}, on {found[1]})")


@contextlib.contextmanager
def together(comm) -> Iterator[None]:
    """Whatever a rank raises inside, all ranks end."""
    error = None
    try:
        yield
    except Exception as e:
        error = told(e)
    agree(comm, error)


def told(error: Exception) -> str:
    """An error as one line; that of a mistake in the code goes with its stack into the log."""
    if isinstance(error, UserError):
        return str(error)
    if not isinstance(error, OSError):
        traceback.print_exc()
    return f"{type(error).__name__}: {error}"


def divided(path: str, size: int) -> str:
    """The solver of every rank, as text that holds its net.

    Each rank takes iter_size / N samples per step. Caffe clips the gradient before it divides it by iter_size; here it
    clips the mean over ranks, so the limit is divided by N, too. The ranks display for themselves.
    """
    solver = read_solver(path)
    solver.net_param.CopyFrom(read_net(solver.net))
    solver.ClearField("net")
    solver.iter_size //= size
    if solver.clip_gradients > 0:
        solver.clip_gradients /= size
    solver.display = 0
    return str(solver)


def build(caffe, comm, plan: Mapping[str, Any]):
    """Caffe's solver where this run begins, with the same weights on every rank."""
    caffe.set_solver_count(comm.size)       # the data layer takes every N-th sample, from its rank on
    caffe.set_solver_rank(comm.rank)        # only rank 0 writes snapshots; each has a random seed of its own
    caffe.set_multiprocess(True)
    os.environ["CCNN_START_ITERATION"] = str(plan["start"])         # samples
    with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
        file.write(plan["solver"])
        file.flush()
        solver = caffe.get_solver(file.name)
    if plan["snapshot"]:
        for path in (Path(plan["snapshot"]), Path(plan["snapshot"]).with_suffix(".caffemodel")):
            if not path.is_file():
                raise UserError(f"{path}: no such file here; every process reads the snapshot: put it on a disk that "
                                "all of them share")
        solver.restore(plan["snapshot"])    # also the momentum, and Adam's two moments
    elif plan["weights"] and comm.rank == 0:
        solver.net.copy_from(plan["weights"])
    return solver


class Steps:
    """The steps of a training, the same on every rank.

    solver   Caffe's
    losses   of the steps so far, as many as the log averages
    asked    a signal has asked this rank for the end
    ending   some rank was asked: all know it from the same step on
    """

    def __init__(self, caffe, comm, solver, settings) -> None:
        from mpi4py import MPI
        self.in_place, self.ConnectionBroken = MPI.IN_PLACE, MPI.Exception
        self.caffe, self.comm, self.solver, self.settings = caffe, comm, solver, settings
        self.blobs = [blob for blobs in solver.net.params.values() for blob in blobs]
        self.sums = np.zeros(sum(blob.data.size for blob in self.blobs) + EXTRA, np.float32)
        self.loss_weights = {name: weight for name, weight in solver.net.blob_loss_weights.items() if weight}
        self.losses: deque[float] = deque(maxlen=max(1, settings.average_loss))
        self.asked = self.ending = False
        self._time = time.monotonic()
        solver.net.after_forward(self._add_loss)
        solver.add_callback(lambda: None, self._add_gradients)

    def share_weights(self) -> None:
        """Give every rank the weights of rank 0."""
        for blob in self.blobs:
            self.comm.Bcast(blob.data)

    def run(self) -> bool:
        """All steps. True if a signal has ended them early."""
        solver, settings = self.solver, self.settings
        while solver.iter < settings.max_iter and not self.ending:
            self.sums[-EXTRA:] = 0
            try:
                solver.step(1)
            except (NotANumber, self.ConnectionBroken):
                raise
            except EndedElsewhere:
                agree(self.comm)
            except Exception as error:
                self._fail(told(error))
            self._show_rate()
        if self.comm.rank == 0 and settings.snapshot_after_train and \
                not (settings.snapshot and solver.iter % settings.snapshot == 0):
            solver.snapshot()
        return solver.iter < settings.max_iter

    def _fail(self, error: str) -> None:
        """Tell the others, who wait for the gradient, that there is none."""
        self.sums[:] = 0
        self.sums[FAILED] = 1
        self._allreduce()
        agree(self.comm, error)

    def _add_loss(self, layer: int) -> None:
        """Called after every layer: the loss of a sample is there after the last."""
        if layer == len(self.solver.net.layers) - 1:
            blobs = self.solver.net.blobs
            self.sums[LOSS] += sum(weight * float(blobs[name].data.sum()) for name, weight in self.loss_weights.items())

    def _add_gradients(self) -> None:
        """Called when the gradients of a step are there: make them the mean over ranks."""
        at = 0
        for blob in self.blobs:
            self.sums[at:at + blob.diff.size] = blob.diff.ravel()
            at += blob.diff.size
        self.sums[STOP] = self.asked
        self._allreduce()
        if self.sums[FAILED]:
            raise EndedElsewhere
        self.ending = bool(self.sums[STOP])
        size, at = self.comm.size, 0
        self._show_loss(float(self.sums[LOSS]) / (size * self.settings.iter_size))
        for blob in self.blobs:
            np.divide(self.sums[at:at + blob.diff.size].reshape(blob.diff.shape), size, out=blob.diff)
            at += blob.diff.size

    def _allreduce(self) -> None:
        self.comm.Allreduce(self.in_place, self.sums)

    def _show_loss(self, loss: float) -> None:
        """Log the mean loss of the step as `caffe train` does, and what the net of rank 0 has computed last."""
        now, iteration = time.monotonic(), self.solver.iter
        seconds, self._time = now - self._time, now
        self.losses.append(loss)
        if not math.isfinite(loss):
            raise NotANumber(f"Iteration {iteration}, loss = {loss}")
        self.caffe.log(f"Iteration {iteration} ({1 / seconds:.5g} iter/s, {seconds:.3g}s/1 iters), "
                       f"loss = {np.mean(self.losses):.6g}")
        if self.comm.rank == 0:
            net, number = self.solver.net, 0
            for name in net.outputs:
                weight = self.loss_weights.get(name)
                for value in net.blobs[name].data.flat:
                    weighted = f" (* {weight:g} = {weight * value:.6g} loss)" if weight else ""
                    self.caffe.log(f"    Train net output #{number}: {name} = {value:.6g}{weighted}")
                    number += 1

    def _show_rate(self) -> None:
        if self.comm.rank == 0:
            self.caffe.log(f"Iteration {self.solver.iter - 1}, lr = {self.solver.lr:.6g}")


def train(comm, orders: Mapping[str, Any]) -> int:
    """Train, and return the status of this process."""
    from ccnn.inference.caffe_net import load_caffe
    from ccnn.nets.caffe_files import parse_solver
    plan = meet(comm, orders)
    if plan is None:
        return 0
    with together(comm):
        caffe = load_caffe(orders["gpu"])
        settings = parse_solver(plan["solver"].encode(), "solver")
        solver = build(caffe, comm, plan)
        steps = Steps(caffe, comm, solver, settings)
    steps.share_weights()

    def stop(*_):
        steps.asked = True
    signal.signal(signal.SIGINT, stop)
    caffe.log("Starting Optimization")
    try:
        stopped = steps.run()
    except NotANumber as error:
        finalize()                  # before rank 0 tells, because then it is ended
        if "solver" in orders:
            caffe.log(str(error))
        raise EndedElsewhere from None
    caffe.log("Optimization stopped early." if stopped else "Optimization Done.")
    return STOPPED if stopped else 0


def finalize() -> None:
    """Leave the job in order: mpiexec ends the others if a process ends without this.

    MPICH tells mpiexec of it when the process ends, after Python: os._exit would skip that.
    """
    from mpi4py import MPI
    if not MPI.Is_finalized():
        MPI.Finalize()


def main() -> int:
    rank = this_rank()
    try:
        from mpi4py import MPI
        comm = MPI.COMM_WORLD
        found = f"{' '.join(map(str, MPI.get_vendor()))} finds {comm.size}"
    except (ImportError, RuntimeError) as error:
        comm, found = None, str(error)
    if not comm or comm.size != rank.size:
        if rank.number:
            time.sleep(PATIENCE)            # rank 0 speaks
            return ENDED_ELSEWHERE
        print(UserError(f"mpiexec has started {rank.size} processes, but they do not find each other ({found}); use "
                        ".caffe/mpi/bin/mpiexec, or name the library of your own mpiexec in the environment variable "
                        "MPI4PY_LIBMPI"), file=sys.stderr)
        return 2
    try:
        status = train(comm, json.loads(sys.argv[1]))
    except EndedElsewhere:
        status = ENDED_ELSEWHERE
    except UserError as error:
        print(error, file=sys.stderr, flush=True)
        status = 2
    except MPI.Exception as error:
        time.sleep(PATIENCE)
        print(f"the connection to another process broke: {error}", file=sys.stderr, flush=True)
        os._exit(2)
    finalize()
    return status


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)        # until the first iteration, there is nothing to keep
    try:
        status = main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)             # an orderly end of Python would wait for ranks that wait for this one
    sys.exit(status)
