"""Runs: the folders of masks that one system made of a set of images, or stored scores of them."""
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.foreign_files import load_json
from ccnn.evaluation.scores import Score, confusions, scored


class MaskRun(NamedTuple):
    name: str
    folders: dict[bool, Path]           # {with CRF or not: folder of masks}
    stored: list[Score] = []            # of an earlier result
    origin: dict[str, Any] = {}         # that result: its path, split, number of images and classes


def parse_run(text: str) -> MaskRun:
    """The run that FOLDER, NAME=FOLDER, NAME=FOLDER,FOLDER_WITH_CRF, NAME=,FOLDER_WITH_CRF or RESULT.json names."""
    if text.endswith(".json"):
        return read_result(Path(text))
    name, equals, rest = text.partition("=")
    if Path(text).is_dir() or not equals:                   # a folder's name may hold = and ,
        name, rest = Path(text).resolve().name, text
    folders = [rest] if Path(rest).is_dir() else rest.split(",")
    if len(folders) > 2:
        raise UserError(f"{text}: {len(folders)} folders; a run has one, or two: without and with CRF")
    found = {crf: Path(folder) for crf, folder in zip((False, True), folders) if folder}
    if not found:
        raise UserError(f"{text!r}: names no folder of masks")
    for folder in found.values():
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder of masks; ccnn segment makes one")
    return MaskRun(name, found)


def score_runs(runs: Sequence[MaskRun], truths: Sequence[Path], split: str, classes: Sequence[str]) -> list[Score]:
    """The scores of all runs, those of earlier results included, which must be of the same images and classes."""
    about = {"split": split, "images": len(truths), "classes": list(classes)}
    for run in runs:
        for key, value in about.items() if run.origin else ():
            if run.origin[key] != value:
                raise UserError(f"{run.origin['path']}: was scored with {key} {run.origin[key]}, this with {value}")
    matrices = iter(confusions(truths, [folder for run in runs for folder in run.folders.values()], len(classes)))
    scores: list[Score] = []
    for run in runs:
        scores += run.stored + [scored(run.name, split, crf, next(matrices)) for crf in run.folders]
    return scores


def result_text(scores: Sequence[Score], split: str, images: int, classes: Sequence[str]) -> str:
    """A result as JSON, one line per score, so that a diff shows what changed."""
    about = {"split": split, "images": images, "classes": list(classes), "rows": []}
    lines = ",\n".join(json.dumps(score._asdict()) for score in scores)
    return json.dumps(about)[:-2] + f"\n{lines}\n]}}\n"


def read_result(path: Path) -> MaskRun:
    """A stored result as a run; its numbers are computed again from the confusion matrices."""
    try:
        result = load_json(path.read_text())
        about = {key: result[key] for key in ("split", "images", "classes")}
        stored = [Score(**row) for row in result["rows"] if row["confusion"]]
        matrices = [np.array(score.confusion) for score in stored]
        size = len(about["classes"])
        for score, C in zip(stored, matrices):
            if C.shape != (size, size) or C.dtype != int or C.min() < 0 or not isinstance(score.name, str):
                raise ValueError
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: not a result that --out wrote") from None
    again = [scored(score.name, about["split"], score.crf, C) for score, C in zip(stored, matrices)]
    return MaskRun(path.stem, {}, again, {**about, "path": path})
