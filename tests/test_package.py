"""The package: what its wheel holds, and whether it installs and solves for every Python of this machine.

The second part (make test-package) fetches NumPy, SciPy, setuptools, Cython and pytest from the Python index.
"""
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = "models", "prototxt", "solvers"         # what the wheel holds besides the package, as ccnn/_files


def sources(folder):
    """Copy what the package is built from, without anything that a build left behind."""
    left_behind = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    for name in "ccnn", "cython", *FILES:
        shutil.copytree(ROOT / name, folder / name, ignore=left_behind)
    for name in "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE":
        shutil.copy(ROOT / name, folder)
    return folder


def run(*command, cwd=None, **settings):
    """Run to the end, in surroundings without the private Python; return what was said."""
    kept = {name: value for name, value in os.environ.items() if not re.match("PYTHON|VIRTUAL_ENV|PYTEST", name)}
    env = {**kept, "CFLAGS": "-g0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **settings}   # -g0: half the time to compile
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=env, cwd=cwd)
    assert done.returncode == 0, done.stdout
    return done.stdout


def hasty_compiler(path):
    """One that does not optimise, for what nobody will run."""
    path.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    path.chmod(0o755)
    return path


def ccnn_version():
    return re.search(r'^__version__ = "(.+)"', (ROOT / "ccnn/__init__.py").read_text(), re.M)[1]


def test_wheel_and_sdist_hold_the_package_only(tmp_path):
    repository = sources(tmp_path / "sources")
    for outsider in "tools/tool.py", "tests/test_it.py", "layers/layer.py":
        repository.joinpath(outsider).parent.mkdir()
        repository.joinpath(outsider).touch()
    run(sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--no-index",
        "--wheel-dir", tmp_path, cwd=repository, CC=str(hasty_compiler(tmp_path / "cc")))
    wheel, = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"ccnn-{ccnn_version()}-cp")
    with zipfile.ZipFile(wheel) as content:
        held = {name for name in content.namelist() if ".dist-info/" not in name}
    files = {path.relative_to(ROOT).as_posix() for folder in FILES for path in (ROOT / folder).iterdir()}
    kinds = "*.py", "*.pyi", "*.proto", "py.typed", "page/*", "templates/*"
    modules = {path.relative_to(ROOT).as_posix() for kind in kinds
               for path in (ROOT / "ccnn").rglob(kind)}
    compiled = {f"ccnn/{path.parent.name}/{path.stem}" for path in (ROOT / "cython").rglob("*.pyx")} | {
        "ccnn/_memoryviews"}
    assert {name for name in held if not name.endswith(".so")} == modules | {f"ccnn/_files/{name}" for name in files}
    assert {name.split(".")[0] for name in held if name.endswith(".so")} == compiled

    run(sys.executable, "setup.py", "-q", "sdist", "--formats", "zip", "--dist-dir", tmp_path, cwd=repository)
    with zipfile.ZipFile(tmp_path / f"ccnn-{ccnn_version()}.zip") as content:
        held = {name.partition("/")[2] for name in content.namelist()}
    solver = {path.relative_to(ROOT).as_posix() for path in (ROOT / "cython").rglob("*.*")
              if path.suffix in (".pyx", ".pxd", ".h")}
    assert solver | modules | files <= held
    assert not {name for name in held if re.match(r"(tools|tests|layers)/|.*\.(c|so)$", name)}


def find_python(version):
    """A Python of this version that can make virtual environments: one of pyenv's, or on PATH. None without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for python in [*pyenv.glob(f"versions/{version}.*/bin/python{version}"), shutil.which(f"python{version}")]:
        if python and subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True).returncode == 0:
            return python
    return None


@pytest.mark.every_python
@pytest.mark.parametrize("version", [f"3.{minor}" for minor in range(9, 15)])
def test_clean_environment(tmp_path, version):
    """`pip install .`, `import ccnn` and the solver's tests, with the oldest NumPy that we support and the newest."""
    found = find_python(version)
    if found is None:
        pytest.skip(f"no Python {version} on this machine")
    run(found, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", sources(tmp_path / "sources"), "pytest", "hypothesis")
    bare = "import sys; sys.modules.update(dict.fromkeys(['PIL', 'tqdm'])); import ccnn; print(ccnn.__version__)"
    assert run(python, "-c", bare, cwd="/").strip() == ccnn_version()

    numpys = ["numpy>=2"] if version >= "3.13" else ["numpy>=2", "numpy==1.26.*"]        # 1.26 ends at Python 3.12
    for numpy in numpys:
        run(python, "-m", "pip", "install", "--only-binary", ":all:", numpy, "scipy")
        said = run(python, ROOT / "tests/solver_tests.py")
        print(version, numpy, said.splitlines()[-1])


def test_without_pythons_headers_one_line_says_what_to_install(tmp_path):
    """Debian's and Ubuntu's python3 has no Python.h; the compiler's own message is long."""
    repository = sources(tmp_path / "sources")
    program = ("import runpy, sys, sysconfig, Cython.Build\n"
               "old, Cython.Build.cythonize = sysconfig.get_path, lambda *_, **settings: []\n"
               "sysconfig.get_path = lambda name, *rest: '/nowhere' if name == 'include' else old(name, *rest)\n"
               "sys.argv = ['setup.py', 'build_ext']\n"
               "runpy.run_path('setup.py')\n")
    done = subprocess.run([sys.executable, "-c", program], cwd=repository, capture_output=True, text=True)
    said = done.stderr.splitlines()[-1]
    assert done.returncode and re.match(r"ccnn: /nowhere/Python\.h is missing.*apt-get install python3\.\d+-dev", said)
    assert "compilation terminated" not in done.stdout + done.stderr


COMPILERS = {"clang": {"CC": "clang"}, "no vectors": {"CFLAGS": "-g0 -DCCNN_PLAIN"},
             "baseline": {"CCNN_ARCH": "x86-64"}}


@pytest.mark.every_python
@pytest.mark.parametrize("compiler", COMPILERS)
def test_other_compilers(tmp_path, compiler):
    """The solver's and the CRF's tests, as another compiler or processor has them."""
    found, settings = find_python("3.11"), COMPILERS[compiler]
    if found is None or not shutil.which(settings.get("CC", "cc")):
        pytest.skip(f"needs Python 3.11 and {settings.get('CC', 'cc')}")
    run(found, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", sources(tmp_path / "sources"), "pytest", "hypothesis", **settings)
    print(compiler, run(python, ROOT / "tests/solver_tests.py").splitlines()[-1])


def test_citation_names_this_version():
    assert re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)[1] == ccnn_version()
