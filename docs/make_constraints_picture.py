"""Draw docs/constraints.png: what every rule of constraints.toml does to p on a drawn score map.

    .caffe/bin/python docs/make_constraints_picture.py
"""
import tempfile
from pathlib import Path

import matplotlib
import numpy as np

import ccnn
from ccnn.images.labels import VOID
from ccnn.supervision.rules_file import read_rules

CLASSES = ("background", "cat", "dog")
COLOURS = np.array([(0.93, 0.93, 0.91), (0.90, 0.45, 0.10), (0.10, 0.40, 0.75)])   # they differ for the colour-blind
SHAPE = (41, 61)

PANELS = [
    ("the scores alone", ""),
    ("least area", "[dog]\nleast = 0.25"),
    ("most area", "[cat]\nmost = 0.1"),
    ("bounds of the background", "[background]\nmost = 0.4"),
    ("touches the lower edge", '[cat]\ntouches = "lower"\nshare = 0.5'),
    ("touches the sides", '[dog]\ntouches = "sides"\nshare = 0.4'),
    ("one is larger", '[[rule]]\nlarger = ["dog", "cat"]'),
    ("together most of it", '[[rule]]\ntogether = ["cat", "dog"]\nleast = 0.7'),
    ("a scribble", "[scribbles]"),
]


def draw_scores():
    """A large cat on the left and a small dog on the right, both soft: 3 x n."""
    y, x = np.mgrid[:SHAPE[0], :SHAPE[1]]

    def blob(cy, cx, ry, rx):
        return 6 * np.exp(-((y - cy) / ry) ** 2 - ((x - cx) / rx) ** 2)

    texture = np.random.default_rng(3).normal(size=(3, *SHAPE))
    for axis in (1, 2):                     # smooth it, as a net's scores are
        texture = sum(np.roll(texture, shift, axis) for shift in range(-2, 3)) / 5
    cat, dog = blob(17, 18, 12, 13), blob(22, 46, 8, 7)
    return (np.stack([np.full(SHAPE, 2.5), cat, dog]) + texture).reshape(3, -1)


def scribble():
    """The cat's tail, where no score sees a cat, and a line of background: label ids on the grid."""
    cells = np.full(SHAPE, VOID, np.uint8)
    cells[31:33, 12:30] = 1
    cells[37:39, 4:57] = 0
    return cells


def solve(f, rule, folder):
    """p that obeys the rule; the tags say cat and dog, and nothing else."""
    c = ccnn.Constraints(np.zeros((0, 3)), [], [], np.ones(3, bool))
    (folder / "constraints.toml").write_text(rule)
    if "scribbles" in rule:
        c = c & ccnn.mask_constraints(scribble(), 3)
    solution = ccnn.maximize(f, read_rules(folder / "constraints.toml", CLASSES).apply(c, SHAPE))
    assert solution.status == "optimal", (rule, solution)
    return solution.p


def areas(before, after):
    """The area of every class in per cent, before and after."""
    return "  ".join(f"{name} {100 * a.mean():.0f}" + (f"→{100 * b.mean():.0f} %" if after is not before else " %")
                     for name, a, b in zip(CLASSES, before, after))


def main():
    matplotlib.use("Agg")
    from matplotlib import pyplot
    f = draw_scores()
    figure, axes = pyplot.subplots(3, 3, figsize=(10.5, 10), facecolor="white")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "scribbles").mkdir()
        first = None
        for axis, (title, rule) in zip(axes.ravel(), PANELS):
            p = solve(f, rule, Path(folder))
            first = p if first is None else first
            picture = np.tensordot(COLOURS, p.reshape(3, *SHAPE), (0, 0)).transpose(1, 2, 0)
            axis.imshow(picture, interpolation="nearest")
            winner = p.argmax(axis=0).reshape(SHAPE)
            for label in (1, 2):
                axis.contour(winner == label, [0.5], colors="black", linewidths=0.8)
            if "scribbles" in rule:
                axis.contour(scribble() != VOID, [0.5], colors="white", linewidths=1.2)
            axis.set_title(title, fontsize=12, loc="left", weight="bold")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_xlabel(f"{rule.replace(chr(10), '  ') or 'tags: cat, dog'}\n{areas(first, p)}", fontsize=8,
                            family="DejaVu Sans Mono", loc="left")
    handles = [pyplot.Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor="gray") for colour in COLOURS]
    figure.legend(handles, CLASSES, loc="upper center", ncol=3, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    figure.savefig(Path(__file__).with_name("constraints.png"), dpi=110)


if __name__ == "__main__":
    main()
