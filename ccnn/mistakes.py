"""All mistakes of a file at once."""
from ccnn.errors import UserError

SHOWN = 20      # more of them help nobody


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
            text += f" and {len(mistakes) - SHOWN} more" if mistakes[SHOWN:] else ""
        super().__init__(text)

    def __reduce__(self):
        return Mistakes, self.given
