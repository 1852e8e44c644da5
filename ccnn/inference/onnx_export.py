"""A Caffe net as ONNX: the same function, for programs that are not Caffe.

    model = to_onnx("deploy.prototxt", ["backbone.caffemodel", "head.caffemodel"], "fc8")      # an onnx.ModelProto

Input and output have the names of their blobs: `data`, N x 3 x height x width of any size, and `fc8`. TRANSLATIONS says
how each kind of layer is translated: those that our deploy nets have. Every other layer is an UnknownLayer.
"""
from collections.abc import Sequence
from typing import Any

import numpy as np

from ccnn._util.errors import Unable, UserError
from ccnn._util.files import PathLike
from ccnn.inference.caffe_net import no_blob
from ccnn.nets.caffe_files import Arrays, by, read_caffemodel, read_net
from ccnn.nets.geometry import pair

OPSET, IR_VERSION = 13, 8       # old ones, which phones and browsers know too

INPUT = "data"


def to_onnx(prototxt: PathLike, weights: Sequence[PathLike], blob: str) -> Any:
    """The net from the blob `data` to `blob` as an onnx.ModelProto.

    weights : .caffemodel files; a layer that two of them have is the last one's
    """
    import onnx
    arrays: Arrays = {}
    for path in weights:
        arrays.update(read_caffemodel(path))
    graph = Graph(prototxt, arrays)
    for layer in layers_below(prototxt, blob):
        if layer.type not in TRANSLATIONS:
            raise unknown(prototxt, layer, f"is of type {layer.type!r}")
        graph.translate(layer)
    graph.node("Identity", [graph.values[blob]], blob)
    rank = graph.ranks[blob]
    sides = ["N", "channels", "rows", "columns"][:rank]
    image = onnx.helper.make_tensor_value_info(INPUT, onnx.TensorProto.FLOAT, ["N", 3, "height", "width"])
    scores = onnx.helper.make_tensor_value_info(blob, onnx.TensorProto.FLOAT, sides)
    made = onnx.helper.make_graph(graph.nodes, "ccnn", [image], [scores], graph.constants)
    return onnx.helper.make_model(made, producer_name="ccnn", ir_version=IR_VERSION,
                                  opset_imports=[onnx.helper.make_opsetid("", OPSET)])


def layers_below(prototxt: PathLike, blob: str) -> list:
    """The layers that the last value of a blob depends on, in the net's order."""
    net = read_net(prototxt)
    if net.input:
        raise UnknownLayer(f"{prototxt}: is written in an old format of Caffe, which has no translation to ONNX; "
                           "upgrade_net_proto_text of Caffe makes a new one, or use --engine caffe")
    wanted, below = {blob}, []
    for layer in reversed(net.layer):
        if wanted.intersection(layer.top):
            below.append(layer)
            wanted.difference_update(set(layer.top) - set(layer.bottom))
            wanted.update(layer.bottom)
    tops = {top for layer in below for top in layer.top}
    if blob not in tops:
        raise no_blob(prototxt, blob)
    if INPUT not in tops or not any(layer.type == "Input" for layer in below):
        raise UserError(f"{prototxt}: the net has no input blob `{INPUT}`; is it a training net?")
    return below[::-1]


class UnknownLayer(Unable):
    """A layer, or a setting of it, that has no translation."""


def unknown(prototxt: PathLike, layer: Any, what: str) -> UnknownLayer:
    return UnknownLayer(f"{prototxt}: layer {layer.name!r} {what}, which has no translation to ONNX; translated are "
                        f"{', '.join(sorted(TRANSLATIONS))} as our nets use them: use --engine caffe")


class Graph:
    """The nodes and constants of an ONNX graph that grows layer by layer."""

    def __init__(self, prototxt: PathLike, weights: Arrays) -> None:
        self.prototxt, self.weights = prototxt, weights
        self.nodes: list = []
        self.constants: list = []
        self.values: dict[str, str] = {}        # {blob: the name of its value so far}: layers may work in place
        self.ranks: dict[str, int] = {}         # {blob: its number of dimensions}

    def translate(self, layer: Any) -> None:
        if layer.include or layer.exclude or any(param.name for param in layer.param):
            raise unknown(self.prototxt, layer, "has rules of inclusion or shares its weights")
        missing = [blob for blob in layer.bottom if blob not in self.values]
        if missing:
            raise UserError(f"{self.prototxt}: layer {layer.name!r} has an unknown bottom blob {missing[0]!r}")
        try:
            value = TRANSLATIONS[layer.type](self, layer)
        except UserError:
            raise
        except ValueError as problem:
            raise unknown(self.prototxt, layer, str(problem)) from None
        self.values[layer.top[0]] = value
        self.ranks.setdefault(layer.top[0], self.ranks[layer.bottom[0]] if layer.bottom else 4)

    def node(self, kind: str, inputs: list[str], output: str, **settings: Any) -> str:
        from onnx.helper import make_node
        self.nodes.append(make_node(kind, inputs, [output], name=output, **settings))
        return output

    def of_layer(self, kind: str, layer: Any, inputs: Sequence[str] = (), **settings: Any) -> str:
        """A node of a layer's first bottom blob and of more inputs; the name of its output."""
        return self.node(kind, [self.values[layer.bottom[0]], *inputs], f"{layer.name}:{len(self.nodes)}", **settings)

    def constant(self, array: np.ndarray, name: str) -> str:
        from onnx.numpy_helper import from_array
        self.constants.append(from_array(array, name))
        return name


# One function per kind of layer: the name of the value that its top blob gets

def input_data(graph: Graph, layer: Any) -> str:
    if list(layer.top) != [INPUT]:
        raise UserError(f"{graph.prototxt}: the net's input is {layer.top[0]!r}, not `{INPUT}`")
    return INPUT


def convolution(graph: Graph, layer: Any) -> str:
    p = layer.convolution_param
    kernel, stride, pad, dilation = (pair(p, name, default) for name, default in (
        ("kernel_size", 1), ("stride", 1), ("pad", 0), ("dilation", 1)))
    if p.axis != 1 or len(layer.bottom) != 1:
        raise unknown(graph.prototxt, layer, "has another axis or several bottoms")
    return graph.of_layer("Conv", layer, convolution_weights(graph, layer, kernel), kernel_shape=kernel, strides=stride,
                          pads=pad * 2, dilations=dilation, group=p.group)


def convolution_weights(graph: Graph, layer: Any, kernel: list[int]) -> list[str]:
    """The names of the constants W, outputs x inputs / group x h x w, and b, if it has one."""
    p = layer.convolution_param
    if layer.name not in graph.weights:
        raise UserError(f"{graph.prototxt}: no weights for {layer.name}")
    arrays = graph.weights.pop(layer.name)          # they are large: none is kept twice
    shape, *rest = (array.shape for array in arrays)
    if len(rest) != p.bias_term or len(shape) != 4 or (shape[0], *shape[2:]) != (p.num_output, *kernel) or \
            (rest and np.prod(rest[0]) != p.num_output):
        raise UserError(f"{graph.prototxt}: layer {layer.name} needs weights {p.num_output}xCx{by(tuple(kernel))}"
                        f"{' and a bias' * p.bias_term}, but the file has {' and '.join(map(by, (shape, *rest)))}")
    return [graph.constant(array.reshape(shape), f"{layer.name}.{kind}")
            for array, shape, kind in zip(arrays, (shape, (p.num_output,)), ("weight", "bias"))]


def pooling(graph: Graph, layer: Any) -> str:
    """Caffe rounds the number of windows up, and leaves out one that begins in the padding behind the image. ONNX
    Runtime keeps it. Where stride + pad is at most the kernel, there is none. An average counts the padding as zeros.
    """
    p = layer.pooling_param
    kind = {p.MAX: "MaxPool", p.AVE: "AveragePool"}.get(p.pool)
    if not kind:
        raise unknown(graph.prototxt, layer, "pools at random")
    if p.global_pooling:
        return graph.of_layer("Global" + kind, layer)
    kernel, stride, pad = (pair(p, name, default) for name, default in (
        ("kernel_size", 0), ("stride", 1), ("pad", 0)))
    if any(s + d > k for s, d, k in zip(stride, pad, kernel)):
        raise unknown(graph.prototxt, layer, "has a stride and a pad that together exceed its kernel")
    settings: dict[str, Any] = {"kernel_shape": kernel, "strides": stride, "pads": pad * 2}
    if kind == "MaxPool":
        return graph.of_layer(kind, layer, ceil_mode=1, **settings)
    if stride != [1, 1]:
        raise unknown(graph.prototxt, layer, f"takes averages with stride {by(tuple(stride))}")
    return graph.of_layer(kind, layer, count_include_pad=1, **settings)


def relu(graph: Graph, layer: Any) -> str:
    if layer.relu_param.negative_slope:
        raise unknown(graph.prototxt, layer, "has a negative slope")
    return graph.of_layer("Relu", layer)


def dropout(graph: Graph, layer: Any) -> str:
    """Nothing is dropped outside training."""
    return graph.values[layer.bottom[0]]


def power(graph: Graph, layer: Any) -> str:
    """(shift + scale x)^power"""
    p, value = layer.power_param, graph.values[layer.bottom[0]]
    for kind, number, neutral in (("Mul", p.scale, 1), ("Add", p.shift, 0), ("Pow", p.power, 1)):
        if (kind, number) == ("Pow", 0.5):
            value = graph.node("Sqrt", [value], f"{layer.name}:{len(graph.nodes)}")
        elif number != neutral:
            constant = graph.constant(np.array(number, np.float32), f"{layer.name}.{kind.lower()}")
            value = graph.node(kind, [value, constant], f"{layer.name}:{len(graph.nodes)}")
    return value


def concat(graph: Graph, layer: Any) -> str:
    return graph.of_layer("Concat", layer, [graph.values[blob] for blob in layer.bottom[1:]],
                          axis=layer.concat_param.axis)


def reshape(graph: Graph, layer: Any) -> str:
    """0 keeps a side and -1 finds it, in ONNX as in Caffe."""
    p = layer.reshape_param
    if p.axis or p.num_axes != -1:
        raise unknown(graph.prototxt, layer, "reshapes some axes only")
    graph.ranks[layer.top[0]] = len(p.shape.dim)
    return graph.of_layer("Reshape", layer, [graph.constant(np.array(p.shape.dim, np.int64), f"{layer.name}.shape")])


def bias(graph: Graph, layer: Any) -> str:
    """x + b, the axes of b being those of x from bias_param.axis on."""
    if len(layer.bottom) != 2:
        raise unknown(graph.prototxt, layer, "has a bias of its own")
    rank, of_bias = (graph.ranks[blob] for blob in layer.bottom)
    first = layer.bias_param.axis % rank
    behind = np.arange(of_bias, rank - first)
    value = graph.values[layer.bottom[1]]
    if behind.size:
        axes = graph.constant(behind, f"{layer.name}.axes")
        value = graph.node("Unsqueeze", [value, axes], f"{layer.name}:{len(graph.nodes)}")
    return graph.of_layer("Add", layer, [value])


TRANSLATIONS = {"Input": input_data, "Convolution": convolution, "Pooling": pooling, "ReLU": relu, "Dropout": dropout,
          "Power": power, "Concat": concat, "Reshape": reshape, "Bias": bias}
