"""The leading layers of a net, computed by our own kernels: 3 x 3 convolutions, ReLU and max-pooling.

    layers, rest = split_off(model)             # of an onnx.ModelProto; `rest` is the model behind these layers
    values = run_layers(layers, data)           # 1 x C x h x w, the input of `rest`

They are most of the work of our nets: all 13 convolutions of VGG-16. ONNX Runtime multiplies and adds as fast as the
processor can. Winograd's algorithm (winograd.h) needs a quarter of the multiplications. One image, one thread.
"""
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from ccnn.inference.winograd import LANES, PANEL, convolve, max_pool, prepare


class Convolution(NamedTuple):
    weights: np.ndarray         # as `convolve` takes them
    bias: np.ndarray
    dilation: int
    relu: bool

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return convolve(x, self.weights, self.bias, self.dilation, self.relu)


class MaxPool(NamedTuple):
    kernel: int
    stride: int
    pad: int

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return max_pool(x, self.kernel, self.stride, self.pad)


Layer = Union[Convolution, MaxPool]        # rows x columns x channels -> the same of the next layer


def run_layers(layers: Sequence[Layer], data: np.ndarray) -> np.ndarray:
    """1 x C x h x w of 1 x C x h x w"""
    if not layers:
        return data
    x = np.ascontiguousarray(data[0].transpose(1, 2, 0))
    for layer in layers:
        x = layer(x)
    return np.ascontiguousarray(x.transpose(2, 0, 1))[None]


def split_off(model: Any) -> tuple[list[Layer], Any]:
    """The layers at the front of an onnx.ModelProto that our kernels compute, maybe none; and the model behind them.

    The weights of these layers are taken out of `model`, because nothing so large is kept twice.
    """
    import onnx
    nodes, constants = list(model.graph.node), {constant.name: constant for constant in model.graph.initializer}
    uses = Counter(name for node in nodes for name in node.input)
    layers: list[Layer] = []
    value, channels, used = model.graph.input[0].name, 3, 0
    while used < len(nodes) and nodes[used].input[0] == value and uses[value] == 1:
        node = nodes[used]
        last = layers[-1] if layers else None
        if node.op_type == "Relu" and isinstance(last, Convolution):
            layers[-1] = last._replace(relu=True)
        else:
            layer: Optional[Layer] = (pooling(node) if node.op_type == "MaxPool" else
                                      convolution(node, constants, channels))
            if layer is None:
                break
            if isinstance(layer, Convolution):
                channels = layer.bias.size
                constants.pop(node.input[1]).ClearField("raw_data")
            layers.append(layer)
        value, used = node.output[0], used + 1
    if not layers:
        return [], model
    wanted = {name for node in nodes[used:] for name in node.input}
    data = onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, ["N", channels, "height", "width"])
    graph = onnx.helper.make_graph(nodes[used:], model.graph.name, [data], model.graph.output,
                                   [constant for name, constant in constants.items() if name in wanted])
    return layers, onnx.helper.make_model(graph, ir_version=model.ir_version, opset_imports=model.opset_import)


def settings(node: Any) -> dict[str, Any]:
    from onnx.helper import get_attribute_value
    return {attribute.name: get_attribute_value(attribute) for attribute in node.attribute}


def convolution(node: Any, constants: dict[str, Any], channels: int) -> Optional[Convolution]:
    """None where our kernels do not compute it."""
    from onnx.numpy_helper import to_array
    of_node = settings(node)
    if node.op_type != "Conv" or len(node.input) != 3 or of_node["kernel_shape"] != [3, 3]:
        return None
    weights, bias = (to_array(constants[name]) for name in node.input[1:])
    outputs, inputs = weights.shape[:2]
    dilation = of_node["dilations"][0]
    fits = inputs == channels and outputs % PANEL == 0 and (inputs % LANES == 0 or inputs < LANES)
    usual = (of_node["group"], of_node["strides"], of_node["dilations"], of_node["pads"]) == (
        1, [1, 1], [dilation] * 2, [dilation] * 4)
    if not fits or not usual or not np.isfinite(weights).all() or not np.isfinite(bias).all():
        return None
    return Convolution(prepare(weights), np.ascontiguousarray(bias, np.float32), dilation, relu=False)


def pooling(node: Any) -> Optional[MaxPool]:
    of_node = settings(node)
    kernel, stride, pad = (of_node[name][0] for name in ("kernel_shape", "strides", "pads"))
    square = (of_node["kernel_shape"], of_node["strides"], of_node["pads"]) == ([kernel] * 2, [stride] * 2, [pad] * 4)
    return MaxPool(kernel, stride, pad) if square and stride + pad <= kernel else None
