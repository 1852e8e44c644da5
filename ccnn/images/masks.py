"""Masks as files. Each carries the settings and the checksum of the photograph that it was made with, so that a second
run can tell which masks are finished.
"""
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import digest, whole_file
from ccnn._util.foreign_files import load_json
from ccnn._util.text import and_more, plural
from ccnn.images.labels import indexed
from ccnn.images.overlays import mask_text
from ccnn.images.reading import read_text

log = logging.getLogger(__name__)


def save_mask(path: Path, mask: np.ndarray, settings: dict, classes: Sequence[str], source: Optional[str] = None
              ) -> None:
    """An indexed PNG in VOC's colours that carries the settings and the names of its labels.

    source : checksum of the file that the mask was made of
    """
    with whole_file(path) as part:
        indexed(mask).save(part, pnginfo=mask_text(classes, settings, source))


def checksum(source: Path) -> Optional[str]:
    """What a mask carries of its source; None if the file cannot be read."""
    try:
        return digest(source)
    except OSError:
        return None


def mask_settings(path: Path) -> Optional[dict]:
    """The settings that save_mask wrote; None in a file that is not its work."""
    return _carried(path, "settings")


def mask_classes(path: Path) -> Optional[list]:
    """The names of a mask's labels, the background first; None in a file that does not say."""
    return _carried(path, "classes") or None


def _carried(path: Path, key: str):
    try:
        return load_json(read_text(path, key) or "null")
    except (ValueError, TypeError):         # ImageError is a ValueError
        return None


def unfinished(work: Sequence[tuple[Path, ...]], settings: dict, force: bool) -> list[tuple[Path, ...]]:
    """Those (source, mask, *other outputs) of `work` that are still to be made.

    A mask is finished if it carries these settings and the checksum of its source, and has its other outputs beside it.
    Any other file in a mask's place is replaced only by force.
    """
    check_names(work)
    todo, foreign = [], []
    for source, mask, *others in work:
        if mask.exists() and mask_settings(mask) != settings:
            foreign.append(mask)
        elif not force and is_made_of(mask, source) and all(path.exists() for path in others):
            continue
        todo.append((source, mask, *others))
    if foreign and not force:
        raise UserError(f"{foreign[0]}{and_more(foreign)}: made with different settings; "
                        "choose another --out, or --force to overwrite")
    if len(todo) < len(work):
        log.info("%d of %d were finished before (--force makes them again)", len(work) - len(todo), len(work))
    if foreign:
        log.warning("overwriting %s made with different settings", plural(len(foreign), "file"))
    return todo


def check_names(work: Sequence[tuple[Path, ...]]) -> None:
    """UserError if two sources would become one mask."""
    sources: dict[Path, Path] = {}
    for source, mask, *_ in work:
        if sources.setdefault(mask, source) != source:
            raise UserError(f"{sources[mask]} and {source} would both become {mask}; give them different names")


def is_made_of(mask: Path, source: Path) -> bool:
    """Whether a mask was made of the source as it is now. Times prove nothing: `cp -p` and `unzip` keep old ones."""
    if not mask.exists():
        return False
    made_of = _carried(mask, "source")
    if made_of is None:         # written before masks carried a checksum
        return mask.stat().st_mtime >= source.stat().st_mtime
    return made_of == checksum(source)


class Lost(NamedTuple):
    """An object that the CRF takes out of a mask."""
    mask: Path
    name: str                   # of its class
    kept: bool                  # the preset's bound has kept a part of it
