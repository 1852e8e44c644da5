"""Time what ccnn.torch.ConstrainedLoss costs beside the solver that it calls: one core, CPU time of the thread.
And time a training with PyTorch beside the same with Caffe: bench/engine_race.py.

    .torch/bin/python bench/bench_torch.py                # the tables, a few minutes; `make .torch/package` comes first
    .torch/bin/python bench/bench_torch.py --quick        # a few repetitions: does it run?
    .torch/bin/python bench/bench_torch.py --out docs/    # also write docs/bench_torch.md

Loss (forward and backward) and solver (maximize_batch with its gradient, into an array made before) take turns on the
same batches. Several batches come one after the other, so none of them is in the cache.
"""
import tempfile
from pathlib import Path

try:
    import torch
except ImportError as e:
    raise SystemExit(f"bench_torch.py: error: {e}; run `make .torch/package`, "
                     "then .torch/bin/python bench/bench_torch.py") from None
import numpy as np
from engine_race import report
from measure import clock, machine, publish
from scipy import ndimage
from tqdm import tqdm

import ccnn
from ccnn.cli import command
from ccnn.images.labels import LABELS
from ccnn.torch import ConstrainedLoss, tag_constraints

LIMIT = 1.3             # solver's times that the loss may cost

BATCHES = 4

SIZES = (8, 41), (20, 41), (8, 63), (20, 63)        # images, side of the score grid

QUICK = (2, 9),


def batch(rng, images, side):
    """(scores, present): smooth random scores of standard deviation 0.1 to 5, one to five tags per image."""
    scores = ndimage.gaussian_filter(rng.normal(size=(images, LABELS, side, side)), (0, 0, 4, 4))
    scores *= rng.choice([0.1, 0.5, 1, 2, 5], (images, 1, 1, 1)) / scores.std()
    present = np.zeros((images, LABELS), bool)
    for tags in present:
        tags[[0, *rng.choice(np.arange(1, LABELS), rng.integers(1, 6), replace=False)]] = True
    return torch.tensor(scores, dtype=torch.float32), torch.tensor(present)


def train(loss, scores, constraints):
    """One step without a net. A net takes the gradient and lets it go."""
    loss(scores, constraints).backward()
    scores.grad = None


def steps_of(loss, diff, scores, present):
    """{name: function without arguments}: the solver and the loss on one batch."""
    F, constraints = scores.flatten(2).numpy(), tag_constraints(present)
    plain, last, low = (x.detach().requires_grad_() for x in (
        scores, scores.to(memory_format=torch.channels_last), scores.bfloat16()))
    return {"solver": lambda: ccnn.maximize_batch(F, constraints, threads=1, diff=diff),
            "loss": lambda: train(loss, plain, constraints),
            "from a tensor": lambda: train(loss, plain, tag_constraints(present)),
            "channels_last": lambda: train(loss, last, constraints),
            "bfloat16": lambda: train(loss, low, constraints)}


def race(rng, images, side, turns):
    """(the solver's seconds, {name: time of the loss / that of the solver}): medians of the batches."""
    loss, diff = ConstrainedLoss(threads=1), np.empty((images, LABELS, side * side), np.float32)
    batches = [steps_of(loss, diff, *batch(rng, images, side)) for _ in range(BATCHES)]
    seconds = {name: np.zeros((turns, BATCHES)) for name in batches[0]}
    for turn in tqdm(range(turns), desc=f"{images} x {side} x {side}", unit="turn", leave=False, disable=None):
        for name, times in seconds.items():
            times[turn] = [clock(steps[name])[0] for steps in batches]
    best = {name: times.min(axis=0) for name, times in seconds.items()}         # the least disturbed of the turns
    solver = best.pop("solver")
    return np.median(solver), {name: np.median(own / solver) for name, own in best.items()}


def main(argv=None):
    parser = command.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="a few repetitions")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write bench_torch.md there")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    rng, turns = np.random.default_rng(1), 2 if args.quick else 40
    rows, ratios = [], []
    for images, side in QUICK if args.quick else SIZES:
        solver, times = race(rng, images, side, turns)
        ratios.append(times["loss"])
        rows.append(f"| {images} x {LABELS} x {side} x {side} | {1e3 * solver:.2f} | "
                    + " | ".join(f"{ratio:.2f}" for ratio in times.values()) + " |")
    worst = max(ratios)
    with tempfile.TemporaryDirectory() as folder:
        engines = report(Path(folder), args.quick)
    met = "met" if worst <= LIMIT else "NOT MET"
    publish("\n".join([
        "# PyTorch, measured", "",
        f"`bench/bench_torch.py --out docs/{' --quick' * args.quick}`", "",
        f"{machine()}, PyTorch {torch.__version__}", "",
        "CPU time of one thread. Smooth random scores, one to five tags per image. The solver is `maximize_batch` with "
        "its gradient. The loss is `ConstrainedLoss`, forward and backward; its time is given in solver's times. Both "
        f"take turns, {turns} times on each of {BATCHES} batches: the least time of each batch, the median of the "
        "batches.", "",
        "| scores | solver, ms | loss | with constraints from a tensor | with channels_last | with bfloat16 |",
        "|---|---|---|---|---|---|",
        *rows, "",
        f"Limit for the loss: {LIMIT} times the solver. At worst {worst:.2f}: {met}. Scores in channels_last or "
        "bfloat16 are copied before the solver reads them. A busy machine shows larger figures, because the solver "
        "leaves cold caches to PyTorch.", "", *engines]), args.out, "bench_torch.md")


if __name__ == "__main__":
    command.run(main)
