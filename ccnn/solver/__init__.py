"""The solver: the distribution p nearest to softmax(f) that obeys linear constraints, with a certificate.

Constraints holds A, b and beta, which ccnn.supervision makes of tags; maximize solves one image and maximize_batch
many. NumPy, SciPy and the modules that `cython/ccnn/solver/` is compiled to are all that this room needs. p is written
by `write_p` of `_label_sums.pyx` and of `_general_rows.pyx` there.

It trains nothing: what Caffe calls a solver, the settings of SGD, is in the folder `solvers/`, written by
ccnn.nets.solvers.
"""
from ccnn.solver import cpu_check

cpu_check.check()       # first: the modules below would crash on a processor that they were not compiled for

from ccnn.solver.constraints import BACKGROUND, VOID, Constraints  # noqa: E402
from ccnn.solver.dual import Solution, maximize, maximize_batch  # noqa: E402

__all__ = ["BACKGROUND", "VOID", "Constraints", "Solution", "maximize", "maximize_batch"]
