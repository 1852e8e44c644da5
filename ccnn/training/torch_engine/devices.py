"""Where the net computes, and how precisely."""
import contextlib
import ctypes
import os
from typing import NamedTuple

import torch

from ccnn._util.errors import UserError
from ccnn._util.system import cores

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4        # of mallopt(3)

SMALL = 10**6                   # weights: a net of fewer computes on one thread; a second costs CPU time

THREADS = torch.get_num_threads()       # what OMP_NUM_THREADS says, or one per core


class Place(NamedTuple):
    device: torch.device
    bf16: bool = False

    @property
    def pinned(self) -> bool:
        """Samples wait in memory that the GPU can read by itself."""
        return self.device.type == "cuda"

    @property
    def memory_format(self) -> torch.memory_format:
        """Channels last is what tensor cores, and a CPU in bfloat16, compute in; a CPU in float32 gains nothing."""
        return torch.channels_last if self.device.type == "cuda" or self.bf16 else torch.contiguous_format

    def autocast(self) -> contextlib.AbstractContextManager:
        """Convolutions in bfloat16; weights, losses and the optimiser stay in float32."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.bf16 else contextlib.nullcontext()

    def takes(self, blobs: dict[str, torch.Tensor], stays: set[str]) -> dict[str, torch.Tensor]:
        """A sample where the net wants it; copies from pinned memory go on while the CPU does."""
        return {name: blob if name in stays else
                blob.to(self.device, non_blocking=True,
                        memory_format=self.memory_format if blob.dim() == 4 else torch.preserve_format)
                for name, blob in blobs.items()}


def find_place(device: str = "auto", precision: str = "float32", number: int = 0) -> Place:
    """number : of this process on its machine, which is that of its GPU."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        device = next(name for name in ("cuda", "mps", "cpu") if there[name])
    if not there[device]:
        raise UserError(f"--device {device}: PyTorch {torch.__version__} finds none here; install a build of PyTorch "
                        "for it, or use --device cpu")
    return Place(torch.device(device, number) if device == "cuda" else torch.device(device), precision == "bf16")


def configure(place: Place, deterministic: bool, seed: int, weights: int, neighbours: int = 1) -> None:
    """The settings of PyTorch that hold for the whole process. weights : how many the net has"""
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False          # images differ in size: every size would be tried again
    threads = THREADS if neighbours == 1 else cores() // neighbours         # torchrun gives one thread to each
    torch.set_num_threads(1 if weights < SMALL else max(1, threads))
    if place.device.type == "cpu":
        keep_memory()
    torch.manual_seed(seed)


def keep_memory() -> None:
    """What a step frees the next one takes again. Else glibc returns large arrays to the kernel, which clears every
    page of them again in each step. Nothing happens where the C library is another one."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)
