"""Predictions for a photograph: scores on cached features, masks, probabilities, and what the constraints did.

The classifier is linear on the features, so a snapshot of a running training predicts in milliseconds, without Caffe:

    f_i = W features_i + V mean(features) + biases

`own_mask` is the one owner of the mask of a photograph of the folder: the page shows it, and every export takes it. If
somebody has marked the photograph, its scores become log p, where p obeys the tags and the marks, and the marked pixels
are as they were drawn.
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
from ccnn._util.files import load_array
from ccnn.data.dataset import read_map
from ccnn.images.grid import Axis, Scores, label_map, mean_scores, sample
from ccnn.images.labels import BACKGROUND, VOID
from ccnn.images.overlays import DARK, GREY, LIGHT, colours
from ccnn.images.reading import fit, upright_shape
from ccnn.inference.cue_maps import weigh
from ccnn.inference.predict import cue_with_labels
from ccnn.nets.prototxt import SYSTEMS
from ccnn.project.feature_cache import maps_folder
from ccnn.project.learn import RECIPE, bounds_of
from ccnn.project.report import contradictions
from ccnn.solver.constraints import Constraints
from ccnn.studio.album import Album, NotThere, Photograph
from ccnn.supervision.baselines import log_softmax
from ccnn.supervision.constraint_builder import ConstraintBuilder, solve
from ccnn.supervision.kinds import SUPERVISION
from ccnn.supervision.marks import known_cells, spread_marks
from ccnn.supervision.tags_sizes_boxes import area_bounds, area_rows, with_area_bounds

SIDE = 320                  # long side of a mask of p

PREVIEW = 1280              # of the picture of a region


class Head(NamedTuple):
    """The trained classifier."""
    version: str
    classes: tuple              # that it was trained on, the background first
    W: np.ndarray               # L x channels, for each cell
    V: np.ndarray               # L x channels, for the mean of all cells
    bias: np.ndarray            # (L,)
    about: dict                 # for the page: iterations, photographs, date, final
    cue: Optional[dict] = None  # of a finished model: name, exponent, labels of surfaces

    def scores(self, features: dict, shape: tuple) -> Scores:
        """The mean over the sizes at which a photograph of `shape`, (height, width), was seen.

        features : {size: channels x h x w}
        """
        several = []
        for size, array in features.items():
            x = array.reshape(len(array), -1).astype(np.float32)
            f = self.W @ x + (self.V @ x.mean(axis=1) + self.bias)[:, None]
            several.append(RECIPE.backbone.scores(f.reshape(len(f), *array.shape[1:]), shape, size))
        return mean_scores(several)

    def cue_map(self, work: Path, id: str) -> Optional[np.ndarray]:
        """What stands out in a photograph, 0..1; None if the model has no cue, or there is no map."""
        try:
            return read_map(maps_folder(work, self.cue["name"]) / f"{id}.npy") if self.cue else None
        except ImageError:
            return None

    def final_scores(self, scores: Scores, work: Path, id: str, shape: tuple) -> Scores:
        """The scores as ccnn segment has them: weighed by the cue of the model."""
        S = self.cue_map(work, id)
        return scores if S is None or not self.cue else weigh(
            scores, S, shape, self.cue["exponent"], self.cue["surfaces"])


def read_head(weights: Path, version: str, classes: Sequence[str], about: dict,
              cue: Optional[dict] = None) -> Head:
    """The classifier in a .caffemodel."""
    from ccnn.nets.caffe_files import read_caffemodel
    arrays = read_caffemodel(weights)
    try:
        (W, bias), (V, more) = (arrays[name] for name in ("fc8_cell", "fc8_image"))
        W, V = (array.reshape(len(classes), RECIPE.backbone.channels) for array in (W, V))
    except (KeyError, ValueError):
        raise UserError(f"{weights.name}: is no classifier of {len(classes)} labels on the features of "
                        f"{RECIPE.backbone.name}") from None
    return Head(version, tuple(classes), W, V, (bias + more).ravel(), about, cue)


def read_model_head(path: Path) -> Head:
    """The classifier of photos/model.ccnn. For the pool, too."""
    from ccnn.inference.model_file import read_model, sizes_of
    model = read_model(path)
    if sizes_of(model.size) != RECIPE.sizes:
        raise UserError(f"{path.name}: sees photographs at {model.size} pixels, not at {RECIPE.sizes}; train again")
    if model.trunk and model.trunk["name"] != RECIPE.backbone.name:
        raise UserError(f"{path.name}: has the backbone {model.trunk['name']}, not {RECIPE.backbone.name}; train again")
    training, scores = model.about["training"], model.about["scores"]
    with model.files() as (_, weights):
        return read_head(weights[-1], model.fingerprint[:12], model.classes, {
            "final": True, "iterations": training.get("iterations", 0), "photographs": training.get("photographs", 0),
            "date": training.get("date", ""), "results": scores.get("held out")},
            cue_with_labels(model.about["settings"].get("cue"), model.classes))


def read_version(path: Path) -> str:
    """The version of a model, as its Head has it."""
    from ccnn.inference.model_file import read_model
    return read_model(path).fingerprint[:12]


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
            array = np.array(load_array(features_file(work, size, id)))
        except (OSError, ValueError):
            continue
        if array.ndim == 3 and len(array) == RECIPE.backbone.channels:
            found[size] = array
    if not found:
        raise NotThere("its features are not computed yet")
    return found


# Constraints

NO_GUESS = {"bg_lower": 0, "bg_upper": 1, "small_upper": 1}


def known_of(album: Album, photograph: Photograph) -> Optional["Known"]:
    """What is known of a photograph; None if nobody has decided on its tags."""
    if photograph.tags is None:
        return None
    return Known(photograph.id, photograph.tags, photograph.large, album.sizes, album.rules, album.classes)


class Known(NamedTuple):
    """What is known of a photograph."""
    id: str
    tags: tuple                     # names
    large: tuple
    sizes: bool                     # some photograph of the folder has a large tag, so that every one is bounded so
    rules: Any                      # ccnn.supervision.rules.Rules or None
    classes: tuple                  # the present ones

    def marks(self, size: tuple) -> Optional[np.ndarray]:
        """H x W present labels, VOID where unknown; None if nobody marked this photograph, or one of another size."""
        scribbles = self.rules.scribbles if self.rules else None
        found = scribbles.read(self.id) if scribbles else None
        return found if found is not None and found.shape == tuple(size) else None

    def cells(self, scores: Scores, size: tuple) -> Optional[np.ndarray]:
        """The marks on the grid of scores of a photograph of `size`, (height, width)."""
        marks = self.marks(size)
        if marks is None:
            return None
        return known_cells(np.where(marks < len(self.classes), marks, VOID), *(
            Axis.of_features(side, length, RECIPE.backbone, 0, 0, cells, False).cells
            for side, length, cells in zip(size, scores.shape, scores.values.shape[1:])))

    def of(self, head: Head) -> Optional["Known"]:
        """What is known of the classes of a model, if the present ones begin with them: others were added since."""
        if self.classes[:len(head.classes)] != head.classes:
            return None
        return self._replace(classes=head.classes, rules=self.rules and self.rules.of_first(len(head.classes)))


def constraints_of(known: Known, scores: Scores, size: tuple, head: Head, work: Path,
                   guesses: bool = True) -> Constraints:
    """The constraints on the grid of the scores of a photograph with `size`, (height, width), as the loss layer has
    them. known : of the head's classes

    guesses : if not, without what a training guesses of a photograph beyond its tags: the cue, and how much is
              background, or a small object
    """
    S = head.cue_map(work, known.id) if guesses else None
    if S is not None:
        S = sample(S.astype(np.float32)[None], *((scores.offset + scores.stride * np.arange(cells) + 0.5) *
                                                 (length / side) - 0.5 for cells, side, length in
                                                 zip(scores.values.shape[1:], scores.shape, S.shape)))[0]
    system, grid = "size" if known.sizes else "tags", scores.values.shape[1:]
    present, large = (np.isin(known.classes, names) for names in (known.tags, known.large))
    kind = SUPERVISION[SYSTEMS[system].settings["supervision"]]
    bounds = bounds_of(RECIPE, system)
    if not guesses:
        bounds.update({name: value for name, value in NO_GUESS.items() if name in bounds})
    return ConstraintBuilder(kind, bounds, known.rules, surfaces=head.cue["surfaces"] if head.cue else ()).build(
        [present, large] if known.sizes else [present], len(known.classes), grid, known.cells(scores, size), cue=S)


def explain(head: Head, scores: Scores, size: tuple, known: Known, bounds: dict, work: Path) -> dict:
    """What the constraints asked and what they got; bounds : see with_area_bounds."""
    c, f = constraints_of(known, scores, size, head, work), scores.values
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
    for label, pair in area_bounds(c).items():
        areas[label].update(zip(("least", "most"), (None if bound is None else rounded(bound) for bound in pair)))
    for j, label, _, _ in area_rows(c):
        area = areas[label]
        area["lam"] = max(area["lam"], rounded(s.lam[j]))
        if np.isfinite(c.beta[j]):
            area["price"] = float(c.beta[j])
    labels = label_map(np.log(np.maximum(s.p, 1e-9)).reshape(f.shape), *scores.cells(*fit(*size, SIDE)))
    png = mask_png(labels, shades(head.classes, known.classes))
    present = np.isin(known.classes, known.tags)
    return {"version": head.version, "status": s.status, "loss": s.loss, "iterations": s.iterations,
            "milliseconds": round(1000 * seconds, 2), "areas": areas,
            "rules": [{"text": rule.text} for rule in known.rules.holding(present)] if known.rules else [],
            "mask": data_url(png)}


def doubt(f: np.ndarray, c: Constraints) -> float:
    """The loss of a photograph: how far the model is from what its tags ask for."""
    return float(solve(f, c, diff=np.empty_like(f)).loss)


def rounded(value: float) -> float:
    return round(float(value), 4)


# Predictions for many photographs, for the pool

DISPUTED = 1000.0           # is added to the doubt of a photograph whose tags the model disputes: it comes first


class PredictionRequest(NamedTuple):
    number: int
    id: str
    file: Path
    known: Optional[Known]          # None: nobody has decided


def predict_all(head: Head, work: Path, requests: Sequence[PredictionRequest],
                previous: Optional[Head] = None) -> list:
    """[{number, areas, doubt, disputes, rank, changed}] of the photographs whose features are there."""
    predictions = []
    for number, id, file, known in requests:
        try:
            size = upright_shape(str(file))
            features = read_features(work, id)
            scores = head.scores(features, size)
        except (NotThere, ImageError):
            continue
        f = head.final_scores(scores, work, id, size).values
        labels = f.argmax(axis=0)
        areas = np.bincount(labels.ravel(), minlength=len(f)) / f[0].size
        found: dict = {"number": number, "areas": [rounded(area) for area in areas], "doubt": None, "disputes": [],
                       "rank": -1.0, "changed": None}
        if known and (now := known.of(head)):
            found["doubt"] = rounded(doubt(scores.values, constraints_of(now, scores, size, head, work)))
        if known:
            tags = tuple(label for label, name in enumerate(head.classes) if name in known.tags)
            found["disputes"] = [[label, found["areas"][label], int(area is None)]
                                 for label, area in contradictions(areas, tags)]
            found["rank"] = rounded((found["doubt"] or 0) + (DISPUTED if found["disputes"] else 0))
        if previous:
            before = previous.final_scores(previous.scores(features, size), work, id, size).values.argmax(axis=0)
            found["changed"] = rounded((same_labels(previous, head)[before] != labels).mean()) \
                if before.shape == labels.shape else None
        predictions.append(found)
    return predictions


def same_labels(head: Head, other: Head) -> np.ndarray:
    """(labels of head,) the labels of the same names in another model, VOID where it has none."""
    return np.array([other.classes.index(name) if name in other.classes else VOID for name in head.classes], np.uint8)


# Masks

LEAST = 1e-6                # of p: below, labels are equally impossible


class OwnMask(NamedTuple):
    """The mask of a photograph of the folder."""
    labels: np.ndarray              # h x w uint8
    classes: tuple                  # their names: those of the model, then those that were added since


def own_scores(head: Head, scores: Scores, size: tuple, id: str, known: Optional[Known], work: Path) -> Scores:
    """The scores of a photograph of the folder as its mask follows them. scores : the head's, on its features

    Those of ccnn segment, unless it is marked: then what looks like a mark near by follows it (spread_marks),
    and p obeys marks and tags. The cue weighs the scores before that, as it does after it, where they are finer.
    """
    final = head.final_scores(scores, work, id, size)
    now = known.of(head) if known else None
    cells = now.cells(scores, size) if now else None
    if not now or cells is None:
        return final
    x = next(array for array in read_features(work, id).values() if array.shape[1:] == cells.shape)
    weighed = sample(final.values, *final.cells_of(scores))
    f = spread_marks(weighed, x, cells)
    p = solve(f, constraints_of(now, scores, size, head, work, guesses=False)).p.reshape(f.shape)
    lead = log_softmax(f)                       # a marked cell leads, but not by so much that it takes its neighbours
    values = np.where(cells == VOID, np.log(np.maximum(p, LEAST)), lead) - (weighed - scores.values)
    return head.final_scores(scores._replace(values=values.astype(np.float32)), work, id, size)


def own_mask(head: Head, scores: Scores, size: tuple, id: str, known: Optional[Known], work: Path,
             side: int = 0) -> OwnMask:
    """The mask with its long side reduced to `side`; 0: as large as the photograph. Marked pixels are as drawn."""
    labels = mask_of(own_scores(head, scores, size, id, known, work), size, side)
    marks = known.marks(size) if known else None
    if known is None or marks is None:
        return OwnMask(labels, all_classes(head, known.classes) if known else head.classes)
    classes = all_classes(head, known.classes)
    table = np.full(256, VOID, np.uint8)
    table[:len(known.classes)] = [classes.index(name) for name in known.classes]
    marks = table[np.asarray(Image.fromarray(marks).resize(labels.shape[::-1], Image.Resampling.NEAREST))]
    return OwnMask(np.where(marks != VOID, marks, labels), classes)


def all_classes(head: Head, present: tuple) -> tuple:
    """The names of the labels of masks: the model's, then those that were added since."""
    return (*head.classes, *(name for name in present if name not in head.classes))


def full_mask(head: Head, work: Path, id: str, file: Path, known: Optional[Known]) -> OwnMask:
    """The mask as every export has it. For the pool, too."""
    size = upright_shape(str(file))
    return own_mask(head, head.scores(read_features(work, id), size), size, id, known, work)


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


def region_png(region: np.ndarray, label: int) -> bytes:
    """A region in the colour of a label, or in grey, for the page to lay over the photograph."""
    height, width = fit(*region.shape, PREVIEW)
    picture = Image.fromarray(region.astype(np.uint8)).resize((width, height), Image.Resampling.NEAREST)
    picture.putpalette([*GREY, *(GREY if label in (BACKGROUND, VOID) else map(int, colours()[label]))])
    return png(picture, transparency=bytes([0, 255]))


def data_url(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def png(picture: Image.Image, **options) -> bytes:
    data = io.BytesIO()
    picture.save(data, "PNG", compress_level=1, **options)
    return data.getvalue()
