"""Tags: one parser for the table and for the command line."""
import pytest
from data_nets import own_data

from ccnn.errors import UserError
from ccnn.samples import Samples
from ccnn.tags import parse_large, parse_tags, read_tags, tagged

CLASSES = ("background", "cat", "dog", "traffic light")


@pytest.mark.parametrize("text, labels", [
    ("", []), (" ; ", []), ("cat", [1]), ("cat;dog", [1, 2]), ("cat, dog", [1, 2]), ("dog cat", [1, 2]),
    ("traffic light", [3]), ("traffic light;cat", [1, 3]), ("cat,traffic light,", [1, 3]), ("cat;cat", [1]),
    ("background;cat", [0, 1]),
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


def test_large_tags_are_tags():
    present = parse_tags("cat;dog", CLASSES, "--tags")
    assert parse_large("dog", present, CLASSES, "--large").tolist() == [False, False, True, False]
    with pytest.raises(UserError, match="^--large: 'traffic light' is large but not among the tags$"):
        parse_large("cat;traffic light", present, CLASSES, "--large")


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
    for broken, message in ((b"\xff\xfe", "cannot read the tags"), (b'"a\n', "line 1: expected image,tags")):
        path.write_bytes(broken)
        with pytest.raises(UserError, match=f"tags.csv.*{message}"):
            read_tags(path, CLASSES)


@pytest.mark.parametrize("table, message", [
    ("one.jpg,dog\n", "tags.csv, line 1: tag 'dog' is not a class"),
    ("one.jpg,cats\n", "line 1: tag 'cats' is not a class; did you mean 'cat'?"),
    ("one.jpg;cat\n", "line 1: expected image,tags"),
    ("one.jpg,cat\none.jpg,cat\n", "line 2: image 'one.jpg' has a row already"),
    ("one.jpg,cat,traffic light\n", "line 1: 'traffic light' is large but not among the tags"),
    ("image,tags\n", "tags.csv: lists no image"),
    ("../one.jpg,cat\n", "line 1: '../one.jpg' is not an image id, because it leaves"),
    ("four.jpg,cat\n", "four.jpg: no such image"),
])
def test_wrong_tables_are_named(tmp_path, table, message):
    with pytest.raises(UserError, match=message):
        Samples(own_data(tmp_path / "own", table))
