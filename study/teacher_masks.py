"""Masks of the training images, made by a trained system: what another net can be taught with.

A teacher is a run that is trained. Of a training image it knows what the system may know: its tags, and what else its
constraints take. Its p obeys them, and the CRF carries p to the edges of the photograph. So these masks are better
than those of new images, and they do not change while the next net learns from them.
"""
import numpy as np
from experiments import BACKBONE
from PIL import Image

from ccnn._util.files import whole_file
from ccnn.crf.dense import Preset, dense_crf
from ccnn.data.samples import FeatureSamples
from ccnn.images.grid import sample
from ccnn.images.labels import BACKGROUND, LABELS
from ccnn.images.reading import read_image, shrink
from ccnn.supervision.baselines import adaptive_bias
from ccnn.supervision.constraint_builder import ConstraintBuilder, solve
from ccnn.supervision.cue_rows import log_odds
from ccnn.supervision.kinds import CUE_BLOB, SUPERVISION, TAGS_BLOB

TINY = 1e-10            # stands for a probability of 0 before its logarithm is taken

WHOLE = 1, 0, 0         # of FeatureSamples.load: neither mirrored nor moved


def teach(system, changes, data, forward, preset: Preset, out):
    """Write out/NAME.png for every image that has none yet.

    changes : settings of the loss layer in place of the system's
    data    : settings of ccnn.data.samples.FeatureSamples: the images, and what is known of them
    forward : name -> scores, L x h x w
    """
    settings = {**system.settings, **system.frozen, **changes}
    names, latent = (adapted if system.loss == "EMAdaptLossLayer" else constrained)(settings)
    blobs = (*names, *[CUE_BLOB.name] * settings.pop("cue", False))
    samples = FeatureSamples({**data, "tops": list(blobs), "mirror": False})
    size, = samples.size
    out.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(samples.ids):
        file = out / f"{name}.png"
        if file.exists():
            continue
        known = samples.load(number, *WHOLE)
        S = known.get(CUE_BLOB.name)
        labels, scores = latent([known[blob] for blob in names], forward(name), S)
        rgb = read_image(samples.data.image_file(name))
        with whole_file(file) as part:
            mask(scores, rgb, labels, size, preset).save(part, format="PNG")


def constrained(settings):
    """CCNN: the blobs that it knows of an image; and a function from these, the scores f (L x h x w) and the map of a
    cue, or None, to the labels that may appear and their log p, L' x h x w."""
    kind = SUPERVISION[settings["supervision"]]
    builder = ConstraintBuilder(kind, {key: settings[key] for key in kind.bounds if key in settings})

    def latent(known, f, S):
        c = builder.build(known, LABELS, f.shape[1:], cue=S)
        p = solve(f, c).p.reshape(f.shape)
        labels = np.flatnonzero(c.allowed.reshape(LABELS, -1).any(axis=1))
        return labels, np.log(np.maximum(p[labels], TINY))
    return kind.names, latent


def adapted(settings):
    """EM-Adapt: the same, with the scores after its E-step's bias. Their best labels are those that it trains with."""
    def latent(known, f, S):
        labels = np.flatnonzero(TAGS_BLOB.read(known[0]))
        scores = f[labels]
        if S is not None:
            scores[labels != BACKGROUND] += log_odds(S[0])
        b = adaptive_bias(scores.reshape(labels.size, -1), **settings, background=labels[0] == BACKGROUND)
        return labels, scores + b[:, None, None]
    return (TAGS_BLOB.name,), latent


def mask(scores, rgb, labels, size, preset):
    """The scores of some labels on the score grid, L' x h x w, as the labels of the photograph."""
    small = shrink(rgb, size)
    grid = BACKBONE.scores(scores.astype(np.float32), rgb.shape, size)
    q = dense_crf(small, sample(grid.values, *grid.cells(*small.shape[:2])), preset, threads=1)
    found = Image.fromarray(labels[q.argmax(axis=0)].astype(np.uint8))
    return found.resize(rgb.shape[1::-1], Image.NEAREST)
