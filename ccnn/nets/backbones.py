"""The trunk: the convolutions below the classifier. Everything that is particular to one stands in its record."""
import math
from pathlib import Path
from typing import NamedTuple

from ccnn._util.paths import DATA, ROOT


class Blob(NamedTuple):
    """A blob of the trunk that can be cached."""
    channels: int
    fewer: int = 0          # cells each way than `features` has


class Trunk(NamedTuple):
    """A net from the blob `data` to the blob `features`, and where its weights come from."""
    layers: tuple           # names of its convolutions, from the image on
    channels: int           # of `features`
    stride: int             # pixels from one cell of `features` to the next
    offset: float           # cell k sits on pixel offset + stride * k
    size: int               # long side of the images that it is best at, in pixels
    net: Path
    weights: Path
    checksum: str           # sha256 of the archive that the weights are made from (ccnn.nets.vgg16 fetches it)
    inner: dict = {}        # {name: Blob} of what can be cached beside `features`

    @property
    def blobs(self):
        """{name: Blob} of all that can be cached."""
        return {"features": Blob(self.channels), **self.inner}

    def cells(self, size):
        """Cells along a side of `size` pixels.

        The last cell lies at least as far beyond the last pixel as the first one lies before the first.
        """
        return math.ceil((size - 1 - 2 * self.offset) / self.stride) + 1


# VGG-16 at stride 8 with its own 2x2 pooling, which puts cell k on the edge before pixel 8 k: 224 pixels, 29 cells.
# `features` are the square roots of conv5_3, 512 channels, and their means over 9x9 cells, as many again.
# Cell j of pool4 is the maximum of the cells j - 1 and j of conv4_3, which are those of pool3: 224 pixels, 28 cells.
VGG16 = Trunk(
    layers=tuple(f"conv{block}_{number}" for block, layers in enumerate((2, 2, 3, 3, 3), start=1)
                 for number in range(1, layers + 1)),
    channels=1024,
    stride=8,
    offset=-0.5,
    size=224,
    net=ROOT / "prototxt/trunk.prototxt",
    weights=DATA / "vgg16_conv.caffemodel",
    checksum="a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
    inner={"pool4": Blob(512), "pool3": Blob(256, fewer=1)},
)
