"""See cython/ccnn/_processor.pyx."""
NEEDS: tuple[str, ...]
