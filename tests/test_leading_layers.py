"""Our own convolutions: the sums that define them, at every border, dilation and number of channels."""
import numpy as np
import pytest

from ccnn.inference.leading_layers import Convolution, MaxPool, run_layers, split_off
from ccnn.inference.winograd import LANES, PANEL, convolve, max_pool, prepare


def convolution_by_definition(x, weights, bias, dilation):
    """In float64: the sum over the nine shifted images."""
    height, width = x.shape[:2]
    padded = np.pad(x.astype(float), ((dilation, dilation), (dilation, dilation), (0, 0)))
    y = np.zeros((height, width, len(weights))) + bias
    for i in range(3):
        for j in range(3):
            shifted = padded[i * dilation:i * dilation + height, j * dilation:j * dilation + width]
            y += shifted @ weights[:, :, i, j].T.astype(float)
    return y


def problem(height, width, inputs, outputs):
    rng = np.random.default_rng(height + width + inputs)
    return (rng.normal(size=(height, width, inputs)).astype(np.float32),
            rng.normal(size=(outputs, inputs, 3, 3)).astype(np.float32) / np.sqrt(9 * inputs).astype(np.float32),
            rng.normal(size=outputs).astype(np.float32))


@pytest.mark.parametrize("dilation", (1, 2, 3))
@pytest.mark.parametrize("size", ((1, 1), (1, 9), (4, 4), (5, 3), (17, 42), (50, 41)))     # 50 x 41: several blocks
@pytest.mark.parametrize("inputs", (1, 3, LANES, 5 * LANES))
def test_convolution_is_what_defines_it(size, inputs, dilation):
    x, weights, bias = problem(*size, inputs, 2 * PANEL)
    expected = convolution_by_definition(x, weights, bias, dilation)
    for relu in (False, True):
        y = convolve(x, prepare(weights), bias, dilation, relu)
        assert abs(y - (np.maximum(expected, 0) if relu else expected)).max() < 1e-5
    assert (expected < 0).any()         # else relu proves nothing


@pytest.mark.parametrize("kernel, stride, pad", ((2, 2, 0), (3, 2, 1), (2, 1, 1), (3, 1, 1), (1, 1, 0)))
@pytest.mark.parametrize("size", ((1, 1), (2, 7), (11, 6)))
def test_pooling_takes_the_largest_of_every_window(size, kernel, stride, pad):
    x = np.random.default_rng(0).normal(size=(*size, 5)).astype(np.float32)
    y = max_pool(x, kernel, stride, pad)
    assert y.shape[:2] == tuple(max(0, int(np.ceil((side + 2 * pad - kernel) / stride))) + 1 for side in size)
    padded = np.pad(x, ((pad, kernel + pad), (pad, kernel + pad), (0, 0)), constant_values=-np.inf)
    for i, j in np.ndindex(y.shape[:2]):
        window = padded[i * stride:i * stride + kernel, j * stride:j * stride + kernel]
        assert (y[i, j] == window.max(axis=(0, 1))).all()


@pytest.mark.parametrize("change", (dict(outputs=PANEL + 1), dict(inputs=4), dict(dilation=0), dict(rows=0)))
def test_what_does_not_fit_is_an_error(change):
    x, weights, bias = problem(change.get("rows", 3), 4, change.get("inputs", 3), change.get("outputs", PANEL))
    with pytest.raises(ValueError, match="must be"):
        convolve(x, prepare(weights[:, :3]), bias, change.get("dilation", 1))
    with pytest.raises(ValueError, match="exceed"):
        max_pool(np.ones((3, 3, 1), np.float32), 2, 2, 1)


def chain(*nodes, weights):
    """An ONNX model of these nodes, one behind the other."""
    onnx = pytest.importorskip("onnx")
    made, constants = [], []
    for k, (kind, settings) in enumerate(nodes):
        names = [f"W{k}", f"b{k}"] if kind == "Conv" else []
        constants += [onnx.numpy_helper.from_array(array, name) for array, name in zip(weights, names)]
        made.append(onnx.helper.make_node(kind, [f"v{k}", *names], [f"v{k + 1}"], **settings))
    graph = onnx.helper.make_graph(
        made, "chain", [onnx.helper.make_tensor_value_info("v0", 1, ["N", 3, "h", "w"])],
        [onnx.helper.make_tensor_value_info(f"v{len(nodes)}", 1, ["N", "c", "h", "w"])], constants)
    return onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 13)])


CONV = dict(kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, dilations=[1, 1], group=1)
POOL = dict(kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4, ceil_mode=1)


def test_the_front_of_a_net_is_split_off_and_computes_the_same():
    _, *weights = problem(1, 1, 3, PANEL)
    nodes = ("Conv", CONV), ("Relu", {}), ("MaxPool", POOL), ("Sqrt", {}), ("Relu", {})
    layers, rest = split_off(chain(*nodes, weights=weights))
    assert [type(layer) for layer in layers] == [Convolution, MaxPool] and layers[0].relu
    assert [node.op_type for node in rest.graph.node] == ["Sqrt", "Relu"] and not rest.graph.initializer

    runtime = pytest.importorskip("onnxruntime")
    data = np.random.default_rng(0).normal(size=(1, 3, 9, 14)).astype(np.float32)
    whole, behind = (runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
                     for model in (chain(*nodes, weights=weights), rest))
    found = behind.run(None, {"v3": run_layers(layers, data)})[0]
    assert abs(found - whole.run(None, {"v0": data})[0]).max() < 1e-5


@pytest.mark.parametrize("change", (dict(strides=[2, 2]), dict(pads=[0] * 4), dict(dilations=[1, 2])))
def test_a_convolution_of_another_kind_stays_in_the_net(change):
    _, *weights = problem(1, 1, 3, PANEL)
    model = chain(("Conv", {**CONV, **change}), ("Relu", {}), weights=weights)
    assert split_off(model) == ([], model)


def test_weights_that_are_not_finite_stay_in_the_net():
    """Our ReLU would hide them: what is not a number becomes 0 there."""
    _, W, b = problem(1, 1, 3, PANEL)
    W[0, 0, 0, 0] = np.nan
    assert split_off(chain(("Conv", CONV), weights=(W, b)))[0] == []
