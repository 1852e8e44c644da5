from ._problem cimport Dual

cdef void solve(Dual problem, bint by_newton) noexcept nogil
cdef int solve_all(list problems, bint by_newton, Py_ssize_t threads) except -1
