from collections.abc import Iterable
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccnn.solver.constraints import Constraints

class Solution:
    """What maximize returns: the latent distribution and its certificate."""

    @property
    def p(self) -> NDArray[np.floating]: ...
    @property
    def lam(self) -> NDArray[np.float64]: ...
    @property
    def value(self) -> float: ...
    @property
    def gap(self) -> float: ...
    @property
    def residual(self) -> float: ...
    @property
    def iterations(self) -> int: ...
    @property
    def status(self) -> Literal["optimal", "infeasible", "stalled"]: ...
    @property
    def ray(self) -> NDArray[np.float64] | None: ...
    @property
    def loss(self) -> float | None: ...
    def __init__(self) -> NoReturn: ...
    def write(self, zeros: NDArray[np.floating]) -> NDArray[np.floating]: ...

def maximize(
    f: ArrayLike,
    constraints: Constraints,
    hardness: float = 1.0,
    method: Literal["newton", "pga"] = "newton",
    tol: float = 1e-6,
    diff: NDArray[np.floating] | None = None,
) -> Solution: ...
def maximize_batch(
    F: ArrayLike,
    constraints: Iterable[Constraints],
    hardness: float = 1.0,
    method: Literal["newton", "pga"] = "newton",
    tol: float = 1e-6,
    threads: int = 0,
    diff: NDArray[np.floating] | None = None,
    weight: float = 1.0,
) -> list[Solution]: ...
def mean_log_partition(f: NDArray[np.floating], hardness: float) -> float: ...
