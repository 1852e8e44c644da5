"""Which photographs a command line stands for."""
from pathlib import Path

import pytest
from PIL import Image

from ccnn._util.errors import UserError
from ccnn.images.listing import find_photographs, pair_with_photographs


@pytest.fixture
def photos(tmp_path):
    """one.png, sub/two.v2.JPG, sub/deep/three.jpg, and what is no photograph."""
    folder = tmp_path / "photos"
    for name in ("one.png", "sub/two.v2.JPG", "sub/deep/three.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3)).save(folder / name)
    (folder / "notes.txt").write_text("no photograph")
    (folder / "._one.png").write_bytes(b"what macOS leaves")
    (folder / "folder.jpg").mkdir()
    return folder


def names(arguments, out, only=None):
    return sorted(name for _, name in find_photographs(arguments, only, out))


def test_folders_files_and_patterns(photos, tmp_path):
    out = tmp_path / "out"
    assert names([photos], out) == ["one", "sub/deep/three", "sub/two.v2"]
    assert names([f"{photos}/**/t*.*", photos / "one.png"], out) == ["one", "three", "two.v2"]
    for nothing in ("absent.jpg", "photos/*.gif", "photos/folder.jpg"):
        with pytest.raises(UserError, match="no such photograph"):
            names([tmp_path / nothing], out)


def test_results_are_no_photographs(photos, tmp_path, monkeypatch):
    (photos / ".ccnn").mkdir()                              # the working files of ccnn learn
    Image.new("RGB", (4, 3)).save(photos / ".ccnn/one.png")
    (photos / "masks/sub").mkdir(parents=True)
    Image.new("RGB", (4, 3)).save(photos / "masks/sub/one.png")
    assert names([photos], photos / "masks") == ["one", "sub/deep/three", "sub/two.v2"]
    monkeypatch.chdir(tmp_path)
    assert names(["photos"], photos / "masks") == ["one", "sub/deep/three", "sub/two.v2"]
    with pytest.raises(UserError, match="--out photos: is a folder of photographs"):
        names(["photos"], photos)


def test_only_the_names_of_a_split(photos, tmp_path):
    split = tmp_path / "val.txt"
    split.write_text("sub/two.v2\n one.png\n\n")
    assert names([photos], tmp_path / "out", split) == ["one", "sub/two.v2"]
    for text, complaint in (("one\nx\ny\n", "'x' and 1 more"), ("", "lists no images"), ("\n", "lists no")):
        split.write_text(text)
        with pytest.raises(UserError, match=f"val.txt: .*{complaint}"):
            names([photos], tmp_path / "out", split)


def test_probabilities_find_their_photographs(photos, tmp_path):
    files = tmp_path / "probabilities"
    files.mkdir()
    (files / "one.npz").touch()
    assert pair_with_photographs([files], photos) == [(files / "one.npz", photos / "one.png")]
    (files / "notes.npz").touch()
    for sources, folder, complaint in (([files], photos, "notes.npz: there is no photograph named notes in"),
                                       ([photos], photos, "photos: holds no .npz files"),
                                       ([files / "absent.npz"], photos, "absent.npz: no such file or folder"),
                                       ([files], Path("nowhere"), "--images nowhere: no such folder")):
        with pytest.raises(UserError, match=complaint):
            pair_with_photographs(sources, folder)
