"""The weights that a net needs, by their shapes, and how those of another net become them."""
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import PathLike
from ccnn._util.foreign_files import load_json
from ccnn.nets.backbones import BACKBONES, DEFAULT, Backbone
from ccnn.nets.caffe_files import Arrays, by, read_caffemodel, read_net

Shapes = dict[str, tuple[int, ...]]             # {layer: shape of its weights, O x C x h x w}


def convolutions(prototxt: PathLike) -> Shapes:
    """The shapes that a net's convolutions need, following the channels from its input on."""
    channels, shapes = {"data": 3}, Shapes()
    for layer in read_net(prototxt).layer:
        if layer.type == "Python" and not layer.bottom:         # a data layer
            channels.update({name: blob.channels for name, blob in backbone_under(layer).blobs.items()})
        if layer.type == "Convolution":
            p = layer.convolution_param
            if layer.bottom[0] not in channels:
                raise UserError(f"{prototxt}: does not say how many channels {layer.bottom[0]} has, the bottom of "
                                f"{layer.name}; known: {', '.join(channels)}")
            inputs, kernel = channels[layer.bottom[0]] // p.group, p.kernel_size[0]
            shapes[layer.name] = (p.num_output, inputs, kernel, kernel)
            channels[layer.top[0]] = p.num_output
        elif layer.type == "Input":
            channels[layer.top[0]] = layer.input_param.shape[0].dim[1]
        elif layer.type == "Concat" and all(blob in channels for blob in layer.bottom):
            channels[layer.top[0]] = sum(channels[blob] for blob in layer.bottom)
        elif layer.bottom and layer.bottom[0] in channels:
            channels.update(dict.fromkeys(layer.top[:1], channels[layer.bottom[0]]))
    return shapes


def backbone_under(data_layer) -> Backbone:
    """The backbone whose features a data layer reads, which is the setting `backbone` of it."""
    # the layer itself reports what is wrong with its settings
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        return BACKBONES.get(load_json(data_layer.python_param.param_str).get("backbone"), DEFAULT)
    return DEFAULT


def check_weights(path: PathLike, shapes: Shapes) -> list[str]:
    """The layers of a net that a .caffemodel does not fill; UserError if Caffe cannot load it into the net."""
    if "," in str(path):
        raise UserError(f"{path}: has a comma, at which Caffe would cut the path in two; rename the file or its folder")
    stored = read_caffemodel(path)
    for name in shapes.keys() & stored.keys():
        had = stored[name][0].shape
        if had != shapes[name]:
            raise UserError(f"{path}: layer {name} is {by(had)}, but the net's is {by(shapes[name])}; "
                            "ccnn init-weights makes weights that fit")
    missing = [name for name in shapes if name not in stored]
    if len(missing) == len(shapes):
        raise UserError(f"{path}: holds no layer of the net; it has {', '.join(list(stored)[:5])} ...")
    return missing


def why_unfit(prototxt: PathLike, files: Sequence[PathLike]) -> Optional[str]:
    """One line on the first layer of a net that the weights lack or have in another shape; None if they have all."""
    try:
        shapes = convolutions(prototxt)
        stored = {name: arrays[0].shape for path in files for name, arrays in read_caffemodel(path).items()}
    except UserError:
        return None
    for name, shape in shapes.items():
        if stored.get(name) != shape:
            had = f"has layer {name} as {by(stored[name])}" if name in stored else f"has no layer {name}"
            return f"{files[-1]}: {had}, but {prototxt} needs it as {by(shape)}; give --net and --weights that " \
                   "belong together"
    return None


def fill(shapes: Shapes, sources: dict[Path, Arrays]) -> tuple[Arrays, dict[str, str]]:
    """Fill a net's layers, each from the first source that has one of its name.

    Returns (arrays of the layers that were filled, {layer: what was done}).
    """
    filled, done = {}, {}
    for name, shape in shapes.items():
        source = next((path for path, arrays in sources.items() if name in arrays), None)
        if not source:
            done[name] = f"left random  {by(shape)}: no source has it"
            continue
        arrays, done[name] = adapt(sources[source][name], shape)
        if arrays:
            filled[name] = arrays
            done[name] += f"  <- {source.name}"
    return filled, done


def adapt(arrays: list[np.ndarray], shape: tuple[int, ...]) -> tuple[Optional[list[np.ndarray]], str]:
    """What of a source's [weights, bias] fits a convolution O x C x h x w: (arrays or None, what was done)."""
    weights, bias = arrays[0], arrays[-1]
    outputs, inputs, kernel, _ = shape
    had = weights.shape[-2:] if weights.shape[:2] == (1, 1) else weights.shape      # old files have four dimensions
    side = round((weights.size / (outputs * inputs)) ** 0.5)       # an inner product's weights are C x h x w too
    if bias.size != outputs or weights.size != outputs * inputs * side**2:
        return None, f"left random  {by(shape)}: the source has {by(had)}"
    weights = weights.reshape(outputs, inputs, side, side)
    if side == kernel:
        return [weights, bias.ravel()], f"copied       {by(shape)}" + ("" if had == shape else f", from {by(had)}")
    if (side + 1) // 2 == kernel:
        done = f"subsampled   {by(shape)}: every second row and column of {side}x{side}"
        return [weights[:, :, ::2, ::2], bias.ravel()], done
    return None, f"left random  {by(shape)}: the source's kernel is {side}x{side}"
