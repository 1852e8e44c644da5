"""Data layers: one image of a VOC folder, or its cached features, with its supervision, every iteration.

Sample t is a pure function of (seed, t), crop and mirroring included, so a run that is resumed at t sees what an
uninterrupted one would have seen. The layers start at t = CCNN_START_ITERATION (environment, default 0: the number
of samples already used, i.e. iterations times iter_size); nets in the TEST phase always start at 0.

Files are read in a child process, one sample ahead: under `caffe train` the main thread keeps the interpreter's lock
while Caffe computes, so a Python thread would not run.
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

from images import (BACKGROUND, SUFFIXES, VOC_CLASSES, VOID, ImageError, InputError, Reporting, fit, read_classes,
                    read_image, read_mask, score_size, shrink, to_blob)

F_SETPIPE_SZ = 1031     # fcntl has the name from Python 3.10 on
GET_VOC = "tools/get_voc.py fetches VOC 2012"


class Samples:
    """The samples of a split of a VOC folder. Settings, as JSON keys of param_str:

    root        the folder with JPEGImages, SegmentationClass, ... (VOCdevkit/VOC2012), or any folder of images
    split       "train" is root/ImageSets/Segmentation/train.txt; or a path, from root or from the working directory, of a list of image
                ids; absent: the images of the CSV in tags_from
    tops        what to deliver, in the order of the layer's tops; h x w is the score grid
                  data      3 x H x W    BGR, mean subtracted
                  tags      L            1 where a label is present; background always is
                  sizes     L            1 where a label covers more than `large` of the pixels that are not void
                  boxes     B x 5        label, y0, x0, y1, x1 on the grid, half-open; label -1: no box
                  labels    1 x h x w    label at the grid's points, 255 unknown
    classes     file with one class name a line; absent: VOC's
    images      folder of the images in root; absent: JPEGImages, else root itself
    masks       folder of the masks in root; absent: SegmentationClassAug, else SegmentationClass
    tags_from   "masks" (as the paper does), "annotations" (VOC's XML), or a CSV file with the columns image,tags
                (tags separated by ; or spaces) and, for sizes, a third one: those of the tags that are large
    supervised  K: only the first K images of the split keep their mask in `labels`; or a file that lists those that do;
                absent: all do
    size        long side to which images are reduced first; 0: as they are
    crop        side of a random crop in pixels, from which tags, sizes, boxes and labels are then taken; 0: none
    mirror      flip every other image, at random
    shuffle     a new order every epoch; false: the order of the split
    seed        of order, crops and mirroring
    stride      of the score grid
    large       see sizes
    damaged     "stop" at a file that cannot be used, or "skip" it: report it and take the next of the epoch
    """

    DEFAULTS = dict(root=None, split=None, tops=["data", "tags"], classes=None, images=None, masks=None,
                    tags_from="masks", supervised=None, size=0, crop=0, mirror=True, shuffle=True, seed=1, stride=8,
                    large=0.1, damaged="stop")
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
        self.files = [self.input_file(id) for id in self.ids]
        if isinstance(self.supervised, str):
            self.with_mask = set(read_list(self.path(self.supervised)))
            strange = self.with_mask.difference(self.ids)
            if strange:
                raise InputError(f"{self.supervised}: lists {min(strange)!r}, which is not in split {self.split}")
        else:
            self.with_mask = set(self.ids[:self.supervised])
        missing = [self.mask_file(id) for id in self.ids if self.uses_mask(id) and not os.path.isfile(self.mask_file(id))]
        if missing:
            raise InputError(f"{missing[0]}: no such mask{and_more(missing)}; {GET_VOC}, and images without masks "
                             'need "tags_from": "annotations" or a CSV file')

    # --- settings -------------------------------------------------------------------------------------------------

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
                raise InputError(f"unknown setting {key!r} in param_str" + (f"; did you mean {near[0]!r}?" if near else "")
                                 + f" known: {', '.join(cls.DEFAULTS)}")
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
        expect("tops", f"a list of some of {', '.join(tops)}, each once", lambda v: isinstance(v, list) and v
               and all(name in tops for name in v) and len(set(v)) == len(v))
        expect("supervised", "a number of images or the path of a list", lambda v: v is None or whole(v) or text(v))
        for key in ("size", "crop", "seed"):
            expect(key, "a whole number, 0 or more", whole)
        expect("stride", "a whole number, 1 or more", lambda v: whole(v, 1))
        expect("large", "a fraction between 0 and 1", lambda v: type(v) in (int, float) and 0 <= v <= 1)
        expect("damaged", '"stop" or "skip"', lambda v: v in ("stop", "skip"))
        for key in ("mirror", "shuffle"):
            expect(key, "true or false", lambda v: isinstance(v, bool))
        if not os.path.isdir(o["root"]):
            raise InputError(f"{o['root']}: no such folder; {GET_VOC} to data/VOCdevkit/VOC2012, or name your folder in "
                             "the net's param_str, \"root\"")
        if o["split"] is None and o["tags_from"] in ("masks", "annotations"):
            raise InputError("split in param_str must name a list of images, such as \"train\"")
        if o["crop"] and o["tags_from"] not in ("masks", "annotations"):
            raise InputError("crop needs tags_from \"masks\" or \"annotations\": a CSV does not say what a crop shows")
        if "sizes" in o["tops"] and o["tags_from"] == "annotations":
            raise InputError("sizes need tags_from \"masks\" or a CSV with a column of large tags: boxes do not tell areas")
        return o

    def path(self, name):
        """A path of the settings: from root, or else from the working directory."""
        inside = os.path.join(self.root, name)
        return inside if os.path.exists(inside) else name

    def folder(self, name, *usual):
        for choice in [name] if name else usual:
            path = os.path.join(self.root, choice)
            if os.path.isdir(path):
                return path
        if name:
            raise InputError(f"{path}: no such folder; {GET_VOC}")
        return path

    def read_ids(self):
        if self.split is None:
            source, ids = self.tags_from, list(self.csv)
        else:
            source = os.path.join(self.root, "ImageSets/Segmentation", f"{self.split}.txt")
            source = source if os.path.isfile(source) else self.path(self.split)
            if not os.path.isfile(source):
                folder = os.path.join(self.root, "ImageSets/Segmentation")
                have = sorted(f[:-4] for f in os.listdir(folder) if f.endswith(".txt")) if os.path.isdir(folder) else []
                raise InputError(f"{folder}/{self.split}.txt: no such split (there: {', '.join(have) or 'none'}); "
                                 f"{GET_VOC} with train_aug, train and val")
            ids = read_list(source)
        if not ids:
            raise InputError(f"{source}: lists no image")
        if self.csv is not None:
            missing = [id for id in ids if id not in self.csv]
            if missing:
                raise InputError(f"{self.tags_from}: has no row for image {missing[0]!r} of {source}{and_more(missing)}")
        return ids

    def input_file(self, id):
        """The image file of an id, which must lie in the data root (or in the folder of images, if that is a link)."""
        for suffix in SUFFIXES:
            path = os.path.join(self.images, id + suffix)
            if os.path.isfile(path):
                if not inside(path, self.images) and not inside(path, self.root):
                    raise InputError(f"{path}: is a link out of the data root {self.root}; copy the file there")
                return path
        raise InputError(f"{os.path.join(self.images, id)}.jpg: no such image (listed in {self.split or self.tags_from}); "
                         f"a list has one image id a line; {GET_VOC}")

    def mask_file(self, id):
        return os.path.join(self.masks, f"{id}.png")

    def uses_mask(self, id):
        """Whether this image's mask is needed."""
        return (self.tags_from == "masks" and bool({"tags", "sizes"}.intersection(self.tops))
                or "labels" in self.tops and id in self.with_mask)

    # --- samples --------------------------------------------------------------------------------------------------

    def __len__(self):
        return len(self.ids)

    @functools.lru_cache(maxsize=2)
    def order(self, epoch):
        n = len(self.ids)
        return np.random.default_rng((self.seed, 0, epoch)).permutation(n) if self.shuffle else np.arange(n)

    def index(self, t, attempt=0):
        """Which image sample t shows; attempt > 0: what replaces it if that one is damaged."""
        epoch, position = divmod(t, len(self.ids))
        return self.order(epoch)[(position + attempt) % len(self.ids)]

    def image(self, t):
        """The file of sample t, for messages."""
        return self.files[self.index(t)]

    def __getitem__(self, t):
        """Sample t: ({top: array}, [what was wrong with the images skipped for it])."""
        skipped = []
        for attempt in range(len(self.ids)):
            index = self.index(t, attempt)
            try:
                return self.load(index, *np.random.default_rng((self.seed, 1, t)).random(3)), skipped
            except ImageError as error:
                if self.damaged == "stop":
                    raise ImageError(f"{error} (\"damaged\": \"skip\" in param_str passes over such files)") from None
                skipped.append(str(error))
        raise InputError(f"all {len(self.ids)} images of split {self.split} are damaged; the last: {skipped[-1]}")

    def load(self, index, toss, v, u):
        """Image `index`, flipped if toss < 1/2, cropped at the fraction (v, u) of the way down and across."""
        id, flip = self.ids[index], self.mirror and toss < 0.5
        top = {name: None for name in self.tops}

        # 1. what the files say
        labelled = id in self.with_mask
        mask = read_mask(self.mask_file(id), len(self.classes)) if self.uses_mask(id) else None
        boxes = shape = None
        if "boxes" in top or self.tags_from == "annotations":
            path = os.path.join(self.root, "Annotations", f"{id}.xml")
            shape, boxes = read_boxes(path, self.classes)
        # (the file a shape comes from, for messages)
        known = [(s, f) for s, f in ((mask is not None and mask.shape, self.mask_file(id)),
                                     (shape, boxes is not None and path)) if s]
        top[self.INPUT], shape, (y, x) = self.window(index, flip, v, u, known)
        if shape and flip:
            mask = mask if mask is None else mask[:, ::-1]
            boxes = boxes and [(label, y0, shape[1] - x1, y1, shape[1] - x0) for label, y0, x0, y1, x1 in boxes]

        # 2. what of it lies in the crop
        if mask is not None:
            count = np.bincount(mask[y.low:y.high, x.low:x.high].ravel(), minlength=VOID + 1)[:len(self.classes)]
        if boxes is not None:
            boxes = [box for box in boxes if y.meets(box[1], box[3]) and x.meets(box[2], box[4])]

        # 3. the tops
        if self.csv is not None:
            present, large = self.csv[id]
        elif boxes is not None and self.tags_from == "annotations":
            present, large = np.isin(np.arange(len(self.classes)), [box[0] for box in boxes]), None
        elif mask is not None and self.tags_from == "masks":
            present, large = count > 0, count > self.large * count.sum()
        if "tags" in top:
            top["tags"] = present.astype(np.float32)
            top["tags"][BACKGROUND] = 1
        if "sizes" in top:
            top["sizes"] = large.astype(np.float32)
        if "boxes" in top:
            grid = [(label, *y.cells_of(y0, y1), *x.cells_of(x0, x1)) for label, y0, x0, y1, x1 in boxes]
            top["boxes"] = np.array(grid or [(-1, 0, 0, 0, 0)], np.float32)[:, [0, 1, 3, 2, 4]]
        if "labels" in top:
            top["labels"] = np.full((1, len(y.cells), len(x.cells)), VOID, np.uint8)
            if labelled:
                top["labels"][0] = mask[np.ix_(y.cells, x.cells)]
        return top

    def window(self, index, flip, v, u, known):
        """The input, the shape of the image file, and the Axis of its rows and of its columns."""
        rgb = read_image(self.files[index])
        shape = rgb.shape[:2]
        for other, file in known:
            if other != shape:
                raise ImageError(f"{file}: is for an image of {other[1]} x {other[0]} pixels, but {self.files[index]} "
                                 f"has {shape[1]} x {shape[0]}")
        rgb = shrink(rgb, self.size)
        if flip:
            rgb = rgb[:, ::-1]
        axes = []
        for size, length, fraction in zip(shape, rgb.shape, (v, u)):
            span = min(self.crop or length, length)
            axes.append(Axis(size, length, int(fraction * (length - span + 1)), span, self.stride))
        y, x = axes
        return np.ascontiguousarray(rgb[y.start:y.start + y.span, x.start:x.start + x.span]), shape, axes


class FeatureSamples(Samples):
    """The same with features that tools/cache_features.py computed, instead of images: tops may hold `features`,
    512 x h x w, in place of `data`. Settings as in Samples, but

    features    the folder that cache_features.py wrote
    size        is taken from there
    crop        of the feature grid, given in pixels of the reduced image: 161 is 21 x 21 cells

    A mirrored feature map stands for the features of the mirrored image: nearly the same, and free.
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
                             f"\"features\" in param_str names") from None

    def input_file(self, id):
        path = os.path.join(self.features, f"{id}.npy")
        if not os.path.isfile(path) or not inside(path, self.features):
            raise InputError(f"{path}: no features of {id!r} (listed in {self.split or self.tags_from}); "
                             f"run tools/cache_features.py for this list")
        return path

    def window(self, index, flip, v, u, known):
        file = self.files[index]
        try:
            features = np.load(file)
        except (OSError, ValueError, EOFError) as error:
            raise ImageError(f"{file}: is damaged: {error}; run tools/cache_features.py again") from None
        if features.ndim != 3 or features.dtype != np.float16:
            raise ImageError(f"{file}: holds {features.dtype} of shape {features.shape}, not float16 channels x rows x columns")
        if flip:
            features = features[:, :, ::-1]
        if not known:                   # tags alone: nothing is to be laid on the grid
            return features, None, (None, None)
        shape = known[0][0]
        reduced = fit(*shape, self.size)
        axes, slices = [], []
        for size, length, cells, fraction in zip(shape, reduced, features.shape[1:], (v, u)):
            if cells != score_size(length, self.stride):
                raise ImageError(f"{file}: has {features.shape[1]} x {features.shape[2]} cells, but an image of {shape[1]} x {shape[0]} "
                                 f"at size {self.size} and stride {self.stride} has {score_size(reduced[0], self.stride)} x "
                                 f"{score_size(reduced[1], self.stride)} ({known[0][1]})")
            count = min(score_size(self.crop, self.stride) if self.crop else cells, cells)
            first = int(fraction * (cells - count + 1))
            # a flipped grid begins where the grid ended: at or up to stride - 1 pixels outside the edge
            edge = length - 1 - self.stride * (cells - 1) if flip and len(axes) else 0
            axes.append(Axis(size, length, edge + self.stride * first, self.stride * (count - 1) + 1, self.stride))
            slices.append(slice(first, first + count))
        return features[(slice(None), *slices)], shape, axes


class Axis:
    """Rows, or columns, of one sample: where the crop and the cells of its score grid lie in the image file.

    size    pixels in the file; length: after the image was reduced
    start   first pixel of the crop in the reduced image, span: their number. Cell k sits at pixel start + k * stride
    low, high, cells    the crop's bounds [low, high) and the cells, in pixels of the file
    """

    def __init__(self, size, length, start, span, stride):
        self.start, self.span = start, span
        scale = size / length
        self.low = max(0, int(start * scale))
        self.high = min(size, int(np.ceil((start + span) * scale)))
        centres = start + stride * np.arange(score_size(span, stride))
        self.cells = np.rint((centres + 0.5) * scale - 0.5).astype(int).clip(self.low, self.high - 1)

    def meets(self, low, high):
        return low < self.high and high > self.low

    def cells_of(self, low, high):
        """The cells [first, end) in [low, high) pixels; the nearest one if there is none between them."""
        first, end = np.searchsorted(self.cells, (low, high))
        if first == end:
            first = np.abs(self.cells - (low + high - 1) / 2).argmin()
            end = first + 1
        return first, end


# --- files ----------------------------------------------------------------------------------------------------------

def read_list(path):
    """Image ids, one a line, without the suffix of the image; none reaches out of the folder it is looked up in."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read the list of images: {getattr(error, 'strerror', None) or error}") from None
    return [image_id(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line]


def image_id(name, where):
    if os.path.isabs(name) or ".." in name.split("/") or "\0" in name:
        raise InputError(f"{where}: {name!r} reaches out of the data root; give the image's id, relative to the folder of images")
    return name[:name.rindex(".")] if name.endswith(SUFFIXES) else name


def read_tags(path, classes):
    """{id: (present, large)} from a CSV with the columns image, tags and, optionally, the tags that are large.

    present : (L,) bool;  large : (L,) bool. Tags are class names separated by ; or spaces. A header line is not needed.
    """
    table = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = [[field.strip() for field in row] for row in csv.reader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot read the tags: {getattr(error, 'strerror', None) or error}") from None
    for number, row in enumerate(rows, 1):
        where = f"{path}, line {number}"
        if not any(row) or number == 1 and row[:2] == ["image", "tags"]:
            continue
        if not 2 <= len(row) <= 3 or not row[0]:
            raise InputError(f"{where}: expected image,tags or image,tags,large with tags separated by ; but got {','.join(row)!r}")
        present, large = (np.zeros(len(classes), bool) for _ in range(2))
        for field, flags in zip(row[1:], (present, large)):
            names = [field] if field in classes else re.split(r"\s*[;,]\s*", field) if re.search("[;,]", field) else field.split()
            for name in filter(None, names):
                if name not in classes:
                    near = difflib.get_close_matches(name, classes, 1)
                    raise InputError(f"{where}: tag {name!r} is not a class"
                                     + (f"; did you mean {near[0]!r}?" if near else f" ({', '.join(classes)})"))
                flags[classes.index(name)] = True
        if (large & ~present).any():
            raise InputError(f"{where}: {classes[np.flatnonzero(large & ~present)[0]]!r} is large but not among the tags")
        id = image_id(row[0], where)
        if id in table:
            raise InputError(f"{where}: image {row[0]!r} has a row already")
        table[id] = present, large
    return table


def read_boxes(path, classes):
    """((height, width) or None, [(label, y0, x0, y1, x1)]) from a VOC annotation: pixels from 0, half-open, clipped to the
    image. `difficult` objects are kept: they are in the image."""
    try:
        root = ElementTree.parse(path).getroot()
        size = root.find("size")
        shape = None if size is None else (int(size.findtext("height")), int(size.findtext("width")))
        objects = [(o.findtext("name").strip(), *(float(o.findtext(f"bndbox/{k}")) for k in ("ymin", "xmin", "ymax", "xmax")))
                   for o in root.findall("object")]
    except OSError as error:
        raise ImageError(f"{path}: cannot read the annotation: {error.strerror}") from None
    except (ElementTree.ParseError, AttributeError, TypeError, ValueError) as error:
        raise ImageError(f"{path}: is not a VOC annotation: {error}") from None
    boxes = []
    for name, y0, x0, y1, x1 in objects:
        if name not in classes:
            raise ImageError(f"{path}: object {name!r} is not a class; expected one of {', '.join(classes[1:])}")
        height, width = shape or (np.inf, np.inf)
        y0, x0, y1, x1 = max(y0 - 1, 0), max(x0 - 1, 0), min(y1, height), min(x1, width)   # VOC counts from 1, ends included
        if not (y0 < y1 and x0 < x1):
            raise ImageError(f"{path}: the box of {name!r} is empty or lies outside the image of {width} x {height} pixels")
        boxes.append((classes.index(name), y0, x0, y1, x1))
    return shape, boxes


def inside(path, folder):
    """Whether a path, links followed, lies in a folder."""
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))


def and_more(missing):
    return f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""


# --- layers ---------------------------------------------------------------------------------------------------------

def read_ahead(samples, start):
    """Yield samples[start], samples[start + 1], ...; each is prepared by a child process while the last is in use.

    The child writes to a pipe and so is at most a pipe's buffer and one sample ahead. It ends when nobody can
    read any more: this generator was closed, or this process died, however it died.
    """
    reader, writer = os.pipe()
    with contextlib.suppress(OSError):
        # room for a whole image: with the usual 64 KB, reading one takes 25 times as long, as the two
        # processes take turns (Linux; 1 MB is what an ordinary user may ask for)
        fcntl.fcntl(writer, F_SETPIPE_SZ, 1 << 20)
    sys.stderr.flush()
    child = os.fork()
    if not child:
        # ^C and hang-up are Caffe's: it writes a snapshot, for which it may still need samples
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            os.close(reader)
            with open(writer, "wb") as pipe:
                t = start
                while True:
                    try:
                        message = samples[t]
                    except InputError as error:
                        message = error
                    except Exception:
                        message = RuntimeError(traceback.format_exc())
                    pickle.dump(message, pipe, protocol=5)
                    pipe.flush()
                    t += 1
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
                if isinstance(message, BaseException):
                    raise message
                yield message
    finally:
        os.waitpid(child, 0)


def widen(half, out):
    """float16 to float32, finite values only, eight times as fast as NumPy does it (1.26): shift exponent and fraction
    to their places, clear what the sign left behind, and mend the exponent's bias of 15 instead of 127."""
    bits = out.view(np.int32)
    np.left_shift(half.view(np.int16), 13, out=bits, dtype=np.int32)
    np.bitwise_and(bits, ~np.int32(0x70000000), out=bits)
    np.multiply(out, np.float32(2.0 ** 112), out=out)


class VOCDataLayer(Reporting, caffe.Layer):
    """One image a batch, of any size, with its supervision.

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
            raise InputError(f"{type(self).__name__} takes no bottom and, for \"tops\": {json.dumps(self.tops)}, "
                             f"{len(self.tops)} tops; got {len(bottom)} and {len(top)}")
        start = os.environ.get("CCNN_START_ITERATION", "0") if self.phase == caffe.TRAIN else "0"
        if not start.isdecimal():
            raise InputError(f"CCNN_START_ITERATION must be a number of samples, 0 or more; got {start!r}")
        self.queue = self.stream(self.samples, int(start))
        self.sample = None
        self.skipped = 0

    def reshape(self, bottom, top):
        # Caffe reshapes after setup and again before every forward: only forward uses a sample up
        if self.sample is None:
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
    """The same from cached features: tops and settings of FeatureSamples. Reading them takes less time than to pass
    them between processes, so nothing is read ahead."""

    Samples = FeatureSamples
    stream = staticmethod(lambda samples, start: map(samples.__getitem__, itertools.count(start)))
