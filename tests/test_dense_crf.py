"""Our mean field: against brute force, against pydensecrf, its properties, its threads, and wrong input."""
import os
import signal
import subprocess
import sys
import time

import crf_oracle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter
from scipy.special import softmax

from ccnn._util.errors import UserError
from ccnn.crf import ENGINES, PRESETS, DenseCRF, Kernel, Preset, dense_crf, dense_crf_batch, photograph_kernels

SMALL = Preset(gaussian_xy=2, gaussian_weight=2, bilateral_xy=6, bilateral_rgb=30, bilateral_weight=3, iterations=4)


def smooth_scores(rng, labels, height, width, sharpness=2.0):
    scores = gaussian_filter(rng.normal(size=(labels, height, width)), (0, 3, 3))
    return (sharpness * scores / scores.std()).astype(np.float32)


def picture(rng, height, width):
    """Two colours with a soft edge between them, and noise."""
    t = 1 / (1 + np.exp(np.linspace(-6, 6, width)))
    rgb = np.stack([40 + 150 * t, 90 + 60 * t, 200 - 120 * t], axis=-1) + rng.normal(0, 6, (height, width, 3))
    return rgb.clip(0, 255).astype(np.uint8)


def distance(p, q):
    return np.abs(p - q).mean()


@pytest.fixture(params=range(3))
def problem(request):
    rng = np.random.default_rng(request.param)
    return picture(rng, 20, 20), smooth_scores(rng, 4, 20, 20)


# The lattice approximates the gaussian. Mean error of a marginal, as a share of what the CRF changes, by dimensions
# (measured: 0.018, 0.034, 0.067, 0.068, 0.128, 0.114, 0.176, 0.223 for 1 to 8 of them, the largest of 24 problems).
ERROR = {1: 0.02, 2: 0.04, 3: 0.08, 5: 0.14, 8: 0.25}


@pytest.mark.parametrize("normalization", ["after", "symmetric"])
@pytest.mark.parametrize("d", ERROR)
def test_any_kernel_against_all_pairs(d, normalization):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        features = gaussian_filter(rng.normal(size=(d, 20, 20)), (0, 2, 2))
        features *= 2 / np.sqrt(d) / features.std()
        scores = smooth_scores(rng, 5, 20, 20)
        for mu in (3.0, 2 - 2 * np.eye(5), np.abs(np.subtract.outer(range(5), range(5))) / 2):
            kernels = [Kernel(features, mu, normalization)]
            exact = crf_oracle.all_pairs(scores, kernels, 3)
            effect = distance(exact, softmax(scores, axis=0))
            assert effect > 0.01                                                # else the test proves nothing
            assert distance(DenseCRF(kernels).marginals(scores, 3), exact) < ERROR[d] * effect


@pytest.mark.parametrize("normalization", ["after", "symmetric"])
@pytest.mark.parametrize("d", range(1, 9))
def test_exact_where_the_lattice_is(d, normalization):
    """Groups of equal points, far apart: each group is averaged, whatever the dimension."""
    rng = np.random.default_rng(d)
    group = rng.integers(0, 3, 400)
    kernels = [Kernel(40 * rng.normal(size=(d, 3))[:, group], 2.0, normalization)]
    scores = rng.normal(size=(3, 400))
    assert np.allclose(DenseCRF(kernels).marginals(scores, 5), crf_oracle.all_pairs(scores, kernels, 5), atol=1e-5)


def test_kernels_add_up_and_lattices_are_kept(problem):
    """Two kernels of half the weight are one; scores with other numbers of labels may come in between."""
    rgb, scores = problem
    whole = photograph_kernels(rgb, SMALL)
    halves = [kernel._replace(compatibility=kernel.compatibility / 2) for kernel in whole for _ in range(2)]
    crf = DenseCRF(whole)
    expected = dense_crf(rgb, scores, SMALL, negligible=0)
    for labels in (4, 2, 1, 4):
        q = crf.marginals(scores[:labels], SMALL.iterations)
        assert np.allclose(q, DenseCRF(halves).marginals(scores[:labels], SMALL.iterations), atol=1e-5)
    assert np.array_equal(q, expected)
    assert np.array_equal(crf.marginals(scores.reshape(4, -1), SMALL.iterations).reshape(q.shape), q)
    assert np.array_equal(crf.marginals(scores, 0), dense_crf(rgb, scores, SMALL._replace(iterations=0), negligible=0))


def test_potts_is_a_matrix(problem):
    rgb, scores = problem
    kernels = photograph_kernels(rgb, SMALL)
    matrices = [kernel._replace(compatibility=-kernel.compatibility * np.eye(4)) for kernel in kernels]
    shifted = [kernel._replace(compatibility=kernel.compatibility * (1 - np.eye(4))) for kernel in kernels]
    expected = DenseCRF(kernels).marginals(scores)
    for same in (matrices, shifted):            # a constant for all pairs changes nothing: K q sums to 1
        assert np.allclose(DenseCRF(same).marginals(scores), expected, atol=1e-5)


def test_a_label_that_is_left_out_takes_its_row_of_the_matrix_along(problem):
    rgb, scores = problem
    scores[1] -= 30                     # e^-30 of the others
    mu = np.abs(np.subtract.outer(range(4), range(4))) / 2.0
    kept = [0, 2, 3]

    def marginals(scores, mu):
        kernels = [kernel._replace(compatibility=mu) for kernel in photograph_kernels(rgb, SMALL)]
        return DenseCRF(kernels).marginals(scores, 5, negligible=1e-6)
    q = marginals(scores, mu)
    assert not q[1].any() and np.allclose(q[kept], marginals(scores[kept], mu[np.ix_(kept, kept)]), atol=1e-5)


# The reference, on real photographs.

def photograph(name, side):
    from PIL import Image
    image = Image.open(os.path.join(os.path.dirname(__file__), "..", "docs", name)).convert("RGB")
    image.thumbnail((side, side))
    return np.array(image)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ["chelsea.jpg", "motorcycle.jpg"])
def test_the_same_as_pydensecrf(name, preset):
    pytest.importorskip("pydensecrf")
    rgb = photograph(name, 240)
    scores = smooth_scores(np.random.default_rng(0), 6, *rgb.shape[:2])
    q = dense_crf(rgb, scores, preset, negligible=0)
    expected = dense_crf(rgb, scores, preset, negligible=0, engine="pydensecrf")
    assert (q.argmax(axis=0) == expected.argmax(axis=0)).mean() > 0.999
    assert distance(q, expected) < 1e-4
    assert distance(softmax(scores, axis=0), expected) > 0.01               # else the test proves nothing


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 40), st.sampled_from(sorted(PRESETS)), st.integers(0, 99))
def test_any_shape_is_that_of_pydensecrf(height, width, labels, preset, seed):
    pytest.importorskip("pydensecrf")
    rng = np.random.default_rng(seed)
    rgb, scores = picture(rng, height, width), rng.normal(size=(labels, height, width)).astype(np.float32)
    q = dense_crf(rgb, scores, preset, negligible=0)
    expected = dense_crf(rgb, scores, preset, negligible=0, engine="pydensecrf")
    # where a point lies on the border of two simplices, rounding decides which vertices there are
    assert np.abs(q - expected).max() < 0.1 and distance(q, expected) < 1e-3


def test_a_compatibility_matrix_is_that_of_pydensecrf():
    dcrf = pytest.importorskip("pydensecrf.densecrf")
    rng = np.random.default_rng(0)
    rgb, scores = picture(rng, 40, 50), smooth_scores(rng, 4, 40, 50)
    mu = np.abs(np.subtract.outer(range(4), range(4))).astype(np.float32)
    theirs = dcrf.DenseCRF2D(50, 40, 4)
    theirs.setUnaryEnergy(np.ascontiguousarray(-scores.reshape(4, -1)))
    theirs.addPairwiseBilateral(6, 30, rgb, mu, dcrf.DIAG_KERNEL, dcrf.NORMALIZE_AFTER)
    expected = np.reshape(theirs.inference(5), scores.shape)
    q = DenseCRF([photograph_kernels(rgb, SMALL)[1]._replace(compatibility=mu)]).marginals(scores, 5)
    assert np.allclose(q, expected, atol=1e-3)


# Properties.

def test_constants_labels_and_mirrors(problem):
    rgb, scores = problem
    q = dense_crf(rgb, scores, SMALL)
    rng = np.random.default_rng(0)
    shift = rng.normal(0, 100, scores.shape[1:])
    assert np.allclose(dense_crf(rgb, scores.astype(float) + shift, SMALL), q, atol=1e-5)
    order = rng.permutation(len(scores))
    assert np.allclose(dense_crf(rgb, scores[order], SMALL), q[order], atol=1e-5)
    # the lattice lies differently under a mirror image: equal to its error
    effect = distance(q, softmax(scores, axis=0))
    for axis in (0, 1):
        mirrored = np.flip(dense_crf(np.flip(rgb, axis), np.flip(scores, axis + 1), SMALL), axis + 1)
        assert distance(mirrored, q) < 0.08 * effect


@pytest.mark.parametrize("labels", [2, 4, 7, 13, 21, 32, 45])
def test_padding_and_other_labels_change_nothing(labels):
    """Labels that cannot win take no part, whatever the width of a row."""
    rng = np.random.default_rng(labels)
    rgb, scores = picture(rng, 15, 22), smooth_scores(rng, labels, 15, 22)
    more = np.concatenate([scores, np.full((9, 15, 22), -200, np.float32)])
    q = dense_crf(rgb, more, SMALL, negligible=0)
    assert (q[labels:] == 0).all()
    assert np.allclose(q[:labels], dense_crf(rgb, scores, SMALL, negligible=0), atol=1e-6)


@pytest.mark.parametrize("labels", [3, 8, 21, 40])
def test_threads_give_the_same_bits(labels):
    rng = np.random.default_rng(labels)
    rgb, scores = picture(rng, 130, 201), smooth_scores(rng, labels, 130, 201)
    one = dense_crf(rgb, scores, "authors", threads=1)
    for threads in (2, 3, 8, 10 ** 6):
        assert np.array_equal(dense_crf(rgb, scores, "authors", threads=threads), one)
    matrix = [kernel._replace(compatibility=1 - np.eye(labels)) for kernel in photograph_kernels(rgb, SMALL)]
    assert np.array_equal(DenseCRF(matrix, threads=3).marginals(scores), DenseCRF(matrix, threads=1).marginals(scores))


def test_a_batch_gives_the_same_bits():
    rng = np.random.default_rng(0)
    shapes = [(20, 30), (31, 7), (1, 1), (50, 50), (20, 30)]
    photographs = [picture(rng, *shape) for shape in shapes]
    scores = [smooth_scores(rng, 3, *shape) if shape != (1, 1) else np.zeros((3, 1, 1)) for shape in shapes]
    for threads in (0, 1, 3):
        for q, rgb, f in zip(dense_crf_batch(photographs, scores, SMALL, threads=threads), photographs, scores):
            assert np.array_equal(q, dense_crf(rgb, f, SMALL))
    with pytest.raises(ValueError, match="5 photographs, 4 scores"):
        dense_crf_batch(photographs, scores[:4], SMALL)


# The ends of the ranges.

def test_one_pixel_and_one_label():
    q = dense_crf(np.full((1, 1, 3), 9, np.uint8), np.array([1.0, 2, 0])[:, None, None], SMALL)
    assert np.allclose(q.ravel(), crf_oracle.all_pairs(np.array([[1.0], [2], [0]]),
                                                       [(np.zeros((1, 1)), 5, "after")], SMALL.iterations).ravel())
    assert (dense_crf(np.zeros((4, 5, 3), np.uint8), np.zeros((1, 4, 5)), SMALL) == 1).all()


def test_very_many_labels():
    rng = np.random.default_rng(0)
    rgb, scores = picture(rng, 12, 13), rng.normal(size=(300, 12, 13))
    gaussian, bilateral = crf_oracle.photograph_features(rgb, SMALL)
    exact = crf_oracle.all_pairs(scores, [(gaussian, 2, "after"), (bilateral, 3, "after")], 4)
    assert np.abs(dense_crf(rgb, scores, SMALL, negligible=0) - exact).sum(axis=0).mean() < 0.01


def test_enormous_distances_average_a_million_pixels():
    """float32 sums of a million terms: the parts keep them exact."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 1000, 1000)).astype(np.float32)
    preset = Preset(9000, 1e-6, 9000, 9000, 4, 2)
    rgb = np.full((1000, 1000, 3), 77, np.uint8)
    f, q = scores.astype(float), softmax(scores.astype(float), axis=0)
    for _ in range(2):
        q = softmax(f + 4 * q.mean(axis=(1, 2), keepdims=True), axis=0)
    assert np.abs(dense_crf(rgb, scores, preset) - q).max() < 2e-4


@pytest.mark.parametrize("distance_", [0.05, 1e-3, 1e-30])
def test_tiny_distances_tie_equal_colours_only(distance_):
    """Pixels at other places do not count, so each is a group of its own: K is the identity."""
    rng = np.random.default_rng(0)
    rgb, scores = picture(rng, 20, 25), smooth_scores(rng, 3, 20, 25)
    preset = SMALL._replace(gaussian_xy=distance_, bilateral_xy=distance_, bilateral_rgb=distance_)
    q = softmax(scores, axis=0)
    for _ in range(SMALL.iterations):
        q = softmax(scores + 5 * q, axis=0)
    assert np.allclose(dense_crf(rgb, scores, preset), q, atol=1e-4)


def test_extreme_scores_and_weights():
    rng = np.random.default_rng(0)
    rgb, scores = picture(rng, 20, 25), smooth_scores(rng, 3, 20, 25)
    best = scores.argmax(axis=0)
    for many in (scores * 1e37, scores.astype(float) * 1e300):
        q = dense_crf(rgb, many, SMALL._replace(iterations=1))
        assert np.isfinite(q).all() and (q.argmax(axis=0) == best).all()
    q = dense_crf(rgb, scores, SMALL._replace(gaussian_weight=9999, bilateral_weight=9999, iterations=100))
    assert np.isfinite(q).all() and np.allclose(q.sum(axis=0), 1, atol=1e-5)


# Wrong input.

FEATURES, SCORES = np.zeros((2, 30)), np.zeros((3, 30))


@pytest.mark.parametrize("kernels, scores, complaint", [
    ([], SCORES, "no kernels"),
    ([Kernel(FEATURES, 1)] * 17, SCORES, "1 to 16 kernels, got 17"),
    ([Kernel(FEATURES, 1), Kernel(FEATURES[:, :9], 1)], SCORES, r"same number of pixels, got \[9, 30\]"),
    ([Kernel(np.zeros(30), 1)], SCORES, "d x n"),
    ([Kernel(np.zeros((9, 30)), 1)], SCORES, r"at most 8; got float64 of shape \(9, 30\)"),
    ([Kernel(np.zeros((2, 0)), 1)], SCORES, "d x n"),
    ([Kernel(FEATURES.astype(complex), 1)], SCORES, "complex128"),
    ([Kernel(FEATURES + np.nan, 1)], SCORES, "finite.*got nan"),
    ([Kernel(FEATURES - 1e5, 1)], SCORES, "got 100000: give the kernel larger distances"),
    ([Kernel(FEATURES, np.nan)], SCORES, "compatibility must be a finite number"),
    ([Kernel(FEATURES, 1e31)], SCORES, "compatibility must be a finite number"),
    ([Kernel(FEATURES, "3")], SCORES, "compatibility must be a finite number"),
    ([Kernel(FEATURES, np.zeros(3))], SCORES, "L x L"),
    ([Kernel(FEATURES, np.zeros((2, 3)))], SCORES, "symmetric"),
    ([Kernel(FEATURES, np.triu(np.ones((3, 3))))], SCORES, "symmetric"),
    ([Kernel(FEATURES, np.zeros((2, 2)))], SCORES, r"must be 3 x 3.*got \(2, 2\)"),
    ([Kernel(FEATURES, 1, "before")], SCORES, "after, symmetric, got 'before'"),
    ([Kernel(FEATURES, 1)], SCORES[:, :29], r"L x 30 .*got \(3, 29\)"),
    ([Kernel(FEATURES, 1)], SCORES[0], r"got \(30,\)"),
    ([Kernel(FEATURES, 1)], SCORES[:0], r"got \(0, 30\)"),
    ([Kernel(FEATURES, 1)], SCORES.astype(str), "numbers"),
    ([Kernel(FEATURES, 1)], np.where(np.eye(3, 30) > 0, np.nan, 0), "3 NaN or infinite"),
    ([Kernel(FEATURES, 1)], np.where(np.eye(3, 30) > 0, np.inf, 0).astype(np.float32), "3 NaN or infinite"),
])
def test_wrong_kernels_and_scores_are_refused(kernels, scores, complaint):
    with pytest.raises(ValueError, match=complaint):
        DenseCRF(kernels).marginals(scores)


@pytest.mark.parametrize("options, complaint", [
    ({"preset": "autors"}, "one of authors, untuned"), ({"preset": (3, 3, 60, 20, 10, 10)}, "must be a Preset"),
    ({"preset": None}, "must be a Preset"), ({"threads": -1}, "threads"), ({"threads": 1.5}, "threads"),
    ({"negligible": 1.1}, "negligible"), ({"negligible": np.nan}, "negligible"), ({"negligible": -1}, "negligible"),
    ({"engine": "caffe"}, "one of ccnn, pydensecrf; got 'caffe'"),
])
def test_wrong_options_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        dense_crf(np.zeros((4, 5, 3), np.uint8), np.zeros((2, 4, 5)), **options)
    for iterations in (-1, 2.5, True, 10 ** 10):
        with pytest.raises(ValueError, match="iterations"):
            DenseCRF([Kernel(FEATURES, 1)]).marginals(SCORES, iterations)


def test_without_pydensecrf_the_engine_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydensecrf.densecrf", None)
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match="pip install pydensecrf2"):
        dense_crf(picture(rng, 4, 5), rng.normal(size=(2, 4, 5)), engine="pydensecrf")
    assert list(ENGINES) == ["ccnn", "pydensecrf"]


def test_it_can_be_interrupted(tmp_path):
    """^C ends a call that would take hours, on one thread and on several."""
    code = """if True:
        import numpy as np, sys
        from ccnn.crf import DenseCRF, Kernel
        crf = DenseCRF([Kernel(np.random.default_rng(0).normal(size=(2, 300, 300)), 1)], threads=int(sys.argv[1]))
        print("ready", flush=True)
        crf.marginals(np.zeros((5, 300, 300)), 10 ** 7)
    """
    for threads in "1", "3":
        with subprocess.Popen([sys.executable, "-c", code, threads], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, cwd=tmp_path) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            assert "KeyboardInterrupt" in process.communicate(timeout=120)[1]
