"""The dense CRF: mean field that sharpens scores along the edges of a photograph, and its presets."""
from ccnn.crf.dense import PRESETS, Preset, dense_crf, load_preset, sharpen

__all__ = ["PRESETS", "Preset", "dense_crf", "load_preset", "sharpen"]
