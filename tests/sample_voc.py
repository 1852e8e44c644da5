"""A VOC folder of four real photographs, for tests that drawings would not do for; see sample/README.md."""
import shutil
from pathlib import Path

import skimage
from PIL import Image

from ccnn.images.ids import read_split

SAMPLE = Path(__file__).parent / "sample"
PHOTOGRAPHS = Path(skimage.__file__).parent / "data"


def make_sample(folder):
    """Write the photographs, their masks and boxes, and the lists train and val into `folder`; return it as a Path."""
    root = Path(folder)
    shutil.copytree(SAMPLE, root, ignore=shutil.ignore_patterns("README.md"))
    (root / "JPEGImages").mkdir()
    for id in read_split(root, "train"):
        with Image.open(PHOTOGRAPHS / f"{id}.png") as photograph, \
                Image.open(root / f"SegmentationClass/{id}.png") as mask:
            photograph.convert("RGB").resize(mask.size, Image.BICUBIC).save(root / f"JPEGImages/{id}.jpg", quality=95)
    shutil.copy(root / "ImageSets/Segmentation/train.txt", root / "ImageSets/Segmentation/val.txt")
    return root
