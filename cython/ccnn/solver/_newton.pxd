from ._problem cimport Dual

cdef void newton(Dual problem) noexcept nogil
