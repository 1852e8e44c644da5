"""The rate of a training, as Caffe's solvers have it: one entry of POLICIES per lr_policy.

    rate(solver, iteration)         # before lr_mult of a parameter
"""
from typing import Any, Callable

from ccnn._util.errors import UserError

POLICIES: dict[str, Callable[[Any, int], float]] = {
    "fixed": lambda s, iteration: s.base_lr,
    "step": lambda s, iteration: s.base_lr * s.gamma ** (iteration // s.stepsize),
    "poly": lambda s, iteration: s.base_lr * (1 - iteration / s.max_iter) ** s.power,
}


def rate(solver: Any, iteration: int) -> float:
    return POLICIES[solver.lr_policy](solver, iteration)


def steps_taken(solver: Any, iteration: int) -> int:
    """How often the rate was lowered: Caffe keeps it in a .solverstate."""
    return iteration // solver.stepsize if solver.lr_policy == "step" else 0


def check_policy(solver: Any) -> None:
    if solver.lr_policy not in POLICIES:
        raise UserError(f"{solver.net}: the solver's lr_policy is {solver.lr_policy!r}; known are "
                        f"{', '.join(POLICIES)}: use --engine caffe")
    if solver.lr_policy == "step" and solver.stepsize < 1:
        raise UserError(f"{solver.net}: the solver's stepsize is {solver.stepsize}; lr_policy \"step\" needs 1 or more")
