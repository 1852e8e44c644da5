#!/usr/bin/env python3
"""Time the dual solver against plain NumPy, SciPy and PyTorch: one core, CPU time of the thread.

    bench/bench_solver.py                # the tables, about three minutes
    bench/bench_solver.py --quick        # the same with a few problems: does it run?
    bench/bench_solver.py --out docs/    # also write docs/bench_solver.md and docs/bench_solver.png
    bench/bench_solver.py --old DIR      # also compare with the solver of another checkout, in which make has run

Every problem is solved by every method in turn, so that noise of the machine hits all alike. Ours stop on a proven
duality gap, and the time includes the proof. The baselines stop on a residual, or when they make no more progress.
PyTorch has an environment of its own, .torch (make test-torch makes it); without it its rows are left out.
"""
import os
from pathlib import Path

import numpy as np
from against_torch import race_torch, torch_table
from compare_builds import compare, comparison_table
from measure import clock, machine, publish
from plain_dual import PlainDual, PlainRows, plain_lbfgsb, plain_pga
from scipy import ndimage, sparse
from tqdm import tqdm

from ccnn import Constraints, box_constraints, maximize, size_constraints, tag_constraints
from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn.cli import command
from ccnn.solver._exponential import exp_pass

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"          # read when NumPy is imported

LABELS = 21
IMAGES = 64         # of a cycle: together they are larger than the caches near a core


def score_map(rng, height, width, std=None, labels=LABELS):
    """Smooth random scores, labels x (height width) float32: gaussian-filtered noise with a std of 0.1 to 5."""
    noise = ndimage.gaussian_filter(rng.standard_normal((labels, height, width)), (0, *[rng.uniform(2, 8)] * 2))
    std = np.exp(rng.uniform(np.log(0.1), np.log(5))) if std is None else std
    return np.ascontiguousarray((noise * (std / noise.std())).reshape(labels, -1), np.float32)


def some_tags(rng, tags=None):
    """present: (21,) bool, the background and 1 to 5 other labels."""
    present = np.zeros(LABELS, bool)
    present[0] = True
    present[1 + rng.choice(LABELS - 1, tags or rng.integers(1, 6), replace=False)] = True
    return present


def tags_problem(rng, height, width, std=None, tags=None):
    return score_map(rng, height, width, std), tag_constraints(some_tags(rng, tags))


def size_problem(rng, height, width):
    present = some_tags(rng)
    return score_map(rng, height, width), size_constraints(present, present & (rng.random(LABELS) < 0.6))


def boxes_problem(rng, height, width):
    boxes = []
    for label in 1 + rng.choice(LABELS - 1, rng.integers(1, 6)):
        tall, wide = rng.integers(5, height + 1), rng.integers(5, width + 1)
        y, x = rng.integers(0, height - tall + 1), rng.integers(0, width - wide + 1)
        boxes.append((int(label), int(y), int(x), int(y + tall), int(x + wide)))
    return score_map(rng, height, width), box_constraints(boxes, (height, width), labels=LABELS)


def general_problem(rng, height, width, std=None, tags=None, k=None):
    """k sparse rows, half of them hard; each favours one label and disfavours another on a tenth of the pixels."""
    f, present, n = score_map(rng, height, width, std), some_tags(rng, tags), height * width
    k = k or int(rng.integers(2, 9))
    M, wanted = sparse.lil_matrix((k, LABELS * n)), np.zeros((LABELS, n))
    for j in range(k):
        for label, sign in zip(rng.choice(np.flatnonzero(present), 2, replace=False), (1, -1)):
            pixels = rng.choice(n, n // 10, replace=False)
            weights = sign * rng.uniform(0, 5, len(pixels))
            M[j, label * n + pixels] = weights
            wanted[label, pixels] += weights
    p = np.exp(wanted) * present[:, None]
    p /= p.sum(axis=0)                  # a p that satisfies the rows
    beta = np.where(rng.random(k) < 0.5, np.inf, 2.0)
    return f, Constraints.from_matrix(M.tocsc(), M.tocsr() @ p.ravel() / n - 0.01, beta, allowed=present)


def biting(maker, rng, *size, **options):
    """A problem of this kind whose rows q violates: there is nothing to time in the others."""
    while True:
        f, c = maker(rng, *size, **options)
        if PlainDual(f, PlainRows(c, f.shape[1]))(np.zeros(len(c.b)))[1].max() > 1e-3:
            return f, c


def ours(method, f, c, zeros, hardness=1.0, tol=1e-6):
    s = maximize(f, c, hardness=hardness, method=method, tol=tol)
    if s.status != "optimal":
        raise UserError(f"{method} returned {s.status}, gap {s.gap:.2g}, on a feasible problem")
    s.write(zeros)                      # p, which the baselines have computed, too
    return s.iterations, s.gap


def plain(method, f, rows, hardness):
    problem = PlainDual(f, rows, hardness)
    method(problem)
    return problem.evaluations, np.nan


def race(f, c, hardness, tol, repeats=5):
    """{method: (time, iterations, gap)}; the time of ours is the median of `repeats`, in turn with the others."""
    rows, zeros = PlainRows(c, f.shape[1]), np.zeros_like(f)
    runners = {
        "ours, newton": (repeats, ours, "newton", f, c, zeros, hardness, tol),
        "ours, pga": (repeats, ours, "pga", f, c, zeros, hardness, tol),
        "NumPy PGA": (1, plain, plain_pga, f, rows, hardness),
        "SciPy L-BFGS-B": (1, plain, plain_lbfgsb, f, rows, hardness),
    }
    found = {name: [] for name in runners}
    for turn in range(repeats):
        for name, (turns, *call) in runners.items():
            if turn < turns:
                found[name].append(clock(*call))
    return {name: (np.median([t for t, _ in runs]), *runs[0][1]) for name, runs in found.items()}


def race_table(results):
    """Markdown: one line per method and setting, times in ms."""
    lines = ["| problems | method | median ms | p95 | max | ours is faster by | iterations | worst gap |",
             "|---|---|---|---|---|---|---|---|"]
    for setting, found in results.items():
        best = np.median(found["ours, newton"][0])
        for name, (times, iterations, gaps) in found.items():
            median, p95, worst = 1e3 * np.array([np.median(times), np.percentile(times, 95), times.max()])
            gap = "" if np.isnan(gaps).all() else f"{gaps.max():.1e}"
            lines.append(f"| {setting} | {name} | {median:.3g} | {p95:.3g} | {worst:.3g} "
                         f"| {np.median(times) / best:.3g} | {np.median(iterations):.0f} | {gap} |")
    return lines


def median_time(problems, repeats=9):
    """Median over problems of newton's time, each the median of its repeats."""
    return np.median([np.median([clock(ours, "newton", f, c, zeros)[0] for _ in range(repeats)])
                      for f, c in problems for zeros in [np.zeros_like(f)]])


def exponential_pass(n, labels, repeats=31):
    x = np.linspace(-5, 0, n * labels, dtype=np.float32)
    return np.median([clock(exp_pass, x)[0] for _ in range(repeats)])


def growth(rng, quick):
    """{what: (sizes, seconds, seconds of one exponential pass)} for pixels, labels and rows."""
    few = 2 if quick else 5
    sides = [21, 63] if quick else [21, 41, 63, 100, 160, 250, 350, 500]
    tags = [2, 5] if quick else [2, 3, 5, 8, 12, 20]
    rows = [1, 8] if quick else [1, 2, 4, 8, 16, 32, 64]

    def curve(sizes, maker, shape, repeats=9):
        return [median_time([biting(maker, rng, *options[0], **options[1]) for _ in range(few)], repeats)
                for options in map(shape, sizes)]
    return {
        "pixels (4 labels)": (
            [side * side for side in sides], curve(sides, tags_problem, lambda side: ((side, side), dict(tags=3))),
            [exponential_pass(side * side, 4) for side in sides]),
        "labels present (63 x 63)": (
            [t + 1 for t in tags], curve(tags, tags_problem, lambda t: ((63, 63), dict(tags=t))),
            [exponential_pass(63 * 63, t + 1) for t in tags]),
        "general rows (41 x 41, 4 labels)": (
            rows, curve(rows, general_problem, lambda k: ((41, 41), dict(tags=3, k=k)), 3),
            [exponential_pass(41 * 41, 4) for _ in rows]),
    }


def plot(curves, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(1, len(curves), figsize=(12, 3.6), constrained_layout=True)
    for axis, (what, (sizes, seconds, floor)) in zip(axes, curves.items()):
        axis.loglog(sizes, np.multiply(seconds, 1e3), "o-", label="newton, with certificate")
        axis.loglog(sizes, np.multiply(floor, 1e3), "--", color="grey", label="one exponential pass")
        axis.minorticks_off()
        axis.set_xticks(sizes, [f"{size:g}" for size in sizes], rotation=45)
        axis.set(xlabel=what, ylabel="ms")
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def requirements(results, physical, per_pixel):
    """Markdown: required, aim, measured, met, for the six figures the solver must reach."""
    def ratio(setting, baseline):
        return np.median(results[setting][baseline][0]) / np.median(results[setting]["ours, newton"][0])
    rows = [("tags, against NumPy PGA at tol 1e-5", ">=", 30, 60, ratio("tags", "NumPy PGA")),
            ("size at hardness 1000, likewise", ">=", 25, 50, ratio("size, hardness 1000", "NumPy PGA")),
            ("boxes, against L-BFGS-B on a CSR matrix", ">=", 15, 40, ratio("boxes", "SciPy L-BFGS-B")),
            ("general sparse rows, likewise", ">=", 3, 6, ratio("general rows", "SciPy L-BFGS-B")),
            ("63 x 63, 4 labels: time over one exponential pass", "<=", 20, 10, physical),
            ("500 x 500: time per pixel over that of 63 x 63", "<=", 2, 1.2, per_pixel)]
    lines = ["| figure | required | aim | measured | met |", "|---|---|---|---|---|"]
    for name, sign, required, aim, measured in rows:
        worse = np.less if sign == ">=" else np.greater
        met = "NO" if worse(measured, required) else "yes" if worse(measured, aim) else "aim"
        lines.append(f"| {name} | {sign} {required} | {aim} | {measured:.3g} | {met} |")
    return lines


def races(rng, quick):
    """{setting: {method: (times, iterations, gaps)}} of random problems of every kind."""
    settings = {        # name: (maker, sizes, number, hardness, tol)
        "tags": (tags_problem, (41, 63), 150, 1.0, 1e-6),
        "size, hardness 1000": (size_problem, (41, 63), 150, 1000.0, 1e-4),
        "boxes": (boxes_problem, (41, 63), 80, 1.0, 1e-6),
        "general rows": (general_problem, (41, 63), 60, 1.0, 1e-6),
        "tags, 500 x 500": (tags_problem, (500, 500), 5, 1.0, 1e-6),
    }
    results = {}
    for name, (maker, (low, high), number, hardness, tol) in settings.items():
        number = 1 + number // 75 if quick else number
        found = []
        for _ in tqdm(range(number), desc=name, unit="problem", leave=False):
            found.append(race(*biting(maker, rng, *rng.integers(low, high + 1, 2)), hardness, tol))
        results[name] = {method: np.array([one[method] for one in found]).T for method in found[0]}
    return results


def images(rng, maker, quick, side=None):
    """Problems for a cycle, of one size if there is a side."""
    return [biting(maker, rng, *([side, side] if side else rng.integers(41, 64, 2)))
            for _ in range(4 if quick else IMAGES)]


def old_and_new(old, rng, quick):
    """Times of another build and of this one, as comparison_table takes them."""
    tags, size, boxes, general = (images(rng, maker, quick)
                                  for maker in (tags_problem, size_problem, boxes_problem, general_problem))
    sharp = dict(hardness=1000.0, tol=1e-4)
    return compare(old, {"tags": (tags, False, {}), "tags, with gradient": (tags, True, {}),
                         "size": (size, False, {}), "size, hardness 1000": (size, False, sharp),
                         "boxes": (boxes, False, {}), "boxes, with gradient": (boxes, True, {}),
                         "general rows": (general, False, {})}, 2 if quick else 25)


def torch_races(rng, quick):
    """As race_torch returns them."""
    return race_torch({      # name: (problems, hardness, gap of ours, residual of PyTorch)
        "tags": (images(rng, tags_problem, quick, 52), 1.0, 1e-6, 1e-5),
        "size, hardness 1000": (images(rng, size_problem, quick, 52), 1000.0, 1e-4, 1e-4),
        "boxes": (images(rng, boxes_problem, quick, 52), 1.0, 1e-6, 1e-5),
    })


def main(argv=None):
    parser = command.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="a few problems of each kind, in seconds")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write bench_solver.md and bench_solver.png there")
    parser.add_argument("--old", type=Path, metavar="DIR",
                        help="a checkout in which make has run: compare with its solver")
    parser.add_argument("--seed", type=int, default=1, help="of the random problems (default 1)")
    args = parser.parse_args(argv)

    rng = np.random.default_rng(args.seed)
    results = races(rng, args.quick)
    few = 3 if args.quick else 25
    at63 = [biting(tags_problem, rng, 63, 63, tags=3) for _ in range(few)]
    at500 = [biting(tags_problem, rng, 500, 500, tags=3) for _ in range(2 if args.quick else 5)]
    time63, floor = median_time(at63), exponential_pass(63 * 63, 4)
    per_pixel = median_time(at500, repeats=3) / 500 ** 2 / (time63 / 63 ** 2)

    report = [
        "# The dual solver, measured", "",
        f"`bench/bench_solver.py --out docs/{' --quick' * args.quick}`", "",
        machine(), "",
        "CPU time of one thread. Problems: smooth random score maps (std 0.1 to 5), 41 x 41 to 63 x 63 unless said, "
        "21 labels, 1 to 5 of them present besides the background; only those whose rows q violates. Ours include p "
        "and the certificate: gap <= 1e-6 at hardness 1, <= 1e-4 at hardness 1000. The baselines work in float64 on "
        "the labels that occur, matrices prepared outside the time; PGA to a residual of 1e-5, L-BFGS-B to 1e-7, about "
        "the gap of ours; their iterations are evaluations.", "",
        "Hot and cold: here the methods solve one image in turn, five times, so its scores are in the caches of the "
        "core: hot. A training sees every image once; there the scores are cold, as in the tables further down.", "",
        *requirements(results, time63 / floor, per_pixel), "",
        *race_table(results), "",
        f"63 x 63 with 4 labels, hot: {1e6 * time63:.1f} us; one float32 exponential pass over the same values: "
        f"{1e6 * floor:.1f} us.", "",
        "## Against PyTorch, cold", "",
        f"One batch of {4 if args.quick else IMAGES} images of 52 x 52 for PyTorch; the same images one after the "
        "other, p included, for ours. PyTorch works in float32 on the labels that occur, on one thread, without "
        "autograd: projected gradient ascent, and L-BFGS with 8 pairs. Every image has a step of its own; images that "
        "are done leave the batch. The accuracy was computed afterwards, in float64.", "",
        *torch_table(torch_races(rng, args.quick)), "",
    ]
    if args.old:
        report += ["## Against an older build", "",
                   f"Microseconds per call of maximize, without p, the least of many turns. Cold: a cycle over "
                   f"{4 if args.quick else IMAGES} images; hot: one image again and again.", "",
                   *comparison_table(old_and_new(args.old, rng, args.quick)), ""]
    curves = growth(rng, args.quick)
    if args.out:
        with whole_file(args.out / "bench_solver.png") as path:
            plot(curves, path)
        report += ["Growth with pixels, labels and rows, hot:", "", "![growth](bench_solver.png)", ""]
    for what, (sizes, seconds, _) in curves.items():
        report += [f"- {what}: " + ", ".join(f"{size}: {1e3 * t:.3g} ms" for size, t in zip(sizes, seconds))]
    publish("\n".join(report) + "\n", args.out, "bench_solver.md")


if __name__ == "__main__":
    command.run(main)
