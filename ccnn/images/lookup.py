"""The photographs of a folder, and which of them a name means."""
import os
import re

from ccnn._util.errors import UserError
from ccnn._util.text import plain
from ccnn.images.ids import SUFFIX

UPLOAD = re.compile(r"^[0-9a-f]{8}-")       # Label Studio puts this before the name of a file that it is given


def image_folder(root):
    """JPEGImages in a VOC folder, else the folder itself."""
    inner = os.path.join(root, "JPEGImages")
    return inner if os.path.isdir(inner) else str(root)


def list_photographs(folder):
    """The paths of all photographs below a folder, from that folder, with / between names. Hidden files (macOS writes
    ._a.jpg beside a.jpg) are none."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inner = os.path.relpath(place, folder).replace(os.sep, "/")
        found += [name if inner == "." else f"{inner}/{name}" for name in sorted(files)
                  if SUFFIX.search(name) and not name.startswith(".")]
    return found


class Photographs:
    """Looks names up as people write them: with or without suffix, folder, upper case, composed accents.

    A file of exactly that path comes first. Else paths, then names of files, are compared in lower case and NFC, with
    and without suffix. Among several the one in the fewest folders is meant.
    """

    def __init__(self, folder):
        self.folder, self.paths = folder, list_photographs(folder)
        self.by_path, self.by_name = {}, {}
        for path in self.paths:
            for table, name in ((self.by_path, path), (self.by_name, path.rpartition("/")[2])):
                for key in dict.fromkeys(_keys(name)):
                    table.setdefault(key, []).append(path)

    def at(self, name):
        """The path of the photograph at the place that a name says; None if there is none."""
        if name in self.by_path.get(_keys(name)[0], ()):
            return name
        return _nearest(self.by_path, name.replace("\\", "/"))

    def find(self, name):
        """The same, but a photograph of that name in any folder will do."""
        base = name.replace("\\", "/").rpartition("/")[2]
        return self.at(name) or _nearest(self.by_name, base) or _nearest(self.by_name, UPLOAD.sub("", base))


def _nearest(table, name):
    """The path in the fewest folders of those that a table has for a name; None if it has none."""
    paths = next((table[key] for key in _keys(name) if key in table), ())
    depth = min((path.count("/") for path in paths), default=0)
    nearest = [path for path in paths if path.count("/") == depth]
    if nearest[1:]:
        raise UserError(f"{name!r} may be {nearest[0]!r} or {nearest[1]!r}; write one of these")
    return nearest[0] if nearest else None


def same_name(name):
    """What the names of a photograph have in common, however people write them."""
    return _keys(name)[1]


def _keys(name):
    """What a name is compared by: itself, then without suffix."""
    name = plain(name).casefold()
    return name, SUFFIX.sub("", name)
