"""The compiled solver uses instructions that old processors lack. Check before it is loaded: it would crash."""
from ccnn.solver._processor import NEEDS


def check(needed=NEEDS, flags=None):
    """Raise ImportError if this processor lacks one of `needed`.

    flags : what the processor has, in the words of /proc/cpuinfo; None: look there.
    """
    flags = read_flags() if flags is None else flags
    missing = [name for name in needed if name not in flags]
    if missing and flags:
        raise ImportError(f"ccnn was compiled for a newer processor: this one lacks {', '.join(missing)}; "
                          "install it from source with CCNN_ARCH=native")


def read_flags():
    """The flags of /proc/cpuinfo; empty where there is none, and then nothing is checked."""
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.split(":")[1].split() for line in file if line.startswith("flags")), [])
    except OSError:
        return []
