"""The dense CRF against all pairs of pixels."""
import json

import crf_oracle
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.special import softmax

import ccnn
from ccnn._util.errors import UserError
from ccnn.crf import dense as crf

GAUSSIAN = crf.Preset(gaussian_xy=4, gaussian_weight=3, bilateral_xy=10, bilateral_rgb=30, bilateral_weight=1e-3,
                      iterations=3)
BILATERAL = GAUSSIAN._replace(gaussian_weight=1e-3, bilateral_weight=3)
BOTH = GAUSSIAN._replace(gaussian_xy=3, gaussian_weight=2, bilateral_weight=3)


def all_pairs(rgb, scores, preset, normalization="after"):
    """The published mean field, by brute force."""
    gaussian, bilateral = crf_oracle.photograph_features(rgb, preset)
    return crf_oracle.all_pairs(scores, [(gaussian, preset.gaussian_weight, normalization),
                                         (bilateral, preset.bilateral_weight, normalization)], preset.iterations)


@pytest.fixture(params=range(3))
def problem(request):
    """A picture whose colours are crowded at one end, so that normalisation matters, and smooth scores."""
    rng = np.random.default_rng(request.param)
    height, width = 20, 30
    t = np.linspace(0, 1, width) ** 3
    rgb = np.stack([20 + 200 * t, 60 + 0 * t, 200 - 100 * t], axis=-1) + rng.normal(0, 3, (height, width, 3))
    scores = gaussian_filter(rng.normal(size=(4, height, width)), (0, 2, 2))
    return rgb.clip(0, 255).astype(np.uint8), (scores / scores.std()).astype(np.float32)


def distance(p, q):
    return np.abs(p - q).mean()


# The library filters on a permutohedral lattice, which approximates the gaussian by some percent: marginals may
# differ by TOLERANCE on the average (measured: up to 0.0047 for one kernel, 0.0081 for both). The next test
# has a problem on which the lattice is exact.
TOLERANCE = 0.009


@pytest.mark.parametrize("preset", [GAUSSIAN, BILATERAL, BOTH], ids=["gaussian", "bilateral", "both"])
def test_marginals_are_those_of_all_pairs(problem, preset):
    q = crf.dense_crf(*problem, preset)
    assert distance(q, all_pairs(*problem, preset)) < TOLERANCE
    assert q.dtype == np.float32 and np.allclose(q.sum(axis=0), 1, atol=1e-5)

    # other parameters are farther away: else the test proves nothing
    main, other = ("gaussian", "bilateral") if preset is GAUSSIAN else ("bilateral", "gaussian")
    for wrong in (
        preset._replace(iterations=0),
        preset._replace(gaussian_weight=preset.bilateral_weight, bilateral_weight=preset.gaussian_weight),
        preset._replace(gaussian_xy=preset.bilateral_xy, bilateral_xy=preset.gaussian_xy),
        preset._replace(**{f"{main}_weight": 3 * getattr(preset, f"{main}_weight")}),
    ):
        assert distance(q, all_pairs(*problem, wrong)) > 1.5 * TOLERANCE


def test_normalisation_is_after_filtering(problem):
    """Scores that are the same everywhere: K q = q exactly, on the lattice too, if the rows of K sum to 1."""
    rgb, _ = problem
    scores = np.broadcast_to(np.array([1, 0.5, 0, 0], np.float32)[:, None, None], (4, *rgb.shape[:2]))
    for preset in (GAUSSIAN, BILATERAL):
        q = crf.dense_crf(rgb, scores, preset)
        assert np.allclose(q, all_pairs(rgb, scores, preset), atol=1e-4)
        for wrong in ("symmetric", "before"):
            assert np.abs(q - all_pairs(rgb, scores, preset, wrong)).max() > 0.02
    # and the preset that says so is normalised symmetrically
    q = crf.dense_crf(rgb, scores, GAUSSIAN._replace(normalization="symmetric"))
    symmetric, after = all_pairs(rgb, scores, GAUSSIAN, "symmetric"), all_pairs(rgb, scores, GAUSSIAN)
    assert distance(q, symmetric) < distance(q, after) / 2


def test_memory_layout_type_and_constants_do_not_matter(problem):
    rgb, scores = problem
    q = crf.dense_crf(rgb, scores, BOTH)
    readonly = rgb.copy()
    readonly.flags.writeable = False
    labels_last = np.ascontiguousarray(scores.transpose(1, 2, 0)).transpose(2, 0, 1)
    for other_rgb, other_scores in (
        (np.asfortranarray(rgb), np.asfortranarray(scores)),
        (readonly, labels_last),
        (rgb[:, ::-1][:, ::-1], scores.astype(np.float64) + 1000 * np.arange(30)),
        (rgb, np.log(softmax(scores, axis=0))),
    ):
        assert np.allclose(crf.dense_crf(other_rgb, other_scores, BOTH), q, atol=1e-4)
    assert scores is problem[1] and np.array_equal(rgb, problem[0])


def test_negligible_labels_stay_out(problem):
    """Of eight labels three are nowhere as much as 0.02 times as likely as the best."""
    rgb, scores = problem
    # at most exp(-4.5) = 0.011 times as likely as the best
    faint = scores.max(axis=0) - 4.5 - np.abs(scores[:3])
    faint[:, 7, 9] = scores[:, 7, 9].max() - 4.5
    entering = faint[:1] + 0.8                              # at most 0.025 times
    many = np.concatenate([faint[:1], scores, entering, faint[1:]])
    inside = slice(1, 6)
    pruned, every = crf.dense_crf(rgb, many, BOTH), crf.dense_crf(rgb, many, BOTH, negligible=0)
    assert (pruned[[0, 6, 7]] == 0).all() and (pruned[inside] > 0).all() and (every > 0).all()
    assert np.allclose(pruned.sum(axis=0), 1, atol=1e-4)
    # the others are those of mean field without the three, and the labels stay
    assert np.array_equal(pruned[inside], crf.dense_crf(rgb, many[inside], BOTH))
    assert (pruned.argmax(axis=0) == every.argmax(axis=0)).mean() > 0.995
    assert distance(every, all_pairs(rgb, many, BOTH)) < TOLERANCE      # 0 is the published mean field

    # a photograph of one label
    alone = np.concatenate([scores[:1] + 100, scores])
    assert np.array_equal(crf.dense_crf(rgb, alone, BOTH), np.eye(5)[0][:, None, None] * np.ones(rgb.shape[:2]))


def test_distances_scale_with_the_photograph(problem):
    twice = BOTH._replace(gaussian_xy=2 * BOTH.gaussian_xy, bilateral_xy=2 * BOTH.bilateral_xy)
    scaled = crf.dense_crf(*problem, BOTH._replace(long_side=15))           # the photograph has 30 pixels
    assert np.array_equal(scaled, crf.dense_crf(*problem, twice))
    assert distance(scaled, crf.dense_crf(*problem, BOTH)) > TOLERANCE


STRONG = crf.Preset(gaussian_xy=3, gaussian_weight=3, bilateral_xy=60, bilateral_rgb=20, bilateral_weight=10,
                    iterations=10)


@pytest.fixture
def street():
    """A photograph of one colour, of which the scores say: label 1 in a thin stripe, label 2 in a small square, label 3
    in a large part, label 4 in a small part but nowhere with more than half of the probability."""
    rng = np.random.default_rng(0)
    labels = np.zeros((60, 80), int)
    labels[10:13, 5:60] = 1
    labels[20:28, 10:18] = 2
    labels[40:, :] = 3
    labels[2:8, 60:75] = 4
    scores = 0.8 * (labels == np.arange(5)[:, None, None]) + rng.normal(0, 0.05, (5, 60, 80))
    scores[:4] += np.where((labels > 0) & (labels < 4), 2, 0) * (labels == np.arange(4)[:, None, None])
    scores[0] += np.where(labels == 0, 2, 0)
    rgb = np.full((60, 80, 3), 100, np.uint8)
    rgb[40:] = 200
    return rgb, scores.astype(np.float32), labels


def test_sharpen_keeps_objects_and_tells(street):
    rgb, scores, labels = street
    assert np.array_equal(scores.argmax(axis=0), labels)
    plain = crf.dense_crf(rgb, scores, STRONG)
    gone = [1, 2, 4]
    assert not np.isin(plain.argmax(axis=0), gone).any()                # else the test proves nothing

    # 1. without a bound: what dense_crf gives, and what it removed
    q, lost = crf.sharpen(rgb, scores, STRONG)
    assert np.array_equal(q, plain) and lost == dict.fromkeys(gone, False)

    # 2. with one: that much of each, where it was, and no more; the net was unsure of label 4
    for keep in (0.3, 0.7, 1):
        q, lost = crf.sharpen(rgb, scores, STRONG._replace(keep=keep))
        assert lost == {1: True, 2: True, 4: False}
        found, in_file = q.argmax(axis=0), q.astype(np.float16).argmax(axis=0)      # as probabilities are saved
        for label in (1, 2):
            share, saved = ((mask[labels == label] == label).mean() for mask in (found, in_file))
            assert keep <= saved <= share < keep + 0.1
            assert (labels[found == label] == label).all()
        elsewhere = ~np.isin(labels, (1, 2))
        assert np.array_equal(q[:, elsewhere], plain[:, elsewhere])
        assert np.allclose(q.sum(axis=0), 1, atol=1e-4)
        saved = q.astype(np.float16).argmax(axis=0)         # as probabilities are saved: ties may fall otherwise
        assert ((saved == 1) == (found == 1)).mean() > 0.99

    # 3. where nothing is lost, nothing is changed
    q, lost = crf.sharpen(rgb, scores, STRONG._replace(gaussian_weight=0.1, bilateral_weight=0.1, keep=0.7))
    assert lost == {}
    assert np.array_equal(q, crf.dense_crf(rgb, scores, STRONG._replace(gaussian_weight=0.1, bilateral_weight=0.1)))


def test_what_is_kept_is_the_nearest_distribution(street):
    """By the certified solver: of all p in which the labels have as much of their objects, none is nearer to q."""
    rgb, scores, labels = street
    q = crf.dense_crf(rgb, scores, STRONG)
    kept = q.copy()
    assert crf.keep_objects(kept, scores, 0.5) == [1, 2]
    regions = np.array([(labels == label).ravel() for label in (1, 2)], float)
    share = [(kept[label].ravel() * region).mean() for label, region in zip((1, 2), regions)]
    rows = ccnn.Constraints(np.eye(5)[[1, 2]], share, [np.inf, np.inf], None, regions)
    solution = ccnn.maximize(np.log(q.reshape(5, -1).astype(float)), rows)
    assert solution.status == "optimal" and (solution.lam > 0).all()
    assert np.allclose(solution.p, kept.reshape(5, -1), atol=1e-5)


def test_a_label_that_mean_field_rounds_to_nothing_is_kept(street):
    rgb, scores, labels = street
    preset = STRONG._replace(bilateral_weight=500)
    assert (crf.dense_crf(rgb, scores, preset)[1] == 0).all()
    q, lost = crf.sharpen(rgb, scores, preset._replace(keep=0.3))
    assert lost[1] and np.isfinite(q).all() and np.allclose(q.sum(axis=0), 1, atol=1e-4)
    assert (q.argmax(axis=0)[labels == 1] == 1).mean() >= 0.3


@pytest.mark.parametrize("rgb, scores, complaint", [
    (np.zeros((4, 5, 3)), np.zeros((2, 4, 5)), "uint8"),
    (np.zeros((4, 5), np.uint8), np.zeros((2, 4, 5)), "H x W x 3"),
    (np.zeros((4, 5, 4), np.uint8), np.zeros((2, 4, 5)), "H x W x 3"),
    (np.zeros((4, 5, 3), np.uint8), np.zeros((2, 5, 4)), "L x 4 x 5"),
    (np.zeros((4, 5, 3), np.uint8), np.zeros((2, 20)), "L x 4 x 5"),
    (np.zeros((4, 5, 3), np.uint8), np.zeros((0, 4, 5)), "L x 4 x 5"),
    (np.zeros((4, 5, 3), np.uint8), np.full((2, 4, 5), np.nan), "40 NaN"),
    (np.zeros((4, 5, 3), np.uint8), np.where(np.arange(40).reshape(2, 4, 5) == 7, -np.inf, 0), "1 NaN or inf"),
])
def test_wrong_arrays_are_refused(rgb, scores, complaint):
    with pytest.raises(ValueError, match=complaint):
        crf.dense_crf(rgb, scores, BOTH)


@pytest.mark.parametrize("change", [
    {"gaussian_xy": 0}, {"bilateral_rgb": -1}, {"bilateral_xy": np.nan}, {"gaussian_weight": "3"}, {"iterations": 2.5},
    {"iterations": -1}, {"normalization": "sideways"}, {"bilateral_weight": None}, {"long_side": 32.5},
    {"long_side": -1}, {"keep": -0.1}, {"keep": 1.1}, {"keep": np.nan}, {"keep": True}, {"keep": "0.3"},
])
def test_wrong_parameters_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        crf.dense_crf(np.zeros((4, 5, 3), np.uint8), np.zeros((2, 4, 5)), BOTH._replace(**change))


def test_presets_are_those_of_the_publications():
    plain = 0, 0                                            # distances do not scale, nothing is bounded
    assert crf.load_preset("authors") == (3, 3, 60, 20, 10, 10, "after", *plain)
    assert crf.load_preset("untuned") == (6, 6, 50, 4, 5, 10, "after", *plain)
    assert crf.load_preset("tuned") == (19, 15, 61, 10, 35, 10, "after", *plain)
    assert crf.load_preset("pydensecrf") == (3, 3, 80, 13, 10, 5, "symmetric", *plain)
    with pytest.raises(UserError, match="authors, untuned, tuned"):
        crf.load_preset("autors")


def test_a_preset_file_without_bound_stays_the_plain_crf(tmp_path):
    """Files that were written before there was one."""
    old = {"gaussian_xy": 3, "gaussian_weight": 3, "bilateral_xy": 30, "bilateral_rgb": 8, "bilateral_weight": 10,
           "iterations": 10, "normalization": "after"}
    (tmp_path / "p.json").write_text(json.dumps({"preset": old}))
    assert crf.load_preset(str(tmp_path / "p.json")) == (*old.values(), 0, 0)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"preset": {"gaussian_xy": 3}}', '{"preset": 3}', "\0"])
def test_a_wrong_preset_file_is_refused(text, tmp_path):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(UserError, match="p.json: not a"):
        crf.load_preset(str(tmp_path / "p.json"))
