"""Lists of images: one reader for all."""
import pytest

from ccnn._util.errors import UserError
from ccnn.images.ids import find_list, read_list, read_split


def written(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("text, ids", [
    ("a\nb\n", ["a", "b"]),
    ("b\na", ["b", "a"]),                                               # the order of the list
    ("\ufeffa\r\n\r\n  b\t\r\n", ["a", "b"]),                           # as Windows writes it
    ("my cats/a cat.png\ntwo  2.JPG\nx.tar\n", ["my cats/a cat", "two  2", "x.tar"]),
    ("cat 1\ncat 2\n", ["cat 1", "cat 2"]),                             # no second column of VOC
    ("a  1\nb\n", ["a  1", "b"]),
    ("Bäume/ä.jpeg\n", ["Bäume/ä"]),
])
def test_one_id_per_line(tmp_path, text, ids):
    assert read_list(written(tmp_path / "list.txt", text)) == ids


@pytest.mark.parametrize("text, message", [
    ("", "list.txt: lists no images"),
    ("\n \n", "list.txt: lists no images"),
    ("a\n\nb\na.jpg\n", "list.txt, line 4: lists 'a' twice, first in line 1"),
    ("a\n../b\n", "list.txt, line 2: '../b' is not an image id, because it leaves the folder"),
    ("/etc/passwd\n", "line 1: '/etc/passwd' is not an image id"),
    ("a/../../b\n", "line 1: .* is not an image id"),
    ("a\0b\n", "line 1: .* is not an image id"),
    (b"\xff\xfea\n", "list.txt: not a text file"),
    ("2007_000027 -1\n2007_000032  1\n2007_000033  0\n", "list.txt: has VOC's second column .* one per line: awk"),
])
def test_what_is_no_list(tmp_path, text, message):
    with pytest.raises(UserError, match=message) as error:
        read_list(written(tmp_path / "list.txt", text))
    assert "\n" not in str(error.value)


def test_missing_lists(tmp_path):
    with pytest.raises(UserError, match="nowhere.txt: cannot read the list: No such file"):
        read_list(tmp_path / "nowhere.txt")
    with pytest.raises(UserError, match="cannot read the list: Is a directory"):
        read_list(tmp_path)


def test_a_split_is_a_name_or_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "voc/ImageSets/Segmentation/val.txt", "named\n")
    written(tmp_path / "voc/inner.txt", "inner\n")
    written(tmp_path / "val", "outer\n")
    written(tmp_path / "other.txt", "other\n")
    assert read_split(tmp_path / "voc", "val") == ["named"]             # the name comes first
    assert read_split("voc", "inner.txt") == ["inner"]
    assert read_split("voc", "other.txt") == read_split("voc", str(tmp_path / "other.txt")) == ["other"]
    with pytest.raises(UserError, match=r"train.txt: no such list of images \(there: val\), and 'train' is not a file"):
        find_list("voc", "train")
    written(tmp_path / "voc/ImageSets/Segmentation/train.txt", "a\n")
    with pytest.raises(UserError, match="without SBD, train on VOC alone with ccnn train --split train"):
        find_list("voc", "train_aug")
    with pytest.raises(UserError, match=r"\(there: none\)"):
        find_list("nowhere", "train")
