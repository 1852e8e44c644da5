"""A studio that runs: the program as a user starts it, in a copy of the repository that has a trunk; and a browser."""
import os
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM
from drawn_photographs import photograph, random_trunk

from ccnn.trunk import VGG16

KINDS = ((1,), (2,), (1, 2), ())        # labels on the drawn photographs, in turn: cat, dog, both, none


def launch(playwright):
    return playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])


def repository_copy(root, place):
    """What the studio needs of the repository. VGG-16 where it is at hand, random weights elsewhere."""
    for name in ("tools", "studio", "prototxt", "solvers", "layers", "ccnn"):
        shutil.copytree(root / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    (place / ".caffe").symlink_to(root / ".caffe")
    (place / "data").mkdir()
    weights = place / "data" / VGG16.weights.name
    if VGG16.weights.is_file():
        weights.symlink_to(VGG16.weights)
    else:
        random_trunk(place / "prototxt/trunk.prototxt").save(str(weights))
    return place


def draw_photographs(folder, number, seed):
    """Write 00.jpg, 01.jpg, ...: small, drawn, in turn of KINDS."""
    folder.mkdir(exist_ok=True)
    for k in range(number):
        image, _ = photograph(np.random.default_rng([seed, k]), KINDS[k % 4])
        image.save(folder / f"{k:02}.jpg", quality=95)
    return folder


class Studio:
    """The program, started on a folder. address: what it printed."""

    def __init__(self, place: Path, folder: Path, *options):
        self.place, self.folder, self.options = place, folder, options
        self.log = folder.parent / f"{folder.name}.log"
        self.start()

    def start(self, port=None):
        root = Path(__file__).resolve().parents[1]
        path = [self.place, self.place / "layers", root / ".caffe/packages"]
        self.process = subprocess.Popen(
            [self.place / ".caffe/bin/python", self.place / "tools/studio.py", self.folder, "--no-browser",
             *(["--port", str(port)] if port else []), *self.options],
            env={**os.environ, "PYTHONPATH": ":".join(map(str, path)), "OPENBLAS_NUM_THREADS": "1"}, cwd=self.place,
            stdout=subprocess.PIPE, stderr=self.log.open("a"), text=True, start_new_session=True)
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            pytest.fail(f"the studio did not start: {self.log.read_text()[-2000:]}")
        self.port = int(self.address.split("/")[2].split(":")[1])

    def kill(self):
        """As the kernel does when memory ends: no clean-up."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                raise
        self.process.stdout.close()
