"""A run: the masks that one system made of a set of images, or what was scored of them before."""
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ccnn.errors import UserError
from ccnn.scores import Row, scored


class Run(NamedTuple):
    name: str
    folders: dict                       # {with CRF or not: folder of masks}
    stored: list = []                   # rows of an earlier result
    origin: dict = {}                   # that result


def parse_run(text):
    """FOLDER, NAME=FOLDER, NAME=FOLDER,FOLDER, NAME=,FOLDER or RESULT.json."""
    if text.endswith(".json"):
        return stored_run(Path(text))
    name, equals, rest = text.partition("=")
    if Path(text).is_dir() or not equals:                   # a folder's name may hold = and ,
        name, rest = Path(text).resolve().name, text
    folders = [rest] if Path(rest).is_dir() else rest.split(",")
    if len(folders) > 2:
        raise UserError(f"{text}: {len(folders)} folders; a run has one, or two: without and with CRF")
    folders = {crf: Path(folder) for crf, folder in zip((False, True), folders) if folder}
    if not folders:
        raise UserError(f"{text!r}: names no folder of masks")
    for folder in folders.values():
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder of masks; tools/infer.py makes one")
    return Run(name, folders)


def stored_run(path):
    """The rows of a result that --out wrote, computed again from their confusion matrices."""
    try:
        result = json.loads(path.read_text())
        about = {key: result[key] for key in ("split", "images", "classes")}
        rows = [Row(**row) for row in result["rows"] if row["confusion"]]
        matrices = [np.array(row.confusion) for row in rows]
        for row, C in zip(rows, matrices):
            size = len(about["classes"])
            if C.shape != (size, size) or C.dtype != int or C.min() < 0 or not isinstance(row.name, str):
                raise ValueError
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: not a result that --out wrote") from None
    return Run(path.stem, {}, [scored(row.name, about["split"], row.crf, C) for row, C in zip(rows, matrices)],
               {**about, "path": path})
