"""Caffe's optimisers. What a library's own optimiser does otherwise is said with each.

In step t = 0, 1, ... a parameter w with the sum g of its gradients over the iter_size images of the step gets

    g <- g min(1, clip_gradients / |g of all parameters|)       if clip_gradients is set
    g <- g / iter_size + weight_decay decay_mult w
    w <- w - update(g, rate lr_mult)
"""
import math
from typing import Any

import torch

from ccnn._util.errors import UserError
from ccnn.training import schedule


class Optimiser:
    """history: as a .solverstate keeps it, all first moments, then all second ones."""

    moments = 1

    def __init__(self, solver: Any, parameters: list[torch.nn.Parameter], rates: list[float],
                 decays: list[float]) -> None:
        self.solver, self.parameters, self.rates, self.decays = solver, parameters, rates, decays
        self.history = [torch.zeros_like(w, requires_grad=False) for _ in range(self.moments) for w in parameters]

    @torch.no_grad()
    def step(self, iteration: int, processes: int = 1) -> None:
        """Take a step with the gradients in the parameters, which are the means over `processes`; then forget them."""
        s = self.solver
        scale = processes * self.clip(processes) / s.iter_size
        rate = schedule.rate(s, iteration)
        for k, (w, own, decay) in enumerate(zip(self.parameters, self.rates, self.decays)):
            if w.grad is None:
                continue
            g = w.grad.mul_(scale) if scale != 1 else w.grad
            if s.weight_decay * decay:
                g.add_(w, alpha=s.weight_decay * decay)
            self.update(w, g, self.history[k::len(self.parameters)], rate * own, iteration)
            w.grad = None           # the next gradient takes its place; adding it to zeros costs two passes

    def clip(self, processes: int) -> float:
        """The factor that makes the gradient as short as clip_gradients; 1 if it is already."""
        limit = self.solver.clip_gradients
        if limit < 0:
            return 1.0
        squares = [w.grad.square().sum(dtype=torch.float32) for w in self.parameters if w.grad is not None]
        length = processes * math.sqrt(sum(float(square) for square in squares))
        return limit / length if length > limit else 1.0

    def update(self, w: Any, g: Any, moments: list[torch.Tensor], rate: float, iteration: int) -> None:
        raise NotImplementedError


class SGD(Optimiser):
    """h <- momentum h + rate g,  w <- w - h: the rate is inside the momentum, so that h stays when the rate falls."""

    def update(self, w, g, moments, rate, iteration):
        h, = moments
        h.mul_(self.solver.momentum).add_(g, alpha=rate)
        w.sub_(h)


class Adam(Optimiser):
    """m <- momentum m + (1 - momentum) g,  v <- momentum2 v + (1 - momentum2) g^2,
    w <- w - rate sqrt(1 - momentum2^t) / (1 - momentum^t) m / (sqrt(v) + delta),  t = 1 in the first step.

    The weight decay is in g, and delta is added where v is not yet corrected.
    """

    moments = 2

    def update(self, w, g, moments, rate, iteration):
        m, v = moments
        s, t = self.solver, iteration + 1
        m.lerp_(g, 1 - s.momentum)
        v.mul_(s.momentum2).addcmul_(g, g, value=1 - s.momentum2)
        w.addcdiv_(m, v.sqrt().add_(s.delta), value=-rate * math.sqrt(1 - s.momentum2 ** t) / (1 - s.momentum ** t))


OPTIMISERS: dict[str, type[Optimiser]] = {"SGD": SGD, "Adam": Adam}


def check_solver(solver: Any) -> None:
    schedule.check_policy(solver)
    if solver.type not in OPTIMISERS:
        raise UserError(f"{solver.net}: the solver's type is {solver.type!r}; PyTorch's engine has "
                        f"{', '.join(OPTIMISERS)}: use --engine caffe")
    if solver.regularization_type != "L2":
        raise UserError(f"{solver.net}: the solver's regularization_type is {solver.regularization_type!r}; PyTorch's "
                        "engine has 'L2': use --engine caffe")
