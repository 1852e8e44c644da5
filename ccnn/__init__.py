"""Constrained CNNs for weakly supervised segmentation: the solver and its constraints, without Caffe.

    c = ccnn.tag_constraints(present)       # what is known about an image
    s = ccnn.maximize(f, c)                 # the nearest distribution to softmax(f) that obeys it
    s.p, s.gap, s.status
    q = ccnn.dense_crf(rgb, scores)         # marginals of a dense CRF
    mask = ccnn.load_model("x.ccnn").segment(rgb)           # a model, for arrays
    ccnn.Segmenter().fit(photographs, tags)                 # one of your own, in scikit-learn's manner

NumPy, SciPy and the compiled modules are all that `import ccnn` needs; models need ccnn[photos]. The rooms below import
what they use, and only rooms before them: _util, solver, crf, images, annotations, supervision, nets, data, inference,
training, evaluation, project, studio, serving, cli. `paper` has every number of the paper; `torch` is the loss for
PyTorch.
"""
import os
import sys

try:
    from ccnn.crf import dense_crf
    from ccnn.solver import BACKGROUND, VOID, Constraints, Solution, maximize, maximize_batch
    from ccnn.supervision import box_constraints, mask_constraints, size_constraints, tag_constraints
except KeyboardInterrupt:
    if os.path.basename(sys.argv[0]) in ("ccnn", "-c", "-m"):       # ^C while a command is being loaded: no trace
        sys.exit(130)
    raise

__version__ = "3.0.0"
__all__ = ["BACKGROUND", "VOID", "Constraints", "Segmenter", "Solution", "box_constraints", "dense_crf", "load_model",
           "mask_constraints", "maximize", "maximize_batch", "size_constraints", "tag_constraints"]


def load_model(path=None, engine="auto"):
    """A model, ready to segment arrays: an object with `classes` and `segment(rgb, tags=None, crf=False)`.

    path    a file NAME.ccnn; None: the model that comes with the package, which knows VOC's 20 classes
    engine  what runs the net: "kernels", "onnx" or "caffe"; "auto": the first of these that can

    VGG-16's convolutions (64 MB) are downloaded once, into the cache folder (CCNN_HOME).
    """
    from ccnn.inference.model import Model
    return Model(path, engine)


def __getattr__(name):
    if name == "Segmenter":             # imported when it is first used: it needs Pillow and ONNX Runtime
        from ccnn.project.estimator import Segmenter
        return Segmenter
    raise AttributeError(f"module 'ccnn' has no attribute {name!r}")
