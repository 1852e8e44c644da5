"""How well masks follow edges."""
import numpy as np
import pytest

from ccnn.evaluation.boundaries import band_confusion, boundary, boundary_counts, boundary_f, without_void
from ccnn.images.labels import VOID


def square(at=10, side=20, size=60, label=1):
    mask = np.zeros((size, size), np.uint8)
    mask[at:at + side, at:at + side] = label
    return mask


def test_the_boundary_is_one_pixel_wide_and_the_border_of_the_photograph_is_none():
    edge = boundary(square() == 1)
    assert edge.sum() == 4 * 20 - 4 and not boundary(np.ones((5, 5), bool)).any()
    assert boundary(square(at=0) == 1).sum() == 2 * 20 - 1


@pytest.mark.parametrize("more, expected", [(0, 100), (1, 100), (3, 0)])
def test_f_of_a_square_that_grows(more, expected):
    assert boundary_f(boundary_counts(square(), square(10 - more, 20 + 2 * more), 2)) == expected


def test_a_class_that_is_missed_or_invented():
    nothing = np.zeros((60, 60), np.uint8)
    assert boundary_f(boundary_counts(square(), nothing, 2)) == 0
    assert np.isnan(boundary_f(boundary_counts(nothing, square(), 2)))         # no truth, no recall
    both = boundary_counts(square(), square(), 3) + boundary_counts(square(label=2), nothing, 3)
    assert boundary_f(both) == pytest.approx(50)


def test_void_is_filled_to_the_middle_of_its_band():
    truth = square()
    truth[30:34, 10:20] = VOID                  # four rows below a part of the square
    filled = without_void(truth)
    assert (filled[30:32, 12:18] == 1).all() and (filled[32:34, 12:18] == 0).all()
    assert not without_void(np.full((4, 4), VOID, np.uint8)).any()


def test_the_band_holds_the_pixels_near_an_edge():
    C = band_confusion(square(), square(), 2, band=3)
    assert C[0, 1] == C[1, 0] == 0 and C[1, 1] == 20 * 20 - 12 * 12 and 0 < C[0, 0] < 5 * 4 * 20
    assert not band_confusion(np.zeros((5, 5), np.uint8), np.zeros((5, 5), np.uint8), 2).any()
