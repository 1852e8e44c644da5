"""The dense CRF from NumPy: coarse scores become a mask that follows the edges of the photograph.

    python examples/dense_crf.py            # needs NumPy and this package, no framework

A disc on a darker background. The scores know where it is to some ten pixels only.
"""
import numpy as np

import ccnn
from ccnn.crf import DenseCRF, Preset, photograph_kernels

SIDE = 120
y, x = np.mgrid[:SIDE, :SIDE]
disc = (x - 60) ** 2 + (y - 60) ** 2 < 30 ** 2
noise = np.random.default_rng(0).normal(0, 8, (SIDE, SIDE, 3))
rgb = (np.where(disc[..., None], (200, 140, 90), (60, 80, 110)) + noise).clip(0, 255).astype(np.uint8)

scores = np.zeros((2, SIDE, SIDE), np.float32)          # labels x height x width: a net's scores, or log p
scores[1] = 2 - ((x - 52) ** 2 + (y - 66) ** 2) / 350   # the object, blurred and beside its place


def wrong(mask):
    return f"{(mask != disc).sum()} of {disc.size} pixels are wrong"


print("scores alone:   ", wrong(scores.argmax(axis=0)))
q = ccnn.dense_crf(rgb, scores, "authors")              # marginals, of the shape of scores
print("authors' preset:", wrong(q.argmax(axis=0)))

# Parameters of your own. The lattices are kept, so other scores of the same photograph take less time.
preset = Preset(gaussian_xy=3, gaussian_weight=1, bilateral_xy=40, bilateral_rgb=15, bilateral_weight=4, iterations=5)
crf = DenseCRF(photograph_kernels(rgb, preset))
for sharpness in (0.5, 1, 2):
    print(f"scores times {sharpness}:", wrong(crf.marginals(sharpness * scores, preset.iterations).argmax(axis=0)))
