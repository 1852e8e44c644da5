"""The labels of the second round: they obey all that is known, and fit the features of every size."""
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccnn.images.grid import Scores
from ccnn.images.labels import VOID
from ccnn.images.reading import fit
from ccnn.project.predictions import Prediction, label_mask, small_shape
from ccnn.solver.constraints import Constraints
from ccnn.studio import predictions
from ccnn.supervision.tags_sizes_boxes import box_constraints, mask_constraints, tag_constraints

GRID, SHAPE = (11, 14), (81, 105)


def prediction(c, seed=0):
    """Scores that like label 2 best, then 1, and the background least."""
    f = np.random.default_rng(seed).normal(0, 1, (3, *GRID)) + np.array([0, 2, 4])[:, None, None]
    return Prediction("a", SHAPE, Scores(f.astype(np.float32), SHAPE, 8, -0.5), 0.0, c)


def shares(mask):
    return np.bincount(mask.ravel(), minlength=3) / mask.size


def test_tags_and_bounds_hold():
    assert shares(label_mask(prediction(tag_constraints([True] * 3, bg_lower=0, bg_upper=1)), SHAPE))[2] > 0.8
    area = shares(label_mask(prediction(tag_constraints([True, True, False])), SHAPE))
    assert area[2] == 0 and area[0] > 0.2                   # the bound asks for a background of 30 %
    assert shares(label_mask(prediction(tag_constraints([True, False, False])), SHAPE))[0] == 1


def test_boxes_and_known_pixels_hold():
    mask = label_mask(prediction(box_constraints([(1, 2, 3, 7, 9)], GRID, labels=3)), GRID)
    inside = np.zeros(GRID, bool)
    inside[2:7, 3:9] = True
    assert not mask[~inside].any() and (mask[inside] == 1).mean() > 0.6 and not (mask == 2).any()
    marked = np.full(GRID, VOID)
    marked[4, 5:9], marked[8, 1] = 1, 0
    mask = label_mask(prediction(mask_constraints(marked, labels=3)), SHAPE)
    rows, columns = (8 * np.arange(cells) for cells in GRID)
    assert (mask[np.ix_(rows, columns)][marked != VOID] == marked[marked != VOID]).all()


def test_bounds_that_contradict_each_other_are_left_out():
    c = Constraints([[1, 0, 0], [-1, 0, 0]], [0.9, -0.1], [np.inf, np.inf], allowed=[True, True, False])
    assert shares(label_mask(prediction(c), SHAPE))[1] > 0.8


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_a_small_copy_is_reduced_to_the_same_sizes(height, width):
    sizes = (224, 321)
    small = small_shape((height, width), sizes)
    assert all(fit(*small, size) == fit(height, width, size) for size in sizes)
    assert max(small) <= max(400, *sizes) or max(small) == max(height, width)


def test_rounding_twice_would_make_a_difference():
    wrong = [width for width in range(322, 700) if fit(*fit(300, width, 321), 224) != fit(300, width, 224)]
    assert wrong and all(small_shape((300, width), (224, 321)) != fit(300, width, 321) for width in wrong)


@pytest.mark.parametrize("shape", [SHAPE, GRID, (500, 700)])
def test_a_mask_may_have_any_size(shape):
    assert label_mask(prediction(tag_constraints([True] * 3)), shape).shape == shape


def test_in_the_studio_marked_pixels_are_as_drawn(monkeypatch):
    """The model's classes are in another order than those of the folder, to which the marks belong."""
    monkeypatch.setattr(predictions, "own_scores", lambda head, scores, *_: scores)
    marks = np.full(SHAPE, VOID, np.uint8)
    marks[10:20, 30:40], marks[50:, :9] = 1, 0
    known = SimpleNamespace(classes=("background", "cat"), marks=lambda size: marks)
    head = SimpleNamespace(classes=("background", "dog", "cat"))
    scores = Scores(np.zeros((3, *GRID), np.float32) + np.arange(3)[::-1, None, None] % 2, SHAPE, 8, -0.5)
    labels, classes = predictions.own_mask(head, scores, SHAPE, "a", known, None)
    assert (labels[marks == 1] == classes.index("cat")).all() and (labels[marks == 0] == 0).all()
    assert (labels[marks == VOID] == 1).all()
