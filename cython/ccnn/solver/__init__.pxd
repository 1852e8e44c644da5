# Marks this folder as a package for Cython's cimports; Python never reads it.
