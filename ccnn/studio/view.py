"""What a model says of a photograph: scores on cached features, masks, probabilities, and what the constraints did.

The classifier is linear on the features, so a snapshot of a running training answers in milliseconds, without Caffe:

    f_i = W features_i + V mean(features) + biases
"""
import base64
import io
import os
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np
from PIL import Image
from scipy.special import softmax

from ccnn._util.errors import ImageError, UserError
from ccnn.images.grid import Axis, Scores, label_map, mean_scores, sample
from ccnn.images.labels import BACKGROUND, VOID
from ccnn.images.overlays import DARK, GREY, LIGHT, colours
from ccnn.images.reading import fit, upright_shape
from ccnn.nets.backbones import VGG16
from ccnn.nets.prototxt import SYSTEMS
from ccnn.project.learn import RECIPE, bounds_of
from ccnn.solver.constraints import Constraints
from ccnn.studio.album import NotThere
from ccnn.supervision.constraints import area_rows, with_area_bounds
from ccnn.supervision.kinds import SUPERVISION
from ccnn.supervision.known import ConstraintBuilder, solve
from ccnn.supervision.marks import known_cells

SIDE = 320                  # long side of a mask of p


class Head(NamedTuple):
    """The trained classifier."""
    version: str
    classes: tuple              # that it was trained on, the background first
    W: np.ndarray               # L x channels, for each cell
    V: np.ndarray               # L x channels, for the mean of all cells
    bias: np.ndarray            # (L,)
    about: dict                 # for the page: iterations, photographs, date, final

    def scores(self, features: dict, shape: tuple) -> Scores:
        """The mean over the sizes at which a photograph of `shape`, (height, width), was seen.

        features : {size: channels x h x w}
        """
        several = []
        for size, array in features.items():
            x = array.reshape(len(array), -1).astype(np.float32)
            f = self.W @ x + (self.V @ x.mean(axis=1) + self.bias)[:, None]
            several.append(Scores(f.reshape(len(f), *array.shape[1:]), fit(*shape, size), VGG16.stride, VGG16.offset))
        return mean_scores(several)


def read_head(weights: Path, version: str, classes: Sequence[str], about: dict) -> Head:
    """The classifier in a .caffemodel."""
    from ccnn.nets.caffe_files import read_caffemodel
    arrays = read_caffemodel(weights)
    try:
        (W, bias), (V, more) = (arrays[name] for name in ("fc8_cell", "fc8_image"))
        W, V = (array.reshape(len(classes), VGG16.channels) for array in (W, V))
    except (KeyError, ValueError):
        raise UserError(f"{weights.name}: is no classifier of {len(classes)} labels on VGG-16's features") from None
    return Head(version, tuple(classes), W, V, (bias + more).ravel(), about)


def read_model_head(path: Path) -> Head:
    """The classifier of photos/model.ccnn. For the pool, too."""
    from ccnn.inference.model_file import read_model, sizes_of
    model = read_model(path)
    if sizes_of(model.size) != RECIPE.sizes:
        raise UserError(f"{path.name}: sees photographs at {model.size} pixels, not at {RECIPE.sizes}; train again")
    training = model.about["training"]
    with model.files() as (_, weights):
        return read_head(weights[-1], model.fingerprint[:12], model.classes, {
            "final": True, "iterations": training.get("iterations", 0), "photographs": training.get("photographs", 0),
            "date": training.get("date", "")})


def features_file(work: Path, size: int, id: str) -> Path:
    return work / "features" / str(size) / f"{id}.npy"


def features_stamp(work: Path, id: str) -> tuple:
    """What changes when the features of a photograph do."""
    files = [features_file(work, size, id) for size in RECIPE.sizes]
    return tuple(file.stat().st_mtime_ns if file.exists() else None for file in files)


def computed(work: Path) -> set:
    """The ids of the photographs that have features of every size."""
    found = []
    for size in RECIPE.sizes:
        place = str(work / "features" / str(size))
        found.append({os.path.relpath(os.path.join(folder, name), place)[:-4] if folder != place else name[:-4]
                      for folder, _, names in os.walk(place) for name in names if name.endswith(".npy")})
    return set.intersection(*found)


def read_features(work: Path, id: str) -> dict:
    """{size: channels x h x w} of those that are computed; NotThere if none is."""
    found = {}
    for size in RECIPE.sizes:
        try:
            array = np.load(features_file(work, size, id))
        except (OSError, ValueError, EOFError):
            continue
        if array.ndim == 3 and len(array) == VGG16.channels:
            found[size] = array
    if not found:
        raise NotThere("its features are not computed yet")
    return found


# Constraints

class Known(NamedTuple):
    """What is known of a photograph."""
    id: str
    tags: tuple                     # names
    large: tuple
    sizes: bool                     # some photograph of the folder has a large tag, so that every one is bounded so
    rules: Any                      # ccnn.supervision.rules.Rules or None
    classes: tuple                  # the present ones


def constraints_of(known: Known, scores: Scores, size: tuple) -> Constraints:
    """The constraints on the grid of the scores of a photograph with `size`, (height, width), as the loss layer has
    them."""
    system, grid = "size" if known.sizes else "tags", scores.values.shape[1:]
    present, large = (np.isin(known.classes, names) for names in (known.tags, known.large))
    kind = SUPERVISION[SYSTEMS[system].settings["supervision"]]
    scribble = known.rules.scribbles.read(known.id) if known.rules and known.rules.scribbles else None
    if scribble is not None:
        scribble = known_cells(scribble, *(Axis.of_features(side, length, VGG16, 0, 0, cells, False).cells
                                           for side, length, cells in zip(size, scores.shape, grid)))
    return ConstraintBuilder(kind, bounds_of(RECIPE, system), known.rules).build(
        [present, large] if known.sizes else [present], len(known.classes), grid, scribble)


def explain(head: Head, scores: Scores, size: tuple, known: Known, bounds: dict) -> dict:
    """What the constraints asked and what they got; bounds : see with_area_bounds."""
    c, f = constraints_of(known, scores, size), scores.values
    if bounds:
        c = with_area_bounds(c, bounds)
    flat = f.reshape(len(f), -1)
    q = softmax(flat.astype(float), axis=0)
    begin = time.perf_counter()
    s = solve(f, c, diff=np.empty_like(f))
    seconds = time.perf_counter() - begin
    allowed = np.ones(len(f), bool) if c.allowed is None else c.allowed.reshape(len(f), -1).any(axis=1)
    areas = []
    found = np.bincount(f.argmax(axis=0).ravel(), minlength=len(f)) / flat.shape[1]
    for label, name in enumerate(head.classes):
        areas.append({"label": label, "name": name, "allowed": bool(allowed[label]), "mask": rounded(found[label]),
                      "q": rounded(q[label].mean()), "p": rounded(s.p[label].mean()), "least": None, "most": None,
                      "price": None, "lam": 0.0})
    for j, label, lower, bound in area_rows(c):
        area = areas[label]
        area["least" if lower else "most"] = rounded(bound)
        area["lam"] = max(area["lam"], rounded(s.lam[j]))
        if np.isfinite(c.beta[j]):
            area["price"] = float(c.beta[j])
    labels = label_map(np.log(np.maximum(s.p, 1e-9)).reshape(f.shape), *scores.cells(*fit(*size, SIDE)))
    png = mask_png(labels, shades(head.classes, known.classes))
    present = np.isin(known.classes, known.tags)
    return {"version": head.version, "status": s.status, "loss": s.loss, "iterations": s.iterations,
            "milliseconds": round(1000 * seconds, 2), "areas": areas,
            "rules": [{"text": rule.text} for rule in known.rules.holding(present)] if known.rules else [],
            "mask": "data:image/png;base64," + base64.b64encode(png).decode()}


def doubt(f: np.ndarray, c: Constraints) -> float:
    """The loss of a photograph: how far the model is from what its tags ask for."""
    return float(solve(f, c, diff=np.empty_like(f)).loss)


def rounded(value: float) -> float:
    return round(float(value), 4)


# Answers about many photographs, for the pool

class Question(NamedTuple):
    number: int
    id: str
    file: Path
    known: Optional[Known]          # None: nobody has decided


def answer_all(head: Head, work: Path, questions: Sequence[Question]) -> list:
    """[{number, areas, doubt}] of the photographs whose features are there."""
    answers = []
    for number, id, file, known in questions:
        try:
            size = upright_shape(str(file))
            scores = head.scores(read_features(work, id), size)
        except (NotThere, ImageError):
            continue
        f = scores.values
        areas = np.bincount(f.argmax(axis=0).ravel(), minlength=len(f)) / f[0].size
        found = {"number": number, "areas": [rounded(area) for area in areas], "doubt": None}
        if known and known.classes == head.classes:
            found["doubt"] = rounded(doubt(f, constraints_of(known, scores, size)))
        answers.append(found)
    return answers


# Pictures

def mask_of(scores: Scores, size: tuple, side: int = 0) -> np.ndarray:
    """The labels of a photograph of `size`, (height, width), with its long side reduced to `side`; 0: as it is."""
    return label_map(scores.values, *scores.cells(*fit(*size, side)))


@lru_cache(maxsize=8)
def shades(labels: tuple, classes: tuple) -> np.ndarray:
    """256 x 3, the colours of the labels of a model: those of the present classes of the same names."""
    table, known = np.tile(np.array(GREY, np.uint8), (256, 1)), colours()
    for label, name in enumerate(labels):
        if name in classes:
            table[label] = known[classes.index(name)]
    return table


def mask_png(labels: np.ndarray, table: np.ndarray, style: str = "fill") -> bytes:
    """Labels in their colours, the background transparent; or only a double line around regions."""
    if style == "outline":
        labels, table = outlines(labels), np.array([GREY, DARK, LIGHT] + [GREY] * 253, np.uint8)
    picture = Image.fromarray(labels)
    picture.putpalette(table.astype(np.uint8).tobytes())
    alpha = bytearray([255] * 256)
    alpha[BACKGROUND] = alpha[VOID] = 0
    return png(picture, transparency=bytes(alpha))


def outlines(labels: np.ndarray) -> np.ndarray:
    """1 on the last pixels inside a region, 2 on the first outside of all regions, 0 elsewhere."""
    edge = np.zeros(labels.shape, bool)
    for a, b in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        edge[a] |= labels[a] != labels[b]
        edge[b] |= labels[a] != labels[b]
    return np.where(edge, np.where(labels == BACKGROUND, 2, 1), 0).astype(np.uint8)


def probability_png(scores: Scores, size: tuple, label: int, side: int, colour: np.ndarray) -> bytes:
    """The colour of a label, as opaque as the label is likely."""
    values = sample(scores.values, *scores.cells(*fit(*size, side)))
    alpha = (softmax(values, axis=0)[label] * 255).round().astype(np.uint8)
    return png(Image.fromarray(np.dstack([np.broadcast_to(colour, (*alpha.shape, 3)), alpha]).astype(np.uint8)))


def scribble_png(mask: np.ndarray, size: tuple, side: int) -> bytes:
    """A scribble in the colours of the classes; the background's is grey, the unknown transparent."""
    height, width = fit(*size, side)
    picture = Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST)
    picture.putpalette(colours().tobytes())
    return png(picture, transparency=bytes([255] * VOID + [0]))


def png(picture: Image.Image, **options) -> bytes:
    data = io.BytesIO()
    picture.save(data, "PNG", compress_level=1, **options)
    return data.getvalue()
