"""Rough probabilities of a few tiny drawn images, for tests of what is made of them."""
import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter
from scipy.special import softmax
from tiny_voc import make_voc


def make_probabilities(folder):
    """Write a VOC folder of 3 images, and probabilities/ID.npz for each: its mask, blurred and doubted."""
    root = make_voc(folder, images=3, size=(48, 40))
    rng = np.random.default_rng(0)
    for path in sorted((root / "SegmentationClass").iterdir()):
        mask = np.array(Image.open(path))
        f = np.stack([gaussian_filter((mask == l) * 4.0, 3) for l in range(21)]) + rng.normal(0, 0.3, (21, *mask.shape))
        (root / "probabilities").mkdir(exist_ok=True)
        np.savez(root / f"probabilities/{path.stem}.npz", probabilities=softmax(f, axis=0).astype(np.float16), crf="")
    return root


def arguments(root, out, *more):
    """Of ccnn crf and ccnn tune-crf."""
    return [str(root / "probabilities"), "--images", str(root / "JPEGImages"), "--out", str(out), "--jobs", "1", *more]
