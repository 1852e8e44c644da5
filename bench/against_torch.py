"""The solver against a plain PyTorch version of its own: batches for torch_dual.py, and what it makes of them."""
import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
from measure import clock
from plain_dual import PlainDual, PlainRows

from ccnn import maximize
from ccnn._util.errors import UserError
from ccnn._util.paths import ROOT

TORCH = ROOT / ".torch/bin/python"


def race_torch(settings):
    """{setting: {method: (seconds per image, evaluations, residual, D below its maximum)}}; {} without PyTorch.

    settings: {name: (problems, hardness, gap of ours, residual of PyTorch)}, the images of one size.
    """
    if not TORCH.exists():
        return {}
    batches = {name: (batch(problems, hardness), residual)
               for name, (problems, hardness, _, residual) in settings.items()}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([TORCH, Path(__file__).with_name("torch_dual.py")], input=pickle.dumps(batches),
                          stdout=subprocess.PIPE, env=clean)
    if done.returncode:
        raise UserError(f"torch_dual.py failed in {TORCH}; its message is above")
    results = {}
    for name, found in pickle.loads(done.stdout).items():
        problems, hardness, tol, _ = settings[name]
        found = {"ours, newton": solve_in_turn(problems, hardness, tol), **found}
        results[name] = {method: (seconds / len(problems), evaluations, *accuracy(problems, hardness, lam))
                         for method, (seconds, evaluations, lam) in found.items()}
    return results


def batch(problems, hardness):
    """The arrays of torch_dual.py, float32: labels and rows padded to the largest number in the batch."""
    plain = [PlainDual(f, PlainRows(c, f.shape[1]), hardness) for f, c in problems]
    N, n = len(problems), problems[0][0].shape[1]
    L, k = max(len(dual.f) for dual in plain), max(len(dual.b) for dual in plain)
    f, A = np.full((N, L, n), -1e30, np.float32), np.zeros((N, k, L), np.float32)
    b, beta = np.zeros((N, k), np.float32), np.ones((N, k), np.float32)
    regions = None if problems[0][1].regions is None else np.zeros((N, k, n), np.float32)
    for i, ((_, c), dual) in enumerate(zip(problems, plain)):
        rows, labels = len(dual.b), len(dual.f)
        f[i, :labels] = np.maximum(dual.f - dual.f.max(axis=0), -1e30)      # float32 is finer near 0
        A[i, :rows, :labels], b[i, :rows], beta[i, :rows] = c.A[:, dual.rows.keep], c.b, c.beta
        if regions is not None:
            regions[i, :rows] = c.regions
    return f, A, b, beta, regions


def solve_in_turn(problems, hardness, tol, turns=5):
    """(CPU seconds of all problems, passes per problem, [lam of each]) of ours, p included; the least of the turns."""
    zeros = [np.zeros_like(f) for f, _ in problems]

    def solve():
        found = []
        for (f, c), p in zip(problems, zeros):
            s = maximize(f, c, hardness=hardness, tol=tol)
            s.write(p)
            found.append((s.iterations, s.lam))
        return found
    runs = [clock(solve) for _ in range(turns)]
    passes, lam = zip(*runs[0][1])
    return min(seconds for seconds, _ in runs), np.mean(passes), lam


def accuracy(problems, hardness, lams):
    """The largest residual, and how far D is below its maximum at worst; float64."""
    residuals, below = [], []
    for (f, c), lam in zip(problems, lams):
        dual = PlainDual(f, PlainRows(c, f.shape[1]), hardness)
        lam = np.clip(lam[:len(c.b)].astype(float), 0, c.beta)
        value, gradient, _ = dual(lam)
        best = dual(maximize(f, c, hardness=hardness, tol=1e-9 * hardness).lam)[0]
        residuals.append(np.abs(lam - np.clip(lam + gradient, 0, c.beta)).max())
        below.append(max(best - value, 0))
    return max(residuals), max(below)


def torch_table(results):
    """Markdown: one line per method and setting."""
    if not results:
        return [f"PyTorch was not measured: {TORCH.relative_to(ROOT)} is missing; `make test-torch` makes it."]
    lines = ["| problems | method | us per image | ours is faster by | evaluations | worst residual "
             "| D below its maximum |", "|---|---|---|---|---|---|---|"]
    for setting, found in results.items():
        for method, (seconds, evaluations, residual, below) in found.items():
            lines.append(f"| {setting} | {method} | {1e6 * seconds:.4g} | {seconds / found['ours, newton'][0]:.3g} "
                         f"| {evaluations:.1f} | {residual:.1e} | {below:.1e} |")
    return lines
