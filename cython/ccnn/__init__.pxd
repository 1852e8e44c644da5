# Marks this folder as the package ccnn for Cython's cimports; Python never reads it.
