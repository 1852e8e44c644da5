"""The dual by PyTorch, many images at once: what one would write without this solver. bench_solver.py runs it.

A pickle on stdin, {name: arrays of a batch}, becomes a pickle on stdout, {name: {method: (CPU seconds, evaluations,
lam)}}. The images of a batch have one size; their labels and rows are padded to the largest number.

    f        N x L x n  scores of the labels that may appear; -1e30 where there is none
    A        N x k x L  b, beta: N x k; a row of zeros with b = 0 is none
    regions  N x k x n  or None
"""
import pickle
import sys
import time

import torch


class BatchDual:
    """D(lam) = lam' b - mean_i log sum_l exp(f_li + sum_j lam_j A_jl regions_ji) and its gradient, of N images."""

    def __init__(self, f, A, b, beta, regions):
        self.f, self.A, self.b, self.beta, self.regions = f, A, b, beta, regions

    def __call__(self, lam):
        if self.regions is None:
            z = self.f + torch.einsum("nk,nkl->nl", lam, self.A).unsqueeze(2)
        else:
            z = self.f + torch.bmm((lam.unsqueeze(2) * self.A).transpose(1, 2), self.regions)
        p = torch.softmax(z, dim=1)
        logs = z.amax(dim=1) - p.amax(dim=1).log_()         # half the time of torch.logsumexp
        if self.regions is None:
            v = torch.einsum("nkl,nl->nk", self.A, p.mean(dim=2))
        else:
            v = (torch.bmm(self.regions, p.transpose(1, 2)) * self.A).sum(dim=2) / p.shape[2]
        return (lam * self.b).sum(dim=1) - logs.mean(dim=1), self.b - v

    def of(self, images):
        """The dual of some of the images."""
        parts = (self.f, self.A, self.b, self.beta)
        return BatchDual(*(part[images] for part in parts), None if self.regions is None else self.regions[images])


def ascend(dual, tol, memory, limit=2000):
    """Maximise every D over 0 <= lam <= beta: projected gradient ascent, or L-BFGS with `memory` pairs.

    Each image has its own step: halved until Armijo's condition holds, then doubled, or 1 if L-BFGS learned from it. In
    float32 the values of D are too coarse near the optimum: a step is taken, too, if D still rises at its end. Images
    with a residual below tol leave the batch. Return lam and the evaluations per image.
    """
    found = torch.zeros_like(dual.b)
    here, images = dual, torch.arange(len(dual.b))
    lam, step, work = torch.zeros_like(dual.b), torch.ones(len(dual.b)), len(dual.b)
    S, Y = lam.new_zeros((memory, *lam.shape)), lam.new_zeros((memory, *lam.shape))
    value, g = dual(lam)
    for turn in range(limit):
        active = (lam - (lam + g).clamp(lam.new_zeros(()), here.beta)).abs().amax(dim=1) >= tol
        if not active.all() and (turn % 4 == 0 or not active.any()):        # a smaller batch costs a copy
            found[images] = lam
            if not active.any():
                break
            here, images = here.of(active), images[active]
            lam, step, value, g, S, Y = lam[active], step[active], value[active], g[active], S[:, active], Y[:, active]
        trial = torch.minimum((lam + step[:, None] * direction(lam, g, here.beta, S, Y)).clamp_(min=0), here.beta)
        new_value, new_g = here(trial)
        work += len(lam)
        s = trial - lam
        taken = (new_value >= value + 1e-4 * (g * s).sum(dim=1)) | ((new_g * s).sum(dim=1) >= 0)
        useful = torch.zeros_like(taken)
        if memory:
            y = g - new_g
            useful = taken & ((s * y).sum(dim=1) > 1e-5 * s.norm(dim=1))    # less is rounding
            lost = ~taken & (step < 0.05)                   # the pairs mislead: start again with the gradient
            step = torch.where(lost, 2, step)
            S, Y = (torch.cat([pairs[1:], (new * useful[:, None])[None]]) * ~lost[:, None]
                    for pairs, new in ((S, s), (Y, y)))
        lam, g = torch.where(taken[:, None], trial, lam), torch.where(taken[:, None], new_g, g)
        value = torch.where(taken, new_value, value)
        step = torch.where(taken, torch.where(useful, 1, 2 * step), step / 2)
    found[images] = lam
    return found, work / len(found)


def direction(lam, g, beta, S, Y):
    """The gradient, or the two loops of L-BFGS on the duals that may move; a pair of zeros says nothing."""
    if not len(S):
        return g
    free = ~((lam <= 0) & (g < 0) | (lam >= beta) & (g > 0))
    S, Y = S * free, Y * free
    sy = (S * Y).sum(dim=2)
    rho = torch.where(sy > 1e-12, 1 / sy.clamp(min=1e-12), torch.zeros_like(sy))
    r, scale, a = g * free, torch.ones(len(g)), [None] * len(S)
    for j in reversed(range(len(S))):
        a[j] = rho[j] * (S[j] * r).sum(dim=1)
        r = r - a[j][:, None] * Y[j]
    for j in range(len(S)):                 # the newest pair that says something sets the scale
        scale = torch.where(rho[j] > 0, sy[j] / (Y[j] * Y[j]).sum(dim=1).clamp(min=1e-30), scale)
    r = r * scale[:, None]
    for j in range(len(S)):
        r = r + (a[j] - rho[j] * (Y[j] * r).sum(dim=1))[:, None] * S[j]
    return torch.where(((r * g).sum(dim=1) > 0)[:, None], r, g)


METHODS = {"PyTorch PGA": 0, "PyTorch L-BFGS": 8}       # pairs that are kept


def main():
    torch.set_num_threads(1)
    found = {}
    for name, (arrays, tol) in pickle.load(sys.stdin.buffer).items():
        dual = BatchDual(*(None if array is None else torch.from_numpy(array) for array in arrays))
        found[name] = {}
        for method, memory in METHODS.items():
            runs = []
            for _ in range(3):
                start = time.thread_time()
                lam, evaluations = ascend(dual, tol, memory)
                runs.append(time.thread_time() - start)
            found[name][method] = (min(runs), evaluations, lam.numpy())
    pickle.dump(found, sys.stdout.buffer)


if __name__ == "__main__":
    with torch.no_grad():
        main()
