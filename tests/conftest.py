"""What every test may ask for: where the repository lies, and which Caffe to run.

The solver's tests run in environments without Caffe too: nothing here imports it.
"""
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples everywhere, and no limit on time: a machine may be busy.
settings.register_profile("steady", deadline=None, derandomize=True, database=None,
                          suppress_health_check=list(HealthCheck))
settings.load_profile("steady")

os.environ.setdefault("GLOG_minloglevel", "2")      # Caffe's log of every layer; errors stay
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

# A run in the background starts with ^C ignored, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("training_runs")     # its asserts tell as much as those of a test

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root():
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def python_bin():
    """The Python that imports caffe."""
    return os.environ.get("CAFFE_PYTHON") or str(ROOT / ".caffe/bin/python")


@pytest.fixture(scope="session")
def caffe_bin():
    """The caffe program."""
    return os.environ.get("CAFFE") or str(ROOT / ".caffe/bin/caffe")
