"""What computes mean field for a photograph: our compiled code, or pydensecrf, the reference.

An engine is a function of (rgb, scores L x n float32, the labels that enter, a Preset, threads) that returns the
marginals, L x n float32, 0 for labels that do not enter. To add one, add it to ENGINES.
"""
import numpy as np

from ccnn._util.errors import UserError
from ccnn.crf.mean_field import DenseCRF, Kernel
from ccnn.crf.presets import Preset

NEAREST = 0.1       # pixels or levels: at smaller distances pixels that differ have no influence on each other, either


def photograph_kernels(rgb: np.ndarray, preset: Preset) -> list[Kernel]:
    """The two kernels of a photograph, H x W x 3 uint8, for DenseCRF."""
    height, width = rgb.shape[:2]
    scale = preset.scale(height, width)
    position = np.empty((2, height, width), np.float32)
    position[0], position[1] = np.arange(width), np.arange(height)[:, None]
    position = position.reshape(2, -1)
    bilateral = np.empty((5, height * width), np.float32)
    np.divide(position, max(preset.bilateral_xy * scale, NEAREST), out=bilateral[:2], casting="same_kind")
    np.divide(rgb.reshape(-1, 3).T, max(preset.bilateral_rgb, NEAREST), out=bilateral[2:], casting="same_kind")
    return [Kernel(position / np.float32(max(preset.gaussian_xy * scale, NEAREST)), preset.gaussian_weight,
                   preset.normalization),
            Kernel(bilateral, preset.bilateral_weight, preset.normalization)]


def with_ccnn(rgb: np.ndarray, f: np.ndarray, labels: np.ndarray, preset: Preset, threads: int) -> np.ndarray:
    return DenseCRF(photograph_kernels(rgb, preset), threads).infer(f, labels, preset.iterations)


def with_pydensecrf(rgb: np.ndarray, f: np.ndarray, labels: np.ndarray, preset: Preset, threads: int) -> np.ndarray:
    try:
        import pydensecrf.densecrf as dcrf
    except ImportError:
        raise UserError("the engine pydensecrf needs the package pydensecrf2: pip install pydensecrf2") from None
    height, width = rgb.shape[:2]
    normalization = {"after": dcrf.NORMALIZE_AFTER, "symmetric": dcrf.NORMALIZE_SYMMETRIC}[preset.normalization]
    crf = dcrf.DenseCRF2D(width, height, len(labels))
    crf.setUnaryEnergy(np.ascontiguousarray(f.max(axis=0) - f[labels]))
    scale = preset.scale(height, width)
    crf.addPairwiseGaussian(preset.gaussian_xy * scale, preset.gaussian_weight, dcrf.DIAG_KERNEL, normalization)
    crf.addPairwiseBilateral(preset.bilateral_xy * scale, preset.bilateral_rgb, np.require(rgb, None, ["C", "W"]),
                             preset.bilateral_weight, dcrf.DIAG_KERNEL, normalization)
    q = np.zeros(f.shape, np.float32)
    q[labels] = np.reshape(crf.inference(preset.iterations), (len(labels), -1))
    return q


ENGINES = {"ccnn": with_ccnn, "pydensecrf": with_pydensecrf}
