"""A wheel says what it lacks on an old processor, in one line, before any of its instructions runs."""
import os
import platform

import pytest

from ccnn.solver import cpu_check
from ccnn.solver._processor import BITS

V3 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3 abm avx avx2 bmi1 bmi2 f16c fma movbe".split()
CORE2 = "fpu sse sse2 ssse3 cx16 sse4_1 lahf_lm".split()


def test_this_processor_runs_what_was_compiled_for_it():
    cpu_check.check()


def test_an_old_processor_is_told_in_one_line():
    with pytest.raises(ImportError) as error:
        cpu_check.check(needed=V3, flags=CORE2)
    assert str(error.value).count("\n") == 0
    for word in ("popcnt", "avx2", "fma", "CCNN_ARCH"):
        assert word in str(error.value)
    assert "ssse3" not in str(error.value)


def test_a_new_processor_is_fine_and_an_unknown_one_is_not_refused():
    cpu_check.check(needed=V3, flags=[*V3, "avx512f"])
    cpu_check.check(needed=V3, flags=[])            # of another family
    cpu_check.check(needed=(), flags=CORE2)


def test_the_flags_are_words_of_cpuinfo():
    """Those that the processor itself names are those that Linux found."""
    flags = cpu_check.FLAGS
    assert ("sse2" in flags) == (platform.machine() in ("x86_64", "AMD64"))
    if flags and os.path.exists("/proc/cpuinfo"):
        line = next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split()
        asked = {word for registers in BITS.values() for bits in registers.values() for word in bits.values()}
        assert set(flags) - {"osxsave"} == asked.intersection(line) - {"osxsave"}
