"""Where the repository lies. Whatever a tool takes by default is found from here, in whatever directory it is called.

A path that the user gives is relative to the current directory. So are the paths inside solvers and nets, because
`caffe train` reads them so; those of the repository are written for its root.
"""
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

DATA = ROOT / "data"
VOC = DATA / "VOCdevkit/VOC2012"
FEATURES = DATA / "features"
