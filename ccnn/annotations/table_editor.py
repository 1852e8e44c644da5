"""tags.csv, changed row by row. Columns that are not ours, their order and the separator stay as they are.

    table = TagFile(Path("photos/tags.csv"), classes)
    table.tags["a.jpg"]                             # (tags, large), names of classes
    table.put("a.jpg", ("cat",), ())
    table.remove("b.jpg")
    table.write()

A row says that somebody has decided; without tags it says that none of the classes is there. A table with one row per
tag, or with one column per class, is written as image,tags,large; `replaced` then holds its bytes.
"""
import codecs
import csv
import io
from pathlib import Path
from typing import Optional

from ccnn._util.files import rewrite
from ccnn.annotations.table_reader import Columns, find_columns, read_rows, read_table
from ccnn.images.ids import image_id

HEADER = ["image", "tags", "large"]


class TagFile:
    def __init__(self, path: Path, classes: tuple) -> None:
        self.path = path
        self.separator, self.first, self.mark, self.end = ",", "", b"", "\n"
        self.header: list = list(HEADER)
        self.columns = {"image": 0, "tags": 1, "large": 2}
        self.tags: dict = {}                    # {name: (tags, large)}
        self.rows: dict = {}                    # {name: [field]}
        self.replaced: Optional[bytes] = None
        if path.is_file():
            self.read(classes)

    def read(self, classes: tuple) -> None:
        data, found = self.path.read_bytes(), read_rows(self.path)
        self.separator, self.first = found.separator, f"sep={found.separator}" if found.named else ""
        self.mark = b"" if is_utf8_without_mark(data) else codecs.BOM_UTF8
        self.end = "\r\n" if b"\r\n" in data else "\n"
        rows = dict(found.rows)                 # {line number: [field]}
        columns = find_columns(found.rows[0][1]) if rows else None
        header = rows.pop(found.rows[0][0]) if columns else []
        table = read_table(self.path, classes, check_name=image_id)[0] if rows else {}
        self.tags = {name: (labels.tags, labels.large or ()) for name, labels in table.items()}
        if columns and (columns.tags is None or columns.per_tag):
            self.replaced = data
            self.rows = {name: [name] for name in self.tags}
        else:
            self.rows = {name: rows[int(labels.place.split()[1])] for name, labels in table.items()}
            self.find_places(header, columns)

    def find_places(self, header: list, columns: Optional[Columns]) -> None:
        """Where the columns are that we change; without a header, as HEADER has them."""
        if columns:
            self.header, places = header, {"image": columns.image, "tags": columns.tags, "large": columns.large}
            self.columns = {column: place for column, place in places.items() if place is not None}

    def put(self, name: str, tags: tuple, large: tuple) -> None:
        if "large" not in self.columns and large:
            self.columns["large"] = len(self.header)
            self.header.append("large")
        self.tags[name] = tags, large
        cells = self.rows.setdefault(name, [])
        cells += [""] * (len(self.header) - len(cells))
        cells[self.columns["image"]] = cells[self.columns["image"]] or name

    def remove(self, name: str) -> None:
        self.tags.pop(name, None)
        self.rows.pop(name, None)

    def rename(self, before: str, after: str) -> None:
        """Another name of a class, in every row."""
        self.tags = {name: tuple(tuple(after if tag == before else tag for tag in tags) for tags in both)
                     for name, both in self.tags.items()}

    def write(self) -> None:
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=self.separator, lineterminator=self.end)
        if self.first:
            text.write(self.first + self.end)
        writer.writerow(self.header)
        for name, cells in self.rows.items():
            cells += [""] * (len(self.header) - len(cells))
            for column, names in zip(("tags", "large"), self.tags[name]):
                if column in self.columns:
                    cells[self.columns[column]] = ";".join(names)
            writer.writerow(cells)
        rewrite(self.path, self.mark + text.getvalue().encode())
        self.replaced = None


def is_utf8_without_mark(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return not data.startswith(codecs.BOM_UTF8)
