"""Caffe nets: loaded so that no wrong file can abort the process, and their scores.

    net = load_net("deploy.prototxt", "weights.caffemodel")
    scores = forward(net, rgb)                          # L x h x w
    stride, offset = score_grid("deploy.prototxt")      # where the cells lie in the image
"""
import os
from collections.abc import Sequence
from typing import Optional, Union

import numpy as np

from ccnn._util.errors import Unable, UserError
from ccnn._util.files import PathLike
from ccnn._util.paths import CLONE
from ccnn._util.try_in_child import try_in_child
from ccnn.images.reading import to_blob
from ccnn.nets.caffe_files import read_net, stored_layers


def load_caffe(gpu: Optional[int] = None):
    """Import Caffe without its log, on the CPU or on the GPU of that number; return the module."""
    os.environ.setdefault("GLOG_minloglevel", "2")      # errors only; read when Caffe is loaded
    try:
        import caffe
    except ImportError as e:
        remedy = "run `source .caffe/activate` first, or `make` if there is no .caffe yet" if CLONE else \
            "pip does not install it: use another engine, or `make` in a clone of the repository"
        raise Unable(f"Caffe does not load ({e}); {remedy}") from None
    if gpu is None:
        caffe.set_mode_cpu()
        return caffe

    def use_gpu():
        caffe.set_device(gpu)
        caffe.set_mode_gpu()
    error = try_in_child(use_gpu)
    if error:
        raise UserError(f"--gpu {gpu}: {error}; leave --gpu out to use the CPU")
    use_gpu()
    return caffe


def load_net(prototxt: PathLike, weights: Union[PathLike, Sequence[PathLike]], gpu: Optional[int] = None,
             shape: Optional[tuple[int, ...]] = None):
    """A caffe.Net in the TEST phase, every parameter taken from the weights.

    prototxt : path of the net
    weights  : path of a .caffemodel, or a list of them (a backbone's and a head's)
    shape    : also try this shape, 1 x 3 x h x w, at the blob `data`: a net that runs at one size only fails here

    Caffe answers a damaged file with abort(), leaves a layer that the weights lack at its filler, and ignores
    NaN. Here a child process tries the loading first, and each of these is a UserError.
    """
    files: list[PathLike] = [weights] if isinstance(weights, (str, os.PathLike)) else list(weights)
    for path in (prototxt, *files):
        with open(path, "rb"):          # a missing or unreadable file is an OSError that names it
            pass
    caffe = load_caffe(gpu)
    given = layers_without_weights(prototxt).union(*map(stored_layers, files))

    def load():
        net = caffe.Net(str(prototxt), caffe.TEST)
        for path in files:
            net.copy_from(str(path))
        return net

    def trial():
        net = load()
        missing = [name for name in net.params if name not in given]
        if missing:
            raise ValueError(f"no weights for {', '.join(missing)} in {' or '.join(map(str, files))}")
        check_finite(net)
        if shape:
            try_shape(net, shape)

    error = try_in_child(trial)
    if error:
        raise UserError(f"{prototxt} with {' and '.join(map(str, files))}: {error}")
    return load()


def layers_without_weights(prototxt: PathLike) -> set:
    """The layers that their filler defines: bilinear upsampling."""
    return {layer.name for layer in read_net(prototxt).layer
            if layer.convolution_param.weight_filler.type == "bilinear"}


def check_finite(net) -> None:
    for name, blobs in net.params.items():
        if not all(np.isfinite(blob.data).all() for blob in blobs):
            raise ValueError(f"the weights of {name} hold NaN or infinite values")


def try_shape(net, shape: tuple[int, ...]) -> None:
    if "data" not in net.inputs:
        raise ValueError("the net has no input blob `data`; is it a training net?")
    net.blobs["data"].reshape(*shape)
    net.forward()


def forward(net, rgb: np.ndarray, blob: str = "fc8") -> np.ndarray:
    """The net's scores for an image, L x h x w on its grid; or another blob."""
    net.blobs["data"].reshape(1, 3, *rgb.shape[:2])
    net.blobs["data"].data[0] = to_blob(rgb)
    net.forward()
    return net.blobs[blob].data[0].copy()


def check_scores(net, prototxt: PathLike, classes: Sequence[str]) -> None:
    """UserError unless the net scores these classes in the blob `fc8`."""
    check_blob(net, prototxt, "fc8")
    check_labels(net.blobs["fc8"].channels, prototxt, classes)


def check_blob(net, prototxt: PathLike, blob: str) -> None:
    if blob not in net.blobs or net.blobs[blob].data.ndim != 4:
        raise no_blob(prototxt, blob)


def no_blob(prototxt: PathLike, blob: str) -> UserError:
    return UserError(f"{prototxt}: has no score blob `{blob}`, 1 x L x h x w; give a deploy net")


def check_labels(count: int, prototxt: PathLike, classes: Sequence[str]) -> None:
    """UserError unless a net that scores `count` labels scores these classes."""
    if count != len(classes):
        raise UserError(f"{prototxt}: scores {count} labels, but {len(classes)} class names are known; "
                        "give them with --classes")


def score_grid(prototxt: PathLike) -> tuple[int, float]:
    """(stride, offset) in pixels: cell k of `fc8` is centred on pixel offset + stride * k of `data`.

    From fc8 up to data, a layer of kernel extent e, padding p and stride s centres its cell k on cell
    s k + (e - 1) / 2 - p of its bottom. The 8s nets have (8, 0), head_deploy (8, -0.5), the 32s net (32, 15.5).
    """
    stride, offset, blob = 1, 0.0, "fc8"
    for layer in reversed(read_net(prototxt).layer):
        if blob not in layer.top:
            continue
        if layer.type in ("Deconvolution", "Crop", "Interp"):
            raise UserError(f"{prototxt}: {layer.name} ({layer.type}) enlarges before fc8; "
                            "let fc8 be the coarse scores")
        step, shift = layer_grid(layer)
        stride, offset = step * stride, step * offset + shift
        blob = layer.bottom[0] if layer.bottom else blob
    return stride, offset


def layer_grid(layer) -> tuple[int, float]:
    """(s, (e - 1) / 2 - p) of a layer."""
    kernel, step, pad, dilation = 1, 1, 0, 1
    if layer.type == "Convolution":
        p = layer.convolution_param
        kernel, step, pad, dilation = ((list(values) or [default])[0] for values, default in (
            (p.kernel_size, 1), (p.stride, 1), (p.pad, 0), (p.dilation, 1)))
    elif layer.type == "Pooling":
        p = layer.pooling_param
        kernel, step, pad = p.kernel_size, p.stride, p.pad
    return step, dilation * (kernel - 1) / 2 - pad
