#!/usr/bin/env python3
"""How many iterations and milliseconds an image takes the solver, on score maps of real images (paper, section 4).

    study/study.py tags size size_10 --seeds 1          # the models
    study/solver_iterations.py --out study/results                 # the table, and solver_iterations.json

The paper says: less than 50 iterations, and under 30 ms on one core. Here every eighth image of val is solved by
projected gradient ascent, as in the paper, and by Newton's method, our default; each to a duality gap of 1e-6.
"""
import time

import numpy as np
import study_runs as runs
from experiments import EXPERIMENTS

import ccnn
from ccnn._util.errors import UserError
from ccnn.cli import command
from ccnn.evaluation.tables import markdown_table
from ccnn.images.ids import read_split, truth_paths
from ccnn.images.labels import BACKGROUND, LABELS, VOID
from ccnn.images.reading import read_mask
from ccnn.inference.caffe_net import load_caffe, load_net
from ccnn.paper import SIZE_BOUNDS
from ccnn.supervision.constraint_builder import ConstraintBuilder
from ccnn.supervision.kinds import SUPERVISION

ROWS = ("tags", "size", "size_10")
METHODS = {"pga": "projected gradient", "newton": "Newton"}


def main(argv=None):
    args = runs.arguments(__doc__, argv)
    load_caffe()
    names = read_split(args.root, "val")[::8]
    masks = [read_mask(path) for path in truth_paths(args.root, names)]
    found = [measure(row, args, names, masks, method) for row in ROWS for method in METHODS]
    print(table(found))
    runs.write_results(args.out, "solver_iterations.json", found)


def measure(row, args, names, masks, method):
    """Iterations and milliseconds of every image."""
    experiment, folder = EXPERIMENTS[row], args.folder / row / "1"
    net = load_net(folder / "deploy.prototxt", runs.last_model(folder))
    system = experiment.trained
    settings = {**system.settings, **system.frozen, **experiment.loss}
    kind = SUPERVISION[settings.pop("supervision")]
    builder = ConstraintBuilder(kind, settings)
    iterations, seconds = [], []
    for name, mask in zip(names, masks):
        f = runs.forward(net, args.features / f"{name}.npy").reshape(LABELS, -1)
        areas = np.bincount(mask.ravel(), minlength=VOID + 1)[:LABELS]
        blobs = {"tags": np.where(np.arange(LABELS) == BACKGROUND, 1, areas > 0),
                 "sizes": areas > SIZE_BOUNDS["large"] * areas.sum()}
        c = builder.build([blobs[name] for name in kind.names], LABELS, None)
        start = time.perf_counter()
        solved = ccnn.maximize(f, c, method=method)
        seconds.append(time.perf_counter() - start)
        iterations.append(solved.iterations)
        if solved.status != "optimal":
            raise UserError(f"{name}: the solver ended with {solved.status!r}")
    return {"row": row, "method": method, "iterations": iterations, "ms": [round(1e3 * s, 3) for s in seconds]}


def table(found):
    lines = []
    for result in found:
        iterations, ms = np.array(result["iterations"]), np.array(result["ms"])
        lines.append([EXPERIMENTS[result["row"]].title, METHODS[result["method"]], str(len(iterations)),
                      f"{100 * np.mean(iterations < 50):.0f} %", str(int(np.median(iterations))),
                      str(int(iterations.max())), f"{np.median(ms):.2f}", f"{ms.max():.1f}"])
    return markdown_table(["constraints", "method", "images", "below 50 iterations", "median", "most", "ms, median",
                           "ms, most"], lines)


if __name__ == "__main__":
    command.run(main)
