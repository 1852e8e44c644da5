"""What the constraints did to one image, as a figure: q, p, and the labels' areas in both against their bounds."""
import logging
from collections.abc import Sequence
from typing import Optional

import numpy as np
from matplotlib.figure import Figure
from scipy.special import softmax

import ccnn
from ccnn._util.errors import UserError
from ccnn._util.settings import read_settings
from ccnn.evaluation.figures import ALARM, legend_patches
from ccnn.images.labels import BACKGROUND
from ccnn.images.overlays import colours
from ccnn.supervision.constraint_builder import ConstraintBuilder, solve
from ccnn.supervision.kinds import SUPERVISION
from ccnn.supervision.tags_sizes_boxes import area_rows

SIDE, CHART = 2.0, 4.6          # inches: width of a picture, of the chart of areas
PLAIN = "#222222"               # a bound that holds by itself
PAPER = 235                     # the grey of the background

log = logging.getLogger(__name__)


def trained_constraints(settings: dict, present: np.ndarray, large: Optional[np.ndarray],
                        where: object) -> "ccnn.Constraints":
    """The constraints on an image of a model, with the bounds that it was trained with.

    settings : its "supervision" and its "bounds", as a .ccnn file or WEIGHTS.json has them
    present  : (L,) bool, the tags
    large    : (L,) bool, those above a tenth of the image; None: not said
    where    : what an error calls the model
    """
    kind = settings.get("supervision")
    if kind not in list(SUPERVISION):               # nor a list, whatever the file holds
        kind = "tags" if large is None else "size"
        log.info("%s: does not say which bounds it was trained with; these are the paper's", where)
    if kind == "size" and large is None:
        raise UserError(f"{where}: was trained with sizes: say with --large which tags cover more than a tenth of the "
                        "photograph ('' if none does)")
    if kind == "tags" and large is not None:
        raise UserError(f"--large: {where} was trained on tags alone; leave it out")
    if kind not in ("tags", "size"):
        raise UserError(f"{where}: was trained on {kind}; this figure shows what tags and sizes ask for")
    bounds = read_settings(settings.get("bounds", {}), SUPERVISION[kind].settings, f"{where}: bounds")
    try:
        return ConstraintBuilder(SUPERVISION[kind], bounds).build([present] if large is None else [present, large],
                                                                  len(present), None)
    except ValueError as e:
        raise UserError(f"{where}: bounds: {e}") from None


def draw_explanation(rgb: np.ndarray, scores: np.ndarray, c: "ccnn.Constraints", classes: Sequence[str]) -> Figure:
    """rgb H x W x 3, the image; scores L x h x w; c constraints of one label per row, as of tags and sizes."""
    shape = scores.shape[1:]
    f = np.asarray(scores.reshape(len(scores), -1), np.float32)
    q = softmax(f.astype(float), axis=0)
    s = solve(f, c)
    if s.status == "infeasible":
        raise UserError("the constraints contradict each other: no distribution obeys them")
    labels = [int(label) for label in np.flatnonzero(np.ones(len(f), bool) if c.allowed is None else c.allowed)]

    columns = 2 + len(labels)
    height = max(2 * SIDE * rgb.shape[0] / rgb.shape[1], 3.4) + 0.7
    figure = Figure(figsize=(SIDE * columns + CHART, height), layout="constrained")
    grid = figure.add_gridspec(2, columns + 1, width_ratios=[SIDE] * columns + [CHART])
    axes = np.array([[figure.add_subplot(grid[row, column]) for column in range(columns)] for row in (0, 1)])
    for axis in axes.flat:
        axis.axis("off")
    axes[0, 0].imshow(rgb)
    axes[0, 0].set_title("image")
    seen, shades = set(labels), colours().copy()
    shades[BACKGROUND] = PAPER
    for line, distribution, name in zip(axes, (q, s.p), "qp"):
        best = distribution.argmax(axis=0)
        seen.update(int(l) for l in np.unique(best) if (best == l).mean() > 0.02)
        line[1].imshow(shades[best.reshape(shape)], interpolation="nearest")
        line[1].set_title(f"labels of {name}")
        for axis, label in zip(line[2:], labels):
            shown = axis.imshow(distribution[label].reshape(shape), vmin=0, vmax=1, cmap="magma",
                                interpolation="nearest")
            axis.set_title(f"{name}({classes[label]})")
    axes[1, 0].legend(handles=legend_patches(seen, classes, shades), loc="center", frameon=False)
    figure.colorbar(shown, ax=axes[:, -1], shrink=0.7, label="probability")
    draw_areas(figure.add_subplot(grid[:, -1]), q, s, c, labels, classes)
    return figure


def draw_areas(axis, q: np.ndarray, s, c: "ccnn.Constraints", labels: Sequence[int], classes: Sequence[str]) -> None:
    """Bars: the share of the image that q and p give each label. Brackets: what its rows demand."""
    y = np.arange(len(labels) + 1)[::-1]                    # the last line: all labels that are not allowed
    absent = ~np.isin(np.arange(len(q)), labels)
    for values, offset, shade, name in ((q, 0.16, "#b8c4d6", "q, the net's output"),
                                        (s.p, -0.16, "#3b5b8c", "p, constrained")):
        means = values.mean(axis=1)
        axis.barh(y + offset, [*means[labels], means[absent].sum()], 0.32, color=shade, label=name)
    for row, label, lower, bound in area_rows(c):
        draw_bound(axis, y[labels.index(label)], lower, bound, c.beta[row], s.lam[row])
    axis.plot([], [], color=PLAIN, lw=1.6, label="bound that holds by itself")
    axis.plot([], [], color=ALARM, lw=1.6, label="bound that acts, with its dual λ")
    if not np.isinf(c.beta).all():
        axis.plot([], [], color=PLAIN, lw=1.6, ls=(0, (2, 1)), label="dashed: soft, may be missed at a price")
    axis.set_yticks(y, [*(classes[l] for l in labels), "all others"])
    axis.set_xlim(0, 1)
    axis.set_ylim(-0.6, len(labels) + 0.75)
    axis.set_xlabel("share of the image")
    axis.set_title(f"{s.iterations} iteration{'s' * (s.iterations != 1)} of the solver, gap {s.gap:.0e}")
    axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.45, -0.11), ncols=2)


def draw_bound(axis, y: float, lower: bool, edge: float, beta: float, lam: float) -> None:
    """A bracket around line y at a bound on an area, open to the side where it holds."""
    inwards = 0.02 if lower else -0.02
    axis.plot(edge + np.array([inwards, 0, 0, inwards]), y + np.array([0.42, 0.42, -0.42, -0.42]), lw=1.6,
              color=ALARM if lam > 0 else PLAIN, ls="-" if np.isinf(beta) else (0, (2, 1)))
    if lam > 0:
        axis.text(edge, y + 0.43, f" λ = {lam:.2g}", color=ALARM, fontsize=8, va="bottom")
