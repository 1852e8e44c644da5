"""Show what a file or folder says about photographs, and turn it into tags.csv and classes.txt.

    ccnn import-tags photos/Tags.csv                          shows what it understood, writes nothing
    ccnn import-tags photos/Tags.csv --write                  writes photos/tags.csv and photos/classes.txt
    ccnn import-tags export.json --photos photos --write      tags from elsewhere for the photographs of a folder

It reads, and recognises by content: a table (CSV as Excel writes it: UTF-8, UTF-16 or cp1252; comma, semicolon or
tab), a folder per class (photos/cat/*.jpg), VOC XML, COCO JSON, Label Studio's JSON and JSON-MIN, CVAT for images.
"""
import csv
import difflib
import io
import sys
from collections import Counter
from pathlib import Path

from ccnn._util.errors import Mistakes, UserError, nearest
from ccnn._util.files import rewrite
from ccnn._util.text import printable
from ccnn.annotations.importers import read_source
from ccnn.annotations.table import merged, split_tags
from ccnn.cli import command
from ccnn.images.formats import READ, SUFFIX
from ccnn.images.labels import BACKGROUND, VOC_CLASSES, read_classes
from ccnn.images.listing import PhotographIndex, image_folder, skipped_sentence

SHOWN = 10      # lines per list; the rest is counted


def known_classes(given, list_file):
    """(classes or None for any, where they come from): --classes, else the file if it is there."""
    if given and Path(given).is_file():
        return read_classes(given), given
    if given:
        return (VOC_CLASSES[BACKGROUND], *split_tags(given, blanks=False)), "--classes"
    return (read_classes(list_file), list_file) if list_file.is_file() else (None, None)


def match(images, photographs):
    """{path of a photograph: Labels}, and a line for every name that means none."""
    found, lost = {}, []
    for name, labels in images.items():
        try:
            path = photographs.find(name)
        except UserError as error:
            lost.append(f"{labels.place}: {error}")
            continue
        if path is None:
            why, near = photographs.why_not_read(name), nearest(name, photographs.paths)
            lost.append(f"{labels.place}: {name!r}"
                        + (f": {why}" if why else f"; did you mean {near!r}?" if near else ""))
        else:
            found[path] = merged(found[path], labels) if path in found else labels
    return found, lost


def show_line(text, **options):
    print(printable(text), **options)


def show(found, classes):
    """The photographs and classes, as the training will see them."""
    count, large = (Counter(name for labels in found.values() for name in getattr(labels, field) or ())
                    for field in ("tags", "large"))
    without = sum(not labels.tags for labels in found.values())
    show_line(f"{len(found)} photographs, {without} of them without a class")
    width = max(map(len, classes[1:]), default=0)
    for name in classes[1:]:
        show_line(f"  {name:{width}}  {count[name]:5}" + (f", large in {large[name]}" if has_large(found) else "")
              + likely_mistake(name, count))
    boxes = sum(len(labels.boxes or ()) for labels in found.values())
    if boxes:
        show_line(f"  {boxes} boxes are left out: tags.csv holds none (VOC XML in Annotations/ is trained on with "
                  "boxes)")


def likely_mistake(name, count):
    """A rare name that is nearly a frequent one."""
    near = [other for other in difflib.get_close_matches(name, count, 3, 0.6)
            if other != name and count[other] > 3 * count[name] > 0]
    return f"; did you mean {near[0]!r}?" if near else ""


def show_list(title, lines):
    if lines:
        show_line(f"{title}: {len(lines)}")
        show_line("".join(f"  {line}\n" for line in lines[:SHOWN]), end="")
        if lines[SHOWN:]:
            show_line(f"  and {len(lines) - SHOWN} more")


def has_large(found):
    """Whether the size is known of all that is tagged."""
    tagged = [labels for labels in found.values() if labels.tags]
    return bool(tagged) and all(labels.large is not None for labels in tagged)


def tags_csv(found):
    """The text of the table."""
    ids = {}
    for path in found:
        other = ids.setdefault(SUFFIX.sub("", path), path)
        if other != path:
            raise UserError(f"{other} and {path} differ in the suffix alone; rename one of them")
    for name in {tag for labels in found.values() for tag in labels.tags}:
        if set(name) & set(";,|\n"):
            raise UserError(f"class {name!r}: the name holds a character that separates tags; rename the class")
    columns = 3 if has_large(found) else 2
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["image", "tags", "large"][:columns])
    for path in sorted(found):
        labels = found[path]
        writer.writerow([path, ";".join(labels.tags), ";".join(labels.large or ())][:columns])
    return text.getvalue()


def write(files, force):
    """Write {path: text}; a file that says something else is replaced only by force."""
    differing = [path for path, text in files.items() if path.exists() and path.read_bytes() != text.encode()]
    if differing and not force:
        raise UserError(f"{' and '.join(map(str, differing))}: there already, and different; --force replaces")
    for path, text in files.items():
        if path.exists() and path not in differing:
            show_line(f"{path} says so already")
            continue
        show_line(f"{'replacing' if path in differing else 'writing'} {path}")
        rewrite(path, text.encode())


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("source", type=Path, help="the file or folder with the tags")
    add("--photos", type=Path, metavar="DIR", help="the photographs (default: SOURCE, or the folder it is in)")
    add("--out", type=Path, metavar="FILE", help="the table (default: tags.csv in --photos; classes.txt beside it)")
    add("--classes", metavar="NAMES", help="the classes that count, cat,dog, or a file with one per line "
        "(default: classes.txt beside the table if it is there, else all)")
    add("--write", action="store_true", help="write the table and classes.txt")
    add("--force", action="store_true", help="replace files that say something else")
    args = parser.parse_args(argv)
    if not args.source.exists():
        raise UserError(f"{args.source}: no such file or folder")
    args.photos = args.photos or (args.source if args.source.is_dir() else args.source.parent)
    args.out = args.out or args.photos / "tags.csv"
    return args


def main(argv=None):
    try:
        import_tags(parse_args(argv))
    except Mistakes as error:               # one line for each
        for line in error.lines[:-1]:
            show_line(line, file=sys.stderr)
        raise UserError(error.lines[-1] + (f" ({len(error.lines)} mistakes)" if error.lines[1:] else "")) from None


def import_tags(args):
    photographs = PhotographIndex(image_folder(args.photos))
    skipped_files = skipped_sentence(photographs.skipped)
    if not photographs.paths:
        raise UserError(f"{args.photos}: has no photographs ({READ}); name their folder with --photos"
                        + (f"; {skipped_files}" if skipped_files else ""))
    list_file = args.out.with_name("classes.txt")
    known, origin = known_classes(args.classes, list_file)
    kind, images, skipped = read_source(args.source, known)
    found, lost = match(images, photographs)
    tags = {name for labels in found.values() for name in labels.tags}
    classes = known or (VOC_CLASSES[BACKGROUND], *sorted(tags, key=lambda name: (name.casefold(), name)))
    show_line(f"{args.source}: {kind}" + (f"; classes of {origin}" if known else ""))
    show(found, classes)
    if skipped_files:
        show_line(skipped_files)
    show_list("left out", [f"{count} x {what}" for what, count in skipped.most_common()])
    show_list("names that are no photograph", lost)
    show_list("photographs that the source does not name", sorted(set(photographs.paths).difference(found)))
    if not tags:
        raise UserError(f"{args.source}: tags none of the photographs in {photographs.folder}; "
                        "name their folder with --photos")
    files = {args.out: tags_csv(found)}
    if origin != list_file:
        files[list_file] = "".join(f"{name}\n" for name in classes[1:])
    if args.write:
        write(files, args.force)
    else:
        show_line(f"nothing was written; --write writes {' and '.join(map(str, files))}")
