"""Tags as other programs store them. One small reader per format; every reader returns the same:

    {image name: Labels(tags, large, boxes, place)}, {what was left out: how often}

    a table            CSV, see ccnn.annotations.table
    a folder per class photos/cat/*.jpg; a photograph that lies in two folders has both tags
    VOC XML            a folder of files, one per photograph, as labelImg and others write them
    COCO JSON          instances: images, annotations, categories
    Label Studio       the JSON export, or JSON-MIN
    CVAT               "CVAT for images 1.1"

A reader yields (name, objects, place) per photograph. objects are (class name, box or None, area or None): the box
as (y0, x0, y1, x1) and the area, all in fractions of the photograph. `collect` does the rest, the same for all.
"""
import os
import re
from collections import Counter

from ccnn._util.errors import UserError
from ccnn._util.files import digest
from ccnn._util.foreign_files import decode, fractions, get, items, number, numbers, parse_json, parse_xml, read_bytes
from ccnn._util.text import plain
from ccnn.annotations.label_studio import read_label_studio, read_label_studio_min
from ccnn.annotations.table import Labels, merged, read_table
from ccnn.images.labels import BACKGROUND, VOC_CLASSES
from ccnn.images.listing import list_photographs

LARGE_AREA = 0.1        # a class with more of the photograph is large (paper, section 5)


def read_source(path, classes=None):
    """(name of the format, {image name: Labels}, {what was left out: how often}).

    classes : names that count, None: all. In a table any other name is a mistake; elsewhere it is left out and counted.
    """
    kind, reader, content = recognise(path)
    if reader is None:
        return kind, *read_table(path, classes)
    skipped = Counter()
    return kind, collect(reader(path, content, skipped), classes, skipped), skipped


def recognise(path):
    """(name of the format, its reader or None for a table, what was read to find out)."""
    if os.path.isdir(path):
        return _recognise_folder(path)
    start = read_bytes(path)[:1000].lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n\0")
    if start.startswith(b"<"):
        root = parse_xml(path)
        if root.tag == "annotation":
            return "VOC XML", read_voc, [path]
        if root.tag == "annotations":
            return "CVAT for images", read_cvat, root
        raise UserError(f"{path}: is XML of the kind <{root.tag}>; expected VOC's <annotation> or CVAT's <annotations>")
    if start[:1] in (b"{", b"["):
        data = parse_json(path)
        if isinstance(data, dict) and {"images", "annotations"} <= set(data):
            return "COCO JSON", read_coco, data
        if isinstance(data, list):
            minimal = not any(isinstance(task, dict) and isinstance(task.get("data"), dict) for task in data)
            return ("Label Studio JSON-MIN", read_label_studio_min, data) if minimal else \
                   ("Label Studio JSON", read_label_studio, data)
        raise UserError(f"{path}: is JSON, but neither COCO (images, annotations) nor Label Studio (a list of tasks)")
    return f"a table ({decode(path)[1]})", None, None


def _recognise_folder(path):
    if os.path.isfile(os.path.join(path, "annotations.xml")):
        return "CVAT for images", read_cvat, parse_xml(os.path.join(path, "annotations.xml"))
    for folder in (os.path.join(path, "Annotations"), path):
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        files = [os.path.join(folder, name) for name in names if re.fullmatch(r"[^.].*\.xml", name, re.IGNORECASE)]
        if files:
            return "VOC XML", read_voc, files
    if any("/" in photograph for photograph in list_photographs(path).paths):
        return "a folder per class", read_class_folders, None
    raise UserError(f"{path}: has neither Annotations/*.xml nor a folder per class with photographs in it; "
                    "name the file with the tags")


def collect(photographs, classes, skipped):
    """{name: Labels} of what a reader yields."""
    known = None if classes is None else {plain(name): name for name in classes}
    images, areas = {}, {}
    for name, objects, place in photographs:
        kept = []
        for label, box, area in objects:
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
        yield first, [(label, None, None) for _, label in copies], first


# VOC

def read_voc(_, files, skipped):
    for file in files:
        size, objects = voc_objects(file)
        height, width = size or (0, 0)
        stem = os.path.splitext(os.path.basename(file))[0]
        scaled = []
        for name, ymin, xmin, ymax, xmax in objects:
            box = fractions(ymin - 1, xmin - 1, ymax, xmax, height, width, skipped)     # counted from 1, inclusive
            scaled.append((name, box, None))
        yield stem, scaled, os.path.basename(file)


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
    size = tuple(int(text) if (text or "").strip().isdecimal() else 0
                 for text in (root.findtext("size/height"), root.findtext("size/width")))
    return size if all(size) else None, objects


# COCO

def read_coco(path, data, skipped):
    """Instances. An image without annotations has no class. `area` tells what is large, if width and height are there;
    crowds count."""
    names = {get(item, "id", (int, str), where): get(item, "name", str, where)
             for item, where in items(data, "categories", path)}
    images = {}
    for item, where in items(data, "images", path):
        size = [max(0, number(item.get(side) or 0, f"{where}: {side}")) for side in ("height", "width")]
        name, place = get(item, "file_name", str, where), where.rpartition(", ")[2]
        images[get(item, "id", (int, str), where)] = name, size, [], place
    for item, where in items(data, "annotations", path):
        image, category = (get(item, key, (int, str), where) for key in ("image_id", "category_id"))
        if image not in images or category not in names:
            skipped[f"annotations of {'an image' if image not in images else 'a category'} that is not listed"] += 1
            continue
        _, (height, width), objects, _ = images[image]
        box = area = None
        if item.get("bbox"):
            x, y, w, h = numbers(item["bbox"], 4, f"{where}: bbox")
            box = fractions(y, x, y + h, x + w, height, width, skipped)
        if item.get("area") is not None and height and width:
            area = number(item["area"], f"{where}: area") / (height * width)
        objects.append((names[category], box, area))
    for name, _, objects, place in images.values():
        yield name, objects, place


# CVAT

def read_cvat(path, root, skipped):
    """Tags, boxes, and the labels of polygons, masks and all other shapes."""
    if root.find("track") is not None:
        raise UserError(f"{path}: is CVAT's format for videos; export as \"CVAT for images 1.1\"")
    for k, image in enumerate(root.findall("image"), 1):
        where = f"{path}, image {k}"
        if not image.get("name"):
            raise UserError(f"{where}: has no name")
        size = [number(image.get(side, "0"), f"{where}: {side}") for side in ("height", "width")]
        objects = []
        for shape in image:
            if not shape.get("label"):
                raise UserError(f"{where}: <{shape.tag}> has no label")
            box = None
            if shape.tag == "box" and number(shape.get("rotation", "0"), f"{where}: box rotation"):
                skipped["boxes that are turned: their tags were taken"] += 1
            elif shape.tag == "box":
                y0, x0, y1, x1 = (number(shape.get(side), f"{where}: box {side}")
                                  for side in ("ytl", "xtl", "ybr", "xbr"))
                box = fractions(y0, x0, y1, x1, size[0], size[1], skipped)
            objects.append((shape.get("label"), box, None))
        yield image.get("name"), objects, f"image {k}"
