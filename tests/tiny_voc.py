"""A VOC folder of a few tiny drawn images, for tests that need files and no data set."""
from pathlib import Path

import numpy as np
from PIL import Image

from ccnn.images.labels import VOC_CLASSES, VOID, indexed


def make_voc(folder, images=4, size=(64, 48), classes=VOC_CLASSES, seed=0):
    """Write `images` images of `size` (width, height) in VOC's layout into `folder`; return it as a Path.

    Image i (named 2007_00000i) shows a large ellipse of class 1 + i (cyclically; about a quarter of the image)
    and, for odd i, a small square of the class after it (below 10 %), each in a colour of its class, over noise,
    with a void border one pixel wide. Written: JPEGImages, SegmentationClass, Annotations, and the splits train,
    train_aug and val, each of all the images.
    """
    root = Path(folder)
    for name in ("JPEGImages", "SegmentationClass", "Annotations", "ImageSets/Segmentation"):
        (root / name).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    colours = np.random.default_rng(7).integers(40, 216, (len(classes), 3))
    width, height = size
    y, x = np.mgrid[:height, :width]
    foreground = len(classes) - 1
    ids = [f"2007_{i:06d}" for i in range(images)]
    for i, name in enumerate(ids):
        # 1. where the objects are: centre and half extent, large in the left two thirds, small on the right
        objects = [(1 + i % foreground, 0.36 * width, rng.uniform(0.4, 0.6) * height, 0.28 * width, 0.28 * height)]
        if i % 2:
            cy = rng.uniform(0.3, 0.7) * height
            objects.append((1 + (i + 1) % foreground, 0.85 * width, cy, 0.08 * width, 0.1 * height))
        # 2. image, mask and boxes
        rgb = np.clip(rng.normal(110, 30, (height, width, 3)), 0, 255)
        mask = np.zeros((height, width), np.uint8)
        boxes = []
        for k, (label, cx, cy, rx, ry) in enumerate(objects):
            dx, dy = np.abs(x - cx), np.abs(y - cy)
            reach = np.hypot(dx / rx, dy / ry) if k == 0 else np.maximum(dx / rx, dy / ry)
            inside = reach <= 1
            around = np.hypot(dx / (rx + 1), dy / (ry + 1)) <= 1 if k == 0 else (dx <= rx + 1) & (dy <= ry + 1)
            rgb[inside] = 0.8 * colours[label] + 0.2 * rgb[inside]
            mask[around] = VOID
            mask[inside] = label
            rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
            boxes.append((classes[label], columns[0] + 1, rows[0] + 1, columns[-1] + 1, rows[-1] + 1))
        Image.fromarray(rgb.astype(np.uint8)).save(root / "JPEGImages" / f"{name}.jpg", quality=95)
        indexed(mask).save(root / "SegmentationClass" / f"{name}.png")
        (root / "Annotations" / f"{name}.xml").write_text(annotation(name, size, boxes))
    for split in ("train", "train_aug", "val"):
        (root / "ImageSets/Segmentation" / f"{split}.txt").write_text("".join(f"{name}\n" for name in ids))
    return root


def save_mask(path, mask):
    """An indexed PNG; missing folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    indexed(mask).save(path)


def annotation(name, size, boxes):
    """VOC's XML for boxes (class, xmin, ymin, xmax, ymax): counted from 1, both ends included."""
    objects = "".join(
        f"<object><name>{label}</name><difficult>0</difficult><bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin>"
        f"<xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox></object>" for label, x0, y0, x1, y1 in boxes)
    return (f"<annotation><filename>{name}.jpg</filename><size><width>{size[0]}</width><height>{size[1]}</height>"
            f"<depth>3</depth></size><segmented>1</segmented>{objects}</annotation>")
