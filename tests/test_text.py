"""Numbers and lists in sentences."""
import pytest

from ccnn._util.text import and_more, duration, plural


def test_one_is_no_plural():
    assert [plural(n, "mask") for n in (0, 1, 2, 10582)] == ["0 masks", "1 mask", "2 masks", "10,582 masks"]
    assert [and_more(["a"] * n) for n in (1, 2, 3)] == ["", " and 1 more", " and 2 more"]


@pytest.mark.parametrize("seconds, text", [(0.4, "0 s"), (80, "80 s"), (150, "2.5 min"), (5000, "83.3 min"),
                                           (10800, "3.0 h")])
def test_durations(seconds, text):
    assert duration(seconds) == text
