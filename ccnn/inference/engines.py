"""Engines: what computes a net's forward pass.

    forward = load_forward("deploy.prototxt", ["weights.caffemodel"], "fc8")
    scores = forward(rgb)                   # of H x W x 3 uint8: the blob fc8, L x h x w

Caffe is the reference. ONNX Runtime computes the same scores to 1e-4 in less time and memory, and our own kernels
compute the leading convolutions faster still. Each engine runs a net on one thread; Caffe's threads are those of its
BLAS (OPENBLAS_NUM_THREADS). A new engine is one entry of ENGINES: a function of (prototxt, weights, blob, gpu) that
returns `forward`, or raises Unable.
"""
from collections.abc import Sequence
from typing import Any, Callable, Optional

import numpy as np

from ccnn._util.errors import Unable, UserError
from ccnn._util.files import PathLike
from ccnn._util.paths import packages
from ccnn.images.reading import to_blob
from ccnn.inference.caffe_net import check_blob, forward, load_net, no_blob
from ccnn.inference.leading_layers import run_layers, split_off
from ccnn.inference.onnx_export import to_onnx
from ccnn.inference.winograd import LANES

Forward = Callable[[np.ndarray], np.ndarray]        # H x W x 3 uint8 RGB -> C x h x w float32

TRIAL = (65, 97)            # sides of an image on which every net is tried


def load_forward(prototxt: PathLike, weights: Sequence[PathLike], blob: str, engine: str = "auto",
                 gpu: Optional[int] = None) -> Forward:
    """What computes a net's blob of an image.

    engine : one of ENGINES, or "auto": the first of them that can
    gpu    : number of a GPU, for engines that use one
    """
    refused: Optional[Unable] = None
    for load in ENGINES.values() if engine == "auto" else [ENGINES[engine]]:
        try:
            return load(prototxt, weights, blob, gpu)
        except Unable as e:
            refused = refused or e
    assert refused
    raise refused


def run_in_caffe(prototxt: PathLike, weights: Sequence[PathLike], blob: str, gpu: Optional[int]) -> Forward:
    net = load_net(prototxt, weights, gpu, shape=(1, 3, *TRIAL))
    check_blob(net, prototxt, blob)
    return lambda rgb: forward(net, rgb, blob)


def run_in_onnx(prototxt: PathLike, weights: Sequence[PathLike], blob: str, gpu: Optional[int]) -> Forward:
    return translated(prototxt, weights, blob, gpu, own_kernels=False)


def run_in_kernels(prototxt: PathLike, weights: Sequence[PathLike], blob: str, gpu: Optional[int]) -> Forward:
    """The leading layers, which are most of the work, in our own kernels; the rest in ONNX Runtime.

    Compiled without vectors (cython/ccnn/portable.h), our kernels are the slower ones and are not used.
    """
    return translated(prototxt, weights, blob, gpu, own_kernels=LANES > 1)


def translated(prototxt: PathLike, weights: Sequence[PathLike], blob: str, gpu: Optional[int], own_kernels: bool
               ) -> Forward:
    """The net, translated to ONNX in memory: no file of it can be out of date."""
    if gpu is not None:
        raise Unable(f"--gpu {gpu}: ONNX Runtime runs on the CPU here; leave --gpu out, or use --engine caffe with a "
                     "Caffe for GPUs")
    run = start_onnxruntime(lambda: to_onnx(prototxt, weights, blob), prototxt, own_kernels)

    def forward_in_onnx(rgb: np.ndarray) -> np.ndarray:
        try:
            return run(to_blob(rgb)[None])[0]
        except Exception as e:      # the classes of ONNX Runtime's exceptions are not public
            raise UserError(f"the net cannot run on an image of {rgb.shape[0]} x {rgb.shape[1]} pixels: "
                            f"{first_line(e)}") from None
    try:
        scores = forward_in_onnx(np.zeros((*TRIAL, 3), np.uint8))
    except UserError as e:
        raise UserError(f"{prototxt}: {e}") from None
    if scores.ndim != 3:
        raise no_blob(prototxt, blob)
    return forward_in_onnx


def start_onnxruntime(model: Callable[[], Any], where: PathLike, own_kernels: bool = False) -> Callable:
    """What runs an onnx.ModelProto on 1 x 3 x height x width; `where` names it in an error."""
    try:
        import onnx  # noqa: F401
        import onnxruntime
    except ImportError as e:
        raise Unable(f"ONNX Runtime does not load: {e}; get it with: {packages()}") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4          # errors arrive as exceptions, too
    try:
        layers, rest = split_off(model()) if own_kernels else ([], model())
        session = onnxruntime.InferenceSession(rest.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except UserError:
        raise
    except Exception as e:
        raise UserError(f"{where}: ONNX Runtime does not load it: {first_line(e)}") from None
    name = rest.graph.input[0].name
    return lambda data: session.run(None, {name: run_layers(layers, data)})[0]


# "auto" tries them in this order
ENGINES: dict[str, Callable[..., Forward]] = {"kernels": run_in_kernels, "onnx": run_in_onnx, "caffe": run_in_caffe}


def first_line(error: Any) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
