"""Masks into the label formats of other programs, and back.

    ccnn convert masks --to coco --out coco.json              masks of ccnn segment
    ccnn convert photos --to yolo --out yolo                  a folder of the studio: the masks of its own model
    ccnn convert export.json --to masks --out masks --photos photos       masks of COCO, Label Studio, CVAT, ...
    ccnn convert labelme --to cvat --out cvat.zip             OUT may be an archive

It reads, and recognises by content: a folder of masks, COCO JSON, Label Studio's JSON, CVAT for images 1.1, YOLO's and
LabelMe's folders. Run lengths and masks are exact; outlines stay within a pixel of the mask (docs/formats.md).

A file of labels names photographs. --photos gives them the names and sizes that they have in that folder; without it,
names without a suffix get .jpg. ccnn import-tags makes tags, boxes and marks to train on.
"""
import zipfile
from collections import Counter
from pathlib import Path

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.progress import Progress
from ccnn._util.text import plural, some
from ccnn.annotations.export_formats import FORMATS, LabelFormat, check_name, describe
from ccnn.annotations.import_formats import draw, read_masks
from ccnn.cli import command
from ccnn.cli.import_tags import known_classes, match_names, show_line, show_list
from ccnn.images.formats import SUFFIX
from ccnn.images.listing import PhotographIndex, image_folder
from ccnn.images.reading import upright_shape

SUFFIX_OF_UNKNOWN = ".jpg"


def main(argv=None):
    args = parse_args(argv)
    source, photographs = (own_masks if is_studio_folder(args.source) else read_labels)(args)
    show_list("left out", [f"{count} x {what}" for what, count in source.skipped.most_common()])
    if not photographs:
        raise UserError(f"{args.source}: names none of the photographs" + (
            f" in {args.photos}; name their folder with --photos" if args.photos else ""))
    for name in photographs:
        check_name(name)
    format, used = FORMATS[args.to], Counter()

    def described():
        for name, draw_mask in Progress(photographs.items(), total=len(photographs), unit="image"):
            mask = draw_mask()
            used.update(set(mask.ravel().tolist()))
            yield name, describe(args.to, name, mask, source.classes)
    write(format, described(), source.classes, args.out)
    classes = [f"{name} in {used[label]}" for label, name in enumerate(source.classes) if label]
    show_line(f"wrote {args.out}: {format.title}; {plural(len(photographs), 'photograph')}; {', '.join(classes)}")


def is_studio_folder(path):
    return (path / "model.ccnn").is_file()


def own_masks(args):
    """The masks of a folder's own photographs, as the studio exports them."""
    from ccnn.studio.exports import folder_masks
    return folder_masks(args.source)


def read_labels(args):
    """(MaskSource, {name: what draws its mask})"""
    folder = args.source if args.source.is_dir() else args.source.parent
    known, origin = known_classes(args.classes, folder / "classes.txt")
    source = read_masks(str(args.source), known)
    show_line(f"{args.source}: {source.kind}" + (f"; classes of {origin}" if known else ""))
    if args.photos:
        index = PhotographIndex(image_folder(args.photos))
        found, lost = match_names({photograph.name: photograph for photograph in source.photographs}, index)
        show_list("names that are not a photograph", lost)
        named = [(path, photograph, upright_shape(Path(index.folder) / path)) for path, photograph in found]
    else:
        named = [(name if SUFFIX.search(name := photograph.name) else name + SUFFIX_OF_UNKNOWN, photograph, None)
                 for photograph in source.photographs]
    file = FORMATS[args.to].path
    files = Counter(file(name) or name for name, _, _ in named)
    twice = [name for name, _, _ in named if files[file(name) or name] > 1]
    if twice:
        raise UserError(f"{args.source}: labels {some(dict.fromkeys(twice))} more than once, as files are named; "
                        "remove the other entries")
    return source, {name: lambda photograph=photograph, shape=shape: draw(source, photograph, shape)
                    for name, photograph, shape in named}


def write(format: LabelFormat, described, classes, out: Path):
    """One file, an archive or a folder; of the first two all or nothing."""
    if out.suffix == ".zip":
        with whole_file(out) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, data in format.files(described, classes):
                archive.writestr(path, data)
        return
    for path, data in format.files(described, classes):
        with whole_file(out / path if format.archive else out) as part:
            part.write_bytes(data)


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("source", type=Path, help="masks or labels, a file or a folder; or a folder with model.ccnn")
    add("--to", choices=FORMATS, required=True, metavar="FORMAT",
        help="; ".join(f"{name}: {format.title}" for name, format in FORMATS.items()))
    add("--out", type=Path, required=True, metavar="PATH", help="the file, the archive .zip, or the folder to write")
    add("--photos", type=Path, metavar="DIR", help="the photographs: their names and sizes")
    add("--classes", metavar="NAMES", help="the classes that count, cat,dog, or a file with one per line "
        "(default: classes.txt beside the labels if it is there, else all)")
    add("--force", action="store_true", help="write over what is there")
    args = parser.parse_args(argv)
    if not args.source.exists():
        raise UserError(f"{args.source}: no such file or folder")
    if args.photos and not args.photos.is_dir():
        raise UserError(f"--photos {args.photos}: no such folder")
    if is_studio_folder(args.source) and (args.photos or args.classes):
        raise UserError(f"{args.source}: has model.ccnn, which says the classes of its own photographs; leave out "
                        f"{'--photos' if args.photos else '--classes'}")
    format = FORMATS[args.to]
    if format.archive and args.out.suffix != ".zip" and args.out.suffix in (".json", ".xml"):
        raise UserError(f"--out {args.out}: {format.title} has several files; name a folder, or an archive .zip")
    if args.out.is_dir() and not format.archive:
        raise UserError(f"--out {args.out}: is a folder; name the file, such as {args.out / format.file}")
    there = any(args.out.iterdir()) if args.out.is_dir() else args.out.exists()
    if there and not args.force:
        raise UserError(f"--out {args.out}: exists already; --force overwrites it")
    return args
