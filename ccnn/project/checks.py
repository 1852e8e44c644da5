"""Checks of a folder of photographs before a training: problems that would waste its time.

    folder = read_folder("photos")                              # ccnn.project.folder; names rows without a photograph
    for sentence in check_folder(folder):                       # warnings, the most important first
        print(sentence)
    for sentence in check_rules(folder, supervision, bounds):   # what gives way to constraints.toml; Mistakes if it
        print(sentence)                                         # contradicts itself, or if scribbles do not fit

check_folder reads every photograph once, reduced while it is read: some milliseconds each. Neither needs features,
weights or Caffe.

near_duplicates finds photographs that are nearly the same. To hold photographs out, keep such pairs together, or give
check_folder the parts (`folds`): it then warns.
"""
import functools
import os
from collections import defaultdict

import numpy as np
from PIL import Image
from scipy.fft import dctn

from ccnn._util.errors import ImageError, Mistakes, nearest
from ccnn._util.text import plural, some
from ccnn.annotations.voc_boxes import count_unlisted
from ccnn.data.dataset import DataSet
from ccnn.data.samples import SCRIBBLES, Samples
from ccnn.images.grid import Axis, score_size
from ccnn.images.labels import BACKGROUND
from ccnn.images.listing import skipped_sentence
from ccnn.images.reading import read_image
from ccnn.supervision.crops import CroppedAnnotation

FEW = 10                # photographs of a class; with fewer, its masks are poor
SHOWN = 5               # names in a sentence
FREQUENCIES = 12        # of a perceptual hash, down and across: 143 bits

# Bits in which photographs may differ that are nearly the same. Of 2,189 photographs of VOC the nearest two differ in
# 38. A copy that is smaller, brighter or of lower quality differs in 16 at most. One without 3 % at each border differs
# in 20 (median), 28 (nine of ten), 34 (all of 200).
ALIKE = 32


def check_folder(folder, folds=None):
    """Warnings, the most important first: why a training on this folder would learn little.

    Raises UserError if photographs cannot be read; it names all of them.

    folder : ccnn.project.folder.PhotoFolder
    folds  : {id: the part that is held out together}; near-duplicates in different parts are then reported, because a
             score on the one says little if the net has learned from the other. None: nothing is held out
    """
    present = {id: known.present for id, known in folder.photographs.items()}
    pairs = near_duplicates(perceptual_hashes(folder))
    return [*check_tags(present, folder.classes), *check_duplicates(pairs, present, folder.classes, folds),
            *check_unused(folder)]


def check_unused(folder):
    """Warnings about what is in the folder and not used: photographs, objects in VOC's XML, scribbles."""
    sentences = [f"{skipped_sentence(folder.skipped)}."] if folder.skipped else []
    if folder.untagged:
        sentences.append(f"Nothing is known of {plural(len(folder.untagged), 'photograph')}, which "
                         f"{'is' if len(folder.untagged) == 1 else 'are'} left out: {some(folder.untagged)}. Add a row "
                         "for each; one without a tag says that none of the classes is there.")
    if folder.system == "boxes":
        files = [os.path.join(folder.path, "Annotations", f"{id}.xml") for id in folder.photographs]
        named = [f"{name!r} ({count})" + _did_you_mean(name, folder.classes)
                 for name, count in count_unlisted(files, folder.classes).most_common()]
        if named:
            sentences.append("Annotations has objects of classes that classes.txt does not list. They are left out, "
                             f"and their pixels count as background: {some(named, quoted=False)}.")
    if os.path.isdir(os.path.join(folder.path, SCRIBBLES)) and not (folder.rules and folder.rules.scribbles):
        sentences.append(f"The folder {SCRIBBLES} is not used: write a line [scribbles] into constraints.toml.")
    return sentences


def _did_you_mean(name, classes):
    near = nearest(name, classes[BACKGROUND + 1:])
    return f", did you mean {near!r}?" if near else ""


# Tags

def check_tags(present, classes):
    """Warnings about tags, {id: (L,) bool}, that are too few or say too little."""
    tags = np.array(list(present.values()))[:, BACKGROUND + 1:]
    names, counts = np.array(classes[BACKGROUND + 1:], object), tags.sum(axis=0)
    sentences = []
    if len(tags) == 1:
        sentences.append(f"There is one photograph. A training needs {FEW} or more of each class, and some without "
                         "any.")
    if not counts.all():
        several = (counts == 0).sum() > 1
        sentences.append(f"No photograph shows {some(names[counts == 0])}: the net will never find "
                         f"{'them' if several else 'it'}. Tag some, or remove the name{'s' if several else ''} from "
                         "classes.txt.")
    few = [f"{name} in {count}" for name, count in zip(names, counts) if 0 < count < FEW]
    if few and len(tags) > 1:
        sentences.append(f"Few photographs show a class ({some(few, quoted=False)}): its masks will be poor. "
                         f"Add photographs until each class has {FEW} or more.")
    for group in together(tags):
        sentences.append(f"{some(names[group])} are always together: no method can tell which of them is which. Add "
                         "photographs that show only one of them.")
    everywhere = names[counts == len(tags)]
    if len(tags) > 1 and tags.any(axis=1).all():
        always = f" ({some(everywhere)} is in every one)" if everywhere.size else ""
        sentences.append(f"Every photograph shows a class{always}: the background is never seen alone. The net learns "
                         "what surrounds the objects as a part of them. Add photographs of such surroundings "
                         "without any class, a tenth of all or more; their rows have no tag.")
    return sentences


def together(tags):
    """[numbers of the classes] that occur in exactly the same photographs. tags : photographs x classes, bool."""
    groups = defaultdict(list)
    for number, column in enumerate(tags.T):
        if column.any():
            groups[column.tobytes()].append(number)
    return [group for group in groups.values() if group[1:]]


# Near-duplicates

def perceptual_hash(path):
    """(143,) bool: which of the lowest frequencies of a photograph are above their median. Size, quality and brightness
    hardly matter."""
    if not os.path.isfile(path):
        raise ImageError(f"{path}: no such file")
    return _perceptual_hash(path, os.stat(path).st_mtime_ns)


@functools.lru_cache(maxsize=10_000)
def _perceptual_hash(path, _):
    rgb = read_image(path, least_side=64)
    gray = np.asarray(Image.fromarray(rgb).convert("L").resize((32, 32), Image.Resampling.BOX), float)
    waves = dctn(gray, norm="ortho")[:FREQUENCIES, :FREQUENCIES].ravel()[1:]        # without the mean
    return waves > np.median(waves)


def leave_out_unreadable(folder):
    """(the folder without the photographs that cannot be read, [a sentence about each of them])"""
    wrong = {}
    for id, known in folder.photographs.items():
        try:
            perceptual_hash(known.file)
        except ImageError as error:
            wrong[id] = f"{error}; the training leaves it out"
    if len(wrong) == len(folder.photographs):
        perceptual_hashes(folder)               # raises: nothing is left
    return folder.without(wrong), list(wrong.values())


def perceptual_hashes(folder):
    """{id: perceptual hash} of all photographs; those that cannot be read are named at once."""
    found, mistakes = {}, []
    for id, known in folder.photographs.items():
        try:
            found[id] = perceptual_hash(known.file)
        except ImageError as error:
            mistakes.append(("", f"{error}; fix it, or remove its row"))
    if len(mistakes) == 1:
        raise ImageError(mistakes[0][1])        # it names the file
    if mistakes:
        raise Mistakes(folder.path, mistakes)
    return found


def near_duplicates(hashes, block=1000):
    """[(id, id)] of the photographs that look nearly the same. hashes : {id: perceptual_hash(file)}"""
    ids = list(hashes)
    if not ids:
        return []
    signs = np.where(np.array(list(hashes.values())), 1, -1).astype(np.float32)
    alike = signs.shape[1] - 2 * ALIKE          # the least scalar product
    pairs = []
    for start in range(0, len(ids), block):
        first, second = np.nonzero(signs[start:start + block] @ signs.T >= alike)
        pairs += [(ids[start + i], ids[j]) for i, j in zip(first, second) if start + i < j]
    return pairs


def check_duplicates(pairs, present, classes, folds=None):
    """Warnings about pairs of photographs that look nearly the same."""
    def tags(id):
        return some([classes[l] for l in np.flatnonzero(present[id]) if l != BACKGROUND] or ["nothing"], quoted=False)

    differing = [(a, b) for a, b in pairs if (present[a] != present[b])[BACKGROUND + 1:].any()]
    sentences = []
    if differing:
        shown = [f"{a!r} ({tags(a)}) and {b!r} ({tags(b)})" for a, b in differing]
        sentences.append("Photographs look nearly the same but have different tags; one of them may be wrong: "
                         f"{some(shown, quoted=False)}.")
    apart = [(a, b) for a, b in pairs if folds and folds.get(a) != folds.get(b)]
    if apart:
        shown = [f"{a!r} and {b!r}" for a, b in apart]
        sentences.append("Photographs look nearly the same, and one is held out while the other is learned from, so "
                         f"that the score will be too good: {some(shown, quoted=False)}.")
    return sentences


# Rules

STRIDE, SIDE = 8, 321         # rules are tried on the grid of a square image


def check_rules(folder, supervision, bounds):
    """[sentence for each bound of the tags that gives way to constraints.toml]; [] if the folder has no such file.

    Raises Mistakes if rules contradict each other for the tags, sizes or boxes of some photographs; or if scribbles do
    not fit: no such photograph, another size, a class that its tags do not have.

    folder      : ccnn.project.folder.PhotoFolder
    supervision : ccnn.supervision.kinds.Supervision, what the loss layer makes constraints of
    bounds      : {name: number}, the keyword arguments of its constraint function
    """
    if not folder.rules:
        return []
    if folder.rules.scribbles:
        folder.rules.scribbles.check({id: known.present
                                      for id, known in {**folder.photographs, **folder.left_out}.items()})
        check_scribble_sizes(folder)
    data = DataSet(**folder.settings)
    needs = {blob.needs for blob in supervision.blobs}
    shape = 2 * (score_size(SIDE, STRIDE),)
    known = {}
    for id in folder.photographs:
        crop = whole_image(data.read(id, needs))
        known[id] = supervision.constraints([blob.make(crop) for blob in supervision.blobs], len(data.classes), shape,
                                            **bounds)
    return folder.rules.check(known, shape)


def whole_image(annotation):
    """What is known of an image, on the grid of a square one."""
    height, width = next(iter((annotation.shapes or {}).values()), (SIDE, SIDE))
    y, x = (Axis.of_image(size, SIDE, STRIDE, 0, 0) for size in (height, width))
    return CroppedAnnotation(annotation, y, x, flip=False, large_share=0.1)


def check_scribble_sizes(folder):
    """Mistakes unless every scribble has the size of its photograph."""
    scribbles = folder.rules.scribbles
    samples = Samples({**folder.settings, "tops": ["data", "labels"], "mirror": False})
    mistakes = []
    for number, id in enumerate(samples.ids):
        if scribbles.read(id) is not None:
            try:
                samples.load(number, 1, 0, 0)
            except ImageError as error:
                mistakes.append((repr(id), str(error)))
    if mistakes:
        raise Mistakes(scribbles.folder, mistakes)
