"""Scores between the cells of their grid."""
import numpy as np
import pytest

from ccnn.images import grid


def test_sampling_is_bilinear_and_repeats_the_border():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 4, 5)).astype(np.float32)
    y, x = np.array([-1, 0, 0.25, 2.5, 3, 9]), np.array([0, 1.75, 4.5])
    got = grid.sample(values, y, x)
    for i, v in enumerate(y.clip(0, 3)):
        for j, u in enumerate(x.clip(0, 4)):
            weights = np.maximum(0, 1 - abs(v - np.arange(4)))[:, None] * np.maximum(0, 1 - abs(u - np.arange(5)))
            assert np.allclose(got[:, i, j], (values * weights).sum(axis=(1, 2)), atol=1e-6)
    assert np.array_equal(grid.sample(values, np.arange(4), np.arange(5)), values)
    assert grid.sample(values[:, :1, :1], y, x).shape == (3, 6, 3)


def test_positions_are_pixel_centres():
    assert grid.positions(5, 5).tolist() == [0, 1, 2, 3, 4]
    assert grid.positions(4, 2).tolist() == [-0.25, 0.25, 0.75, 1.25]
    assert grid.positions(2, 4).tolist() == [0.5, 2.5]


@pytest.mark.parametrize("strip", [1, 21 * 50 * 7, 1 << 22])
def test_strips_make_the_same_labels(strip, monkeypatch):
    values = np.random.default_rng(0).normal(size=(21, 9, 9)).astype(np.float32)
    y, x = np.linspace(0, 8, 40), np.linspace(0, 8, 50)
    monkeypatch.setattr(grid, "STRIP", strip)
    labels = grid.label_map(values, y, x)
    assert labels.dtype == np.uint8 and np.array_equal(labels, grid.sample(values, y, x).argmax(axis=0))
