"""CVAT for images 1.1: tags, boxes, polygons and masks."""
import re
from xml.etree import ElementTree

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.foreign_files import fractions, number
from ccnn._util.text import shortened
from ccnn.annotations.outlines import outlines
from ccnn.annotations.regions import (
    LabelledPhotograph,
    Later,
    Object,
    Polygons,
    bounds,
    checked_runs,
    checked_shape,
    read_polygon,
    run_lengths,
)
from ccnn.images.labels import BACKGROUND, VOID


def read_cvat(path, root, skipped):
    """Tags, boxes, polygons and masks; of all other shapes the labels."""
    if root.find("track") is not None:
        raise UserError(f"{path}: is CVAT's format for videos; export as \"CVAT for images 1.1\"")
    for k, image in enumerate(root.findall("image"), 1):
        where = f"{path}, image {k}"
        if not image.get("name"):
            raise UserError(f"{where}: has no name")
        shape = checked_shape(image.get("height"), image.get("width"), f"{where}: height and width")
        objects = []
        for item in image:
            if not item.get("label"):
                raise UserError(f"{where}: <{item.tag}> has no label")
            objects.append(Object(item.get("label"), *read_shape(item, shape, f"{where}: {item.tag}", skipped)))
        yield LabelledPhotograph(image.get("name"), objects, f"image {k}", shape)


def read_shape(item, shape, where, skipped):
    """box, area, region"""
    box = region = None
    if item.tag == "box" and number(item.get("rotation", "0"), f"{where} rotation"):
        skipped["boxes that are turned: their tags were taken"] += 1
    elif item.tag == "box":
        y0, x0, y1, x1 = (number(item.get(side), f"{where} {side}") for side in ("ytl", "xtl", "ybr", "xbr"))
        height, width = shape or (0, 0)
        box = fractions(y0, x0, y1, x1, height, width, skipped)
    elif item.tag in ("polygon", "mask") and shape:
        region = Later(read_region, (item, shape, where))
    return box, None, region


def read_region(item, shape, where):
    if item.tag == "polygon":
        points = read_polygon([point.split(",") for point in item.get("points", "").split(";")], shape, where)
        return None if points is None else Polygons([points])
    window = [number(item.get(side), f"{where} {side}") for side in ("top", "left", "height", "width")]
    if any(side != int(side) or abs(side) > 1 << 30 for side in window):
        raise UserError(f"{where}: top, left, height and width must be whole numbers of pixels; got {window}")
    text = item.get("rle", "")
    if not re.fullmatch(r"\s*\d{1,9}(\s*,\s*\d{1,9})*\s*", text, re.ASCII):
        raise UserError(f"{where}: rle must be numbers with commas between them; got {shortened(text)}")
    return checked_runs([int(run) for run in text.split(",")], shape, [int(side) for side in window], "C", where)


def class_names(root):
    """The labels that the file declares."""
    return [label.text.strip() for label in root.iterfind("meta//labels/label/name") if label.text]


# Into files

def describe_runs(name, mask, classes):
    """The XML of an image, with a mask for each class."""
    return describe(name, mask, classes, mask_elements)


def describe_polygons(name, mask, classes):
    """The same, with a polygon for each connected part."""
    return describe(name, mask, classes, lambda region: [
        ("polygon", {"points": ";".join(f"{x:.2f},{y:.2f}" for x, y in points)}) for points in outlines(region)])


def describe(name, mask, classes, elements):
    image = ElementTree.Element("image", id="ID", name=name, width=str(mask.shape[1]), height=str(mask.shape[0]))
    for label in np.unique(mask[(mask != BACKGROUND) & (mask != VOID)]):
        for tag, attributes in elements(mask == label):
            ElementTree.SubElement(image, tag, label=classes[label], source="auto", occluded="0", **attributes,
                                   z_order="0")
    return mask.shape, ElementTree.tostring(image, "unicode")


def mask_elements(region):
    """A mask is in the smallest window around it."""
    top, left, height, width = bounds(region)
    counts = run_lengths(region[top:top + height, left:left + width], "C")
    yield "mask", {"rle": ", ".join(map(str, counts)), "left": str(left), "top": str(top), "width": str(width),
                   "height": str(height)}


def document(described, classes):
    labels = ElementTree.Element("labels")
    for name in classes[1:]:
        label = ElementTree.SubElement(labels, "label")
        ElementTree.SubElement(label, "name").text = name
        ElementTree.SubElement(label, "attributes")
    images = "\n".join(text.replace('id="ID"', f'id="{k}"', 1) for k, (_, (_, text)) in enumerate(described))
    return ('<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>\n<meta><task>'
            f'{ElementTree.tostring(labels, "unicode")}</task></meta>\n{images}\n</annotations>\n').encode()
