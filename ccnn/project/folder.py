"""A folder of photographs with classes.txt, tags.csv or VOC's Annotations, and optionally constraints.toml.

    folder = read_folder("photos")              # every mistake in it is reported here, before any work
    now = folder.inputs(folder.digests())       # everything that a training depends on, as JSON
    reasons(before, now)                        # how it differs from the inputs of an earlier training, in words

The inputs do not depend on where the folder is, nor on the order of the rows in tags.csv. They hold the names of tags
and not their numbers, so that a new order of classes.txt is one change and not one per photograph.
"""
import hashlib
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import digest
from ccnn._util.text import and_more
from ccnn._util.work_folder import WORK
from ccnn.data.dataset import DataSet
from ccnn.data.samples import folder_settings
from ccnn.images.labels import BACKGROUND
from ccnn.images.listing import image_folder, list_photographs
from ccnn.inference.model_file import check_classes
from ccnn.supervision.rules import Rules
from ccnn.supervision.rules_file import RULES_FILE, read_rules

SEPARATORS = ";,|"          # between tags in tags.csv

NAMED = 3                   # photographs that a sentence names; the others are counted


class TaggedPhotograph(NamedTuple):
    """A photograph and its tags, or its boxes."""
    file: str
    name: str                   # of the file, from the folder of the photographs
    present: np.ndarray         # (L,) bool
    large: np.ndarray           # (L,) bool
    boxes: Optional[list]       # [(label, y0, x0, y1, x1)] in pixels; None where there is a table of tags


class PhotoFolder(NamedTuple):
    path: Path
    settings: dict              # of the data layer: where classes and tags are
    classes: tuple
    photographs: dict           # {id: TaggedPhotograph}
    system: str                 # what can be learned from: "tags", "size" or "boxes" of ccnn.nets.prototxt.SYSTEMS
    rules: Optional[Rules]
    untagged: list              # names of photographs without a row in tags.csv
    skipped: dict = {}          # {file: why} of photographs in formats that are not read
    left_out: dict = {}         # {id: TaggedPhotograph} of photographs that cannot be read

    def without(self, ids: Collection[str]) -> "PhotoFolder":
        """The folder, but these photographs are left out."""
        if not ids:
            return self
        return self._replace(settings={**self.settings, "without": sorted(ids)},
                             photographs={id: known for id, known in self.photographs.items() if id not in ids},
                             left_out={id: self.photographs[id] for id in ids})

    @property
    def work(self) -> Path:
        return self.path / WORK

    def images_with(self) -> dict:
        """{class: number of photographs}"""
        counts = sum(known.present.astype(int) for known in self.photographs.values())
        return {name: int(counts[label]) for label, name in enumerate(self.classes) if label != BACKGROUND}

    def digests(self) -> dict:
        """{id: checksum of the photograph}"""
        return {id: digest(known.file) for id, known in self.photographs.items()}

    def inputs(self, digests: dict) -> dict:
        """{part: its content}: what a training depends on. ccnn.project.learn adds what is not in the folder."""
        def of_each(function):
            return {known.name: function(id, known) for id, known in self.photographs.items()}

        def boxes(id, known):
            return known.boxes and sorted([self.classes[label], *map(int, box)] for label, *box in known.boxes)

        def scribble(id, known):
            scribbles = self.rules and self.rules.scribbles
            return digest(scribbles.file(id)) if scribbles and Path(scribbles.file(id)).is_file() else None
        return {
            "classes": list(self.classes),
            "photographs": of_each(lambda id, known: digests[id]),
            "tags": of_each(lambda id, known: self.names(known.present)),
            "large": of_each(lambda id, known: self.names(known.large)),
            "boxes": of_each(boxes),
            "scribbles": of_each(scribble),
            "constraints": digest(self.rules.path) if self.rules else None,
        }

    def names(self, flags: np.ndarray) -> list:
        return sorted(name for name, flag in zip(self.classes[1:], flags[1:]) if flag)


def read_folder(root: str) -> PhotoFolder:
    """Read and check the folder. UserError names what is wrong, all mistakes of one file at once."""
    settings = folder_settings(root)
    data = DataSet(**settings)
    check_class_names(data.classes, settings["classes"])
    photographs = {id: tagged_photograph(data, id, file) for id, file in zip(data.ids, data.image_files())}
    listed = {known.name for known in photographs.values()}
    if data.csv is None:
        system = "boxes"
    else:
        system = "size" if any(known.large.any() for known in photographs.values()) else "tags"
    if not any(known.present[1:].any() for known in photographs.values()):
        raise UserError(f"{root}: no photograph has a tag, so there is nothing to learn; write what they show into "
                        "tags.csv, or tag them on a page: ccnn studio")
    rules, found = Path(root, RULES_FILE), list_photographs(image_folder(root))
    return PhotoFolder(
        Path(root), settings, tuple(data.classes), photographs, system,
        read_rules(str(rules), data.classes) if rules.is_file() else None,
        [] if system == "boxes" else [path for path in found.paths if "/" not in path and path not in listed],
        {path: why for path, why in found.skipped.items() if "/" not in path and path not in listed})


def check_class_names(classes: Collection[str], path: str) -> None:
    """UserError unless a model can hold the names, and a table several of them in a field. path : for the message"""
    try:
        check_classes(classes)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    for name in classes:
        if set(name) & set(SEPARATORS):
            raise UserError(f"{path}: the class {name!r} holds one of {' '.join(SEPARATORS)}, which stand between "
                            "tags; rename it")


def tagged_photograph(data: DataSet, id: str, file: str) -> TaggedPhotograph:
    name = os.path.relpath(file, data.images)
    if data.csv is not None:
        present, large = data.csv[id]
        return TaggedPhotograph(file, name, present, large, None)
    boxes = data.read(id, {"boxes"}).boxes
    present = np.isin(np.arange(len(data.classes)), [box[0] for box in boxes])
    return TaggedPhotograph(file, name, present, np.zeros_like(present), boxes)


def json_digest(value: object) -> str:
    """16 hexadecimal digits that stand for a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


# What differs, in words

def reasons(before: dict, now: dict) -> list:
    """Reasons why a model trained on `before` is stale; empty if it is still valid."""
    found = [*classes_changed(before["classes"], now["classes"]), *photographs_changed(before, now)]
    if before["constraints"] != now["constraints"]:
        verb = "is new" if not before["constraints"] else "changed" if now["constraints"] else "was removed"
        found.append(f"{RULES_FILE} {verb}")
    old, new = before["settings"], now["settings"]
    found += [f"--{key} is {new[key] or 'not given'}, and was {old.get(key) or 'not given'}"
              for key in new if old.get(key) != new[key]]
    if not found and before != now:
        found.append("this version of ccnn trains differently")
    return found


def photographs_changed(before: dict, now: dict) -> list:
    was, have = before["photographs"], now["photographs"]
    both = {name for name in have if name in was}
    found = [*counted(have.keys() - both, "{} new {}"), *counted(was.keys() - both, "{} {} removed")]
    for part, sentence in (("photographs", "{} {} replaced"), ("tags", "tags of {} {} changed"),
                           ("large", "sizes of {} {} changed"), ("boxes", "boxes of {} {} changed"),
                           ("scribbles", "scribbles of {} {} changed")):
        found += counted([name for name in both if before[part].get(name) != now[part][name]], sentence)
    return found


def classes_changed(before: list, now: list) -> list:
    if before == now:
        return []
    added, gone = [name for name in now if name not in before], [name for name in before if name not in now]
    if not added and not gone:
        return ["classes.txt: the order changed"]
    return [f"classes.txt: {', '.join(map(repr, names))} {'is' if len(names) == 1 else 'are'} {what}"
            for names, what in ((added, "new"), (gone, "removed")) if names]


def counted(names: Collection[str], sentence: str) -> list:
    """ "tags of 2 photographs changed: a.jpg, b.jpg", from "tags of {} {} changed"; nothing if there are none."""
    if not names:
        return []
    more = and_more(names, NAMED)
    noun = "photograph" if len(names) == 1 else "photographs"
    return [f"{sentence.format(len(names), noun)}: {', '.join(sorted(names)[:NAMED])}{more}"]
