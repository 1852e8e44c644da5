"""LabelMe: a JSON file beside each photograph."""
import json
import os

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.foreign_files import get, items, number, parse_json
from ccnn._util.text import shortened
from ccnn.annotations.outlines import outlines
from ccnn.annotations.regions import LabelledPhotograph, Object, Polygons, box_of, checked_shape, read_polygon
from ccnn.images.labels import BACKGROUND, VOID

KEYS = {"shapes", "imagePath"}


def is_labelme(data):
    return isinstance(data, dict) and set(data) >= KEYS


def read_labelme(path, files, skipped):
    """Polygons, rectangles and circles; of all other shapes the labels.

    files : of a folder; other JSON files in it are left out
    """
    for file in files:
        data = parse_json(file)
        if not is_labelme(data):
            skipped["JSON files that are not LabelMe's"] += 1
            continue
        folder = os.path.relpath(os.path.dirname(file), path).replace(os.sep, "/") if os.path.isdir(path) else "."
        name = get(data, "imagePath", str, file).replace("\\", "/").rpartition("/")[2]
        shape = checked_shape(data.get("imageHeight"), data.get("imageWidth"), f"{file}: imageHeight and imageWidth")
        objects = [read_shape(item, shape, where, skipped) for item, where in items(data, "shapes", file)]
        yield LabelledPhotograph(name if folder == "." else f"{folder}/{name}", objects, os.path.basename(file), shape)


def read_shape(item, shape, where, skipped):
    label, kind = get(item, "label", str, where), item.get("shape_type", "polygon")
    if kind not in ("polygon", "rectangle", "circle") or shape is None:
        skipped[f"shapes of type {shortened(kind)}: their tags were taken"] += 1
        return Object(label)
    points = get(item, "points", list, where)
    if kind == "polygon":
        found = read_polygon(points, shape, f"{where}: points")
        if found is None:
            raise UserError(f"{where}: a polygon needs three points; got {len(points)}")
        region = Polygons([found])
        return Object(label, box_of(found), region.area, region)
    if len(points) != 2 or not all(isinstance(point, list) and len(point) == 2 for point in points):
        raise UserError(f"{where}: a {kind} needs two points [x, y]; got {shortened(points)}")
    a, b = (np.array([number(side, where) for side in point]) for point in points)
    if kind == "circle":                    # its middle, and a point on it
        turn = np.linspace(0, 2 * np.pi, 64, endpoint=False)
        line = a + np.hypot(*(b - a)) * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        region = Polygons([read_polygon(line.tolist(), shape, where)])
        return Object(label, box_of(region.points[0]), region.area, region)
    box = box_of(np.array([a, b]) / shape[::-1])
    return Object(label, box, None if box is None else (box[2] - box[0]) * (box[3] - box[1]))


# Into files

def describe(name, mask, classes):
    """The JSON for a photograph, with a polygon for each connected part. It lies beside the photograph."""
    shapes = [{"label": classes[label], "points": np.round(points, 2).tolist(), "group_id": None, "description": "",
               "shape_type": "polygon", "flags": {}, "mask": None}
              for label in np.unique(mask[(mask != BACKGROUND) & (mask != VOID)]) for points in outlines(mask == label)]
    return json.dumps({"version": "5.5.0", "flags": {}, "shapes": shapes, "imagePath": name.rpartition("/")[2],
                       "imageData": None, "imageHeight": mask.shape[0], "imageWidth": mask.shape[1]}).encode()
