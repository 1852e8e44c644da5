"""Where the repository lies. Whatever a tool takes by default is found from here, in whatever directory it is called.

A path that the user gives is relative to the current directory. So are the paths inside solvers and nets, because
`caffe train` reads them so; those of the repository are written for its root.
"""
import os
import shlex
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

DATA = ROOT / "data"
VOC = DATA / "VOCdevkit/VOC2012"
FEATURES = DATA / "features"


def typed(name: str, *words: object) -> str:
    """A command of ours as one can type it here: `ccnn NAME` where that is on the PATH, else tools/NAME.py."""
    tool = ROOT / "tools" / f"{'infer' if name == 'segment' else name.replace('-', '_')}.py"
    start = [os.path.relpath(tool)] if tool.exists() and not shutil.which("ccnn") else ["ccnn", name]
    return shlex.join([*start, *map(str, words)])
