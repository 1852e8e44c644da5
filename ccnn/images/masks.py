"""Masks as files: each carries the settings that it was made with, so that finished work is known again."""
import json
import logging
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Optional, Union

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.text import and_more, plural
from ccnn.images.labels import indexed
from ccnn.images.overlays import mask_text
from ccnn.images.reading import read_text

NAMED = 10              # objects of a report; more are counted

log = logging.getLogger(__name__)


def save_mask(path: Path, mask: np.ndarray, settings: dict, classes: Sequence[str]) -> None:
    """An indexed PNG in VOC's colours that carries the settings and the names of its labels."""
    with whole_file(path) as part:
        indexed(mask).save(part, pnginfo=mask_text(classes, settings))


def mask_settings(path: Path) -> Optional[dict]:
    """The settings that save_mask wrote; None in a file that is not its work."""
    return _carried(path, "settings")


def mask_classes(path: Path) -> Optional[list]:
    """The names of a mask's labels, the background first; None in a file that does not tell."""
    return _carried(path, "classes") or None


def _carried(path: Path, key: str):
    try:
        return json.loads(read_text(path, key) or "null")
    except (ValueError, TypeError, RecursionError):         # ImageError is a ValueError
        return None


def unfinished(work: Sequence[tuple[Path, ...]], settings: dict, force: bool) -> list[tuple[Path, ...]]:
    """Those (source, mask, *other outputs) of `work` that are still to be made.

    A mask is finished if it carries these settings, is not older than its source, and has its other outputs beside
    it. Any other file in a mask's place is replaced only by force.
    """
    check_names(work)
    todo, foreign = [], []
    for source, mask, *others in work:
        if mask.exists() and mask_settings(mask) != settings:
            foreign.append(mask)
        elif not force and is_newer(mask, source) and all(path.exists() for path in others):
            continue
        todo.append((source, mask, *others))
    if foreign and not force:
        raise UserError(f"{foreign[0]}{and_more(foreign)}: made otherwise than this command would; "
                        "choose another --out, or --force to replace")
    if len(todo) < len(work):
        log.info("%d of %d were finished before (--force makes them again)", len(work) - len(todo), len(work))
    if foreign:
        log.warning("replacing %s made otherwise", plural(len(foreign), "file"))
    return todo


def check_names(work: Sequence[tuple[Path, ...]]) -> None:
    """UserError if two sources would become one mask."""
    sources: dict[Path, Path] = {}
    for source, mask, *_ in work:
        if sources.setdefault(mask, source) != source:
            raise UserError(f"{sources[mask]} and {source} would both become {mask}; give them different names")


def is_newer(path: Path, source: Path) -> bool:
    return path.exists() and path.stat().st_mtime >= source.stat().st_mtime


class Lost(NamedTuple):
    """An object that the CRF takes out of a mask."""
    mask: Path
    name: str                   # of its class
    kept: bool                  # the preset's bound has kept a part of it


def print_report(answers: Iterable[Union[str, Sequence[Lost]]], out: Path) -> int:
    """Print what was made, what was lost to the CRF and, at the end, what was not made; return the exit status.

    answers : one per photograph, what was lost in it, or one line on why there is no mask
    """
    failures, lost, made = [], [], 0
    for answer in answers:
        if isinstance(answer, str):
            failures.append(answer)
        else:
            lost += answer
            made += 1
    lost.sort()
    print(f"{plural(made, 'mask')} in {out}")
    print_lost("kept a part of what the CRF would have removed", [one for one in lost if one.kept])
    print_lost("the CRF has removed", [one for one in lost if not one.kept])
    for failure in failures:
        print(failure, file=sys.stderr)
    if failures:
        print(f"{len(failures)} failed, see above; the rest is done", file=sys.stderr)
    return 1 if failures else 0


def print_lost(what: str, lost: Sequence[Lost]) -> None:
    if lost:
        named = ", ".join(f"{one.name} in {one.mask}" for one in lost[:NAMED])
        print(f"{plural(len({one.mask for one in lost}), 'mask')}: {what}: {named}{and_more(lost[NAMED - 1:])}")
