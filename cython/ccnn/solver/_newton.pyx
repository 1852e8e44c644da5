"""Newton's method in the box 0 <= lam <= beta, with a trust region.

1. If the scores are sharp, first solve blunter problems: lam grows in proportion to the hardness.
2. At lam, solve the model: maximise pull'd - d'Hd/2 over 0 <= lam + d <= beta, |d| <= radius.
3. Go there; if the step is so small that the rows there are known, stop. D is concave, so it rose if it is still rising
   there along d; otherwise compare D.
4. If it fell, shrink the radius to where the slope along d would vanish; if the step met the radius and D rose,
   widen it.
5. Stop at a gap of at most tol, or where only rounding errors are left; if lam grows without bound, check whether its
   direction proves a contradiction.
"""
from libc.math cimport fabs, log, sqrt

from ._constants cimport HARD
from ._memory cimport Memory, integers, reals, unset_reals
from ._problem cimport Dual

cdef enum:
    PASSES = 300        # a bound on the work, whatever the scores
    LAST = 8            # at points that differ by rounding errors alone: one of them may be certified
    SAMPLE = 4          # blunter problems look at one pixel of so many

cdef struct Workspace:
    double* H           # k x k  covariance of the rows at lam: minus the Hessian
    double* new_lam     # k      the next point,
    double* new_v       # k      the rows there,
    double* new_H       # k x k  and their covariance
    double* pull        # k      the linear term of the model
    double* lower       # k      the box of the model
    double* upper       # k
    double* step        # k      its maximum
    double* factor      # k x k  Cholesky's factor of H on the free duals
    double* move        # k
    Py_ssize_t* free    # k      the duals strictly inside the box


cdef void newton(Dual problem) noexcept nogil:
    """Maximise D from lam, which is 0 but for rows that are decided."""
    cdef double goal = problem.hardness, blunt, next
    cdef Py_ssize_t j, k = problem.k
    cdef Memory* m = &problem.memory
    cdef Workspace s
    s.H, s.new_H, s.factor = unset_reals(m, k * k), unset_reals(m, k * k), unset_reals(m, k * k)
    s.new_lam, s.new_v, s.pull, s.step = reals(m, k), reals(m, k), reals(m, k), reals(m, k)
    s.lower, s.upper, s.move, s.free = reals(m, k), reals(m, k), reals(m, k), integers(m, k)
    if m.failed:
        return
    if problem.infeasible:
        problem.start(NULL)
        return
    blunt = 8 / max(problem.spread(), 1e-300)
    if goal > 2 * blunt:                                                                    # 1
        problem.set_hardness(blunt, SAMPLE)
    problem.start(s.H)
    while problem.hardness < goal:
        newton_steps(problem, &s, 6, 0.01)
        next = min(8 * problem.hardness, goal)
        if problem.infeasible or problem.passes > PASSES // 2 or problem.interrupted():
            next = goal
        for j in range(k):
            problem.lam[j] = min(problem.lam[j] * next / problem.hardness, problem.beta[j])
        problem.set_hardness(next, SAMPLE if next < goal else 1)
        problem.start(s.H)
    if not problem.infeasible:
        newton_steps(problem, &s, PASSES - problem.passes, 0)


cdef void newton_steps(Dual problem, Workspace* s, Py_ssize_t passes, double rough) noexcept nogil:
    """At most `passes` steps, until the point is optimal or its residual is below `rough`."""
    cdef double radius = 20, slope, new_slope, new_value, reach
    cdef Py_ssize_t j, t, k = problem.k, last = LAST
    for t in range(passes):
        if problem.residual < rough or problem.is_optimal() or t % 8 == 7 and problem.is_infeasible():     # 5
            return
        last -= problem.rounded
        if last < 0 or problem.interrupted():
            return
        logit_residual(problem, s)
        slope = newton_step(problem, s, radius)                                             # 2
        if not slope > 0:                           # the step for `pull` may lower D: take the plain gradient
            for j in range(k):
                s.pull[j] = problem.g[j]
            slope = newton_step(problem, s, radius)
            if not slope > 0:
                return
        reach = 0
        for j in range(k):
            s.new_lam[j] = min(max(problem.lam[j] + s.step[j], 0), problem.beta[j])         # rounding may leave the box
            if s.step[j] >= s.upper[j] and s.upper[j] == problem.beta[j] - problem.lam[j]:
                s.new_lam[j] = problem.beta[j]
            reach = max(reach, fabs(s.step[j]))
        if rough == 0 and problem.certify_ahead(s.new_lam, s.step, s.H):                    # 3
            return
        new_value = problem.measure(s.new_lam, s.new_v, s.new_H)
        new_slope = 0
        for j in range(k):
            new_slope += s.step[j] * (problem.g[j] + problem.v[j] - s.new_v[j])
        if new_slope >= 0 or new_value > problem.value:
            problem.lam, s.new_lam = s.new_lam, problem.lam
            problem.v, s.new_v = s.new_v, problem.v
            s.H, s.new_H = s.new_H, s.H
            problem.value = new_value
            problem.certify(s.H)
            if reach > 0.99 * radius and new_slope >= 0:                                    # 4
                radius *= 4
        else:
            radius = reach * min(max(slope / (slope - new_slope), 0.1), 0.7)                # 4
            if radius < 1e-14:
                return


cdef void logit_residual(Dual problem, Workspace* s) noexcept nogil:
    """The linear term of the model: the gradient of D, made nearly linear in lam.

    The part t = (v - low) / (high - low) of a row's range follows lam like a logistic curve, so logit t is nearly
    linear where t is not. Newton's step on logit t = logit target is the plain step with this residual in place of
    target - t. It has the same sign and the same limit.
    """
    cdef Py_ssize_t j
    cdef double width, t, target
    for j in range(problem.k):
        s.pull[j] = problem.g[j]
        width = problem.high[j] - problem.low[j]
        if width <= 0:
            continue
        t = (problem.v[j] - problem.low[j]) / width
        target = t + problem.g[j] / width
        if t > 1e-300 and t < 1 and target > 1e-9 and target < 1 - 1e-9:
            s.pull[j] = width * t * (1 - t) * (log(target / (1 - target)) - log(t / (1 - t)))


cdef double newton_step(Dual problem, Workspace* s, double radius) noexcept nogil:
    """Maximise pull'd - d'Hd/2 over the box; return the slope of D along this step.

    Sweeps over the coordinates find the duals that end on a side of the box; the others are solved for together.
    A dual that leaves the box on the way joins those on the side.
    """
    cdef Py_ssize_t j, turn, k = problem.k
    cdef double slope = 0, moved
    for j in range(k):
        s.lower[j] = max(-problem.lam[j], -radius)
        s.upper[j] = min(problem.beta[j] - problem.lam[j], radius)
        s.step[j] = 0
    for turn in range(3):
        moved = sweep_coordinates(s, k)
        if turn and moved == 0:
            break
        for j in range(3):
            sweep_coordinates(s, k)
        for j in range(k):
            if solve_free(s, k) or problem.interrupted():
                break
    for j in range(k):
        slope += problem.g[j] * s.step[j]
    return slope


cdef double sweep_coordinates(Workspace* s, Py_ssize_t k) noexcept nogil:
    """Maximise the model over one coordinate after the other. Return the largest move that is not rounding."""
    cdef Py_ssize_t j
    cdef double d, own, largest = 0
    for j in range(k):
        own = s.H[j * k + j]
        d = s.pull[j] - dot(s.H + j * k, s.step, k) + own * s.step[j]
        # a row that does not respond goes to the side that it is pulled to
        d = d / own if own > 1e-30 else d * HARD
        d = min(max(d, s.lower[j]), s.upper[j])
        if fabs(d - s.step[j]) > 1e-9 * fabs(d):
            largest = max(largest, fabs(d - s.step[j]))
        s.step[j] = d
    return largest


cdef bint solve_free(Workspace* s, Py_ssize_t k) noexcept nogil:
    """Move the duals inside the box, the others held, to where H d = pull. False if a side stopped one of them.

    H = C C' by Cholesky. Rows may depend on each other: damping by a billionth of the diagonal keeps every pivot
    positive, where clipping the pivots would let the factor overflow.
    """
    cdef Py_ssize_t j, m, r, free = 0, stopped = -1
    cdef double x, part = 1
    cdef bint nearer_top
    cdef double* C = s.factor
    cdef double* y = s.move
    for j in range(k):
        if s.lower[j] < s.step[j] < s.upper[j]:
            s.free[free] = j
            free += 1
    for j in range(free):                           # y = C^-1 (pull - H d)
        r = s.free[j]
        for m in range(j):
            C[j * k + m] = (s.H[r * k + s.free[m]] - dot(C + j * k, C + m * k, m)) / C[m * k + m]
        x = s.H[r * k + r]
        C[j * k + j] = sqrt(max(x * (1 + 1e-9) - dot(C + j * k, C + j * k, j), 1e-12 * x + 1e-30))
        x = s.pull[r] - dot(s.H + r * k, s.step, k)
        y[j] = (x - dot(C + j * k, y, j)) / C[j * k + j]
    for j in range(free - 1, -1, -1):               # y = C'^-1 y
        y[j] /= C[j * k + j]
        for m in range(j):
            y[m] -= C[j * k + m] * y[j]
    for j in range(free):
        r = s.free[j]
        x = s.upper[r] - s.step[r] if y[j] > 0 else s.lower[r] - s.step[r]
        if fabs(y[j]) * part > fabs(x):
            part, stopped = x / y[j], r
    for j in range(free):
        s.step[s.free[j]] += part * y[j]
    if stopped < 0:
        return True
    nearer_top = s.upper[stopped] - s.step[stopped] < s.step[stopped] - s.lower[stopped]
    s.step[stopped] = s.upper[stopped] if nearer_top else s.lower[stopped]
    return False


cdef inline double dot(const double* x, const double* y, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef double total = 0
    for i in range(n):
        total += x[i] * y[i]
    return total
