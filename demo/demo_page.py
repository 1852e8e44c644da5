"""The page of the demonstration: one HTML file with every picture inside.

    page(story) -> str

A Story holds numbers and arrays only (demo/story.py makes it); looks are in templates/, here and in ccnn/project/.
"""
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np

from ccnn.images.labels import BACKGROUND
from ccnn.images.overlays import colours, thumbnail
from ccnn.project.html import Step, chart, render
from ccnn.project.report import next_steps

FOLDER = Path(__file__).parent / "templates"

MINUTES = 2             # that `make demo` takes on two cores

# of the systems; for light and dark mode
LINES = {"tags": "#3a7fc8", "size": "#1b9a70", "em_adapt": "#c8752f", "mil_fcn": "#c45b8d", "mil_base": "#8f7bd0",
         "full": "#7d8794"}

OURS, BASELINES = ("tags", "size"), ("em_adapt", "mil_fcn", "mil_base")

# mean IoU of output/demo/solvers/demo_mil_fcn.prototxt with --weights snapshots/demo_tags_iter_2400.caffemodel
INITIALISED = 29

NOTICED = 0.01          # share of a photograph from which on a label counts as found


class Result(NamedTuple):
    """What a system has learned: one line of the score table, and one curve."""
    system: str             # of ccnn.nets.prototxt
    title: str
    knows: str              # what training knows of an image
    iou: list               # percent, one entry per label, None where there is none
    miou: float
    losses: dict            # {iteration: loss}
    course: dict            # {iteration: mIoU in percent}


class Example(NamedTuple):
    """A validation image and its masks."""
    image: np.ndarray       # H x W x 3 uint8
    truth: np.ndarray       # H x W label ids, 255 void
    found: dict             # {system: H x W label ids}


class Solved(NamedTuple):
    """What the solver made of one image at one iteration; one entry per label that its tags allow."""
    iteration: int
    labels: list
    q: np.ndarray           # len(labels) x h x w
    p: np.ndarray
    bounds: list            # [(lower, upper)], shares of the image; None where there is no bound
    forces: list            # [lambda], signed: > 0 enlarges the label's area
    absent: float           # share of q on labels that are not in the image
    iterations: int
    gap: float


class Photograph(NamedTuple):
    """A real photograph under the mask of the shipped model."""
    what: str               # a sentence without its full stop
    shows: tuple            # the classes that are in it
    image: np.ndarray       # H x W x 3 uint8
    mask: np.ndarray        # H x W label ids
    classes: tuple          # of the model


class Story(NamedTuple):
    """All that the page tells."""
    classes: tuple
    images: tuple           # numbers of training and validation images
    minutes: float
    results: list
    examples: list
    image: np.ndarray       # the one that `solved` is about
    solved: list            # [Solved]
    diagnostics: np.ndarray  # iterations shown x 5: iteration, violation by q, gap, solver iterations, seconds
    photographs: list       # [Photograph]
    no_photographs: Optional[str]    # why there are none


INFER, LEARN = next_steps("tools", "photos")

NEXT = (
    Step("Your photographs", "tools/infer.py --crf --out sharp photos",
         "photos is a folder of yours; sharp gets one label PNG and one picture per photograph."),
    Step("Your own classes", f"{LEARN.command}\n{INFER.command}",
         "photos also holds classes.txt and tags.csv, whose lines are as cow_01.jpg,cow;grass: docs/photographs.md."),
    Step("The paper, on VOC 2012", "tools/get_voc.py\ntools/init_weights.py\n"
         "tools/train.py solvers/ccnn_tags.prototxt --weights data/vgg16_8s.caffemodel",
         "The whole net needs a GPU. docs/reproduction.md has every row of the paper with its command, and what two "
         "cores can do."),
)


# --- pictures ------------------------------------------------------------------------------------------------------

def painted(image, mask):
    """The labels over the image without its colours, twice as large: the drawn images are small."""
    grey = np.repeat(image.mean(axis=2, keepdims=True), 3, axis=2).astype(np.uint8)
    return thumbnail(*(np.repeat(np.repeat(a, 2, axis=0), 2, axis=1) for a in (grey, mask)), long_side=10**4)


def heat(p, label):
    """h x w probabilities as opacities of the label's colour."""
    shade = colours()[label] if label != BACKGROUND else np.full(3, 128, np.uint8)
    return np.dstack([np.broadcast_to(shade, (*p.shape, 3)), (255 * p).round().astype(np.uint8)])


# --- the page ------------------------------------------------------------------------------------------------------

def page(story):
    """The text of the page."""
    by_system = {result.system: result for result in story.results}
    tags, size, full = (by_system[system] for system in ("tags", "size", "full"))
    baseline = max((by_system[system] for system in BASELINES), key=lambda result: result.miou)
    rest = [result for result in story.results if result.system not in OURS]
    curves = [(result.title, LINES[result.system], result.course) for result in story.results]
    losses = [(result.title, LINES[result.system], result.losses) for result in (tags, size)]
    return render("demo.html", {
        **story._asdict(), "title": "CCNN on Caffe: segmentation from image tags", "next": NEXT, "duration": MINUTES,
        "numbers": [(f"{baseline.miou:.0f}", "best baseline on tags", baseline.title),
                    (f"{tags.miou:.0f}", tags.title, "image tags alone"),
                    (f"{size.miou:.0f}", size.title, "one more bit per tag"),
                    (f"{full.miou:.0f}", full.title, "the ceiling: trained on masks")],
        "best": max(result.miou for result in story.results), "lines": LINES, "ours": OURS,
        "examples": [example_row(example, len(story.classes)) for example in story.examples],
        "other_titles": [result.title for result in rest],
        "others": [[masked(example, result.system, result.title) for result in rest]
                   for example in story.examples[:3]],
        "scores_chart": chart(curves, "mean IoU during training", "mean IoU on the validation images, %", 100),
        "loss_chart": chart(losses, "loss during training", "loss: KL(p || q) per pixel"),
        "mil_fcn": by_system["mil_fcn"], "initialised": INITIALISED, "solver": solver(story.diagnostics),
        "photographs": [photograph(one) for one in story.photographs]}, FOLDER, heat=heat)


def example_row(example, labels):
    """(picture, what it is, labels of its tags) of an image, its truth, and what the systems of ours make of it."""
    tags = [label for label in np.unique(example.truth) if 0 < label < labels]
    return [(example.image, "a drawn image", tags), (painted(example.image, example.truth), "its true mask", ()),
            *(masked(example, system, system) for system in OURS)]


def masked(example, system, title):
    return painted(example.image, example.found[system]), f"its mask by {title}", ()


def solver(diagnostics):
    """What the solver did over the whole training."""
    d, quarter = diagnostics, max(1, len(diagnostics) // 4)
    return {"early": d[:quarter, 1].mean(), "late": d[-quarter:, 1].mean(), "steps": np.median(d[:, 3]),
            "ms": 1e3 * np.median(d[:, 4]), "gap": d[:, 2].max()}


def photograph(one):
    """A photograph under its mask, what was found in it, what of that is wrong, and what is missed."""
    share = np.bincount(one.mask.ravel(), minlength=256)[:len(one.classes)] / one.mask.size
    found = [label for label in np.argsort(-share, kind="stable") if label != BACKGROUND and share[label] >= NOTICED]
    names = [one.classes[label] for label in found]
    return {"what": one.what, "classes": one.classes, "picture": thumbnail(one.image, one.mask, 640),
            "found": [(label, share[label]) for label in found],
            "wrong": [name for name in names if name not in one.shows],
            "missed": [name for name in one.shows if name not in names]}
