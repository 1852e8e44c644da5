"""The accuracy that cython/ccnn/solver/_exponential.h states, against NumPy in higher precision."""
import numpy as np
import pytest

from ccnn.solver import _exponential, cpu_check

FMA = "fma" in cpu_check.NEEDS          # compiled with fused multiply-add, which rounds once less


def error(compute, x, exact):
    y = np.full_like(x, np.nan)
    compute(x, y)
    return np.abs(y / exact - 1).max()


def test_float64():
    x = np.concatenate([np.linspace(-200, 200, 400001), np.random.default_rng(0).uniform(-1, 1, 100000), [0.0]])
    exact = np.exp(x.astype(np.longdouble))
    assert error(_exponential.exp64, x, exact) < (2e-14 if FMA else 5e-14)
    near = np.abs(x) < 1
    assert error(_exponential.exp64, x[near], exact[near]) < 1e-14


def test_float32():
    x = np.concatenate([np.linspace(-80, 80, 400001), np.random.default_rng(0).uniform(-1, 1, 100000), [0]])
    x = x.astype(np.float32)
    exact = np.exp(x.astype(float))
    assert error(_exponential.exp32, x, exact) < (5e-7 if FMA else 5e-6)
    near = np.abs(x) < 1
    assert error(_exponential.exp32, x[near], exact[near]) < 3e-7


def test_exp_0_is_1():
    for compute, dtype in ((_exponential.exp64, np.float64), (_exponential.exp32, np.float32)):
        y = np.empty(17, dtype)
        compute(np.zeros(17, dtype), y)
        assert (y == 1).all()


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="3 elements, y has 2"):
        _exponential.exp64(np.zeros(3), np.zeros(2))


def test_the_yardstick_sums_exponentials():
    x = np.linspace(-3, 3, 1000, dtype=np.float32)
    assert _exponential.exp_pass(x) == pytest.approx(np.exp(x.astype(float)).sum(), rel=1e-5)
