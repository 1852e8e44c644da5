"""Constrained CNNs for weakly supervised segmentation: the solver and what it is asked, without Caffe.

    c = ccnn.tag_constraints(present)       # what is known about an image
    s = ccnn.maximize(f, c)                 # the nearest distribution to softmax(f) that obeys it
    s.p, s.gap, s.status

NumPy, SciPy and the compiled solver are all that this needs. Other modules import what they use when they are imported.
"""
from ccnn import processor

processor.check()       # first: the modules below would crash on a processor that they were not compiled for

from ccnn.constraints import (  # noqa: E402
    BACKGROUND,
    VOID,
    Constraints,
    box_constraints,
    mask_constraints,
    size_constraints,
    tag_constraints,
)
from ccnn.dual import Solution, maximize, maximize_batch  # noqa: E402

__version__ = "2.0.0"
__all__ = ["BACKGROUND", "VOID", "Constraints", "Solution", "box_constraints", "mask_constraints", "maximize",
           "maximize_batch", "size_constraints", "tag_constraints"]
