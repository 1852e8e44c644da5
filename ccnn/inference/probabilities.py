"""Saved probabilities: what a net believes of each pixel, as .npz files, and masks made of them.

A file holds `probabilities`, L x h x w float16, the long side at most 500; `classes`, the names of the labels; and
`crf`, the settings of a CRF that they went through, else empty.
"""
import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn.crf.dense import LONG_SIDE, Preset, sharpen
from ccnn.images.grid import label_map, positions, sample
from ccnn.images.labels import VOID
from ccnn.images.reading import read_image, shrink

SMALLEST = 6e-8         # the smallest positive float16

MOST_BYTES = 2 * VOID * LONG_SIDE ** 2 + (1 << 20)          # of the largest file that save_probabilities writes

MEMBERS = ("probabilities", "classes", "crf")

REMEDY = "make it with ccnn segment --probabilities"


def save_probabilities(path: Path, p: np.ndarray, classes: Sequence[str], preset: Optional[Preset]) -> None:
    data = io.BytesIO()             # on a full disk NumPy leaves its archive open, which ends in a traceback
    np.savez_compressed(data, probabilities=p.astype(np.float16), classes=classes,
                        crf=json.dumps(preset._asdict()) if preset else "")
    with whole_file(path) as part:
        part.write_bytes(data.getvalue())


def read_probabilities(path: Path) -> np.ndarray:
    """L x h x w float32, checked; UserError if they went through a CRF."""
    stored = load_members(path)
    done, p = str(stored.get("crf", "")), stored["probabilities"]
    if p.dtype.kind != "f":
        raise UserError(f"{path}: probabilities must be floating-point numbers, got {p.dtype}; {REMEDY}")
    p = p.astype(np.float32)
    if done:
        raise UserError(f"{path}: went through the CRF before; make it with ccnn segment without --crf")
    if p.ndim != 3 or not p.size or p.shape[0] >= VOID:
        raise UserError(f"{path}: probabilities must be L x height x width with L < {VOID}, got {p.shape}")
    if not (p.min() >= 0 and abs(p.sum(axis=0) - 1).max() < 0.01):      # false for NaN too
        raise UserError(f"{path}: holds values that are not probabilities: each pixel's must sum to 1")
    return p


def names_of(path: Path) -> list[str]:
    """The names of the labels; empty if a file, which read_probabilities takes, does not say."""
    return [str(name) for name in np.atleast_1d(load_members(path).get("classes", []))]


def load_members(path: Path) -> dict[str, np.ndarray]:
    """What an .npz file holds, with probabilities. UserError if it is damaged, or larger than it can be."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MOST_BYTES:
            raise ValueError(f"{size >> 20} MB; at most {MOST_BYTES >> 20} are read")
        with np.load(path) as file:
            found = {name: value for name in MEMBERS
                     if name in file.files and isinstance(value := file[name], np.ndarray)}
        return {"probabilities": found["probabilities"], **found}
    except Exception as e:      # a damaged archive fails in many ways: zipfile, zlib, struct, pickle, EOF, ...
        raise UserError(f"{path}: holds no probabilities ({str(e) or type(e).__name__}); {REMEDY}") from None


def log_probabilities(p: np.ndarray) -> np.ndarray:
    """Scores for dense_crf, finite also where float16 has rounded to 0."""
    return np.log(np.maximum(p, SMALLEST))


def refine(source: Path, photograph: Path, preset: Optional[Preset], engine: str = "ccnn"
           ) -> tuple[np.ndarray, dict[int, bool]]:
    """The mask that a CRF makes of a file of probabilities, at the photograph's size, and what it lost (see sharpen);
    without preset, their argmax."""
    p, rgb = read_probabilities(source), read_image(photograph)
    small = shrink(rgb, LONG_SIDE)
    (height, width), (h, w), (rows, columns) = rgb.shape[:2], small.shape[:2], p.shape[1:]
    if abs(rows * width - columns * height) > max(height, width):       # more than a pixel of rounding
        raise UserError(f"{source}: {rows} x {columns} is not the shape of {photograph}, {height} x {width}")
    scores = sample(log_probabilities(p), positions(h, rows), positions(w, columns))
    q, lost = sharpen(small, scores, preset, engine=engine) if preset else (scores, {})
    return label_map(q, positions(height, h), positions(width, w)), lost
