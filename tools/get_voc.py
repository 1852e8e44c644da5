#!/usr/bin/env python3
"""Get PASCAL VOC 2012 and SBD and build the paper's training set of 10,582 images.

    tools/get_voc.py                            # downloads 3.4 GB, needs 6 GB of disk
    tools/get_voc.py --archives ~/Downloads     # uses VOCtrainval_11-May-2012.tar and benchmark.tgz from there

makes data/VOCdevkit/VOC2012 as VOC's archive has it, and adds

    SegmentationClassAug/                       12,031 masks: VOC's where VOC has one, else SBD's
    ImageSets/Segmentation/train_aug.txt        10,582 ids: VOC train and all of SBD, without VOC val

train_aug.txt is written last, after every count and size was checked: where it stands, the data are whole. The
command may be stopped at any time and run again: downloads resume, finished parts are kept.
"""
import contextlib
import fcntl
import hashlib
import http
import io
import os
import re
import shutil
import socket
import tarfile
import time
import urllib
import zlib
from collections import namedtuple
from pathlib import Path, PurePosixPath

import _activate  # noqa: F401
import numpy as np
from PIL import Image
from tqdm import tqdm

from ccnn import command
from ccnn.errors import UserError
from ccnn.files import whole_file
from ccnn.labels import VOC_CLASSES, indexed
from ccnn.lists import read_list

Archive = namedtuple("Archive", "url md5 size")         # size in bytes, to check the disk beforehand

VOC = Archive("http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
              "6cd6e144f989b92b3379bac3b3de84fd", 2_000_000_000)

SBD = Archive("http://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/semantic_contours/benchmark.tgz",
              "82b4d87ceb2ed10f6038a1cba92111cb", 1_420_000_000)

MASKS = 100_000_000                                     # bytes that SegmentationClassAug takes at most

BLOCK = 1 << 20

TIMEOUT = 30                                            # seconds without a byte

PATIENCE = 5                                            # attempts in a row that bring no byte


def main(argv=None):
    args = parse_args(argv)
    train, val = build(args.out, args.archives)
    print(f"{args.out / 'VOCdevkit/VOC2012'}: {train:,} training images (train_aug), {val:,} validation images (val)")


def parse_args(argv):
    parser = command.parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("data"), metavar="DIR",
                        help="folder that VOCdevkit/ goes into (default: data)")
    parser.add_argument("--archives", type=Path, metavar="DIR",
                        help="folder with the two archives; nothing is downloaded")
    args = parser.parse_args(argv)
    if args.archives and not args.archives.is_dir():
        raise UserError(f"--archives {args.archives}: no such folder")
    return args


def build(out, archives=None, voc=VOC, sbd=SBD, train=10582, val=1449):
    """Make out/VOCdevkit/VOC2012; return the numbers of training and validation images.

    archives      : folder that holds both archives; None downloads them into out/archives
    voc, sbd      : the archives
    train, val    : the numbers of images that the result must have
    """
    root = out / "VOCdevkit/VOC2012"
    masks = root / "SegmentationClassAug"
    out.mkdir(parents=True, exist_ok=True)
    with alone(out):
        need_voc, need_sbd = not root.exists(), not masks.exists()
        if not need_voc:                                # another VOC, or part of it: tell before the download
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


def name_of(archive):
    return archive.url.rpartition("/")[2]


def given(archive, folder):
    """The path of an archive that the user has, its checksum verified."""
    path = folder / name_of(archive)
    if not path.is_file():
        raise UserError(f"{path}: no such file; download {archive.url} into {folder}, or leave --archives out")
    found = md5(path)
    if found != archive.md5:
        raise UserError(f"{path}: md5 is {found}, need {archive.md5}; the file is cut off or another one: "
                        f"download {archive.url} again")
    return path


def fetch(archive, folder):
    """Download an archive, resuming at what is there already; return its path, its checksum verified."""
    path = folder / name_of(archive)
    part = path.with_name(path.name + ".part")
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists() and md5(path) == archive.md5:
        return path
    print(f"downloading {archive.url} to {path}")
    for _ in range(2):                                  # a resumed file may be wrong: then once from the start
        resumed = part.exists()
        download(archive.url, part)
        found = md5(part)
        if found == archive.md5:
            if path.exists():
                print(f"replacing {path}: its md5 was wrong")
            os.replace(part, path)
            return path
        part.unlink()
        if not resumed:
            break
    raise UserError(f"{archive.url}: md5 is {found}, need {archive.md5}; the server sends another file: "
                    f"get {path.name} elsewhere and use --archives")


def download(url, part):
    """Download url to the file `part` after the bytes it holds; try again until nothing comes any more."""
    failures = 0
    with tqdm(unit="B", unit_scale=True, unit_divisor=1024, desc=url.rpartition("/")[2],
              disable=None) as bar:
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                if receive(url, part, bar):
                    return
                reason = "the connection was cut"
            except urllib.error.HTTPError as e:
                if e.code < 500 and e.code not in (408, 429):
                    raise UserError(f"{url}: the server answers {e.code} {e.reason}; "
                                    "get the file elsewhere and use --archives") from None
                reason = f"the server answers {e.code} {e.reason}"
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, socket.timeout) as e:
                reason = getattr(e, "reason", None) or e or type(e).__name__
            failures = 1 if part.exists() and part.stat().st_size > before else failures + 1
            if failures == PATIENCE:
                raise UserError(f"{url}: {reason}, {PATIENCE} times in a row; run again later to resume, "
                                "or get the file elsewhere and use --archives")
            time.sleep(pause(failures))


def pause(failures):
    """Seconds to wait after so many failures in a row: 1, 2, 4, 8."""
    return 2 ** (failures - 1)


def receive(url, part, bar):
    """One request: append to `part` what it lacks. True if the file is whole, False if the connection was cut."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as e:
        if e.code != 416:                               # "range not satisfiable"
            raise
        if e.headers.get("Content-Range") == f"bytes */{have}":
            return True                                 # nothing is missing
        part.unlink()                                   # longer than the server's file: start again
        return False
    with response:
        resumed = response.status == 206
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if resumed and not (span and int(span[1]) == have):
            raise http.client.HTTPException(f"asked for bytes from {have}, the server sends "
                                            f"{response.headers.get('Content-Range')}")
        start = have if resumed else 0                  # a server without ranges sends everything again
        length = response.headers.get("Content-Length")
        total = int(span[2]) if resumed else int(length) if length else None
        bar.total, bar.n = total, start
        bar.refresh()
        with open(part, "ab" if resumed else "wb") as f:
            for block in iter(lambda: response.read1(BLOCK), b""):
                f.write(block)
                bar.update(len(block))
            return total is None or f.tell() == total


def md5(path):
    digest = hashlib.md5()
    with open(path, "rb") as f, bar_over(f, "checking") as stream:
        for block in iter(lambda: stream.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def unpack(path, target):
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
                    shutil.copyfileobj(tar.extractfile(member), f, BLOCK)


def kind(member):
    return ("a link" if member.issym() or member.islnk() else "a device" if member.isdev() else
            "a path upwards or from the root" if member.isdir() or member.isreg() else "an unknown kind of file")


@contextlib.contextmanager
def opened(path):
    """A tar, plain or compressed, to be gone through once in the order of the file."""
    with open(path, "rb") as f, bar_over(f, "reading") as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|*") as tar:
                yield tar
        except (tarfile.TarError, EOFError, zlib.error) as e:
            raise UserError(f"{path}: not a whole tar archive ({e})") from None
        except (FileExistsError, NotADirectoryError) as e:
            raise UserError(f"{path}: holds {e.filename} twice") from None


def convert(path, target, root):
    """Fill the new folder `target` with masks: VOC's where VOC has one, else SBD's, read from its archive.

    Nothing of the archive is unpacked: each dataset/cls/ID.mat is decoded in memory and written as target/ID.png.
    """
    own = set(ids(root, "train") + ids(root, "val"))
    with opened(path) as tar:
        for member in tar:
            match = re.fullmatch(r"benchmark_RELEASE/dataset/cls/(\w+)\.mat", member.name)
            if match and member.isreg() and match[1] not in own:
                labels = label_map(tar.extractfile(member).read(), member.name)
                indexed(labels).save(target / f"{match[1]}.png")
    for name in own:
        source = root / f"SegmentationClass/{name}.png"
        size_of(source)                                 # it is there, and an image
        shutil.copyfile(source, target / f"{name}.png")


def label_map(data, name):
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


def finish(root, masks, train, val):
    """Check everything, then write train_aug.txt; return the numbers of training and validation images."""
    held_out = ids(root, "val")
    listed = sorted({p.stem for p in masks.glob("*.png")} - set(held_out))
    lost = sorted(set(ids(root, "train")) - set(listed))
    if lost:
        raise UserError(f"{masks}: lacks {lost[0]}.png of VOC train, or it is in val too; "
                        f"move {masks} away and run again")
    check_count(root, "training", listed, train)
    check_count(root, "validation", set(held_out), val)
    for name in tqdm(listed + held_out, desc="checking sizes", unit="image", disable=None):
        image, mask = (size_of(root / "JPEGImages" / f"{name}.jpg"), size_of(masks / f"{name}.png"))
        if image != mask:
            raise UserError(f"{masks / name}.png is {mask[0]} x {mask[1]}, its image {image[0]} x {image[1]}; "
                            f"move {root.parent} away and run again")
    path, text = list_path(root, "train_aug"), "".join(f"{name}\n" for name in listed)
    if not path.exists() or path.read_text() != text:
        if path.exists():
            print(f"replacing {path}: it listed other images")
        with whole_file(path) as part:
            part.write_text(text)
    return len(listed), len(held_out)


def check_count(root, what, found, need):
    if len(found) != need:
        raise UserError(f"{root}: has {len(found):,} {what} images, need {need:,}; "
                        f"move {root.parent} away and run again")


def list_path(root, split):
    return root / f"ImageSets/Segmentation/{split}.txt"


def ids(root, split):
    """The image ids of one of VOC's lists."""
    try:
        return read_list(list_path(root, split))
    except UserError as error:
        raise UserError(f"{error}; {root} is not a whole VOC 2012: move it away and run again") from None


def size_of(path):
    """(width, height) from the file's header."""
    try:
        with Image.open(path) as image:
            return image.size
    except FileNotFoundError:
        raise UserError(f"{path}: missing; move {path.parent.parent.parent} away and run again") from None
    except (OSError, SyntaxError, Image.DecompressionBombError) as e:
        raise UserError(f"{path}: not an image ({e}); move {path.parent.parent.parent} away and run again") from None


@contextlib.contextmanager
def whole_folder(path):
    """Yield a new folder beside `path`, renamed to it on success. What a killed run left is removed first."""
    part = path.with_name(f".{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextlib.contextmanager
def alone(folder):
    """Hold the folder's lock: of two runs in one folder, the second one stops. Ends with the process."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder}: another get_voc.py is at work here") from None
        yield
    finally:
        os.close(handle)


def check_disk(out, wanted, archives, unpacked):
    """Stop before anything is written if the disk is too small for the downloads and what they unpack to."""
    here = out / "archives"
    need = unpacked
    for archive in wanted if archives is None else ():
        if not (here / name_of(archive)).exists():
            part = here / f"{name_of(archive)}.part"
            need += max(archive.size - (part.stat().st_size if part.exists() else 0), 0)
    free = shutil.disk_usage(out).free
    if free < need:
        raise UserError(f"{out}: {free / 1e9:.1f} GB free, need {need / 1e9:.1f} GB; use --out on a larger disk")


def bar_over(f, what):
    """An open file whose read() moves a progress bar; a context manager."""
    return tqdm.wrapattr(f, "read", total=os.fstat(f.fileno()).st_size, desc=f"{what} {Path(f.name).name}",
                         disable=None)


if __name__ == "__main__":
    command.run(main)
