"""Tags: one parser for the table and for the command line."""
import unicodedata

import pytest
from data_nets import own_data

from ccnn._util.errors import UserError
from ccnn.annotations.tags import parse_tags, read_tags, tag_places, tagged
from ccnn.data.samples import Samples

CLASSES = ("background", "cat", "dog", "traffic light")


@pytest.mark.parametrize("text, labels", [
    ("", []), (" ; ", []), ("cat", [1]), ("cat;dog", [1, 2]), ("cat, dog", [1, 2]), ("dog cat", [1, 2]),
    ("traffic light", [3]), ("traffic light;cat", [1, 3]), ("cat,traffic light,", [1, 3]), ("cat;cat", [1]),
    ("background;cat", [1]), ("cat|dog", [1, 2]),
])
def test_names_between_separators(text, labels):
    assert parse_tags(text, CLASSES, "--tags").nonzero()[0].tolist() == labels


@pytest.mark.parametrize("text, message", [
    ("cta", r"^--tags: tag 'cta' is not a class; did you mean 'cat'\?$"),
    ("cat;cow", "^--tags: tag 'cow' is not a class; known: cat, dog, traffic light$"),
    ("cat traffic light", "^--tags: tag 'traffic' is not a class; did you mean 'traffic light'"),
])
def test_names_that_are_no_class(text, message):
    with pytest.raises(UserError, match=message):
        parse_tags(text, CLASSES, "--tags")


def test_tags_of_the_command_line():
    assert tagged(None, CLASSES) == [0, 1, 2, 3]
    assert tagged("dog,cat", CLASSES) == [0, 1, 2]
    with pytest.raises(UserError, match="--tags: names no class; known: cat, dog"):
        tagged(" ", CLASSES)


def test_a_table(tmp_path):
    path = tmp_path / "tags.csv"
    path.write_text('image,tags,large\na.jpg,cat;dog,dog\n\n"b, c.png","cat, traffic light"\nsub/d,\n')
    table = read_tags(path, CLASSES)
    assert {id: [flags.nonzero()[0].tolist() for flags in row] for id, row in table.items()} == {
        "a": [[1, 2], [2]], "b, c": [[1, 3], []], "sub/d": [[], []]}
    assert tag_places(path, CLASSES) == {"a": "line 2", "b, c": "line 4", "sub/d": "line 5"}
    for broken, message in ((b"\xff\xfe", "lists no image"), (b"a\n", "line 1: expected image,tags"),
                            (b"a\0", "is not text")):
        path.write_bytes(broken)
        with pytest.raises(UserError, match=f"tags.csv.*{message}"):
            read_tags(path, CLASSES)


@pytest.mark.parametrize("table, message", [
    ("one.jpg,dog\n", "tags.csv, line 1: tag 'dog' is not a class"),
    ("one.jpg,cats\n", "line 1: tag 'cats' is not a class; did you mean 'cat'?"),
    ("one.jpg\n", "line 1: expected image,tags"),
    ("one.jpg,CATS\n\ntwo 2.png,cta\n/three.jpg,cat\n",
     r"tags.csv: 3 mistakes \(1\) line 1: tag 'CATS' is not a class; did you mean 'cat'\? \(2\) line 3: tag 'cta' .*"
     r" \(3\) line 4: '/three.jpg' is not an image id"),
    ("one.jpg,cat\none.jpg,cat\n", "line 2: image 'one.jpg' has a row already"),
    ("one.jpg,cat,traffic light\n", "line 1: 'traffic light' is large but not among the tags"),
    ("image,tags\n", "tags.csv: lists no image"),
    ("../one.jpg,cat\n", "line 1: '../one.jpg' is not an image id, because it leaves"),
    ("one.jpg,cat\nfour.jpg,cat\nthre.jpg,cat\n",
     r"tags.csv: 2 mistakes \(1\) line 2, 'four': there is no such photograph in .*own; correct the name, or remove it "
     r"\(2\) line 3, 'thre': .*; did you mean 'three'\?$"),
    ("one.jpg,cat\nOne,cat\n", "line 2, 'One': is the photograph of 'one', too; remove one of them"),
])
def test_wrong_tables_are_named(tmp_path, table, message):
    with pytest.raises(UserError, match=message):
        Samples(own_data(tmp_path / "own", table))


def test_photographs_are_found_as_people_write_their_names(tmp_path):
    """The suffix in any case; accents as Windows and Linux write them, or as macOS does."""
    composed, apart = (unicodedata.normalize(form, "Kätzchen") for form in ("NFC", "NFD"))
    data = own_data(tmp_path / "own", f"ONE.JPEG,cat\n{composed}.jpg,cat\nsub\\a,\n")
    folder = tmp_path / "own"
    (folder / "sub").mkdir()
    (folder / "three.jpg").replace(folder / f"{apart}.Jpg")
    (folder / "two 2.png").replace(folder / "sub/a.PnG")
    samples = Samples(data)
    assert samples.ids == ["ONE", composed, "sub/a"]
    assert samples.files == [str(folder / name) for name in ("one.jpg", f"{apart}.Jpg", "sub/a.PnG")]

    (folder / "one.png").write_bytes((folder / "one.jpg").read_bytes())
    with pytest.raises(UserError, match="line 1, 'ONE': 'ONE' may be 'one.jpg' or 'one.png'"):
        Samples(data)
    (folder / "tags.csv").write_text("one.png,cat\n")
    with pytest.raises(UserError, match="line 1, 'one': may be .*one.jpg or .*one.png; rename one of them"):
        Samples(data)
    (folder / "one.png").unlink()
    (folder / "scribbles").mkdir()
    (folder / "one.jpg").replace(folder / "scribbles/one.jpg")          # not where the table says
    with pytest.raises(UserError, match="line 1, 'one': there is no such photograph"):
        Samples(data)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_classes_and_tables_as_windows_writes_them(tmp_path, encoding):
    data = own_data(tmp_path / "own", "")
    (tmp_path / "own/classes.txt").write_bytes("große Katze\r\nHund\r\n".encode(encoding))
    (tmp_path / "own/tags.csv").write_bytes("image;tags\r\none.jpg;große Katze\r\n".encode(encoding))
    samples = Samples(data)
    assert samples.classes == ("background", "große Katze", "Hund")
    assert samples.csv["one"][0].tolist() == [False, True, False]
