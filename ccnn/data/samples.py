"""Training samples: an image, or its cached features, with its supervision.

Sample t is a pure function of the settings and t: which image it shows, whether it is mirrored, where it is cropped.
"""
import functools
import json
import os

import numpy as np

from ccnn._util.errors import ImageError, UserError, suggest
from ccnn._util.files import load_array
from ccnn._util.foreign_files import parse_json
from ccnn._util.settings import (
    COUNT,
    FOLDER,
    FOLDERS,
    FRACTION,
    NAMES,
    NUMBER_OR_LIST,
    SWITCH,
    TEXT,
    WHOLE,
    Kind,
    Setting,
    one_of,
    optional,
    read_settings,
)
from ccnn.data.dataset import DataSet
from ccnn.images.grid import Axis
from ccnn.images.ids import inside
from ccnn.images.labels import read_classes
from ccnn.images.reading import fit, read_image, shrink
from ccnn.nets.backbones import BACKBONES, DEFAULT
from ccnn.supervision.crops import CroppedAnnotation
from ccnn.supervision.kinds import all_blobs
from ccnn.supervision.rules_file import RULES_FILE, read_rules

FILES = {       # what DataSet takes
    "root": Setting(FOLDER, None, "the folder of JPEGImages, SegmentationClass, ... (VOCdevkit/VOC2012), or any folder "
                                  "of images"),
    "split": Setting(optional(TEXT), None, '"train" is root/ImageSets/Segmentation/train.txt; or the path of a list, '
                                           "from root or from the working directory; null: the images of the table "
                                           "in tags_from, or those with a file in Annotations"),
    "classes": Setting(optional(TEXT), None, "file with one class name per line; null: VOC's classes"),
    "images": Setting(optional(TEXT), None, "folder of the images in root; null: JPEGImages, else root itself"),
    "masks": Setting(optional(TEXT), None, "folder of the masks in root; null: SegmentationClassAug, else "
                                           "SegmentationClass"),
    "tags_from": Setting(Kind('"masks", "annotations" or the path of a CSV file', TEXT.check), "masks",
                         '"masks" (as the paper does), "annotations" (VOC\'s XML), or a CSV file'),
    "supervised": Setting(optional(NUMBER_OR_LIST), None, "K: only the first K images of the list keep their mask in "
                                                          "`labels`; or a list of those that do; null: all do"),
    "scribbles": Setting(optional(TEXT), None, "for images without a mask: the folder of PNGs that mark some pixels, "
                                               "with label ids and 255 where unknown, from root or from the working "
                                               "directory; or a constraints.toml that names it"),
    "shares": Setting(optional(TEXT), None, "CSV file with a line `image,share` for every image: the part of it that "
                                            "is background, known or guessed"),
    "cues": Setting(optional(TEXT), None, "folder of the maps of a cue, ID.npy, from root or from the working "
                                          "directory; see ccnn.supervision.cue_rows"),
    "without": Setting(optional(NAMES), None, "ids of images that are left out, although they are listed"),
    "unlisted": Setting(one_of(("stop", "skip")), "stop", '"stop" at an object in Annotations whose class is not among '
                                                        'the classes, or "skip" it: its pixels are background'),
}

VIEW = {        # which part of an image a sample has, and the order of the images
    "tops": Setting(NAMES, ["data", "tags"], "what to deliver, in the order of the layer's tops: `data` and blobs of "
                                             "ccnn.supervision.kinds"),
    "size": Setting(WHOLE, 0, "long side to which images are reduced first; 0: as they are"),
    "crop": Setting(WHOLE, 0, "side in pixels of a random crop, which the supervision then describes; 0: no crop"),
    "mirror": Setting(SWITCH, True, "mirror every other sample, at random"),
    "shuffle": Setting(SWITCH, True, "a new order in every epoch; false: the order of the list"),
    "seed": Setting(WHOLE, 1, "decides order, crops and mirroring"),
    "stride": Setting(COUNT, 8, "pixels per cell of the score grid"),
    "large": Setting(FRACTION, 0.1, "a label is large that covers more than this share of the labelled pixels"),
    "damaged": Setting(one_of(("stop", "skip")), "stop", '"stop" at a file that cannot be used, or "skip" it: report '
                                                         "it and take the epoch's next image"),
}


class Samples:
    """The samples of a data set. SETTINGS are the keys of param_str."""

    SETTINGS = {**FILES, **VIEW}
    INPUT = "data"

    def __init__(self, options):
        """options : dict, or JSON text."""
        self.settings = s = self.read_settings(options)
        self.tops, self.crop = s["tops"], s["crop"]
        self.backbone = BACKBONES[s.get("backbone", DEFAULT.name)]
        self.stride = s.get("stride", self.backbone.stride)     # features have the stride of their backbone
        self.mirror, self.shuffle, self.seed = s["mirror"], s["shuffle"], s["seed"]
        self.large, self.damaged = s["large"], s["damaged"]
        blobs = all_blobs()
        self.blobs = {name: blobs[name] for name in self.tops if name != self.INPUT}
        self.needs = {blob.needs for blob in self.blobs.values()}

        self.data = DataSet(**{name: s[name] for name in FILES})
        self.ids, self.classes, self.csv = self.data.ids, self.data.classes, self.data.csv
        self.size = self.input_size()
        self.files = self.input_files()
        self.data.check_masks(self.needs)
        self.data.check_shares(self.needs)
        self.data.check_cues(self.needs)
        self.cached_order = functools.lru_cache(maxsize=2)(self.order)

    @classmethod
    def read_settings(cls, options):
        """The settings, each of the right kind, and none that contradicts another."""
        s = read_settings(options, cls.SETTINGS)
        known = [cls.INPUT, *all_blobs()]
        for name in s["tops"]:
            if name not in known:
                raise UserError(f"param_str: tops must be a list of some of {', '.join(known)}; {name!r} is none of "
                                f"them, {suggest(name, known)}")
        if s["split"] is None and s["tags_from"] == "masks":
            raise UserError('param_str: split must name a list of images, such as "train"')
        if s["crop"] and s["tags_from"] not in ("masks", "annotations"):
            raise UserError('param_str: crop needs tags_from "masks" or "annotations", because a CSV file does not say '
                            "what a crop shows")
        if s["crop"] and "number" in s["tops"]:
            raise UserError("param_str: the top `number` is for what is kept of whole images; crop none")
        if s["crop"] and "share" in s["tops"]:
            raise UserError("param_str: the top `share` is of whole images; crop none")
        if "sizes" in s["tops"] and s["tags_from"] == "annotations":
            raise UserError('param_str: sizes need tags_from "masks", or a CSV file with a column of large tags, '
                            "because boxes do not give areas")
        return s

    def input_size(self):
        """The long side to which images are reduced; 0: as they are."""
        return self.settings["size"]

    def input_files(self):
        """The files of the net's input, one per image."""
        return self.data.image_files()

    # Which image a sample shows

    def __len__(self):
        return len(self.ids)

    def order(self, epoch):
        """The images of an epoch, by their numbers in the list."""
        n = len(self.ids)
        return np.random.default_rng((self.seed, 0, epoch)).permutation(n) if self.shuffle else np.arange(n)

    def index(self, t, attempt=0):
        """The number of the image that sample t shows; attempt > 0: of the image that replaces a damaged one."""
        epoch, position = divmod(t, len(self.ids))
        return self.cached_order(epoch)[(position + attempt) % len(self.ids)]

    def image(self, t):
        """The file of sample t."""
        return self.files[self.index(t)]

    # What it shows

    def chance(self, t):
        """Four numbers in 0..1, which decide what of its image sample t shows; see load()."""
        return np.random.default_rng((self.seed, 1, t)).random(4)

    def __getitem__(self, t):
        """Sample t: ({top: array}, [what is wrong with each image that was skipped for it])."""
        skipped = []
        for attempt in range(len(self.ids)):
            try:
                return self.load(self.index(t, attempt), *self.chance(t)), skipped
            except ImageError as error:
                if self.damaged == "stop":
                    raise ImageError(f'{error}; "damaged": "skip" in param_str passes over such files') from None
                skipped.append(str(error))
        raise UserError(f"every image of {self.data.source} is damaged; the last: {skipped[-1]}")

    def load(self, index, toss, v, u, s=0):
        """Image `index`, mirrored if toss < 1/2, cropped at the fractions v of the way down and u across; of its sizes,
        the one at the fraction s."""
        flip = self.mirror and toss < 0.5
        annotation = self.data.read(self.ids[index], self.needs)._replace(number=int(index))
        file, long_side = self.input_at(index, s)
        value, y, x = self.window(file, long_side, flip, (v, u), annotation.shapes)
        crop = CroppedAnnotation(annotation, y, x, flip, self.large)
        return {name: self.blobs[name].make(crop) if name in self.blobs else value for name in self.tops}

    def input_at(self, index, s):
        """The file of the net's input, and the long side to which it is reduced."""
        return self.files[index], self.size

    def window(self, file, long_side, flip, fractions, shapes):
        """The net's input and its rows and columns. shapes : {file: (height, width)} of the supervision.

        The input is H x W x 3 uint8 RGB. That is a quarter of the blob's bytes, and it goes through a pipe.
        """
        rgb = read_image(file)
        shape = one_shape({file: rgb.shape[:2], **shapes})
        rgb = shrink(rgb, long_side)[:, ::-1 if flip else 1]
        y, x = (Axis.of_image(size, length, self.stride, self.crop, fraction)
                for size, length, fraction in zip(shape, rgb.shape, fractions))
        return np.ascontiguousarray(rgb[y.window, x.window]), y, x


class FeatureSamples(Samples):
    """Samples with the features that ccnn cache-features computed in place of the images.

    The tops have `features`, 1024 x h x w, instead of `data`. A crop is cut from the feature grid and given in pixels
    of the reduced image: 160 is 21 x 21 cells. A mirrored feature map stands for the features of the mirrored image:
    they are nearly the same.

    If the folder holds another blob of the backbone, the supervision is still that of the feature grid, where the
    scores lie. pool3 has a cell fewer each way. Cell j of pool4 lies between its cells j - 1 and j, so the mirrored
    maps of both fit together.
    """

    SETTINGS = {
        **{name: setting for name, setting in Samples.SETTINGS.items() if name not in ("size", "stride")},
        "tops": Samples.SETTINGS["tops"]._replace(default=["features", "tags"]),
        "features": Setting(optional(FOLDERS), None, "the folder that ccnn cache-features wrote; it knows the size."
                                                     " Or a list of such folders: a sample shows one of them"),
        "blob": Setting(TEXT, "features",
                        "what the folder must hold: the --blob with which ccnn cache-features wrote it"),
        "backbone": Setting(one_of(BACKBONES), DEFAULT.name, "the net that made the features"),
    }
    INPUT = "features"

    @classmethod
    def read_settings(cls, options):
        s = super().read_settings(options)
        blobs = BACKBONES[s["backbone"]].blobs
        if s["blob"] not in blobs:
            raise UserError(f"param_str: blob must be {' or '.join(blobs)}, which is what can be cached of "
                            f"{s['backbone']}; got {json.dumps(s['blob'])}")
        return s

    @property
    def folders(self):
        """The folders of the features, one per size."""
        features = self.settings["features"] or ""
        return features if isinstance(features, list) else [features]

    def input_size(self):
        """[size of each folder]"""
        wanted, sizes = self.settings["blob"], []
        for folder in self.folders:
            index = feature_index(folder)
            held = index.get("blob", "features")
            if held != wanted:
                raise UserError(f"{folder}: holds the backbone's {held}, the net needs {wanted}; "
                                f"ccnn cache-features --blob {wanted} --out another folder makes them")
            sizes.append(index["size"])
        self.cached = self.backbone.blobs[wanted]
        return sizes

    def input_files(self):
        """Those of the first size; the others are there as well."""
        files = {folder: [self.input_file(folder, id) for id in self.ids] for folder in self.folders}
        return files[self.folders[0]]

    def input_file(self, folder, id):
        path = os.path.join(folder, f"{id}.npy")
        if not os.path.isfile(path) or not inside(path, folder):
            raise UserError(f"{path}: no features of {id!r}; run ccnn cache-features for {self.data.source}")
        return path

    def input_at(self, index, s):
        number = int(s * len(self.folders))
        return os.path.join(self.folders[number], f"{self.ids[index]}.npy"), self.size[number]

    def window(self, file, long_side, flip, fractions, shapes):
        features = self.read_features(file)
        held, fewer = list(features.shape[1:]), self.cached.fewer
        grid = [cells + fewer for cells in held]            # of the scores
        if shapes:
            shape = one_shape(shapes)
            reduced = fit(shape[0], shape[1], long_side)
            expected = [self.backbone.cells(length) - fewer for length in reduced]
            if held != expected:
                raise ImageError(f"{file}: has {held[0]} x {held[1]} cells; {next(iter(shapes))} at size {long_side} "
                                 f"and stride {self.stride} has {expected[0]} x {expected[1]}")
        else:       # no supervision of pixels: any image with this grid will do
            shape = reduced = [self.stride * (cells - 1) for cells in grid]
        y, x = (Axis.of_features(size, length, self.backbone, self.crop, fraction, cells, flipped)
                for size, length, fraction, cells, flipped in zip(shape, reduced, fractions, grid, (False, flip)))
        rows, columns = (slice(axis.window.start, axis.window.stop - fewer) for axis in (y, x))
        return features[:, :, ::-1 if flip else 1][:, rows, columns], y, x

    def read_features(self, file):
        """C x h x w float16; C is 1024, or that of the backbone's blob that is cached."""
        try:
            features = np.array(load_array(file))
            channels, *grid = features.shape
        except (OSError, ValueError) as error:
            raise ImageError(f"{file}: is damaged: {error}; run ccnn cache-features again") from None
        if len(grid) != 2 or channels != self.cached.channels or features.dtype != np.float16:
            raise ImageError(f"{file}: holds {features.dtype} of shape {features.shape}; expected float16 of "
                             f"{self.cached.channels} channels x rows x columns: remove {os.path.dirname(file)} and "
                             "run ccnn cache-features again")
        return features


def feature_index(folder):
    """What the folder of features says of itself: `size`, the long side of the images, and `blob`."""
    path = os.path.join(folder, "index.json")
    try:
        index = parse_json(path)
        return {**index, "size": index["size"]}
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: is missing or damaged; ccnn cache-features makes the folder that "
                        '"features" in param_str names') from None


SCRIBBLES = "scribbles"         # in a folder of your own

SAMPLES_OF_LAYER = {"VOCDataLayer": Samples, "FeatureDataLayer": FeatureSamples}      # by the name of the data layer


def folder_settings(root):
    """The settings for a folder of photographs with classes.txt, and tags.csv or VOC's Annotations.

    Scribbles are used if constraints.toml names them.
    Annotations may have objects of classes that classes.txt does not list. They are left out, and
    counted before a training.
    """
    classes, table = (os.path.join(root, name) for name in ("classes.txt", "tags.csv"))
    if not os.path.isdir(root):
        raise UserError(f"{root}: no such folder; name the one with your images, classes.txt and tags.csv")
    if not os.path.isfile(classes):
        raise UserError(f"{classes}: no such file; write the names of your classes into it, one per line")
    boxes = os.path.isdir(os.path.join(root, "Annotations"))
    if not os.path.isfile(table) and not boxes:
        raise UserError(f"{table}: no such file; write a line for every image into it, such as a.jpg,cat;dog")
    tags = {"tags_from": "tags.csv"} if os.path.isfile(table) else {"tags_from": "annotations", "unlisted": "skip"}
    rules = os.path.join(root, RULES_FILE)
    scribbled = os.path.isfile(rules) and read_rules(rules, read_classes(classes)).scribbles
    return {"root": root, "classes": classes, **tags, **({"scribbles": RULES_FILE} if scribbled else {})}


def one_shape(shapes):
    """The (height, width) on which the files of an image agree."""
    (first, shape), *others = shapes.items()
    for file, other in others:
        if other != shape:
            raise ImageError(f"{file}: is for an image of {other[1]} x {other[0]} pixels, but {first} has "
                             f"{shape[1]} x {shape[0]}")
    return shape
