"""Files from anywhere, read with care.

Their size is bounded. An XML file with a DOCTYPE is refused, because entities can grow without bound. A wrong shape
ends in one line that names the file, the place and the value.
"""
import codecs
import json
import math
import os
import re
import stat
from xml.etree import ElementTree
from xml.parsers import expat

from ccnn._util.errors import UserError, reason
from ccnn._util.text import shortened

LIMIT = 1 << 29         # bytes; the largest list of COCO has 470 MB
PROLOG = 1 << 14        # bytes before the first element of an XML file


def read_bytes(path, what="it"):
    """The content of a file. what : completes "cannot read ..." """
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) and not str(path).startswith("/dev/"):     # as in --classes <(sort a.txt)
            raise UserError(f"{path}: is not a file, or a link to a device; remove it")
        if found.st_size > LIMIT:
            raise UserError(f"{path}: has {found.st_size >> 20} MB; expected at most {LIMIT >> 20}: split it")
        with open(path, "rb") as file:
            return file.read(LIMIT)
    except OSError as error:
        raise UserError(f"{path}: cannot read {what}: {reason(error)}") from None


def decode(path, what="it"):
    """(text, name of its encoding): UTF-8, UTF-16 with its mark, or else Windows' cp1252."""
    data = read_bytes(path, what)
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise UserError(f"{path}: is an archive or an Excel workbook; unpack it, or save the sheet as CSV UTF-8")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encodings = ["utf-16"]
    else:
        encodings = ["utf-8-sig", "cp1252"]
    for encoding in encodings:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text, encoding
    raise UserError(f"{path}: is not text in UTF-8, UTF-16 or cp1252; save it as UTF-8")


def parse_xml(path):
    """The root of an XML file."""
    return parse_xml_bytes(read_bytes(path), path)


def parse_xml_bytes(data, path):
    """The root of XML. path : what a message calls it"""
    try:
        if _first_in_xml(data) != "element":
            raise UserError(f"{path}: has a DOCTYPE, with which a small file can ask for unbounded memory; remove it")
        return ElementTree.fromstring(data)
    except (ElementTree.ParseError, expat.ExpatError, LookupError, ValueError) as error:   # an encoding of that name
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: is not XML: {error}") from None


def _first_in_xml(data):
    """What comes first in an XML file: its root "element" or a "doctype". After the root there can be no DOCTYPE.

    The file is read up to that point only, tag by tag. A handler that raises is not enough: expat goes on until the
    end of what it was given, and expands entities all the while.
    """
    found, start = [], 0
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = lambda *_: found.append("doctype")
    parser.StartElementHandler = lambda *_: found.append("element")
    for bracket in re.finditer(b">", data[:PROLOG]):
        parser.Parse(data[start:bracket.end()], False)
        start = bracket.end()
        if found:
            return found[0]
    parser.Parse(data[start:PROLOG], True)
    raise expat.ExpatError(f"no element in the first {PROLOG} bytes")


def parse_json(path):
    """What a JSON file holds."""
    try:
        return load_json(read_bytes(path))
    except ValueError as error:
        raise UserError(error if isinstance(error, UserError) else f"{path}: is not JSON: {error}") from None


def load_json(text, **options):
    """json.loads; a ValueError also where brackets are nested too deeply, and for whole numbers of more than 19 digits,
    of which a million take minutes to read."""
    def whole(digits):
        if len(digits) > 20:
            raise ValueError(f"a number has {len(digits)} digits")
        return int(digits)

    try:
        return json.loads(text, parse_int=whole, **options)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None


def get(item, key, kind, where):
    """item[key], which must be of a kind."""
    value = item.get(key) if isinstance(item, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        names = {int: "a whole number", str: "text", list: "a list", dict: "an object"}
        wanted = " or ".join(names[k] for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise UserError(f"{where}: {key} must be {wanted}; got {shortened(value)}")
    return value


def items(item, key, where):
    """(object, place) of a list of objects."""
    for k, value in enumerate(get(item, key, list, where)):
        if not isinstance(value, dict):
            raise UserError(f"{where}, {key}[{k}]: must be an object, {{...}}; got {shortened(value)}")
        yield value, f"{where}, {key}[{k}]"


def number(value, where):
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or isinstance(value, bool):
        raise UserError(f"{where} must be a number; got {shortened(value)}")
    return number


def numbers(values, count, where):
    if not isinstance(values, list) or len(values) != count:
        raise UserError(f"{where} must be {count} numbers; got {shortened(values)}")
    return [number(value, where) for value in values]


def fractions(y0, x0, y1, x1, height, width, skipped):
    """A box in fractions of the photograph, clipped to it; None if nothing is left or the size is not known."""
    if not height or not width:
        return None
    box = [min(max(side / length, 0), 1) for side, length in ((y0, height), (x0, width), (y1, height), (x1, width))]
    if box[0] < box[2] and box[1] < box[3]:
        return tuple(box)
    skipped["boxes that are empty or outside the photograph: their tags were taken"] += 1
