"""A table of tags as people have it: a CSV file in any usual encoding, with any usual separator.

    image,tags,large      one row per photograph; ; , | or blanks between tags; large: those of more than a tenth of it
    image,tag             one row per photograph and tag: the heading is singular (tag, label, class, category)
    image,cat,dog         one column per class, with 1, x, yes, true or 0, no, false, nothing

Columns may have any order if the first line names them. Without such a line they are image, tags and, if there are
three, large. The separator is a comma, a semicolon or a tab. Excel's `sep=;` in the first line is obeyed. The text is
UTF-8, UTF-16 with its mark, or else Windows' cp1252.
"""
import csv
import io
import re
from collections import Counter
from typing import NamedTuple, Optional

from ccnn._util.errors import Mistakes, UserError, nearest
from ccnn._util.foreign_files import decode
from ccnn._util.text import plain
from ccnn.images.formats import SUFFIX, SUFFIXES
from ccnn.images.labels import BACKGROUND, VOC_CLASSES, not_a_class

# Headings, without blanks and _ and in lower case. Of several columns for the image the first in this order is taken.
IMAGE_HEADINGS = ("image", "images", "filename", "file", "imagename", "imagefile", "imagepath", "filepath", "path",
                  "photo", "photograph", "picture", "name", "imageid", "id")
TAGS_HEADINGS = ("tags", "labels", "classes", "categories", "keywords", "objects")
TAG_HEADINGS = ("tag", "label", "class", "category", "object", "classname", "labelname")
LARGE_HEADINGS = ("large",)

YES = {"1", "1.0", "x", "yes", "y", "true", "wahr", "vrai"}      # Excel translates TRUE
NO = {"", "0", "0.0", "-", "no", "n", "false", "falsch", "faux"}

PHOTOGRAPH = f".*?(?:{'|'.join(map(re.escape, SUFFIXES))})"
FIRST_FIELD = re.compile(rf'(?:"(?:[^"]|"")*"\s*|{PHOTOGRAPH}\s*|[^,;\t]*)([,;\t])', re.IGNORECASE)

COLUMNS = 10_000            # of a table: each row is filled up to that width


class Labels(NamedTuple):
    """What a source says of a photograph."""
    tags: tuple             # class names; the background is none of them
    large: Optional[tuple]  # those that cover more than a tenth of it; None: not known
    boxes: Optional[list]   # [(class name, y0, x0, y1, x1)] in fractions of height and width; None: not known
    place: str              # where the source says it: "line 3"


class Columns(NamedTuple):
    """Which column of a table says what, by number."""
    image: int
    tags: Optional[int]
    large: Optional[int]
    classes: dict           # {number: class name} of a table with one column per class
    per_tag: bool           # one row per photograph and tag
    width: int              # of the header; 0: there is none


WITHOUT_HEADER = Columns(0, 1, 2, {}, False, 0)


def read_table(path, classes=None, check_name=str):
    """({image name: Labels}, {what was left out: how often}) of a table. All its mistakes are reported at once.

    classes : the names that may occur; None: any. They decide whether "polar bear" is one tag. Without them a blank
    separates tags unless some field of the table has ; , or | in it, or there is one row per tag.
    check_name : raises UserError for the name of an image that cannot be meant.
    """
    rows = read_rows(path).rows
    mistakes, skipped = [], Counter()
    columns = find_columns(rows[0][1]) if rows else None
    if columns:
        number, header = rows.pop(0)
        columns = _known_classes(columns, classes, skipped, lambda text: mistakes.append((f"line {number}", text)))
        used = {columns.image, columns.tags, columns.large, *columns.classes}
        skipped.update(f"column {name!r} is neither image, tags, large nor a class"
                       for k, name in enumerate(header) if name and k not in used)
    elif _is_strange_header(rows, classes):
        number, header = rows.pop(0)
        mistakes.append((f"line {number}", f"{header[0]!r} is not a photograph; if the line names the columns, call "
                         "them image,tags or image,tags,large"))
    reader = _RowReader(columns or WITHOUT_HEADER, rows, classes)
    found = {}                                      # {image id: (name, Labels)}
    for number, cells in rows:
        try:
            name, labels = reader.read(cells, f"line {number}")
            check_name(name)
            id = SUFFIX.sub("", name)
            if id in found:
                name, before = found[id]
                if not reader.columns.per_tag:
                    raise UserError(f"image {name!r} has a row already, {before.place}; remove one of them, or call "
                                    "the column `tag` if there is one row per tag")
                labels = merged(before, labels)
            found[id] = name, labels
        except UserError as error:
            mistakes.append((f"line {number}", str(error)))
    if mistakes:
        raise Mistakes(path, mistakes)
    if not found:
        raise UserError(f"{path}: lists no image; write one row per photograph, such as a.jpg,cat;dog")
    return dict(found.values()), skipped


def merged(first, second):
    """What two entries say of the same photograph."""
    def both(a, b):
        return None if a is None or b is None else type(a)(dict.fromkeys((*a, *b)))
    return Labels(both(first.tags, second.tags), both(first.large, second.large), both(first.boxes, second.boxes),
                  first.place)


def split_tags(text, known=(), blanks=True):
    """The tags of a field, each once. A known name that stands alone may hold separators."""
    text = plain(text)
    if text in known:
        names = [text]
    elif re.search("[;,|]", text):
        names = re.split("[;,|]", text)
    else:
        names = text.split() if blanks else [text]
    return tuple(name for name in dict.fromkeys(map(str.strip, names)) if name and name != VOC_CLASSES[BACKGROUND])


# Rows

class _RowReader:
    def __init__(self, columns, rows, classes):
        self.columns = columns
        self.known = None if classes is None else {plain(name): name for name in classes[BACKGROUND + 1:]}
        cells = [row[k] for _, row in rows for k in (columns.tags, columns.large) if k is not None and k < len(row)]
        self.blanks = not columns.per_tag and not any(re.search("[;,|]", cell) for cell in cells)
        self.has_large = columns.large is not None and (columns.width or any(len(row) > 2 for _, row in rows))

    def read(self, cells, place):
        """(image name, Labels) of a row."""
        columns = self.columns
        broken = next((cell for cell in cells if re.search("[\r\n]", cell)), None)
        if broken:
            raise UserError(f"the field {broken.splitlines()[0]!r} goes on in the next line; close its quotation mark")
        width = columns.width or 3
        name = plain((cells + [""] * width)[columns.image]).replace("\\", "/")
        if not name or any(cells[width:]) or (not columns.width and len(cells) < 2):
            expected = f"an image's name and {width} fields as in the header" if columns.width else \
                       "image,tags or image,tags,large with ; between tags"
            raise UserError(f"expected {expected}; got {cells!r}")
        cells = cells + [""] * width        # Excel drops empty fields at the end of a row
        if columns.tags is None:
            tags = tuple(name for k, name in columns.classes.items() if self.yes(cells[k], name))
        else:
            tags = self.names(cells[columns.tags])
        large = self.large(cells[columns.large], tags) if self.has_large else None
        return name, Labels(tags, large, None, place)

    def yes(self, cell, name):
        if cell.casefold() in NO:
            return False
        if cell.casefold() in YES or cell.isdecimal():      # a number of objects
            return True
        raise UserError(f"column {name!r} holds {cell!r}; expected 1 (or x) where the class is present, or 0")

    def names(self, cell):
        if self.known is None:
            return split_tags(cell, blanks=self.blanks)
        tags = split_tags(cell, self.known)
        for tag in tags:
            if tag not in self.known:
                raise UserError(f"tag {not_a_class(tag, self.known)}")
        return tuple(self.known[tag] for tag in tags)

    def large(self, cell, tags):
        if len(tags) == 1 and cell.casefold() in YES | NO:
            return tags if cell.casefold() in YES else ()
        large = self.names(cell)
        for tag in large:
            if tag not in tags:
                raise UserError(f"{tag!r} is large but not among the tags; put ; between tags")
        return large


# The header

def find_columns(header):
    """The columns that a first line names, or None if it has no column for the image."""
    names = [re.sub(r"[\s_-]", "", name.casefold()) for name in header]

    def find(words):
        return next((names.index(word) for word in words if word in names), None)

    image, large = find(IMAGE_HEADINGS), find(LARGE_HEADINGS)
    tags = find(TAGS_HEADINGS + TAG_HEADINGS)
    if image is None or len(header) < 2:
        return None
    classes = {}
    if tags is None:
        classes = {k: plain(name) for k, name in enumerate(header)
                   if name and k != large and names[k] not in IMAGE_HEADINGS}
    return Columns(image, tags, large, classes, tags is not None and names[tags] in TAG_HEADINGS, len(header))


def _known_classes(columns, classes, skipped, mistake):
    """The columns, but of those for a class only the known ones; a name that is nearly one is a mistake."""
    if classes is None or not columns.classes:
        return columns
    known = {plain(name): name for name in classes[BACKGROUND + 1:]}
    for name in columns.classes.values():
        if name not in known and nearest(name, known):
            mistake(f"column {not_a_class(name, known)}")
    return columns._replace(classes={k: known[name] for k, name in columns.classes.items() if name in known})


def _is_strange_header(rows, classes):
    """Whether the first line has no photograph, while every other line has, and no classes as its tags."""
    if not rows:
        return False
    (_, first), *others = rows
    is_row = classes and len(first) > 1 and set(split_tags(first[1], classes)) <= set(classes)
    return others and not is_row and not SUFFIX.search(first[0]) and all(SUFFIX.search(row[0]) for _, row in others)


# From bytes to rows

class Rows(NamedTuple):
    """A table before its fields are understood."""
    rows: list              # [(line number, [field])] of the rows that are not empty
    separator: str
    named: bool             # the first line is Excel's `sep=;`


def read_rows(path):
    text, _ = decode(path, "the tags")
    first, _, rest = text.partition("\n")
    skip, named = 0, re.fullmatch(r'"?sep=(.)"?\s*', first)        # Excel's own way to name the separator
    if named:
        skip, text, separator = 1, rest, named[1]
    else:
        separator = _separator(text.splitlines())
    rows, number = [], skip + 1
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=separator != "\t")
    try:
        for row in reader:
            if len(row) > COLUMNS:
                raise UserError(f"{path}, line {number}: has {len(row)} columns; expected at most {COLUMNS}")
            if any(map(str.strip, row)):
                rows.append((number, [cell.strip() for cell in row]))
            number = skip + reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path}, line {number}: cannot read the table: {error}") from None
    return Rows(rows, separator, bool(named))


def _separator(lines):
    """The separator of a header, else the one that follows the image's name in most lines."""
    for separator in ",;\t":
        if lines and find_columns([cell.strip(' "') for cell in lines[0].split(separator)]):
            return separator
    votes = Counter(found[1] for line in lines if (found := FIRST_FIELD.match(line.strip(" "))))
    return votes.most_common(1)[0][0] if votes else ","
