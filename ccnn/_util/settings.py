"""Settings of a layer: JSON text in a net's param_str, checked against a table.

    SETTINGS = {"crop": Setting(WHOLE, 0, "side in pixels of a random crop; 0: no crop"), ...}
    read_settings('{"crop": 321}', SETTINGS)["crop"]

A table has one entry per setting. An unknown name, or a value of the wrong kind, ends in one line that says what would
be right.
"""
import json
from typing import Any, Callable, NamedTuple

from ccnn._util.errors import UserError, suggest
from ccnn._util.foreign_files import load_json

SIZES = range(32, 2001)     # pixels of a photograph's long side that a net may see


def sizes_of(size: Any) -> tuple[int, ...]:
    """(pixels, ...) of a model's `size`, one number or a list of them; ValueError if it is neither."""
    sizes = tuple(size) if isinstance(size, list) else (size,)
    if not sizes or not all(type(pixels) is int and pixels in SIZES for pixels in sizes) or len({*sizes}) < len(sizes):
        raise ValueError(f"size must be {SIZES[0]}..{SIZES[-1]}, or a list of such numbers, each once; got "
                         f"{size!a:.60}")
    return sizes


class Kind(NamedTuple):
    """What a value must be."""

    words: str                          # completes "crop must be ..."
    check: Callable[[Any], bool]


class Setting(NamedTuple):
    """One setting."""

    kind: Kind
    default: Any
    meaning: str


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value, low):
    return type(value) is int and value >= low


def _is_text(value):
    return isinstance(value, str) and value != ""


def one_of(words):
    """A value that is one of these words; they may be a table to which entries are still added."""
    return Kind(" or ".join(f'"{word}"' for word in words), lambda value: isinstance(value, str) and value in words)


def optional(kind):
    """The same kind, or null."""
    return Kind(kind.words, lambda value: value is None or kind.check(value))


TEXT = Kind("text", _is_text)
FOLDER = Kind("the path of a folder", _is_text)
SWITCH = Kind("true or false", lambda value: isinstance(value, bool))
WHOLE = Kind("a whole number, 0 or more", lambda value: _is_whole(value, 0))
COUNT = Kind("a whole number, 1 or more", lambda value: _is_whole(value, 1))
FRACTION = Kind("a fraction between 0 and 1", lambda value: _is_number(value) and 0 <= value <= 1)
SHARE = Kind("a share of the image, above 0 and below 1", lambda value: _is_number(value) and 0 < value < 1)
LABEL_LIST = Kind("a list of labels, whole numbers from 1", lambda value: isinstance(value, list) and all(
    _is_whole(label, 1) for label in value))
POSITIVE = Kind("a positive number", lambda value: _is_number(value) and 0 < value < float("inf"))
NUMBER = Kind('a number or "inf"', lambda value: _is_number(value) or value == "inf")     # JSON has no infinity
NAMES = Kind("a list of names, each once", lambda value: isinstance(value, list) and bool(value)
             and all(map(_is_text, value)) and len(set(value)) == len(value))
FOLDERS = Kind("the path of a folder, or a list of such paths", lambda value: _is_text(value) or NAMES.check(value))
NUMBER_OR_LIST = Kind("a number of images or the path of a list", lambda value: _is_whole(value, 0) or _is_text(value))


def parse(options, where="param_str"):
    """The settings that are given, as a dict. options : dict, or JSON text; `where` opens every error message."""
    if isinstance(options, str):
        try:
            options = load_json(options or "{}")
        except ValueError as error:
            raise UserError(f"{where}: the settings are not JSON: {error}") from None
    if not isinstance(options, dict):
        raise UserError(f"{where}: the settings must be a JSON object {{...}}; got {json.dumps(options)}")
    return options


def read_settings(options, table, where="param_str"):
    """{name: value} for every name of the table, each given or the default. options : dict, or JSON text."""
    options = parse(options, where)
    for name in options:
        if name not in table:
            raise UserError(f"{where}: unknown setting {name!r}; {suggest(name, table)}")
    values = {name: options.get(name, setting.default) for name, setting in table.items()}
    for name, value in values.items():
        if not table[name].kind.check(value):
            raise UserError(f"{where}: {name} must be {table[name].kind.words}; got {json.dumps(value)}")
    return values
