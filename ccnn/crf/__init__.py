"""The dense CRF: mean field on permutohedral lattices, which sharpens scores along the edges of a photograph.

dense_crf takes a photograph, scores and a preset; DenseCRF takes any kernels, and keeps their lattices. NumPy and the
modules of cython/ccnn/crf/ are all that this room needs; pydensecrf, the reference, is optional.
"""
from ccnn.crf.dense import dense_crf, dense_crf_batch, sharpen
from ccnn.crf.engines import ENGINES, photograph_kernels
from ccnn.crf.mean_field import DenseCRF, Kernel
from ccnn.crf.presets import PRESETS, Preset, load_preset

__all__ = ["DenseCRF", "ENGINES", "Kernel", "PRESETS", "Preset", "dense_crf", "dense_crf_batch", "load_preset",
           "photograph_kernels", "sharpen"]
