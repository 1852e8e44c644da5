"""The mathematics of the systems that the paper compares with (section 7)."""
import numpy as np


def adaptive_bias(f, rho_fg=0.2, rho_bg=0.4, rounds=5, background=True):
    """The biases b (L') of the scores f (L' x n) of the labels in an image. The first is the background, if it shows.

    b_l is the least bias >= 0 with which l wins on a share rho_l of the pixels: the rho_l-quantile of what l lacks
    to its strongest rival, max_{k != l} f_i(k) + b_k - f_i(l). Every bias changes what the other labels lack, so the
    labels take turns for a few rounds. Shares that add up to more than 1 cannot all be met.
    """
    labels, n = f.shape
    b = np.zeros(labels, f.dtype)
    if labels == 1:
        return b
    for _ in range(int(rounds)):
        for l in range(labels):
            rivals = np.delete(f + b[:, None], l, axis=0)
            lack = np.sort(rivals.max(axis=0) - f[l])
            wins = int(np.ceil((rho_fg if l or not background else rho_bg) * n))
            # halfway to the next pixel, so that no pixel is tied
            b[l] = max(0, (lack[wins - 1] + lack[min(wins, n - 1)]) / 2)
    return b


def log_mean_exp(f, r=5):
    """(1/r) log mean_i exp(r f_li), float64, for every row l of f (L x n): one score per label."""
    z = r * np.asarray(f, np.float64)
    top = z.max(axis=1)
    return (top + np.log(np.exp(z - top[:, None]).mean(axis=1))) / r


def log_softmax(f):
    """log softmax over axis 0."""
    f = f - f.max(axis=0)
    return f - np.log(np.exp(f).sum(axis=0))


def image_level_prior(f, r=5):
    """Scores of the shape of f (L x ...) whose softmax is q_i(l) P(l), normalised: MIL-Base with ILP.

    P(l) is the net's own belief that label l is in the image (MILBaseLossLayer). It lowers labels that are likely at
    no pixel.
    """
    f = np.asarray(f)
    prior = log_softmax(log_mean_exp(f.reshape(len(f), -1), r))
    return f + prior.astype(f.dtype).reshape(-1, *[1] * (f.ndim - 1))
