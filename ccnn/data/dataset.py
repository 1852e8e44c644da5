"""A folder of images with their masks, boxes or tags: which files there are, and what they say."""
import os
from functools import cached_property

import numpy as np

from ccnn._util.errors import SHOWN, ImageError, Mistakes, UserError, nearest
from ccnn._util.text import and_more
from ccnn.annotations.tags import read_tags, tag_places
from ccnn.annotations.voc_boxes import read_boxes
from ccnn.data.background_shares import read_shares
from ccnn.images.formats import SUFFIX, SUFFIXES
from ccnn.images.ids import find_list, inside, read_list
from ccnn.images.labels import VOC_CLASSES, read_classes
from ccnn.images.listing import PhotographIndex
from ccnn.images.reading import read_mask, upright_shape
from ccnn.supervision.crops import Annotation
from ccnn.supervision.marks import Scribbles
from ccnn.supervision.rules_file import read_rules

GET_VOC = "ccnn get-voc fetches VOC 2012"


class DataSet:
    """The images of a list in a VOC folder, or in any other folder. samples.SETTINGS explains the arguments.

    ids       the image ids, in the order of the list
    source    the file or folder that lists them
    classes   the names of the labels
    csv       {id: (present, large)} if tags_from is a table, else None
    labelled  the ids whose mask supervises pixels
    scribbles ccnn.supervision.marks.Scribbles, for images without such a mask, or None
    shares    {id: share of the background}, or None
    cues      the folder of the maps of a cue, ID.npy, or None
    """

    def __init__(self, root, split=None, classes=None, images=None, masks=None, tags_from="masks", supervised=None,
                 scribbles=None, shares=None, cues=None, without=None, unlisted="stop"):
        if not os.path.isdir(root):
            raise UserError(f"{root}: no such folder; {GET_VOC} into data/VOCdevkit/VOC2012, or name a folder "
                            'of your own as "root" in the net\'s param_str')
        self.root, self.tags_from, self.unlisted = root, tags_from, unlisted
        self.classes = read_classes(classes) if classes else VOC_CLASSES
        self.images = self.folder(images, "JPEGImages", "")
        self.masks = self.folder(masks, "SegmentationClassAug", "SegmentationClass")
        self.csv = None if tags_from in ("masks", "annotations") else read_tags(self.path(tags_from), self.classes)
        self.own_list = split is not None
        self.source, ids = self.find_ids(split)
        self.ids = [id for id in ids if id not in set(without or ())]
        self.labelled = self.find_labelled(supervised)
        self.scribbles = self.find_scribbles(scribbles) if scribbles else None
        self.shares = read_shares(self.path(shares), self.ids) if shares else None
        self.cues = self.path(cues) if cues else None
        if self.scribbles:              # then the masks need not be there
            self.labelled = {id for id in self.labelled if os.path.isfile(self.mask_file(id))}

    # Files

    def path(self, name):
        """A file that the settings name: from root, or else from the working directory."""
        inner = os.path.join(self.root, name)
        return inner if os.path.exists(inner) else name

    def folder(self, name, *usual):
        """The folder `name` in root, which must be there; without a name the first of the usual ones that is there."""
        for choice in [name] if name else usual:
            path = os.path.join(self.root, choice) if choice else self.root
            if os.path.isdir(path):
                return path
        if name:
            raise UserError(f"{path}: no such folder; {GET_VOC}")
        return path

    def find_ids(self, split):
        """The file or folder that lists the images, and their ids."""
        if split is not None:
            source = find_list(self.root, split)
            ids = read_list(source)
        elif self.csv is not None:
            source, ids = self.path(self.tags_from), list(self.csv)
        else:
            source = self.folder("Annotations")
            ids = sorted(name[:-4] for name in os.listdir(source) if name.endswith(".xml") and name[0] != ".")
        if not ids:
            raise UserError(f"{source}: lists no images")
        missing = [id for id in ids if self.csv is not None and id not in self.csv]
        if missing:
            raise UserError(f"{self.tags_from}: has no row for {missing[0]!r} of {source}{and_more(missing)}")
        return source, ids

    def find_labelled(self, supervised):
        """The ids whose mask supervises pixels. supervised : None for all, the number of the first ones, or a list."""
        if not isinstance(supervised, str):
            return set(self.ids[:supervised])
        labelled = set(read_list(self.path(supervised)))
        strange = labelled.difference(self.ids)
        if strange:
            raise UserError(f"{supervised}: lists {min(strange)!r}, which is not an image of {self.source}")
        return labelled

    def find_scribbles(self, name):
        """The scribbles in a folder, or those that a constraints.toml names."""
        path = self.path(name)
        if os.path.isdir(path):
            return Scribbles(path, self.classes)
        if not os.path.exists(path):
            raise UserError(f"{path}: no such folder of scribbles, and no such constraints.toml")
        scribbles = read_rules(path, self.classes).scribbles
        if scribbles is None:
            raise UserError(f"{path}: has no [scribbles]; name their folder instead, or leave the setting out")
        return scribbles

    @cached_property
    def photographs(self):
        """All photographs in the folder of images, to be found by names that are not exact."""
        return PhotographIndex(self.images)

    def image_file(self, id):
        """The image of an id. It must lie in root, or in the folder of images if that is a link."""
        found = [path for suffix in SUFFIXES for end in (suffix, suffix.upper())
                 if os.path.isfile(path := os.path.join(self.images, id + end))]
        if found[1:]:
            raise UserError(f"may be {found[0]} or {found[1]}; rename one of them")
        if not found:
            name = self.photographs.at(id)          # a.Jpg; ä as one character or as two
            if name is None:
                remedy = f"one image id per line ({GET_VOC})" if self.own_list else "correct the name, or remove it"
                raise UserError(f"{self.photographs.why_not_found(id)}; {remedy}")
            found = [os.path.join(self.images, name)]
        if not inside(found[0], self.images) and not inside(found[0], self.root):
            raise UserError(f"{found[0]} is a link out of the data root {self.root}; copy the file there")
        return found[0]

    def image_files(self):
        """[the image of every id]; what is wrong with any of them is reported at once."""
        files, wrong = {}, []
        for id in self.ids:
            try:
                file = self.image_file(id)
                other = files.setdefault(file, id)
                if other != id:
                    raise UserError(f"is the photograph of {other!r}, too; remove one of them")
            except UserError as error:
                wrong.append((id, str(error)))
        if wrong:
            raise Mistakes(self.source, self.explained(wrong))
        return list(files)

    def explained(self, wrong):
        """[(place, what is wrong)] from [(id, what is wrong)]: for a table with its lines, and with similar names."""
        if self.own_list or self.csv is None:
            return [(repr(id), text) for id, text in wrong]
        places = tag_places(self.source, self.classes)
        known = [SUFFIX.sub("", path) for path in self.photographs.paths]
        similar = [nearest(id, known) for id, _ in wrong[:SHOWN]] + [None] * len(wrong[SHOWN:])     # it takes time
        return [(f"{places[id]}, {id!r}", text + (f"; did you mean {near!r}?" if near else ""))
                for (id, text), near in zip(wrong, similar)]

    def mask_file(self, id):
        return os.path.join(self.masks, f"{id}.png")

    def box_file(self, id):
        return os.path.join(self.root, "Annotations", f"{id}.xml")

    # What they say. needs : set of "tags", "boxes", "mask", as ccnn.supervision.kinds.SupervisionBlob.needs

    def needs_mask(self, id, needs):
        return ("tags" in needs and self.tags_from == "masks") or ("mask" in needs and id in self.labelled)

    def needs_boxes(self, needs):
        return "boxes" in needs or ("tags" in needs and self.tags_from == "annotations")

    def check_masks(self, needs):
        """UserError unless every mask is there that will be read."""
        files = [self.mask_file(id) for id in self.ids if self.needs_mask(id, needs)]
        missing = [file for file in files if not os.path.isfile(file)]
        if missing:
            raise UserError(f"{missing[0]}{and_more(missing)}: no such mask; {GET_VOC}, and images without masks "
                            'need "tags_from": "annotations" or a CSV file')

    def check_shares(self, needs):
        """UserError if shares are needed, and none are given."""
        if "share" in needs and self.shares is None:
            raise UserError('param_str: the top "share" needs "shares", the path of a CSV file')

    def check_cues(self, needs):
        """UserError if maps of a cue are needed, and one of them is missing."""
        if "cue" not in needs:
            return
        if self.cues is None:
            raise UserError('param_str: the top "cue" needs "cues", the folder of the maps')
        missing = [file for file in map(self.cue_file, self.ids) if not os.path.isfile(file)]
        if missing:
            raise UserError(f"{missing[0]}{and_more(missing)}: no such map of a cue; ccnn learn computes those of a "
                            "folder of photographs")

    def cue_file(self, id):
        assert self.cues
        return os.path.join(self.cues, f"{id}.npy")

    def read(self, id, needs):
        """The parts of the annotation of an image that are needed."""
        mask, scribble, boxes, shapes = None, None, None, {}
        if self.needs_mask(id, needs):
            file = self.mask_file(id)
            mask = read_mask(file, len(self.classes))
            shapes[file] = mask.shape
        if self.scribbles and "mask" in needs and id not in self.labelled:
            scribble = self.scribbles.read(id)
            if scribble is not None:
                shapes[self.scribbles.file(id)] = scribble.shape
        if self.needs_boxes(needs):
            file = self.box_file(id)
            shapes[file], boxes = read_boxes(file, self.classes, self.unlisted)
        row = self.csv[id] if self.csv is not None else None
        share = self.shares[id] if self.shares is not None else None
        cue = None
        if "cue" in needs:
            cue = read_map(self.cue_file(id))
            file = self.image_file(id)
            shapes[file] = upright_shape(file)          # where the cells lie on the map, exactly
        return Annotation(len(self.classes), self.tags_from, id in self.labelled, mask, boxes, row, shapes, scribble,
                          share, cue=cue)


def read_map(file):
    """The map of a cue, h x w float16, 0..1."""
    try:
        found = np.load(file)
    except (OSError, ValueError, EOFError) as error:
        raise ImageError(f"{file}: is damaged: {error}; remove it and start again") from None
    if found.ndim != 2 or found.dtype != np.float16 or not ((found >= 0) & (found <= 1)).all():
        raise ImageError(f"{file}: is not the map of a cue, rows x columns in 0..1; remove it and start again")
    return found
