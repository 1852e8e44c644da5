"""The course of trainings as a figure: loss, violations, solver time and learning rate."""
from collections.abc import Sequence
from typing import Optional

import numpy as np
from matplotlib import ticker
from matplotlib.figure import Figure

from ccnn.evaluation.figures import ALARM
from ccnn.training.caffe_log import Curves

LOSS, VIOLATION, TIME, RATE = "loss", "violation by q\n(share of the image)", "solver time (ms)", "learning rate"


def draw_curves(logs: Sequence[tuple[str, Curves]]) -> Figure:
    """The curves of (name, log), one colour each. Violation and time are left out if no log has them."""
    diagnostics = any(log.solver for _, log in logs)
    titles = [LOSS, VIOLATION, TIME, RATE] if diagnostics else [LOSS, RATE]
    figure = Figure(figsize=(8, 0.6 + 2 * len(titles)), layout="constrained")
    axes = dict(zip(titles, figure.subplots(len(titles), sharex=True)))
    for k, (name, log) in enumerate(logs):
        shade = f"C{k + (k > 2)}"                           # C3 is the red of the alarm
        draw_line(axes[LOSS], log.loss, shade, name)
        draw_line(axes[RATE], log.lr, shade)
        if log.solver:
            means = {i: np.mean(values, axis=0) for i, values in log.solver.items()}
            draw_dots(axes[VIOLATION], {i: v[0] for i, v in means.items()}, shade)
            draw_dots(axes[TIME], {i: 1000 * v[3] for i, v in means.items()}, shade)
            mark(axes[VIOLATION], [i for i, v in means.items() if not np.isfinite(v[1])], "contradictory constraints")
    for title, axis in axes.items():
        axis.set_ylabel(title)
        axis.grid(alpha=0.25)
        choose_scale(axis, fraction=title == VIOLATION)
        names = axis.get_legend_handles_labels()[1]
        if names and (len(logs) > 1 or title != LOSS or len(names) > 1):
            axis.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 0.95))
    axes[RATE].set_xlabel("iteration")
    return figure


def draw_line(axis, series: dict[int, float], shade: str, name: Optional[str] = None) -> None:
    """A line through the finite values; marks where a value is not."""
    x, y = np.array(list(series)), np.array(list(series.values()), float)
    good = np.isfinite(y)
    axis.plot(x, np.where(good, y, np.nan), color=shade, lw=1.5, label=name, marker="." if good.sum() < 2 else None)
    mark(axis, x[~good], "NaN or infinite")


def draw_dots(axis, series: dict[int, float], shade: str, window: int = 25) -> None:
    """One dot per iteration shown, and their running mean if there are many."""
    x, y = np.array(list(series)), np.array(list(series.values()))
    good = np.isfinite(y)
    many = good.sum() > 4 * window
    axis.plot(x, y, ".", color=shade, ms=3 if many else 6, alpha=0.35 if many else 0.8)
    if many:
        mean = np.convolve(y[good], np.ones(window) / window, "valid")
        axis.plot(x[good][window // 2:][:len(mean)], mean, color=shade, lw=1.5)
    mark(axis, x[~good], "NaN or infinite")


def mark(axis, where: Sequence[int], what: str) -> None:
    """Red crosses along the top of an axis."""
    if len(where):
        axis.plot(where, np.full(len(where), 0.97), "x", color=ALARM, transform=axis.get_xaxis_transform(),
                  clip_on=False, gid="alarm", label=f"{what}: {len(where)} of the iterations shown, first {min(where)}")


def choose_scale(axis, fraction: bool) -> None:
    """A logarithmic scale where one value would flatten the rest; else, and for fractions, one that begins at 0."""
    y = np.concatenate([line.get_ydata() for line in axis.lines if line.get_gid() != "alarm"] or [[]])
    y = y[np.isfinite(y)]
    if not y.size:
        axis.set_yticks([])
    elif not fraction and y.min() > 0 and y.max() > 8 * np.median(y):
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if y.max() < 300 * y.min() else (1,)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("")
    elif y.min() >= 0:
        axis.set_ylim(0, max(1.08 * y.max(), 1e-12))
