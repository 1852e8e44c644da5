"""Pixels are grouped exactly as their columns are equal."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccnn.solver._grouping import groups_of_pixels


def same_partition(found, allowed, regions):
    """Two pixels share a group exactly if their columns are equal."""
    columns = np.vstack([np.asarray(allowed, float), regions])
    _, expected = np.unique(columns, axis=1, return_inverse=True)
    pairs = set(zip(found.tolist(), expected.ravel().tolist()))
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


@settings(max_examples=50)
@given(seed=st.integers(0, 10 ** 6), n=st.integers(1, 600), L=st.integers(0, 5), k=st.integers(0, 5),
       kinds=st.integers(1, 4), runs=st.booleans())
def test_groups_are_the_distinct_columns(seed, n, L, k, kinds, runs):
    rng = np.random.default_rng(seed)
    L = L or int(not k)
    at = rng.integers(0, 3 * kinds, n)
    at = np.sort(at) if runs else at
    allowed = (rng.random((L, 3 * kinds)) < 0.6)[:, at]
    regions = rng.choice([0, 1, 0.5, -1, 1e-30], (k, 3 * kinds))[:, at]
    found = groups_of_pixels(allowed, regions, n)
    assert same_partition(found, allowed, regions)
    count = found.max() + 1
    assert groups_of_pixels(allowed, regions, count) is not None
    if count > 1:
        assert groups_of_pixels(allowed, regions, count - 1) is None


def test_weights_that_differ_in_the_last_bit_are_told_apart():
    regions = np.full((1, 1000), 0.1)
    regions[0, 777] = np.nextafter(0.1, 1)
    assert groups_of_pixels(np.ones((1, 1000)), regions, 1000).max() == 1


def test_many_distinct_weights():
    regions = np.random.default_rng(0).random((2, 50000))
    assert len(np.unique(groups_of_pixels(np.ones((0, 50000)), regions, 50000))) == 50000
    assert groups_of_pixels(np.ones((0, 50000)), regions, 100) is None


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="same number of pixels"):
        groups_of_pixels(np.ones((1, 3)), np.ones((1, 4)), 10)
