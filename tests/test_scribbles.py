"""Scribbles on their way to the loss: the data layers deliver them as `labels`."""
import numpy as np
import pytest
from data_nets import blobs, make_net, own_data
from PIL import Image
from tiny_voc import make_voc

from ccnn._util.errors import ImageError, UserError
from ccnn.data.samples import FeatureSamples, Samples, folder_settings
from ccnn.nets.backbones import VGG16
from ccnn.nets.prototxt import own_nets
from ccnn.supervision.marks import spread_marks

VOID = 255


@pytest.fixture
def own(tmp_path):
    """Settings for three photographs; the first, 40 x 30 pixels, has a scribble: a point of cat, a line of background.
    Its cells sit on the columns 0, 8, ..., 32, 39 and the rows 0, 8, 16, 24, 29."""
    settings = own_data(tmp_path / "own", "one.jpg,cat\ntwo 2.png,cat\nthree.jpg,\n")
    (tmp_path / "own/scribbles").mkdir()
    marked = np.full((30, 40), VOID, np.uint8)
    marked[13, 13] = 1
    marked[29, 21:] = 0
    Image.fromarray(marked).save(tmp_path / "own/scribbles/ONE.png")
    return {**settings, "tops": ["data", "labels", "tags"], "scribbles": "scribbles"}


def expected():
    cells = np.full((1, 5, 6), VOID)
    cells[0, 2, 2] = 1              # the point, between cells
    cells[0, 4, 3:] = 0             # columns 21 and more
    return cells


def test_a_point_and_a_line_reach_the_net(own, tmp_path):
    net = make_net(tmp_path, own)
    assert np.array_equal(blobs(net)["labels"], expected())
    for _ in range(2):
        assert (blobs(net)["labels"] == VOID).all()         # nobody marked these


def test_mirrored_photographs_have_mirrored_scribbles(own):
    samples = Samples({**own, "mirror": True})
    seen = set()
    for t in range(0, 60, 3):
        labels = samples[t][0]["labels"][0]
        flipped = labels[4, 0] == 0
        # the mirrored point is in column 26, nearest to the cell at 24; the line ends at column 18, nearest to 16
        mirrored = np.full((5, 6), VOID)
        mirrored[2, 3], mirrored[4, :3] = 1, 0
        assert np.array_equal(labels, mirrored if flipped else expected()[0])
        seen.add(flipped)
    assert seen == {False, True}


def test_features_have_them_too(own, tmp_path):
    features = tmp_path / "features"
    features.mkdir()
    (features / "index.json").write_text('{"size": 0}')
    np.save(features / "one.npy", np.zeros((VGG16.channels, 5, 6), np.float16))
    (tmp_path / "own/tags.csv").write_text("one.jpg,cat\n")
    net = make_net(tmp_path, {**own, "tops": ["features", "labels"], "features": str(features)}, "FeatureDataLayer")
    assert np.array_equal(blobs(net)["labels"], expected())
    np.save(features / "one.npy", np.zeros((VGG16.channels, 4, 6), np.float16))
    with pytest.raises(ImageError, match="one.npy: has 4 x 6 cells; .*ONE.png at size 0"):
        FeatureSamples({**own, "tops": ["features", "labels"], "features": str(features)})[0]


def test_a_crop_shows_the_scribbles_in_it(tmp_path):
    """Pixels outside the crop do not vote for the cells at its border. Masks are used where they are."""
    root = make_voc(tmp_path / "voc", images=2)
    scribbles = tmp_path / "scribbles"
    scribbles.mkdir()
    marked = np.full((48, 64), VOID, np.uint8)
    marked[:, :8], marked[20, 40] = 0, 3
    for k in range(2):
        Image.fromarray(marked).save(scribbles / f"2007_{k:06d}.png")
    (root / "SegmentationClass/2007_000000.png").unlink()
    settings = {"root": str(root), "split": "train", "tags_from": "annotations", "tops": ["data", "labels"],
                "mirror": False, "shuffle": False, "scribbles": str(scribbles)}
    with pytest.raises(UserError, match="2007_000000.png: no such mask"):
        Samples({**settings, "scribbles": None})
    samples = Samples({**settings, "crop": 17})
    points = 0
    for t in range(0, 100, 2):
        v, u = np.random.default_rng((1, 1, t)).random(3)[1:]       # as Samples.__getitem__
        top, left = int(v * 32), int(u * 48)
        labels = samples[t][0]["labels"][0]
        assert (0 in labels) == (left < 8)
        assert (3 in labels) == (top <= 20 < top + 17 and left <= 40 < left + 17)
        points += 3 in labels
    assert points
    assert VOID not in Samples({**settings, "masks": "SegmentationClass"})[1][0]["labels"][0, :, 0]     # a whole mask


def test_colours_come_from_constraints_toml(own, tmp_path):
    folder = tmp_path / "own"
    picture = np.full((30, 40, 3), 90, np.uint8)
    picture[13, 13], picture[29, 21:] = (255, 0, 0), (0, 0, 255)
    (folder / "scribbles/ONE.png").unlink()
    Image.fromarray(picture).save(folder / "scribbles/one.png")
    (folder / "constraints.toml").write_text(
        '[scribbles]\ncolours = {cat = "#ff0000", background = "#0000ff"}\n')
    assert folder_settings(str(folder))["scribbles"] == "constraints.toml"
    assert np.array_equal(Samples({**own, "scribbles": "constraints.toml"})[0][0]["labels"], expected())
    (folder / "constraints.toml").write_text("[cat]\nmost = 0.5\n")
    assert "scribbles" not in folder_settings(str(folder))
    with pytest.raises(UserError, match=r"constraints.toml: has no \[scribbles\]"):
        Samples({**own, "scribbles": "constraints.toml"})
    with pytest.raises(UserError, match="strokes: no such folder of scribbles"):
        Samples({**own, "scribbles": "strokes"})


def test_a_scribble_of_another_size_is_refused(own, tmp_path):
    Image.fromarray(np.full((30, 41), VOID, np.uint8)).save(tmp_path / "own/scribbles/ONE.png")
    with pytest.raises(ImageError, match="ONE.png: is for an image of 41 x 30 pixels, but .*one.jpg has 40 x 30"):
        Samples(own)[0]


def test_own_nets_learn_from_scribbles_and_rules(own, tmp_path):
    """The net of a folder, in real Caffe: the marked cells are pulled to their labels, and the rules hold."""
    import caffe
    folder = tmp_path / "own"
    rules = folder / "constraints.toml"
    rules.write_text('[scribbles]\n[cat]\nleast = 0.6\ntouches = "right"\n')
    (folder / "tags.csv").write_text("one.jpg,cat\n")
    (folder / "features").mkdir()
    (folder / "features/index.json").write_text('{"size": 0}')
    rng = np.random.default_rng(0)
    np.save(folder / "features/one.npy", rng.random((VGG16.channels, 5, 6)).astype(np.float16))
    data = {**folder_settings(str(folder)), "features": str(folder / "features"), "mirror": False}
    train, _ = own_nets("tags", data, 3, priors=str(rules), classes=data["classes"])
    (tmp_path / "train.prototxt").write_text(train)

    net = caffe.Net(str(tmp_path / "train.prototxt"), caffe.TRAIN)
    net.forward()
    net.backward()
    assert np.array_equal(net.blobs["labels"].data[0], expected())
    f = net.blobs["fc8"].data[0].astype(float)
    q = np.exp(f) / np.exp(f).sum(axis=0)
    p = q - net.blobs["fc8"].diff[0] * 30
    known = expected()[0] != VOID
    assert np.allclose(p[expected()[0][known], known.nonzero()[0], known.nonzero()[1]], 1, atol=1e-5)
    assert q[1].mean() < 0.6 and p[1].mean() > 0.6 - 1e-4            # [cat] least; 4 of 30 cells are known
    assert p[1, :, -1].mean() > 0.1 - 1e-4


def test_cells_follow_the_mark_that_they_are_most_like():
    """Left and right halves look different; the net calls everything background."""
    f, x = np.zeros((3, 6, 8), np.float32), np.zeros((2, 6, 8))
    f[0], x[0, :, :4], x[1, :, 4:] = 2, 1, 1
    cells = np.full((6, 8), VOID, np.uint8)
    assert np.array_equal(spread_marks(f, x, cells), f)             # nothing is marked
    cells[2, 1] = 1
    found = spread_marks(f, x, cells)
    assert found[1, 2, 1] == 3 and found[:, 2, 1].argmax() == 1     # the mark leads by the margin
    near, far, other = found[1, 2, 2], found[1, 5, 1], found[1, 2, 4]
    assert 3 > near > far > 100 * other >= 0                        # nearer and more alike: more
    assert np.array_equal(found[[0, 2]], f[[0, 2]])                 # other labels stay as they are
    cells[2, 2] = 0                                                 # the net is right there
    held = spread_marks(f, x, cells)
    assert np.array_equal(held[:, 2, 2:4], f[:, 2, 2:4]) and held[1, 2, 1] == 3 and held[1, 2, 0] == found[1, 2, 0]
