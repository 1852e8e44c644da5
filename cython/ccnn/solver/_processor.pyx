"""What the compiled solver needs of the processor. This module alone is compiled without special instructions."""

cdef extern from *:
    """
    #ifndef CCNN_NEEDS
    #define CCNN_NEEDS ""
    #endif
    """
    const char* CCNN_NEEDS

NEEDS = tuple(CCNN_NEEDS.decode().split())      # instruction sets, in the words of /proc/cpuinfo
