"""Engines: each computes what Caffe computes, for every deploy net and every size of image."""
import re
import sys

import numpy as np
import pytest
from tiny_net import make_net

from ccnn._util.errors import Unable, UserError
from ccnn.inference import engines
from ccnn.inference.caffe_net import load_caffe
from ccnn.inference.engines import load_forward
from ccnn.inference.leading_layers import run_layers
from ccnn.nets import prototxt as nets

DEPLOY = {**{name: text for name, text in {**nets.nets(), **nets.demo_nets()}.items()
             if "deploy" in name or name == "trunk"},
          "own": nets.own_nets("tags", {"root": ".", "features": "."}, labels=4)[1]}

SHAPES = [(65, 97), (66, 98), (67, 101), (72, 64), (33, 40), (5, 31), (2, 3), (1, 1), (1, 50), (71, 1)]


def random_net(folder, text):
    """(prototxt, weights) of a net with random weights and biases; fully connected layers are narrowed."""
    caffe = load_caffe()
    caffe.set_random_seed(1)
    prototxt, weights = folder / "net.prototxt", folder / "random.caffemodel"
    prototxt.write_text(text.replace("num_output: 4096", "num_output: 32"))
    net = caffe.Net(str(prototxt), caffe.TEST)
    rng = np.random.default_rng(0)
    for blobs in net.params.values():
        blobs[1].data[...] = rng.normal(size=blobs[1].data.shape) / 10
    net.save(str(weights))
    return prototxt, weights


def every_engine(prototxt, weights, blob="fc8"):
    return [load_forward(prototxt, [weights], blob, engine) for engine in ("caffe", "onnx", "kernels")]


def difference(forwards, shape):
    """The largest of all engines' from the first, relative to the largest score."""
    rgb = np.random.default_rng(sum(shape)).integers(0, 256, (*shape, 3), dtype=np.uint8)
    reference, *others = (forward(rgb) for forward in forwards)
    assert np.ptp(reference) > 0
    assert all(found.shape == reference.shape and found.dtype == np.float32 for found in (reference, *others))
    return max(abs(found - reference).max() for found in others) / max(1, abs(reference).max())


@pytest.mark.parametrize("name", DEPLOY)
def test_every_deploy_net_has_the_scores_that_caffe_computes(name, tmp_path):
    blob = "features" if name == "trunk" else "fc8"
    forwards = every_engine(*random_net(tmp_path, DEPLOY[name]), blob)
    assert [shape for shape in SHAPES if difference(forwards, shape) > 1e-4] == []


def test_the_deploy_nets_are_all_here():
    assert {"deploy_8s", "deploy_32s", "head_deploy", "demo_deploy"} <= set(DEPLOY)


NET = """
layer {{ name: "data"  type: "Input"  top: "data"  input_param {{ shape {{ dim: 1  dim: 3  dim: 65  dim: 97 }} }} }}
{}
layer {{ name: "fc8"  type: "Convolution"  bottom: "a"  top: "fc8"
         convolution_param {{ num_output: 2  kernel_size: 1  weight_filler {{ type: "msra" }} }} }}
"""


def layer(kind, settings="", bottom='bottom: "data"'):
    return f'layer {{ name: "a"  type: "{kind}"  {bottom}  top: "a"  {settings} }}'


def pools():
    """Every pooling that the exporter takes, with kernels up to 4."""
    for kernel in (1, 2, 3, 4):
        for stride in range(1, kernel + 1):
            for pad in range(kernel - stride + 1):
                yield "MAX", kernel, stride, pad
                if stride == 1:
                    yield "AVE", kernel, stride, pad


@pytest.mark.parametrize("kind, kernel, stride, pad", pools())
def test_pooling_rounds_up_and_ends_with_the_image(kind, kernel, stride, pad, tmp_path):
    settings = f"pooling_param {{ pool: {kind}  kernel_size: {kernel}  stride: {stride}  pad: {pad} }}"
    forwards = every_engine(*random_net(tmp_path, NET.format(layer("Pooling", settings))))
    for side in range(max(1, kernel - 2 * pad), 14):
        assert difference(forwards, (side, 17 - side)) < 1e-5


@pytest.mark.parametrize("text", [
    layer("Pooling", "pooling_param { pool: MAX  global_pooling: true }"),
    layer("Pooling", "pooling_param { pool: AVE  kernel_h: 3  kernel_w: 5  pad_h: 1  pad_w: 2 }"),
    layer("Pooling", "pooling_param { pool: MAX  kernel_h: 2  kernel_w: 3  stride_h: 2  stride_w: 1 }"),
    layer("Power", "power_param { power: 2  scale: 0.01  shift: 1 }"),
    layer("Power", ""),
    layer("Concat", "concat_param { axis: 1 }", 'bottom: "data"  bottom: "data"'),
    layer("Convolution", "convolution_param { num_output: 6  group: 3  kernel_h: 3  kernel_w: 1  pad_h: 2  pad_w: 1  "
          'stride: 2  stride: 3  bias_term: true  weight_filler { type: "msra" } }'),
    layer("Power", "power_param { scale: 0.01 }") + 'layer { name: "b"  type: "ReLU"  bottom: "a"  top: "a" }',
])
def test_settings_of_layers_that_our_nets_do_not_use_yet(text, tmp_path):
    forwards = every_engine(*random_net(tmp_path, NET.format(text)))
    for shape in ((9, 13), (20, 22)):
        assert difference(forwards, shape) < 1e-5


def test_what_follows_the_scores_does_not_matter(tmp_path):
    """Nor does it change them: `fc8` is squashed in another blob."""
    text = NET.format(layer("Power")) + 'layer { name: "end"  type: "Sigmoid"  bottom: "fc8"  top: "end" }'
    assert difference(every_engine(*random_net(tmp_path, text)), (9, 13)) < 1e-5


@pytest.mark.parametrize("text, said", [
    (layer("Sigmoid"), "layer 'a' is of type 'Sigmoid'.*translated are Bias, .*use --engine caffe"),
    (layer("ReLU", "relu_param { negative_slope: 0.1 }"), "'a' has a negative slope"),
    (layer("Pooling", "pooling_param { pool: AVE  kernel_size: 3  stride: 2 }"), "'a' takes averages with stride 2x2"),
    (layer("Pooling", "pooling_param { kernel_size: 2  stride: 2  pad: 1 }"), "'a' has a stride and a pad that toge"),
    (layer("Reshape", "reshape_param { axis: 1  shape { dim: 3  dim: 0  dim: 0 } }"), "'a' reshapes some axes only"),
    (layer("Bias", "bias_param { axis: 1 }"), "'a' has a bias of its own"),
    (layer("Power", "include { phase: TEST }"), "'a' has rules of inclusion"),
])
def test_auto_leaves_to_caffe_what_has_no_translation(text, said, tmp_path, monkeypatch):
    prototxt, weights = tmp_path / "net.prototxt", tmp_path / "random.caffemodel"
    prototxt.write_text(NET.format(text))
    caffe = load_caffe()
    caffe.Net(str(prototxt), caffe.TEST).save(str(weights))
    with pytest.raises(Unable, match=said):
        load_forward(prototxt, [weights], "fc8", "onnx")
    rgb = np.zeros((20, 30, 3), np.uint8)
    assert np.array_equal(load_forward(prototxt, [weights], "fc8")(rgb),
                          load_forward(prototxt, [weights], "fc8", "caffe")(rgb))
    monkeypatch.setitem(sys.modules, "caffe", None)         # without it, the net is what is said to be wrong
    with pytest.raises(Unable, match=said):
        load_forward(prototxt, [weights], "fc8")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_net(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("old, new, said", [
    ('name: "fc8"', 'name: "fc9"', "no weights for fc9"),
    ("num_output: 21", "num_output: 7", "fc8 needs weights 7xCx1x1 and a bias, but the file has 21x3x1x1 and 21"),
    ("kernel_size: 1", "kernel_size: 3", "fc8 needs weights 21xCx3x3 and a bias"),
    ('top: "fc8"', 'top: "fc9"', "has no score blob `fc8`"),
    ('bottom: "data"', 'bottom: "date"', "no input blob `data`"),
    ('"Input"', '"DummyData"', "no input blob `data`"),
    ("kernel_size: 1", "kernel_size: 1  axis: 2", "fc8. has another axis"),
])
def test_a_wrong_net_is_one_line(tiny, tmp_path, old, new, said):
    text = tiny[0].read_text()
    assert old in text
    (tmp_path / "net.prototxt").write_text(text.replace(old, new))
    with pytest.raises(UserError, match=re.escape(str(tmp_path / "net.prototxt")) + ".*" + said):
        load_forward(tmp_path / "net.prototxt", [tiny[1]], "fc8", "onnx")


def test_a_net_for_one_size_only_is_one_line(tmp_path):
    text = NET.format(layer("Reshape", "reshape_param { shape { dim: 1  dim: 3  dim: 97  dim: 65 } }"))
    prototxt, weights = random_net(tmp_path, text)
    forward = load_forward(prototxt, [weights], "fc8", "onnx")
    with pytest.raises(UserError, match="^the net cannot run on an image of 9 x 13 pixels: .*[Rr]eshape"):
        forward(np.zeros((9, 13, 3), np.uint8))
    prototxt.write_text(text.replace("dim: 97  dim: 65", "dim: 9  dim: 13"))
    with pytest.raises(UserError, match="net.prototxt: the net cannot run on an image of 65 x 97 pixels: "):
        load_forward(prototxt, [weights], "fc8", "onnx")


def test_the_last_weights_count(tiny, tmp_path):
    other = make_net(tmp_path, edge=60.0)
    rgb = np.full((9, 9, 3), 100, np.uint8)
    for engine in engines.ENGINES:
        found = [load_forward(tiny[0], files, "fc8", engine)(rgb)[1, 0, 0]
                 for files in ([tiny[1], other[1]], [other[1], tiny[1]])]
        assert found == pytest.approx([40, -28], abs=1e-3)


def test_without_onnx_runtime_auto_is_caffe(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(Unable, match="ONNX Runtime does not load: .*onnxruntime.*; get it with: .* -m pip install -r"):
        load_forward(tiny[0], [tiny[1]], "fc8", "onnx")
    assert load_forward(tiny[0], [tiny[1]], "fc8")(np.zeros((9, 9, 3), np.uint8)).shape == (21, 2, 2)


def test_each_engine_is_what_its_name_says(tmp_path, monkeypatch):
    """Our kernels run in one of them alone, which is what `auto` takes; not a number of threads decides."""
    ran = []
    monkeypatch.setattr(engines, "run_layers",
                        lambda layers, data: ran.append(len(layers)) or run_layers(layers, data))
    prototxt, weights = random_net(tmp_path, DEPLOY["trunk"])
    for engine in ("kernels", "onnx", "caffe", "auto"):
        load_forward(prototxt, [weights], "features", engine)
        ran.append(engine)
    assert ran == [17, "kernels", 0, "onnx", "caffe", 17, "auto"]           # 13 convolutions and 4 poolings


def test_a_gpu_is_for_caffe(tiny, monkeypatch):
    with pytest.raises(Unable, match="--gpu 0: ONNX Runtime runs on the CPU here; leave --gpu out"):
        load_forward(tiny[0], [tiny[1]], "fc8", "onnx", gpu=0)
