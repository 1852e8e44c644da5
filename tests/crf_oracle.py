"""The published mean field of a dense CRF by brute force: every kernel is an n x n matrix, float64.

    q <- softmax(f + sum_k w_k K_k q)   or   softmax(f - sum_k mu_k K_k q)

    K_k(i, j) = exp(-|x_i - x_j|^2 / 2) over its normalisation; the pixel itself is included, as in the published code
"""
import numpy as np
from scipy.special import softmax


def kernel_matrix(features, normalization="after"):
    """K, n x n, of features d x n or d x H x W in standard deviations."""
    x = np.asarray(features, float).reshape(len(features), -1)
    k = np.exp(-((x[:, :, None] - x[:, None]) ** 2).sum(axis=0) / 2)
    total = k.sum(axis=1)
    return {"after": k / total[:, None], "before": k / total,
            "symmetric": k / np.sqrt(total[:, None] * total)}[normalization]


def all_pairs(scores, kernels, iterations):
    """Marginals; kernels: [(features, w or mu, normalization)]."""
    f = np.asarray(scores, float).reshape(len(scores), -1)
    terms = [(kernel_matrix(features, normalization), -np.asarray(mu) if np.ndim(mu) else mu * np.eye(len(f)))
             for features, mu, normalization in kernels]
    q = softmax(f, axis=0)
    for _ in range(iterations):
        q = softmax(f + sum(weight @ q @ K.T for K, weight in terms), axis=0)
    return q.reshape(np.shape(scores))


def photograph_features(rgb, preset):
    """(features of the gaussian kernel, of the bilateral one)."""
    y, x = np.mgrid[:rgb.shape[0], :rgb.shape[1]].astype(float)
    position, colour = np.stack([x, y]), np.moveaxis(rgb.astype(float), 2, 0)
    return position / preset.gaussian_xy, np.concatenate([position / preset.bilateral_xy,
                                                          colour / preset.bilateral_rgb])
