"""Work on single photographs that the pool does: smaller copies, and whether a file can be read at all."""
import io
from pathlib import Path

import numpy as np
from PIL import Image

from ccnn._util.files import save
from ccnn._util.work_folder import remove
from ccnn.images.reading import read_image, shrink

THUMBNAIL, PICTURE = SIDES = 320, 1280          # long sides of the copies that the page shows


def make_copy(source: Path, copy: Path, side: int) -> None:
    """A smaller JPEG of a photograph. Copies of what the file was before are removed."""
    picture = Image.fromarray(shrink(read_image(source, least_side=side), side))
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=85)
    for old in copy.parent.glob(f"{copy.name.split('-')[0]}-*-{side}.jpg"):
        if old != copy:
            remove(old)
    save(copy, data.getvalue())


def check_photograph(source: Path) -> tuple:
    """(height, width) of a photograph that can be read to its last pixel."""
    return np.shape(read_image(source))[:2]
