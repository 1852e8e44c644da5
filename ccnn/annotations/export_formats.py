"""Masks in the formats of other programs: one entry for each in FORMATS, for `ccnn convert` and for the studio.

    value = FORMATS["coco"].describe("holiday/cat.jpg", mask, classes)          # of each photograph, in any process
    for path, data in FORMATS["coco"].files([(name, value), ...], classes): ...

Masks and run lengths are exact. Outlines are as ccnn.annotations.outlines says: straight where the edge of a mask has
stairs, an outline for each connected part, and holes joined to it by a slit.
"""
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.text import printable
from ccnn.annotations import coco, cvat, label_studio, labelme, mask_files, yolo
from ccnn.images.formats import SUFFIX

EXACT, OUTLINES = "every pixel as it is", "outlines, to a pixel; one polygon for each part"


class LabelFormat(NamedTuple):
    title: str                              # as people call it
    file: str                               # how a download of it is called
    note: str
    describe: Callable[..., Any]            # (name, mask, classes): what the format says of a photograph
    each: Optional[str] = None              # the path of its file, if there is one per photograph: describe gives bytes
    common: Callable[..., dict] = lambda described, classes: {}     # {path: bytes} of the other files

    def path(self, name: str) -> str:
        """The path of a photograph's file."""
        return (self.each or "").format(SUFFIX.sub("", name))

    def files(self, described: Iterable[tuple[str, Any]], classes: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """(path, content) of all files. described : (name, what describe gave)"""
        kept = []
        for name, value in described:
            if self.each:
                yield self.path(name), value
            else:
                kept.append((name, value))
        yield from self.common(kept, classes).items()

    @property
    def archive(self) -> bool:
        """Whether it has several files."""
        return self.file.endswith(".zip")


def in_label_studio(control: str) -> Callable[..., dict]:
    return lambda described, classes: {"tasks.json": label_studio.tasks(described),
                                       "config.xml": label_studio.config(control, classes)}


FORMATS = {
    "masks": LabelFormat("Masks, PNG", "masks.zip", f"{EXACT}; one file per photograph", mask_files.describe, "{}.png"),
    "coco": LabelFormat("COCO, run lengths", "coco.json", EXACT, coco.describe_runs,
                        common=lambda *found: {"coco.json": coco.document(*found)}),
    "coco-polygons": LabelFormat("COCO, polygons", "coco_polygons.json", OUTLINES, coco.describe_polygons,
                                 common=lambda *found: {"coco_polygons.json": coco.document(*found)}),
    "yolo": LabelFormat("YOLO segmentation", "yolo.zip", f"{OUTLINES}; data.yaml and labels/", yolo.describe,
                        "labels/{}.txt", lambda *found: {"data.yaml": yolo.data_yaml(*found)}),
    "label-studio": LabelFormat("Label Studio, brush", "label_studio.zip", f"{EXACT}; pre-annotations and config.xml",
                                label_studio.describe_brushes, common=in_label_studio("BrushLabels")),
    "label-studio-polygons": LabelFormat(
        "Label Studio, polygons", "label_studio_polygons.zip", f"{OUTLINES}; pre-annotations and config.xml",
        label_studio.describe_polygons, common=in_label_studio("PolygonLabels")),
    "cvat": LabelFormat("CVAT for images 1.1, masks", "cvat.xml", EXACT, cvat.describe_runs,
                        common=lambda *found: {"cvat.xml": cvat.document(*found)}),
    "cvat-polygons": LabelFormat("CVAT for images 1.1, polygons", "cvat_polygons.xml", OUTLINES, cvat.describe_polygons,
                                 common=lambda *found: {"cvat_polygons.xml": cvat.document(*found)}),
    "labelme": LabelFormat("LabelMe", "labelme.zip", f"{OUTLINES}; a JSON file beside each photograph",
                           labelme.describe, "{}.json"),
}


def describe(format: str, name: str, mask: np.ndarray, classes: Sequence[str]) -> Any:
    """FORMATS[format].describe, for a pool of processes."""
    check_name(name)
    return FORMATS[format].describe(name, mask, classes)


def check_name(name: str) -> None:
    """UserError for a name that some format cannot hold, or that would lead out of the folder that is written."""
    if name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name) or not SUFFIX.sub("", name):
        raise UserError(f"{printable(name)!r}: is not the name of a photograph below a folder; correct it, or name the "
                        "photographs' folder with --photos")
    try:
        name.encode()
    except UnicodeEncodeError:
        pass
    else:
        if printable(name) == name and name.isprintable():
            return
    raise UserError(f"{printable(name)!r}: its name has letters that files of labels cannot hold; rename it")
