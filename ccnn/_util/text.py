"""Numbers, lists and names in sentences."""
import unicodedata
from collections.abc import Iterable, Sized

TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")      # the direction of writing


def plural(number: int, noun: str, many: str = "") -> str:
    """ "1 mask", "2 masks"; many : the plural of "class" """
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def and_more(things: Sized, named: int = 1) -> str:
    """What follows the first of several things: "", or " and 2 more"."""
    return f" and {len(things) - named} more" if len(things) > named else ""


def some(things: Iterable[object], shown: int = 5, quoted: bool = True) -> str:
    """ "'a', 'b' and 'c'"; of many the first few, and how many more."""
    words = [repr(str(thing)) if quoted else str(thing) for thing in things]
    if words[shown + 1:]:
        words = [*words[:shown], f"{len(words) - shown} more"]
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


def printable(text: str) -> str:
    """A text that a terminal only shows: control characters of a file's name are escaped, as are letters that turn the
    direction of writing and bytes that are not UTF-8."""
    return "".join(repr(letter)[1:-1] if letter in TURNING or (unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")
                   and letter not in "\n\t") else letter for letter in text)


def shortened(value: object) -> str:
    """A value of any kind in a message: as Python writes it, of a long one the beginning."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
