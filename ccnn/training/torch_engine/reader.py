"""Samples as tensors, read ahead in threads while the net computes.

Under `caffe train` a process has to do this, because Caffe never lets go of Python's lock; PyTorch does.
"""
import collections
import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from ccnn.images.reading import to_blob

AHEAD, THREADS = 4, 2           # samples that are waiting; JPEG and PNG are read without Python's lock

log = logging.getLogger(__name__)


class Reader:
    """Samples `numbers` of a data layer, in their order; close() ends the threads."""

    def __init__(self, samples: Any, tops: list[str], numbers: Iterator[int], pinned: bool = False) -> None:
        """tops : the names of the blobs, in the order of samples.tops   pinned : for copies to a GPU"""
        self.samples, self.tops, self.numbers, self.pinned = samples, tops, numbers, pinned
        self.skipped = 0
        self._pool = ThreadPoolExecutor(THREADS, "reader")
        self._waiting: collections.deque[Future] = collections.deque()

    def __next__(self) -> dict[str, torch.Tensor]:
        while len(self._waiting) < AHEAD:
            self._waiting.append(self._pool.submit(self.read, next(self.numbers)))
        blobs, skipped = self._waiting.popleft().result()
        for reason in skipped:
            self.skipped += 1
            log.warning("skipped (%d so far): %s", self.skipped, reason)
        return blobs

    def read(self, t: int) -> tuple[dict[str, torch.Tensor], list[str]]:
        sample, skipped = self.samples[t]
        blobs = {}
        for name, top in zip(self.samples.tops, self.tops):
            value = to_blob(sample[name]) if name == "data" else sample[name]
            blob = torch.from_numpy(np.ascontiguousarray(value)).float()[None]
            blobs[top] = blob.pin_memory() if self.pinned else blob
        return blobs, skipped

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
