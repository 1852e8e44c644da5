"""Reads what ccnn convert wrote with the libraries of the other programs, and saves the masks that they see.

    .formats/bin/python tests/read_with_tools.py FORMAT FOLDER PHOTOGRAPHS OUT.npz

It runs in an environment of its own (make test-formats) and does not know ccnn. Names of classes are sorted, so that
label 1 is the first of them.
"""
import importlib.util
import json
import sys
import types
from pathlib import Path

import numpy as np


def coco(folder):
    from pycocotools.coco import COCO
    found = COCO(next(folder.glob("*.json")))
    labels = numbered(one["name"] for one in found.loadCats(found.getCatIds()))
    for image in found.loadImgs(found.getImgIds()):
        mask = np.zeros((image["height"], image["width"]), np.uint8)
        for one in found.loadAnns(found.getAnnIds(image["id"])):
            drawn = found.annToMask(one) == 1
            mask[drawn] = labels[found.loadCats(one["category_id"])[0]["name"]]
            box = one["bbox"]                           # its own box and area agree
            rows, columns = np.nonzero(drawn)
            assert abs(box[0] - columns.min()) <= 1 and abs(box[1] + box[3] - rows.max() - 1) <= 1
            assert abs(one["area"] - drawn.sum()) <= 0.1 * drawn.sum() + 8
        yield image["file_name"], mask


def datumaro(folder, photographs):
    """CVAT, with CVAT's own data set library."""
    import datumaro
    from pycocotools import mask as tools
    for path in photographs.rglob("*.jpg"):                     # it wants them beside the file
        copy = folder / "images" / path.relative_to(photographs)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    data = datumaro.Dataset.import_from(str(next(folder.glob("*.xml"))), "cvat")
    names = [label.name for label in data.categories()[datumaro.AnnotationType.label]]
    labels = numbered(names)
    for item in data:
        height, width = item.media_as(datumaro.Image).size if item.media else sizes(photographs)[item.id]
        mask = np.zeros((height, width), np.uint8)
        for one in item.annotations:
            if one.type == datumaro.AnnotationType.polygon:
                drawn = tools.decode(tools.merge(tools.frPyObjects([one.points], height, width))) == 1
            else:
                drawn = np.asarray(one.image, bool)
            mask[drawn] = labels[names[one.label]]
        yield item.id, mask


def label_studio(folder):
    """Its editor's rules for tasks and predictions, and decode_rle, with which its exports draw a brush."""
    from label_studio_sdk.converter.brush import decode_rle
    from label_studio_sdk.label_interface import LabelInterface
    from pycocotools import mask as tools
    interface = LabelInterface((folder / "config.xml").read_text())
    interface.validate()
    tasks = json.loads((folder / "tasks.json").read_text())
    labels = numbered(interface.get_control("label").labels)
    for task in tasks:
        assert interface.validate_task({"data": task["data"]})
        mask = None
        for prediction in task["predictions"]:
            problems = interface.validate_prediction(prediction, return_errors=True)
            assert not problems, problems
            for one in prediction["result"]:
                size = one["original_height"], one["original_width"]
                mask = np.zeros(size, np.uint8) if mask is None else mask
                value = one["value"]
                if one["type"] == "brushlabels":
                    drawn = decode_rle(value["rle"]).reshape(*size, 4)[..., 3] > 0
                    name = value["brushlabels"][0]
                else:
                    points = np.array(value["points"]) / 100 * size[::-1]
                    drawn = tools.decode(tools.merge(tools.frPyObjects([points.ravel().tolist()], *size))) == 1
                    name = value["polygonlabels"][0]
                mask[drawn] = labels[name]
        if mask is not None:
            yield task["data"]["image"].partition("?d=")[2].replace("%20", " ").replace("%26", "&"), mask


def labelme(folder):
    """With LabelMe's own shapes_to_label; its window is not needed for that, so its file is loaded alone."""
    place = Path(importlib.util.find_spec("labelme").origin).parent
    sys.modules["labelme"] = types.ModuleType("labelme")
    sys.modules["labelme._label_file"] = types.SimpleNamespace(ShapeDict=dict)
    spec = importlib.util.spec_from_file_location("shape", place / "utils/shape.py")
    shape = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shape)
    files = {path: json.loads(path.read_text()) for path in sorted(folder.rglob("*.json"))}
    labels = numbered(one["label"] for data in files.values() for one in data["shapes"])
    for path, data in files.items():
        assert {"version", "flags", "shapes", "imagePath", "imageData"} <= set(data)
        found, _ = shape.shapes_to_label((data["imageHeight"], data["imageWidth"]), data["shapes"], labels)
        yield str(path.parent.relative_to(folder) / data["imagePath"]), found.astype(np.uint8)


def yolo(folder, photographs):
    """ultralytics wants PyTorch, so this follows its documented rules: labels/ in the place of images/, a polygon per
    line in fractions, drawn with cv2.fillPoly as its data loader does it (ultralytics/data/utils.py, polygon2mask)."""
    import cv2
    import yaml
    data = yaml.safe_load((folder / "data.yaml").read_text())
    names = data["names"]
    labels = numbered(names.values())
    for name, (height, width) in sizes(photographs).items():
        path = folder / "labels" / Path(name).with_suffix(".txt")
        mask = np.zeros((height, width), np.uint8)
        for line in path.read_text().splitlines():
            label, *values = line.split()
            points = np.array(values, np.float32).reshape(-1, 2)
            assert len(points) >= 3 and points.min() >= 0 and points.max() <= 1
            drawn = np.zeros((height, width), np.uint8)
            cv2.fillPoly(drawn, [np.asarray(points * (width, height), np.int32)], 1)
            mask[drawn == 1] = labels[names[int(label)]]
        yield name, mask


def numbered(names):
    return {name: label for label, name in enumerate(sorted(set(names)), 1)}


def sizes(photographs):
    """{path: (height, width)}"""
    from PIL import Image
    return {str(path.relative_to(photographs)): Image.open(path).size[::-1] for path in photographs.rglob("*.jpg")}


def main(format, folder, photographs, out):
    folder, photographs = Path(folder), Path(photographs)
    kind = format.removesuffix("-polygons")
    found = {"coco": lambda: coco(folder), "cvat": lambda: datumaro(folder, photographs),
             "label-studio": lambda: label_studio(folder), "labelme": lambda: labelme(folder),
             "yolo": lambda: yolo(folder, photographs)}[kind]()
    np.savez(out, **{name.removesuffix(".jpg").replace("/", "|"): mask for name, mask in found})


if __name__ == "__main__":
    main(*sys.argv[1:])
