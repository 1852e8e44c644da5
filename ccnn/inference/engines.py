"""Engines: what computes a net's forward pass.

    forward = load_forward("deploy.prototxt", ["weights.caffemodel"], "fc8")
    scores = forward(rgb)                   # of H x W x 3 uint8: the blob fc8, L x h x w

Caffe is the reference. ONNX Runtime computes the same scores to 1e-4 in less time and memory. A new engine is one entry
of ENGINES: a function of (prototxt, weights, blob, gpu, precision, threads) that returns `forward`, or raises Unable.
"""
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np

from ccnn._util.errors import Unable, UserError
from ccnn._util.files import PathLike
from ccnn.images.reading import to_blob
from ccnn.inference.caffe_net import check_blob, forward, load_net, no_blob
from ccnn.inference.leading_layers import run_layers, split_off
from ccnn.inference.onnx_export import to_onnx

Forward = Callable[[np.ndarray], np.ndarray]        # H x W x 3 uint8 RGB -> C x h x w float32

PRECISIONS = ("float32", "bf16")

TRIAL = (65, 97)            # sides of an image on which every net is tried


def load_forward(prototxt: PathLike, weights: Sequence[PathLike], blob: str, engine: str = "auto",
                 gpu: Optional[int] = None, precision: str = "float32", threads: int = 1) -> Forward:
    """What computes a net's blob of an image.

    engine    : one of ENGINES, or "auto": the first of them that can
    gpu       : number of a GPU, for engines that use one
    precision : "float32", or "bf16": faster where the processor has it, and less exact
    threads   : that one image may keep busy; Caffe's are those of its BLAS (OPENBLAS_NUM_THREADS)
    """
    refused: Optional[Unable] = None
    for load in ENGINES.values() if engine == "auto" else [ENGINES[engine]]:
        try:
            return load(prototxt, weights, blob, gpu, precision, threads)
        except Unable as e:
            refused = refused or e
    assert refused
    raise refused


def run_in_caffe(prototxt: PathLike, weights: Sequence[PathLike], blob: str, gpu: Optional[int], precision: str,
                 threads: int) -> Forward:
    if precision != "float32":
        raise Unable(f"--precision {precision}: Caffe computes in float32; use --engine onnx")
    net = load_net(prototxt, weights, gpu, shape=(1, 3, *TRIAL))
    check_blob(net, prototxt, blob)
    return lambda rgb: forward(net, rgb, blob)


def run_in_onnx(prototxt: PathLike, weights: Sequence[PathLike], blob: str, gpu: Optional[int], precision: str,
                threads: int) -> Forward:
    """The net, translated to ONNX in memory: no file of it can be out of date."""
    if gpu is not None:
        raise Unable(f"--gpu {gpu}: ONNX Runtime computes on the processor here; use --engine caffe")
    start = {"float32": start_onnxruntime, "bf16": start_openvino}[precision]
    run = start(lambda: to_onnx(prototxt, weights, blob), threads, prototxt)

    def forward_in_onnx(rgb: np.ndarray) -> np.ndarray:
        try:
            return run(to_blob(rgb)[None])[0]
        except Exception as e:      # the classes of these libraries' exceptions are not public
            raise UserError(f"the net cannot run on an image of {rgb.shape[0]} x {rgb.shape[1]} pixels: "
                            f"{first_line(e)}") from None
    try:
        scores = forward_in_onnx(np.zeros((*TRIAL, 3), np.uint8))
    except UserError as e:
        raise UserError(f"{prototxt}: {e}") from None
    if scores.ndim != 3:
        raise no_blob(prototxt, blob)
    return forward_in_onnx


def start_onnxruntime(model: Callable[[], Any], threads: int, where: PathLike) -> Callable:
    """On one thread, our own kernels compute the leading layers, which are most of the work."""
    try:
        import onnx  # noqa: F401
        import onnxruntime
    except ImportError as e:
        raise Unable(f"--engine onnx: {e}; get it with: {sys.executable} -m pip install -r requirements.txt") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4          # what is wrong comes as an exception, too
    try:
        layers, rest = split_off(model()) if threads == 1 else ([], model())
        session = onnxruntime.InferenceSession(rest.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except UserError:
        raise
    except Exception as e:
        raise UserError(f"{where}: ONNX Runtime does not load it: {first_line(e)}") from None
    name = rest.graph.input[0].name
    return lambda data: session.run(None, {name: run_layers(layers, data)})[0]


def start_openvino(model: Callable[[], Any], threads: int, where: PathLike) -> Callable:
    """In bfloat16, which has 8 bits of precision. OpenVINO would compute so silently: here it is asked for."""
    if "bf16" not in instructions():
        raise Unable(f"--precision bf16: this processor ({platform.processor() or platform.machine()}) has no "
                     "instructions for it (avx512_bf16 or amx_bf16); leave --precision out")
    try:
        import onnx  # noqa: F401
        import openvino
    except ImportError as e:
        raise Unable(f"--precision bf16: {e}; get it with: make bf16") from None
    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1,
                "ENABLE_CPU_PINNING": False}        # pinned, the workers would share one core
    try:
        compiled = core.compile_model(core.read_model(model().SerializeToString()), "CPU", settings)
    except UserError:
        raise
    except Exception as e:
        raise UserError(f"{where}: OpenVINO does not load it: {first_line(e)}") from None
    return lambda data: compiled(data)[0]


ENGINES: dict[str, Callable[..., Forward]] = {"onnx": run_in_onnx, "caffe": run_in_caffe}


def instructions() -> str:
    """What /proc/cpuinfo says of the processor's instructions; nothing, where there is no such file."""
    try:
        return next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
    except OSError:
        return ""


def first_line(error: Any) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
