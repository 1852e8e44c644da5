"""PASCAL VOC 2012 and SBD, from their archives to the paper's training set.

build() makes VOCdevkit/VOC2012 as VOC's archive has it, and adds SegmentationClassAug, masks of VOC where VOC has
one, else of SBD, and the list train_aug. The list is written last, after every count and size was checked: if it is
there, the data are complete.
"""
import contextlib
import io
import logging
import re
import shutil
import tarfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Optional

import numpy as np

from ccnn._util.download import BLOCK, Archive, fetch, given, length
from ccnn._util.errors import ImageError, UserError
from ccnn._util.files import locked_folder, read_with_bar, whole_file, whole_folder
from ccnn._util.progress import Progress
from ccnn.images.formats import open_image
from ccnn.images.ids import read_list
from ccnn.images.labels import VOC_CLASSES, indexed
from ccnn.paper import IMAGES

VOC = Archive("http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
              "6cd6e144f989b92b3379bac3b3de84fd", 2_000_000_000)

SBD = Archive("http://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/semantic_contours/benchmark.tgz",
              "82b4d87ceb2ed10f6038a1cba92111cb", 1_420_000_000)

MASKS = 100_000_000         # bytes that SegmentationClassAug takes at most

log = logging.getLogger(__name__)


def build(out: Path, archives: Optional[Path] = None, voc: Archive = VOC, sbd: Archive = SBD,
          train: int = IMAGES["train_aug"], val: int = IMAGES["val"]) -> tuple[int, int]:
    """Make out/VOCdevkit/VOC2012; return the numbers of training and validation images.

    archives      : folder that holds both archives; None downloads them into out/archives
    voc, sbd      : the archives
    train, val    : the numbers of images that the result must have
    """
    root = out / "VOCdevkit/VOC2012"
    masks = root / "SegmentationClassAug"
    out.mkdir(parents=True, exist_ok=True)
    with locked_folder(out, "another ccnn get-voc is at work here; wait for its end"):
        need_voc, need_sbd = not root.exists(), not masks.exists()
        if not need_voc:                                # another VOC, or part of it: say so before the download
            check_count(root, "validation", set(ids(root, "val")), val)
        wanted = [a for a, need in ((voc, need_voc), (sbd, need_sbd)) if need]
        check_disk(out, wanted, archives, need_voc * voc.size + need_sbd * MASKS)
        paths = {a: fetch(a, out / "archives") if archives is None else given(a, archives) for a in wanted}
        if need_voc:
            with whole_folder(root) as part:
                unpack(paths[voc], part)
        if need_sbd:
            with whole_folder(masks) as part:
                convert(paths[sbd], part, root)
        return finish(root, masks, train, val)


def check_disk(out: Path, wanted: Sequence[Archive], archives: Optional[Path], unpacked: int) -> None:
    """Stop before anything is written if the disk is too small for the downloads and what they unpack to."""
    here = out / "archives"
    need = unpacked
    for archive in wanted if archives is None else ():
        if not (here / archive.name).exists():
            need += max(archive.size - length(here / f"{archive.name}.part"), 0)
    free = shutil.disk_usage(out).free
    if free < need:
        raise UserError(f"{out}: {free / 1e9:.1f} GB free, need {need / 1e9:.1f} GB; use --out on a larger disk")


def unpack(path: Path, target: Path) -> None:
    """Unpack VOCdevkit/VOC2012 of a tar into the new folder `target`.

    Only folders and plain files are made, each below target. As no link is ever made, a path without `..`
    cannot leave it.
    """
    with opened(path) as tar:
        for member in tar:
            parts = PurePosixPath(member.name).parts
            if member.name.startswith("/") or ".." in parts or not (member.isdir() or member.isreg()):
                raise UserError(f"{path}: holds {member.name!r}, {kind(member)}; refused, it could leave the folder")
            if parts[:2] != ("VOCdevkit", "VOC2012"):
                continue
            place = target.joinpath(*parts[2:])
            if member.isdir():
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                with open(place, "xb") as f:
                    shutil.copyfileobj(content(tar, member), f, BLOCK)


def content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    """A plain file of the archive, to be read."""
    file = tar.extractfile(member)
    assert file, f"{member.name} is not a plain file"
    return file


def kind(member: tarfile.TarInfo) -> str:
    return ("a link" if member.issym() or member.islnk() else "a device" if member.isdev() else
            "a path upwards or from the root" if member.isdir() or member.isreg() else "an unknown kind of file")


def convert(path: Path, target: Path, root: Path) -> None:
    """Fill the new folder `target` with masks: VOC's where VOC has one, else SBD's, read from its archive.

    Nothing of the archive is unpacked: each dataset/cls/ID.mat is decoded in memory and written as target/ID.png.
    """
    own = set(ids(root, "train") + ids(root, "val"))
    with opened(path) as tar:
        for member in tar:
            match = re.fullmatch(r"benchmark_RELEASE/dataset/cls/(\w+)\.mat", member.name)
            if match and member.isreg() and match[1] not in own:
                labels = sbd_labels(content(tar, member).read(), member.name)
                indexed(labels).save(target / f"{match[1]}.png")
    for name in own:
        source = root / f"SegmentationClass/{name}.png"
        size_of(source)                                 # it is there, and an image
        shutil.copyfile(source, target / f"{name}.png")


def sbd_labels(data: bytes, name: str) -> np.ndarray:
    """The H x W uint8 label ids in one of SBD's .mat files: GTcls.Segmentation, no void.

    loadmat can end the process on damaged bytes: verify the archive's checksum first, as fetch and given do.
    """
    from scipy.io import loadmat
    try:
        labels = loadmat(io.BytesIO(data), variable_names=["GTcls"])["GTcls"]["Segmentation"][0, 0]
    except Exception as e:                              # loadmat raises almost anything on a damaged file
        raise UserError(f"{name} in SBD's archive: no GTcls.Segmentation can be read "
                        f"({type(e).__name__}: {e})") from None
    if labels.ndim != 2 or labels.dtype != np.uint8 or not labels.size or labels.max() >= len(VOC_CLASSES):
        raise UserError(f"{name} in SBD's archive: need a map of labels 0..{len(VOC_CLASSES) - 1}; "
                        f"got {labels.dtype} of shape {labels.shape}")
    return labels


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tarfile.TarFile]:
    """A tar, plain or compressed, to be gone through once in the order of the file."""
    with open(path, "rb") as f, read_with_bar(f, "reading") as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|*") as tar:
                yield tar
        except (tarfile.TarError, EOFError, zlib.error) as e:
            raise UserError(f"{path}: not a whole tar archive ({e})") from None
        except (FileExistsError, NotADirectoryError) as e:
            raise UserError(f"{path}: holds {e.filename} twice") from None


def finish(root: Path, masks: Path, train: int, val: int) -> tuple[int, int]:
    """Check everything, then write train_aug.txt; return the numbers of training and validation images."""
    held_out = ids(root, "val")
    listed = sorted({p.stem for p in masks.glob("*.png")} - set(held_out))
    lost = sorted(set(ids(root, "train")) - set(listed))
    if lost:
        raise UserError(f"{masks}: lacks {lost[0]}.png of VOC train, or it is in val too; "
                        f"move {masks} away and run again")
    check_count(root, "training", listed, train)
    check_count(root, "validation", set(held_out), val)
    for name in Progress(listed + held_out, desc="checking sizes", unit="image"):
        image, mask = (size_of(root / "JPEGImages" / f"{name}.jpg"), size_of(masks / f"{name}.png"))
        if image != mask:
            raise UserError(f"{masks / name}.png is {mask[0]} x {mask[1]}, its image {image[0]} x {image[1]}; "
                            f"move {root.parent} away and run again")
    path, text = list_path(root, "train_aug"), "".join(f"{name}\n" for name in listed)
    if not path.exists() or path.read_text() != text:
        if path.exists():
            log.warning("replacing %s: it listed other images", path)
        with whole_file(path) as part:
            part.write_text(text)
    return len(listed), len(held_out)


def check_count(root: Path, what: str, found: Collection[str], need: int) -> None:
    if len(found) != need:
        raise UserError(f"{root}: has {len(found):,} {what} images, need {need:,}; "
                        f"move {root.parent} away and run again")


def list_path(root: Path, split: str) -> Path:
    return root / f"ImageSets/Segmentation/{split}.txt"


def ids(root: Path, split: str) -> list[str]:
    """The image ids of one of VOC's lists."""
    try:
        return read_list(list_path(root, split))
    except UserError as error:
        raise UserError(f"{error}; {root} is not a whole VOC 2012: move it away and run again") from None


def size_of(path: Path) -> tuple[int, int]:
    """(width, height) from the file's header."""
    try:
        with open_image(path) as image:
            return image.size
    except ImageError as error:
        raise UserError(f"{error}; move {path.parents[2]} away and run again") from None
