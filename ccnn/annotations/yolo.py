"""YOLO's folders: data.yaml with the names of the classes, and labels/NAME.txt with a polygon or a box per line.

    names:                      0 0.1 0.2 0.5 0.2 0.5 0.9       class x y x y x y ..., in fractions of the photograph
      0: cat                    1 0.5 0.5 0.2 0.3               class, centre x y, width, height
"""
import json
import os
import re

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.foreign_files import decode, number
from ccnn._util.text import shortened
from ccnn.annotations.outlines import outlines
from ccnn.annotations.regions import LabelledPhotograph, Object, Polygons, box_of, read_polygon
from ccnn.images.labels import BACKGROUND, VOID

NAMES = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt", "obj.names")       # the first that is there

CLASSES = 10_000

LINE = re.compile(r"\s*\d+(\s+[-+.\deE]+)*\s*", re.ASCII)


def label_files(folder):
    """The .txt files of labels below a folder, if it has names of classes; else nothing."""
    if not names_file(folder):
        return []
    inner = os.path.join(folder, "labels")
    found = [os.path.join(place, name) for place, _, names in os.walk(inner if os.path.isdir(inner) else folder)
             for name in names if name.endswith(".txt") and not name.startswith(".") and name not in NAMES]
    return sorted(path for path in found if os.path.isdir(inner) or looks_like_labels(path))


def looks_like_labels(path):
    if not os.path.isfile(path):            # a pipe would never end
        return False
    with open(path, "rb") as file:
        first = file.readline(1 << 16)
    return bool(LINE.fullmatch(first.decode("latin-1"))) and bool(first.strip())


def names_file(folder):
    return next((path for name in NAMES if os.path.isfile(path := os.path.join(folder, name))), None)


def read_names(path):
    """The names of the classes, in the order of their numbers."""
    text = decode(path, "the names of the classes")[0]
    if not path.endswith((".yaml", ".yml")):
        names = [line.strip() for line in text.splitlines()]
        while names and not names[-1]:
            names.pop()
        return names
    found = re.search(r"^names[ \t]*:[ \t]*(.*)\n?((?:(?:[ \t]+.*|-.*|[ \t]*)(?:\n|$))*)", text, re.MULTILINE)
    if not found:
        raise UserError(f"{path}: has no `names:`; write one class per line, such as `  0: cat`")
    first, block = found[1].partition(" #")[0].strip(), found[2]
    if first:
        parts = re.findall(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[^,\[\]{}]+', first)
        lines = [part.strip() for part in parts if part.strip()]
    else:
        lines = [line.strip() for line in block.splitlines() if line.strip() and not line.strip().startswith("#")]
    numbered_names: dict[int, str] = {}
    for line in lines:
        numbered = re.fullmatch(r"(\d{1,5})\s*:\s*(.+)", line, re.ASCII)
        label = int(numbered[1]) if numbered else len(numbered_names)
        if label >= CLASSES:
            raise UserError(f"{path}: class {label}: expected numbers below {CLASSES}")
        numbered_names[label] = unquoted(numbered[2] if numbered else line.removeprefix("-"))
    return [numbered_names.get(label, f"class {label}") for label in range(max(numbered_names, default=-1) + 1)]


def unquoted(text):
    text = text.strip()
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        try:
            return json.loads(text)
        except ValueError:
            return text[1:-1]
    return text[1:-1].replace("''", "'") if len(text) > 1 and text[0] == text[-1] == "'" else text


def read_yolo(path, files, skipped):
    names, inner = read_names(names_file(path)), os.path.join(path, "labels")
    for file in files:
        place = os.path.relpath(file, path)
        id = os.path.relpath(file, inner if os.path.isdir(inner) else path).replace(os.sep, "/")[:-4]
        objects = []
        for k, line in enumerate(decode(file, "the labels")[0].splitlines(), 1):
            if line.strip():
                objects.append(read_line(line, names, f"{file}, line {k}"))
        yield LabelledPhotograph(re.sub(r"^(train|val|test)/", "", id), objects, place)


def read_line(line, names, where):
    first, *values = line.split()
    label = int(first) if re.fullmatch(r"\d{1,5}", first, re.ASCII) else len(names)
    if label >= len(names):
        raise UserError(f"{where}: class {shortened(first)}; the classes are numbered 0 to {len(names) - 1}")
    values = [number(value, where) for value in values]
    if len(values) == 4:
        x, y, width, height = values
        box = box_of(np.array([[x - width / 2, y - height / 2], [x + width / 2, y + height / 2]]))
        return Object(names[label], box, None if box is None else (box[2] - box[0]) * (box[3] - box[1]))
    if len(values) < 6:
        raise UserError(f"{where}: has {len(values)} numbers; expected a box of 4, or a polygon of 6 and more")
    region = Polygons([read_polygon(values, (1, 1), where)])
    return Object(names[label], box_of(region.points[0]), region.area, region)


# Into files

def describe(name, mask, classes):
    """The text of labels/NAME.txt: a line per connected part. The background is no class of YOLO's."""
    lines = []
    for label in np.unique(mask[(mask != BACKGROUND) & (mask != VOID)]):
        for points in outlines(mask == label):
            values = (points / mask.shape[::-1]).clip(0, 1).ravel()
            lines.append(f"{label - 1} " + " ".join(f"{value:.6f}" for value in values))
    return "".join(f"{line}\n" for line in lines).encode()


def data_yaml(described, classes):
    text = ["# labels/NAME.txt belongs to images/NAME.jpg: put the photographs there\n",
            "path: .\ntrain: images\nval: images\nnames:\n",
            *(f"  {label}: {json.dumps(name)}\n" for label, name in enumerate(classes[1:]))]
    return "".join(text).encode()
