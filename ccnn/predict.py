"""From a photograph to its mask."""
import glob
import json
import os
from collections import namedtuple
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.special import softmax

from ccnn.crf import LONG_SIDE, dense_crf
from ccnn.errors import UserError
from ccnn.files import whole_file
from ccnn.grid import label_map, positions, sample
from ccnn.images import shrink
from ccnn.labels import VOC_CLASSES
from ccnn.lists import read_names
from ccnn.masks import save_mask
from ccnn.net import load_caffe
from ccnn.proto import read_net
from ccnn.overlay import overlay
from ccnn.paths import ROOT
from ccnn.trunk import VGG16_CONVOLUTIONS
from ccnn.vgg16 import trunk_weights
from ccnn.weights import stored_layers

NET = ROOT / "prototxt/head_deploy.prototxt"

HEAD = ROOT / "models/head_size.caffemodel"

Recipe = namedtuple("Recipe", "classes labels preset settings")     # labels: those that may appear


def find_weights(net, weights):
    """The files to load, in order: before a head, the trunk that the net wants and the head's file lacks."""
    load_caffe()
    trunk = set(VGG16_CONVOLUTIONS)
    wanted, given = {layer.name for layer in read_net(net).layer}, stored_layers(weights)
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
        with whole_file(path) as part:
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
