"""Backbones: the convolutions below the classifier. Everything that is particular to one stands in its record."""
import math
from collections.abc import Collection
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from ccnn._util.files import one_at_a_time
from ccnn._util.paths import ROOT, data_folder


class Blob(NamedTuple):
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
    inner: dict[str, Blob] = {}             # what can be cached beside `features`

    @property
    def blobs(self) -> dict[str, Blob]:
        """All that can be cached."""
        return {"features": Blob(self.channels), **self.inner}

    @property
    def weights(self) -> Path:
        return data_folder() / self.file

    def fetch_weights(self) -> Path:
        """The path of its weights. They are downloaded if not there yet, once, however many processes ask for them."""
        path = self.weights
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with one_at_a_time(path.with_name(f".{path.name}.lock")):
                if not path.exists():
                    self.download(path)
        return path

    def cells(self, size: int) -> int:
        """Cells along a side of `size` pixels.

        The last cell lies at least as far beyond the last pixel as the first one lies before the first.
        """
        return math.ceil((size - 1 - 2 * self.offset) / self.stride) + 1


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
    inner={"pool4": Blob(512), "pool3": Blob(256, fewer=1)},
)

DEFAULT = VGG16                 # where neither a net, a model nor a recipe names another

BACKBONES = {backbone.name: backbone for backbone in (VGG16,)}


def backbone_of(layers: Collection[str]) -> Optional[Backbone]:
    """The backbone that a net with these layers begins with; None: it has none of ours."""
    return next((backbone for backbone in BACKBONES.values() if set(backbone.layers) <= set(layers)), None)
