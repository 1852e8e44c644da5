"""What the compiled solver needs of the processor, and what this one has. This module alone is compiled without special
instructions. The words are those of /proc/cpuinfo; the processor is asked itself, because only Linux has that file.
"""

cdef extern from *:
    """
    #ifndef CCNN_NEEDS
    #define CCNN_NEEDS ""
    #endif

    #if defined(_M_X64) || defined(_M_IX86)
    #include <intrin.h>
    static int cpu_query(int leaf, int inner, int out[4]) {
        __cpuid(out, leaf & 0x80000000);
        if ((unsigned)out[0] < (unsigned)leaf) return 0;
        __cpuidex(out, leaf, inner);
        return 1;
    }
    static unsigned saved_registers(void) { return (unsigned)_xgetbv(0); }
    #elif defined(__x86_64__) || defined(__i386__)
    #include <cpuid.h>
    static int cpu_query(int leaf, int inner, int out[4]) {
        return __get_cpuid_count(leaf, inner, (unsigned *)out, (unsigned *)out + 1, (unsigned *)out + 2,
                                 (unsigned *)out + 3);
    }
    static unsigned saved_registers(void) {
        unsigned low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        return low;
    }
    #else
    static int cpu_query(int leaf, int inner, int out[4]) { return 0; }
    static unsigned saved_registers(void) { return 0; }
    #endif
    """
    const char* CCNN_NEEDS
    bint cpu_query(int leaf, int inner, int* out)
    unsigned saved_registers()

EAX, EBX, ECX, EDX = range(4)
BITS = {            # leaf: {register: {bit: word}}
    1: {ECX: {9: "ssse3", 12: "fma", 13: "cx16", 19: "sse4_1", 20: "sse4_2", 22: "movbe", 23: "popcnt", 27: "osxsave",
              28: "avx", 29: "f16c"}, EDX: {26: "sse2"}},
    7: {EBX: {3: "bmi1", 5: "avx2", 8: "bmi2", 16: "avx512f", 17: "avx512dq", 21: "avx512ifma", 28: "avx512cd",
              30: "avx512bw", 31: "avx512vl"}, ECX: {1: "avx512vbmi", 11: "avx512_vnni"}},
    0x80000001: {ECX: {0: "lahf_lm", 5: "abm"}},
}
YMM, ZMM = 0x6, 0xe6            # registers that the operating system saves: without them, no program may use them


def processor_flags():
    """The instruction sets of this processor that we ever need; none if it is of another family than x86."""
    cdef int out[4]
    found = []
    for leaf, registers in BITS.items():
        if cpu_query(<int><unsigned>leaf, 0, out):
            found += [word for register, bits in registers.items() for bit, word in bits.items()
                      if <unsigned>out[register] >> bit & 1]
    saved = saved_registers() if "osxsave" in found else 0
    wide = "avx", "avx2", "fma", "f16c"
    return tuple(word for word in found if (saved & YMM == YMM or word not in wide)
                 and (saved & ZMM == ZMM or not word.startswith("avx512")))


NEEDS = tuple(CCNN_NEEDS.decode().split())
FLAGS = processor_flags()
