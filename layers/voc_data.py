"""Data layers: every iteration one image of a VOC folder, or its cached features, with its supervision.

Sample t is a pure function of (seed, t), crop and mirroring included, so a run that is resumed at t sees what
an uninterrupted one would have seen. The layers begin at t = CCNN_START_ITERATION (environment; the number of
samples already used, i.e. iterations times iter_size; 0 if not set). Nets in the TEST phase always begin at 0.
"""
import contextlib
import csv
import difflib
import fcntl
import functools
import itertools
import json
import os
import pickle
import re
import signal
import sys
import traceback
import xml.etree.ElementTree as ElementTree

import caffe
import numpy as np
from images import (
    BACKGROUND,
    FEATURES,
    SUFFIXES,
    VOC_CLASSES,
    VOID,
    ImageError,
    InputError,
    Reporting,
    feature_size,
    fit,
    read_classes,
    read_image,
    read_mask,
    score_size,
    shrink,
    to_blob,
)

F_SETPIPE_SZ = 1031     # fcntl has the name from Python 3.10 on
GET_VOC = "tools/get_voc.py fetches VOC 2012"


class Samples:
    """The samples of a list of images in a VOC folder. Settings, as JSON keys of param_str:

    root        the folder of JPEGImages, SegmentationClass, ... (VOCdevkit/VOC2012), or any folder of images
    split       "train" is root/ImageSets/Segmentation/train.txt; or the path, from root or from the working
                directory, of a list of image ids, one a line; absent: the images of the CSV in tags_from, or
                those with a file in Annotations
    tops        what to deliver, in the order of the layer's tops; h x w is the score grid
                  data      3 x H x W   BGR, mean subtracted
                  tags      L           1 where a label is present; the background always is
                  sizes     L           1 where a label covers more than `large` of the pixels that are not void
                  boxes     B x 5       label, y0, x0, y1, x1 on the grid, half-open; label -1: no box
                  labels    1 x h x w   label at the cells of the grid, 255 unknown
    classes     file with one class name a line; absent: VOC's
    images      folder of the images in root; absent: JPEGImages, else root itself
    masks       folder of the masks in root; absent: SegmentationClassAug, else SegmentationClass
    tags_from   "masks" (as the paper does), "annotations" (VOC's XML), or a CSV file with the columns image,tags
                (tags separated by ; or spaces) and, for sizes, a third one: which of the tags are large
    supervised  K: only the first K images of the list keep their mask in `labels`; or the path of a list of
                those that do; absent: all do
    size        long side to which images are reduced first; 0: as they are
    crop        side in pixels of a random crop, which tags, sizes, boxes and labels then describe; 0: no crop
    mirror      flip every other image, at random
    shuffle     a new order every epoch; false: the order of the list
    seed        of order, crops and mirroring
    stride      of the score grid
    large       see sizes
    damaged     "stop" at a file that cannot be used, or "skip" it: report it and take the epoch's next image
    """

    DEFAULTS = dict(root=None, split=None, tops=["data", "tags"], classes=None, images=None, masks=None,
                    tags_from="masks", supervised=None, size=0, crop=0, mirror=True, shuffle=True, seed=1,
                    stride=8, large=0.1, damaged="stop")
    INPUT = "data"

    def __init__(self, options):
        """options : dict, or JSON text."""
        self.__dict__.update(self.checked(options))
        self.classes = read_classes(self.classes) if self.classes else VOC_CLASSES
        self.images = self.folder(self.images, "JPEGImages", "")
        self.masks = self.folder(self.masks, "SegmentationClassAug", "SegmentationClass")
        self.csv = None
        if self.tags_from not in ("masks", "annotations"):
            self.csv = read_tags(self.path(self.tags_from), self.classes)
        self.ids = self.read_ids()
        self.order = functools.lru_cache(maxsize=2)(self.order)
        self.files = [self.input_file(id) for id in self.ids]
        if isinstance(self.supervised, str):
            self.with_mask = set(read_list(self.path(self.supervised)))
            strange = self.with_mask.difference(self.ids)
            if strange:
                raise InputError(f"{self.supervised}: lists {min(strange)!r}, which is not an image of {self.source}")
        else:
            self.with_mask = set(self.ids[:self.supervised])
        masks = [self.mask_file(id) for id in self.ids if self.uses_mask(id)]
        missing = [file for file in masks if not os.path.isfile(file)]
        if missing:
            raise InputError(f"{missing[0]}: no such mask{and_more(missing)}; {GET_VOC}, and images without masks "
                             'need "tags_from": "annotations" or a CSV file')

    # Settings

    @classmethod
    def checked(cls, options):
        """The settings as a dict, every key known and of the right kind."""
        if isinstance(options, str):
            try:
                options = json.loads(options or "{}")
            except ValueError as error:
                raise InputError(f"param_str is not JSON: {error}") from None
        if not isinstance(options, dict):
            raise InputError(f"param_str must be a JSON object, {{...}}; got {options!r}")
        for key in options:
            if key not in cls.DEFAULTS:
                near = difflib.get_close_matches(key, cls.DEFAULTS, 1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise InputError(f"unknown setting {key!r} in param_str; {hint}known: {', '.join(cls.DEFAULTS)}")
        o = {**cls.DEFAULTS, **options}

        def expect(key, kind, good):
            if key in o and not good(o[key]):
                raise InputError(f"{key} in param_str must be {kind}; got {json.dumps(o[key])}")

        def whole(value, low=0):
            return type(value) is int and value >= low

        def text(value):
            return isinstance(value, str) and value != ""

        tops = [cls.INPUT, "tags", "sizes", "boxes", "labels"]
        expect("root", "the path of a folder", text)
        expect("tags_from", '"masks", "annotations" or the path of a CSV file', text)
        for key in ("split", "classes", "images", "masks", "features"):
            expect(key, "text", lambda v: v is None or text(v))
        expect("tops", f"a list of some of {', '.join(tops)}, each once",
               lambda v: isinstance(v, list) and v and all(name in tops for name in v) and len(set(v)) == len(v))
        expect("supervised", "a number of images or the path of a list", lambda v: v is None or whole(v) or text(v))
        for key in ("size", "crop", "seed"):
            expect(key, "a whole number, 0 or more", whole)
        expect("stride", "a whole number, 1 or more", lambda v: whole(v, 1))
        expect("large", "a fraction between 0 and 1", lambda v: type(v) in (int, float) and 0 <= v <= 1)
        expect("damaged", '"stop" or "skip"', lambda v: v in ("stop", "skip"))
        for key in ("mirror", "shuffle"):
            expect(key, "true or false", lambda v: isinstance(v, bool))
        if not os.path.isdir(o["root"]):
            raise InputError(f"{o['root']}: no such folder; {GET_VOC} into data/VOCdevkit/VOC2012, or name a folder "
                             'of your own as "root" in the net\'s param_str')
        own_tags = o["tags_from"] not in ("masks", "annotations")
        if o["split"] is None and o["tags_from"] == "masks":
            raise InputError('split in param_str must name a list of images, such as "train"')
        if o["crop"] and own_tags:
            raise InputError('crop needs tags_from "masks" or "annotations": a CSV does not say what a crop shows')
        if "sizes" in o["tops"] and o["tags_from"] == "annotations":
            raise InputError('sizes need tags_from "masks", or a CSV with a column of large tags: boxes tell no areas')
        return o

    def path(self, name):
        """A file that the settings name: from root, or else from the working directory."""
        inner = os.path.join(self.root, name)
        return inner if os.path.exists(inner) else name

    def folder(self, name, *usual):
        for choice in [name] if name else usual:
            path = os.path.join(self.root, choice)
            if os.path.isdir(path):
                return path
        if name:
            raise InputError(f"{path}: no such folder; {GET_VOC}")
        return path

    def read_ids(self):
        if self.split is None and self.csv is not None:
            self.source, ids = self.path(self.tags_from), list(self.csv)
        elif self.split is None:
            self.source = self.folder("Annotations")
            ids = sorted(name[:-4] for name in os.listdir(self.source) if name.endswith(".xml"))
        else:
            folder = os.path.join(self.root, "ImageSets/Segmentation")
            listed = os.path.join(folder, f"{self.split}.txt")
            self.source = listed if os.path.isfile(listed) else self.path(self.split)
            if not os.path.isfile(self.source):
                names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
                have = ", ".join(name[:-4] for name in names if name.endswith(".txt"))
                raise InputError(f"{listed}: no such list of images (there: {have or 'none'}); {GET_VOC} with "
                                 "train, val and train_aug")
            ids = read_list(self.source)
        if not ids:
            raise InputError(f"{self.source}: lists no image")
        missing = [id for id in ids if self.csv is not None and id not in self.csv]
        if missing:
            raise InputError(f"{self.tags_from}: has no row for {missing[0]!r} of {self.source}{and_more(missing)}")
        return ids

    def input_file(self, id):
        """The image of an id. It must lie in the data root, or in the folder of images where that is a link."""
        for suffix in SUFFIXES:
            path = os.path.join(self.images, id + suffix)
            if os.path.isfile(path):
                if not inside(path, self.images) and not inside(path, self.root):
                    raise InputError(f"{path}: is a link out of the data root {self.root}; copy the file there")
                return path
        remedy = f"and has one image id a line ({GET_VOC})" if self.split else "so mend the name there, or remove it"
        raise InputError(f"{os.path.join(self.images, id)}.jpg: no such image; {self.source} lists {id!r}, {remedy}")

    def mask_file(self, id):
        return os.path.join(self.masks, f"{id}.png")

    def uses_mask(self, id):
        counted = self.tags_from == "masks" and ("tags" in self.tops or "sizes" in self.tops)
        return counted or "labels" in self.tops and id in self.with_mask

    # Samples

    def __len__(self):
        return len(self.ids)

    def order(self, epoch):
        """The images of an epoch, by their numbers in the list."""
        n = len(self.ids)
        return np.random.default_rng((self.seed, 0, epoch)).permutation(n) if self.shuffle else np.arange(n)

    def index(self, t, attempt=0):
        """Which image sample t shows; attempt > 0: what replaces it if that one is damaged."""
        epoch, position = divmod(t, len(self.ids))
        return self.order(epoch)[(position + attempt) % len(self.ids)]

    def image(self, t):
        """The file of sample t."""
        return self.files[self.index(t)]

    def __getitem__(self, t):
        """Sample t: ({top: array}, [what was wrong with the images skipped for it])."""
        skipped = []
        for attempt in range(len(self.ids)):
            chance = np.random.default_rng((self.seed, 1, t)).random(3)
            try:
                return self.load(self.index(t, attempt), *chance), skipped
            except ImageError as error:
                if self.damaged == "stop":
                    raise ImageError(f'{error}; "damaged": "skip" in param_str passes over such files') from None
                skipped.append(str(error))
        raise InputError(f"every image of {self.source} is damaged; the last: {skipped[-1]}")

    def load(self, index, toss, v, u):
        """Image `index`, flipped if toss < 1/2, cropped at the fraction (v, u) of the way down and across."""
        id, flip = self.ids[index], self.mirror and toss < 0.5
        labels = len(self.classes)

        # 1. What the files say; `shapes`: for an image of how many pixels each was made.
        mask, boxes, shapes = None, None, {}
        if self.uses_mask(id):
            mask = read_mask(self.mask_file(id), labels)
            shapes[self.mask_file(id)] = mask.shape
        if "boxes" in self.tops or self.tags_from == "annotations":
            file = os.path.join(self.root, "Annotations", f"{id}.xml")
            shapes[file], boxes = read_boxes(file, self.classes)
        value, (y, x) = self.window(index, flip, v, u, shapes)
        if flip:
            mask = mask if mask is None else mask[:, ::-1]
            boxes = boxes and [(label, y0, x.size - x1, y1, x.size - x0) for label, y0, x0, y1, x1 in boxes]

        # 2. What of that lies in the crop.
        if mask is not None:
            count = np.bincount(mask[y.low:y.high, x.low:x.high].ravel(), minlength=VOID + 1)[:labels]
        if boxes is not None:
            boxes = [box for box in boxes if y.meets(box[1], box[3]) and x.meets(box[2], box[4])]

        # 3. The tops.
        tops = {self.INPUT: value}
        if "tags" in self.tops or "sizes" in self.tops:
            if self.tags_from == "masks":
                present, large = count > 0, count > self.large * count.sum()
            elif self.tags_from == "annotations":
                present = large = np.isin(np.arange(labels), [box[0] for box in boxes])
            else:
                present, large = self.csv[id]
            tops["tags"], tops["sizes"] = present.astype(np.float32), large.astype(np.float32)
            tops["tags"][BACKGROUND] = 1
        if "boxes" in self.tops:
            cells = [(label, *y.cells_of(y0, y1), *x.cells_of(x0, x1)) for label, y0, x0, y1, x1 in boxes]
            tops["boxes"] = np.array(cells or [(-1, 0, 0, 0, 0)], np.float32)[:, [0, 1, 3, 2, 4]]
        if "labels" in self.tops:
            tops["labels"] = np.full((1, len(y.cells), len(x.cells)), VOID, np.uint8)
            if id in self.with_mask:
                tops["labels"][0] = mask[np.ix_(y.cells, x.cells)]
        return {name: tops[name] for name in self.tops}

    def window(self, index, flip, v, u, shapes):
        """The input (as H x W x 3 uint8 RGB: a quarter of the blob, and it goes through a pipe), and where its rows
        and columns lie."""
        rgb = read_image(self.files[index])
        shape = one_shape({self.files[index]: rgb.shape[:2], **shapes})
        rgb = shrink(rgb, self.size)[:, ::-1 if flip else 1]
        axes = []
        for size, length, fraction in zip(shape, rgb.shape, (v, u)):
            span = min(self.crop or length, length)
            axes.append(Axis(size, length, int(fraction * (length - span + 1)), span, self.stride,
                             score_size(span, self.stride)))
        y, x = axes
        return np.ascontiguousarray(rgb[y.start:y.start + y.span, x.start:x.start + x.span]), axes


class FeatureSamples(Samples):
    """The same with the features that tools/cache_features.py computed in place of the images: the tops have
    `features`, 1024 x h x w, instead of `data`. Settings as for Samples, but

    features    the folder that cache_features.py wrote; it knows the `size`
    crop        is cut from the feature grid, and given in pixels of the reduced image: 160 is 21 x 21 cells

    A flipped feature map stands for the features of the flipped image: nearly the same, and free.
    """

    DEFAULTS = {**Samples.DEFAULTS, "features": None, "tops": ["features", "tags"]}
    del DEFAULTS["size"]
    INPUT = "features"

    @classmethod
    def checked(cls, options):
        o = super().checked(options)
        index = os.path.join(o["features"] or "", "index.json")
        try:
            with open(index) as file:
                return {**o, "size": json.load(file)["size"]}
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f"{index}: is missing or damaged; tools/cache_features.py makes the folder that "
                             '"features" in param_str names') from None

    def input_file(self, id):
        path = os.path.join(self.features, f"{id}.npy")
        if not os.path.isfile(path) or not inside(path, self.features):
            raise InputError(f"{path}: no features of {id!r}; run tools/cache_features.py for {self.source}")
        return path

    def window(self, index, flip, v, u, shapes):
        file = self.files[index]
        try:
            features = np.load(file)
            channels, *grid = features.shape
        except (OSError, ValueError, EOFError) as error:
            raise ImageError(f"{file}: is damaged: {error}; run tools/cache_features.py again") from None
        if len(grid) != 2 or channels != FEATURES or features.dtype != np.float16:
            raise ImageError(f"{file}: holds {features.dtype} of shape {features.shape}; expected float16 of "
                             f"{FEATURES} channels x rows x columns: remove {self.features} and run "
                             "tools/cache_features.py again")
        if shapes:
            shape = one_shape(shapes)
            reduced = fit(*shape, self.size)
            expected = [feature_size(length, self.stride) for length in reduced]
            if grid != expected:
                raise ImageError(f"{file}: has {grid[0]} x {grid[1]} cells; {next(iter(shapes))} at size {self.size} "
                                 f"and stride {self.stride} has {expected[0]} x {expected[1]}")
        else:       # no pixels to be laid on the grid: any image that has this grid will do
            shape = reduced = [self.stride * (cells - 1) for cells in grid]
        axes, slices = [], [slice(None)]
        for size, length, cells, fraction, flipped in zip(shape, reduced, grid, (v, u), (False, flip)):
            count = min(feature_size(self.crop, self.stride) if self.crop else cells, cells)
            first = int(fraction * (cells - count + 1))
            # a flipped grid begins with its last cell, which is on the edge or up to stride - 1 pixels outside
            edge = length - self.stride * (cells - 1) if flipped else 0
            start = edge + self.stride * first
            axes.append(Axis(size, length, start, self.stride * (count - 1), self.stride, count, centre=0))
            slices.append(slice(first, first + count))
        return features[:, :, ::-1 if flip else 1][tuple(slices)], axes


class Axis:
    """The rows, or columns, of a sample: where its crop and the cells of its score grid lie in the image file.

    size    pixels in the file; length: after the image was reduced
    start   first pixel of the crop in the reduced image; span: their number
    count   cells; cell k sits on pixel start + k * stride, or with centre=0 on the edge before that pixel
    low, high, cells    the crop, [low, high), and its cells, in pixels of the file
    """

    def __init__(self, size, length, start, span, stride, count, centre=0.5):
        self.size, self.start, self.span = size, start, span
        scale = size / length
        self.low = max(0, int(start * scale))
        self.high = min(size, int(np.ceil((start + span) * scale)))
        centres = start + stride * np.arange(count) + centre
        self.cells = np.rint(centres * scale - 0.5).astype(int).clip(self.low, self.high - 1)

    def meets(self, low, high):
        return low < self.high and high > self.low

    def cells_of(self, low, high):
        """The cells [first, end) between pixels low and high; the one nearest to their middle if there is none."""
        first, end = np.searchsorted(self.cells, (low, high))
        if first == end:
            first = np.abs(self.cells - (low + high - 1) / 2).argmin()
            end = first + 1
        return first, end


# Files

def own_folder(root):
    """The settings for a folder of one's own: images, classes.txt, and tags.csv or VOC's Annotations."""
    classes, table = (os.path.join(root, name) for name in ("classes.txt", "tags.csv"))
    if not os.path.isdir(root):
        raise InputError(f"{root}: no such folder; name the one with your images, classes.txt and tags.csv")
    if not os.path.isfile(classes):
        raise InputError(f"{classes}: no such file; write the names of your classes into it, one a line")
    boxes = os.path.isdir(os.path.join(root, "Annotations"))
    if not os.path.isfile(table) and not boxes:
        raise InputError(f"{table}: no such file; write a line for every image into it, such as a.jpg,cat;dog")
    return {"root": root, "classes": classes, "tags_from": "tags.csv" if os.path.isfile(table) else "annotations"}


def read_list(path):
    """Image ids, one a line."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read the list: {getattr(error, 'strerror', None) or error}") from None
    return [image_id(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line]


def image_id(name, where):
    """The name of an image without its suffix. It cannot reach out of the folder in which it is looked up."""
    if os.path.isabs(name) or ".." in name.split("/") or "\0" in name:
        raise InputError(f"{where}: {name!r} reaches out of the data root; give a path below the folder of images")
    return name[:name.rindex(".")] if name.endswith(SUFFIXES) else name


def read_tags(path, classes):
    """{id: (present, large)}, each (L,) bool, from a CSV with the columns image, tags and, if there are three, large.

    Tags are class names separated by ; or spaces. A header line may be there.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = [[field.strip() for field in row] for row in csv.reader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot read the tags: {getattr(error, 'strerror', None) or error}") from None
    table = {}
    for number, row in enumerate(rows, 1):
        where = f"{path}, line {number}"
        if not any(row) or number == 1 and row[:2] == ["image", "tags"]:
            continue
        if not 2 <= len(row) <= 3 or not row[0]:
            raise InputError(f"{where}: expected image,tags or image,tags,large, and ; between tags; got {row!r}")
        present, large = (flags_of(field, classes, where) for field in (row + [""])[1:3])
        if (large & ~present).any():
            raise InputError(f"{where}: {classes[(large & ~present).argmax()]!r} is large but not among the tags")
        id = image_id(row[0], where)
        if id in table:
            raise InputError(f"{where}: image {row[0]!r} has a row already")
        table[id] = present, large
    return table


def flags_of(field, classes, where):
    """(L,) bool from class names. A name may have spaces where ; separates, or where it stands alone."""
    names = [field] if field in classes else re.split("[;,]", field) if re.search("[;,]", field) else field.split()
    flags = np.zeros(len(classes), bool)
    for name in filter(None, map(str.strip, names)):
        if name not in classes:
            near = difflib.get_close_matches(name, classes, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected some of {', '.join(classes)}"
            raise InputError(f"{where}: tag {name!r} is not a class; {hint}")
        flags[classes.index(name)] = True
    return flags


def read_boxes(path, classes):
    """(height, width), [(label, y0, x0, y1, x1)] from a VOC annotation: in pixels from 0, half-open, clipped to the
    image. Objects marked difficult are kept: they are in the image."""
    try:
        root = ElementTree.parse(path).getroot()
        height, width = (int(root.findtext(f"size/{side}")) for side in ("height", "width"))
        objects = [(item.findtext("name").strip(),
                    [float(item.findtext(f"bndbox/{side}")) for side in ("ymin", "xmin", "ymax", "xmax")])
                   for item in root.findall("object")]
    except OSError as error:
        raise ImageError(f"{path}: cannot read the annotation: {error.strerror}") from None
    except (ElementTree.ParseError, AttributeError, TypeError, ValueError) as error:
        raise ImageError(f"{path}: is not a VOC annotation: {error}") from None
    boxes = []
    for name, (ymin, xmin, ymax, xmax) in objects:
        if name not in classes:
            raise ImageError(f"{path}: object {name!r} is not a class; expected one of {', '.join(classes[1:])}")
        # VOC counts pixels from 1 and includes the last
        y0, x0, y1, x1 = max(ymin - 1, 0), max(xmin - 1, 0), min(ymax, height), min(xmax, width)
        if not (y0 < y1 and x0 < x1):
            raise ImageError(f"{path}: the box of {name!r}, x {xmin:g}..{xmax:g}, y {ymin:g}..{ymax:g}, is empty or "
                             f"outside the image of {width} x {height} pixels")
        boxes.append((classes.index(name), y0, x0, y1, x1))
    return (height, width), boxes


def one_shape(shapes):
    """The (height, width) on which the files of an image agree."""
    (first, shape), *others = shapes.items()
    for file, other in others:
        if other != shape:
            raise ImageError(f"{file}: is for an image of {other[1]} x {other[0]} pixels, but {first} has "
                             f"{shape[1]} x {shape[0]}")
    return shape


def inside(path, folder):
    """Whether a path, links followed, lies in a folder."""
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))


def and_more(missing):
    return f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""


# Layers

def read_ahead(samples, start):
    """Yield samples[start], samples[start + 1], ...; a child process prepares each while the last one is in use.

    Not a thread: under `caffe train` the main thread keeps the interpreter's lock while Caffe computes. The child
    writes into a pipe and so gets ahead by what that holds. It ends when this process does, however that ends, as
    nobody can read any more; or when this generator is closed. (Caffe never frees a Python layer.)
    """
    reader, writer = os.pipe()
    with contextlib.suppress(OSError):
        # Room for a whole image: with the usual 64 KB the two processes take turns, 25 times as slow. (Linux; an
        # ordinary user may ask for 1 MB.)
        fcntl.fcntl(writer, F_SETPIPE_SZ, 1 << 20)
    sys.stderr.flush()
    child = os.fork()
    if not child:
        try:
            # ^C and hang-up are for Caffe, which answers with a snapshot and may go on
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.close(reader)
            with open(writer, "wb") as pipe:
                for t in itertools.count(start):
                    try:
                        message = samples[t]
                    except InputError as error:
                        message = error
                    except Exception:
                        message = RuntimeError(traceback.format_exc())
                    pickle.dump(message, pipe, protocol=5)
                    pipe.flush()
        finally:
            os._exit(0)
    os.close(writer)
    try:
        with open(reader, "rb") as pipe:
            while True:
                try:
                    message = pickle.load(pipe)
                except EOFError:
                    raise InputError("the process that reads the images was ended; is there enough memory?") from None
                if isinstance(message, Exception):
                    raise message
                yield message
    finally:
        # it may not notice that the pipe is closed: later children have inherited this end
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def widen(half, out):
    """float16 to float32, finite values only, eight times as fast as NumPy 1.26 does it: shift exponent and fraction
    to their places, clear the copies of the sign, and mend the exponent's bias of 15, which should be 127."""
    bits = out.view(np.int32)
    np.left_shift(half.view(np.int16), 13, out=bits, dtype=np.int32)
    np.bitwise_and(bits, ~np.int32(0x70000000), out=bits)
    np.multiply(out, np.float32(2.0 ** 112), out=out)


class VOCDataLayer(Reporting, caffe.Layer):
    """One image, of any size, with its supervision.

    no bottom
    top[k]     1 x the shape of tops[k], see Samples
    param_str  JSON: the settings of Samples
    """

    Samples = Samples
    stream = staticmethod(read_ahead)

    def setup(self, bottom, top):
        self.samples = self.Samples(self.param_str)
        self.tops = self.samples.tops
        if len(bottom) or len(top) != len(self.tops):
            raise InputError(f"{type(self).__name__}: \"tops\": {json.dumps(self.tops)} needs {len(self.tops)} tops "
                             f"and no bottom; the layer has {len(top)} and {len(bottom)}")
        start = os.environ.get("CCNN_START_ITERATION", "0") if self.phase == caffe.TRAIN else "0"
        if not start.isdecimal():
            raise InputError(f"CCNN_START_ITERATION must be a number of samples, 0 or more; got {start!r}")
        self.queue = self.stream(self.samples, int(start))
        self.sample = None
        self.skipped = 0

    def reshape(self, bottom, top):
        if self.sample is None:         # Caffe reshapes after setup and before every forward; only that uses it up
            self.sample, skipped = next(self.queue)
            for reason in skipped:
                self.skipped += 1
                print(f"{type(self).__name__}: skipped ({self.skipped} so far): {reason}", file=sys.stderr, flush=True)
        for k, name in enumerate(self.tops):        # (Caffe's vector of blobs can be indexed, not iterated)
            shape = self.sample[name].shape
            top[k].reshape(1, *(shape[2:] + shape[:2] if name == "data" else shape))

    def forward(self, bottom, top):
        for k, name in enumerate(self.tops):
            value, blob = self.sample[name], top[k].data[0]
            if name == "features":
                widen(value, blob)
            else:
                blob[...] = to_blob(value) if name == "data" else value
        self.sample = None

    def backward(self, top, propagate_down, bottom):
        pass


class FeatureDataLayer(VOCDataLayer):
    """The same from cached features: tops and settings of FeatureSamples.

    Reading them takes less time than passing them between processes would, so nothing is read ahead.
    """

    Samples = FeatureSamples
    stream = staticmethod(lambda samples, start: map(samples.__getitem__, itertools.count(start)))
