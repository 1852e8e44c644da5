cdef extern from "_exponential.h":
    double exp_within(double x) noexcept nogil      # -200 <= x <= 200
    float exp_within_f(float x) noexcept nogil      # -80 <= x <= 80
