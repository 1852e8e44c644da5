"""See cython/ccnn/solver/_processor.pyx."""
NEEDS: tuple[str, ...]
FLAGS: tuple[str, ...]
BITS: dict
