"""float16 to float32: every finite number, bit by bit."""
import numpy as np

from ccnn.data.float16 import widen


def test_half_floats_are_widened_exactly():
    half = np.arange(65536, dtype=np.uint16).view(np.float16)
    half = half[np.isfinite(half)].reshape(2, -1)
    out = np.empty(half.shape, np.float32)
    for view in (half, half[:, ::-1]):
        widen(view, out)
        assert np.array_equal(out, view.astype(np.float32)) and np.array_equal(np.signbit(out), np.signbit(view))
