"""Run the tests that need NumPy, SciPy, pytest and hypothesis alone, against an installed ccnn: python solver_tests.py

They are copied elsewhere first, so that no file of the clone hides the installed package.
"""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOLVER_TESTS = ["conftest.py", "crf_oracle.py", "oracles.py", "problems.py", "test_batch.py", "test_constraints.py",
                "test_dense_crf.py", "test_dual.py", "test_exponential.py", "test_grouping.py", "test_cpu_check.py"]


def run_solver_tests(python=sys.executable, *options):
    """The exit status of pytest."""
    with tempfile.TemporaryDirectory() as place:
        for name in SOLVER_TESTS:
            shutil.copy(Path(__file__).with_name(name), place)
        return subprocess.run([python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *options, "."],
                              cwd=place).returncode


if __name__ == "__main__":
    sys.exit(run_solver_tests(sys.executable, *sys.argv[1:]))
