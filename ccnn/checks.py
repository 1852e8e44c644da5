"""Checks before a training, for a folder of one's own: what would waste its minutes.

    for sentence in check_folder("photos"):         # warnings, the most important first
        print(sentence)
    for sentence in check_rules("photos"):          # what gives way to constraints.toml; Mistakes if it contradicts
        print(sentence)                             # itself, or if scribbles do not fit the photographs

check_folder reads every photograph once, reduced while it is read: some milliseconds each. Neither needs features,
weights or Caffe. Both raise UserError where the folder cannot be used at all: no classes.txt, a wrong table.

near_duplicates says which photographs are nearly the same. Who holds photographs out should keep such pairs together,
or give check_folder the parts (`folds`), so that it warns.
"""
import os
from collections import defaultdict

import numpy as np
from PIL import Image
from scipy.fft import dctn

from ccnn.annotations import count_unlisted
from ccnn.dataset import DataSet
from ccnn.errors import ImageError, UserError, nearest
from ccnn.grid import Axis, score_size
from ccnn.images import read_image
from ccnn.labels import BACKGROUND
from ccnn.mistakes import Mistakes
from ccnn.nets import own_loss, own_system
from ccnn.priors import read_priors
from ccnn.samples import FILES, Samples, own_folder
from ccnn.shown import Shown
from ccnn.supervision import SUPERVISION
from ccnn.text import plural

FEW = 10                # photographs of a class; fewer teach little
SHOWN = 5               # names in a sentence
FREQUENCIES = 12        # of a fingerprint, down and across: 143 bits
ALIKE = 32              # bits in which photographs may differ that are nearly the same. Of 2,189 photographs of VOC the
#                         nearest two differ in 38. A copy that is smaller, brighter or of lower quality differs in 16 at
#                         most, one without 3 % at each border in 20 (median), 28 (nine of ten), 34 (most).


def check_folder(folder, folds=None):
    """[plain sentence], the most important first: what would make a training of this folder fail, or teach little.

    folds : {id: the part that is held out together}; near-duplicates in different parts are then reported, because a
            score on the one says little if the net has learned from the other. None: nothing is held out
    """
    data = own_data(folder)
    present = {id: _present(data, id) for id in data.ids}
    files, sentences = check_files(data)
    sentences += check_tags(present, data.classes)
    fingerprints = {}
    for id, file in files.items():
        try:
            fingerprints[id] = fingerprint(file)
        except ImageError as error:
            sentences.insert(0, f"{error}.")
    sentences += check_duplicates(near_duplicates(fingerprints), present, data.classes, folds)
    return sentences + check_unlisted(data, files)


def own_data(folder):
    """The DataSet of a folder of one's own."""
    settings = own_folder(str(folder))
    return DataSet(**{name: settings[name] for name in FILES if name in settings})


def _present(data, id):
    """(L,) bool: the classes in an image."""
    return _shown(data, id, {"tags"}).present


def _shown(data, id, needs, side=321):
    """What is known of a whole image on a grid of side x side pixels, whatever the image's size."""
    facts = data.read(id, needs)
    shape = next(iter(facts.shapes.values()), (side, side))
    y, x = (Axis.of_image(size, side, GRID_STRIDE, 0, 0) for size in shape)
    return Shown(facts, y, x, False, 0.1)


# Files

def check_files(data):
    """{id: file} of the images that are there, [sentences about the others]."""
    files, missing = {}, []
    for id in data.ids:
        try:
            files[id] = data.image_file(id)
        except UserError:
            missing.append(id)
    if not missing:
        return files, []
    near = nearest(missing[0], [os.path.splitext(path)[0] for path in data.photographs.paths])
    return files, [f"{data.source} names {plural(len(missing), 'photograph')} that {_are(missing)} not in {data.images}: "
                   f"{some(missing)}" + (f"; did you mean {near!r}?" if near else ".")]


def check_unlisted(data, files):
    """Sentences about photographs, and about objects in VOC's XML, that nobody listed."""
    sentences = []
    listed = {os.path.relpath(file, data.images).replace(os.sep, "/") for file in files.values()}
    folders = {os.path.dirname(path) for path in listed} | {""}     # elsewhere are masks, scribbles, results
    others = [path for path in data.photographs.paths if path not in listed and os.path.dirname(path) in folders]
    if others:
        sentences.append(f"{data.source} does not name {plural(len(others), 'photograph')} of {data.images}, which "
                         f"{_are(others)} not used: {some(others)}.")
    if data.csv is None:
        unlisted = count_unlisted([data.box_file(id) for id in data.ids], data.classes)
        named = [f"{name!r} ({count})" + _did_you_mean(name, data.classes) for name, count in unlisted.most_common()]
        if named:
            sentences.append(f"Annotations has objects of classes that classes.txt does not list. They are left out, and "
                             f"their pixels count as background: {some(named, quoted=False)}.")
    return sentences


def _did_you_mean(name, classes):
    near = nearest(name, classes[BACKGROUND + 1:])
    return f", did you mean {near!r}?" if near else ""


# Tags

def check_tags(present, classes):
    """Sentences about {id: (L,) bool}: what tags alone cannot teach."""
    tags = np.array(list(present.values()))[:, BACKGROUND + 1:]
    names, counts = np.array(classes[BACKGROUND + 1:], object), tags.sum(axis=0)
    sentences = []
    if len(tags) == 1:
        sentences.append(f"There is one photograph. A training needs {FEW} or more of each class, and some without any.")
    if not counts.all():
        sentences.append(f"No photograph shows {some(names[counts == 0])}: the net will never find it. Tag some, or "
                         "remove the name from classes.txt.")
    few = [f"{name} in {count}" for name, count in zip(names, counts) if 0 < count < FEW]
    if few and len(tags) > 1:
        sentences.append(f"Few photographs show {some(few, quoted=False)}: masks of such a class will be poor. "
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

def fingerprint(path):
    """(143,) bool: which of the lowest frequencies of a photograph are above their median. Size, quality and brightness
    hardly matter."""
    rgb = read_image(path, least_side=64)
    gray = np.asarray(Image.fromarray(rgb).convert("L").resize((32, 32), Image.Resampling.BOX), float)
    waves = dctn(gray, norm="ortho")[:FREQUENCIES, :FREQUENCIES].ravel()[1:]        # without the mean
    return waves > np.median(waves)


def near_duplicates(fingerprints, block=1000):
    """[(id, id)] of the photographs that look nearly the same. fingerprints : {id: fingerprint(file)}"""
    ids = list(fingerprints)
    if not ids:
        return []
    signs = np.where(np.array(list(fingerprints.values())), 1, -1).astype(np.float32)
    alike = signs.shape[1] - 2 * ALIKE          # the least scalar product
    pairs = []
    for start in range(0, len(ids), block):
        first, second = np.nonzero(signs[start:start + block] @ signs.T >= alike)
        pairs += [(ids[start + i], ids[j]) for i, j in zip(first, second) if start + i < j]
    return pairs


def check_duplicates(pairs, present, classes, folds=None):
    """Sentences about pairs of photographs that look nearly the same."""
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
        sentences.append("Photographs look nearly the same, and one is held out while the other is learned from, so the "
                         f"score will be too good: {some(shown, quoted=False)}.")
    return sentences


# Rules

GRID_STRIDE, GRID_SIDE = 8, 321         # rules are tried on the grid of such a square image


def check_rules(folder, settings=None):
    """[sentence for each bound of the tags that gives way to constraints.toml]; [] if the folder has no such file.

    Raises Mistakes if rules contradict each other for the tags, sizes or boxes of some photographs; or if scribbles do
    not fit: no such photograph, another size, a class that its tags do not have.

    settings : of the loss layer; None: those of ccnn.nets.own_loss
    """
    data = own_data(folder)
    if data.scribbles:
        data.scribbles.check({id: _present(data, id) for id in data.ids})
        check_scribble_sizes(folder)
    own = own_folder(str(folder))
    settings = own_loss(own_system(data), own) if settings is None else settings
    if not settings.get("priors"):
        return []
    priors = read_priors(settings["priors"], data.classes)
    kind = SUPERVISION[settings["supervision"]]
    bounds = {name: float(settings[name]) for name in kind.bounds if name in settings}
    cells = score_size(GRID_SIDE, GRID_STRIDE)
    needs = {blob.needs for blob in kind.blobs}
    known = {}
    for id in data.ids:
        shown = _shown(data, id, needs)
        known[id] = kind.constraints([blob.make(shown) for blob in kind.blobs], shown.labels, (cells, cells), **bounds)
    return priors.check(known, (cells, cells))


def check_scribble_sizes(folder):
    """Mistakes unless every scribble has the size of its photograph."""
    samples = Samples({**own_folder(str(folder)), "tops": ["data", "labels"]})
    mistakes = []
    for number, id in enumerate(samples.ids):
        if samples.data.scribbles.file(id):
            try:
                samples.load(number, 1, 0, 0)
            except ImageError as error:
                mistakes.append((repr(id), str(error)))
    if mistakes:
        raise Mistakes(samples.data.scribbles.folder, mistakes)


# Sentences

def some(things, quoted=True):
    """'a', 'b' and 'c'; of many the first few, and how many more."""
    words = [repr(str(thing)) if quoted else str(thing) for thing in things]
    if words[SHOWN + 1:]:
        words = [*words[:SHOWN], f"{len(words) - SHOWN} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def _are(things):
    return "are" if len(things) > 1 else "is"
