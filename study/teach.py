"""Masks of the training images, made by a trained system: what another net can be taught with.

A teacher is a run that is trained. Of a training image it knows what the system may know: its tags, and what else its
constraints take. Its p obeys them, and the CRF carries p to the edges of the photograph. So these masks are better
than those of new images, and they do not change while the next net learns from them.
"""
import numpy as np
from PIL import Image

import ccnn
from ccnn.crf import Preset, dense_crf
from ccnn.files import whole_file
from ccnn.grid import Scores, sample
from ccnn.images import fit, read_image, shrink
from ccnn.labels import LABELS
from ccnn.samples import FeatureSamples
from ccnn.supervision import SUPERVISION
from ccnn.trunk import VGG16

TINY = 1e-10            # stands for a probability of 0 before its logarithm is taken

WHOLE = 1, 0, 0         # of FeatureSamples.load: neither mirrored nor moved


def teach(system, changes, data, forward, preset: Preset, out):
    """Write out/NAME.png for every image that has none yet.

    changes : settings of the loss layer in place of the system's
    data    : settings of ccnn.samples.FeatureSamples: the images, and what is known of them
    forward : name -> scores, L x h x w
    """
    settings = {**system.settings, **system.frozen, **changes}
    kind = SUPERVISION[settings["supervision"]]
    bounds = {key: float(settings[key]) for key in kind.bounds if key in settings}
    samples = FeatureSamples({**data, "tops": list(kind.names), "mirror": False})
    size, = samples.size
    out.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(samples.ids):
        file = out / f"{name}.png"
        if file.exists():
            continue
        known, f = samples.load(number, *WHOLE), forward(name)
        c = kind.constraints([known[blob] for blob in kind.names], LABELS, f.shape[1:], **bounds)
        p = ccnn.maximize(np.ascontiguousarray(f.reshape(LABELS, -1)), c).p.reshape(f.shape)
        rgb = read_image(samples.data.image_file(name))
        labels = np.flatnonzero(c.allowed.reshape(LABELS, -1).any(axis=1))
        with whole_file(file) as part:
            mask(p, rgb, labels, size, preset).save(part, format="PNG")


def mask(p, rgb, labels, size, preset):
    """p on the score grid, L x h x w, as the labels of the photograph; only `labels` are in it."""
    small = shrink(rgb, size)
    scores = Scores(np.log(np.maximum(p[labels], TINY)).astype(np.float32), fit(*rgb.shape[:2], size), VGG16.stride,
                    VGG16.offset)
    q = dense_crf(small, sample(scores.values, *scores.cells(*small.shape[:2])), preset)
    found = Image.fromarray(labels[q.argmax(axis=0)].astype(np.uint8))
    return found.resize(rgb.shape[1::-1], Image.NEAREST)
