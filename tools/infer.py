#!/usr/bin/env python3
"""Segment photographs: one label PNG per photograph, in VOC's colours and at the photograph's size.

    tools/infer.py --out masks street.jpg holiday/              # the model we ship
    tools/infer.py --out masks --crf tuned "holiday/**/*.jpg"   # edges sharpened by a dense CRF
    tools/infer.py --out masks --tags cat,person sofa.jpg       # nothing but these and background is there
    tools/infer.py --out val --crf --only data/VOCdevkit/VOC2012/ImageSets/Segmentation/val.txt \\
        data/VOCdevkit/VOC2012/JPEGImages
    tools/infer.py --out masks cat.jpg \\
        --net prototxt/deploy_8s.prototxt --weights snapshots/ccnn_tags_iter_60000.caffemodel

writes OUT/NAME.png, OUT/overlay/NAME.jpg (colours over the photograph, long side at most 1280, with a legend) and, if
asked for, OUT/probabilities/NAME.npz. Photographs of a folder keep their subfolders.

Run the same command again after a stop: finished photographs are skipped. A photograph that cannot be read is named at
the end, and the exit status is then 1.

Photographs may be of any size: the net sees them with the long side reduced to --size, the CRF to 500 pixels, and the
labels are enlarged to the photograph strip by strip. Memory, a photograph of 20 megapixels included: 1.1 GB at --size
321 and 2 GB at --size 500 (2.3 GB for the whole VGG-16), and 0.4 GB for each of --jobs.
"""
import glob
import hashlib
import json
import os
from collections import namedtuple
from pathlib import Path

import cli
import numpy as np
from cli import UserError
from crf import LONG_SIDE, PRESETS, dense_crf, label_map, load_preset, positions, report, sample, save_mask, unfinished
from images import BACKGROUND, VOC_CLASSES, InputError, palette, read_classes, read_image, shrink, to_blob
from init_weights import VGG16_CONVOLUTIONS, trunk_weights
from PIL import Image, ImageDraw, ImageFont
from scipy.special import softmax
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
NET = ROOT / "prototxt/head_deploy.prototxt"
HEAD = ROOT / "models/head_size.caffemodel"

Recipe = namedtuple("Recipe", "classes labels preset settings")     # labels: those that may appear


def main(argv=None):
    args = parse_args(argv)
    weights = find_weights(args.net, args.weights)
    about = read_about(args.net, args.weights)
    size = args.size or about.get("size", LONG_SIDE)
    classes = read_classes(args.classes) if args.classes else tuple(about.get("classes", VOC_CLASSES))
    labels = tagged(args.tags, classes)
    preset = args.crf and load_preset(args.crf)
    settings = {
        "tool": "infer", "net": digest(args.net), "weights": [digest(path) for path in weights], "size": size,
        "tags": args.tags and [classes[label] for label in labels], "ilp": args.ilp,
        "crf": preset and preset._asdict(),
    }
    recipe = Recipe(classes, labels, preset, settings)
    work = [(source, args.out / f"{name}.png",
             *([] if args.no_overlay else [args.out / f"overlay/{name}.jpg"]),
             *([args.out / f"probabilities/{name}.npz"] if args.probabilities else []))
            for source, name in find_photographs(args.photographs, args.only, args.out)]
    todo = unfinished(work, settings, args.force)
    failures = []
    if todo:
        net = cli.load_net(args.net, weights, args.gpu, shape=(1, 3, 65, 97))
        check_scores(net, args.net, classes)
        grid = score_grid(args.net)
        if args.ilp:
            from baseline_losses import image_level_prior  # needs Caffe
        with tqdm(total=len(todo), unit="image", disable=None) as bar:
            def predictions():
                for source, *outputs in todo:
                    try:
                        rgb = read_image(source)
                        image = shrink(rgb, size)
                        values = forward(net, image)
                        if not np.isfinite(values).all():
                            raise InputError(f"{source}: the net's scores are not finite; "
                                             "do weights and net belong together?")
                        values = image_level_prior(values) if args.ilp else values
                        yield rgb, Scores(values, image.shape[:2], *grid), recipe, outputs
                    except InputError as e:
                        failures.append(e)
                        bar.update()
            for _ in cli.spread(finish, predictions(), args.jobs):
                bar.update()
    return report(failures, len(todo) - len(failures), args.out)


def parse_args(argv):
    parser = cli.parser(__doc__)
    add = parser.add_argument
    add("photographs", nargs="*", help="files, folders or quoted patterns; any format that Pillow reads")
    add("--out", type=Path, required=True, metavar="DIR", help="where the masks go")
    add("--crf", nargs="?", const="heads", metavar="PRESET",
        help=f"sharpen with a dense CRF: {', '.join(PRESETS)}, or a file of tools/tune_crf.py (default: heads)")
    add("--tags", metavar="A,B", help="the classes that are in the photographs, if known: no other will be found")
    add("--ilp", action="store_true",
        help="weigh each label by the net's own belief that it is in the photograph (for MIL-Base; paper, table 1)")
    add("--net", type=Path, default=NET, help="deploy net with input `data` and scores `fc8` (default: %(default)s)")
    add("--weights", type=Path, default=HEAD,
        help="the net's, or those of a head alone, the trunk being data/vgg16_conv.caffemodel (default: %(default)s)")
    add("--classes", metavar="FILE",
        help="class names, one a line (default: those of WEIGHTS.json or NET.json, else VOC's)")
    add("--size", type=cli.count, metavar="PIXELS",
        help="long side that the net sees (default: that of its training if WEIGHTS.json or NET.json tells, "
             f"else {LONG_SIDE})")
    add("--only", type=Path, metavar="FILE", help="take only these names, one a line, without suffix: a VOC split")
    add("--probabilities", action="store_true",
        help=f"also write NAME.npz: `probabilities`, L x h x w float16, long side at most {LONG_SIDE}, and `classes`")
    add("--no-overlay", action="store_true", help="masks only")
    add("--jobs", type=cli.count, default=os.cpu_count(), metavar="N",
        help="processes for CRF and files while the net runs (default: all cores; 1: no extra process)")
    add("--gpu", type=int, metavar="ID", help="run the net on this GPU (default: on the CPU)")
    add("--force", action="store_true", help="make masks again, and replace files made otherwise")
    args = parser.parse_args(argv)
    if args.crf and args.crf not in PRESETS and not args.crf.endswith(".json") and \
            (Path(args.crf).exists() or glob.has_magic(args.crf)):      # `--crf cat.jpg`: a photograph, no preset
        args.photographs.insert(0, args.crf)
        args.crf = "heads"
    if not args.photographs:
        parser.error("give photographs: files, folders or patterns")
    if args.size and not 32 <= args.size <= 2000:
        parser.error(f"--size must be 32..2000 pixels, got {args.size}")
    return args


def find_weights(net, weights):
    """The files to load, in order: before a head, the trunk that the net wants and the head's file lacks."""
    cli.load_caffe()
    trunk = set(VGG16_CONVOLUTIONS)
    wanted, given = {layer.name for layer in cli.read_net(net).layer}, cli.stored_layers(weights)
    return [trunk_weights(), weights] if trunk <= wanted and not trunk & given else [weights]


def read_about(net, weights):
    """What WEIGHTS.json, or else NET.json, says of the model: its `size`, and its `classes` where not VOC's."""
    path = next((path for path in (weights.with_suffix(".json"), net.with_suffix(".json")) if path.exists()), None)
    if not path:
        return {}
    try:
        about = json.loads(path.read_text())
        size, classes = about.get("size", LONG_SIDE), about.get("classes", VOC_CLASSES)
        if type(size) is not int or not 32 <= size <= 2000:
            raise ValueError(f"size must be 32..2000, got {size!r}")
        if not all(isinstance(name, str) for name in classes) or not 2 <= len(classes) < 255:
            raise ValueError("classes must be 2 to 254 names, the background first")
    except (ValueError, TypeError, AttributeError) as e:
        raise UserError(f"{path}: does not describe a model: {e}") from None
    return about


def tagged(tags, classes):
    """The labels that may appear: background and those named by "cat,person"; all of them if tags is None."""
    if tags is None:
        return list(range(len(classes)))
    names = [name.strip() for name in tags.split(",") if name.strip()]
    unknown = [name for name in names if name not in classes]
    if unknown or not names:
        raise UserError(f"--tags {tags}: {unknown[0] if unknown else 'nothing'} is not a class of this model; "
                        f"it knows {', '.join(classes[1:])}")
    return sorted({BACKGROUND, *map(classes.index, names)})


def digest(path):
    """Name and content of a file, short."""
    return f"{path.name} sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


def find_photographs(arguments, only, out):
    """[(path, name)]: what files, folders and patterns stand for; the name is the path below a folder, no suffix."""
    suffixes = Image.registered_extensions()
    out = out.resolve()
    found = {}
    for argument in arguments:
        folder = Path(argument)
        if folder.is_dir():
            if folder.resolve() == out:
                raise UserError(f"--out {argument}: is a folder of photographs; name another for the masks")
            inner = folder / out.relative_to(folder.resolve()) if folder.resolve() in out.parents else None
            paths = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in suffixes and path.is_file()
                     and inner not in path.parents]
        else:
            folder = None
            paths = [Path(argument)] if Path(argument).exists() else \
                    [Path(path) for path in sorted(glob.glob(argument, recursive=True)) if os.path.isfile(path)]
        if not paths:
            raise UserError(f"{argument}: no such photograph, or a folder without any")
        for path in paths:
            found[path] = str((path.relative_to(folder) if folder else Path(path.name)).with_suffix(""))
    if only:
        wanted = read_names(only)
        missing = sorted(wanted - set(found.values()))
        if missing:
            more = f" and {len(missing) - 1} more" if missing[1:] else ""
            raise UserError(f"{only}: names {missing[0]!r}{more}, but no such photograph was given")
        found = {path: name for path, name in found.items() if name in wanted}
    return list(found.items())


def read_names(path):
    """The first word of every line."""
    try:
        names = {line.split()[0] for line in path.read_text().splitlines() if line.strip()}
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file of names") from None
    if not names:
        raise UserError(f"{path}: names no photographs")
    return names


def score_grid(prototxt):
    """(stride, offset) in pixels: cell k of `fc8` is centred on pixel offset + stride * k of `data`.

    From fc8 up to data, a layer of kernel extent e, padding p and stride s centres its cell k on cell
    s k + (e - 1) / 2 - p of its bottom. The 8s nets have (8, 0), head_deploy (8, -0.5), the 32s net (32, 15.5).
    """
    stride, offset, blob = 1, 0, "fc8"
    for layer in reversed(cli.read_net(prototxt).layer):
        if blob not in layer.top:
            continue
        if layer.type == "Convolution":
            p = layer.convolution_param
            kernel, step, pad, dilation = ((list(v) or [d])[0] for v, d in (
                (p.kernel_size, 1), (p.stride, 1), (p.pad, 0), (p.dilation, 1)))
        elif layer.type == "Pooling":
            p = layer.pooling_param
            kernel, step, pad, dilation = p.kernel_size, p.stride, p.pad, 1
        elif layer.type in ("Deconvolution", "Crop", "Interp"):
            raise UserError(f"{prototxt}: {layer.name} ({layer.type}) enlarges before fc8; "
                            "let fc8 be the coarse scores")
        else:
            kernel, step, pad, dilation = 1, 1, 0, 1
        stride, offset = step * stride, step * offset + dilation * (kernel - 1) / 2 - pad
        blob = layer.bottom[0] if layer.bottom else blob
    return stride, offset


def check_scores(net, prototxt, classes):
    if "fc8" not in net.blobs or net.blobs["fc8"].data.ndim != 4:
        raise UserError(f"{prototxt}: has no score blob `fc8`, 1 x L x h x w; give a deploy net")
    if net.blobs["fc8"].channels != len(classes):
        raise UserError(f"{prototxt}: scores {net.blobs['fc8'].channels} labels, but {len(classes)} class names are "
                        "known; give them with --classes")


def forward(net, rgb):
    """The net's scores for an image, L x h x w on its grid."""
    net.blobs["data"].reshape(1, 3, *rgb.shape[:2])
    net.blobs["data"].data[0] = to_blob(rgb)
    net.forward()
    return net.blobs["fc8"].data[0].copy()


class Scores(namedtuple("Scores", "values shape stride offset")):
    """values L x h x w on the score grid of an image of `shape`: cell k lies at pixel offset + stride * k."""

    def cells(self, height, width):
        """Where the rows and the columns of that image, enlarged to height x width, lie on the grid."""
        return [(positions(size, source) - self.offset) / self.stride
                for size, source in zip((height, width), self.shape)]


def finish(rgb, scores, recipe, outputs):
    """From the photograph and its Scores to files: the mask's path comes first, and is written last."""
    mask_path, *others = outputs
    small = shrink(rgb, LONG_SIDE)
    f = scores.values[recipe.labels]
    q = None
    if recipe.preset:
        q = dense_crf(small, sample(f, *scores.cells(*small.shape[:2])), recipe.preset)
        found = label_map(q, *(positions(*sides) for sides in zip(rgb.shape[:2], small.shape[:2])))
    else:
        found = label_map(f, *scores.cells(*rgb.shape[:2]))
    mask = np.array(recipe.labels, np.uint8)[found]
    for path in others:
        with cli.whole_file(path) as part:
            if path.suffix == ".jpg":
                overlay(rgb, mask, recipe.classes).save(part, quality=90)
            else:
                if q is None:
                    q = softmax(sample(f, *scores.cells(*small.shape[:2])), axis=0)
                p = np.zeros((len(recipe.classes), *q.shape[1:]), np.float16)
                p[recipe.labels] = q
                np.savez_compressed(part, probabilities=p, classes=recipe.classes,
                                    crf=json.dumps(recipe.settings["crf"]) if recipe.preset else "")
    save_mask(mask_path, mask, recipe.settings)


def overlay(rgb, mask, classes, long_side=1280):
    """The photograph under the labels' colours, and below it the names of those that cover 0.1 % of it or more."""
    rgb = shrink(rgb, long_side)
    height, width = rgb.shape[:2]
    colours = np.array(palette(), np.uint8).reshape(-1, 3)
    area = np.bincount(mask.ravel(), minlength=len(classes)) / mask.size
    mask = np.asarray(Image.fromarray(mask).resize((width, height), Image.NEAREST))
    mixed = np.where(mask[..., None] == BACKGROUND, rgb, rgb // 2 + colours[mask] // 2)     # background stays itself

    # one entry a label, largest first, wrapped to the width of the picture
    size = min(28, max(11, width // 32))
    font = ImageFont.load_default(size)
    entries = [(label, f"{classes[label]} {area[label]:.0%}") for label in np.argsort(-area) if area[label] >= 0.001]
    places, x, y = [], 0, height
    for label, text in entries:
        entry = int(font.getlength(text)) + 3 * size
        if x and x + entry > width:
            x, y = 0, y + 2 * size
        places.append((label, text, x + size // 2, y + size // 2))
        x += entry
    width_needed = max([width] + [x + int(font.getlength(text)) + 2 * size for _, text, x, _ in places])
    picture = Image.new("RGB", (width_needed, y + 2 * size), "white")
    picture.paste(Image.fromarray(mixed), (0, 0))
    draw = ImageDraw.Draw(picture)
    for label, text, x, y in places:
        draw.rectangle((x, y, x + size, y + size), tuple(map(int, colours[label])), "black")
        draw.text((x + size * 3 // 2, y + size // 2), text, "black", font, anchor="lm")
    return picture


if __name__ == "__main__":
    cli.run(main)
