"""Training samples: an image, or its cached features, with its supervision."""
import difflib
import functools
import json
import os

import numpy as np

from ccnn.annotations import read_boxes
from ccnn.errors import ImageError, UserError
from ccnn.grid import Axis, score_size
from ccnn.images import SUFFIXES, fit, read_image, read_mask, shrink
from ccnn.labels import BACKGROUND, VOC_CLASSES, VOID, read_classes
from ccnn.lists import and_more, inside, read_list
from ccnn.tags import read_tags
from ccnn.trunk import VGG16

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
                raise UserError(f"{self.supervised}: lists {min(strange)!r}, which is not an image of {self.source}")
        else:
            self.with_mask = set(self.ids[:self.supervised])
        masks = [self.mask_file(id) for id in self.ids if self.uses_mask(id)]
        missing = [file for file in masks if not os.path.isfile(file)]
        if missing:
            raise UserError(f"{missing[0]}: no such mask{and_more(missing)}; {GET_VOC}, and images without masks "
                             'need "tags_from": "annotations" or a CSV file')

    # Settings

    @classmethod
    def checked(cls, options):
        """The settings as a dict, every key known and of the right kind."""
        if isinstance(options, str):
            try:
                options = json.loads(options or "{}")
            except ValueError as error:
                raise UserError(f"param_str is not JSON: {error}") from None
        if not isinstance(options, dict):
            raise UserError(f"param_str must be a JSON object, {{...}}; got {options!r}")
        for key in options:
            if key not in cls.DEFAULTS:
                near = difflib.get_close_matches(key, cls.DEFAULTS, 1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise UserError(f"unknown setting {key!r} in param_str; {hint}known: {', '.join(cls.DEFAULTS)}")
        o = {**cls.DEFAULTS, **options}

        def expect(key, kind, good):
            if key in o and not good(o[key]):
                raise UserError(f"{key} in param_str must be {kind}; got {json.dumps(o[key])}")

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
            raise UserError(f"{o['root']}: no such folder; {GET_VOC} into data/VOCdevkit/VOC2012, or name a folder "
                             'of your own as "root" in the net\'s param_str')
        own_tags = o["tags_from"] not in ("masks", "annotations")
        if o["split"] is None and o["tags_from"] == "masks":
            raise UserError('split in param_str must name a list of images, such as "train"')
        if o["crop"] and own_tags:
            raise UserError('crop needs tags_from "masks" or "annotations": a CSV does not say what a crop shows')
        if "sizes" in o["tops"] and o["tags_from"] == "annotations":
            raise UserError('sizes need tags_from "masks", or a CSV with a column of large tags: boxes tell no areas')
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
            raise UserError(f"{path}: no such folder; {GET_VOC}")
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
                raise UserError(f"{listed}: no such list of images (there: {have or 'none'}); {GET_VOC} with "
                                 "train, val and train_aug")
            ids = read_list(self.source)
        if not ids:
            raise UserError(f"{self.source}: lists no image")
        missing = [id for id in ids if self.csv is not None and id not in self.csv]
        if missing:
            raise UserError(f"{self.tags_from}: has no row for {missing[0]!r} of {self.source}{and_more(missing)}")
        return ids

    def input_file(self, id):
        """The image of an id. It must lie in the data root, or in the folder of images where that is a link."""
        for suffix in SUFFIXES:
            path = os.path.join(self.images, id + suffix)
            if os.path.isfile(path):
                if not inside(path, self.images) and not inside(path, self.root):
                    raise UserError(f"{path}: is a link out of the data root {self.root}; copy the file there")
                return path
        remedy = f"and has one image id a line ({GET_VOC})" if self.split else "so mend the name there, or remove it"
        raise UserError(f"{os.path.join(self.images, id)}.jpg: no such image; {self.source} lists {id!r}, {remedy}")

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
        raise UserError(f"every image of {self.source} is damaged; the last: {skipped[-1]}")

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

    features    the folder that cache_features.py wrote; it knows the `size`, and the trunk the `stride`
    crop        is cut from the feature grid, and given in pixels of the reduced image: 160 is 21 x 21 cells

    A flipped feature map stands for the features of the flipped image: nearly the same, and free.
    """

    DEFAULTS = {**Samples.DEFAULTS, "features": None, "tops": ["features", "tags"]}
    del DEFAULTS["size"], DEFAULTS["stride"]
    INPUT = "features"

    @classmethod
    def checked(cls, options):
        o = super().checked(options)
        index = os.path.join(o["features"] or "", "index.json")
        try:
            with open(index) as file:
                return {**o, "size": json.load(file)["size"], "stride": VGG16.stride}
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"{index}: is missing or damaged; tools/cache_features.py makes the folder that "
                             '"features" in param_str names') from None

    def input_file(self, id):
        path = os.path.join(self.features, f"{id}.npy")
        if not os.path.isfile(path) or not inside(path, self.features):
            raise UserError(f"{path}: no features of {id!r}; run tools/cache_features.py for {self.source}")
        return path

    def window(self, index, flip, v, u, shapes):
        file = self.files[index]
        try:
            features = np.load(file)
            channels, *grid = features.shape
        except (OSError, ValueError, EOFError) as error:
            raise ImageError(f"{file}: is damaged: {error}; run tools/cache_features.py again") from None
        if len(grid) != 2 or channels != VGG16.channels or features.dtype != np.float16:
            raise ImageError(f"{file}: holds {features.dtype} of shape {features.shape}; expected float16 of "
                             f"{VGG16.channels} channels x rows x columns: remove {self.features} and run "
                             "tools/cache_features.py again")
        if shapes:
            shape = one_shape(shapes)
            reduced = fit(*shape, self.size)
            expected = [VGG16.cells(length) for length in reduced]
            if grid != expected:
                raise ImageError(f"{file}: has {grid[0]} x {grid[1]} cells; {next(iter(shapes))} at size {self.size} "
                                 f"and stride {self.stride} has {expected[0]} x {expected[1]}")
        else:       # no pixels to be laid on the grid: any image that has this grid will do
            shape = reduced = [self.stride * (cells - 1) for cells in grid]
        axes, slices = [], [slice(None)]
        for size, length, cells, fraction, flipped in zip(shape, reduced, grid, (v, u), (False, flip)):
            count = min(VGG16.cells(self.crop) if self.crop else cells, cells)
            first = int(fraction * (cells - count + 1))
            # a flipped grid begins with its last cell, which is on the edge or up to stride - 1 pixels outside
            edge = length - self.stride * (cells - 1) if flipped else 0
            start = edge + self.stride * first
            axes.append(Axis(size, length, start, self.stride * (count - 1), self.stride, count, centre=0))
            slices.append(slice(first, first + count))
        return features[:, :, ::-1 if flip else 1][tuple(slices)], axes


LAYERS = {"VOCDataLayer": Samples, "FeatureDataLayer": FeatureSamples}      # by the name of the data layer


def own_folder(root):
    """The settings for a folder of one's own: images, classes.txt, and tags.csv or VOC's Annotations."""
    classes, table = (os.path.join(root, name) for name in ("classes.txt", "tags.csv"))
    if not os.path.isdir(root):
        raise UserError(f"{root}: no such folder; name the one with your images, classes.txt and tags.csv")
    if not os.path.isfile(classes):
        raise UserError(f"{classes}: no such file; write the names of your classes into it, one a line")
    boxes = os.path.isdir(os.path.join(root, "Annotations"))
    if not os.path.isfile(table) and not boxes:
        raise UserError(f"{table}: no such file; write a line for every image into it, such as a.jpg,cat;dog")
    return {"root": root, "classes": classes, "tags_from": "tags.csv" if os.path.isfile(table) else "annotations"}


def one_shape(shapes):
    """The (height, width) on which the files of an image agree."""
    (first, shape), *others = shapes.items()
    for file, other in others:
        if other != shape:
            raise ImageError(f"{file}: is for an image of {other[1]} x {other[0]} pixels, but {first} has "
                             f"{shape[1]} x {shape[0]}")
    return shape
