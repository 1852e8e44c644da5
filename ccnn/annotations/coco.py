"""COCO's instances: run lengths, as lists or compressed, and polygons."""
import json

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.foreign_files import fractions, get, items, number, numbers
from ccnn.annotations.outlines import area, outlines
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
    uncompressed,
)
from ccnn.images.labels import BACKGROUND, VOID


def read_coco(path, data, skipped):
    """Instances. An image without annotations has no class. `area` tells what is large, if width and height are there;
    crowds count."""
    names = categories(path, data)
    images = {}
    for item, where in items(data, "images", path):
        name, place = get(item, "file_name", str, where), where.rpartition(", ")[2]
        shape = checked_shape(item.get("height"), item.get("width"), f"{where}: height and width")
        images[get(item, "id", (int, str), where)] = LabelledPhotograph(name, [], place, shape)
    for item, where in items(data, "annotations", path):
        image, category = (get(item, key, (int, str), where) for key in ("image_id", "category_id"))
        if image not in images or category not in names:
            skipped[f"annotations of {'an image' if image not in images else 'a category'} that is not listed"] += 1
            continue
        photograph = images[image]
        box = area = None
        if item.get("bbox"):
            x, y, w, h = numbers(item["bbox"], 4, f"{where}: bbox")
            height, width = photograph.shape or (0, 0)
            box = fractions(y, x, y + h, x + w, height, width, skipped)
        if item.get("area") is not None and photograph.shape:
            area = number(item["area"], f"{where}: area") / (photograph.shape[0] * photograph.shape[1])
        region = item.get("segmentation") and photograph.shape and Later(
            read_segmentation, (item["segmentation"], photograph.shape, f"{where}: segmentation"))
        photograph.objects.append(Object(names[category], box, area, region or None))
    yield from images.values()


def categories(path, data):
    """{id: name}"""
    return {get(item, "id", (int, str), where): get(item, "name", str, where)
            for item, where in items(data, "categories", path)}


def read_segmentation(value, shape, where):
    if isinstance(value, list):
        polygons = [read_polygon(polygon, shape, where) for polygon in value]
        polygons = [polygon for polygon in polygons if polygon is not None]
        return Polygons(polygons) if polygons else None
    counts = value.get("counts") if isinstance(value, dict) else None
    size = numbers(value.get("size"), 2, f"{where}: size") if isinstance(value, dict) else None
    if size and tuple(size) != tuple(shape):
        raise UserError(f"{where}: is of {size[1]:g} x {size[0]:g} pixels, and its image has {shape[1]} x {shape[0]}")
    if isinstance(counts, str):
        counts = uncompressed(counts, where)
    return checked_runs(counts, shape, (0, 0, *shape), "F", where)


# Into files

def describe_runs(name, mask, classes):
    """(height, width, [{category_id, segmentation, area, bbox}]), one annotation for each class in the mask."""
    return describe(mask, lambda region: [(region, {"size": [*region.shape], "counts": run_lengths(region)})])


def describe_polygons(name, mask, classes):
    """The same, one annotation for each connected part."""
    return describe(mask, lambda region: [(points, [np.round(points, 2).ravel().tolist()])
                                          for points in outlines(region)])


def describe(mask, parts):
    annotations = []
    for label in np.unique(mask[(mask != BACKGROUND) & (mask != VOID)]):
        for part, segmentation in parts(mask == label):
            if part.dtype == bool:
                (y, x, height, width), size = bounds(part), int(part.sum())
                box = [x, y, width, height]
            else:
                box, size = [*part.min(axis=0).tolist(), *np.ptp(part, axis=0).tolist()], area(part)
            annotations.append({"category_id": int(label), "area": size, "iscrowd": 0, "bbox": box,
                                "segmentation": segmentation})
    return *mask.shape, annotations


def document(described, classes):
    """described : [(name, what describe gave)]"""
    images, annotations = [], []
    for name, (height, width, regions) in described:
        images.append({"id": len(images) + 1, "file_name": name, "height": height, "width": width})
        for region in regions:
            annotations.append({"id": len(annotations) + 1, "image_id": len(images), **region})
    listed = [{"id": label, "name": name, "supercategory": ""} for label, name in enumerate(classes)
              if label != BACKGROUND]
    return json.dumps({"info": {"description": "masks of CCNN"}, "licenses": [], "images": images,
                       "annotations": annotations, "categories": listed}).encode()
