"""What the benchmarks share: the clock, the machine they ran on, and where their reports go."""
import os
import platform
import re
import subprocess
import time
from pathlib import Path

import numpy as np
from fingerprints import with_fingerprints

from ccnn._util.files import whole_file


def clock(call, *arguments):
    """(seconds, result) of a call: CPU seconds of this thread, so that other programs do not count."""
    start = time.thread_time()
    result = call(*arguments)
    return time.thread_time() - start, result


def machine():
    """One line: processor, cores, compiler, versions."""
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


def publish(text, folder, name):
    """Print a report with the fingerprints of its sources; if there is a folder, write it there, too."""
    text = with_fingerprints(name, text)
    print(text)
    if folder:
        with whole_file(folder / name) as part:
            part.write_text(text)
