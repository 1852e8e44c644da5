"""The one exception that becomes one line for the user."""
import difflib

from ccnn._util.text import and_more


class UserError(ValueError):
    """A mistake that the user can fix. The text is one line: what is wrong, where, and the remedy."""

    def __init__(self, text):
        super().__init__(" ".join(str(text).split()))


class ImageError(UserError):
    """An image, a mask or an annotation cannot be used. The text names the file."""


class Unable(UserError):
    """An engine cannot run a net here: a package, a layer or an instruction is missing. Another engine may."""


LISTED = 30     # known words in a message; a longer list does not help


def nearest(word, known):
    """The known word that is most similar to a word, whatever its case; None if none is close."""
    same_case = {name.casefold(): name for name in reversed(list(known))}
    near = difflib.get_close_matches(str(word), known, 1) or \
        [same_case[name] for name in difflib.get_close_matches(str(word).casefold(), same_case, 1)]
    return near[0] if near else None


def suggest(word, known):
    """The remedy for an unknown word: the most similar known word, or else all of them."""
    near, known = nearest(word, known), list(known)
    if near is not None:
        return f"did you mean {near!r}?"
    return f"known: {', '.join(known[:LISTED]) or 'none'}{and_more(known, LISTED)}"


def reason(error):
    """Why a file could not be read, without its name: "No such file or directory"."""
    return getattr(error, "strerror", None) or error


SHOWN = 20      # mistakes in a message


class Mistakes(UserError):
    """Every mistake of a file that a person wrote. `lines` has one mistake per line; the text has them in one line."""

    def __init__(self, path, mistakes):
        """mistakes : [(place, text)], the place such as "line 3"; "" is the whole file."""
        self.given = path, mistakes
        self.lines = [f"{path}, {place}: {text}" if place else f"{path}: {text}" for place, text in mistakes]
        text = self.lines[0]
        if mistakes[1:]:
            text = f"{path}: {len(mistakes)} mistakes" + "".join(
                f" ({k}) {place + ': ' if place else ''}{text}" for k, (place, text) in enumerate(mistakes[:SHOWN], 1))
            text += and_more(mistakes, SHOWN)
        super().__init__(text)

    def __reduce__(self):
        return Mistakes, self.given
