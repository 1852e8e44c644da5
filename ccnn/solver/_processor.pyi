"""See cython/ccnn/solver/_processor.pyx."""
NEEDS: tuple[str, ...]
