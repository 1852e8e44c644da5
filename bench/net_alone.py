#!/usr/bin/env python3
"""Run a net on photographs in a process of its own, on one thread, and print what it took as JSON.

    bench/net_alone.py ENGINE SIZE NET WEIGHTS PHOTOGRAPH...

bench/bench_inference.py starts it.
"""
import json
import os
import resource
import sys
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"        # before NumPy and Caffe are loaded


from ccnn.cli import command
from ccnn.images.reading import read_image
from ccnn.inference.predict import find_model, load_model


def main():
    if len(sys.argv) < 6:
        command.parser(__doc__).parse_args()
    engine, size, net, weights, *photographs = sys.argv[1:]
    model = load_model(find_model(net=Path(net), weights=Path(weights), size=int(size)), engine)
    images = [model.reduce(read_image(path)) for path in photographs]
    model.forward(images[0])                    # the first run makes room for the blobs
    seconds = []
    for image in images:
        start = time.process_time()
        model.forward(image)
        seconds.append(time.process_time() - start)
    print(json.dumps({"seconds": sum(seconds) / len(seconds),
                      "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}))


if __name__ == "__main__":
    command.run(main)
