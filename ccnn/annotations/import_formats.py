"""Labels as other programs store them, recognised by content.

    kind, images, skipped = read_source("export.json")          # {image name: Labels(tags, large, boxes, place)}
    found = read_masks("export.json")                           # the same as masks, drawn one after the other

    a table            CSV, see ccnn.annotations.table_reader: tags alone
    a folder per class photos/cat/*.jpg; a photograph that lies in two folders has both tags
    masks              a folder of label PNGs, as ccnn segment writes them
    VOC XML            a folder of files, one per photograph, as labelImg and others write them
    COCO JSON          instances: images, annotations, categories
    Label Studio       the JSON export, or JSON-MIN
    CVAT               "CVAT for images 1.1"
    YOLO               a folder with data.yaml or classes.txt, and labels/*.txt
    LabelMe            a folder of JSON files, or one

A reader yields LabelledPhotograph(name, objects, place, shape), see ccnn.annotations.regions. `collect` makes tags of
them, `read_masks` masks, the same for all.
"""
import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Callable, NamedTuple, Optional

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import digest
from ccnn._util.foreign_files import decode, fractions, number, parse_json, parse_xml, read_bytes
from ccnn._util.text import plain
from ccnn.annotations.coco import categories, read_coco
from ccnn.annotations.cvat import class_names, read_cvat
from ccnn.annotations.label_studio import read_label_studio, read_label_studio_min
from ccnn.annotations.labelme import is_labelme, read_labelme
from ccnn.annotations.mask_files import list_masks, read_mask_files
from ccnn.annotations.regions import LabelledPhotograph, Object
from ccnn.annotations.table_reader import Labels, merged, read_table
from ccnn.annotations.yolo import label_files, names_file, read_names, read_yolo
from ccnn.images.labels import BACKGROUND, VOC_CLASSES, VOID
from ccnn.images.listing import list_photographs

LARGE_AREA = 0.1        # a class with more of the photograph is large (paper, section 5)

MASKS = "a folder of masks"

LOOKED_AT = 5           # JSON files of a folder, to see whether they are LabelMe's


class Source(NamedTuple):
    kind: str                       # the name of its format
    reader: Optional[Callable]      # reader(path, content, skipped) yields Photographs; None of a table
    content: object                 # what was read to find out
    classes: Sequence[str] = ()     # the names that it declares, in its order, without the background


def read_source(path, classes=None):
    """(name of the format, {image name: Labels}, {what was left out: how often}).

    classes : names that count, None: all. In a table any other name is a mistake; elsewhere it is left out and counted.
    """
    source = recognise(path)
    if source.reader is None:
        return source.kind, *read_table(path, classes)
    skipped = Counter()
    return source.kind, collect(source.reader(path, source.content, skipped), classes, skipped), skipped


def recognise(path):
    """The Source that a file or folder is."""
    if os.path.isdir(path):
        return _recognise_folder(path)
    start = read_bytes(path)[:1000].lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n\0")
    if start.startswith(b"<"):
        root = parse_xml(path)
        if root.tag == "annotation":
            return Source("VOC XML", read_voc, [path])
        if root.tag == "annotations":
            return Source("CVAT for images", read_cvat, root, class_names(root))
        raise UserError(f"{path}: is XML of the kind <{root.tag}>; expected VOC's <annotation> or CVAT's <annotations>")
    if start[:1] in (b"{", b"["):
        return _recognise_json(path, parse_json(path))
    return Source(f"a table ({decode(path)[1]})", None, None)


def _recognise_json(path, data):
    if isinstance(data, dict) and {"images", "annotations"} <= set(data):
        return Source("COCO JSON", read_coco, data, [*categories(path, data).values()])
    if is_labelme(data):
        return Source("LabelMe", read_labelme, [path])
    if isinstance(data, list):
        minimal = not any(isinstance(task, dict) and isinstance(task.get("data"), dict) for task in data)
        return Source("Label Studio JSON-MIN", read_label_studio_min, data) if minimal else \
            Source("Label Studio JSON", read_label_studio, data)
    raise UserError(f"{path}: is JSON, but neither COCO (images, annotations), LabelMe (shapes, imagePath) nor Label "
                    "Studio (a list of tasks)")


def _recognise_folder(path):
    if os.path.isfile(os.path.join(path, "annotations.xml")):
        root = parse_xml(os.path.join(path, "annotations.xml"))
        return Source("CVAT for images", read_cvat, root, class_names(root))
    masks, names = list_masks(path)
    if masks:
        return Source(MASKS, read_mask_files, (masks, names), names[1:])
    for folder in (os.path.join(path, "Annotations"), path):
        found = files_in(folder, ".xml")
        if found:
            return Source("VOC XML", read_voc, found)
    found = label_files(path)
    if found:
        return Source("YOLO", read_yolo, found, read_names(names_file(path)))
    found = [os.path.join(place, name) for place in folders_in(path) for name in files_in(place, ".json", full=False)]
    if any(is_labelme(parse_json(file)) for file in found[:LOOKED_AT]):
        return Source("LabelMe", read_labelme, found)
    if any("/" in photograph for photograph in list_photographs(path).paths):
        return Source("a folder per class", read_class_folders, None)
    raise UserError(f"{path}: has neither masks, Annotations/*.xml, labels of YOLO or LabelMe nor a folder per class "
                    "with photographs in it; name the file with the labels")


def files_in(folder, suffix, full=True):
    """The files of a folder with a suffix, in any case; hidden ones are left out."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) if full else name for name in names
            if name.lower().endswith(suffix) and not name.startswith(".")]


def folders_in(path):
    """A folder and those below it, in alphabetical order; hidden ones are left out."""
    for place, folders, _ in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield place


def collect(photographs, classes, skipped):
    """{name: Labels} of what a reader yields."""
    known = None if classes is None else {plain(name): name for name in classes}
    images, areas = {}, {}
    for item in photographs:
        name, objects, place, _ = LabelledPhotograph(*item)
        kept = []
        for label, box, area, _ in (Object(*one) for one in objects):
            label = plain(label)
            if known is not None and label not in known:
                skipped[f"objects of class {label!r}, which is not listed; --classes lists it"] += 1
            elif label != VOC_CLASSES[BACKGROUND]:
                kept.append((known[label] if known else label, box, area))
        tags = tuple(dict.fromkeys(label for label, _, _ in kept))
        areas[name] = areas.get(name, []) + [(label, area) for label, _, area in kept]
        boxes = [(label, *box) for label, box, _ in kept if box]
        labels = Labels(tags, None, boxes or None, place)
        if name in images:
            skipped[f"{name!r} is listed more than once: its tags were joined"] += 1
            labels = merged(images[name], labels)
        images[name] = labels._replace(large=_large(areas[name]))
    return images


def _large(areas):
    """The classes of more than a tenth of the photograph; None if an area is not known."""
    if any(area is None for _, area in areas):
        return None
    total = Counter()
    for label, area in areas:
        total[label] += area
    return tuple(label for label in total if total[label] > LARGE_AREA)


# Masks

class MaskSource(NamedTuple):
    kind: str
    classes: tuple                  # names of the labels, the background first
    photographs: list               # LabelledPhotograph
    skipped: Counter


def read_masks(path, classes=None):
    """The MaskSource of a file or folder. classes : names that count, None: all"""
    source, skipped = recognise(path), Counter()
    if source.reader is None:
        raise UserError(f"{path}: is {source.kind}, which says nothing of pixels; ccnn import-tags reads it")
    photographs = [LabelledPhotograph(*item) for item in source.reader(path, source.content, skipped)]
    regions = [Object(*one).region for photograph in photographs for one in photograph.objects]
    if regions and not any(region is not None for region in regions):
        raise UserError(f"{path}: is {source.kind} with tags or boxes alone, which says nothing of pixels; ccnn "
                        "import-tags reads it")
    if classes is None:
        found = {plain(Object(*one).label) for photograph in photographs for one in photograph.objects}
        names = [*dict.fromkeys(map(plain, source.classes))]
        names += sorted(found.difference(names), key=lambda name: (name.casefold(), name))
        classes = (VOC_CLASSES[BACKGROUND], *(name for name in names if name != VOC_CLASSES[BACKGROUND]))
    if not 2 <= len(classes) <= VOID:
        raise UserError(f"{path}: has {len(classes) - 1} classes, and a mask holds 1 to {VOID - 1}; choose with "
                        "--classes")
    known = {*map(plain, classes)}
    for photograph in photographs:
        for one in map(plain, (Object(*one).label for one in photograph.objects)):
            if one not in known and one != VOC_CLASSES[BACKGROUND]:
                skipped[f"objects of class {one!r}, which is not listed; --classes lists it"] += 1
    if None in regions:
        skipped["tags, boxes and shapes without pixels"] = regions.count(None)
    return MaskSource(source.kind, tuple(classes), photographs, skipped)


def draw(source, photograph, shape=None, rest=BACKGROUND):
    """The mask of a photograph: H x W label ids. What comes later in the file covers what came before.

    shape : of the photograph, (height, width); None: as the file says
    rest  : the label of the pixels that no object has; in masks they are void, because the background is an object
    """
    shape = shape or photograph.shape
    if shape is None:
        raise UserError(f"{photograph.place}: does not say how large {photograph.name!r} is; name the folder of the "
                        "photographs with --photos")
    mask = np.full(shape, VOID if source.kind == MASKS else rest, np.uint8)
    known = {plain(name): label for label, name in enumerate(source.classes)}
    for label, _, _, region in photograph.objects:
        if region is not None and plain(label) in known:
            try:
                mask[region.draw(shape)] = known[plain(label)]
            except UserError as error:
                raise UserError(f"{photograph.name}: {error}") from None
    return mask


# A folder per class

def read_class_folders(path, _, skipped):
    """The photographs of path/CLASS/. Equal files are one photograph, whatever their names. A folder `background` has
    photographs without a class."""
    groups, names = {}, {}
    for photograph in list_photographs(path).paths:
        folder, _, name = photograph.rpartition("/")
        if not folder or "/" in folder:
            skipped["photographs that lie " + ("deeper than path/CLASS/" if folder else "in no folder of a class")] += 1
            continue
        file = os.path.join(path, photograph)
        key = digest(file) if os.path.getsize(file) else photograph
        groups.setdefault(key, []).append((photograph, plain(folder)))
        names.setdefault(plain(name), set()).add(key)
    for name, keys in names.items():
        if len(keys) > 1:
            skipped[f"{name!r} is the name of {len(keys)} different photographs: each has its own tag"] += 1
    for copies in groups.values():
        first = copies[0][0]
        yield LabelledPhotograph(first, [Object(label) for _, label in copies], first)


# VOC

def read_voc(_, files, skipped):
    for file in files:
        size, objects = voc_objects(file)
        height, width = size or (0, 0)
        stem = os.path.splitext(os.path.basename(file))[0]
        scaled = []
        for name, ymin, xmin, ymax, xmax in objects:
            box = fractions(ymin - 1, xmin - 1, ymax, xmax, height, width, skipped)     # counted from 1, inclusive
            scaled.append(Object(name, box))
        yield LabelledPhotograph(stem, scaled, os.path.basename(file), size)


def voc_objects(path):
    """(height, width) or None, [(name, ymin, xmin, ymax, xmax)] of a VOC annotation as it is written: pixels from 1,
    the last one included. Objects marked difficult are in the image, so they are in the list."""
    root = parse_xml(path)
    if root.tag != "annotation":
        raise UserError(f"{path}: is XML of the kind <{root.tag}>; expected VOC's <annotation>")
    objects = []
    for k, item in enumerate(root.findall("object"), 1):
        where = f"{path}, object {k}"
        name = (item.findtext("name") or "").strip()
        if not name:
            raise UserError(f"{where}: has no <name>")
        objects.append((name, *[number(item.findtext(f"bndbox/{side}"), f"{where}: bndbox/{side}")
                                for side in ("ymin", "xmin", "ymax", "xmax")]))
    size = tuple(int(text) if re.fullmatch(r"\s*\d{1,9}\s*", text or "") else 0
                 for text in (root.findtext("size/height"), root.findtext("size/width")))
    return size if all(size) else None, objects
