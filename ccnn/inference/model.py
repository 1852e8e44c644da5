"""A model for programs that have arrays: ccnn.load_model("x.ccnn").segment(rgb)."""
from collections.abc import Collection
from pathlib import Path
from typing import Optional, Union

import numpy as np

from ccnn._util.errors import UserError, suggest
from ccnn.crf.presets import load_preset
from ccnn.inference.predict import SegmentOptions, every_label, find_model, segment
from ccnn.inference.predict import load_model as load_net


class Model:
    """A loaded model; ccnn.load_model makes it.

    classes     names of the labels, the background first: label 8 of a mask is classes[8]
    """

    def __init__(self, path: Union[str, Path, None] = None, engine: str = "auto") -> None:
        self._source = find_model(None if path is None else Path(path))
        self._net = load_net(self._source, engine)
        self.classes = self._source.classes

    def segment(self, rgb: np.ndarray, tags: Optional[Collection[str]] = None, crf: Union[bool, str] = False
                ) -> np.ndarray:
        """The mask of a photograph: H x W uint8, the label of each pixel.

        rgb     H x W x 3 uint8, red first, as Pillow's numpy.asarray(image.convert("RGB")) has it
        tags    the classes that are in the photograph, if known: no other will be found
        crf     True sharpens the mask with the dense CRF that suits the model; or the name of a preset
        """
        preset = load_preset(self._source.crf if crf is True else crf) if crf else None
        return segment(checked(rgb), self._net, SegmentOptions(self._labels(tags), preset))

    def _labels(self, tags: Optional[Collection[str]]) -> list[int]:
        if tags is None:
            return every_label(self._source)
        tags = [tags] if isinstance(tags, str) else tags
        for tag in tags:
            if tag not in self.classes:
                raise UserError(f"tag {tag!r} is not a class of the model; {suggest(tag, self.classes[1:])}")
        return [label for label, name in enumerate(self.classes) if label == 0 or name in tags]

    def __repr__(self) -> str:
        return f"<ccnn model of {len(self.classes) - 1} classes: {', '.join(self.classes[1:6])}" \
               f"{', ...' if self.classes[6:] else ''}>"


def checked(rgb: np.ndarray, name: str = "rgb") -> np.ndarray:
    """A photograph as an array; ValueError if it is none."""
    rgb = np.asarray(rgb)
    if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8 or not rgb.size:
        raise UserError(f"{name} must be H x W x 3 uint8, got {rgb.dtype} of shape {rgb.shape}")
    return np.ascontiguousarray(rgb)
