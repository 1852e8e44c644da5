"""ccnn/paper.py has the paper's numbers: they agree with each other, and with the paper where it is at hand."""
import os
import re
from pathlib import Path

import numpy as np
import pytest

from ccnn import paper
from ccnn.evaluation.tables import paper_rows


def test_means_are_those_of_the_classes():
    rows = [row for row in paper_rows() if row.iou]
    assert len(rows) == 13 and all(len(row.iou) == 21 for row in rows)
    for row in rows:
        if row.iou[0] is not None:                          # the test table leaves the background out
            assert row.miou == pytest.approx(np.mean(row.iou), abs=0.06)


def test_the_defaults_are_the_first_row_of_the_ablation():
    assert paper.BOUNDS_TRIED[0][:3] == tuple(paper.SIZE_BOUNDS[key] for key in ("fg_lower", "bg_lower", "bg_upper"))
    size, = [row for row in paper_rows() if (row.name, row.split, row.crf) == ("CCNN size", "val", False)]
    assert paper.BOUNDS_TRIED[0][3] == size.miou


# What sections 5 to 7 say, and the number of ours that stands in it.
SENTENCES = [
    (r"a_l = {} n$ with a slack of $\beta=2$", paper.TAG_BOUNDS["fg_lower"]),
    (r"with a slack of $\beta={}$", paper.TAG_BOUNDS["fg_beta"]),
    (r"$a_0={}n$ and $b_0=", paper.TAG_BOUNDS["bg_lower"]),
    (r"$b_0={}n$ to work well", paper.TAG_BOUNDS["bg_upper"]),
    (r"by setting $a_l={}n$", paper.SIZE_BOUNDS["fg_lower"]),
    (r"a threshold $b_l < {}n$", paper.SIZE_BOUNDS["small_upper"]),
    (r"more or less than ${:.0%}$ of the image", paper.SIZE_BOUNDS["large"]),
    (r"batch size of ${}$, momentum", paper.TRAINING["iter_size"]),
    (r"momentum of ${}$ and an initial", paper.TRAINING["momentum"]),
    (r"an initial learning rate of $1e$-${:.0f}$", -np.log10(paper.TRAINING["base_lr"])),
    (r"train for ${}$ iterations", paper.TRAINING["max_iter"]),
    (r"factor of ${}$ every", paper.TRAINING["gamma"]),
    (r"every ${}$ iterations", paper.TRAINING["stepsize"]),
    (r"total of {:,} training images", paper.IMAGES["train_aug"]),
    (r"total of {} images is kept held-out", paper.IMAGES["val"]),
    (r"constrain ${:.0%}$ of pixels within a bounding box", paper.BOX_BOUNDS["fraction"]),
]


def test_the_numbers_are_the_papers():
    if "CCNN_PAPER" not in os.environ:
        pytest.skip("CCNN_PAPER does not name the paper's LaTeX source")
    source = Path(os.environ["CCNN_PAPER"]).read_text()
    tex = re.sub(r"\\textbf\{([^}]*)\}|\\cite\{[^}]*\}|~", r"\1", source)
    lines = [line.rstrip()[:-2].split("&") for line in tex.splitlines() if line.rstrip().endswith("\\\\")]
    numbers = [[float(v) for v in line if re.fullmatch(r"\s*\d+\.\d\s*", v)] for line in lines]
    rows = paper_rows()

    def of_length(*lengths):
        return sorted(line for line in numbers if len(line) in lengths)
    assert sorted([v for v in row.iou if v is not None] + [row.miou] for row in rows if row.iou) == of_length(21, 22)
    assert sorted([w.miou, c.miou] for w, c in zip(rows, rows[1:])          # table 2
                  if w.name == c.name and w.name in ("EM-Adapt crops", "CCNN crops", "CCNN size") and c.crf) == \
        of_length(2)
    assert sorted(map(list, paper.BOUNDS_TRIED)) == of_length(4)
    boxes, = [row.miou for row in rows if "boxes" in row.name]
    for sentence, number in [*SENTENCES, (r"boost the IoU accuracy to ${:.0f}\%$", boxes)]:
        assert sentence.format(number).replace("%$", r"\%$").replace(r"\\%", r"\%") in tex, sentence
