"""The one exception that becomes one line for the user."""
import difflib


class UserError(ValueError):
    """Something that the user can put right. The text is one line: what is wrong, where, and the remedy."""

    def __init__(self, text):
        super().__init__(" ".join(str(text).split()))


class ImageError(UserError):
    """An image, a mask or an annotation cannot be used. The text names the file."""


def suggest(word, known):
    """The remedy for a word that is not known: the nearest known word, or else all of them."""
    near = difflib.get_close_matches(str(word), known, 1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"


def reason(error):
    """Why a file could not be read, without its name: "No such file or directory"."""
    return getattr(error, "strerror", None) or error
