#!/usr/bin/env python3
"""Run a net on photographs in a process of its own, on one thread, and print what it took as JSON.

    bench/net_alone.py ENGINE SIZE NET WEIGHTS PHOTOGRAPH...

bench/bench_inference.py starts it. Beside the engines of the product it knows openvino, a peer to compare with:
requirements/openvino.txt.
"""
import json
import os
import resource
import sys
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"        # before NumPy and Caffe are loaded

import numpy as np

from ccnn.cli import command
from ccnn.images.reading import read_image, to_blob
from ccnn.inference.engines import ENGINES
from ccnn.inference.onnx_export import to_onnx
from ccnn.inference.predict import find_model, load_model


def run_in_openvino(prototxt, weights, blob, gpu):
    """The same ONNX graph in OpenVINO: float32, one thread."""
    import openvino
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(to_onnx(prototxt, weights, blob).SerializeToString(), b""), "CPU", {
        "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"})
    return lambda rgb: np.array(compiled(to_blob(rgb)[None])[0][0])


def main():
    if len(sys.argv) < 6:
        command.parser(__doc__).parse_args()
    engine, size, net, weights, *photographs = sys.argv[1:]
    ENGINES["openvino"] = run_in_openvino
    model = load_model(find_model(net=Path(net), weights=Path(weights), size=int(size)), engine)
    images = [model.reduce(read_image(path)) for path in photographs]
    model.forward(images[0])                    # the first run makes room for the blobs
    seconds = []
    for image in images:
        start = time.process_time()
        model.forward(image)
        seconds.append(time.process_time() - start)
    print(json.dumps({"scores": float(np.abs(model.forward(images[0])).mean()),
                      "seconds": sum(seconds) / len(seconds),
                      "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}))


if __name__ == "__main__":
    command.run(main)
