"""Settings: a table, and what is wrong with those that do not fit it."""
import pytest

from ccnn._util.errors import UserError
from ccnn._util.settings import (
    COUNT,
    FRACTION,
    NAMES,
    NUMBER,
    POSITIVE,
    SWITCH,
    TEXT,
    WHOLE,
    Setting,
    one_of,
    optional,
    read_settings,
)
from ccnn.data.samples import FeatureSamples, Samples

TABLE = {"crop": Setting(WHOLE, 0, "side of a crop"), "mirror": Setting(SWITCH, True, "mirror")}


def test_what_is_not_given_has_its_default():
    assert read_settings("", TABLE) == read_settings({}, TABLE) == {"crop": 0, "mirror": True}
    assert read_settings('{"crop": 9}', TABLE) == {"crop": 9, "mirror": True}


@pytest.mark.parametrize("options, message", [
    ("{crop: 1}", "^here: the settings are not JSON: Expecting"),
    ("[1]", r"^here: the settings must be a JSON object \{...\}; got \[1\]$"),
    ('{"crp": 1}', r"^here: unknown setting 'crp'; did you mean 'crop'\?$"),
    ('{"x": 1}', "^here: unknown setting 'x'; known: crop, mirror$"),
    ('{"crop": "9"}', '^here: crop must be a whole number, 0 or more; got "9"$'),
    ('{"mirror": null}', "^here: mirror must be true or false; got null$"),
])
def test_mistakes_are_named_in_one_line(options, message):
    with pytest.raises(UserError, match=message) as error:
        read_settings(options, TABLE, "here")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind, good, bad", [
    (WHOLE, [0, 7], [-1, 1.0, True, "1", None]),
    (COUNT, [1], [0, 1.5, False]),
    (FRACTION, [0, 1, 0.5], [1.1, -0.1, True, "0.5"]),
    (POSITIVE, [1, 1e-9], [0, -1, float("inf"), float("nan"), "inf", True]),
    (NUMBER, [0, -1.5, "inf"], [True, None, "infinite", [1]]),
    (TEXT, ["a"], ["", 1, None]),
    (SWITCH, [True, False], [0, 1, "true", None]),
    (NAMES, [["a"], ["a", "b"]], [[], ["a", "a"], ["a", 1], "a", [["a"]], None]),
    (one_of(("stop", "skip")), ["stop"], ["", "stopp", None, ["stop"]]),
    (optional(WHOLE), [None, 3], [-1, "3"]),
])
def test_kinds(kind, good, bad):
    assert all(kind.check(value) for value in good)
    assert not any(kind.check(value) for value in bad)


@pytest.mark.parametrize("samples", [Samples, FeatureSamples])
def test_the_defaults_of_the_tables_are_of_their_kinds(samples):
    wrong = [name for name, setting in samples.SETTINGS.items() if not setting.kind.check(setting.default)]
    assert wrong == ["root"]            # the one that must be given
    assert all(setting.meaning for setting in samples.SETTINGS.values())
