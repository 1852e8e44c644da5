#!/usr/bin/env python3
"""Draw a small data set for segmentation, in the layout of a VOC devkit, from a seed.

    demo/draw_demo.py data/demo

ccnn/data/drawn_scenes.py says what is drawn.
"""
import os
import shutil
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from ccnn._util.errors import UserError
from ccnn.cli import command
from ccnn.data.background_shares import background_share, write_shares
from ccnn.data.drawn_scenes import CLASSES, scene
from ccnn.images.labels import indexed


def annotation(name, shape, boxes):
    """VOC's XML."""
    objects = "".join(
        f"<object><name>{escape(CLASSES[c - 1])}</name><difficult>0</difficult><bndbox>"
        f"<xmin>{x0 + 1}</xmin><ymin>{y0 + 1}</ymin><xmax>{x1 + 1}</xmax><ymax>{y1 + 1}</ymax></bndbox></object>"
        for c, x0, y0, x1, y1 in boxes)               # VOC counts pixels from 1, both ends inside
    return (f"<annotation><filename>{name}.jpg</filename><size><width>{shape[1]}</width><height>{shape[0]}</height>"
            f"<depth>3</depth></size><segmented>1</segmented>{objects}</annotation>\n")


def draw(root, train=200, val=60, seed=1):
    """Write the data set below root. A folder that has this very set already is left as it is."""
    root = Path(root)
    mark, made = f"train {train} val {val} seed {seed} drawing 2\n", root / "drawn.txt"
    if made.is_file() and made.read_text() == mark:
        return root
    if root.exists() and not made.is_file() and any(root.iterdir()):
        raise UserError(f"{root} exists and was not drawn by this tool: name another folder")

    fresh = root.with_name(root.name + ".part")
    shutil.rmtree(fresh, ignore_errors=True)
    folders = {name: fresh / name
               for name in ("JPEGImages", "SegmentationClass", "Annotations", "ImageSets/Segmentation")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    splits, shares = {"train": range(train), "val": range(train, train + val)}, {}
    for split, numbers in splits.items():
        for number in tqdm(numbers, desc=f"drawing {split}", unit="image", disable=None):
            name = f"drawn_{number:05d}"
            image, mask, boxes = scene(np.random.default_rng([seed, number]))
            Image.fromarray(image).save(folders["JPEGImages"] / f"{name}.jpg", quality=95)
            indexed(mask).save(folders["SegmentationClass"] / f"{name}.png")
            (folders["Annotations"] / f"{name}.xml").write_text(annotation(name, mask.shape, boxes))
            shares[name] = background_share(mask)
        lines = "".join(f"drawn_{number:05d}\n" for number in numbers)
        (folders["ImageSets/Segmentation"] / f"{split}.txt").write_text(lines)
    (fresh / "classes.txt").write_text("\n".join(("background", *CLASSES)) + "\n")
    write_shares(fresh / "shares.csv", shares)
    (fresh / "drawn.txt").write_text(mark)
    shutil.rmtree(root, ignore_errors=True)
    os.rename(fresh, root)
    return root


def main(argv=None):
    parser = command.parser(__doc__)
    parser.add_argument("root", help="folder to write")
    parser.add_argument("--train", type=int, default=200, help="training images (default %(default)s)")
    parser.add_argument("--val", type=int, default=60, help="validation images (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, another set (default %(default)s)")
    args = parser.parse_args(argv)
    if min(args.train, args.val, args.seed) < 0:
        raise UserError("--train, --val and --seed must not be negative")
    print(draw(args.root, args.train, args.val, args.seed))


if __name__ == "__main__":
    command.run(main)
