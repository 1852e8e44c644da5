"""Weights: .caffemodel files as arrays, and which of them fit a net."""
from pathlib import Path

import numpy as np

from ccnn.errors import UserError
from ccnn.files import whole_file
from ccnn.proto import read_message, read_net
from ccnn.trunk import VGG16


def stored_layers(path):
    """The names of the layers that have weights in a .caffemodel."""
    from caffe.proto import caffe_pb2
    model = read_message(path, caffe_pb2.NetParameter())
    names = {layer.name for layer in (*model.layer, *model.layers) if layer.blobs}
    if not names:
        raise UserError(f"{path}: holds no weights; give a .caffemodel")
    return names



def read_caffemodel(path):
    """{layer: [arrays]} of a .caffemodel, also of one in Caffe's old format."""
    from caffe.proto import caffe_pb2
    model = read_message(path, caffe_pb2.NetParameter())
    weights = {layer.name: [blob_array(blob, f"{path}: layer {layer.name}") for blob in layer.blobs]
               for layer in (*model.layer, *model.layers) if layer.blobs}
    if not weights:
        raise UserError(f"{path}: holds no weights; give a .caffemodel")
    return weights


def blob_array(blob, where):
    """A BlobProto as a float32 array; UserError unless it holds as many numbers as its shape says, all finite.

    The blob is emptied but for its data, so that its encoding ends in the packed floats themselves: many times
    faster than asking for them one by one.
    """
    shape = tuple(blob.shape.dim) or (blob.num, blob.channels, blob.height, blob.width)
    count = len(blob.data)
    if count != np.prod(shape):
        raise UserError(f"{where}: holds {count} numbers, but its shape is {by(shape)}")
    for field, _ in blob.ListFields():
        if field.name != "data":
            blob.ClearField(field.name)
    array = np.frombuffer(blob.SerializeToString()[-4 * count:], "<f4").reshape(shape)
    if not np.isfinite(array).all():
        raise UserError(f"{where}: holds {np.count_nonzero(~np.isfinite(array))} NaN or infinite values")
    return array


def write_caffemodel(path, weights):
    from caffe.proto import caffe_pb2
    model = caffe_pb2.NetParameter(name=Path(path).stem)
    for name, arrays in weights.items():
        layer = model.layer.add(name=name, type="Convolution")
        for array in arrays:
            blob = layer.blobs.add()
            blob.shape.dim.extend(array.shape)
            for part in np.array_split(array.ravel(), array.size // (1 << 20) + 1):     # lists are 8 times as large
                blob.data.extend(part.tolist())
    with whole_file(path) as file:
        file.write_bytes(model.SerializeToString())

CHANNELS = {"data": 3, "features": VGG16.channels}        # of the blobs that data layers make


def convolutions(prototxt):
    """{layer: shape of its weights, O x C x h x w} of a net, following the channels from its input on."""
    channels, shapes = dict(CHANNELS), {}
    for layer in read_net(prototxt).layer:
        if layer.type == "Convolution":
            p = layer.convolution_param
            if layer.bottom[0] not in channels:
                raise UserError(f"{prototxt}: how many channels has {layer.bottom[0]}, the bottom of {layer.name}? "
                                f"Known are {', '.join(CHANNELS)}, and what convolutions make of them")
            inputs, kernel = channels[layer.bottom[0]] // p.group, p.kernel_size[0]
            shapes[layer.name] = (p.num_output, inputs, kernel, kernel)
            channels[layer.top[0]] = p.num_output
        elif layer.type == "Input":
            channels[layer.top[0]] = layer.input_param.shape[0].dim[1]
        elif layer.type == "Concat" and all(blob in channels for blob in layer.bottom):
            channels[layer.top[0]] = sum(channels[blob] for blob in layer.bottom)
        elif layer.bottom and layer.bottom[0] in channels:
            channels[layer.top[0]] = channels[layer.bottom[0]]
    return shapes


def adapt(arrays, shape):
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


def by(shape):
    return "x".join(map(str, shape))
