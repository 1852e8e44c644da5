"""Files that are whole or not there, and their checksums."""
import hashlib
import os

import pytest

from ccnn._util import files
from ccnn._util.errors import UserError


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "new/folder/a.png"
    with files.whole_file(target) as part:
        part.write_text("half")
        assert not target.exists() and part.suffix == ".png" and part.parent == target.parent
        part.write_text("whole")
    assert target.read_text() == "whole"

    os.link(target, tmp_path / "reader")                # somebody who has it open: replaced, not written into
    with files.whole_file(target) as part:
        part.write_text("new")
    assert (tmp_path / "reader").read_text() == "whole" and target.read_text() == "new"

    with pytest.raises(RuntimeError), files.whole_file(target) as part:
        part.write_text("broken")
        raise RuntimeError
    assert target.read_text() == "new"
    assert os.listdir(target.parent) == ["a.png"]


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path):
    (tmp_path / "a.json").mkdir()
    with pytest.raises(UserError, match="a.json: is a folder, and a file is to be written there"):
        files.save(tmp_path / "a.json", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_file_that_was_never_begun_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), files.whole_file(tmp_path / "a.png"):
        pass


def test_what_killed_runs_have_left_is_removed(tmp_path):
    old, new, own = tmp_path / "sub/.a.01234567.part.png", tmp_path / ".b.89abcdef.part.npy", tmp_path / "c.part.txt"
    old.parent.mkdir()
    for path in (old, new, own):
        path.touch()
    for path in (old, own):
        os.utime(path, (1e9, 1e9))
    files.remove_parts(tmp_path)
    assert not old.exists() and new.exists() and own.exists()       # somebody may be writing the new one
    files.remove_parts(tmp_path / "no folder")


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "data"
    (tmp_path / ".data.part").mkdir()                   # what a killed run left
    (tmp_path / ".data.part/old").touch()
    with pytest.raises(RuntimeError), files.whole_folder(target) as part:
        assert not any(part.iterdir())
        raise RuntimeError
    assert os.listdir(tmp_path) == []
    with files.whole_folder(target) as part:
        (part / "new").touch()
        assert not target.exists()
    assert os.listdir(tmp_path) == ["data"] and os.listdir(target) == ["new"]


def test_checksums(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"x" * 3_000_000)
    b.write_bytes(b"y")
    assert files.digest(a) == hashlib.sha256(b"x" * 3_000_000).hexdigest()
    assert files.digest(a, b, algorithm="md5", bar=True) == hashlib.md5(b"x" * 3_000_000 + b"y").hexdigest()
    assert files.digest(b, a) != files.digest(a, b)


def test_a_file_of_the_user_keeps_its_permissions_and_its_link(tmp_path):
    real, link = tmp_path / "elsewhere/tags.csv", tmp_path / "tags.csv"
    real.parent.mkdir()
    real.write_text("before")
    real.chmod(0o600)
    link.symlink_to(real)
    files.rewrite(link, b"after")
    assert link.is_symlink() and real.read_text() == "after" and real.stat().st_mode & 0o777 == 0o600
    assert os.listdir(real.parent) == ["tags.csv"]
    files.rewrite(tmp_path / "new.csv", b"new")
    assert (tmp_path / "new.csv").read_text() == "new"

    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/tags.csv").symlink_to(real)     # out of the folder, which may be a stranger's
    with pytest.raises(UserError, match="tags.csv: is a link out of its folder, to .*/elsewhere/tags.csv"):
        files.rewrite(tmp_path / "photos/tags.csv", b"changed")
    assert real.read_text() == "after"

    real.unlink()                                       # whatever a stranger's link names is not created
    with pytest.raises(UserError, match="tags.csv: is a link to .* which is not a file; remove the link"):
        files.rewrite(link, b"after")
    assert os.listdir(real.parent) == []
