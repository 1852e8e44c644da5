"""A copy of the repository, in which a test may type a user's commands."""
import contextlib
import os
import shutil
import sys

from drawn_photographs import random_trunk

from ccnn._util.errors import UserError
from ccnn.nets.backbones import VGG16
from ccnn.nets.cues import U2NETP


def copy_of_repository(root, place):
    """What tools and studio need, at another place: with VGG-16's convolutions, or random ones if they are missing."""
    for name in ("tools", "prototxt", "solvers", "ccnn"):
        shutil.copytree(root / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    (place / ".caffe").symlink_to(root / ".caffe")
    (place / "data").mkdir()
    weights = place / "data" / VGG16.weights.name
    if VGG16.weights.is_file():
        weights.symlink_to(VGG16.weights)
    else:
        random_trunk(place / "prototxt/trunk.prototxt").save(str(weights))
    with contextlib.suppress(UserError):        # offline the copy learns without
        (place / "data" / U2NETP.file.name).symlink_to(U2NETP.fetch_net())
    (place / "bin").mkdir()
    command = place / "bin/ccnn"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ccnn "$@"\n')
    command.chmod(0o755)
    return place


def environment(root, place):
    """The copy's library goes before the repository's, and `ccnn` is its command."""
    path = [place, root / "layers", root / ".caffe/packages"]
    return {**os.environ, "PYTHONPATH": ":".join(map(str, path)), "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
            "OPENBLAS_NUM_THREADS": "1"}
