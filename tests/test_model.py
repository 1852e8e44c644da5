"""NAME.ccnn: what is written is read again, and nothing else is."""
import json
import struct
import zipfile

import numpy as np
import pytest
from commands import run_command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from tiny_net import make_net

import ccnn.inference.model_file
from ccnn._util.errors import UserError
from ccnn.cli import pack_model
from ccnn.cli import segment as infer
from ccnn.images.labels import VOC_CLASSES
from ccnn.inference.caffe_net import forward, load_caffe, load_net
from ccnn.inference.model_file import (
    ABOUT,
    ALLOWED_LAYERS,
    NET,
    WEIGHTS,
    only_weights,
    read_model,
    sizes_of,
    write_model,
)
from ccnn.nets.backbones import BACKBONES, VGG16
from ccnn.nets.caffe_files import read_net, stored_layers
from ccnn.supervision.kinds import SUPERVISION

CLASSES = ("background", "große Katze", "кот Ж", "猫", "گربه\u200cها")
SCENE = np.random.default_rng(0).integers(0, 256, (40, 56, 3), np.uint8)

TWO_LAYERS = """
layer { name: "data"  type: "Input"  top: "data"  input_param { shape { dim: 1  dim: 3  dim: 33  dim: 33 } } }
layer { name: "below"  type: "Convolution"  bottom: "data"  top: "below"
  convolution_param { num_output: 4  kernel_size: 3  stride: 4  weight_filler { type: "msra" } } }
layer { name: "fc8"  type: "Convolution"  bottom: "below"  top: "fc8"
  convolution_param { num_output: 3  kernel_size: 1  weight_filler { type: "msra" } } }
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_net(tmp_path_factory.mktemp("tiny"), labels=len(CLASSES))


@pytest.fixture(scope="module")
def packed(tiny, tmp_path_factory):
    path = tmp_path_factory.mktemp("packed") / "tiny.ccnn"
    write_model(path, *tiny, CLASSES, 65, {"supervision": "tags", "bounds": {"fg_lower": 0.05}, "crf": "heads"},
                {"photographs": 60, "tags": {"猫": 12}, "iterations": 400, "seed": 1}, {"mIoU": 61.5})
    return path


@pytest.fixture
def head(tmp_path, monkeypatch):
    """(net, weights of all its layers, of the head): the lower layer plays the backbone."""
    caffe = load_caffe()
    net = tmp_path / "two.prototxt"
    net.write_text(TWO_LAYERS)
    caffe.set_random_seed(3)
    caffe.Net(str(net), caffe.TEST).save(str(tmp_path / "all.caffemodel"))
    for name, layer in (("backbone", "below"), ("head", "fc8")):
        (tmp_path / f"{name}.caffemodel").write_bytes(only_weights(tmp_path / "all.caffemodel", {layer}))
    monkeypatch.setitem(BACKBONES, "vgg16", VGG16._replace(layers=("below",), file="backbone.caffemodel"))
    monkeypatch.setenv("CCNN_HOME", str(tmp_path))
    return net, tmp_path / "all.caffemodel", tmp_path / "head.caffemodel"


def rewritten(source, path, **members):
    """The model with some members replaced (bytes, or a function of the old ones), removed (None) or added."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        parts = {name: old.read(name) for name in old.namelist()}
        for name, data in members.items():
            parts[name] = data(parts.get(name)) if callable(data) else data
        for name, data in parts.items():
            if data is not None:
                new.writestr(name, data)
    return path


def with_about(source, path, **changes):
    def change(data):
        about = json.loads(data)
        for key, value in changes.items():
            part, _, inner = key.partition("__")
            if inner:
                about[part][inner] = value
            else:
                about[part] = value
        return json.dumps(about).encode()
    return rewritten(source, path, **{ABOUT: change})


# --- round trips ---------------------------------------------------------------------------------------------------

def test_a_model_scores_as_its_net_and_weights(tiny, packed):
    model = read_model(packed)
    assert model.classes == CLASSES and model.size == 65 and model.trunk is None
    assert model.about["training"]["tags"] == {"猫": 12} and model.about["scores"] == {"mIoU": 61.5}
    assert model.about["settings"]["crf"] == "heads" and model.about["ccnn"] == ccnn.__version__
    expected = forward(load_net(*tiny), SCENE)
    assert np.ptp(expected) > 0 and np.array_equal(forward(model.load(), SCENE), expected)


def test_a_model_of_several_sizes(tiny, tmp_path, packed):
    path = tmp_path / "two.ccnn"
    write_model(path, *tiny, CLASSES, [65, 97])
    model = read_model(path)
    assert model.size == [65, 97] and sizes_of(model.size) == (65, 97) and sizes_of(read_model(packed).size) == (65,)
    write_model(tmp_path / "one.ccnn", *tiny, CLASSES, 65)
    write_model(tmp_path / "other.ccnn", *tiny, CLASSES, [97, 65, 33])
    assert len({model.fingerprint, *(read_model(tmp_path / f"{name}.ccnn").fingerprint for name in ("one", "other"))}) \
        == 3


def test_a_head_is_scored_on_its_backbone(head, tmp_path):
    net, whole, weights = head
    write_model(tmp_path / "head.ccnn", net, weights, CLASSES[:3], 65)
    write_model(tmp_path / "all.ccnn", net, whole, CLASSES[:3], 65)
    small, large = read_model(tmp_path / "head.ccnn"), read_model(tmp_path / "all.ccnn")
    assert small.trunk["name"] == "vgg16" and large.trunk is None
    with small.files() as (_, paths):
        assert [stored_layers(path) for path in paths] == [["below"], ["fc8"]]
    expected = forward(load_net(net, whole), SCENE)
    for model in (small, large):
        assert np.array_equal(forward(model.load(), SCENE), expected)


def test_another_backbone_is_refused(head, tmp_path):
    """One weight that differs by its last bit is another backbone; another file name is not."""
    net, _, weights = head
    write_model(tmp_path / "head.ccnn", net, weights, CLASSES[:3], 65)
    backbone = tmp_path / "backbone.caffemodel"
    from caffe.proto import caffe_pb2
    message = caffe_pb2.NetParameter.FromString(backbone.read_bytes())
    message.name = "renamed"
    backbone.write_bytes(message.SerializeToString())
    read_model(tmp_path / "head.ccnn").load()
    message.layer[0].blobs[0].data[0] = np.nextafter(np.float32(message.layer[0].blobs[0].data[0]), np.float32(9))
    backbone.write_bytes(message.SerializeToString())
    with pytest.raises(UserError, match=r"head.ccnn: was trained on weights of vgg16 .*backbone.caffemodel has"):
        read_model(tmp_path / "head.ccnn").load()


def test_the_shipped_model(root, tmp_path):
    if not VGG16.weights.exists():
        pytest.skip(f"needs {VGG16.weights.name}: ccnn init-weights fetches it")
    for name, size, miou in (("size", 224, 40), ("tags", 321, 38), ("tags_cue", 321, 50)):
        path = root / f"models/head_{name}.ccnn"
        model = read_model(path)
        assert model.classes == VOC_CLASSES and model.size == size and model.about["scores"]["mIoU"] > miou
        assert model.about["training"]["commands"][1].startswith("study/study.py") and path.stat().st_size < 200_000
        settings = model.about["settings"]
        kind = SUPERVISION[settings["supervision"]]
        assert settings["supervision"] == name.removesuffix("_cue")
        assert settings["bounds"] and settings["bounds"].keys() <= kind.bounds.keys()
        with model.files() as (net, files):
            texts = [path.read_text().partition("\n")[2] for path in (net, root / "prototxt/head_deploy.prototxt")]
            assert texts[0] == texts[1]             # but for the line that names the writer
            plain = forward(load_net(net, files), SCENE)
            packed = tmp_path / f"{name}.ccnn"
            files[-1].with_suffix(".json").write_text(json.dumps({"cue": settings["cue"]}))
            pack_model.main(["--net", str(net), "--weights", str(files[-1]), "--size", str(size), "--out", str(packed)])
        assert read_model(packed).fingerprint == model.fingerprint
        assert np.array_equal(forward(model.load(), SCENE), plain) and plain.std() > 0


def test_the_same_model_is_the_same_bytes(tiny, packed, tmp_path):
    about = read_model(packed).about
    write_model(tmp_path / "again.ccnn", *tiny, CLASSES, 65, about["settings"], about["training"], about["scores"])
    assert (tmp_path / "again.ccnn").read_bytes() == packed.read_bytes()


def test_the_fingerprint_follows_what_decides_the_masks(packed, tmp_path):
    same = read_model(packed).fingerprint
    assert read_model(with_about(packed, tmp_path / "a.ccnn", training__date="later", scores={})).fingerprint == same
    reordered = [CLASSES[0], CLASSES[2], CLASSES[1], *CLASSES[3:]]
    others = [with_about(packed, tmp_path / "b.ccnn", classes=reordered),
              with_about(packed, tmp_path / "c.ccnn", size=97),
              rewritten(packed, tmp_path / "d.ccnn", **{WEIGHTS: lambda data: data[:-1] + bytes([data[-1] ^ 1])}),
              rewritten(packed, tmp_path / "e.ccnn", **{NET: lambda data: data + b"\n"})]
    assert len({same, *(read_model(path).fingerprint for path in others)}) == 5


def test_a_snapshot_of_caffe_train_is_stripped_of_its_training_net(tiny, tmp_path, monkeypatch):
    """Layers that the deploy net lacks, names of the user's folders and gradients do not go into the model."""
    from caffe.proto import caffe_pb2
    net, weights = tiny
    snapshot = caffe_pb2.NetParameter.FromString(weights.read_bytes())
    layer = snapshot.layer.add(name="loss", type="Python")
    layer.python_param.module, layer.python_param.param_str = "secret", "/someone/at/home"
    snapshot.layer.add(name="extra").blobs.add(data=[1.0])
    snapshot.layer[1].blobs[0].diff.extend([7.0] * 100)
    (tmp_path / "snapshot.caffemodel").write_bytes(snapshot.SerializeToString())
    monkeypatch.chdir(tmp_path)
    words = ["pack-model", "--net", net, "--size", "65", "--out", "x.ccnn", "--weights", "snapshot.caffemodel",
             "--classes", "classes.txt"]
    done = run_command(*words)
    assert done.status == 2 and "classes.txt" in done.err           # not there yet
    (tmp_path / "classes.txt").write_text("\n".join(CLASSES[1:]))
    done = run_command(*words)
    assert done.status == 0 and "4 classes, images of 65 pixels, all weights" in done.out, done.err
    with zipfile.ZipFile(tmp_path / "x.ccnn") as archive:
        kept = archive.read(WEIGHTS)
    assert b"someone" not in kept and b"secret" not in kept
    message = caffe_pb2.NetParameter.FromString(kept)
    assert [layer.name for layer in message.layer] == ["fc8"] and not message.layer[0].blobs[0].diff
    assert np.array_equal(forward(read_model(tmp_path / "x.ccnn").load(), SCENE), forward(load_net(*tiny), SCENE))


def test_its_files_give_the_masks_of_net_and_weights(tiny, packed, tmp_path):
    Image.fromarray(SCENE).save(tmp_path / "a.png")
    (tmp_path / "classes.txt").write_text("\n".join(CLASSES[1:]))
    rest = ["--classes", tmp_path / "classes.txt", "--size", 65, "--jobs", 1, "--no-overlay", tmp_path / "a.png"]
    with read_model(packed).files() as (net, (weights,)):
        for out, (n, w) in (("one", tiny), ("two", (net, weights))):
            infer.main([str(a) for a in ("--out", tmp_path / out, "--net", n, "--weights", w, *rest)])
    masks = [np.array(Image.open(tmp_path / out / "a.png")) for out in ("one", "two")]
    assert len(np.unique(masks[0])) > 1 and np.array_equal(*masks)


def test_a_model_replaced_after_it_was_read_is_not_mixed_with_the_new_one(packed, tmp_path):
    path = tmp_path / "m.ccnn"
    path.write_bytes(packed.read_bytes())
    model = read_model(path)
    rewritten(packed, path, **{WEIGHTS: lambda data: data[:-1] + bytes([data[-1] ^ 1])})
    with pytest.raises(UserError, match="has been replaced since it was read"):
        model.load()


# --- what is no model ----------------------------------------------------------------------------------------------

def test_the_allowed_layers_are_those_of_our_deploy_nets(root):
    used = {layer.type for path in (root / "prototxt").glob("*deploy*.prototxt") for layer in read_net(path).layer}
    assert used == ALLOWED_LAYERS


CODE = 'layer { name: "evil"  type: "Py" "thon"  bottom: "fc8"  top: "out"  python_param { module: "os" layer: "x" } }'


@pytest.mark.parametrize("more", [CODE, CODE.replace('"Py" "thon"', '"HDF5Data"'),
                                  CODE.replace('"Py" "thon"', '"Data"')])
def test_a_net_with_code_is_neither_written_nor_read(tiny, packed, tmp_path, more):
    (tmp_path / "evil.prototxt").write_text(tiny[0].read_text() + more)
    with pytest.raises(UserError, match="evil.prototxt: layer 'evil' is of type .* holds no code"):
        write_model(tmp_path / "new.ccnn", tmp_path / "evil.prototxt", tiny[1], CLASSES, 65)
    assert not (tmp_path / "new.ccnn").exists()
    rewritten(packed, tmp_path / "evil.ccnn", **{NET: lambda data: data + more.encode()})
    with pytest.raises(UserError, match="evil.ccnn: deploy.prototxt: layer 'evil' is of type"):
        read_model(tmp_path / "evil.ccnn")


def test_what_would_not_load_is_not_written(tiny, tmp_path):
    path = tmp_path / "x.ccnn"
    with pytest.raises(UserError, match="scores 5 labels, but 3 class names"):
        write_model(path, *tiny, CLASSES[:3], 65)
    (tmp_path / "two.prototxt").write_text(TWO_LAYERS.replace("num_output: 3", "num_output: 5"))
    with pytest.raises(UserError, match=f"^{tiny[1]}: has no layer below, but {tmp_path}/two.prototxt needs it"):
        write_model(path, tmp_path / "two.prototxt", tiny[1], CLASSES, 65)
    assert [p.name for p in tmp_path.iterdir()] == ["two.prototxt"]


BOMBS = {
    "a convolution's pad": ('kernel_size: 3', 'kernel_size: 3  pad: 20000'),
    "its pad along the columns": ('kernel_size: 3', 'kernel_h: 3  kernel_w: 3  pad_w: 30000000'),
    "outputs": ("num_output: 4", "num_output: 4000000000"),
    "a kernel": ("kernel_size: 3", "kernel_size: 9000  pad: 5000"),
    "an input": ("dim: 33", "dim: 330000"),
    "a pooling's pad": ('layer { name: "fc8"', 'layer { name: "pool"  type: "Pooling"  bottom: "below"  top: "below"  '
                        'pooling_param { kernel_size: 2  pad: 20000 } }\nlayer { name: "fc8"'),
    "a pooling without a kernel": ('layer { name: "fc8"', 'layer { name: "pool"  type: "Pooling"  bottom: "below"  '
                                   'top: "below"  pooling_param { stride: 0 } }\nlayer { name: "fc8"'),
    "the same blob a million times over": ('layer { name: "fc8"', 'layer { name: "join"  type: "Concat"  top: "below"  '
                                           + 20 * 'bottom: "below"  ' + '}\nlayer { name: "fc8"'),
    "many blobs at a time": ('layer { name: "fc8"', "".join(
        f'layer {{ name: "c{k}"  type: "Convolution"  bottom: "data"  top: "c{k}"  '
        'convolution_param { num_output: 28000  kernel_size: 1 } }\n' for k in range(4)) + "".join(
        f'layer {{ name: "r{k}"  type: "ReLU"  bottom: "c{k}"  top: "r" }}\n' for k in range(4)) +
        'layer { name: "fc8"'),
    "channels by a shape": ('layer { name: "fc8"', 'layer { name: "r"  type: "Reshape"  bottom: "data"  top: "r"  '
                            'reshape_param { shape { dim: 1  dim: -1  dim: 1  dim: 1 } } }\nlayer { name: "fc8"'),
    "no kernel": ("kernel_size: 3", ""),
    "a stride of 0": ("stride: 4", "stride: 0"),
    "a kernel larger than the image": ("kernel_size: 3", "kernel_size: 1000"),
    "an input of any number of axes": ("shape { ", "shape { " + 2000 * "dim: 9223372036854775807  "),
    "an unknown bottom": ('bottom: "below"', 'bottom: "nowhere"'),
}


@pytest.mark.parametrize("change", BOMBS.values(), ids=BOMBS)
def test_a_net_that_would_take_all_memory_is_not_run(packed, tmp_path, change):
    text = TWO_LAYERS.replace(*change)
    assert text != TWO_LAYERS
    if "Concat" in text:                    # each one has 20 times the channels of the one before
        join = text[text.index('layer { name: "join"'):text.index('layer { name: "fc8"')]
        text = text.replace(join, 6 * join)
    rewritten(packed, tmp_path / "m.ccnn", **{NET: text.encode()})
    with pytest.raises(UserError, match="m.ccnn: deploy.prototxt: layer '.*' (makes|has no)") as error:
        read_model(tmp_path / "m.ccnn")
    assert "\n" not in str(error.value) and len(str(error.value)) < 2000


@pytest.mark.parametrize("change", [('name: "fc8"', f'name: "{300 * "x"}"'), ('"Input"', f'"{300 * "x"}"')])
def test_a_long_name_in_a_net_is_not_repeated(packed, tmp_path, change):
    rewritten(packed, tmp_path / "m.ccnn", **{NET: TWO_LAYERS.replace(*change).encode()})
    with pytest.raises(UserError, match="the name or type of a layer has 300 characters, at most 200 are read"):
        read_model(tmp_path / "m.ccnn")


def test_the_largest_size_of_our_net_is_allowed(root, tmp_path):
    with_about(root / "models/head_size.ccnn", tmp_path / "m.ccnn", size=[32, 2000])
    assert read_model(tmp_path / "m.ccnn").size == [32, 2000]


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "extra.py", "weights.caffemodel/x"])
def test_other_members_are_refused_and_nothing_is_extracted(packed, tmp_path, name):
    rewritten(packed, tmp_path / "m.ccnn", **{name: b"x"})
    with pytest.raises(UserError, match=f"m.ccnn: holds '{name}', which is not part of a model"):
        read_model(tmp_path / "m.ccnn")
    assert [p.name for p in tmp_path.iterdir()] == ["m.ccnn"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_missing_and_double_members_are_refused(packed, tmp_path):
    rewritten(packed, tmp_path / "m.ccnn", **{WEIGHTS: None})
    with pytest.raises(UserError, match="holds deploy.prototxt, model.json instead of"):
        read_model(tmp_path / "m.ccnn")
    (tmp_path / "d.ccnn").write_bytes(packed.read_bytes())
    with zipfile.ZipFile(tmp_path / "d.ccnn", "a") as archive:
        archive.writestr(NET, CODE)
    with pytest.raises(UserError, match="instead of deploy.prototxt, weights.caffemodel, model.json"):
        read_model(tmp_path / "d.ccnn")


def test_a_zip_bomb_is_refused_unread(packed, tmp_path):
    with zipfile.ZipFile(packed) as old, zipfile.ZipFile(tmp_path / "b.ccnn", "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr(NET, old.read(NET))
        new.writestr(ABOUT, old.read(ABOUT))
        new.writestr(WEIGHTS, bytes(1 << 27))
    assert (tmp_path / "b.ccnn").stat().st_size < 1 << 18
    with pytest.raises(UserError, match="b.ccnn: deploy.prototxt is compressed"):
        read_model(tmp_path / "b.ccnn")
    rewritten(packed, tmp_path / "c.ccnn", **{NET: bytes((1 << 20) + 1)})
    with pytest.raises(UserError, match="c.ccnn: deploy.prototxt has 1048577 bytes, at most 1048576"):
        read_model(tmp_path / "c.ccnn")


@pytest.mark.parametrize("change, said", [
    ({"format": 2}, "has format 2, and this version of ccnn reads 1; get a newer ccnn"),
    ({"format": 0}, "has format 0.*train again"),
    ({"format": "1"}, "it says no format"),
    ({"code": "x"}, "'code' is missing or unknown"),
    ({"classes": "cat"}, "classes cannot be 'cat'"),
    ({"classes": ["cat", "dog"]}, "classes must be 'background' and 1 to 254 names"),
    ({"classes": ["background"]}, "classes must be"),
    ({"classes": ["background", 3]}, "a class name has"),
    ({"classes": ["background", " cat"]}, "no space around it, got ' cat'"),
    ({"classes": ["background", "ca\x1b[31mt"]}, r"name 'ca\\x1b\[31mt' holds control"),
    ({"classes": ["background", "cat\u202egpj"]}, "holds control characters"),
    ({"classes": ["background", "\ud800"]}, "holds control characters"),
    ({"classes": ["background", "é", "e\u0301"]}, "the class 'é' is there twice"),
    ({"size": True}, "size cannot be True"),
    ({"size": 3}, "size must be 32..2000, or a list of such numbers, each once; got 3"),
    ({"size": []}, r"size must be .*; got \[\]"),
    ({"size": [224, 321, 224]}, r"size must be .*, each once; got \[224, 321, 224\]"),
    ({"size": [224, "321"]}, "size must be"),
    ({"mean": [0, 0, 0]}, "mean must be"),
    ({"trunk": {"name": "vgg16"}}, "trunk must be null, or a name \\(vgg16\\) and"),
    ({"trunk": {"name": "vgg16", "sha256": ["a"]}}, "trunk must be null"),
    ({"settings": []}, r"settings cannot be \[\]"),
    ({"settings__crf": "../../etc/passwd"}, "crf must be the name of a preset"),
    ({"settings__supervision": 1}, "supervision cannot be 1"),
    ({"training__photographs": "60"}, "photographs cannot be '60'"),
    ({"training__tags": {"dog": 3}}, "tags must be a number per class, got {'dog': 3}"),
    ({"scores": None}, "scores cannot be nothing"),
])
def test_a_wrong_model_json_is_refused(packed, tmp_path, change, said):
    with pytest.raises(UserError, match=said) as caught:
        read_model(with_about(packed, tmp_path / "m.ccnn", **change))
    assert str(caught.value).startswith(f"{tmp_path}/m.ccnn: model.json: ")


@pytest.mark.parametrize("text", [b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"format": 1}', b'{"format": NaN}',
                                  b'{"format": ' + b"1" * 900_000 + b"}"])       # read as a number: half a minute
def test_no_json_is_refused(packed, tmp_path, text):
    with pytest.raises(UserError, match="m.ccnn: model.json: does not describe a model: .*; copy it again, or train"):
        read_model(rewritten(packed, tmp_path / "m.ccnn", **{ABOUT: text}))


def test_settings_that_json_cannot_hold(tiny, tmp_path):
    with pytest.raises(UserError, match="x.ccnn: model.json cannot hold this"):
        write_model(tmp_path / "x.ccnn", *tiny, CLASSES, 65, settings={"bounds": {"beta": float("inf")}})
    with pytest.raises(UserError, match="x.ccnn: model.json: does not describe a model: size must be"):
        write_model(tmp_path / "x.ccnn", *tiny, CLASSES, 6)
    assert not list(tmp_path.iterdir())


def test_files_that_are_something_else(tmp_path, packed):
    with pytest.raises(FileNotFoundError):
        read_model(tmp_path / "none.ccnn")
    for data in (b"", b"GIF89a", packed.read_bytes()[:-30], packed.read_bytes()[50:]):
        (tmp_path / "m.ccnn").write_bytes(data)
        with pytest.raises(UserError, match="m.ccnn: is not a whole .ccnn file: .*; copy it again, or train again"):
            read_model(tmp_path / "m.ccnn")


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_is_the_same_model_or_one_line(packed, tmp_path, data):
    """A bit flipped anywhere, or the end cut off."""
    original = packed.read_bytes()
    broken = bytearray(original)
    at = data.draw(st.integers(0, len(original) - 1))
    if data.draw(st.booleans()):
        broken[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del broken[at:]
    (tmp_path / "m.ccnn").write_bytes(broken)
    try:
        model = read_model(tmp_path / "m.ccnn")
    except UserError as e:
        assert "\n" not in str(e) and "m.ccnn" in str(e)
    else:
        assert model._replace(path=None) == read_model(packed)._replace(path=None)


def test_weights_that_are_damaged_inside_a_whole_zip(packed, tmp_path):
    """The zip's checksum is right, the weights are not: Caffe would abort."""
    for change in (lambda data: data[:-5], lambda data: b"\xff" * 100,
                   lambda data: data[:-4] + struct.pack("<f", np.nan)):
        model = read_model(rewritten(packed, tmp_path / "m.ccnn", **{WEIGHTS: change}))
        with pytest.raises(UserError, match="m.ccnn/weights.caffemodel"):
            model.load()
