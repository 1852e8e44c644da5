"""The folder as the page sees it: photographs by number, classes, tags, scribbles. The files always win.

    album = Album(Path("photos"))
    album.refresh()                     # what has changed outside since the last time
    album.put_tags([Change(3, 12, ("cat",), ())])

Every change is written to the files that ccnn learn reads before any page hears of it. Each photograph has a
revision, which grows with every change of it: who changes a photograph says which revision was seen, so that two pages
do not overwrite each other. One thread at a time may call what changes something. The album's own revision grows last:
what another thread has found out under a revision is whole.
"""
import contextlib
import io
import json
import os
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np
from PIL import Image, ImageDraw

from ccnn._util.errors import ImageError, UserError
from ccnn._util.files import digest, rewrite, save
from ccnn._util.foreign_files import decode, parse_json, read_bytes
from ccnn._util.text import and_more, plural
from ccnn._util.work_folder import WORK, check_links
from ccnn.annotations.table_editor import TagFile
from ccnn.data.samples import SCRIBBLES
from ccnn.images.formats import SUFFIX
from ccnn.images.ids import inside
from ccnn.images.labels import BACKGROUND, VOC_CLASSES, VOID, indexed, read_classes
from ccnn.images.listing import PhotographIndex, image_folder
from ccnn.images.reading import read_mask, upright_shape
from ccnn.images.regions import fill_runs
from ccnn.project.folder import check_class_names
from ccnn.project.mark_history import History, NoStep
from ccnn.supervision.rules_file import RULES_FILE, read_rules

CLASSES, TAGS = "classes.txt", "tags.csv"

DAMAGED = "is damaged, or not a photograph; replace it, or remove it"

class Conflict(Exception):
    """Somebody else has changed it meanwhile."""


class NotThere(Exception):
    """What was asked for does not exist, or not yet."""


class Change(NamedTuple):
    """The tags of a photograph, as somebody wants them."""
    number: int
    revision: int               # that was seen
    tags: Optional[tuple]       # names of classes; None: no decision
    large: tuple


class LateChange(NamedTuple):
    """The same from a page that has waited for a new server: numbers and revisions are others now."""
    name: str                   # of the photograph, as the page has it
    before: tuple               # (tags, large) that were seen
    tags: Optional[tuple]
    large: tuple


class Stroke(NamedTuple):
    label: int                  # VOID erases
    radius: float               # in long sides of the photograph
    points: list                # [(x, y)] in 0..1


class Region(NamedTuple):
    label: int                  # VOID erases
    runs: list                  # [start, length, ...] of pixels, row by row
    size: tuple                 # (height, width) of the photograph


class Outcome(NamedTuple):
    """Of some changes: the numbers of the photographs that were changed, that others had changed, and {number, or name
    of what is not there: why}."""
    written: list
    conflicts: list
    refused: dict


@dataclass
class Photograph:
    number: int
    path: str                               # from the folder of photographs, / between names
    stamp: tuple = ()                       # of the file: time and size
    tags: Optional[tuple] = None
    large: tuple = ()
    row: Optional[str] = None               # its name in tags.csv
    scribble: int = 0                       # revision of the scribble; 0: none
    scribble_stamp: Optional[tuple] = None
    problem: Optional[str] = None
    gone: bool = False
    revision: int = 0

    def __post_init__(self) -> None:
        self.id = SUFFIX.sub("", self.path)

    @property
    def version(self) -> str:
        return f"{self.stamp[0]:x}-{self.stamp[1]:x}"

    def state(self) -> tuple:
        return self.stamp, self.tags, self.large, self.scribble_stamp, self.problem, self.gone


class Album:
    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.identity = self.root.stat().st_dev, self.root.stat().st_ino
        self.work = self.root / WORK
        self.history = History(self.work / "studio/history")
        self.photographs: list[Photograph] = []
        self.by_path: dict[str, Photograph] = {}
        self.classes: tuple = VOC_CLASSES[:1]
        self.table = TagFile(self.root / TAGS, self.classes) if not (self.root / TAGS).exists() else None
        self.rules = None
        self.revision = 1
        self.problem: Optional[str] = None          # why nothing can be changed
        self.rows_alone: list[str] = []             # what is wrong with rows of tags.csv, for ccnn learn
        self.seen: Optional[tuple] = None
        self.folder_stamp: Optional[tuple] = None
        self.skipped: dict[str, str] = {}               # {path: why} of photographs in formats that are not read
        self.unreadable: dict[str, tuple] = {}          # {path: (stamp, why)} of files that could not be read
        self.rules_stamp: Optional[tuple] = None        # of constraints.toml
        self._why: tuple = 0, None                      # (revision, why_not)

    # Reading

    @property
    def images(self) -> Path:
        return Path(image_folder(self.root))

    def file(self, photograph: Photograph) -> Path:
        """The file of a photograph, which lies in the folder, whatever links there are."""
        path = self.images / photograph.path
        if not inside(path, self.root):
            raise UserError(f"{photograph.path}: is a link out of the folder; copy the file there")
        return path

    def refresh(self, thorough: bool = True) -> Optional[list]:
        """Read what has changed in the folder. [photographs that differ]; None: nothing has changed at all.

        thorough : look at every photograph; else only if the folder itself or a text has changed
        """
        images, texts = self.images, self.text_stamps()
        folder = stamp(images)
        if not thorough and self.seen and (folder, texts) == (self.folder_stamp, self.seen[1]):
            return None
        self.folder_stamp = folder
        files = PhotographIndex(str(images))
        stamps = {path: found for path in (*files.paths, *files.skipped) if (found := stamp(images / path))}
        self.skipped = files.skipped
        if (stamps, texts, self.scribble_stamps()) == self.seen:
            return None
        before = {photograph.number: photograph.state() for photograph in self.photographs}
        texts_before = self.classes, self.rules_stamp
        self.read_texts()
        self.rules_stamp = texts[2]
        rows = self.rows_by_path(files)
        for path in self.visible_paths(list(stamps), rows):
            self.read_photograph(path, stamps[path], rows.get(path))
        self.find_problems(stamps)
        self.seen = stamps, texts, self.scribble_stamps()
        return self.note_changes(before, texts_before)

    def note_changes(self, before: dict, texts_before: tuple) -> list:
        """New revisions for the photographs whose state differs from {number: state} before."""
        changed = [photograph for photograph in self.photographs
                   if photograph.state() != before.get(photograph.number)]
        revision = self.revision + 1
        for photograph in changed:
            if photograph.scribble_stamp != before.get(photograph.number, [None] * 4)[3]:
                photograph.scribble = revision if photograph.scribble_stamp else 0
            photograph.revision = revision
        if changed or texts_before != (self.classes, self.rules_stamp):
            self.revision = revision
        return changed

    def text_stamps(self) -> list:
        return [stamp(self.root / name) for name in (CLASSES, TAGS, RULES_FILE)]

    def read_texts(self) -> None:
        """classes.txt, tags.csv, constraints.toml. Where one cannot be read, what was known before stays."""
        self.problem = None
        try:
            if (self.root / CLASSES).is_file() and (self.root / CLASSES).stat().st_size:
                classes = read_classes(self.root / CLASSES)
                check_class_names(classes, CLASSES)
                self.classes = classes
            else:
                self.classes = VOC_CLASSES[:1]
            rules = self.root / RULES_FILE
            self.rules = read_rules(str(rules), self.classes) if rules.is_file() else None
            self.table = TagFile(self.root / TAGS, self.classes)
        except (UserError, OSError) as error:
            self.problem = str(error).replace(f"{self.root}/", "")

    def rows_by_path(self, files: PhotographIndex) -> dict:
        """{path: name in tags.csv}; rows that no photograph, or another row's photograph belongs to are remembered."""
        found: dict = {}
        self.rows_alone = []
        for name in self.table.tags if self.table else ():
            try:
                path = files.at(name) or (name if name in files.skipped else None)
            except UserError as error:
                self.rows_alone.append(str(error))
                continue
            if path is None:
                self.rows_alone.append(f"{name!r}: {files.why_not_found(name)}".replace(f"{self.root}/", ""))
            elif path in found:
                self.rows_alone.append(f"{name!r} and {found[path]!r} are one photograph")
            else:
                found[path] = name
        return found

    def visible_paths(self, paths: list, rows: dict) -> list:
        """The photographs of the folder itself, and those in tags.csv; all below it if there are none."""
        own = [path for path in paths if "/" not in path or path in rows]
        return own or [path for path in paths if not path.startswith(f"{SCRIBBLES}/")]

    def read_photograph(self, path: str, stamp: tuple, row: Optional[str]) -> None:
        photograph = self.by_path.get(path)
        if not photograph:
            photograph = Photograph(len(self.photographs), path)
            self.photographs.append(photograph)
            self.by_path[path] = photograph
        photograph.stamp, photograph.row = stamp, row
        if self.table and not self.problem:
            photograph.tags, photograph.large = self.table.tags[row] if row else (None, ())
        photograph.scribble_stamp = self.scribble_stamp(photograph)

    def find_problems(self, stamps: dict) -> None:
        """Names that ccnn learn could not tell apart or read."""
        ids, images = {}, self.images
        for photograph in self.photographs:
            photograph.gone = photograph.path not in stamps
            photograph.problem = None
            if photograph.gone:
                continue
            if photograph.path in self.skipped:
                photograph.problem = f"cannot be read: {self.skipped[photograph.path]}"
                continue
            other = ids.setdefault(photograph.id, photograph)
            if other is not photograph:
                photograph.problem = f"has the same name as {display_name(other.path)}; rename one of them"
            elif not is_plain_name(photograph.path):
                photograph.problem = "its name has characters that a table cannot hold; rename it"
            elif leads_out(images / photograph.path, self.root):
                photograph.problem = "is a link out of the folder; copy the file there"
            elif self.is_unreadable(photograph):
                photograph.problem = self.unreadable[photograph.path][1]

    def is_unreadable(self, photograph: Photograph) -> bool:
        """Whether the file is not read, or could not be read and is still the same."""
        return photograph.path in self.skipped or self.unreadable.get(photograph.path, ("", ""))[0] == photograph.stamp

    def mark_unreadable(self, photographs: list, why: str = DAMAGED) -> None:
        """These cannot be read, as long as their files stay as they are."""
        new = [photograph for photograph in photographs if not photograph.problem]
        for photograph in new:
            self.unreadable[photograph.path] = photograph.stamp, why
            photograph.problem = why
            photograph.revision = self.revision + 1
        if new:
            self.revision += 1

    # Telling

    def get(self, number: int) -> Photograph:
        if not 0 <= number < len(self.photographs):
            raise NotThere(f"there is no photograph {number}")
        return self.photographs[number]

    def there(self) -> list:
        return [photograph for photograph in self.photographs if not photograph.gone]

    def decided(self) -> list:
        return [photograph for photograph in self.there() if photograph.tags is not None]

    def describe(self, photograph: Photograph) -> dict:
        """For the page; what has its usual value is left out."""
        label = {name: number for number, name in enumerate(self.classes)}
        described = {"number": photograph.number, "name": display_name(photograph.path), "version": photograph.version,
                "revision": photograph.revision, "tags": None}
        if photograph.tags is not None:
            described["tags"] = sorted(label[name] for name in photograph.tags if name in label)
        if photograph.large:
            described["large"] = sorted(label[name] for name in photograph.large if name in label)
        for key in ("scribble", "problem", "gone"):
            if getattr(photograph, key):
                described[key] = getattr(photograph, key)
        return {**described, **self.history.counts(photograph.path)}

    def counts(self) -> dict:
        there, decided = self.there(), self.decided()
        return {"photographs": len(there), "decided": len(decided), "undecided": len(there) - len(decided),
                "none": sum(not photograph.tags for photograph in decided)}

    @property
    def sizes(self) -> bool:
        """Whether some photograph has a large tag; then ccnn learn bounds the sizes in every one."""
        return any(photograph.large for photograph in self.photographs if not photograph.gone)

    def images_with(self) -> dict:
        """{class: number of photographs}"""
        counts = dict.fromkeys(self.classes, 0)
        for photograph in self.decided():
            for name in photograph.tags:
                counts[name] = counts.get(name, 0) + 1
        return counts

    def why_not(self) -> Optional[str]:
        """Why nothing can be learned yet, in one line; None if it can. Found out once per revision."""
        if self.problem:
            return self.problem
        if self._why[0] != self.revision:
            self._why = self.revision, self.find_why_not()
        return self._why[1]

    def find_why_not(self) -> Optional[str]:
        if self.rows_alone:
            return f"{TAGS}: {self.rows_alone[0]}{and_more(self.rows_alone)}; mend the names, or remove their rows"
        if len(self.classes) < 2:
            return "add a class first"
        if not any(photograph.tags for photograph in self.decided()):
            return "tag some photographs first"
        broken = [photograph.path for photograph in self.decided()
                  if photograph.problem and not self.is_unreadable(photograph)]     # ccnn learn leaves those out
        return f"{broken[0]}{and_more(broken)}: cannot be learned from; remove its tags" if broken else None

    # Tags

    def check(self) -> None:
        """UserError if nothing can be changed; changes from outside are read first."""
        found = self.root.stat() if self.root.is_dir() else None
        if not found or (found.st_dev, found.st_ino) != self.identity:      # a change would make a second folder
            raise UserError(f"{self.root}: the folder was moved or replaced; start the studio again where it is now")
        if not self.seen or self.text_stamps() != self.seen[1]:
            self.refresh()
        if self.problem:
            raise UserError(self.problem)

    def put_tags(self, changes: list) -> Outcome:
        """changes : [Change or LateChange]"""
        self.check()
        outcome = Outcome([], [], {})
        todo = []
        for change in self.with_numbers(changes, outcome):
            photograph = self.get(change.number)
            if photograph.revision != change.revision:
                outcome.conflicts.append(change.number)
            elif why := self.why_refused(photograph, change):
                outcome.refused[change.number] = why
            else:
                todo.append(change)
        if todo:
            self.write_tags(todo)
            outcome.written.extend(change.number for change in todo)
        return outcome

    def with_numbers(self, changes: list, outcome: Outcome) -> list:
        """[Change]: a LateChange gets the present number and revision. What is already as it is wanted is no conflict:
        the page did not hear the answer."""
        found, late = [], any(isinstance(change, LateChange) for change in changes)
        names = {display_name(photograph.path): photograph for photograph in self.there()} if late else {}
        for change in changes:
            photograph = names.get(change.name) if isinstance(change, LateChange) else None
            if not isinstance(change, LateChange):
                found.append(change)
            elif not photograph:
                outcome.refused[change.name] = "it is no longer in the folder"
            elif as_sets(photograph.tags, photograph.large) in (as_sets(*change.before),
                                                                as_sets(change.tags, change.large)):
                found.append(Change(photograph.number, photograph.revision, change.tags, change.large))
            else:
                outcome.conflicts.append(photograph.number)
        return found

    def why_refused(self, photograph: Photograph, change: Change) -> Optional[str]:
        if photograph.gone:
            return "it is no longer in the folder"
        if photograph.problem and change.tags is not None:
            return photograph.problem
        marked = self.marked(photograph) - set(change.tags or ())
        if marked:
            return f"scribbles mark {min(marked)!r} in it; erase them first"
        if change.tags is None and photograph.scribble:
            return "there are scribbles in it; erase them first"
        return None

    def write_tags(self, changes: list) -> None:
        """Write the table; it and the photographs are as before if that fails."""
        table = self.table
        for change in changes:
            photograph = self.photographs[change.number]
            name = photograph.row or photograph.path
            if change.tags is None:
                table.remove(name)
            else:
                table.put(name, change.tags, change.large)
        self.write_table()
        for change in changes:
            photograph = self.photographs[change.number]
            photograph.tags, photograph.large = change.tags, change.large
            photograph.row = None if change.tags is None else photograph.row or photograph.path
            photograph.revision = self.revision + 1
        self.revision += 1

    def write_table(self) -> None:
        if self.table.replaced:                     # another layout: the old table is kept
            save(self.work / "studio" / f"{TAGS[:-4]}_before.csv", self.table.replaced)
        try:
            self.table.write()
        except OSError:
            self.table, self.seen = TagFile(self.root / TAGS, self.classes), None
            raise
        self.note_written()

    def note_written(self) -> None:
        """What was just written is no change from outside."""
        stamps = self.seen[0] if self.seen else {}
        self.seen, self.folder_stamp = (stamps, self.text_stamps(), self.scribble_stamps()), stamp(self.images)

    # Classes

    def add_class(self, name: str) -> None:
        self.check()
        name = unicodedata.normalize("NFC", name).strip()
        self.check_new_class(name)
        self.write_classes([*self.class_lines(), name])

    def rename_class(self, before: str, after: str) -> None:
        """First classes.txt has both names, then tags.csv the new one, then classes.txt: they agree all the time.
        A note says so meanwhile: what was killed before the end is finished later."""
        self.check()
        self.check_class(before)
        after = unicodedata.normalize("NFC", after).strip()
        self.check_new_class(after)
        self.check_rules(before)
        kind = self.kinds().get(before)
        if kind:
            self.set_kind(before, None)
        save(self.renaming, json.dumps([before, after]).encode())
        self.write_classes([*self.class_lines(), after])
        self.finish_renaming()
        if kind:
            self.set_kind(after, kind)

    @property
    def renaming(self) -> Path:
        return self.work / "studio" / "renaming.json"

    def finish_renaming(self) -> None:
        """Do the rest of what the note says, if there is one."""
        if not self.renaming.is_file():
            return
        with contextlib.suppress(ValueError, TypeError):            # a damaged note says nothing
            before, after = parse_json(self.renaming)
            lines = self.class_lines()
            if before in lines and lines[-1:] == [after]:
                if self.images_with().get(before):
                    self.table.rename(before, after)
                    self.write_table()
                self.write_classes([after if line == before else line for line in lines[:-1]])
        self.renaming.unlink()

    def remove_class(self, name: str) -> None:
        self.check()
        self.check_class(name)
        number = self.images_with().get(name, 0)
        if number:
            raise UserError(f"{plural(number, 'photograph')} {'has' if number == 1 else 'have'} the tag {name!r}; "
                            "remove these tags first")
        self.check_rules(name)
        if name != self.classes[-1] and any(photograph.scribble for photograph in self.there()):
            raise UserError("scribbles hold the numbers of the classes, which would change; only the last class can be "
                            "removed")
        if name in self.kinds():
            self.set_kind(name, None)
        self.history.forget()
        self.write_classes([line for line in self.class_lines() if line != name])

    def class_lines(self) -> list:
        path = self.root / CLASSES
        return [line.strip() for line in decode(path)[0].splitlines() if line.strip()] if path.is_file() else []

    def write_classes(self, lines: list) -> None:
        rewrite(self.root / CLASSES, "".join(f"{line}\n" for line in lines).encode())
        self.refresh()

    def check_class(self, name: str) -> None:
        if name not in self.classes[1:]:
            raise UserError(f"{name!r} is not a class")

    def check_new_class(self, name: str) -> None:
        if name in self.classes:
            raise UserError(f"there is a class {name!r} already")
        check_class_names((*self.classes, name), CLASSES)

    def set_kind(self, name: str, kind: Optional[str]) -> None:
        """Say in constraints.toml whether a class is an object or a surface; None: the photographs decide."""
        self.check()
        self.check_class(name)
        path = self.root / RULES_FILE
        before = path.read_bytes() if path.is_file() else b""
        after = with_kind(before.decode("utf-8-sig"), name, kind)
        try:
            rewrite(path, after.encode())
            self.check()
        except UserError:
            rewrite(path, before)
            self.check()
            raise UserError(f"{RULES_FILE}: the kind of {name!r} cannot be written into it; write it there: "
                            f'[{toml_key(name)}], and below it kind = "{kind or "object"}"') from None

    def kinds(self) -> dict:
        """{class: "object" or "surface"} of those of which constraints.toml says it."""
        return {self.classes[label]: kind for label, kind in self.rules.kinds.items()} if self.rules else {}

    def check_rules(self, name: str) -> None:
        path = self.root / RULES_FILE
        if path.is_file() and name in with_kind(path.read_text(encoding="utf-8-sig"), name, None):
            raise UserError(f"{RULES_FILE} has a rule about {name!r}; change it there first")

    # Scribbles

    @property
    def scribbles(self):
        """ccnn.supervision.marks.Scribbles, or None where constraints.toml names none."""
        return self.rules.scribbles if self.rules else None

    def scribble_stamps(self) -> Optional[tuple]:
        return stamp(Path(self.scribbles.folder)) if self.scribbles else None

    def scribble_file(self, photograph: Photograph) -> Optional[Path]:
        """The PNG of a photograph, whether or not it is there."""
        if not self.scribbles:
            return None
        path = Path(self.scribbles.file(photograph.id))
        return path if inside(path, self.root) else None

    def scribble_stamp(self, photograph: Photograph) -> Optional[tuple]:
        path = self.scribble_file(photograph)
        return stamp(path) if path else None

    def read_scribble(self, photograph: Photograph) -> Optional[np.ndarray]:
        """H x W uint8, VOID where nothing is known; None: nothing was marked."""
        path = self.scribble_file(photograph)
        return self.scribbles.read(photograph.id) if path and path.is_file() else None

    def marked(self, photograph: Photograph) -> set:
        """The names of the classes that scribbles mark in it."""
        mask = self.read_scribble(photograph) if photograph.scribble else None
        return names_in(mask, self.classes)

    def draw(self, number: int, revision: int, strokes: list) -> Photograph:
        """Add strokes and regions to the scribble of a photograph. A class that is marked becomes a tag."""
        self.check()
        photograph = self.get(number)
        self.check_scribble(photograph, revision)
        path = self.own_scribble_file(photograph)
        height, width = upright_shape(str(self.file(photograph)))
        mask = self.read_scribble(photograph)
        if mask is not None and mask.shape != (height, width):
            raise UserError(f"the scribble of {photograph.path} has another size than the photograph; remove it")
        mask = np.full((height, width), VOID, np.uint8) if mask is None else mask.copy()
        for stroke in strokes:
            if isinstance(stroke, Region):
                if stroke.size != (height, width):
                    raise UserError(f"{photograph.path}: has {width} x {height} pixels, the region that was sent is of "
                                    f"{stroke.size[1]} x {stroke.size[0]}; load the page again")
                fill_runs(mask, stroke.runs, stroke.label)
            else:
                picture = Image.fromarray(mask)
                draw_stroke(picture, stroke)
                mask = np.array(picture)
        before = self.scribble_bytes(photograph)
        self.check_marks(photograph, mask)
        check_links(path.parent, self.root)
        self.history.push(photograph.path, "undo", before)
        self.put_scribble(photograph, mask)
        self.history.clear(photograph.path, "redo")
        return photograph

    def step_scribble(self, number: int, revision: int, stack: str) -> Photograph:
        """Take back the last change of a scribble, or do it again; stack : "undo" or "redo" """
        self.check()
        photograph = self.get(number)
        self.check_scribble(photograph, revision)
        now = self.scribble_bytes(photograph)
        try:
            mask = self.state_before(photograph, stack, now)
        except NoStep:
            raise UserError(f"there is nothing to {stack}") from None
        check_links(self.own_scribble_file(photograph).parent, self.root)
        self.check_marks(photograph, mask)
        self.history.push(photograph.path, "redo" if stack == "undo" else "undo", now)
        self.put_scribble(photograph, mask)
        self.history.drop(photograph.path, stack)
        return photograph

    def state_before(self, photograph: Photograph, stack: str, now: Optional[bytes]) -> np.ndarray:
        """The newest state of a stack. Those that are damaged, or do not suit the photograph, are dropped."""
        shape = upright_shape(str(self.file(photograph)))
        while True:
            data = self.history.top(photograph.path, stack, now)
            if data is None:
                return np.full(shape, VOID, np.uint8)
            with contextlib.suppress(ImageError):
                mask = read_mask(io.BytesIO(data), len(self.classes))
                if mask.shape == shape:
                    return mask
            self.history.drop(photograph.path, stack)

    def own_scribble_file(self, photograph: Photograph) -> Path:
        """The PNG of a photograph, to be written by the studio; constraints.toml names its folder from now on."""
        if not self.scribbles:
            self.name_scribbles()
        path = self.scribble_file(photograph)
        if self.scribbles.colours is not None or path is None or os.path.relpath(path, self.images) in self.by_path:
            raise UserError(f"{RULES_FILE}: its scribbles are painted in colours, or lie elsewhere; paint there")
        return path

    def check_scribble(self, photograph: Photograph, revision: int) -> None:
        if photograph.scribble != revision:
            raise Conflict("somebody else has changed this scribble meanwhile")
        if photograph.gone or photograph.problem:
            raise UserError(photograph.problem or "it is no longer in the folder")

    def scribble_bytes(self, photograph: Photograph) -> Optional[bytes]:
        path = self.scribble_file(photograph)
        return read_bytes(path, "the marks") if path and path.is_file() else None

    def check_marks(self, photograph: Photograph, mask: np.ndarray) -> None:
        if photograph.tags is None and (mask == BACKGROUND).any() and not names_in(mask, self.classes):
            raise UserError("tag the photograph first: the background alone does not say what it shows")

    def put_scribble(self, photograph: Photograph, mask: np.ndarray) -> None:
        """Write a scribble, or remove it if it marks nothing. First the tags: a scribble needs them."""
        marked, tags = names_in(mask, self.classes), photograph.tags
        if marked - set(tags or ()):
            names = {*marked, *(tags or ())}
            both = tuple(name for name in self.classes if name in names)
            self.write_tags([Change(photograph.number, photograph.revision, both, photograph.large)])
        path = self.scribble_file(photograph)
        check_links(path.parent, self.root)
        if (mask == VOID).all():
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        else:
            buffer = io.BytesIO()
            indexed(mask).save(buffer, "PNG")
            save(path, buffer.getvalue())
        self.scribbles.__dict__.pop("pictures", None)           # it has listed the folder
        photograph.scribble_stamp = self.scribble_stamp(photograph)
        photograph.scribble = self.revision + 1 if photograph.scribble_stamp else 0
        photograph.revision = self.revision + 1
        self.revision += 1
        self.note_written()

    def name_scribbles(self) -> None:
        """ccnn learn uses scribbles if constraints.toml names them."""
        (self.root / SCRIBBLES).mkdir(exist_ok=True)
        path = self.root / RULES_FILE
        text = path.read_bytes() if path.is_file() else b""
        between = b"" if not text else b"\n" if text.endswith(b"\n") else b"\n\n"
        rewrite(path, text + between + b"[scribbles]\n")
        self.check()

    # New photographs

    def add_photograph(self, name: str, part: Path) -> tuple:
        """Move a file that can be read into the folder: (photograph, whether it is new)."""
        self.check()
        same = [photograph for photograph in self.there() if photograph.id == SUFFIX.sub("", name)]
        for photograph in same:
            if digest(self.file(photograph)) == digest(part):
                return photograph, False
        if same:
            raise UserError(f"{name}: there is another photograph of that name")
        check_links(self.images, self.root)
        try:
            os.link(part, self.images / name)                   # never over another file
        except FileExistsError:
            raise UserError(f"{name}: there is another file of that name") from None
        found = stamp(self.images / name)
        self.seen[0][name] = found
        self.read_photograph(name, found, None)
        photograph = self.by_path[name]
        photograph.revision, photograph.gone = self.revision + 1, False
        self.revision += 1
        return photograph, True


# Parts

def stamp(path: Path) -> Optional[tuple]:
    """(time of the last change, size, number) of a file; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def with_kind(text: str, name: str, kind: Optional[str]) -> str:
    """constraints.toml with another kind of a class, the rest as it was; None: with none."""
    lines, inside = text.splitlines(keepends=True), False
    heads = {f"[{key}]" for key in (toml_key(name), json.dumps(name, ensure_ascii=False), f"'{name}'")}
    kept, head = [], None
    for line in lines:
        if line.lstrip().startswith("["):
            inside = line.split("#")[0].strip() in heads or line.strip() in heads
            head = len(kept) if inside else head
        if not (inside and re.match(r"\s*kind\s*=", line)):
            kept.append(line)
    if kind is None:
        if head is not None and not "".join(kept[head + 1:]).split("[")[0].strip():      # the table is empty
            del kept[head]
        return "".join(kept)
    said = f'kind = "{kind}"\n'
    if head is not None:
        return "".join([*kept[:head + 1], said, *kept[head + 1:]])
    between = "" if not kept else "\n" if kept[-1].endswith("\n") else "\n\n"
    return "".join(kept) + f"{between}[{toml_key(name)}]\n{said}"


def leads_out(path: Path, root: Path) -> bool:
    """Whether a link leads out of the folder; `inside` takes longer."""
    return (path.is_symlink() or path.parent != root) and not inside(path, root)


def as_sets(tags: Optional[tuple], large: tuple) -> tuple:
    return None if tags is None else frozenset(tags), frozenset(large)


def is_plain_name(path: str) -> bool:
    """Whether a table finds the photograph again under this name."""
    odd = any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in path)
    return not odd and "\\" not in path


def display_name(path: str) -> str:
    return path.encode("utf-8", "replace").decode()


def names_in(mask: Optional[np.ndarray], classes: tuple) -> set:
    """The classes that a scribble marks."""
    if mask is None:
        return set()
    return {classes[label] for label in np.unique(mask) if BACKGROUND < label < len(classes)}


def draw_stroke(picture: Image.Image, stroke: Stroke) -> None:
    """Draw a stroke with round ends into a picture of label ids."""
    width, height = picture.size
    pen = ImageDraw.Draw(picture)
    radius = stroke.radius * max(width, height)
    points = [(x * (width - 1), y * (height - 1)) for x, y in stroke.points]
    if len(points) > 1 and radius > 0:
        pen.line(points, fill=stroke.label, width=max(1, round(2 * radius)), joint="curve")
    elif len(points) > 1:
        pen.line(points, fill=stroke.label)
    for x, y in points:
        if radius < 1:
            pen.point((round(x), round(y)), fill=stroke.label)
        else:
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=stroke.label)
