"""What a request may hold. Anything else ends here, with one line."""
import math
import re

from starlette.requests import ClientDisconnect, Request

from ccnn._util.foreign_files import load_json
from ccnn._util.text import plain
from ccnn.images.formats import PIXELS, READ, SUFFIX
from ccnn.images.labels import VOID
from ccnn.studio.album import Change, LateChange, Region, Stroke
from ccnn.studio.thumbnails import SIDES

JSON_BYTES = 1 << 20

CHANGES, STROKES, POINTS, RUNS = 5000, 200, 5000, 150_000

NAME = 200          # bytes of a photograph's name

PATH = 4096         # characters of a name with folders


class Wrong(Exception):
    """A request that cannot be meant."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


async def read_json(request: Request) -> dict:
    """The object in the body."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise Wrong("the body must be JSON, with Content-Type: application/json", 415)
    data = b""
    async for part in limited(request, JSON_BYTES):
        data += part
    try:
        value = load_json(data, parse_constant=refuse)
    except ValueError:
        raise Wrong("the body is not JSON") from None
    if not isinstance(value, dict):
        raise Wrong("the body must be an object, {...}")
    return value


def refuse(text: str):
    raise ValueError(text)


async def limited(request: Request, most: int):
    """The parts of the body; it ends where there are too many."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most:
        raise Wrong(f"the body has {int(declared)} bytes; at most {most} are taken", 413)
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise Wrong(f"the body has more than {most} bytes", 413)
            yield part
    except ClientDisconnect:
        raise Wrong("the body was cut off") from None


def only(value: dict, *keys: str) -> dict:
    """The object, if it has no other keys."""
    strange = [key for key in value if key not in keys]
    if strange:
        raise Wrong(f"{shortened(strange[0])}: no such key; known: {', '.join(keys) or 'none'}")
    return value


def whole(value, what: str, least: int = 0, most: int = 1 << 53) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Wrong(f"{what} must be a whole number from {least} to {most}; got {shortened(value)}")
    return value


def number(value, what: str, least: float, most: float) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or not least <= value <= most:
        raise Wrong(f"{what} must be a number from {least:g} to {most:g}; got {shortened(value)}")
    return float(value)


def text(value, what: str, most: int = NAME) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > most:
        raise Wrong(f"{what} must be text of 1 to {most} characters; got {shortened(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Wrong(f"{what} holds half a character") from None
    return value


def switch(value, what: str) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"{what} must be true or false; got {shortened(value)}")
    return value


def several(value, what: str, most: int) -> list:
    if not isinstance(value, list) or len(value) > most:
        raise Wrong(f"{what} must be a list of at most {most}; got {shortened(value)}")
    return value


def labels(value, what: str, classes: tuple) -> tuple:
    """The names of the classes in a list of label numbers, each once."""
    found = [whole(one, what, 1, len(classes) - 1) if len(classes) > 1 else nothing(what)
             for one in several(value, what, len(classes))]
    if len(set(found)) < len(found):
        raise Wrong(f"{what} names a class twice")
    return tuple(classes[label] for label in sorted(found))


def nothing(what: str):
    raise Wrong(f"{what}: there are no classes yet")


def changes(value: dict, classes: tuple) -> list:
    """[Change or LateChange]"""
    found: list = []
    for one in several(only(value, "changes", "identity").get("changes"), "changes", CHANGES):
        if not isinstance(one, dict):
            raise Wrong(f"a change must be an object; got {shortened(one)}")
        if "name" in one:
            only(one, "name", "before", "tags", "large")
            before = one.get("before")
            if not isinstance(before, dict):
                raise Wrong(f"before must be an object; got {shortened(before)}")
            found.append(LateChange(text(one["name"], "name", PATH), wanted(only(before, "tags", "large"), classes),
                                    *wanted(one, classes)))
        else:
            only(one, "number", "revision", "tags", "large")
            found.append(Change(whole(one.get("number"), "number"), whole(one.get("revision"), "revision"),
                                *wanted(one, classes)))
    if len({change[0] for change in found}) < len(found):
        raise Wrong("a photograph is changed twice")
    if not found:
        raise Wrong("changes: there are none")
    return found


def wanted(value: dict, classes: tuple) -> tuple:
    """(tags, large) of a change."""
    if "tags" not in value:
        raise Wrong("a change needs tags: null, or a list of labels")
    tags = None if value["tags"] is None else labels(value["tags"], "tags", classes)
    large = labels(value.get("large", []), "large", classes)
    if set(large) - set(tags or ()):
        raise Wrong(f"{min(set(large) - set(tags or ()))!r} is large but not among the tags")
    return tags, large


def strokes(value, classes: tuple) -> list:
    """[Stroke or Region]"""
    found: list = []
    for one in several(value, "strokes", STROKES):
        if not isinstance(one, dict):
            raise Wrong(f"a stroke must be an object; got {shortened(one)}")
        only(one, *(("label", "runs", "size") if "runs" in one else ("label", "radius", "points")))
        label = whole(one.get("label"), "label", 0, VOID)
        if label != VOID and label >= len(classes):
            raise Wrong(f"label {label}: no such class")
        if "runs" in one:
            found.append(Region(label, *runs(one["runs"], one.get("size"))))
            continue
        points = [tuple(number(at, "a point", 0, 1) for at in pair(point))
                  for point in several(one.get("points"), "points", POINTS)]
        if not points:
            raise Wrong("a stroke needs points")
        found.append(Stroke(label, number(one.get("radius", 0), "radius", 0, 0.5), points))
    if not found:
        raise Wrong("strokes: there are none")
    return found


def runs(value, size) -> tuple:
    """([start, length, ...], (height, width)): runs of pixels that lie one after the other."""
    height, width = (whole(side, "a side", 1, PIXELS) for side in pair(size, "size must be [height, width]"))
    numbers = [whole(one, "a run", 0, height * width) for one in several(value, "runs", RUNS)]
    if not numbers or len(numbers) % 2:
        raise Wrong("runs must be pairs: start, length, start, length, ...")
    end = 0
    for start, length in zip(numbers[::2], numbers[1::2]):
        if start < end or not length or start + length > height * width:
            raise Wrong(f"the run of {length} pixels from {start} on overlaps another one, or leaves the photograph")
        end = start + length
    return numbers, (height, width)


def pair(value, what: str = "a point must be [x, y]") -> list:
    if not isinstance(value, list) or len(value) != 2:
        raise Wrong(f"{what}; got {shortened(value)}")
    return value


def bounds(value, labels: int) -> dict:
    """{label: (least, most)}"""
    if not isinstance(value, dict):
        raise Wrong(f"bounds must be an object; got {shortened(value)}")
    found = {}
    for key, both in value.items():
        label = whole(int(key) if re.fullmatch(r"\d{1,3}", key) else key, "a label", 0, labels - 1)
        if not isinstance(both, list) or len(both) != 2:
            raise Wrong(f"bounds of a label must be [least, most]; got {shortened(both)}")
        least, most = (None if one is None else number(one, "a bound", 0, 1) for one in both)
        if least is not None and most is not None and least > most:
            raise Wrong(f"least {least:g} is more than most {most:g}")
        found[label] = least, most
    return found


def side(request: Request) -> int:
    value = request.query_params.get("side", str(SIDES[0]))
    if value not in map(str, SIDES):
        raise Wrong(f"side must be {' or '.join(map(str, SIDES))}; got {shortened(value)}")
    return int(value)


def query_number(request: Request, key: str, most: int) -> int:
    value = request.query_params.get(key, "")
    if not re.fullmatch(r"\d{1,9}", value, re.ASCII) or int(value) > most:
        raise Wrong(f"{key} must be a whole number from 0 to {most}; got {shortened(value)}")
    return int(value)


def file_name(request: Request) -> str:
    """The name of a photograph that is brought: no path, nothing hidden, nothing that a table cannot hold."""
    name = plain(text(request.query_params.get("name"), "name"))
    if any(letter in name for letter in "/\\\0") or name.startswith(".") or not name.isprintable() \
            or len(name.encode()) > NAME:
        raise Wrong(f"{shortened(name)} is not the name of a photograph")
    return name


def photograph_name(request: Request) -> str:
    """The same, of a photograph that stays in the folder."""
    name = file_name(request)
    if not SUFFIX.search(name):
        raise Wrong(f"{shortened(name)}: its name must end as that of a photograph, such as .jpg or .png ({READ})", 422)
    return name


def shortened(value) -> str:
    found = "nothing" if value is None else ascii(value) if not isinstance(value, str) else repr(value)
    return found if len(found) < 60 else found[:57] + "..."
