"""Shares of the background: the regression, the file, the constraints, and the tool from masks to a net's blob."""
import random

import numpy as np
import pytest
from data_nets import still
from tiny_voc import make_voc, save_mask

import ccnn
from ccnn._util.errors import UserError
from ccnn.cli import guess_shares
from ccnn.data.background_shares import background_share, guess, read_shares, write_shares
from ccnn.data.samples import Samples
from ccnn.images.labels import VOID
from ccnn.images.reading import read_mask
from ccnn.supervision.kinds import SHARE_BLOB, SUPERVISION, share_constraints

# --- the regression

@pytest.mark.parametrize("images, channels", [(6, 20), (30, 5)])
def test_the_guess_solves_the_ridge_regression(images, channels):
    """Probes tell w: an image one standard deviation from the mean in feature j is guessed m + w_j."""
    rng = np.random.default_rng(0)
    seen, shares, ridge = rng.normal(3, 5, (images, channels)), rng.uniform(0.3, 0.7, images), 7
    mean, scale = seen.mean(axis=0), seen.std(axis=0)
    probes = mean + 0.1 * np.diag(scale)
    unseen = rng.normal(3, 5, (4, channels))
    found = guess(np.concatenate([probes, unseen, [mean], seen]),
                  {channels + 5 + k: share for k, share in enumerate(shares)}, ridge)

    m, w = shares.mean(), 10 * (found[:channels] - shares.mean())
    X, y = (seen - mean) / scale, shares - m
    np.testing.assert_allclose(X.T @ (X @ w - y) + ridge * w, 0, atol=1e-9)        # the gradient vanishes
    assert np.abs(w).max() > 1e-3
    np.testing.assert_allclose(found[channels:channels + 4], np.clip(m + (unseen - mean) / scale @ w, 0, 1))
    assert found[channels + 4] == pytest.approx(m)


def test_guesses_are_shares_and_constant_features_say_nothing():
    features = np.array([[0, 5, 1], [1, 5, 1], [2, 5, 1], [100, 5, 1], [-100, 5, 9]], float)
    found = guess(features, {0: 0.2, 1: 0.4, 2: 0.6}, ridge=0.01)
    np.testing.assert_allclose(found, [0.2, 0.4, 0.6, 1, 0], atol=1e-2)
    assert found[3:].tolist() == [1, 0]


# --- the file

def test_a_file_is_read_as_it_was_written(tmp_path):
    shares = {"a": 0.25, "b, c": 0.5, "d": 1.0}
    (tmp_path / "own.csv").write_text('a,0.25\n\n"b, c",.5\nd,1\n')
    assert read_shares(tmp_path / "own.csv", ["d", "a"]) == shares
    write_shares(tmp_path / "new/written.csv", {"a": 0.25, "d": 1})
    assert (tmp_path / "new/written.csv").read_text() == "a,0.250\nd,1.000\n"
    assert read_shares(tmp_path / "new/written.csv", ["a"]) == {"a": 0.25, "d": 1}


@pytest.mark.parametrize("data, complaint", [
    (None, ": No such file or directory; it must have a line `image,share` for every image, as ccnn guess-shares"),
    (b"a,0.1\nb\n", ", line 2: must be the name of an image and a number; got 'b'"),
    (b"a,0.1,0.2\nb,0.1\n", ", line 1: must be the name of an image and a number; got 'a,0.1,0.2'"),
    (b"a,0.1\n\nb,much\n", ", line 3: must be the name of an image and a number; got 'b,much'"),
    (b"a,0.1\nb,1.5\n", ", line 2: a share must be in 0..1; got 1.5"),
    (b"a,0.1\nb,nan\n", ", line 2: a share must be in 0..1; got nan"),
    (b"a,-0.1\nb,1\n", ", line 1: a share must be in 0..1; got -0.1"),
    (b"c,0.1\n", ": has no line for 'a' and 1 more; it must have a line `image,share` for every image"),
    (b"\xff\xfe,0.1\n", "; it must have a line `image,share`"),
])
def test_a_wrong_file_is_named_with_line_and_remedy(tmp_path, data, complaint):
    path = tmp_path / "shares.csv"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UserError) as error:
        read_shares(path, ["a", "b"])
    text = str(error.value)
    assert text.startswith(f"{path}") and complaint in text and "\n" not in text


def test_a_share_is_of_the_labelled_pixels():
    assert background_share(np.array([[0, 0, 0], [7, VOID, VOID]])) == 0.75
    assert background_share(np.full((2, 2), VOID)) == 0


# --- the constraints

@pytest.mark.parametrize("share, margin, low, high", [
    (0.6, 0.05, 0.55, 0.65), (0.02, 0.05, 0, 0.07), (0.97, 0.1, 0.87, 1), (0.5, 0, 0.5, 0.5)])
def test_the_background_covers_about_its_share(share, margin, low, high):
    """From scores that want more background, and from scores that want less."""
    c = share_constraints(np.array([True, True, False, True]), share, margin, fg_lower=0.05, fg_beta=2.0)
    rows = {tuple(row): bound for row, bound in zip(c.A.astype(int).tolist(), c.b)}
    assert rows == pytest.approx({(1, 0, 0, 0): low, (-1, 0, 0, 0): -high, (0, 1, 0, 0): 0.05, (0, 0, 0, 1): 0.05})
    f = np.random.default_rng(0).normal(size=(4, 30))
    for ahead, bound in ((20, high), (-20, low)):
        f[0] = ahead
        p = ccnn.maximize(f, c, tol=1e-8).p.mean(axis=1)
        assert p[0] == pytest.approx(bound, abs=2e-3) and p[2] == 0


def test_an_image_of_background_alone_has_no_upper_bound():
    c = share_constraints(np.array([True, False]), 0.4)
    assert ccnn.maximize(np.zeros((2, 6)), c).p.mean(axis=1).tolist() == [1, 0]


def test_shares_outside_0_to_1_are_refused():
    assert SUPERVISION["share"].blobs[1] is SHARE_BLOB and SHARE_BLOB.read(np.array([0.25])) == 0.25
    for wrong in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="share must be in 0..1; got"):
            SHARE_BLOB.read(np.array([wrong]))


# --- from masks and features to the blob

@pytest.fixture
def place(tmp_path):
    """Eight images; the first of three channels of their features is their share, but for a bend from cell to cell."""
    root = make_voc(tmp_path / "voc", images=8)
    rng = np.random.default_rng(0)
    (tmp_path / "features").mkdir()
    for k, mask in enumerate(sorted((root / "SegmentationClass").glob("*.png"))):
        wide = np.zeros((48, 64), np.uint8)
        wide[:, :6 * k] = 1 + k
        wide[:8] = VOID
        save_mask(mask, wide)
        share = 1 - 6 * k / 64
        cells = rng.normal(size=(3, 6, 8))
        cells[0] = share + np.linspace(-1, 1, 8)
        np.save(tmp_path / f"features/{mask.stem}.npy", cells.astype(np.float16))
    return tmp_path


def tool(place, *options):
    guess_shares.main([str(place / "voc"), "--split", "train", "--features", str(place / "features"),
                       "--out", str(place / "shares.csv"), *map(str, options)])


def test_the_tool_guesses_from_a_few_masks(place, capsys):
    tool(place, "--masks", 5, "--seed", 3)
    assert capsys.readouterr().out == f"{place / 'shares.csv'}\n"
    names = [f"2007_{k:06d}" for k in range(8)]
    found = read_shares(place / "shares.csv", names)
    assert list(found) == names

    # the same by the other formula of ridge regression: w = (X'X + ridge)^-1 X'y
    known = [names.index(name) for name in random.Random(3).sample(names, 5)]
    means = np.array([np.load(place / f"features/{name}.npy").astype(float).mean(axis=(1, 2)) for name in names])
    X = (means - means[known].mean(axis=0)) / means[known].std(axis=0)
    y = np.array([1 - 6 * k / 64 for k in known])
    w = np.linalg.solve(X[known].T @ X[known] + 1000 * np.eye(3), X[known].T @ (y - y.mean()))
    np.testing.assert_allclose(list(found.values()), y.mean() + X @ w, atol=1e-3)
    assert np.ptp(list(found.values())) > 2e-3

    # other masks, other guesses; and the masks of the others are not needed
    for k in set(range(8)) - set(known):
        (place / f"voc/SegmentationClass/{names[k]}.png").unlink()
    tool(place, "--masks", 5, "--seed", 3)
    assert read_shares(place / "shares.csv", names) == found
    with pytest.raises(UserError, match="true mask"):
        tool(place, "--masks", 8)


def test_the_blob_is_what_the_file_says(place):
    tool(place, "--masks", 8)
    found = read_shares(place / "shares.csv", [])
    samples = Samples(still(place / "voc", tops=["data", "tags", "share"], shares=str(place / "shares.csv")))
    for t, name in enumerate(found):
        sample, _ = samples[t]
        assert sample["share"].tolist() == pytest.approx([found[name]]) and name in samples.image(t)


def test_what_the_tool_lacks_is_named(place):
    with pytest.raises(UserError, match="--masks 9: train has only 8 images"):
        tool(place, "--masks", 9)
    (place / "features/2007_000003.npy").unlink()
    with pytest.raises(UserError, match=r"2007_000003.npy: No such file or directory; run ccnn cache-features"):
        tool(place, "--masks", 2)
    (place / "features/2007_000003.npy").write_bytes(b"")
    with pytest.raises(UserError, match=r"2007_000003.npy: .*; run ccnn cache-features"):
        tool(place, "--masks", 2)
    assert not (place / "shares.csv").exists()


def test_the_masks_measured_are_the_labelled_pixels(place):
    """The fixture's own truth, once more, from the files."""
    for k, mask in enumerate(sorted((place / "voc/SegmentationClass").glob("*.png"))):
        assert background_share(read_mask(mask)) == pytest.approx(1 - 6 * k / 64)
