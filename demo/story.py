"""What the page of the demonstration tells: scores, examples, the solver's part, photographs."""
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from demo_page import Example, Photograph, Result, Solved, Story
from scipy.special import softmax
from tqdm import tqdm

import ccnn
from ccnn._util.paths import ROOT
from ccnn.evaluation.scores import Score, confusion, scored
from ccnn.images.grid import Scores, label_map
from ccnn.images.ids import read_split
from ccnn.images.labels import VOC_CLASSES, read_classes
from ccnn.images.reading import read_image, read_mask
from ccnn.inference.caffe_net import forward, load_net, score_grid
from ccnn.inference.predict import MODEL
from ccnn.nets.prototxt import SYSTEMS
from ccnn.supervision.tags_sizes_boxes import area_rows
from ccnn.training.caffe_log import read_log

# file of scikit-image, what it is, the classes in it. The last one is there because the model fails on part of it.
PHOTOGRAPHS = (("chelsea.png", "Chelsea the cat", ("cat",)),
               ("motorcycle_left.png", "A motorbike in a garage", ("motorbike",)),
               ("camera.png", "A man with a camera", ("person",)),
               ("astronaut.png", "An astronaut beside a model of her rocket", ("person",)))

PATIENCE = 180                          # seconds for the photographs: a slow network must not keep the page


class Scored(NamedTuple):
    """What a training has reached on the validation images."""
    row: Score                            # of the last snapshot
    course: dict                        # {iteration: mIoU}
    masks: dict                         # {image id: H x W} of the last snapshot


class Images(NamedTuple):
    """A split of the drawn data set."""
    names: list
    images: list                        # H x W x 3 uint8
    masks: list                         # H x W uint8

    @classmethod
    def read(cls, data, split):
        labels, names = len(read_classes(data / "classes.txt")), read_split(data, split)
        return cls(names, [read_image(data / f"JPEGImages/{name}.jpg") for name in names],
                   [read_mask(data / f"SegmentationClass/{name}.png", labels) for name in names])

    def wide(self):
        """The numbers of the images that are wider than high."""
        return [k for k, image in enumerate(self.images) if image.shape[1] > image.shape[0]]


def score(runs, data, last_only):
    """{run: Scored} on the validation images."""
    classes, val = read_classes(data / "classes.txt"), Images.read(data, "val")
    grid = score_grid(runs[0].deploy)
    models = [(run, iteration, model) for run in runs
              for iteration, model in list(run.snapshots().items())[-1 if last_only else 0:]]
    found = {}
    for run, iteration, model in tqdm(models, desc="scoring", unit="model", disable=None):
        net = load_net(run.deploy, model)
        masks = []
        for image in val.images:
            scores = Scores(forward(net, image), image.shape[:2], *grid)
            masks.append(label_map(scores.values, *scores.cells(*image.shape[:2])))
        C = sum(confusion(truth, mask, len(classes)) for truth, mask in zip(val.masks, masks))
        row = scored(SYSTEMS[run.system].title, "val", False, C)
        course = {**(found[run].course if run in found else {}), iteration: row.miou}
        found[run] = Scored(row, course, dict(zip(val.names, masks)))
    return found


def tell(runs, scores, data, pictures, reason, minutes):
    """The Story of these runs, one per system. pictures, reason : what photographs() returned."""
    train, val = (Images.read(data, split) for split in ("train", "val"))
    classes = read_classes(data / "classes.txt")
    logs = {run.system: read_log(run.log) for run in runs}
    results = [Result(run.system, SYSTEMS[run.system].title, SYSTEMS[run.system].knows, scores[run].row.iou,
                      scores[run].row.miou, logs[run.system].loss, scores[run].course) for run in runs]
    examples = [Example(val.images[k], val.masks[k], {run.system: scores[run].masks[val.names[k]] for run in runs})
                for k in val.wide()[:6]]

    image, present = image_with_two_tags(train, len(classes))
    tags, = (run for run in runs if run.system == "tags")
    models = list(tags.snapshots().items())
    steps = [solve(tags.deploy, iteration, model, image, present) for iteration, model in (models[0], models[-1])]
    diagnostics = np.array([[i, *values.mean(axis=0)] for i, values in logs["tags"].solver.items()])
    return Story(classes, (len(train.names), len(val.names)), minutes, results, examples, image, steps, diagnostics,
                 pictures, reason)


def image_with_two_tags(split, labels):
    """The first wide image with two tags, and which labels are present; if there is none, another image."""
    for k in split.wide() or range(len(split.names)):
        image, present = split.images[k], np.isin(np.arange(labels), split.masks[k])
        if present[1:].sum() == 2:
            break
    return image, present


def solve(deploy, iteration, model, image, present):
    """The Solved of an image at a snapshot: q, p, and the areas that the tags demand."""
    scores = forward(load_net(deploy, model), image)
    f = np.ascontiguousarray(scores.reshape(len(scores), -1))
    c = ccnn.tag_constraints(present)
    s = ccnn.maximize(f, c)
    labels = np.flatnonzero(c.allowed)
    q = softmax(f, axis=0)
    bounds, forces = {l: [None, None] for l in labels}, dict.fromkeys(labels, 0.0)
    for row, label, lower, bound in area_rows(c):
        bounds[label][0 if lower else 1] = bound
        forces[label] += s.lam[row] if lower else -s.lam[row]
    shape = (len(labels), *scores.shape[1:])
    return Solved(iteration, list(labels), q[labels].reshape(shape), s.p[labels].reshape(shape),
                [bounds[l] for l in labels], [forces[l] for l in labels], 1 - q[labels].sum(axis=0).mean(),
                s.iterations, s.gap)


def photographs(out):
    """([Photograph], None), or ([], why there are none). Nothing here may end the demonstration."""
    found, reason = find_photographs()
    if reason:
        return [], reason
    print(f"segmenting photographs with {MODEL.relative_to(ROOT)}", flush=True)
    shutil.rmtree(out, ignore_errors=True)          # those of another model or CRF
    try:
        done = subprocess.run([sys.executable, ROOT / "tools/infer.py", "--out", out, *found, "--no-overlay", "--crf"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return [], f"tools/infer.py took more than {PATIENCE} seconds, the download of VGG-16 included"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["tools/infer.py failed"])[-1]
        return [], last.partition("error: ")[2] or last
    return [Photograph(*about, read_image(path), read_mask(out / f"{path.stem}.png", len(VOC_CLASSES)), VOC_CLASSES)
            for path, about in found.items()], None


def find_photographs():
    """({path: (what it is, classes)}, None), or ({}, why there are none): photographs that scikit-image carries."""
    if not MODEL.exists():
        return {}, f"{MODEL.relative_to(ROOT)} is not there"
    try:
        import skimage
    except ImportError:
        return {}, "scikit-image, which carries the photographs, is not installed"
    folder = Path(skimage.__file__).parent / "data"
    found = {folder / name: about for name, *about in PHOTOGRAPHS if (folder / name).exists()}
    return found, None if found else "this scikit-image carries no photographs"
