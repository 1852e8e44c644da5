"""Features of the frozen trunk, computed once per image."""
import contextlib
import hashlib
import json
import multiprocessing
import os
import time

import numpy as np
from PIL import Image
from tqdm import tqdm

from ccnn.errors import ImageError, UserError
from ccnn.files import whole_file
from ccnn.images import SUFFIXES, fit, read_image, shrink, to_blob
from ccnn.samples import Samples, own_folder
from ccnn.trunk import VGG16
from ccnn.workers import become_worker


def find_images(root, splits):
    """{id: file}"""
    if not splits and any(os.path.isfile(os.path.join(root, name)) for name in ("classes.txt", "tags.csv")):
        samples = Samples({**own_folder(root), "tops": ["data"]})
        return dict(zip(samples.ids, samples.files))
    if not os.path.isdir(os.path.join(root, "ImageSets/Segmentation")) and not splits and os.path.isdir(root):
        names = sorted(name for name in os.listdir(root) if name.endswith(SUFFIXES))
        files = {name[:name.rindex(".")]: os.path.join(root, name) for name in names}
        if not files:
            raise UserError(f"{root}: holds no image ({', '.join(SUFFIXES[:3])}) and no ImageSets/Segmentation")
        return files
    files = {}
    for split in splits or ["train"]:
        samples = Samples({"root": root, "split": split, "tops": ["data"]})
        files.update(zip(samples.ids, samples.files))
    return files


def check_index(args):
    """Make the folder, or see that what is in it was made with the same settings."""
    settings = {"size": args.size, "weights": hashlib.sha256(args.weights.read_bytes()).hexdigest(),
                "trunk": hashlib.sha256(VGG16.net.read_bytes()).hexdigest()}
    index = args.out / "index.json"
    if index.exists():
        try:
            stored = json.loads(index.read_text())
            other = [key for key in settings if stored[key] != settings[key]]
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{index}: is damaged; remove {args.out} and start again") from None
        if other:
            raise UserError(f"{args.out}: holds features of another {other[0]} ({str(stored[other[0]])[:12]}, now "
                            f"{str(settings[other[0]])[:12]}); give another --out, or remove it")
    else:
        with whole_file(index) as part:
            part.write_text(json.dumps(settings, indent=1) + "\n")


def grid(file, size):
    """Shape of the features of an image, from the head of its file."""
    try:
        with Image.open(file) as image:
            height, width = fit(image.height, image.width, size)
            if image.getexif().get(0x0112, 1) >= 5:     # stored lying on its side
                height, width = width, height
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise ImageError(f"{file}: is not an image that can be read") from None
    return VGG16.channels, VGG16.cells(height), VGG16.cells(width)


def whole(path, shape):
    """Whether a file holds all of an image's features."""
    try:
        stored = np.load(path, mmap_mode="r")           # fails where the file is shorter than its head says
    except (OSError, ValueError, EOFError):
        return False
    return stored.shape == shape and stored.dtype == np.float16


def compute(net, files, args):
    """Write the features of {id: file}; return {id: error} of the images that cannot be read."""
    def features(item):
        id, file = item
        begin = time.time()
        try:
            rgb = shrink(read_image(file), args.size)
        except ImageError as error:
            return id, error, 0
        net.blobs["data"].reshape(1, 3, *rgb.shape[:2])
        net.blobs["data"].data[0] = to_blob(rgb)
        value = net.forward()[net.outputs[0]][0].astype(np.float16)
        if not np.isfinite(value).all():
            return id, ImageError(f"{file}: its features are not finite; are these VGG-16's weights?"), 0
        return id, value, time.time() - begin

    broken = {}
    jobs = 1 if args.gpu is not None else min(args.jobs, len(files))
    with contextlib.ExitStack() as stack:
        if jobs == 1:
            results = map(features, files.items())
        else:       # forked, so that they share the weights
            pool = stack.enter_context(multiprocessing.get_context("fork").Pool(jobs, adopt, [features, os.getpid()]))
            results = pool.imap_unordered(call, files.items())
        bar = stack.enter_context(tqdm(total=len(files), unit="image", smoothing=0.02))
        for id, value, seconds in results:
            if isinstance(value, ImageError):
                broken[id] = value
            else:
                if bar.n == 0:
                    total = duration(seconds * len(files) / jobs)
                    bar.write(f"{seconds:.2f} s an image, {jobs} at a time: about {total} in all")
                with whole_file(args.out / f"{id}.npy") as part, open(part, "wb") as file:
                    np.save(file, value)
                    file.flush()
                    os.fsync(file.fileno())     # renamed only when it is on the disk
            bar.update()
    return broken


def adopt(function, parent):
    """Make a forked worker call this function."""
    global work
    work = function
    become_worker(parent)


def call(item):
    return work(item)


def duration(seconds):
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds > 1.5 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"
