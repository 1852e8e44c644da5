"""Numbers and lists in sentences."""
import pytest

from ccnn._util.text import and_more, duration, plural, printable, some


def test_one_is_no_plural():
    assert [plural(n, "mask") for n in (0, 1, 2, 10582)] == ["0 masks", "1 mask", "2 masks", "10,582 masks"]
    assert [and_more(["a"] * n) for n in (1, 2, 3)] == ["", " and 1 more", " and 2 more"]
    assert [and_more("abc", named) for named in (2, 3, 4)] == [" and 1 more", "", ""]
    assert [some("abcdefg"[:n]) for n in (0, 1, 2, 3)] == ["", "'a'", "'a' and 'b'", "'a', 'b' and 'c'"]
    assert some("abcdefg", 2) == "'a', 'b' and 5 more" and some("abc", 2, quoted=False) == "a, b and c"


def test_a_name_cannot_command_the_terminal():
    assert printable("a\x1b[2J\x07\u202eb\udcff.jpg") == r"a\x1b[2J\x07\u202eb\udcff.jpg"
    assert printable("Bär 猫 \U0001f408\t'x'\n") == "Bär 猫 \U0001f408\t'x'\n"


@pytest.mark.parametrize("seconds, text", [(0.4, "0 s"), (80, "80 s"), (150, "2.5 min"), (5000, "83.3 min"),
                                           (10800, "3.0 h")])
def test_durations(seconds, text):
    assert duration(seconds) == text
