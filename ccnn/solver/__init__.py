"""The solver: the distribution p nearest to softmax(f) that obeys linear constraints, with a certificate.

Constraints holds A, b and beta; maximize solves one image and maximize_batch many. NumPy, SciPy and the modules that
`cython/` is compiled to are all that this room needs. It solves for p and trains nothing:
what Caffe calls a solver, the settings of SGD, is in the folder `solvers/`, written by ccnn.nets.solvers.
"""
from ccnn.solver import cpu_check

cpu_check.check()       # first: the modules below would crash on a processor that they were not compiled for

from ccnn.solver.constraints import BACKGROUND, VOID, Constraints  # noqa: E402
from ccnn.solver.dual import Solution, maximize, maximize_batch  # noqa: E402

__all__ = ["BACKGROUND", "VOID", "Constraints", "Solution", "maximize", "maximize_batch"]
