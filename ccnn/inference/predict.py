"""From a photograph to its mask.

    files = find_model()                            # the model in models/; a file NAME.ccnn; or a net and weights
    model = load_model(files)                       # engine="auto": the fastest that is installed
    mask = segment(read_image("street.jpg"), model, SegmentOptions(every_label(files)))     # H x W label ids

The net sees the photograph with its long side reduced to the model's size, the CRF to 500 pixels, and the labels
are enlarged to the photograph strip by strip.
"""
import contextlib
import functools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Union

import numpy as np
from scipy.special import softmax

from ccnn._util.errors import Unable, UserError
from ccnn._util.files import digest, whole_file
from ccnn._util.foreign_files import load_json, read_bytes
from ccnn._util.paths import ROOT
from ccnn._util.settings import sizes_of
from ccnn._util.workers import Jobs, in_processes
from ccnn.crf.dense import LONG_SIDE, Preset, sharpen
from ccnn.images.grid import Scores, label_map, mean_scores, mirrored, positions, sample
from ccnn.images.labels import VOC_CLASSES, read_classes
from ccnn.images.masks import Lost, checksum, save_mask
from ccnn.images.overlays import overlay
from ccnn.images.reading import read_image, shrink
from ccnn.inference.caffe_net import check_labels, score_grid
from ccnn.inference.cue_maps import load_cue, weigh
from ccnn.inference.engines import TRIAL, Forward, load_forward
from ccnn.inference.model_file import read_model
from ccnn.inference.probabilities import save_probabilities
from ccnn.nets.backbones import BACKBONES, backbone_of
from ccnn.nets.caffe_files import read_net, stored_layers
from ccnn.nets.cues import CUES
from ccnn.nets.weights import why_unfit
from ccnn.supervision.baselines import image_level_prior

MODEL = ROOT / "models/head_size.ccnn"

NET = ROOT / "prototxt/head_deploy.prototxt"        # of the models in models/

log = logging.getLogger(__name__)

Outcome = Union[str, list[Lost]]         # on a photograph


class ModelSource(NamedTuple):
    """What a model is made of. It can be sent to another process."""
    classes: tuple[str, ...]        # names of the labels, the background first
    size: Union[int, list]          # long side of the photographs that the net sees; a list: each at all of these
    identity: dict                  # what makes it this model, as JSON holds it
    opened: Callable                # a context manager: (deploy prototxt, [weights], the backbone's first)
    crf: str                        # the CRF's preset that suits it
    settings: dict                  # what it was trained with: supervision, bounds
    cue: Optional[dict] = None      # the cue that weighs its scores: name, exponent, surfaces; None: none does
    without_cue: bool = False       # it has one, which is not used


def find_model(model: Optional[Path] = None, net: Optional[Path] = None, weights: Optional[Path] = None,
               classes: Optional[str] = None, size: Union[int, list, None] = None, cue: bool = True) -> ModelSource:
    """A model: NAME.ccnn, or a net and its weights as `caffe train` has them; without any, the one in models/.

    weights : all of the net's, or those of a head alone; the backbone's are then downloaded if not there yet
    classes : with net and weights, a file of class names; by default those that WEIGHTS.json or NET.json says, else
              VOC's
    size    : long side that the net sees, or several; by default what the model or these files say, else 500
    cue     : use the model's cue, if it has one and its net is there or can be downloaded
    """
    if net or weights:
        if model or not net or not weights:
            raise UserError(f"{f'--net {net}' if net else f'--weights {weights}'}: a model is --net and --weights "
                            "together, or --model alone; name " + ("one model" if model else "both"))
        return caffe_model(net, weights, classes, size)
    if classes:
        raise UserError(f"--classes {classes}: {model or MODEL} knows the names of its classes; leave it out")
    found = read_model(model or MODEL)
    if found.trunk:
        BACKBONES[found.trunk["name"]].fetch_weights()      # here, because worker processes show no progress
    own = found.about["settings"].get("cue")
    use = bool(own and cue and cue_is_there(own["name"], found.path))
    return ModelSource(found.classes, size or found.size, {"model": found.fingerprint}, found.files,
                       found.about["settings"].get("crf") or "heads", found.about["settings"],
                       own if use else None, bool(own) and not use)


def cue_is_there(name: str, path: Path) -> bool:
    """Whether the net of a cue is there, or could be downloaded; if not, a warning says why."""
    try:
        CUES[name].fetch_net()
    except (UserError, OSError) as e:
        log.warning("%s: its cue is left out: %s", path, e)
        return False
    return True


def caffe_model(net: Path, weights: Path, classes: Optional[str],
                size: Union[int, list, None]) -> ModelSource:
    about, files = read_about(net, weights), find_weights(net, weights)
    names = read_classes(classes) if classes else tuple(about.get("classes", VOC_CLASSES))

    def name_and_digest(path):
        return f"{path.name} sha256 {digest(path)[:16]}"
    return ModelSource(names, size or about.get("size", LONG_SIDE),
                      {"net": name_and_digest(net), "weights": [name_and_digest(path) for path in files]},
                      functools.partial(contextlib.nullcontext, (net, files)), "heads", about)


def find_weights(net: Path, weights: Path) -> list[Path]:
    """The files to load, in order: before a head's, those of the backbone that the net needs and the file lacks."""
    backbone = backbone_of([layer.name for layer in read_net(net).layer])
    if not backbone or set(backbone.layers).intersection(stored_layers(weights)):
        return [weights]
    return [backbone.fetch_weights(), weights]


def read_about(net: Path, weights: Path) -> dict[str, Any]:
    """What WEIGHTS.json, or else NET.json, says of the model: its `size`, and its `classes` where not VOC's."""
    path = next((path for path in (weights.with_suffix(".json"), net.with_suffix(".json")) if path.exists()), None)
    if not path:
        return {}
    try:
        about = load_json(read_bytes(path))
        sizes_of(about.get("size", LONG_SIDE))
        classes = about.get("classes", VOC_CLASSES)
        if not all(isinstance(name, str) for name in classes) or not 2 <= len(classes) < 255:
            raise ValueError("classes must be 2 to 254 names, the background first")
    except (ValueError, TypeError, AttributeError) as e:
        raise UserError(f"{path}: does not describe a model: {e}") from None
    return about


class LoadedModel(NamedTuple):
    """A loaded net."""
    forward: Forward                # a photograph as the net sees it -> its scores, L x h x w
    grid: tuple[int, float]         # stride and offset of its scores, in pixels
    size: Union[int, list]
    cue: Optional[dict] = None      # see ModelSource; its surfaces are labels here

    def reduce(self, rgb: np.ndarray) -> np.ndarray:
        """The photograph as the net sees it; the largest, if at several sizes."""
        return shrink(rgb, max(sizes_of(self.size)))

    def scores(self, rgb: np.ndarray, name: object = "the photograph", mirror: bool = False) -> Scores:
        """The scores of a photograph of any size, the mean over the sizes that the net sees, and over the photograph
        and, optionally, its mirror image; name: what an error calls it."""
        images = {image.shape: image for image in (shrink(rgb, size) for size in sizes_of(self.size))}
        found = [self.scores_at(image, name) for image in images.values()]
        if mirror:
            found += [mirrored(self.scores_at(np.ascontiguousarray(image[:, ::-1]), name)) for image in images.values()]
        scores = mean_scores(found)
        if not self.cue:
            return scores
        S = load_cue(self.cue["name"])(rgb)
        return weigh(scores, S, rgb.shape[:2], self.cue["exponent"], self.cue["surfaces"])

    def scores_at(self, image: np.ndarray, name: object) -> Scores:
        values = self.forward(image)
        if not np.isfinite(values).all():
            raise UserError(f"{name}: the net's scores are not finite; do weights and net belong together?")
        return Scores(values, image.shape[:2], *self.grid)


def load_model(files: ModelSource, engine: str = "auto", gpu: Optional[int] = None) -> LoadedModel:
    """The model, ready to run; engine and gpu: see ccnn.inference.engines.load_forward."""
    with files.opened() as (prototxt, weights):
        try:
            forward = load_forward(prototxt, weights, "fc8", engine, gpu)
        except Unable:
            raise
        except UserError as e:
            raise UserError(why_unfit(prototxt, weights) or e) from None
        check_labels(len(forward(np.zeros((*TRIAL, 3), np.uint8))), prototxt, files.classes)
        return LoadedModel(forward, score_grid(prototxt), files.size, cue_with_labels(files.cue, files.classes))


def cue_with_labels(cue: Optional[dict], classes: Sequence[str]) -> Optional[dict]:
    """The cue of a model, with labels in place of the names of its surfaces."""
    return cue and {**cue, "surfaces": [classes.index(name) for name in cue["surfaces"]]}


class SegmentOptions(NamedTuple):
    """How scores become a mask."""
    labels: list[int]                   # those that may appear
    preset: Optional[Preset] = None     # of the CRF; None: no CRF
    prior: bool = False                 # weigh each label by the net's own belief that it is in the photograph
    mirror: bool = False                # the net sees the photograph's mirror image, too
    crf_engine: str = "ccnn"            # what computes the CRF: see ccnn.crf.ENGINES


def every_label(files: ModelSource) -> list[int]:
    return list(range(len(files.classes)))


def segment(rgb: np.ndarray, model: LoadedModel, options: SegmentOptions) -> np.ndarray:
    """The mask of a photograph, H x W uint8."""
    return mask_and_probabilities(rgb, model.scores(rgb, mirror=options.mirror), options)[0]


def mask_and_probabilities(rgb: np.ndarray, scores: Scores, options: SegmentOptions
                           ) -> tuple[np.ndarray, Optional[np.ndarray], dict[int, bool]]:
    """The mask; if there is a CRF, its marginals of options.labels, l x h x w; and {label: kept} that it lost."""
    f = allowed_scores(scores, options)
    if not options.preset:
        return labels_of(options, label_map(f, *scores.cells(*rgb.shape[:2]))), None, {}
    small = shrink(rgb, LONG_SIDE)
    q, lost = sharpen(small, sample(f, *scores.cells(*small.shape[:2])), options.preset,
                      engine=options.crf_engine)
    rows, columns = (positions(*sides) for sides in zip(rgb.shape[:2], small.shape[:2]))
    return labels_of(options, label_map(q, rows, columns)), q, {options.labels[k]: kept for k, kept in lost.items()}


def allowed_scores(scores: Scores, options: SegmentOptions) -> np.ndarray:
    values = image_level_prior(scores.values) if options.prior else scores.values
    return values[options.labels]


def labels_of(options: SegmentOptions, found: np.ndarray) -> np.ndarray:
    return np.array(options.labels, np.uint8)[found]


def segment_files(work: Sequence[tuple[Path, ...]], files: ModelSource, options: SegmentOptions, jobs: Jobs = 1,
                  engine: str = "auto", gpu: Optional[int] = None) -> Iterator[Outcome]:
    """Make (mask, *others) of every (photograph, mask, *others), on `jobs` cores or on a cluster: the outcomes of
    FileSegmenter, in any order.

    Each process has a net of its own and one thread.
    """
    if not work:
        return
    if isinstance(jobs, int):
        jobs = min(jobs, len(work))
    yield from in_processes(FileSegmenter(files, options, engine=engine, gpu=gpu), work, jobs, failed=no_mask)


def no_mask(why: str, source: Path, *outputs: Path) -> str:
    """The outcome for a photograph that ends its worker."""
    return f"{source}: {why}"


class FileSegmenter:
    """Makes the files of one photograph after the other: segmenter(photograph, mask, *others).

    Of the others, .jpg is an overlay and .npz holds the probabilities. The outcome is the objects that the CRF lost,
    mostly [], or one line on why this photograph has no mask. A UserError is about the model: none will have one.

    It can be sent to other processes. The net is not sent: each process loads it when it needs it first.
    engine : engine and gpu of load_model
    """

    def __init__(self, files: ModelSource, options: SegmentOptions, **engine: Any) -> None:
        self.files, self.options, self.engine = files, options, engine
        self.settings = mask_settings_of(files, options)

    def __getstate__(self) -> dict:
        return {key: value for key, value in vars(self).items() if key != "model"}

    @functools.cached_property
    def model(self) -> LoadedModel:
        return load_model(self.files, **self.engine)

    def __call__(self, source: Path, *outputs: Path) -> Outcome:
        model = self.model
        made_of = checksum(source)          # first: if it is replaced meanwhile, the next run makes the mask again
        try:
            rgb = read_image(source)
            scores = model.scores(rgb, source, self.options.mirror)
        except UserError as e:
            return str(e) if str(source) in str(e) else f"{source}: {e}"
        return write_outputs(rgb, scores, self.options, self.files.classes, self.settings, outputs, made_of)


def mask_settings_of(files: ModelSource, options: SegmentOptions) -> dict:
    """What a mask depends on besides its photograph.

    The engines of the net and of the CRF are not part of it. Two engines agree to 1e-4 of the scores, as two versions
    of a BLAS do: labels differ in single pixels where two of them score the same. So a run may go on with another
    engine.
    """
    tags = [files.classes[label] for label in options.labels] if options.labels != every_label(files) else None
    return {"tool": "infer", **files.identity, "size": files.size, "tags": tags, "ilp": options.prior,
            "crf": options.preset and options.preset._asdict(), **({"mirror": True} if options.mirror else {}),
            **({"cue": "none"} if files.without_cue else {})}


def write_outputs(rgb: np.ndarray, scores: Scores, options: SegmentOptions, classes: Sequence[str], settings: dict,
                  outputs: Sequence[Path], source: Optional[str] = None) -> list[Lost]:
    """Write a photograph's files. The mask's path comes first; it is written last, because it says that all is done.
    Returns what was lost to the CRF."""
    mask_path, *others = outputs
    mask, q, lost = mask_and_probabilities(rgb, scores, options)
    for path in others:
        if path.suffix == ".jpg":
            with whole_file(path) as part:
                overlay(rgb, mask, classes).save(part, quality=90, subsampling=0)     # colours stay sharp
        else:
            if q is None:
                height, width = shrink(rgb, LONG_SIDE).shape[:2]
                q = softmax(sample(allowed_scores(scores, options), *scores.cells(height, width)), axis=0)
            p = np.zeros((len(classes), *q.shape[1:]), np.float16)
            p[options.labels] = q
            save_probabilities(path, p, classes, options.preset)
    save_mask(mask_path, mask, settings, classes, source)
    return [Lost(mask_path, classes[label], kept) for label, kept in lost.items()]
