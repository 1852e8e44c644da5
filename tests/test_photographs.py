"""Which photographs a folder holds and a command line names, the same for every command."""
from pathlib import Path

import pytest
from PIL import Image

from ccnn._util.errors import UserError
from ccnn.cli import import_tags
from ccnn.data.dataset import DataSet
from ccnn.images.formats import FORMATS, SUFFIXES
from ccnn.images.listing import (
    PhotographIndex,
    find_photographs,
    list_photographs,
    pair_with_photographs,
    skipped_sentence,
)
from ccnn.project.checks import check_folder
from ccnn.project.folder import read_folder
from ccnn.studio.album import Album
from ccnn.training.features import find_images


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
    return sorted(name for _, name in find_photographs(arguments, only, out).photographs)


def test_folders_files_and_patterns(photos, tmp_path):
    out = tmp_path / "out"
    assert names([photos], out) == ["one", "sub/deep/three", "sub/two.v2"]
    assert names([f"{photos}/**/t*.*", photos / "one.png"], out) == ["one", "three", "two.v2"]
    for nothing in ("absent.jpg", "photos/*.gif", "photos/folder.jpg"):
        with pytest.raises(UserError, match="no such file or folder|holds no photographs"):
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


def test_marks_are_no_photographs(photos, tmp_path):
    (photos / "scribbles").mkdir()
    Image.new("P", (4, 3)).save(photos / "scribbles/one.png")
    assert "scribbles/one" in names([photos], tmp_path)         # a folder like any other, until there are rules
    (photos / "constraints.toml").write_text("[scribbles]\n")
    assert names([photos], tmp_path) == ["one", "sub/deep/three", "sub/two.v2"]


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


# The same photographs for all

ALL = [f"{k:02}{suffix}" for k, suffix in enumerate(suffix for suffixes in FORMATS.values() for suffix in suffixes)]
HEIC_AND_OTHERS = {"x.heic": "install pillow-heif", "y.AVIF": "convert it", "z.jpg": "a link to a file that does not"}


@pytest.fixture
def mixed(tmp_path, monkeypatch):
    """A photograph of every suffix, and files that look like photographs and are not read."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name in ALL:
        Image.new("RGB", (4, 3)).save(folder / name, format=next(f for f, s in FORMATS.items() if name[2:] in s))
    for name in ("x.heic", "y.AVIF", ".hidden.png", "notes.txt"):
        (folder / name).write_bytes(b"not read")
    (folder / "z.jpg").symlink_to("nowhere.jpg")
    monkeypatch.setattr("ccnn.images.listing.heic_is_readable", lambda: False)
    monkeypatch.setattr("ccnn.images.formats.heic_is_readable", lambda: False)
    return folder


def test_every_command_sees_the_same_photographs(mixed, tmp_path, capsys, caplog):
    assert len(ALL) == 10 and set(SUFFIXES) == {name[2:] for name in ALL} | {".heic", ".heif"}
    (mixed / "classes.txt").write_text("cat\n")
    rows = "".join(f"{name},cat\n" for name in ALL)
    (mixed / "tags.csv").write_text(rows)

    found, skipped = list_photographs(mixed)
    assert found == ALL and list(skipped) == list(HEIC_AND_OTHERS)
    segment, named = find_photographs([mixed], None, tmp_path / "out")
    assert [path.name for path, _ in segment] == ALL and named == {str(mixed / name): skipped[name] for name in skipped}
    learn = read_folder(str(mixed))
    assert [known.name for known in learn.photographs.values()] == ALL and list(learn.skipped) == list(skipped)
    album = Album(mixed)
    album.refresh()
    assert [photograph.path for photograph in album.photographs if not photograph.problem] == ALL
    assert {photograph.path for photograph in album.photographs if photograph.problem} == {"x.heic", "y.AVIF"}
    import_tags.main([str(mixed / "tags.csv")])
    said = capsys.readouterr().out
    assert "10 photographs" in said and skipped_sentence(skipped) in said
    (mixed / "classes.txt").unlink(), (mixed / "tags.csv").unlink()
    assert [Path(file).name for file in find_images(str(mixed), None).values()] == ALL
    for name, why in HEIC_AND_OTHERS.items():
        assert f"{name!r} (" in skipped_sentence(skipped) and why in skipped_sentence(skipped)
        assert name in caplog.text
    assert skipped_sentence(learn.skipped) in " ".join(check_folder(learn))


def test_a_file_that_is_there_is_never_said_to_be_missing(mixed):
    index = PhotographIndex(mixed)
    for name, why in [*HEIC_AND_OTHERS.items(), ("X", "install"), ("sub/y", "convert"), ("notes.txt", "rename it")]:
        assert index.find(name) is None
        assert "is not read: " in index.why_not_found(name) or "has no suffix" in index.why_not_found(name), name
        assert why in index.why_not_found(name)
    assert index.why_not_found("w.jpg") == f"there is no such photograph in {mixed}"
    (mixed / "classes.txt").write_text("cat\n")
    (mixed / "tags.csv").write_text("y.avif,cat\n00,cat\n")
    with pytest.raises(UserError, match="tags.csv, line 1, 'y.avif': .*y.AVIF is not read: need JPEG.*convert it"):
        read_folder(str(mixed))
    (mixed / "tags.csv").write_text("x.heic,cat\n00,cat\n")
    assert set(read_folder(str(mixed)).photographs) == {"x", "00"}          # ccnn learn says what to install
    assert DataSet(str(mixed), classes=str(mixed / "classes.txt"), tags_from="tags.csv").image_files()
    album = Album(mixed)
    album.refresh()
    assert album.rows_alone == [] and album.why_not() is None


def test_a_folder_of_unreadable_photographs_says_why(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.avif").write_bytes(b"")
    with pytest.raises(UserError, match=r"photos: holds no photographs; 1 file is skipped: '.*a.avif' .need JPEG"):
        find_photographs([tmp_path / "photos"], None, tmp_path / "out")
    with pytest.raises(UserError, match="photos: has no photographs .JPEG.*1 file is skipped: 'a.avif'"):
        import_tags.main([str(tmp_path / "photos")])
