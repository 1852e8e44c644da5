"""tools/crf.py against all pairs of pixels, and its search for parameters."""
import json

import crf as crf_tool
import numpy as np
import pytest
import tune_crf
from PIL import Image
from scipy.ndimage import gaussian_filter
from scipy.special import softmax
from tiny_voc import make_voc

from ccnn import crf, crf_search, grid
from ccnn.errors import UserError

GAUSSIAN = crf.Preset(gaussian_xy=4, gaussian_weight=3, bilateral_xy=10, bilateral_rgb=30, bilateral_weight=1e-3,
                      iterations=3)
BILATERAL = GAUSSIAN._replace(gaussian_weight=1e-3, bilateral_weight=3)
BOTH = GAUSSIAN._replace(gaussian_xy=3, gaussian_weight=2, bilateral_weight=3)


def all_pairs(rgb, scores, preset, normalization="after"):
    """The published mean field, every kernel as an n x n matrix, float64.

    q <- softmax(f + sum_k w_k K_k q),  K_k(i, j) = exp(-|feature_i - feature_j|^2 / 2) over its normalisation
    """
    labels, height, width = scores.shape
    y, x = (v.ravel() for v in np.mgrid[:height, :width].astype(float))
    r, g, b = rgb.reshape(-1, 3).T.astype(float)

    def kernel(*features):
        k = np.exp(-sum((v[:, None] - v) ** 2 for v in features) / 2)
        total = k.sum(axis=1)               # the pixel itself included, as in the published code
        return {"after": k / total[:, None], "before": k / total,
                "symmetric": k / np.sqrt(total[:, None] * total)}[normalization]
    xy, rgb_ = preset.bilateral_xy, preset.bilateral_rgb
    K = (preset.gaussian_weight * kernel(x / preset.gaussian_xy, y / preset.gaussian_xy)
         + preset.bilateral_weight * kernel(x / xy, y / xy, r / rgb_, g / rgb_, b / rgb_))
    f = scores.reshape(labels, -1).astype(float)
    q = softmax(f, axis=0)
    for _ in range(preset.iterations):
        q = softmax(f + q @ K.T, axis=0)
    return q.reshape(scores.shape)


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
# differ by TOLERANCE on the average (measured: up to 0.0047 for one kernel, 0.0081 for both). The next two tests
# have problems on which the lattice is exact.
TOLERANCE = 0.009


@pytest.mark.parametrize("preset", [GAUSSIAN, BILATERAL, BOTH], ids=["gaussian", "bilateral", "both"])
def test_marginals_are_those_of_all_pairs(problem, preset):
    q = crf.dense_crf(*problem, preset)
    assert distance(q, all_pairs(*problem, preset)) < TOLERANCE
    assert np.allclose(q.sum(axis=0), 1, atol=1e-4)

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


@pytest.mark.parametrize("channel", range(3))
def test_colours_keep_pixels_apart(problem, channel):
    """Two colours far apart, at distances that do not matter: the bilateral kernel averages each colour, exactly."""
    _, scores = problem
    rgb = np.full((*scores.shape[1:], 3), 100, np.uint8)
    rgb[3:17, 5:20, channel] = 250
    preset = crf.Preset(gaussian_xy=3, gaussian_weight=1e-6, bilateral_xy=5000, bilateral_rgb=10, bilateral_weight=2,
                        iterations=4)
    q = crf.dense_crf(rgb, scores, preset)
    assert np.allclose(q, all_pairs(rgb, scores, preset), atol=2e-3)
    assert np.abs(q - all_pairs(rgb[:, ::-1], scores, preset)).max() > 0.05


def test_no_iterations_are_the_softmax(problem):
    q = crf.dense_crf(*problem, BOTH._replace(iterations=0))
    assert np.allclose(q, softmax(problem[1], axis=0), atol=1e-6)


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
    {"iterations": -1}, {"normalization": "sideways"}, {"bilateral_weight": None},
])
def test_wrong_parameters_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        crf.dense_crf(np.zeros((4, 5, 3), np.uint8), np.zeros((2, 4, 5)), BOTH._replace(**change))


def test_presets_are_those_of_the_publications():
    assert crf.load_preset("authors") == (3, 3, 60, 20, 10, 10, "after")
    assert crf.load_preset("untuned") == (6, 6, 50, 4, 5, 10, "after")
    assert crf.load_preset("tuned") == (19, 15, 61, 10, 35, 10, "after")
    assert crf.load_preset("pydensecrf") == (3, 3, 80, 13, 10, 5, "symmetric")
    with pytest.raises(UserError, match="authors, untuned, tuned"):
        crf.load_preset("autors")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"preset": {"gaussian_xy": 3}}', '{"preset": 3}', "\0"])
def test_a_wrong_preset_file_is_refused(text, tmp_path):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(UserError, match="p.json: not a"):
        crf.load_preset(str(tmp_path / "p.json"))


# --- resampling ----------------------------------------------------------------------------------------------

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


# --- the command ---------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A VOC folder, and for every image rough probabilities: its mask, blurred and doubted."""
    root = make_voc(tmp_path_factory.mktemp("voc"), images=3, size=(48, 40))
    rng = np.random.default_rng(0)
    for path in sorted((root / "SegmentationClass").iterdir()):
        mask = np.array(Image.open(path))
        f = np.stack([gaussian_filter((mask == l) * 4.0, 3) for l in range(21)]) + rng.normal(0, 0.3, (21, *mask.shape))
        (root / "probabilities").mkdir(exist_ok=True)
        np.savez(root / f"probabilities/{path.stem}.npz", probabilities=softmax(f, axis=0).astype(np.float16), crf="")
    return root


def arguments(root, out, *more):
    return [str(root / "probabilities"), "--images", str(root / "JPEGImages"), "--out", str(out), "--jobs", "1", *more]


def test_the_command_writes_one_mask_per_file_and_resumes(saved, tmp_path, caplog):
    caplog.set_level("INFO")
    assert crf_tool.main(arguments(saved, tmp_path / "out")) == 0
    for path in sorted((saved / "probabilities").iterdir()):
        with Image.open(tmp_path / f"out/{path.stem}.png") as image:
            assert image.mode == "P" and image.size == (48, 40) and image.getpalette()[3:6] == [128, 0, 0]
            p = np.load(path)["probabilities"].astype(np.float32)
            rgb = np.array(Image.open(saved / f"JPEGImages/{path.stem}.jpg"))
            expected = crf.dense_crf(rgb, np.log(p), crf.PRESETS["authors"]).argmax(axis=0)
            assert (np.array(image) == expected).mean() > 0.995
            assert (np.array(image) != p.argmax(axis=0)).any()          # the CRF did something
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert crf_tool.main(arguments(saved, tmp_path / "out")) == 0
    assert "3 of 3 were finished before" in caplog.text
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    with pytest.raises(UserError, match="made otherwise.*--force"):
        crf_tool.main(arguments(saved, tmp_path / "out", "--preset", "tuned"))
    assert crf_tool.main(arguments(saved, tmp_path / "out", "--preset", "tuned", "--force")) == 0
    assert "replacing 3 files" in caplog.text


@pytest.mark.parametrize("content, complaint", [
    (b"PK\x03\x04 not really", "holds no probabilities"),
    (dict(p=np.zeros(3)), "holds no probabilities"),
    (dict(probabilities=np.zeros((40, 48))), "L x height x width"),
    (dict(probabilities=np.zeros((2, 40, 48))), "sum to 1"),
    (dict(probabilities=np.full((2, 40, 48), np.nan)), "sum to 1"),
    (dict(probabilities=np.full((2, 48, 40), 0.5)), "not the shape of"),
    (dict(probabilities=np.full((2, 40, 48), 0.5), crf="tuned"), "went through the CRF before"),
])
def test_a_wrong_file_is_named_at_the_end_and_the_rest_done(saved, tmp_path, capsys, content, complaint):
    bad = tmp_path / "2007_000001.npz"
    bad.write_bytes(content) if isinstance(content, bytes) else np.savez(bad, **content)
    status = crf_tool.main([str(bad), str(saved / "probabilities/2007_000002.npz"), "--images", str(saved / "JPEGImages"),
                       "--out", str(tmp_path / "out"), "--jobs", "1"])
    assert status == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["2007_000002.png"]
    error = capsys.readouterr().err
    assert str(bad) in error and complaint in error and "1 failed" in error


# --- the search ----------------------------------------------------------------------------------------------

@pytest.fixture
def small_search(monkeypatch):
    monkeypatch.setattr(crf_search, "STEPS", {"bilateral_weight": 1, "bilateral_xy": 5, "bilateral_rgb": 1})
    monkeypatch.setattr(crf_search, "COARSE", {"bilateral_weight": (5,), "bilateral_xy": (5, 15), "bilateral_rgb": (3,)})


def test_the_search_ends_where_no_neighbour_is_better(saved, tmp_path, small_search, capsys):
    out = tmp_path / "mine.json"
    args = arguments(saved, out, "--masks", str(saved / "SegmentationClass"), "--count", "2")
    tune_crf.main(args)
    kept = json.loads(out.read_text())
    miou = {preset and crf.Preset(**preset): value for preset, value in kept["tried"]}
    best = crf.load_preset(str(out))                                    # usable wherever a preset is
    assert all(miou[best] >= miou[other] for other in crf_search.neighbours(best))
    assert all(miou[best] >= miou[point] for point in crf_search.combinations(crf_search.COARSE))
    assert miou[None] != miou[best] and kept["images"] == 2
    assert f"{miou[best]:6.2f}  {out}" in capsys.readouterr().out

    # the number is the mIoU of what the command makes with that preset
    crf_tool.main(arguments(saved, tmp_path / "masks", "--preset", str(out)))
    C = np.zeros((21, 21), int)
    for stem in ("2007_000000", "2007_000001"):
        truth = np.array(Image.open(saved / f"SegmentationClass/{stem}.png"))
        found = np.array(Image.open(tmp_path / f"masks/{stem}.png"))
        np.add.at(C, (truth[truth != 255], found[truth != 255]), 1)
    union = C.sum(axis=0) + C.sum(axis=1) - C.diagonal()
    assert miou[best] == pytest.approx(100 * (C.diagonal()[union > 0] / union[union > 0]).mean())


def test_the_search_may_leave_the_coarse_grid(saved, tmp_path, monkeypatch):
    """A hill with its top at weight 1, xy 10, rgb 2: the first two are the smallest that there are."""
    tried = []

    def score(search, presets, what):
        for preset in presets:
            tried.append(preset)
            search.miou[preset] = 0 if preset is None else -sum(
                abs(np.log(value / top)) for value, top in zip(preset[2:5], (10, 2, 1)))
    monkeypatch.setattr(crf_search.Search, "score", score)
    out = tmp_path / "mine.json"
    tune_crf.main(arguments(saved, out, "--masks", str(saved / "SegmentationClass"), "--count", "1"))
    assert crf.load_preset(str(out))[2:5] == (10, 2, 1)
    assert all(crf.check_preset(preset) for preset in tried if preset)


def test_a_stopped_search_goes_on_and_a_foreign_file_is_kept(saved, tmp_path, small_search, monkeypatch):
    out = tmp_path / "mine.json"
    args = arguments(saved, out, "--masks", str(saved / "SegmentationClass"), "--count", "1")
    calls = []
    real = crf_search.score_one

    def counted(*task):
        calls.append(task)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return real(*task)
    monkeypatch.setattr(crf_search, "score_one", counted)
    with pytest.raises(KeyboardInterrupt):
        tune_crf.main(args)
    with pytest.raises(UserError, match="not a finished"):
        crf.load_preset(str(out))
    first = {str(task[:2]) for task in calls[:6]}
    calls[:] = [None] * 100
    tune_crf.main(args)
    assert not first & {str(task[:2]) for task in calls[100:]}          # nothing is computed twice

    with pytest.raises(UserError, match="other images"):
        tune_crf.main([*args[:-1], "2"])
    out.write_text("precious")
    with pytest.raises(UserError, match="choose another --out"):
        tune_crf.main(args)
    assert out.read_text() == "precious"


def test_the_search_needs_masks(saved, tmp_path, small_search):
    with pytest.raises(UserError, match="3 of the .npz files have a mask.*need 100"):
        tune_crf.main(arguments(saved, tmp_path / "x.json", "--masks", str(saved / "SegmentationClass")))
