"""A folder of images with their masks, boxes or tags: which files there are, and what they say."""
import os

from ccnn.annotations import read_boxes
from ccnn.errors import UserError
from ccnn.images import SUFFIXES, read_mask
from ccnn.labels import VOC_CLASSES, read_classes
from ccnn.lists import find_list, inside, read_list
from ccnn.shown import Facts
from ccnn.tags import read_tags
from ccnn.text import and_more

GET_VOC = "tools/get_voc.py fetches VOC 2012"


class DataSet:
    """The images of a list in a VOC folder, or in any other folder. samples.SETTINGS explains the arguments.

    ids       the image ids, in the order of the list
    source    the file or folder that lists them
    classes   the names of the labels
    csv       {id: (present, large)} if tags_from is a table, else None
    labelled  the ids whose mask supervises pixels
    """

    def __init__(self, root, split=None, classes=None, images=None, masks=None, tags_from="masks", supervised=None):
        if not os.path.isdir(root):
            raise UserError(f"{root}: no such folder; {GET_VOC} into data/VOCdevkit/VOC2012, or name a folder "
                            'of your own as "root" in the net\'s param_str')
        self.root, self.tags_from = root, tags_from
        self.classes = read_classes(classes) if classes else VOC_CLASSES
        self.images = self.folder(images, "JPEGImages", "")
        self.masks = self.folder(masks, "SegmentationClassAug", "SegmentationClass")
        self.csv = None if tags_from in ("masks", "annotations") else read_tags(self.path(tags_from), self.classes)
        self.own_list = split is not None
        self.source, self.ids = self.find_ids(split)
        self.labelled = self.find_labelled(supervised)

    # Files

    def path(self, name):
        """A file that the settings name: from root, or else from the working directory."""
        inner = os.path.join(self.root, name)
        return inner if os.path.exists(inner) else name

    def folder(self, name, *usual):
        """The folder `name` in root, which must be there; without a name the first of the usual ones that is there."""
        for choice in [name] if name else usual:
            path = os.path.join(self.root, choice)
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
            ids = sorted(name[:-4] for name in os.listdir(source) if name.endswith(".xml"))
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

    def image_file(self, id):
        """The image of an id. It must lie in root, or in the folder of images if that is a link."""
        for suffix in SUFFIXES:
            path = os.path.join(self.images, id + suffix)
            if os.path.isfile(path):
                if not inside(path, self.images) and not inside(path, self.root):
                    raise UserError(f"{path}: is a link out of the data root {self.root}; copy the file there")
                return path
        remedy = f"one image id per line ({GET_VOC})" if self.own_list else "mend the name there, or remove it"
        raise UserError(f"{os.path.join(self.images, id)}.jpg: no such image; {self.source} lists {id!r}; {remedy}")

    def mask_file(self, id):
        return os.path.join(self.masks, f"{id}.png")

    def box_file(self, id):
        return os.path.join(self.root, "Annotations", f"{id}.xml")

    # What they say. needs : set of "tags", "boxes", "mask", as ccnn.supervision.Blob.needs

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

    def read(self, id, needs):
        """The facts about an image that are needed."""
        mask, boxes, shapes = None, None, {}
        if self.needs_mask(id, needs):
            file = self.mask_file(id)
            mask = read_mask(file, len(self.classes))
            shapes[file] = mask.shape
        if self.needs_boxes(needs):
            file = self.box_file(id)
            shapes[file], boxes = read_boxes(file, self.classes)
        row = self.csv[id] if self.csv is not None else None
        return Facts(len(self.classes), self.tags_from, id in self.labelled, mask, boxes, row, shapes)
