"""Points: a pixel of every class of an image, as somebody would click it. Drawn from the pixels of its mask."""
import numpy as np
from PIL import Image

from ccnn._util.files import whole_file
from ccnn.images.ids import truth_paths
from ccnn.images.labels import BACKGROUND, VOID
from ccnn.images.reading import read_mask


def mark_points(root, names, seed, out):
    """Write out/NAME.png for every image that has none yet: the labels of its points, 255 elsewhere."""
    out.mkdir(parents=True, exist_ok=True)
    for number, (name, file) in enumerate(zip(names, truth_paths(root, names))):
        if not (out / f"{name}.png").exists():
            with whole_file(out / f"{name}.png") as part:
                Image.fromarray(points(read_mask(file), np.random.default_rng([seed, number]))).save(part, format="PNG")


def points(mask, draw):
    """A pixel of every class of a mask but the background; all others are unknown."""
    found = np.full(mask.shape, VOID, np.uint8)
    for label in np.setdiff1d(mask, (BACKGROUND, VOID)):
        y, x = np.nonzero(mask == label)
        one = draw.integers(len(y))
        found[y[one], x[one]] = label
    return found
