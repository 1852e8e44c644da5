from ._problem cimport Dual

cdef void projected_gradient_ascent(Dual problem) noexcept nogil
