"""Backbones: the convolutions below the classifier. Everything specific to one is in its record.

A backbone is passed to whatever needs one: by the recipe of a training (ccnn.project.learn), by the setting `backbone`
of a data layer, by the name in a model file. To add one, add its record to BACKBONES. Files of
versions 1 and 2 call a backbone `trunk`.
"""
import functools
from collections.abc import Collection
from pathlib import Path
from typing import Callable, NamedTuple, Optional

import numpy as np

from ccnn._util.files import made_once
from ccnn._util.paths import ROOT, data_folder
from ccnn.images.grid import Scores
from ccnn.images.reading import fit
from ccnn.nets.caffe_files import read_net
from ccnn.nets.memory import blob_sides


class CachedBlob(NamedTuple):
    """A blob of the backbone that can be cached."""
    channels: int
    fewer: int = 0          # cells each way than `features` has


class Backbone(NamedTuple):
    """A net from the blob `data` to the blob `features`, and where its weights come from."""
    name: str
    layers: tuple[str, ...]     # names of its convolutions, from the image on
    channels: int               # of `features`
    stride: int                 # pixels from one cell of `features` to the next
    offset: float               # cell k sits on pixel offset + stride * k
    size: int                   # long side of the images that it is best at, in pixels
    net: Path
    file: str                   # name of the .caffemodel with its weights
    download: Callable[[Path], None]        # writes that file
    inner: dict[str, CachedBlob] = {}       # what can be cached beside `features`

    @property
    def blobs(self) -> dict[str, CachedBlob]:
        """All that can be cached."""
        return {"features": CachedBlob(self.channels), **self.inner}

    @property
    def weights(self) -> Path:
        return data_folder() / self.file

    def fetch_weights(self) -> Path:
        """The path of its weights. They are downloaded if not there yet, once, however many processes ask for them."""
        return made_once(self.weights, self.download)

    def cells(self, size: int) -> int:
        """Cells of `features` along a side of `size` pixels."""
        return features_side(self.net, size)

    def scores(self, values: np.ndarray, shape: tuple[int, ...], size: int) -> Scores:
        """values : L x h x w, computed from the features of an image of `shape` with its long side reduced to `size`"""
        return Scores(values, fit(shape[0], shape[1], size), self.stride, self.offset)


read_once = functools.lru_cache(maxsize=None)(read_net)


@functools.cache
def features_side(net: Path, size: int) -> int:
    return blob_sides(read_once(net), size)["features"]


def download_vgg16(path: Path) -> None:
    from ccnn.nets.vgg16 import download
    download(path)


# VGG-16 at stride 8 with its own 2x2 pooling, which puts cell k on the edge before pixel 8 k: 224 pixels, 29 cells.
# `features` are the square roots of conv5_3, 512 channels, and their means over 9x9 cells, as many again.
# Cell j of pool4 is the maximum of the cells j - 1 and j of conv4_3, which are those of pool3: 224 pixels, 28 cells.
VGG16 = Backbone(
    name="vgg16",
    layers=tuple(f"conv{block}_{number}" for block, layers in enumerate((2, 2, 3, 3, 3), start=1)
                 for number in range(1, layers + 1)),
    channels=1024,
    stride=8,
    offset=-0.5,
    size=224,
    net=ROOT / "prototxt/trunk.prototxt",
    file="vgg16_conv.caffemodel",
    download=download_vgg16,
    inner={"pool4": CachedBlob(512), "pool3": CachedBlob(256, fewer=1)},
)

DEFAULT = VGG16                 # where neither a recipe, a net nor a model names another

BACKBONES = {backbone.name: backbone for backbone in (VGG16,)}


def backbone_of(layers: Collection[str]) -> Optional[Backbone]:
    """The backbone that a net with these layers begins with; None: it has none of ours."""
    return next((backbone for backbone in BACKBONES.values() if set(backbone.layers) <= set(layers)), None)
