"""Constants that several files of the solver share."""

cdef enum:
    POLL = 100      # milliseconds between two checks for ^C
    BLOCK = 256     # pixels handled at a time: a few labels of them stay in the first-level cache

cdef extern from *:
    """
    #define HARD 1e300          /* the price of a hard row: compiled with -ffast-math, there is no infinity */
    #define CLIP (-200.0)       /* exponents are clipped here: smaller values vanish beside 1, and denormals are slow */
    #define NEGLIGIBLE 1e-18    /* smaller probabilities are 0 in a gradient: denormal numbers slow the layers below */
    """
    const double HARD, CLIP, NEGLIGIBLE
