"""Show what a file or folder says about photographs, and turn it into tags.csv and classes.txt.

    ccnn import-tags photos/Tags.csv                          shows what it understood, writes nothing
    ccnn import-tags photos/Tags.csv --write                  writes photos/tags.csv and photos/classes.txt
    ccnn import-tags export.json --photos photos --write      tags from elsewhere for the photographs of a folder
    ccnn import-tags export.json --photos photos --marks --write      also polygons and masks, as known pixels
    ccnn import-tags export.json --photos photos --boxes --write      boxes in the place of tags

It reads, and recognises by content: a table (CSV as Excel writes it: UTF-8, UTF-16 or cp1252; comma, semicolon or
tab), a folder per class (photos/cat/*.jpg), VOC XML, COCO JSON, Label Studio's JSON and JSON-MIN, CVAT for images,
YOLO's and LabelMe's folders, and folders of masks. ccnn convert makes masks of them.

--marks writes photos/scribbles/NAME.png: the pixels inside of polygons and masks are known, the others stay unknown; of
a folder of masks the background is known, too. --boxes writes photos/Annotations/NAME.xml, which ccnn learn takes
where there is no tags.csv.
"""
import csv
import difflib
import io
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from ccnn._util.errors import UserError, nearest
from ccnn._util.files import rewrite
from ccnn._util.text import printable, some
from ccnn.annotations.export_formats import check_name
from ccnn.annotations.import_formats import draw, read_masks, read_source
from ccnn.annotations.table_reader import merged, split_tags
from ccnn.cli import command
from ccnn.images.formats import READ, SUFFIX
from ccnn.images.ids import inside
from ccnn.images.labels import BACKGROUND, VOC_CLASSES, VOID, indexed, read_classes
from ccnn.images.listing import PhotographIndex, image_folder, skipped_sentence
from ccnn.images.reading import upright_shape
from ccnn.project.folder import check_class_names
from ccnn.supervision.rules_file import RULES_FILE, read_rules

SHOWN = 10      # lines per list; the rest is counted


def known_classes(given, list_file):
    """(classes or None for any, where they come from): --classes, else the file if it is there."""
    if given and Path(given).is_file():
        return read_classes(given), given
    if given:
        return (VOC_CLASSES[BACKGROUND], *split_tags(given, blanks=False)), "--classes"
    return (read_classes(list_file), list_file) if list_file.is_file() else (None, None)


def match_names(named, photographs):
    """[(path of a photograph, what is said of it)] of {name: something with a place}, and a line for every name that
    means none."""
    found, lost = [], []
    for name, labels in named.items():
        try:
            path = photographs.find(name)
        except UserError as error:
            lost.append(f"{labels.place}: {error}")
            continue
        if path is None:
            why = photographs.why_not_read(name)
            near = nearest(name, photographs.paths) if len(lost) < SHOWN else None      # it takes long, for each
            lost.append(f"{labels.place}: {name!r}"
                        + (f": {why}" if why else f"; did you mean {near!r}?" if near else ""))
        else:
            found.append((path, labels))
    return found, lost


def match(images, photographs):
    """{path of a photograph: Labels}, and the lines of match_names."""
    found = {}
    matched, lost = match_names(images, photographs)
    for path, labels in matched:
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
        show_line(f"  {boxes} boxes, which --boxes writes")


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
    columns = 3 if has_large(found) else 2
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["image", "tags", "large"][:columns])
    for path in sorted(found):
        labels = found[path]
        writer.writerow([path, ";".join(labels.tags), ";".join(labels.large or ())][:columns])
    return text.getvalue()


def write(files, force, root):
    """Write {path: bytes} below the folder `root`; a file that says something else is replaced only by force."""
    outside = [path for path in files if not inside(path.parent / "_", root)]
    if outside:
        raise UserError(f"{outside[0]}: lies outside of {root}, where nothing is written; remove the link, or the "
                        f"folder that {RULES_FILE} names")
    differing = [path for path, data in files.items() if path.exists() and path.read_bytes() != data]
    if differing and not force:
        raise UserError(f"{some(differing, 2, quoted=False)}: exists and differs; --force overwrites")
    for number, (path, data) in enumerate(files.items()):
        same = path.exists() and path not in differing
        if number < SHOWN:
            show_line(f"{path} is up to date" if same else
                      f"{'replacing' if path in differing else 'writing'} {path}")
        if not same:
            rewrite(path, data)
    if len(files) > SHOWN:
        show_line(f"and {len(files) - SHOWN} more")


def boxes_xml(found, photographs, folder):
    """{path of a file in Annotations: VOC's XML} of the boxes."""
    files = {}
    for path, labels in found.items():
        without = set(labels.tags) - {label for label, *_ in labels.boxes or ()}
        if without:
            raise UserError(f"{labels.place}: {path}: {some(without)} has no box, so its pixels would be background; "
                            "draw one, or leave the class out with --classes")
        if "/" in path:
            raise UserError(f"{path}: lies in a folder of its own, where ccnn learn looks for no boxes; move it to "
                            f"{photographs.folder}")
        height, width = upright_shape(Path(photographs.folder) / path)
        root = ElementTree.Element("annotation")
        ElementTree.SubElement(root, "filename").text = path.rpartition("/")[2]
        size = ElementTree.SubElement(root, "size")
        for side, pixels in (("width", width), ("height", height), ("depth", 3)):
            ElementTree.SubElement(size, side).text = str(pixels)
        for label, y0, x0, y1, x1 in labels.boxes or ():
            item = ElementTree.SubElement(root, "object")
            ElementTree.SubElement(item, "name").text = label
            box = ElementTree.SubElement(item, "bndbox")            # counted from 1, the last pixel included
            for side, low, high, length in (("x", x0, x1, width), ("y", y0, y1, height)):
                first = min(round(low * length), length - 1)
                ElementTree.SubElement(box, f"{side}min").text = str(first + 1)
                ElementTree.SubElement(box, f"{side}max").text = str(max(round(high * length), first + 1))
        check_name(path)
        files[folder / SUFFIX.sub(".xml", path)] = ElementTree.tostring(root)
    return files


def marks_png(source, classes, photographs, rules):
    """{path of a PNG: its bytes} of the pixels that are known, and the rules file if it does not name them yet."""
    given = read_rules(str(rules), classes).scribbles if rules.is_file() else None
    if given and given.colours is not None:
        raise UserError(f"{rules}: its scribbles are painted in colours; marks are label numbers: use another folder")
    folder, files = Path(given.folder) if given else rules.with_name("scribbles"), {}
    masks = read_masks(source, classes)
    for path, photograph in match_names({found.name: found for found in masks.photographs}, photographs)[0]:
        mask = draw(masks, photograph, upright_shape(Path(photographs.folder) / path), rest=VOID)
        if (mask != VOID).any():
            data = io.BytesIO()
            indexed(mask).save(data, "PNG")
            files[folder / SUFFIX.sub(".png", path)] = data.getvalue()
    if files and not given:
        text = rules.read_bytes() if rules.is_file() else b""
        files[rules] = text + (b"\n" if text and not text.endswith(b"\n") else b"") + b"[scribbles]\n"
    return files


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("source", type=Path, help="the file or folder with the tags")
    add("--photos", type=Path, metavar="DIR", help="the photographs (default: SOURCE, or the folder it is in)")
    add("--out", type=Path, metavar="FILE", help="the table (default: tags.csv in --photos; classes.txt beside it)")
    add("--classes", metavar="NAMES", help="the classes that count, cat,dog, or a file with one per line "
        "(default: classes.txt beside the table if it is there, else all)")
    add("--marks", action="store_true", help="also polygons and masks, as known pixels in scribbles/")
    add("--boxes", action="store_true", help="boxes in Annotations/, in the place of the table")
    add("--write", action="store_true", help="write the table and classes.txt")
    add("--force", action="store_true", help="replace files that say something else")
    args = parser.parse_args(argv)
    if not args.source.exists():
        raise UserError(f"{args.source}: no such file or folder")
    args.photos = args.photos or (args.source if args.source.is_dir() else args.source.parent)
    args.out = args.out or args.photos / "tags.csv"
    return args


def main(argv=None):
    args = parse_args(argv)
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
    if len(classes) > 1:
        check_class_names(classes, args.source)
    show_line(f"{args.source}: {kind}" + (f"; classes of {origin}" if known else ""))
    show(found, classes)
    if skipped_files:
        show_line(skipped_files)
    show_list("left out", [f"{count} x {what}" for what, count in skipped.most_common()])
    show_list("names that are not a photograph", lost)
    show_list("photographs that the source does not name", sorted(set(photographs.paths).difference(found)))
    if not tags:
        raise UserError(f"{args.source}: tags none of the photographs in {photographs.folder}; "
                        "name their folder with --photos")
    if args.boxes and args.out.exists():
        raise UserError(f"--boxes: {args.out} exists, and ccnn learn would use it instead of boxes; remove it first")
    files = {args.out: tags_csv(found).encode()} if not args.boxes else \
        boxes_xml(found, photographs, args.out.with_name("Annotations"))
    if origin != list_file:
        files[list_file] = "".join(f"{name}\n" for name in classes[1:]).encode()
    if args.marks:
        files.update(marks_png(str(args.source), classes, photographs, args.out.with_name(RULES_FILE)))
    if args.write:
        write(files, args.force, args.out.parent)
    else:
        show_line(f"nothing was written; --write writes {some(files, SHOWN, quoted=False)}")
