"""Compile the solver into the package.

    python setup.py build_ext --inplace     # for the Python that runs this
"""
import os
import shlex
import subprocess
import sysconfig
import tempfile

from Cython.Build import cythonize
from setuptools import Extension, setup

# The module is built where it runs, so every instruction of this processor may be used. -ffast-math lets gcc call
# the vector exponentials of libmvec. It stays off the link line, where it would add start-up code that makes the
# whole process flush denormal numbers to zero.
FLAGS = ["-O3", "-march=native", "-ffast-math", "-fno-math-errno", "-mprefer-vector-width=512"]


def accepted(flag):
    """Whether the compiler knows the flag: clang and other processors lack some."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    with tempfile.TemporaryDirectory() as scratch:
        source = os.path.join(scratch, "empty.c")
        open(source, "w").close()
        command = [*compiler, "-Werror", flag, "-c", source, "-o", os.path.join(scratch, "empty.o")]
        return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


setup(
    ext_modules=cythonize(
        Extension("ccnn.dual", ["cython/dual.pyx"], libraries=["m"], extra_compile_args=[flag for flag in FLAGS if accepted(flag)]),
        language_level=3,
    ),
)
