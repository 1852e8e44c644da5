"""The one exception that becomes one line for the user."""


class UserError(ValueError):
    """Something the user can mend. The text is one line: what is wrong, where, and the remedy."""

    def __init__(self, text):
        super().__init__(" ".join(str(text).split()))


class ImageError(UserError):
    """An image, a mask or an annotation cannot be used; the text names the file."""
