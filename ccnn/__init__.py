"""Constrained CNNs for weakly supervised segmentation: the solver and its constraints, without Caffe.

    c = ccnn.tag_constraints(present)       # what is known about an image
    s = ccnn.maximize(f, c)                 # the nearest distribution to softmax(f) that obeys it
    s.p, s.gap, s.status
    q = ccnn.dense_crf(rgb, scores)         # marginals of a dense CRF

NumPy, SciPy and the compiled modules are all that `import ccnn` needs. The rooms below import what they use, and only
rooms before them: _util, solver, crf, images, annotations, supervision, nets, data, inference, training, evaluation,
project, studio, cli. `paper` has every number of the paper; `torch` is the loss for PyTorch.
"""
from ccnn.crf import dense_crf
from ccnn.solver import BACKGROUND, VOID, Constraints, Solution, maximize, maximize_batch
from ccnn.supervision import box_constraints, mask_constraints, size_constraints, tag_constraints

__version__ = "2.0.0"
__all__ = ["BACKGROUND", "VOID", "Constraints", "Solution", "box_constraints", "dense_crf", "mask_constraints",
           "maximize", "maximize_batch", "size_constraints", "tag_constraints"]
