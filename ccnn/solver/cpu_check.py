"""The compiled solver uses instructions that old processors lack. Check before it is loaded: it would crash."""
from ccnn.solver._processor import FLAGS, NEEDS


def check(needed=NEEDS, flags=FLAGS):
    """Raise ImportError if this processor lacks one of `needed`.

    flags : what the processor has, in the words of /proc/cpuinfo; empty: nobody knows, and nothing is checked
    """
    missing = [name for name in needed if name not in flags]
    if missing and flags:
        raise ImportError(f"ccnn was compiled for a newer processor: this one lacks {', '.join(missing)}; "
                          "install it from source with CCNN_ARCH=native")
