"""Cached features: what ccnn cache-features writes, and what FeatureSamples make of it."""
import shutil
from functools import partial

import caffe
import numpy as np
import pytest
from data_nets import blobs, make_net, own_data, still
from PIL import Image
from tiny_voc import make_voc

from ccnn._util.errors import ImageError, UserError
from ccnn.cli import cache_features
from ccnn.data.samples import FeatureSamples
from ccnn.images.labels import VOID
from ccnn.images.reading import MEAN_BGR
from ccnn.nets import prototxt as nets
from ccnn.nets.backbones import VGG16


@pytest.fixture
def voc(tmp_path):
    return make_voc(tmp_path / "voc")


@pytest.fixture
def net(tmp_path):
    return partial(make_net, tmp_path)


@pytest.fixture(scope="module")
def weights(tmp_path_factory, root):
    path = tmp_path_factory.mktemp("weights") / "random.caffemodel"
    caffe.set_random_seed(1)
    trunk = caffe.Net(str(root / "prototxt/trunk.prototxt"), caffe.TEST)
    trunk.save(str(path))
    return path


@pytest.mark.parametrize("engine", ["caffe", "onnx"])
def test_cached_features_are_the_trunks(voc, weights, tmp_path, root, net, capsys, monkeypatch, engine):
    out = tmp_path / "features"
    arguments = [str(voc), "--out", str(out), "--weights", str(weights), "--size", "48", "--jobs", "2",
                 "--engine", engine]
    assert cache_features.main(arguments) == 0
    assert "4 images, 0 done already; 4 to do take 0.00 GB" in capsys.readouterr().out

    # 1. what the trunk gives for the reduced image
    trunk = caffe.Net(str(root / "prototxt/trunk.prototxt"), str(weights), caffe.TEST)
    small = Image.open(voc / "JPEGImages/2007_000001.jpg").resize((48, 36), Image.BICUBIC)
    trunk.blobs["data"].reshape(1, 3, 36, 48)
    trunk.blobs["data"].data[0] = np.asarray(small).transpose(2, 0, 1)[::-1] - np.array(MEAN_BGR)[:, None, None]
    expected = trunk.forward()["features"][0]
    data = net(still(voc, features=str(out), tops=["features", "labels"]), "FeatureDataLayer")
    blobs(data)
    got = blobs(data)
    assert got["features"].shape == (VGG16.channels, 6, 7) and expected.std() > 0
    assert np.allclose(got["features"], expected, rtol=1e-3, atol=1e-4 * expected.max())
    assert got["labels"].shape == (1, 6, 7)

    # 2. what is whole stays, what is not is done again
    stamps = {path: path.stat().st_mtime_ns for path in out.glob("*.npy")}
    other, cut = (out / f"2007_00000{i}.npy" for i in (0, 2))
    np.save(other, np.zeros((VGG16.channels, 6, 6), np.float16))
    cut.write_bytes(cut.read_bytes()[:-2])
    (voc / "JPEGImages/2007_000003.jpg").write_bytes(b"")
    assert cache_features.main(arguments) == 1
    text = capsys.readouterr().out
    assert "1 done already; 2 to do" in text and "3 of 4 images have features" in text
    assert "2007_000003.jpg: is empty" in text
    kept = [path.name for path, stamp in stamps.items() if path.stat().st_mtime_ns == stamp]
    assert sorted(kept) == ["2007_000001.npy", "2007_000003.npy"]

    # 3. other settings do not mix, and a full disk is noticed before
    with pytest.raises(UserError, match="holds features of another size"):
        cache_features.main([*arguments, "--size", "64"])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 100))
    other.unlink()
    with pytest.raises(UserError, match="GB needed, 0.00 GB free"):
        cache_features.main(arguments)
    with pytest.raises(UserError, match="2007_000000.npy: no features of '2007_000000'; run ccnn cache-features"):
        FeatureSamples(still(voc, features=str(out)))


@pytest.mark.parametrize("engine", ["caffe", "onnx"])
@pytest.mark.parametrize("pool, first, shape", [("pool4", 5, (512, 6, 7)), ("pool3", 4, (256, 5, 6))])
def test_a_cached_pool_is_the_trunks(voc, weights, tmp_path, root, engine, pool, first, shape):
    """The blocks on top of it give the features; it does not mix with a folder of those."""
    arguments = [str(voc), "--weights", str(weights), "--size", "48", "--jobs", "1", "--engine", engine]
    for blob in (pool, "features"):
        assert cache_features.main([*arguments, "--out", str(tmp_path / blob), "--blob", blob]) == 0
    cached, expected = (np.load(tmp_path / f"{blob}/2007_000001.npy") for blob in (pool, "features"))
    assert cached.shape == shape and expected.shape == (VGG16.channels, 6, 7)
    (tmp_path / "net.prototxt").write_text(nets.input_layer(pool, 1, *shape) + nets.backbone_layers(first))
    last = caffe.Net(str(tmp_path / "net.prototxt"), str(weights), caffe.TEST)
    last.blobs[pool].data[0] = cached
    assert np.allclose(last.forward()["features"][0], expected, rtol=1e-2, atol=1e-2 * expected.max())
    for blob in VGG16.blobs.keys() - {pool}:
        with pytest.raises(UserError, match=rf"holds features of another blob \({pool}, now {blob}\); give"):
            cache_features.main([*arguments, "--out", str(tmp_path / pool), "--blob", blob])


def test_a_sample_shows_one_of_several_sizes(voc, weights, tmp_path):
    folders = {size: tmp_path / str(size) for size in (48, 64)}
    for size, out in folders.items():
        assert cache_features.main([str(voc), "--out", str(out), "--weights", str(weights), "--size", str(size)]) == 0
    options = {"root": str(voc), "split": "train", "tops": ["features", "labels"], "seed": 3}
    both = FeatureSamples({**options, "features": list(map(str, folders.values()))})
    single = {size: FeatureSamples({**options, "features": str(out)}) for size, out in folders.items()}
    seen = []
    for t in range(40):                             # the sample of one of the sizes, mirrored or not as it is there
        sample = both[t][0]
        of = [size for size, samples in single.items() if all(
            np.array_equal(sample[top], samples[t][0][top]) for top in options["tops"])]
        seen += of
        assert len(of) == 1 and np.array_equal(both[t][0]["features"], sample["features"])
    assert 10 < seen.count(48) < 30
    (folders[64] / "2007_000002.npy").unlink()
    with pytest.raises(UserError, match="64/2007_000002.npy: no features of '2007_000002'"):
        FeatureSamples({**options, "features": list(map(str, folders.values()))})
    for wrong in ([], [3], [str(folders[48])] * 2, 3):
        with pytest.raises(UserError, match="features must be the path of a folder, or a list of such paths"):
            FeatureSamples({**options, "features": wrong})


@pytest.mark.parametrize("blob, channels, cells", [("features", 1024, (5, 7)), ("pool3", 256, (4, 6))])
def test_features_of_any_folder_and_what_is_missing(voc, weights, tmp_path, blob, channels, cells):
    options = own_data(tmp_path / "own", "one,cat\ntwo 2.png,cat;traffic light\n")
    out = tmp_path / "features"
    assert cache_features.main([options["root"], "--out", str(out), "--weights", str(weights), "--jobs", "1", "--blob",
                                blob]) == 0
    samples = FeatureSamples({**options, "features": str(out), "blob": blob, "tops": ["features", "tags", "labels"],
                              "supervised": 0})
    sample, skipped = samples[1]
    assert sample["features"].shape == (channels, *cells) and sample["tags"].tolist() == [1, 1, 1] and not skipped
    assert sample["labels"].shape == (1, 5, 7) and (sample["labels"] == VOID).all()

    for shape in ((5, 6), (512, 5, 7)):         # the second is what conv5_3 alone would be
        np.save(out / "one.npy", np.zeros(shape, np.float16))
        with pytest.raises(ImageError, match=f"one.npy: holds float16 of shape .*; expected .* of {channels} channels"):
            samples[0]
    (out / "one.npy").write_bytes(b"no array")
    with pytest.raises(ImageError, match="one.npy: is damaged"):
        samples[0]
    with pytest.raises(UserError, match="nowhere/index.json: is missing or damaged; ccnn cache-features"):
        FeatureSamples(still(voc, features="nowhere"))
    for arguments, message in ((["--weights", "no.caffemodel"], "no.caffemodel: no such file; ccnn init-weights"),
                               (["--weights", str(weights), "--size", "3"], "--size 3")):
        with pytest.raises(UserError, match=message):
            cache_features.main([str(voc), *arguments])
    with pytest.raises(UserError, match="no such folder"):
        cache_features.main([str(tmp_path / "no"), "--weights", str(weights), "--out", str(out)])
