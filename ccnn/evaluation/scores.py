"""Scores of masks, as the paper counts.

    IoU(l) = C[l,l] / (sum_m C[l,m] + sum_m C[m,l] - C[l,l]),     C[true label, predicted label] in pixels

with one C over all images. Void pixels do not count. mIoU is the mean over the labels that occur in the truth or in
the predictions; a label that occurs in neither has no IoU and is left out of the mean.
"""
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.progress import Progress
from ccnn.images.labels import VOID
from ccnn.images.reading import read_mask


class Score(NamedTuple):
    """What a system scored on a set of images; numbers in percent, None where there is none."""
    name: str
    split: str                          # val, test, ...
    crf: bool
    miou: float
    iou: list                           # one entry per class, or empty
    overall: Optional[float] = None     # share of all pixels that are right
    mean: Optional[float] = None        # mean over the true labels of the share of their pixels that is right
    confusion: Optional[list] = None


def confusion(truth: np.ndarray, prediction: np.ndarray, labels: int) -> np.ndarray:
    """C[true label, predicted label] in pixels, L x L; void pixels of the truth (255) do not count."""
    pairs = truth.astype(np.intp) * 256 + prediction
    return np.bincount(pairs.ravel(), minlength=1 << 16).reshape(256, 256)[:labels, :labels]


def scored(name: str, split: str, crf: bool, C: np.ndarray) -> Score:
    """The numbers of a confusion matrix."""
    right, true, predicted = C.diagonal(), C.sum(axis=1), C.sum(axis=0)
    if not C.any():
        raise UserError(f"{name}: the truth has only void pixels; there is nothing to score")
    with np.errstate(invalid="ignore"):                     # 0 / 0: the label does not occur
        iou = 100 * right / (true + predicted - right)
        recall = 100 * right / true
    return Score(name, split, bool(crf), np.nanmean(iou), [None if np.isnan(v) else v for v in iou],
                 100 * right.sum() / C.sum(), np.nanmean(recall), C.tolist())


def confusions(truths: Sequence[Path], folders: Sequence[Path], labels: int) -> np.ndarray:
    """One confusion matrix for each folder of predictions, summed over all images."""
    names = [path.stem for path in truths]
    for folder in folders:
        prediction_paths(folder, names)
    total = np.zeros((len(folders), labels, labels), np.int64)
    for path in Progress(truths if folders else (), desc="scoring", unit="image"):
        truth = read_mask(path, labels)
        for C, folder in zip(total, folders):
            C += confusion(truth, read_prediction(folder / path.name, labels, truth.shape, path), labels)
    return total


def prediction_paths(folder: Path, names: Sequence[str]) -> list[Path]:
    """FOLDER/NAME.png for every name; UserError unless all are there."""
    paths = [folder / f"{name}.png" for name in names]
    missing = [path for path in paths if not path.is_file()]
    if len(missing) == 1:
        raise UserError(f"{missing[0]}: missing; ccnn segment makes it")
    if missing:
        raise UserError(f"{missing[0]}: missing, as are {len(missing) - 1} more of {len(names)} predictions; "
                        "finish ccnn segment first, or give --split a list of those that are there")
    return paths


def read_prediction(path: Path, labels: int, size: tuple[int, ...], of: Path) -> np.ndarray:
    """A mask of labels 0 .. labels - 1 whose shape is `size`, that of the file `of`."""
    mask = read_mask(path, labels)
    if mask.shape != size:
        raise UserError(f"{path}: is {mask.shape[1]} x {mask.shape[0]}, need {size[1]} x {size[0]} as {of}")
    if mask.max() == VOID:
        raise UserError(f"{path}: holds {VOID} (void); a prediction gives every pixel a label 0..{labels - 1}")
    return mask
