"""The processes of one training: which of how many this one is, and what all of them must have in common.

mpiexec starts N processes and tells each its rank, 0 to N - 1, in environment variables. Every rank of ccnn train
starts one process of ccnn.training.parallel, which computes. Rank 0 alone locks, logs, writes snapshots and speaks.
"""
import hashlib
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple, Optional

from ccnn._util.errors import UserError
from ccnn._util.paths import ROOT

STOPPED, ENDED_ELSEWHERE = 130, 3       # of ccnn.training.parallel: after ^C; after an error that another rank tells

LIBRARY = ROOT / ".caffe/mpi/lib/libmpi.so.12"          # what `make mpi` brings

VARIABLES = (       # size, rank, and both among the processes of the same machine
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),                             # MPICH, Intel, SLURM
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
)


class EndedElsewhere(Exception):
    """The training has failed, and another rank says why."""


class Rank(NamedTuple):
    """One process of a training."""
    number: int = 0
    size: int = 1
    neighbours: int = 1     # processes on this machine, with this one
    place: int = 0          # its number among them

    @property
    def leads(self) -> bool:
        return self.number == 0

    @property
    def threads(self) -> int:
        """Its share of the cores of this machine."""
        return max(1, len(os.sched_getaffinity(0)) // self.neighbours)

    def command(self, **orders) -> list[str]:
        """The command of its process of ccnn.training.parallel."""
        return [sys.executable, "-m", "ccnn.training.parallel", json.dumps(orders)]

    def environment(self) -> dict[str, str]:
        """The environment of its process of ccnn.training.parallel."""
        own = {"OPENBLAS_NUM_THREADS": str(self.threads)}
        if LIBRARY.exists() and "PMI_SIZE" in os.environ:       # else mpiexec is Open MPI's, which speaks otherwise
            own["MPI4PY_LIBMPI"] = str(LIBRARY)
        return {**own, **os.environ, "GLOG_logtostderr": "1", "GLOG_minloglevel": "0"}

    def inherited(self) -> list[int]:
        """The open file over which MPICH's mpiexec speaks with a process."""
        return [int(os.environ["PMI_FD"])] if self.size > 1 and "PMI_FD" in os.environ else []


ALONE = Rank()


def this_rank(environ: Mapping[str, str] = os.environ) -> Rank:
    """The rank that mpiexec has given to this process. UserError without MPI, on one rank of each machine."""
    for size, number, neighbours, place in VARIABLES:
        if int(environ.get(size, 1)) > 1:
            rank = Rank(int(environ[number]), int(environ[size]), int(environ.get(neighbours, 1)),
                        int(environ.get(place, 0)))
            if importlib.util.find_spec("mpi4py"):
                return rank
            if rank.place == 0:
                raise UserError(f"mpi4py is not installed on {platform.node()}; `make mpi` brings it, with MPICH")
            sys.exit(2)
    return ALONE


def check_division(solver, rank: Rank) -> None:
    """UserError unless every rank gets the same number of images per step."""
    if solver.iter_size % rank.size:
        raise UserError(f"iter_size {solver.iter_size} cannot be divided among {rank.size} processes: the images of a "
                        f"step are shared among them; give --set iter_size={rank.size}, a multiple of it, or start "
                        "another number of processes")


def fail_together(rank: Rank, error: Exception) -> None:
    """Meet the other ranks, so that none waits for this one, with an error that rank 0 tells."""
    if rank.size == 1:
        return
    told = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    subprocess.run(rank.command(error=told), env=rank.environment(), pass_fds=rank.inherited(),
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def common(solver, net, samples) -> dict[str, str]:
    """What all ranks must have in common, as checksums by name: the solver, its net, the images and their tags.

    Of the images and the features, names and sizes are compared. To read them all would take minutes.
    """
    images = [(os.path.basename(file), os.path.getsize(file)) for file in samples.files]
    return {"solver": checksum(str(solver)), f"net {solver.net}": checksum(str(net)),
            f"list of images or sizes of their files, {samples.data.source}": checksum(str(images)),
            "table of tags": checksum(str(samples.csv and sorted(map(str, samples.csv.items()))))}


def checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def first_difference(facts: list[dict[str, str]], hosts: list[str]) -> Optional[str]:
    """What a rank has that differs from rank 0's; None if they agree."""
    for number, (other, host) in enumerate(zip(facts, hosts)):
        for (name, value), (_, mine) in zip(other.items(), facts[0].items()):
            if value != mine:
                return f"process {number} on {host} has another {name} than process 0 on {hosts[0]}; give all the same"
    return None
