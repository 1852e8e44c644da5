"""Numbers, lists and names in sentences."""
import unicodedata
from collections.abc import Sequence, Sized


def plural(number: int, noun: str) -> str:
    """ "1 mask", "2 masks" """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def and_more(things: Sized) -> str:
    """What follows the first of several things: "", or " and 2 more"."""
    return f" and {len(things) - 1} more" if len(things) > 1 else ""


def some(things: Sequence[object], shown: int = 5) -> str:
    """ "'a', 'b' and 'c'"; of many the first few, and how many more."""
    words = [repr(str(thing)) for thing in things]
    if words[shown + 1:]:
        words = [*words[:shown], f"{len(words) - shown:,} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def duration(seconds: float) -> str:
    """ "40 s", "2.5 min", "3.0 h" """
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds > 1.5 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def plain(name: str) -> str:
    """A name as it is stored and compared: accents composed (NFC), no blanks around it."""
    return unicodedata.normalize("NFC", name).strip()
