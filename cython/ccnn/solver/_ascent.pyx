"""The paper's projected gradient ascent (section 4.1)."""
from ._memory cimport Memory, reals
from ._problem cimport Dual

cdef enum:
    PASSES = 20000      # a bound on the work, whatever the scores


cdef void projected_gradient_ascent(Dual problem) noexcept nogil:
    """lam <- clip(lam + alpha (b - v), 0, beta), alpha halved until D rises as it should, then doubled."""
    cdef double alpha = 1, slope, new_slope, new_value
    cdef Py_ssize_t j, check = 64, k = problem.k
    cdef Memory* m = &problem.memory
    cdef double* new_lam = reals(m, k)
    cdef double* new_v = reals(m, k)
    cdef double* step = reals(m, k)
    if m.failed:
        return
    problem.start(NULL)
    while problem.passes < PASSES and not problem.infeasible and not problem.is_optimal() and not problem.interrupted():
        slope = 0
        for j in range(k):
            new_lam[j] = min(max(problem.lam[j] + alpha * problem.g[j], 0), problem.beta[j])
            step[j] = new_lam[j] - problem.lam[j]
            slope += step[j] * problem.g[j]
        if not slope > 0:
            return
        new_value = problem.measure(new_lam, new_v, NULL)
        if problem.passes == check:
            check *= 2                              # lam may swing; over a longer stretch the swings cancel
            if problem.is_infeasible():
                return
        new_slope = 0
        for j in range(k):
            new_slope += step[j] * (problem.g[j] + problem.v[j] - new_v[j])
        if new_slope >= 0 or new_value >= problem.value + 0.3 * slope:
            problem.lam, new_lam = new_lam, problem.lam
            problem.v, new_v = new_v, problem.v
            problem.value = new_value
            problem.certify(NULL)
            alpha *= 2
        else:
            alpha *= 0.5
