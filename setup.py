"""Compile the sources: cython/ccnn/ROOM/NAME.pyx becomes the module ccnn.ROOM.NAME.

    python setup.py build_ext --inplace      for this processor; pip install -e . too
    pip wheel .   pip install .              for every processor of the level x86-64-v3 (2013 and later)
    CCNN_ARCH=native pip install .           for this processor; any name that gcc's -march knows; for ARM the
                                             baseline, which has vectors, is what a wheel gets

A build backend cannot tell `pip install .` from `pip wheel .`, and a wheel may travel: both get the safe level. The
module ccnn.solver._processor records what the others need; ccnn checks it before it loads them.
"""
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

SOURCES = Path("cython/ccnn")
MODULES = sorted(SOURCES.glob("*/*.pyx"))

MEMORYVIEWS = "ccnn._memoryviews"       # what Cython's memoryviews need, once and not in every module

FILES = "models/*.ccnn", "prototxt/*", "solvers/*"

# -ffast-math lets gcc call the vector exponentials of libmvec. It stays off the link line, where it would add start-up
# code that makes the whole process flush denormal numbers to zero.
FLAGS = ["-O3", "-ffast-math", "-fno-math-errno", "-mprefer-vector-width=512", "-g0"]
MSVC = ["/O2", "/fp:fast", "/std:c11"]          # c11: restrict
# What each level needs, in the words of /proc/cpuinfo. An unknown level is not checked.
V2 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
V3 = V2 + " abm avx avx2 bmi1 bmi2 f16c fma movbe"
LEVELS = {"x86-64-v2": V2, "x86-64-v3": V3}
VECTORS = V3 + " avx512f avx512bw avx512cd avx512dq avx512vl avx512ifma avx512vbmi avx512_vnni"


class BuildSolver(build_ext):
    """Native in place; a wheel may travel, so it gets the level that nearly every server and laptop has."""

    def run(self):
        x86 = sysconfig.get_platform().endswith(("x86_64", "amd64"))          # of what is built, not of the builder
        here = self.inplace or getattr(self, "editable_mode", False)
        arch = os.environ.get("CCNN_ARCH") or ("native" if here else "x86-64-v3" if x86 else "")
        if self.compiler == "msvc" or (sys.platform == "win32" and not self.compiler):
            flags = MSVC + ["/arch:AVX2"] * (arch == "x86-64-v3")
        else:
            check_headers()
            flags = [flag for flag in [*[f"-march={arch}"] * bool(arch), *FLAGS] if accepted(flag)]
        for extension in self.extensions:
            if extension.name == "ccnn.solver._processor":
                extension.define_macros.append(("CCNN_NEEDS", f'"{needs(arch)}"'))
            elif extension.name != MEMORYVIEWS:
                extension.extra_compile_args += flags
        super().run()


class AddFiles(build_py):
    """Nets, solvers and models go into the wheel, too: ccnn/_files (ccnn/_util/paths.py)."""

    def run(self):
        super().run()
        for path in [] if self.editable_mode else [path for folder in FILES for path in sorted(Path().glob(folder))]:
            self.copy_file(path, self.place(path))

    def place(self, path):
        place = Path(self.build_lib, "ccnn/_files", path)
        place.parent.mkdir(parents=True, exist_ok=True)
        return str(place)

    def get_outputs(self, include_bytecode=True):
        return [*super().get_outputs(include_bytecode),
                *(str(Path(self.build_lib, "ccnn/_files", path)) for folder in FILES for path in Path().glob(folder))]


def check_headers():
    """One line where Python's headers are missing, before the compiler says so on a hundred."""
    place = sysconfig.get_path("include")
    if not Path(place, "Python.h").is_file():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        sys.exit(f"ccnn: {place}/Python.h is missing, which compiling needs; install the headers of Python {version} "
                 f"(Debian, Ubuntu: sudo apt-get install python{version}-dev; Fedora: python3-devel), then run this "
                 "again")


def needs(arch):
    """The instruction sets that code for `arch` uses."""
    if arch != "native":
        return LEVELS.get(arch, "")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    present = next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])
    return " ".join(name for name in VECTORS.split() if name in present)


def accepted(flag):
    """Whether the compiler knows the flag: clang and other processors lack some. No compiler knows none."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    with tempfile.TemporaryDirectory() as scratch:
        source = os.path.join(scratch, "empty.c")
        open(source, "w").close()
        command = [*compiler, "-Werror", flag, "-c", source, "-o", os.path.join(scratch, "empty.o")]
        try:
            return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
        except FileNotFoundError:
            sys.exit(f"ccnn: there is no compiler {compiler[0]!r}, which installing from source needs; install one "
                     "(Debian, Ubuntu: sudo apt-get install build-essential), or a wheel")


os.chdir(Path(__file__).resolve().parent)
setup(
    cmdclass={"build_ext": BuildSolver, "build_py": AddFiles},
    ext_modules=cythonize(
        [*(Extension(f"ccnn.{path.parent.name}.{path.stem}", [str(path)], include_dirs=[str(path.parent), str(SOURCES)],
                     libraries=[] if sys.platform == "win32" else ["m"],
                     depends=[str(header) for folder in (path.parent, SOURCES) for header in folder.glob("*.h")])
           for path in MODULES),
         Extension(MEMORYVIEWS, [str(SOURCES / "_memoryviews.c")])],
        shared_utility_qualified_name=MEMORYVIEWS,
        compiler_directives=dict(language_level=3, boundscheck=False, wraparound=False, cdivision=True,
                                 initializedcheck=False),
    ),
)
