"""Label Studio: its JSON exports, JSON-MIN, and pre-annotations that it imports."""
import json
from typing import Any, Optional
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import quoteattr

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.foreign_files import fractions, get, items, number
from ccnn._util.text import shortened
from ccnn.annotations.outlines import outlines
from ccnn.annotations.regions import (
    Brush,
    LabelledPhotograph,
    Later,
    Object,
    Polygons,
    checked_shape,
    packed,
    read_polygon,
)
from ccnn.images.formats import SUFFIX
from ccnn.images.labels import BACKGROUND, VOID
from ccnn.images.overlays import colours

STUDIO_KEYS = {"id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement"}


def read_label_studio(path, tasks, skipped):
    """A task without an annotation is not labelled, so it is left out; one with an empty annotation has no class.
    Several annotations of a task are joined. Predictions are read of a task that has no list of annotations: it has not
    been in Label Studio."""
    for k, task in enumerate(tasks):
        where = f"{path}, task {k + 1}"
        name = _image_value(get(task, "data", dict, where), where)
        given = task.get("annotations", task.get("completions", task.get("predictions")))   # the second: before 1.0
        if not isinstance(given, list):
            raise UserError(f"{where}: has no list `annotations`; export as JSON")
        done = [item for item in given if isinstance(item, dict) and not item.get("was_cancelled")]
        if len(done) < len(given):
            skipped["annotations that were cancelled"] += len(given) - len(done)
        if not done:
            skipped["tasks that nobody labelled"] += 1
            continue
        objects, shapes = [], set()
        for annotation in done:
            for result, place in items(annotation, "result", where):
                kind, value = get(result, "type", str, place), result.get("value")
                labels = value.get(kind) if isinstance(value, dict) else None
                if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
                    skipped[f"results of type {kind!r}, which name no class"] += 1
                    continue
                shape = checked_shape(result.get("original_height"), result.get("original_width"), place)
                shapes.add(shape)
                objects += _studio_objects(value, kind, labels, place, skipped, shape)
        yield LabelledPhotograph(name, objects, f"task {k + 1}", shapes.pop() if len(shapes) == 1 else None)


def read_label_studio_min(path, tasks, skipped):
    """One value per control: "cat", {"choices": ["cat", "dog"]}, or a list of regions that have their labels."""
    rows, words = [], set()
    for k, task in enumerate(tasks, 1):
        where = f"{path}, task {k}"
        if not isinstance(task, dict):
            raise UserError(f"{where}: must be an object, {{...}}; got {shortened(task)}")
        values = {key: value for key, value in task.items() if key not in STUDIO_KEYS}
        rows.append((_image_value(values, where), values, where))
        words |= {key for key, value in values.items() if isinstance(value, str) and not is_image(value)}
    if len(words) > 1:
        raise UserError(f"{path}: {' and '.join(sorted(words))} all hold text, and one of them the classes; "
                        "export as JSON instead of JSON-MIN")
    for k, (name, values, where) in enumerate(rows, 1):
        controls = {key: value for key, value in values.items() if isinstance(value, (dict, list)) or key in words}
        objects = [item for key, value in controls.items() if value is not None
                   for item in _control_objects(value, f"{where}: {key}", skipped)]
        if not objects and None in controls.values():
            skipped["tasks that nobody labelled"] += 1
            continue
        yield LabelledPhotograph(name, objects, f"task {k}")


def _control_objects(value, place, skipped):
    """The objects of one control in JSON-MIN."""
    if isinstance(value, str):
        return [Object(value)]
    if isinstance(value, dict):
        return [Object(label) for label in _names(value, "choices", place)]
    if not isinstance(value, list):
        raise UserError(f"{place}: expected text, choices or regions; got {shortened(value)}")
    objects = []
    for region in value:
        kind = next((key for key in region if key.endswith("labels")), None) if isinstance(region, dict) else None
        if kind is None:
            raise UserError(f"{place}: expected regions with labels; got {shortened(region)}")
        objects += _studio_objects(region, kind, _names(region, kind, place), place, skipped)
    return objects


def _names(value, key, place):
    """The class names in value[key]; none if there is nothing."""
    names = value.get(key)
    names = [] if names is None else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{place}: {key} must be a list of names; got {shortened(names)}")
    return names


def _studio_objects(value, kind, labels, place, skipped, shape=None):
    """Rectangles and polygons are in per cent of width and height; a turned rectangle has no box of ours."""
    box: Optional[tuple] = None
    region: Any = None
    if kind == "rectanglelabels":
        x, y, w, h = (number(value.get(key), f"{place}: {key}") for key in ("x", "y", "width", "height"))
        if value.get("rotation"):
            skipped["boxes that are turned: their tags were taken"] += 1
        else:
            box = fractions(y, x, y + h, x + w, 100, 100, skipped)
    elif kind == "polygonlabels":
        region = Later(read_points, (value.get("points"), place))
    elif kind == "brushlabels" and shape and value.get("format") == "rle":
        region = Brush(value.get("rle"), shape, place)
    return [Object(label, box, None, region) for label in labels]


def read_points(points, place):
    found = read_polygon(points, (100, 100), f"{place}: points")
    return None if found is None else Polygons([found])


def _image_value(values, where):
    """The file's name among the values of a task."""
    for value in values.values():
        if isinstance(value, str) and is_image(value):
            return file_name(value)
    raise UserError(f"{where}: names no photograph (.jpg, .png, ...); got {shortened(values)}")


def is_image(url):
    return bool(SUFFIX.search(file_name(url)))


def file_name(url):
    """cat.jpg of /data/upload/1/cat.jpg, s3://bucket/cat.jpg, /data/local-files/?d=folder/cat.jpg"""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    inner = parse_qs(parts.query).get("d")
    return inner[0] if inner else unquote(parts.path).rpartition("/")[2]


# Into files

def brush(region, name):
    """The result of a BrushLabels control."""
    return result(region.shape, "brushlabels", {"format": "rle", "rle": packed(region), "brushlabels": [name]})


def polygon(points, shape, name):
    """The result of a PolygonLabels control; points in pixels."""
    percent = np.round(points / shape[::-1] * 100, 4).clip(0, 100).tolist()
    return result(shape, "polygonlabels", {"points": percent, "closed": True, "polygonlabels": [name]})


def result(shape, kind, value):
    return {"type": kind, "from_name": "label", "to_name": "image", "original_width": shape[1],
            "original_height": shape[0], "image_rotation": 0, "value": value}


def brushes(mask, classes):
    return [brush(mask == label, classes[label]) for label in labels_in(mask)]


def polygons(mask, classes):
    return [polygon(points, mask.shape, classes[label]) for label in labels_in(mask)
            for points in outlines(mask == label)]


def labels_in(mask):
    return np.unique(mask[(mask != BACKGROUND) & (mask != VOID)])


def describe_brushes(name, mask, classes):
    return numbered(brushes(mask, classes))


def describe_polygons(name, mask, classes):
    return numbered(polygons(mask, classes))


def numbered(results):
    return [{"id": f"ccnn{number}", **one} for number, one in enumerate(results)]


def tasks(described):
    """The photographs are to be in the folder that Label Studio serves as local files."""
    return json.dumps([{"data": {"image": f"/data/local-files/?d={quote(name)}"},
                        "predictions": [{"model_version": "ccnn", "result": results}]}
                       for name, results in described]).encode()


def config(control, classes):
    """The labelling interface of a project: control is BrushLabels or PolygonLabels."""
    labels = "".join(f'    <Label value={quoteattr(name)} background="#{bytes(colours()[label]).hex()}"/>\n'
                     for label, name in enumerate(classes) if label != BACKGROUND)
    return (f'<View>\n  <Image name="image" value="$image" zoom="true"/>\n  <{control} name="label" toName="image">\n'
            f'{labels}  </{control}>\n</View>\n').encode()
