"""The processes of one training. torchrun starts them; each has a number, 0 to size - 1, and 0 leads.

    torchrun --nproc-per-node 2 -m ccnn train SOLVER --engine torch

A step takes the I = iter_size samples t = I i, ..., I i + I - 1. Process r of N takes those with t = r mod N, and
DistributedDataParallel makes every process's gradient the mean over all. So N processes train what one trains, to
float32, and N can differ from one run to the next. Dropout draws from another seed in each: with it the weights are
other ones, and as good.

An error of any process becomes one line, printed by one of them: torchrun's store, which outlives them, decides which.
"""
import contextlib
import hashlib
import os
import platform
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import torch
from torch import distributed

from ccnn._util.errors import UserError

ENDED_ELSEWHERE = 3     # the status of a process whose training another one has ended

PATIENCE = 3            # seconds in which the process that speaks does: torchrun ends it as soon as another has ended


class Group(NamedTuple):
    """The processes of a training, as one of them sees them. Alone, everything here is easy."""
    number: int = 0
    size: int = 1
    place: int = 0          # number among those of this machine
    neighbours: int = 1     # processes on this machine, with this one
    store: Any = None

    @property
    def leads(self) -> bool:
        return self.number == 0

    @property
    def name(self) -> str:
        return f"process {self.number} of {self.size}, on {platform.node()}"

    def share(self, value: Any) -> Any:
        """The value that the leader has."""
        values = [value]
        if self.size > 1:
            distributed.broadcast_object_list(values)
        return values[0]

    def gather(self, value: Any) -> list:
        """The values of all."""
        values = [value] * self.size
        if self.size > 1:
            distributed.all_gather_object(values, value)
        return values

    def add(self, *numbers: float) -> list[float]:
        """The sums over all processes."""
        if self.size == 1:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64)
        distributed.all_reduce(sums)
        return sums.tolist()

    def spread(self, tensors: list[torch.Tensor]) -> None:
        """Give all what the leader has."""
        if self.size > 1:
            for tensor in tensors:
                distributed.broadcast(tensor, 0)

    def wrap(self, net: torch.nn.Module) -> torch.nn.Module:
        """The net whose gradients are the means over all processes, and whose weights are the leader's."""
        if self.size == 1:
            return net
        return torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """If one process raises an error inside, all end, and one of them reports it."""
        error = None
        try:
            yield
        except (UserError, OSError) as e:
            error = e
        failed = [number for number, bad in enumerate(self.gather(error is not None)) if bad]
        if failed and failed[0] != self.number:
            self.end_elsewhere()
        if error and self.number:
            raise UserError(f"{error} ({self.name})") from None
        if error:
            raise error

    @contextlib.contextmanager
    def reporting_once(self) -> Iterator[None]:
        """The first process that an error ends inside reports it: the others fail because that one has gone."""
        try:
            yield
        except (RuntimeError, UserError, OSError) as error:
            if self.size == 1 or (isinstance(error, RuntimeError) and not lost(error)):
                raise
            if self.store.add("reported", 1) > 1:
                self.end_elsewhere()
            if isinstance(error, RuntimeError):
                raise UserError(f"another process of this training has ended; is there enough memory? The same command "
                                f"continues ({self.name})") from None
            raise UserError(f"{error} ({self.name})" if self.number else str(error)) from None

    def end_elsewhere(self) -> NoReturn:
        """End: another process says why."""
        time.sleep(PATIENCE)
        raise SystemExit(ENDED_ELSEWHERE)

    def leave(self) -> None:
        """The end in order."""
        if self.size > 1:
            distributed.destroy_process_group()


def lost(error: RuntimeError) -> bool:
    """Whether a process has lost another."""
    return isinstance(error, torch.distributed.DistBackendError) or any(
        word in str(error) for word in ("Connection", "connection", "gloo", "Gloo", "NCCL", "Broken pipe"))


def join() -> Group:
    """The processes that torchrun has started; without it this one alone."""
    size = int(os.environ.get("WORLD_SIZE", 1))
    if size == 1:
        return Group()
    store, number, size = next(torch.distributed.rendezvous("env://"))
    distributed.init_process_group(backend(), store=store, rank=number, world_size=size)
    return Group(number, size, int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1)), store)


def backend() -> str:
    """What adds tensors of several processes: NCCL those on GPUs, gloo the others."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and distributed.is_nccl_available() else "gloo"


def check_division(solver: Any, group: Group) -> None:
    """UserError unless every process gets the same number of images per step."""
    if solver.iter_size % group.size:
        raise UserError(f"iter_size {solver.iter_size} cannot be divided among {group.size} processes: the images of a "
                        f"step are shared among them; give --set iter_size={group.size}, a multiple of it, or start "
                        "another number of processes")


def facts_of(samples: Any) -> dict[str, str]:
    """What all processes must have in common, as checksums by name. Of the files, names and sizes are compared."""
    images = [(os.path.basename(file), os.path.getsize(file)) for file in samples.files]
    return {f"list of images or sizes of their files, {samples.data.source}": checksum(str(images)),
            "table of tags": checksum(str(samples.csv and sorted(map(str, samples.csv.items()))))}


def check_same(gathered: list[tuple[str, dict[str, str]]]) -> None:
    """UserError unless all have the same facts. gathered : (machine, facts) of every process"""
    host, mine = gathered[0]
    for number, (other, facts) in enumerate(gathered):
        for name, value in zip(mine, facts.values()):
            if value != mine[name]:
                raise UserError(f"process {number} on {other} has another {name} than process 0 on {host}; give all "
                                "the same")


def checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
