"""Maps of a cue: what stands out in a photograph, and what that changes in its scores.

    cue = load_cue("u2netp")                    # ccnn.nets.cues; downloaded once
    S = cue(rgb)                                # rows x columns, 0..1
    scores = weigh(scores, S, rgb.shape[:2], exponent, surfaces)

With S the map at a pixel, a the exponent, and B the labels that are objects:

    log q(l) + a log S            for l in B
    log q(l) + a log(1 - S)       for the background and for surfaces

So the map decides between objects and all else, the net between the objects. S is kept within EDGE .. 1 - EDGE: where
the map is sure, it is worth a log(1 / EDGE) at most.
"""
import functools
from collections.abc import Sequence
from typing import Callable

import numpy as np
from PIL import Image

from ccnn._util.errors import Unable, UserError
from ccnn.images.grid import Scores, positions, sample
from ccnn.images.labels import BACKGROUND
from ccnn.images.reading import fit
from ccnn.inference.engines import start_onnxruntime
from ccnn.nets.cues import CUES, Cue
from ccnn.supervision.cue_rows import log_odds

FINE = 500              # long side in pixels at which map and scores are combined

CueMap = Callable[[np.ndarray], np.ndarray]         # H x W x 3 uint8 RGB -> h x w float32, 0..1


@functools.lru_cache(maxsize=2)
def load_cue(name: str) -> CueMap:
    """What computes the maps of a cue, on one thread."""
    cue = CUES[name]
    path = cue.fetch_net()

    def read():
        import onnx
        return resized(onnx.load(str(path)), cue.size)
    try:
        run = start_onnxruntime(read, path)
    except Unable as e:
        raise Unable(f"the cue {name}: {e}, or use --cue none") from None
    except UserError as e:
        raise UserError(f"{e}; remove it") from None

    def compute(rgb: np.ndarray) -> np.ndarray:
        found = run(to_input(rgb, cue))[0, 0]
        return np.clip(np.nan_to_num(found), 0, 1)
    return compute


def resized(net, size: int):
    """The net for images of size x size pixels, with its first output, the map, alone. Its shapes are computed from
    the image's, so any size will do."""
    for dim in net.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = size
    del net.graph.output[1:], net.graph.value_info[:]
    net.graph.output[0].type.tensor_type.ClearField("shape")
    return net


def to_input(rgb: np.ndarray, cue: Cue) -> np.ndarray:
    """1 x 3 x size x size float32"""
    small = np.asarray(Image.fromarray(rgb).resize((cue.size, cue.size), Image.Resampling.BILINEAR), np.float32)
    small = (small / max(float(small.max()), 1.0) - np.array(cue.mean, np.float32)) / np.array(cue.std, np.float32)
    return np.ascontiguousarray(small.transpose(2, 0, 1)[None], np.float32)


def weigh(scores: Scores, S: np.ndarray, shape: tuple, exponent: float, surfaces: Sequence[int] = ()) -> Scores:
    """The scores of a photograph of `shape`, (height, width), weighed by the map S: on a grid of pixels, with the long
    side reduced to FINE."""
    fine = fit(shape[0], shape[1], FINE)
    f = sample(scores.values, *scores.cells(*fine))
    if f is scores.values:              # where they are as fine already; they stay as they are
        f = f.copy()
    S = sample(np.asarray(S, np.float32)[None], *(positions(*sides) for sides in zip(fine, S.shape)))[0]
    apart = np.float32(exponent) * log_odds(S)
    for label in range(len(f)):
        if label != BACKGROUND and label not in surfaces:
            f[label] += apart
    return Scores(f, fine, 1, 0)
