"""Nets of one data layer, and folders whose supervision can be told by loops: for tests of the data side."""
import json

import caffe
import numpy as np
from PIL import Image
from tiny_voc import annotation, make_voc, save_mask

from ccnn.images.labels import VOC_CLASSES, VOID

TOPS = ["data", "tags", "sizes", "boxes", "labels"]

def make_net(folder, options, layer="VOCDataLayer", phase=caffe.TRAIN):
    """A caffe.Net of one data layer; its prototxt goes into `folder`."""
    path = folder / f"net{len(list(folder.iterdir()))}.prototxt"
    path.write_text(prototxt(options, layer))
    return caffe.Net(str(path), phase)


def prototxt(options, layer="VOCDataLayer"):
    options = {"tops": TOPS, **options}
    return f"""layer {{ name: "in"  type: "Python"  {' '.join(f'top: "{top}"' for top in options["tops"])}
        python_param {{ module: "voc_data"  layer: "{layer}"  param_str: '{json.dumps(options)}' }} }}"""


def still(root, **options):
    """Settings that show every image of a folder as it is, in the order of the list."""
    return {"root": str(root), "split": "train", "mirror": False, "shuffle": False, **options}


def blobs(net):
    net.forward()
    return {name: blob.data[0].copy() for name, blob in net.blobs.items()}


def coded_voc(folder, width=100, height=75, scale=1):
    """A VOC folder with one image that tells where each of its pixels comes from: red is its column, green its row."""
    root = make_voc(folder, images=1, size=(width * scale, height * scale))
    y, x = np.mgrid[:height, :width].astype(np.uint8)
    coded = Image.fromarray(np.dstack([x, y, 0 * x])).resize((width * scale, height * scale), Image.NEAREST)
    (root / "JPEGImages/2007_000000.jpg").unlink()
    coded.save(root / "JPEGImages/2007_000000.png")
    mask = np.zeros((height, width), np.uint8)
    objects = [(1, 3, 5, 40, 60), (2, 50, 8, 72, 19), (3, 33, 70, 35, 72), (4, 60, 60, 75, 100), (5, 0, 90, 12, 94)]
    for label, y0, x0, y1, x1 in objects:
        mask[y0:y1, x0:x1] = label
    mask[20:24] = VOID
    save_mask(root / "SegmentationClass/2007_000000.png", np.kron(mask, np.ones((scale, scale), np.uint8)))
    (root / "Annotations/2007_000000.xml").write_text(annotation("2007_000000", (width * scale, height * scale), [
        (VOC_CLASSES[label], scale * x0 + 1, scale * y0 + 1, scale * x1, scale * y1)
        for label, y0, x0, y1, x1 in objects]))
    return root, mask, objects


def expected_supervision(rows, columns, cell_rows, cell_columns, mask, objects):
    """Tags, sizes, boxes and labels of the pixels rows x columns with cells at cell_rows x cell_columns, by loops.

    A whole image has background; a crop that shows objects has it only if it shows that, too.
    """
    pixels = [int(mask[y, x]) for y in rows for x in columns]
    known = [label for label in pixels if label != VOID]
    whole = len(rows) == len(mask) and len(columns) == len(mask[0])
    tags = [float(label in known) for label in range(21)]
    tags[0] = 1.0 if whole or 0 in known or not known else -1.0
    sizes = [float(known.count(label) > 0.1 * len(known)) for label in range(21)]
    boxes = []
    for label, y0, x0, y1, x1 in objects:
        if any(y0 <= y < y1 for y in rows) and any(x0 <= x < x1 for x in columns):
            box = [float(label)]
            for cells, low, high in ((cell_rows, y0, y1), (cell_columns, x0, x1)):
                hit = [k for k, pixel in enumerate(cells) if low <= pixel < high]
                if not hit:
                    distances = [abs(pixel - (low + high - 1) / 2) for pixel in cells]
                    hit = [distances.index(min(distances))]
                box.append((hit[0], hit[-1] + 1))
            boxes.append((box[0], box[1][0], box[2][0], box[1][1], box[2][1]))
    labels = [[float(mask[y, x]) for x in cell_columns] for y in cell_rows]
    return {"tags": tags, "sizes": sizes, "boxes": boxes or [(-1, 0, 0, 0, 0)], "labels": [labels]}


def same(got, expected):
    for name, value in expected.items():
        assert np.array_equal(got[name], value), name


def own_data(folder, table):
    folder.mkdir()
    for k, name in enumerate(["one.jpg", "two 2.png", "three.jpg"]):
        Image.new("RGB", (40 + k, 30), (40 * k, 50, 60)).save(folder / name)
    (folder / "classes.txt").write_text("cat\ntraffic light\n")
    (folder / "tags.csv").write_text(table)
    return {"root": str(folder), "classes": str(folder / "classes.txt"), "tags_from": "tags.csv", "shuffle": False,
            "mirror": False, "tops": ["data", "tags", "sizes"]}
