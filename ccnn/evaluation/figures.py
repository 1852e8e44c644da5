"""Figures: what all of them share, confusion matrices, and masks side by side.

The drawing functions return a figure; save_figure writes it.
"""
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn.evaluation.scores import Score, read_prediction
from ccnn.images.ids import truth_paths
from ccnn.images.labels import SHORT, VOID, palette
from ccnn.images.reading import read_image, read_mask

FORMATS = (".png", ".pdf", ".svg")

COLOURS = np.array(palette(), np.uint8).reshape(-1, 3)       # VOC's, by label

ALARM = "#d62728"           # the red of what is wrong

STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}


def style():
    """A context in which figures of one look are drawn and saved."""
    return matplotlib.rc_context(STYLE)


def save_figure(figure: Figure, path: Path, dpi: int = 130) -> None:
    with style(), whole_file(path) as part:
        figure.savefig(part, dpi=dpi)


def legend_patches(labels: Iterable[int], classes: Sequence[str], shades: np.ndarray = COLOURS) -> list[Patch]:
    """Legend entries: the labels' colours, by default those of mask files."""
    names = {**dict(enumerate(classes)), VOID: "void: not scored"}
    return [Patch(facecolor=shades[l] / 255, edgecolor="#888888", label=names[l]) for l in sorted(labels)]


def draw_confusions(scores: Sequence[Score], classes: Sequence[str]) -> Figure:
    """One confusion matrix per score: where the pixels of each true label went, in percent of them."""
    across = min(len(scores), 2)
    down = -(-len(scores) // across)
    names = [SHORT.get(name, name) for name in classes]
    side = 1.5 + 0.31 * len(names)
    figure = Figure(figsize=(side * across, side * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False)
    for axis in axes.flat[len(scores):]:
        axis.remove()
    crf = any(score.crf for score in scores)
    for axis, score in zip(axes.flat, scores):
        draw_confusion(axis, np.array(score.confusion, float), names)
        kind = " w/ CRF" if score.crf else " w/o CRF" if crf else ""
        axis.set_title(f"{score.name}{kind}: mIoU {score.miou:.1f}")
    return figure


def draw_confusion(axis, C: np.ndarray, names: Sequence[str]) -> None:
    share = 100 * C / np.maximum(C.sum(axis=1, keepdims=True), 1)
    axis.imshow(share, cmap="Blues", vmin=0, vmax=100)
    for (true, predicted), v in np.ndenumerate(share):
        if v >= 0.5:
            axis.text(predicted, true, f"{v:.0f}", ha="center", va="center", fontsize=7,
                      color="white" if v > 55 else "#222222")
    axis.set_xticks(range(len(names)), names, rotation=90)
    axis.set_yticks(range(len(names)), names)
    axis.set_xlabel("predicted")
    axis.set_ylabel("true (a row adds up to 100 %)")
    axis.tick_params(length=0)


class PanelRow(NamedTuple):
    """A line of a panel."""
    image: np.ndarray               # H x W x 3
    masks: list[np.ndarray]         # H x W each; the truth comes first


def read_panel(voc: Path, names: Sequence[str], folders: Sequence[Path], labels: int) -> list[PanelRow]:
    """Images of a VOC folder, their true masks, and those of the folders."""
    rows = []
    for name, path in zip(names, truth_paths(voc, names)):
        truth = read_mask(path, labels)
        masks = [read_prediction(folder / f"{name}.png", labels, truth.shape, path) for folder in folders]
        image = read_image(voc / f"JPEGImages/{name}.jpg")
        if image.shape[:2] != truth.shape:
            raise UserError(f"{path}: is {truth.shape[1]} x {truth.shape[0]}, "
                            f"its image {image.shape[1]} x {image.shape[0]}")
        rows.append(PanelRow(image, [truth, *masks]))
    return rows


def draw_panel(rows: Sequence[PanelRow], titles: Sequence[str], classes: Sequence[str]) -> Figure:
    """Images, their true masks, and others under these titles, side by side."""
    width = 2.2                                             # inches per picture
    heights = [width * row.image.shape[0] / row.image.shape[1] for row in rows]
    across = 2 + len(titles)
    figure = Figure(figsize=(width * across, sum(heights) + 0.06 * len(rows) + 0.9),
                    layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02, wspace=0, hspace=0))
    axes = figure.subplots(len(rows), across, squeeze=False, height_ratios=heights)
    for line, row in zip(axes, rows):
        for axis, picture in zip(line, [row.image, *(COLOURS[mask] for mask in row.masks)]):
            axis.imshow(picture, interpolation="nearest")
            axis.axis("off")
    for axis, title in zip(axes[0], ["image", "truth", *titles]):
        axis.set_title(title, fontsize=11)
    labels = np.unique(np.concatenate([mask.ravel() for row in rows for mask in row.masks]))
    handles = legend_patches(labels, classes)
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 7), frameon=False)
    return figure
