"""The parameters of the dense CRF: named presets, and files of ccnn tune-crf."""
from pathlib import Path
from typing import NamedTuple, Union

from ccnn._util.errors import UserError
from ccnn._util.foreign_files import parse_json

NORMALIZATIONS = ("after", "symmetric")


class Preset(NamedTuple):
    """The parameters of the CRF; distances in pixels and in levels of 0..255. The defaults are the plain CRF."""
    gaussian_xy: float
    gaussian_weight: float
    bilateral_xy: float
    bilateral_rgb: float
    bilateral_weight: float
    iterations: int
    normalization: str = "after"
    long_side: int = 0          # of photographs that the distances in pixels are for; 0: of any
    keep: float = 0             # least share of an object that `sharpen` keeps; 0: no bound

    def scale(self, height: int, width: int) -> float:
        """What distances in pixels are multiplied by in a photograph of this size."""
        return max(height, width) / self.long_side if self.long_side else 1


PRESETS = {
    "authors": Preset(3, 3, 60, 20, 10, 10),            # the defaults of the authors' Caffe
    "untuned": Preset(6, 6, 50, 4, 5, 10),              # their nets' comment
    "tuned": Preset(19, 15, 61, 10, 35, 10),            # active in their nets
    # for models/: tune_crf, on 50 images of 321 pixels held out
    "heads": Preset(3, 3, 30, 8, 10, 10, long_side=321, keep=0.3),
    "pydensecrf": Preset(3, 3, 80, 13, 10, 5, "symmetric"),     # that library's example, its normalisation too
}


def load_preset(name: str) -> Preset:
    """The Preset of that name, or of a JSON file as ccnn tune-crf writes it."""
    if name in PRESETS:
        return PRESETS[name]
    if not Path(name).is_file():
        raise UserError(f"no CRF preset {name!r}: give one of {', '.join(PRESETS)}, or a file of ccnn tune-crf")
    try:
        values = parse_json(name)["preset"]
        return check_preset(Preset(**values))
    except (ValueError, KeyError, TypeError) as e:
        raise UserError(f"{name}: not a finished CRF preset ({type(e).__name__}: {e}); "
                        "make one with ccnn tune-crf") from None


def as_preset(preset: Union[Preset, str]) -> Preset:
    """A Preset, checked; a name stands for the one in PRESETS. ValueError otherwise."""
    if isinstance(preset, str):
        if preset not in PRESETS:
            raise ValueError(f"preset must be a Preset or one of {', '.join(PRESETS)}; got {preset!r}")
        return PRESETS[preset]
    if not isinstance(preset, Preset):
        raise ValueError(f"preset must be a Preset or one of {', '.join(PRESETS)}; got {preset!r}")
    return check_preset(preset)


def check_preset(preset: Preset) -> Preset:
    """The preset, if every parameter is in its range; ValueError otherwise."""
    for field, value in zip(preset._fields[:5], preset):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e4:
            raise ValueError(f"{field} must be a number in 0..10000, got {value!r}")
    if type(preset.iterations) is not int or not 0 <= preset.iterations <= 1000:
        raise ValueError(f"iterations must be a whole number in 0..1000, got {preset.iterations!r}")
    if preset.normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization must be one of {', '.join(NORMALIZATIONS)}, got {preset.normalization!r}")
    if type(preset.long_side) is not int or not 0 <= preset.long_side < 1e5:
        raise ValueError(f"long_side must be a whole number of pixels, got {preset.long_side!r}")
    if isinstance(preset.keep, bool) or not isinstance(preset.keep, (int, float)) or not 0 <= preset.keep <= 1:
        raise ValueError(f"keep must be a number in 0..1, got {preset.keep!r}")
    return preset
