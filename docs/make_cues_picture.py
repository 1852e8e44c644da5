"""Draw docs/cues.jpg: masks of the model in models/ without and with its cue, no CRF, of photographs of scikit-image.

    .caffe/bin/python docs/make_cues_picture.py

They are those of its colour photographs that show a class of VOC.
"""
from pathlib import Path

import numpy as np
from PIL import Image
from skimage import data

from ccnn.images.overlays import overlay
from ccnn.images.reading import shrink
from ccnn.inference.predict import SegmentOptions, every_label, find_model, load_model, segment

SIDE, GAP = 320, 8


def photographs():
    return [shrink(np.ascontiguousarray(rgb), SIDE) for rgb in (
        data.astronaut(), data.chelsea(), data.stereo_motorcycle()[0])]


def main():
    pictures = []
    for cue in (False, True):
        files = find_model(cue=cue)
        model = load_model(files)
        pictures.append([overlay(rgb, segment(rgb, model, SegmentOptions(every_label(files))), files.classes)
                         for rgb in photographs()])
    heights = [max(picture.height for picture in pair) + GAP for pair in zip(*pictures)]
    sheet = Image.new("RGB", (2 * SIDE + GAP, sum(heights)), "white")
    for column, those in enumerate(pictures):
        for row, picture in enumerate(those):
            sheet.paste(picture, (column * (SIDE + GAP), sum(heights[:row])))
    sheet.save(Path(__file__).with_name("cues.jpg"), quality=82)


if __name__ == "__main__":
    main()
