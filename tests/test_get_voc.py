"""get_voc.py against a local server and small archives of the true layout."""
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from commands import run_command
from file_server import serving
from PIL import Image
from scipy.io import savemat
from scipy.sparse import csc_matrix

from ccnn._util import download
from ccnn._util.download import Archive
from ccnn._util.errors import UserError
from ccnn._util.files import locked_folder
from ccnn.data import voc_archive
from ccnn.images.labels import palette
from ccnn.images.reading import read_mask

TRAIN, VAL = ["2007_000032", "2007_000039", "2007_000063"], ["2007_000033", "2007_000042"]
SBD = ["2007_000032", "2007_000033", "2008_000002", "2008_000003", "2011_003276"]   # the first two are VOC's too
SIZE = 30, 20                                                                       # width, height
AUG = sorted({*TRAIN, *SBD} - {*VAL})
COUNTS = dict(train=6, val=2)


def image(mode, seed):
    pixels = np.random.default_rng(seed).integers(0, 21, SIZE[::-1] + ((3,) if mode == "RGB" else ()), np.uint8)
    pixels[0, 0] = 255
    picture, data = Image.fromarray(pixels), io.BytesIO()
    if mode == "P":
        picture.putpalette(palette())
    picture.save(data, "JPEG" if mode == "RGB" else "PNG")
    return data.getvalue()


def mat(labels):
    data = io.BytesIO()
    edges = np.empty((20, 1), object)
    edges[:, 0] = [csc_matrix(labels == c) for c in range(1, 21)]
    savemat(data, {"GTcls": {"Boundaries": edges, "Segmentation": labels,
                             "CategoriesPresent": np.unique(labels)}}, do_compression=True)
    return data.getvalue()


def sbd_labels(name):
    return np.random.default_rng(int(name[-6:])).integers(0, 21, SIZE[::-1]).astype(np.uint8)


def voc_files():
    root = "VOCdevkit/VOC2012/"
    files = {f"{root}ImageSets/Segmentation/{split}.txt": "".join(f"{i}\n" for i in ids).encode()
             for split, ids in (("train", TRAIN), ("val", VAL), ("trainval", TRAIN + VAL))}
    for name in {*TRAIN, *VAL, *SBD}:
        files[f"{root}JPEGImages/{name}.jpg"] = image("RGB", 1)
        files[f"{root}Annotations/{name}.xml"] = b"<annotation/>"
    for name in TRAIN + VAL:
        files[f"{root}SegmentationClass/{name}.png"] = image("P", int(name[-3:]))
    return files


def sbd_files():
    root = "benchmark_RELEASE/"
    files = {f"{root}dataset/cls/{name}.mat": mat(sbd_labels(name)) for name in SBD}
    files[f"{root}dataset/img/2008_000002.jpg"] = image("RGB", 1)
    files[f"{root}dataset/inst/2008_000002.mat"] = b"of no use here"
    files[f"{root}dataset/train.txt"] = "\n".join(SBD).encode()
    return files


def pack(files, mode, extra=()):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in extra:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return data.getvalue()


VOC_TAR, SBD_TGZ = pack(voc_files(), "w"), pack(sbd_files(), "w:gz")


def archive(data, url):
    return Archive(url, hashlib.md5(data).hexdigest(), len(data))


def on_disk(folder, voc=VOC_TAR, sbd=SBD_TGZ):
    """Arguments of build() for archives that the user has."""
    folder.mkdir(exist_ok=True)
    (folder / "voc.tar").write_bytes(voc)
    (folder / "sbd.tgz").write_bytes(sbd)
    return dict(archives=folder, voc=archive(voc, "http://x/voc.tar"), sbd=archive(sbd, "http://x/sbd.tgz"), **COUNTS)


@pytest.fixture
def server(monkeypatch):
    with serving(monkeypatch, {"voc.tar": VOC_TAR, "sbd.tgz": SBD_TGZ}) as server:
        yield server


def online(server):
    """Arguments of build() for archives on the server."""
    return dict(voc=archive(VOC_TAR, server.url("voc.tar")), sbd=archive(SBD_TGZ, server.url("sbd.tgz")), **COUNTS)


def tree(folder):
    """{path: content} of all files below."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_whole(out):
    """The devkit as the archive has it, and the augmented set; nothing else but the downloads."""
    root = out / "VOCdevkit/VOC2012"
    found = {f"VOCdevkit/{k}": v for k, v in tree(out / "VOCdevkit").items()}
    for name, content in voc_files().items():
        assert found.pop(name) == content
    assert found.pop("VOCdevkit/VOC2012/ImageSets/Segmentation/train_aug.txt").decode().split() == AUG
    assert set(found) == {f"VOCdevkit/VOC2012/SegmentationClassAug/{i}.png" for i in AUG + VAL}
    for name in AUG + VAL:
        mask = Image.open(root / f"SegmentationClassAug/{name}.png")
        assert mask.mode == "P" and mask.getpalette() == palette()
        if name in TRAIN + VAL:                                 # VOC's own mask, void included
            assert (np.asarray(mask) == read_mask(root / f"SegmentationClass/{name}.png")).all()
            assert 255 in np.asarray(mask)
        else:
            assert (np.asarray(mask) == sbd_labels(name)).all()


def test_builds_from_archives_on_disk(tmp_path):
    assert voc_archive.build(tmp_path / "data", **on_disk(tmp_path / "dl")) == (6, 2)
    assert_whole(tmp_path / "data")


def test_second_run_changes_nothing_and_needs_no_archive(tmp_path):
    arguments = on_disk(tmp_path / "dl")
    voc_archive.build(tmp_path / "data", **arguments)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "data").rglob("*")}
    (tmp_path / "dl/voc.tar").unlink()
    (tmp_path / "dl/sbd.tgz").unlink()
    assert voc_archive.build(tmp_path / "data", **arguments) == (6, 2)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "data").rglob("*")} == before


def test_downloads(tmp_path, server):
    voc_archive.build(tmp_path, **online(server))
    assert_whole(tmp_path)
    assert [name for name, _, _ in server.asked] == ["voc.tar", "sbd.tgz"]
    assert set(tree(tmp_path / "archives")) == {"voc.tar", "sbd.tgz"}


def test_cut_connections_resume_where_they_were_cut(tmp_path, server):
    server.cuts = [1000, 0, 5000, 1]
    voc_archive.build(tmp_path, **online(server))
    assert_whole(tmp_path)
    asked = [(wanted, n) for name, wanted, n in server.asked if name == "voc.tar"]
    assert asked == [(None, 1000), ("bytes=1000-", 0), ("bytes=1000-", 5000), ("bytes=6000-", 1),
                     ("bytes=6001-", len(VOC_TAR) - 6001)]       # every byte once


def test_a_server_that_cuts_often_is_borne_as_long_as_bytes_come(tmp_path, server):
    server.cuts = [1000] * (2 * download.PATIENCE)
    voc_archive.build(tmp_path, **online(server))
    assert_whole(tmp_path)


def test_stopped_download_resumes_in_the_next_run(tmp_path, server):
    (tmp_path / "archives").mkdir()
    (tmp_path / "archives/voc.tar.part").write_bytes(VOC_TAR[:777])
    voc_archive.build(tmp_path, **online(server))
    assert_whole(tmp_path)
    assert server.asked[0] == ("voc.tar", "bytes=777-", len(VOC_TAR) - 777)


def test_server_without_ranges_starts_again(tmp_path, server):
    server.ranges, server.cuts = False, [1000, 3000]
    voc_archive.build(tmp_path, **online(server))
    assert_whole(tmp_path)
    assert server.asked[2] == ("voc.tar", "bytes=3000-", len(VOC_TAR))


@pytest.mark.parametrize("part", [VOC_TAR, b"x" * 999, VOC_TAR + b"x", b"x" * len(VOC_TAR)],
                         ids=["whole", "of another file", "longer", "same length, other bytes"])
def test_any_leftover_ends_in_the_right_file(tmp_path, server, part):
    (tmp_path / "archives").mkdir()
    (tmp_path / "archives/voc.tar.part").write_bytes(part)
    voc_archive.build(tmp_path, **online(server))
    assert_whole(tmp_path)


def test_damaged_download_is_replaced_and_that_is_said(tmp_path, server, caplog):
    (tmp_path / "archives").mkdir()
    (tmp_path / "archives/voc.tar").write_bytes(VOC_TAR[:-1])
    voc_archive.build(tmp_path, **online(server))
    assert_whole(tmp_path)
    assert "archives/voc.tar: its md5 was wrong" in caplog.text


def test_wrong_checksum_leaves_nothing_behind(tmp_path, server):
    server.files["voc.tar"] = VOC_TAR[:-1] + b"x"
    with pytest.raises(UserError, match=r"voc.tar: md5 is \w+, need \w+; .*--archives"):
        voc_archive.build(tmp_path, **online(server))
    assert not tree(tmp_path)


def test_server_that_recovers(tmp_path, server):
    server.errors = [503, 500, 429]
    voc_archive.build(tmp_path, **online(server))
    assert_whole(tmp_path)


@pytest.mark.parametrize("trouble, message", [
    (dict(files={}), "answers 404 .*--archives"),
    (dict(errors=[503] * 9), "answers 503 .*5 times in a row"),
    (dict(cuts=[10] + [0] * 9), "connection was cut, 5 times in a row; run again later to resume"),
])
def test_server_in_trouble(tmp_path, server, trouble, message):
    vars(server).update(trouble)
    with pytest.raises(UserError, match=message):
        voc_archive.build(tmp_path, **online(server))
    assert not (tmp_path / "VOCdevkit").exists()


def test_silent_server_times_out(tmp_path, server, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.1)
    server.stall.clear()
    server.cuts = [50] + [0] * 9
    with pytest.raises(UserError, match="timed out, 5 times in a row"):
        voc_archive.build(tmp_path, **online(server))
    assert (tmp_path / "archives/voc.tar.part").read_bytes() == VOC_TAR[:50]    # kept, to resume


def test_no_server(tmp_path, server):
    arguments = online(server)
    arguments["voc"] = arguments["voc"]._replace(url="http://127.0.0.1:9/voc.tar")     # "discard": refused
    with pytest.raises(UserError, match="refused, 5 times in a row"):
        voc_archive.build(tmp_path, **arguments)


def member(name, kind=tarfile.REGTYPE, link=""):
    m = tarfile.TarInfo(name)
    m.type, m.linkname = kind, link
    m.size = 5 if kind == tarfile.REGTYPE else 0
    return m


@pytest.mark.parametrize("hostile", [
    [member("/tmp/escaped_get_voc")],
    [member("VOCdevkit/VOC2012/../../../escaped")],
    [member("../escaped")],
    [member("VOCdevkit/VOC2012/dir/..", tarfile.DIRTYPE)],
    [member("VOCdevkit/VOC2012/a", tarfile.SYMTYPE, ".."), member("VOCdevkit/VOC2012/a/escaped")],
    [member("VOCdevkit/VOC2012/a", tarfile.LNKTYPE, "../../../escaped")],
    [member("VOCdevkit/VOC2012/a", tarfile.CHRTYPE)],
    [member("VOCdevkit/VOC2012/a", tarfile.FIFOTYPE)],
], ids=["absolute", "up", "up first", "folder up", "symlink", "hard link", "device", "fifo"])
def test_hostile_members_are_refused(tmp_path, hostile):
    arguments = on_disk(tmp_path / "dl", voc=pack(voc_files(), "w", hostile))
    with pytest.raises(UserError, match="refused, it could leave"):
        voc_archive.build(tmp_path / "a/b/data", **arguments)
    assert not list((tmp_path / "a").rglob("*escaped*")) and not list(tmp_path.glob("escaped"))
    assert not tree(tmp_path / "a")
    assert not os.path.exists("/tmp/escaped_get_voc")


def test_nothing_but_masks_is_taken_from_sbd(tmp_path):
    odd = [member("benchmark_RELEASE/dataset/cls/../../../../escaped.mat"), member("/tmp/escaped_get_voc.mat"),
           member("benchmark_RELEASE/dataset/cls/link.mat", tarfile.SYMTYPE, "/etc/passwd")]
    voc_archive.build(tmp_path / "data", **on_disk(tmp_path / "dl", sbd=pack(sbd_files(), "w:gz", odd)))
    assert_whole(tmp_path / "data")


def without(files, *names):
    return {k: v for k, v in files.items() if not k.endswith(names)}


def bad_voc(**changes):
    return lambda: dict(voc=pack({**voc_files(), **{f"VOCdevkit/VOC2012/{k}": v for k, v in changes.items()}}, "w"))


def bad_sbd(content):
    return lambda: dict(sbd=pack({**sbd_files(), "benchmark_RELEASE/dataset/cls/2008_000002.mat": content}, "w:gz"))


PNG_5x5 = io.BytesIO()
Image.new("P", (5, 5)).save(PNG_5x5, "PNG")
LISTS = "ImageSets/Segmentation/"


@pytest.mark.parametrize("archives, message", [
    (lambda: dict(sbd=pack(without(sbd_files(), "cls/2008_000003.mat"), "w:gz")), "has 5 training images, need 6"),
    (bad_sbd(b""), "2008_000002.mat.*no GTcls.Segmentation"),
    (bad_sbd(mat(sbd_labels(SBD[0])).replace(b"MATLAB 5.0", b"MATLAB 9.9")[:128]), "2008_000002.mat.*no GTcls"),
    (bad_sbd(mat(np.full((20, 30), 21, np.uint8))), "2008_000002.mat.*labels 0..20"),
    (bad_sbd(mat(np.zeros((20, 30)))), "2008_000002.mat.*got float64"),
    (bad_sbd(mat(np.zeros((21, 30), np.uint8))), "2008_000002.png is 30 x 21, its image 30 x 20"),
    (bad_sbd(mat(np.zeros((30, 20), np.uint8))), "2008_000002.png is 20 x 30, its image 30 x 20"),
    (bad_voc(**{LISTS + "val.txt": b"2007_000033\n"}), "has 1 validation images, need 2"),
    (bad_voc(**{LISTS + "val.txt": b"2007_000033\n2007_000033\n"}), "line 2: lists '2007_000033' twice"),
    (bad_voc(**{LISTS + "val.txt": b"../../../etc/passwd\n"}), "not an image id"),
    (bad_voc(**{LISTS + "val.txt": b"\xff\xfe"}), "val.txt: not a text file.* is not a whole VOC 2012"),
    (bad_voc(**{"SegmentationClass/2007_000042.png": PNG_5x5.getvalue()}), "is 5 x 5, its image 30 x 20"),
    (bad_voc(**{"JPEGImages/2007_000042.jpg": b"no picture"}), "2007_000042.jpg: is not an image"),
    (lambda: dict(voc=pack(without(voc_files(), "JPEGImages/2011_003276.jpg"), "w")), "2011_003276.jpg: no such file"),
    (lambda: dict(voc=pack(without(voc_files(), "/train.txt"), "w")), "train.txt: cannot read the list"),
    (lambda: dict(voc=pack({"else": b""}, "w")), "train.txt: cannot read the list"),
    (lambda: dict(voc=pack(voc_files(), "w", [member("VOCdevkit/VOC2012/JPEGImages/2007_000032.jpg")])), "twice"),
    (lambda: dict(voc=VOC_TAR[:len(VOC_TAR) // 2]), "not a whole tar"),
    (lambda: dict(voc=b"not a tar"), "not a whole tar"),
    (lambda: dict(sbd=SBD_TGZ[:len(SBD_TGZ) // 2]), "not a whole tar"),
    (lambda: dict(sbd=SBD_TGZ[:999] + bytes(999) + SBD_TGZ[1998:]), "training images, need 6"),
])
def test_damaged_data_are_never_called_done(tmp_path, archives, message):
    with pytest.raises(UserError, match=message):
        voc_archive.build(tmp_path / "data", **on_disk(tmp_path / "dl", **archives()))
    assert not list(tmp_path.rglob("train_aug.txt")) and not list(tmp_path.rglob("*.part*"))


@pytest.mark.parametrize("seed", range(6))
def test_damaged_tar_ends_in_one_line_or_whole(tmp_path, seed):
    """Bytes that a checksum of the same bytes lets through."""
    rng, data = np.random.default_rng(seed), np.frombuffer(VOC_TAR, np.uint8).copy()
    if seed % 2:
        data = data[:rng.integers(len(data))]
    else:
        data[rng.integers(0, len(data), 5)] ^= 1 << rng.integers(8)
    try:
        voc_archive.build(tmp_path / "data", **on_disk(tmp_path / "dl", voc=data.tobytes()))
    except UserError as e:
        assert "\n" not in str(e)
        assert not list(tmp_path.rglob("train_aug.txt")) and not list(tmp_path.rglob("*.part*"))


def test_ids_in_train_and_val_are_refused(tmp_path):
    both = "".join(f"{i}\n" for i in [*VAL, TRAIN[0]]).encode()
    arguments = on_disk(tmp_path / "dl", **bad_voc(**{LISTS + "val.txt": both})())
    with pytest.raises(UserError, match="2007_000032.png of VOC train, or it is in val too"):
        voc_archive.build(tmp_path / "data", **{**arguments, "train": 5, "val": 3})


def test_checksum_of_own_archives(tmp_path):
    arguments = on_disk(tmp_path / "dl")
    (tmp_path / "dl/sbd.tgz").write_bytes(SBD_TGZ[:-1])
    with pytest.raises(UserError, match=r"sbd.tgz: md5 is \w+, need \w+"):
        voc_archive.build(tmp_path / "data", **arguments)
    (tmp_path / "dl/sbd.tgz").unlink()
    with pytest.raises(UserError, match=r"sbd.tgz: no such file; download http://x/sbd.tgz into"):
        voc_archive.build(tmp_path / "data", **arguments)


def test_full_disk_is_told_before_the_download(tmp_path, server, monkeypatch):
    usage = type("usage", (), {"free": voc_archive.MASKS + 1000})
    monkeypatch.setattr(voc_archive.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(UserError, match="GB free, need .*--out"):
        voc_archive.build(tmp_path, **online(server))
    assert not server.asked


def test_devkit_that_is_there_is_kept(tmp_path):
    """A user who has VOC gets SBD added, nothing of theirs replaced."""
    own = tmp_path / "data/VOCdevkit/VOC2012"
    for name, content in voc_files().items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    inode = own.stat().st_ino
    arguments = on_disk(tmp_path / "dl")
    (tmp_path / "dl/voc.tar").unlink()
    voc_archive.build(tmp_path / "data", **arguments)
    assert_whole(tmp_path / "data")
    assert own.stat().st_ino == inode


def test_another_voc_is_refused_before_the_download(tmp_path, server):
    path = tmp_path / "VOCdevkit/VOC2012/ImageSets/Segmentation/val.txt"
    path.parent.mkdir(parents=True)
    path.write_text("2007_000033\n")
    with pytest.raises(UserError, match="has 1 validation images, need 2; move .*VOCdevkit away"):
        voc_archive.build(tmp_path, **online(server))
    assert not server.asked


def test_wrong_list_is_replaced_and_that_is_said(tmp_path, caplog):
    arguments = on_disk(tmp_path / "dl")
    voc_archive.build(tmp_path / "data", **arguments)
    (tmp_path / "data/VOCdevkit/VOC2012/ImageSets/Segmentation/train_aug.txt").write_text("2007_000032\n")
    voc_archive.build(tmp_path / "data", **arguments)
    assert "train_aug.txt: it listed other images" in caplog.text
    assert_whole(tmp_path / "data")


KILLED = """
import os, signal, sys, test_get_voc
from pathlib import Path
from ccnn.data import voc_archive
name, count = sys.argv[2], int(sys.argv[3])
module = voc_archive.shutil if name == "copyfileobj" else voc_archive
call, calls = getattr(module, name), []
def killer(*args):
    result = call(*args)
    calls.append(1)
    if len(calls) == count:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(module, name, killer)
tmp = Path(sys.argv[1])
voc_archive.build(tmp / "data", **test_get_voc.on_disk(tmp / "dl"))
"""


@pytest.mark.parametrize("where", [("copyfileobj", "4"), ("sbd_labels", "2"), ("convert", "1")])
def test_killed_run_is_finished_by_the_next(tmp_path, where):
    code = subprocess.run([sys.executable, "-c", KILLED, tmp_path, *where], stderr=subprocess.DEVNULL,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}).returncode
    assert code == -signal.SIGKILL
    assert not list(tmp_path.rglob("train_aug.txt"))
    voc_archive.build(tmp_path / "data", **on_disk(tmp_path / "dl"))
    assert_whole(tmp_path / "data")


def test_two_runs_in_one_folder(tmp_path):
    (tmp_path / "data").mkdir()
    with locked_folder(tmp_path / "data", ""), pytest.raises(UserError, match="another ccnn get-voc is at work"):
        voc_archive.build(tmp_path / "data", **on_disk(tmp_path / "dl"))


def test_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, said in ((["--archives", "nowhere"], "--archives nowhere: no such folder"),
                            (["--archives", ".", "--out", "data"], "VOCtrainval_11-May-2012.tar: no such file; downl")):
        done = run_command("get-voc", *arguments)
        assert done.status == 2 and said in done.err and done.err.count("\n") == 1
