"""The shapes of a deploy net's blobs, and how much memory it takes, before it runs: a stranger's file may ask for any
padding.

    check_size(net, "cats.ccnn", 321)       # a NetParameter, for images of 321 x 321 pixels
    blob_sides(net, 321)["features"]        # 42: rows and columns of a blob
"""
import math
from typing import Any

from ccnn._util.errors import UserError
from ccnn.nets.caffe_files import MOST_AXES, by

Shape = tuple[int, ...]         # channels, rows, columns

MOST_NUMBERS = 1 << 28          # in a blob, or of a layer's weights: 1 GB. VGG-16 makes as many of 2000 x 2000 pixels

MOST_TOGETHER = 1 << 29         # in the blobs that are there at the same time, or of all weights: 2 GB


def check_size(net: Any, where: object, side: int) -> None:
    """UserError if a layer has more than MOST_NUMBERS weights, or makes more numbers of an image of side x side pixels;
    or if all weights, or the blobs at some moment, have more than MOST_TOGETHER. A blob is there from its layer to the
    last one that reads it."""
    shapes: dict[str, Shape] = {}
    last = {blob: place for place, layer in enumerate(net.layer) for blob in layer.bottom}
    all_weights = 0
    for place, layer in enumerate(net.layer):
        try:
            shape, weights = layer_size(layer, [shapes[blob] for blob in layer.bottom], side)
        except (KeyError, IndexError, ZeroDivisionError):
            raise UserError(f"{where}: layer {layer.name!r} has no such bottom, no kernel or no stride") from None
        except ValueError:
            raise UserError(f"{where}: layer {layer.name!r} has no shape {{ dim: 0  dim: -1 }}, the only one that a "
                            "model uses") from None
        if not 0 < min(shape) <= math.prod(shape) <= MOST_NUMBERS or weights > MOST_NUMBERS:
            raise UserError(f"{where}: layer {layer.name!r} makes {by(shape)} numbers of an image of {side} x {side} "
                            f"pixels, with {weights} weights; at least 1 and at most {MOST_NUMBERS} are possible")
        shapes.update(dict.fromkeys(layer.top, shape))
        all_weights += weights
        together = sum(map(math.prod, shapes.values()))
        if max(together, all_weights) > MOST_TOGETHER:
            raise UserError(f"{where}: layer {layer.name!r} makes the net hold {together} numbers of an image of "
                            f"{side} x {side} pixels, and {all_weights} weights; at most {MOST_TOGETHER} are possible")
        for blob in (*layer.bottom, *layer.top):
            if last.get(blob, place) <= place:
                shapes.pop(blob, None)


def blob_sides(net: Any, side: int) -> dict[str, int]:
    """{blob: its rows, which are its columns, too} for an image of side x side pixels."""
    shapes: dict[str, Shape] = {}
    for layer in net.layer:
        shape, _ = layer_size(layer, [shapes[blob] for blob in layer.bottom], side)
        shapes.update(dict.fromkeys(layer.top, shape))
    return {blob: shape[1] for blob, shape in shapes.items()}


def layer_size(layer: Any, bottoms: list[Shape], side: int) -> tuple[Shape, int]:
    """(the shape of its top, how many weights it has), of a layer of ccnn.inference.model_file.ALLOWED_LAYERS."""
    if layer.type == "Input":
        shapes = layer.input_param.shape            # Caffe ends where there are more axes
        return (3, side, side), max((math.prod(shape.dim[:MOST_AXES]) for shape in shapes), default=0)
    channels, *grid = bottoms[0]
    weights = 0
    if layer.type == "Convolution":
        p = layer.convolution_param
        kernels = along(p, "kernel", p.kernel_size)
        weights = p.num_output * channels // p.group * math.prod(kernels)
        channels = p.num_output
        grid = [(length + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
                for length, kernel, stride, pad, dilation in zip(
                    grid, kernels, along(p, "stride", p.stride or [1]), along(p, "pad", p.pad or [0]),
                    along(p, "dilation", p.dilation or [1]))]
    elif layer.type == "Pooling":
        p = layer.pooling_param
        grid = [1 if p.global_pooling else -((kernel - length - 2 * pad) // stride) + 1     # Caffe rounds up
                for length, kernel, stride, pad in zip(grid, along(p, "kernel", [p.kernel_size]),
                                                       along(p, "stride", [p.stride]), along(p, "pad", [p.pad]))]
    elif layer.type == "Reshape":
        dims = layer.reshape_param
        if [*dims.shape.dim] != [0, -1] or dims.axis or dims.num_axes != -1:
            raise ValueError
        channels, grid = channels * math.prod(grid), [1, 1]
    elif layer.type == "Concat":
        channels = sum(shape[0] for shape in bottoms)
    return (channels, *grid), weights


def along(p: Any, name: str, values: Any) -> list[int]:
    """A setting of a convolution or a pooling, along rows and along columns."""
    sides = [getattr(p, f"{name}_{axis}", 0) for axis in "hw"]
    return sides if any(sides) else [values[0], values[-1]]
