"""Nets: no wrong file can take the process down."""
import textwrap

import numpy as np
import pytest
from tiny_net import make_net

import ccnn.inference.caffe_net
from ccnn._util import errors
from ccnn._util.try_in_child import try_in_child


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_net(tmp_path_factory.mktemp("tiny"))


def test_a_net_is_loaded_with_its_weights(tiny):
    net = ccnn.inference.caffe_net.load_net(*tiny, shape=(1, 3, 9, 17))
    net.blobs["data"].reshape(1, 3, 9, 17)
    net.blobs["data"].data[...] = 0
    scores = net.forward()["fc8"]
    assert scores.shape == (1, 21, 2, 3)
    assert np.allclose(scores[0, 1], 122.67891434 - 128, atol=1e-4)


def no_gpu():
    return try_in_child(lambda: ccnn.inference.caffe_net.load_caffe().set_device(0))


def test_no_gpu_is_a_user_error():
    if no_gpu() is None:
        pytest.skip("there is a GPU")
    with pytest.raises(errors.UserError, match="--gpu 0: .*leave --gpu out"):
        ccnn.inference.caffe_net.load_caffe(gpu=0)


def edit(path, tmp_path, old, new):
    copy = tmp_path / path.name
    text = path.read_text()
    assert old in text
    copy.write_text(text.replace(old, new))
    return copy


@pytest.mark.parametrize("old, new, complaint", [
    ("num_output: 21", "num_output: 7", "[Ss]hape mismatch"),
    ("num_output: 21", "num_output: 0", "num_output"),
    ("num_output: 21", "num_output: 999999999", "."),           # 24 GB of weights
    ("kernel_size: 1", "kernel_size: 1 nonsense: 2", "nonsense"),
    ("Convolution", "Convolutoin", "Convolutoin"),
    ('name: "fc8"', 'name: "fc9"', "no weights for fc9"),
    ('bottom: "data"', 'bottom: "date"', "date"),
    ("layer {", "layer {{", "."),
])
def test_a_wrong_prototxt_is_a_user_error(tiny, tmp_path, old, new, complaint):
    prototxt = edit(tiny[0], tmp_path, old, new)
    with pytest.raises(errors.UserError, match=complaint) as error:
        ccnn.inference.caffe_net.load_net(prototxt, tiny[1])
    assert str(prototxt) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_net_for_one_size_only_is_a_user_error(tiny, tmp_path):
    prototxt = edit(tiny[0], tmp_path, "kernel_size: 1  stride: 8", "kernel_size: 1  stride: 8")
    prototxt.write_text(prototxt.read_text() + textwrap.dedent("""
        layer { name: "bad" type: "Reshape" bottom: "fc8" top: "bad" reshape_param { shape { dim: 5 dim: 105 } } }
    """))
    ccnn.inference.caffe_net.load_net(prototxt, tiny[1])
    with pytest.raises(errors.UserError, match=str(prototxt)):
        ccnn.inference.caffe_net.load_net(prototxt, tiny[1], shape=(1, 3, 65, 97))


def test_a_training_net_is_a_user_error(tiny, tmp_path):
    prototxt = edit(tiny[0], tmp_path, 'type: "Input"  top: "data"  input_param',
                    'type: "DummyData"  top: "data"  dummy_data_param')
    with pytest.raises(errors.UserError, match="no input blob `data`"):
        ccnn.inference.caffe_net.load_net(prototxt, tiny[1], shape=(1, 3, 65, 97))


def test_bilinear_upsampling_needs_no_weights(tiny, tmp_path):
    prototxt = edit(tiny[0], tmp_path, 'name: "tiny"', 'name: "tiny"')
    up = 'layer {{ name: "up" type: "Deconvolution" bottom: "fc8" top: "up" convolution_param {{ ' \
         'num_output: 21 group: 21 kernel_size: 4 stride: 2 bias_term: false weight_filler {{ type: "{}" }} }} }}\n'
    plain = prototxt.read_text()
    prototxt.write_text(plain + up.format("bilinear"))
    assert ccnn.inference.caffe_net.load_net(prototxt, tiny[1]).params["up"][0].data.any()
    prototxt.write_text(plain + up.format("gaussian"))
    with pytest.raises(errors.UserError, match="no weights for up"):
        ccnn.inference.caffe_net.load_net(prototxt, tiny[1])


@pytest.mark.parametrize("damage, complaint", [
    (lambda data: data[:-7], "not a whole .caffemodel"),
    (lambda data: b"", "holds no weights"),
    (lambda data: b"not a model at all", "not a whole .caffemodel|holds no weights"),
])
def test_damaged_weights_are_a_user_error(tiny, tmp_path, damage, complaint):
    weights = tmp_path / "damaged.caffemodel"
    weights.write_bytes(damage(tiny[1].read_bytes()))
    with pytest.raises(errors.UserError, match=complaint) as error:
        ccnn.inference.caffe_net.load_net(tiny[0], weights)
    assert str(weights) in str(error.value)


def test_nan_weights_are_a_user_error(tiny, tmp_path):
    net = ccnn.inference.caffe_net.load_net(*tiny)
    net.params["fc8"][1].data[3] = np.nan
    net.save(str(tmp_path / "nan.caffemodel"))
    with pytest.raises(errors.UserError, match="fc8 hold NaN"):
        ccnn.inference.caffe_net.load_net(tiny[0], tmp_path / "nan.caffemodel")


def test_missing_files_are_named(tiny, tmp_path):
    with pytest.raises(FileNotFoundError, match="absent.prototxt"):
        ccnn.inference.caffe_net.load_net(tmp_path / "absent.prototxt", tiny[1])
    with pytest.raises(FileNotFoundError, match="absent.caffemodel"):
        ccnn.inference.caffe_net.load_net(tiny[0], tmp_path / "absent.caffemodel")


def test_the_grid_is_read_from_the_net(root):
    assert ccnn.inference.caffe_net.score_grid(root / "prototxt/deploy_8s.prototxt") == (8, 0)
    assert ccnn.inference.caffe_net.score_grid(root / "prototxt/head_deploy.prototxt") == (8, -0.5)
    assert ccnn.inference.caffe_net.score_grid(root / "prototxt/deploy_32s.prototxt") == (32, 15.5)


def test_an_enlarging_net_is_refused(tmp_path):
    (tmp_path / "up.prototxt").write_text(
        'layer { name: "up" type: "Deconvolution" bottom: "a" top: "fc8" convolution_param { kernel_size: 4 } }')
    with pytest.raises(errors.UserError, match="up .Deconvolution."):
        ccnn.inference.caffe_net.score_grid(tmp_path / "up.prototxt")
