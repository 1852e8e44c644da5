"""The mathematics of the baselines."""
import numpy as np
import pytest

from ccnn.supervision.baselines import adaptive_bias, image_level_prior, log_mean_exp


@pytest.mark.parametrize("seed", range(5))
def test_adaptive_bias_gives_each_label_its_share(seed):
    f = np.random.default_rng(seed).normal(size=(4, 200)).astype(np.float32)
    f[0] += 3
    b = adaptive_bias(f, rho_fg=0.15, rho_bg=0.3, rounds=20)
    share = np.bincount((f + b[:, None]).argmax(axis=0), minlength=4) / 200
    assert (share >= [0.3 - 0.01, 0.15 - 0.01, 0.15 - 0.01, 0.15 - 0.01]).all()
    assert (b >= 0).all() and b.any()
    assert (adaptive_bias(f[:1]) == 0).all()
    biased = f + adaptive_bias(f, 0.15, 0.3, 1)[:, None]
    assert (biased.argmax(axis=0) == 3).sum() == 30               # whose turn was last has exactly its share
    assert np.abs(biased[3] - biased[:3].max(axis=0)).min() > 1e-5          # and no pixel by a tie


@pytest.mark.parametrize("seed", range(5))
def test_adaptive_bias_does_not_enforce_shares_that_conflict(seed):
    """Section 5: EM-Adapt's shares of an image with three classes, 0.4 + 3 * 0.3, are more than the image. However many
    rounds it takes, some label stays below its share; whose turn was last has it."""
    f = np.random.default_rng(seed).normal(size=(4, 200)).astype(np.float32)
    for rounds in (5, 50):
        b = adaptive_bias(f, rho_fg=0.3, rho_bg=0.4, rounds=rounds)
        share = np.bincount((f + b[:, None]).argmax(axis=0), minlength=4) / 200
        assert (share < [0.4, 0.3, 0.3, 0.3]).any() and share[3] == pytest.approx(0.3, abs=0.006)


def test_adaptive_bias_leaves_a_winner_alone():
    f = np.zeros((2, 10), np.float32)
    f[0, :5] = f[1, 5:] = 4
    assert (adaptive_bias(f) == 0).all()


def test_adaptive_bias_of_a_crop_without_background():
    """Two labels, none of which is background: both get the share of an object."""
    f = np.array([[5.0] * 10, [0.0] * 10]) + np.arange(10) * [[0], [0.1]]
    b = adaptive_bias(f, rho_fg=0.2, rho_bg=0.9, background=False)
    assert np.bincount((f + b[:, None]).argmax(axis=0)).tolist() == [8, 2]
    b = adaptive_bias(f, rho_fg=0.2, rho_bg=0.9)
    assert np.bincount((f + b[:, None]).argmax(axis=0)).tolist()[0] >= 8


def test_log_mean_exp_lies_between_mean_and_maximum():
    f = np.random.default_rng(0).normal(size=(3, 50)) + 2000     # exp of this overflows
    soft = log_mean_exp(f)
    assert (f.mean(axis=1) < soft).all() and (soft < f.max(axis=1)).all()
    np.testing.assert_allclose(log_mean_exp(f, 1e-6), f.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(log_mean_exp(f, 1e4), f.max(axis=1), rtol=1e-5)


def test_image_level_prior_reweighs_by_the_image():
    f = np.random.default_rng(0).normal(size=(5, 4, 6)).astype(np.float32)
    q = np.exp(f) / np.exp(f).sum(axis=0)
    s = np.log(np.exp(5 * f).mean(axis=(1, 2))) / 5
    joint = q * (np.exp(s) / np.exp(s).sum())[:, None, None]
    out = image_level_prior(f)
    assert out.shape == f.shape and out.dtype == f.dtype
    np.testing.assert_allclose(np.exp(out) / np.exp(out).sum(axis=0), joint / joint.sum(axis=0), rtol=1e-4)
