"""Masks as files: they carry the settings they were made with."""
import json
import sys

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ccnn.errors import UserError
from ccnn.files import whole_file
from ccnn.labels import indexed


def save_mask(path, mask, settings):
    """An indexed PNG in VOC's colours that carries the settings it was made with."""
    text = PngInfo()
    text.add_text("settings", json.dumps(settings))
    with whole_file(path) as part:
        indexed(mask).save(part, pnginfo=text)


def unfinished(work, settings, force):
    """Those (source, mask, other outputs) of `work` that are still to be made.

    Finished is a mask that carries these settings, is not older than its source, and has its other outputs beside
    it. Any other file in a mask's place is replaced only by force.
    """
    todo, foreign, sources = [], [], {}
    for source, mask, *others in work:
        if sources.setdefault(mask, source) != source:
            raise UserError(f"{sources[mask]} and {source} would both become {mask}; give them different names")
        if mask.exists():
            if mask_settings(mask) != settings:
                foreign.append(mask)
            elif not force and mask.stat().st_mtime >= source.stat().st_mtime and all(o.exists() for o in others):
                continue
        todo.append((source, mask, *others))
    if foreign and not force:
        raise UserError(f"{foreign[0]}{f' and {len(foreign) - 1} more' if foreign[1:] else ''}: made otherwise than "
                        "this command would; choose another --out, or --force to replace")
    if len(todo) < len(work):
        print(f"{len(work) - len(todo)} of {len(work)} were finished before (--force makes them again)")
    if foreign:
        print(f"replacing {len(foreign)} files that were made otherwise")
    return todo


def mask_settings(path):
    """The settings that save_mask wrote; None in a file that is not its work."""
    try:
        with Image.open(path) as image:
            return json.loads(image.info["settings"])
    except (OSError, SyntaxError, ValueError, KeyError, TypeError):     # SyntaxError: Pillow's for a broken PNG
        return None


def report(failures, made, out):
    """Say what was made, and at the end what was not; return the exit status."""
    print(f"{made} masks in {out}")
    for failure in failures:
        print(failure, file=sys.stderr)
    if failures:
        print(f"{len(failures)} failed, see above; the rest is done", file=sys.stderr)
    return 1 if failures else 0
