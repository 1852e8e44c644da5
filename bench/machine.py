"""What the benchmarks share: the machine they ran on."""
import os
import platform
import re
import subprocess
from pathlib import Path

import numpy as np


def machine():
    """One line for benchmarks: processor, cores, compiler, versions."""
    try:
        cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1]
    except (OSError, TypeError):        # no such file, no such line
        cpu = platform.machine()
    try:
        said = subprocess.run([os.environ.get("CC", "cc"), "--version"], capture_output=True, text=True)
        compiler = said.stdout.partition("\n")[0]
    except OSError:
        compiler = "unknown compiler"
    return f"{cpu}, {os.cpu_count()} cores; {compiler}; Python {platform.python_version()}, NumPy {np.__version__}"
