"""The latent distribution of CCNN: the one nearest to the net's output that obeys linear constraints.

_problem.pyx states the primal, the dual and the certificate. The work is shared out like this:

    dual            this file: the public calls, and what they check
    _solve          one problem from start to end; many of them on threads
    _problem        the problem and its certificate: gap, residual, infeasibility
    _newton         Newton's method in a box                    _ascent     the paper's projected gradient ascent
    _label_sums     rows that weigh labels                      _grouping   pixels that no row tells apart
    _label_pass     one pass over the pixels of a group         _few_labels     the same, unrolled for few labels
    _general_rows   rows of any kind
    _softmax        the check of the scores and softmax(f)      _exponential    exp, inlined
    _memory         the memory of a problem                     _constants
"""
import numpy as np

from ._softmax import mean_log_partition

from ._general_rows cimport GeneralRows
from ._label_sums cimport LabelSums
from ._problem cimport Dual
from ._solve cimport solve, solve_all

cdef extern from "portable.h" nogil:
    int usable_processors()

__all__ = ["Solution", "maximize", "maximize_batch", "mean_log_partition"]

FLOAT, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


cdef class Solution:
    """What maximize returns.

    p          (L, n)  the latent distribution, in the scores' dtype
    lam        (k,)    the dual variables
    value      the optimal value, mean_i KL(p_i || softmax(hardness * f_i)) + beta' xi; NaN if a score is not a number
    gap        primal - dual at this point, rounding errors included; inf if a hard row does not hold
    residual   the largest violation of the optimality conditions, |lam - clip(lam + b - v, 0, beta)|
    iterations passes over the pixels
    status     "optimal": gap <= tol, and hard rows hold to a billionth of their range
               "infeasible": hard rows contradict; `ray` proves it
               "stalled": neither was reached
    ray        None, or (k,) d >= 0, on hard rows only, with d'b > mean_i max_l sum_j d_j a_jil: no p
               can make d'v(p) that large
    loss       None, or mean_i KL(p_i || softmax(f_i)) if its gradient was asked for

    p is computed on first access. A Solution keeps the solver's memory until then. value reads the scores again: read it before they change.
    A pickle holds p and value, not the scores.
    """

    cdef readonly object lam, ray, status, loss
    cdef readonly double gap, residual
    cdef readonly Py_ssize_t iterations
    cdef Dual problem               # None after unpickling
    cdef object stored_p, stored_value

    def __init__(self):
        raise TypeError("maximize makes solutions; they cannot be constructed")

    @property
    def p(self):
        if self.stored_p is None:
            self.stored_p = self.write(np.zeros_like(self.solved().scores))
        return self.stored_p

    def write(self, zeros):
        """Write p into an array like the scores that is 0 where a label is not allowed; return the array."""
        cdef float[:, ::1] p32
        cdef double[:, ::1] p64
        if self.problem is None and self.stored_p is not None:
            if zeros.shape != self.stored_p.shape or zeros.dtype != self.stored_p.dtype:
                raise ValueError(f"p must be like the scores, {self.stored_p.shape}; got {zeros.shape}")
            zeros[...] = self.stored_p
            return zeros
        cdef Dual problem = self.solved()
        if zeros.shape != problem.scores.shape:
            raise ValueError(f"p must be like the scores, {problem.scores.shape}; got {zeros.shape}")
        if problem.f32 != NULL:
            p32 = zeros
            with nogil:
                problem.write_p(&p32[0, 0], NULL, False)
        else:
            p64 = zeros
            with nogil:
                problem.write_p(NULL, &p64[0, 0], False)
        return zeros

    @property
    def value(self):
        cdef Dual problem
        if self.stored_value is not None:
            return self.stored_value
        problem = self.solved()
        if not np.isfinite(problem.scores).all():       # a label that may not appear: softmax(f) is not a number there
            return np.nan
        return problem.dual_value() + mean_log_partition(problem.scores, problem.hardness)

    cdef Dual solved(self):
        if self.problem is None:
            raise TypeError("this Solution was not made by maximize")
        return self.problem

    def __reduce__(self):
        return _unpickled, (self.p, self.value, self.lam, self.ray, self.status, self.loss, self.gap, self.residual,
                            self.iterations)

    def __repr__(self):
        return (f"Solution({self.status}, gap={self.gap:.1e}, residual={self.residual:.1e}, "
                f"iterations={self.iterations}, lam={np.array2string(np.asarray(self.lam), precision=3)})")


def _unpickled(p, value, lam, ray, status, loss, gap, residual, iterations):
    cdef Solution s = Solution.__new__(Solution)
    s.stored_p, s.stored_value, s.lam, s.ray, s.status, s.loss = p, value, lam, ray, status, loss
    s.gap, s.residual, s.iterations = gap, residual, iterations
    return s


def maximize(f, constraints, hardness=1.0, method="newton", tol=1e-6, diff=None):
    """The latent distribution: maximise D(lam) for the scores hardness * f over 0 <= lam <= beta.

    f            (L, n) float32 or float64, labels first as in a Caffe blob; read in place if contiguous. Without diff,
                 the scores of labels that no pixel may take are not read, and not checked
    constraints  ccnn.Constraints
    hardness     sharpens the scores: 1 is the paper's; 1000 the authors' in the size experiments
    method       "newton", or "pga", the paper's projected gradient ascent; both reach the same p
    tol          "optimal" is said only when the duality gap is at most this
    diff         None, or an array like f, filled with the gradient of the loss for fixed p: (softmax(f) - p) / n;
                 it must not overlap f. It is 0 if the scores are refused or the call is interrupted

    ^C ends a long call within a tenth of a second or one pass over the pixels. Threads may call at the same time.
    """
    cdef bint by_newton = _checked_options(hardness, method, tol)
    f = _checked_scores(f, 2)
    _check_diff(diff, f)
    cdef Dual problem = _problem(f, constraints, diff, hardness, tol)
    while True:
        with nogil:
            solve(problem, by_newton)
        if not problem.too_many_groups:
            break
        problem = _without_groups(problem, constraints, diff, hardness, tol)
    _raise_errors(problem, "")
    return _solution(problem)


def maximize_batch(F, constraints, hardness=1.0, method="newton", tol=1e-6, threads=0, diff=None, weight=1.0):
    """maximize for N images on several threads: a list of N solutions, equal to those of maximize bit for bit.

    F            (N, L, n) float32 or float64
    constraints  one ccnn.Constraints per image
    threads      how many; 0: one per processor that this process may use
    diff         None, or an array like F
    weight       of an image: its gradient in diff is multiplied by this

    The threads end with the call, so a process may fork before or after it. An error of an image names it, and has its
    number as `error.image`. If the solver had begun, all of diff is then 0.
    """
    cdef bint by_newton = _checked_options(hardness, method, tol)
    F = _checked_scores(F, 3)
    constraints = list(constraints)
    if len(constraints) != len(F):
        raise ValueError(f"F has {len(F)} images; got constraints for {len(constraints)}")
    _check_diff(diff, F)
    if threads < 0:
        raise ValueError(f"threads must be 0 (one per processor) or positive; got {threads}")
    threads = threads or usable_processors()
    problems = []
    for i, c in enumerate(constraints):
        try:
            problems.append(_problem(F[i], c, None if diff is None else diff[i], hardness, tol, weight))
        except ValueError as error:
            raise _of_image(ValueError(f"image {i}: {error}"), i) from None
    cdef list todo = problems
    cdef Dual problem
    try:
        while todo:
            solve_all(todo, by_newton, min(threads, len(todo)))
            for i, problem in enumerate(problems):
                try:
                    _raise_errors(problem, f"image {i}: ")
                except ValueError as error:
                    raise _of_image(error, i)
            todo = []
            for i, problem in enumerate(problems):
                if problem.too_many_groups:
                    problems[i] = _without_groups(problem, constraints[i], None if diff is None else diff[i],
                                                  hardness, tol, weight)
                    todo.append(problems[i])
    except BaseException:
        if diff is not None:
            diff[...] = 0
        raise
    return [_solution(problem) for problem in problems]


# ---- what comes in -------------------------------------------------------------------------------

cdef bint _checked_options(hardness, method, tol) except -1:
    """Is it Newton's method?"""
    if not 0 < hardness < 1e100:                      # compared by Python: NaN fails, which C would not promise here
        raise ValueError(f"hardness must be positive and finite; got {hardness}")
    if not tol > 0:
        raise ValueError(f"tol must be positive; got {tol}")
    if method not in ("newton", "pga"):
        raise ValueError(f"method must be 'newton' or 'pga'; got {method!r}")
    return method == "newton"


cdef _checked_scores(f, int axes):
    """f as a contiguous array of float32 or float64; no copy if it is one."""
    f = np.asarray(f)
    if f.ndim != axes or not f.size:
        raise ValueError(f"scores must be {'images x ' if axes == 3 else ''}labels x pixels; got shape {f.shape}")
    if f.dtype != FLOAT and f.dtype != DOUBLE:
        raise ValueError(f"scores must be float32 or float64; got {f.dtype}")
    return np.ascontiguousarray(f)


cdef Dual _problem(f, constraints, diff, hardness, tol, weight=1.0):
    """The problem, checked: no array that the solver reads is shorter than it expects. f and diff were checked."""
    _check_fit(constraints, f.shape[0], f.shape[1])
    if constraints.matrix is None:
        return LabelSums(constraints, f, diff, hardness, tol, weight)
    return GeneralRows(constraints, f, diff, hardness, tol, weight)


cdef int _check_diff(diff, f) except -1:
    if diff is None:
        return 0
    if not isinstance(diff, np.ndarray) or diff.shape != f.shape or diff.dtype != f.dtype:
        got = f"{diff.dtype} of shape {diff.shape}" if isinstance(diff, np.ndarray) else type(diff).__name__
        raise ValueError(f"diff must be like the scores, a NumPy array of {f.dtype} and shape {f.shape}; got {got}")
    if not (diff.flags.c_contiguous and diff.flags.writeable):
        raise ValueError("diff must be contiguous and writeable")
    if np.may_share_memory(diff, f):
        raise ValueError("diff overlaps the scores in memory: it would overwrite them while they are read")
    return 0


cdef _of_image(error, i):
    """The error with the number of its image."""
    error.image = i
    return error


cdef int _check_fit(c, Py_ssize_t L, Py_ssize_t n) except -1:
    A, b, beta, allowed, regions, matrix = c.A, c.b, c.beta, c.allowed, c.regions, c.matrix
    k = len(b)
    if (b.shape == (k,) and beta.shape == (k,)
            and (A.shape == (k, L) or matrix is not None and A.shape == (k, 0))
            and (allowed is None or allowed.shape == (L,) or allowed.shape == (L, n))
            and (regions is None or regions.shape == (k, n))
            and (matrix is None or matrix.shape == (k, L * n))):
        return 0
    if c.labels is not None and c.labels != L:
        raise ValueError(f"scores have {L} labels; the constraints need {c.labels}")
    if c.pixels is not None and c.pixels != n:
        raise ValueError(f"scores have {n} pixels; the constraints need {c.pixels}")
    if matrix is not None and matrix.shape[1] != L * n:
        raise ValueError(f"scores have {L} x {n} entries; the constraint matrix needs {matrix.shape[1]}")
    raise ValueError(f"the arrays of the constraints do not fit {k} rows, {L} labels and {n} pixels: "
                     "their shapes were changed")


# ---- what goes out -------------------------------------------------------------------------------

cdef Dual _without_groups(Dual problem, constraints, diff, hardness, tol, weight=1.0):
    """The same problem for general rows. The scores are checked, and diff is softmax(f), times its share."""
    cdef Dual other = GeneralRows(constraints, problem.scores, diff, hardness, tol, weight)
    other.accepted, other.log_partition = True, problem.log_partition
    return other


cdef int _raise_errors(Dual problem, where) except -1:
    if problem.accepted and not problem.memory.failed and problem.error is None:
        return 0
    problem.clear_diff()
    if problem.error is not None:
        raise problem.error
    if problem.memory.failed:
        raise MemoryError(f"{where}the solver needs {problem.memory.failed} bytes more")
    f = problem.scores
    wrong = np.argwhere(~np.isfinite(f))
    if len(wrong):
        raise ValueError(f"{where}scores hold {len(wrong)} NaN or infinite values, the first at label {wrong[0][0]}, "
                         f"pixel {wrong[0][1]}")
    raise ValueError(f"{where}scores reach {np.abs(f).max():.3g}, hardness is {problem.hardness:.3g}: "
                     "the net has diverged")


cdef Solution _solution(Dual problem):
    cdef Solution s = Solution.__new__(Solution)
    s.problem, s.iterations, s.residual = problem, problem.passes, problem.callers_residual()
    s.gap = problem.gap if problem.is_feasible() else float("inf")
    s.status = "infeasible" if problem.infeasible else "optimal" if problem.is_optimal() else "stalled"
    s.lam = problem.in_callers_units(problem.lam)
    s.ray = problem.in_callers_units(problem.ray) if problem.infeasible else None
    s.loss = problem.image_loss if problem.diff32 != NULL or problem.diff64 != NULL else None
    return s
