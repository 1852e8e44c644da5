"""A model is one file, NAME.ccnn: a zip of three members, none of them compressed.

    deploy.prototxt       the net, made of ALLOWED_LAYERS alone: it holds no code
    weights.caffemodel    the weights of the net's layers; without the backbone's if they are those of one of BACKBONES
    model.json            classes, size, mean, trunk and about

    write_model("cats.ccnn", "photos/deploy.prototxt", "photos/ccnn_iter_400.caffemodel", classes, size=224)
    model = read_model("cats.ccnn")
    with model.files() as (prototxt, weights): ...              # for ccnn.inference.engines
    net = model.load()                                          # a caffe.Net, where Caffe is installed

Nothing in the file is trusted: what another person sends may be wrong, but it cannot run code or fill the disk.
"""
import contextlib
import errno
import hashlib
import json
import re
import tempfile
import unicodedata
import zipfile
from pathlib import Path
from typing import NamedTuple, Optional, Union

import numpy as np

from ccnn._util.errors import Unable, UserError
from ccnn._util.files import whole_file
from ccnn._util.foreign_files import load_json
from ccnn._util.settings import sizes_of
from ccnn._util.text import shortened
from ccnn.images.labels import VOC_CLASSES, VOID
from ccnn.images.reading import MEAN_BGR
from ccnn.inference.caffe_net import check_labels, check_scores, load_net
from ccnn.inference.engines import TRIAL, load_forward
from ccnn.nets.backbones import BACKBONES, backbone_of
from ccnn.nets.caffe_files import only_weights, parse_net, read_caffemodel, stored_layers
from ccnn.nets.cues import CUES
from ccnn.nets.memory import check_size
from ccnn.nets.weights import why_unfit

FORMAT = 1

NET, WEIGHTS, ABOUT = MEMBERS = ("deploy.prototxt", "weights.caffemodel", "model.json")

LIMITS = {NET: 1 << 20, WEIGHTS: (1 << 31) - 1, ABOUT: 1 << 20}       # bytes; protobuf reads no more than 2 GB

LONGEST = 200           # characters of the name of a layer

ALLOWED_LAYERS = {"Bias", "Concat", "Convolution", "Dropout", "Input", "Pooling", "Power", "ReLU", "Reshape"}

# what model.json holds, and of which type; the three at the end may hold more
KEYS = {"format": int, "classes": list, "size": (int, list), "mean": list, "trunk": (dict, type(None)), "ccnn": str,
        "settings": dict, "training": dict, "scores": dict}

# crf: the preset that suits it; cue: {"name", "exponent", "surfaces": names of classes}, see ccnn.inference.cue_maps
SETTINGS = {"supervision": str, "bounds": dict, "crf": (str, type(None)), "cue": (dict, type(None))}

TRAINING = {"photographs": int, "tags": dict, "data": str, "iterations": int, "seed": int, "date": str}

DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"      # characters that turn text around

AGAIN = "copy it again, or train again"


class ModelFile(NamedTuple):
    path: Path
    classes: tuple              # names of the labels, the background first
    size: Union[int, list]      # long side in pixels of the images that the net saw in training; a list: of each, once
    mean: tuple                 # subtracted from them: blue, green, red
    trunk: Optional[dict]       # the backbone: {"name", "sha256" of its weights}; None: the file holds all weights
    about: dict                 # settings of the method, what it was trained on, its scores, the version of ccnn
    net_text: str
    fingerprint: str            # sha256 of all that decides its masks: two models with one fingerprint are the same

    @contextlib.contextmanager
    def files(self):
        """(prototxt, [weights]) as paths, the backbone's weights first; they exist inside the `with` only.

        A UserError inside the `with` names the model instead of these files.
        """
        with tempfile.TemporaryDirectory(prefix="ccnn-") as folder:
            net, weights = (Path(folder) / name for name in (NET, WEIGHTS))
            net.write_text(self.net_text, encoding="utf-8")
            with opened(self.path) as archive, archive.open(WEIGHTS) as source, open(weights, "wb") as copy:
                found = fingerprint(self._asdict(), self.net_text, source, copy)
            if found != self.fingerprint:
                raise UserError(f"{self.path}: has been replaced since it was read; start again")
            try:
                yield net, [*self.backbone_files(), weights]
            except UserError as e:
                raise UserError(str(e).replace(folder, str(self.path))) from None

    def backbone_files(self):
        if not self.trunk:
            return []
        path = BACKBONES[self.trunk["name"]].fetch_weights()
        found = checksum(read_caffemodel(path))
        if found != self.trunk["sha256"]:
            raise UserError(f"{self.path}: was trained on weights of {self.trunk['name']} with sha256 "
                            f"{self.trunk['sha256'][:12]}, but {path} has {found[:12]}; use the file it was trained "
                            "on, or train again")
        return [path]

    def load(self, gpu=None, shape=(1, 3, 65, 97)):
        """A caffe.Net with all its weights, tried at `shape`; its scores are as many as the classes."""
        with self.files() as (prototxt, weights):
            net = load_net(prototxt, weights, gpu, shape)
            check_scores(net, prototxt, self.classes)
        return net

    def try_out(self):
        """UserError unless the first engine that is there runs the net, and it scores as many labels as the classes."""
        with self.files() as (prototxt, weights):
            try:
                forward = load_forward(prototxt, weights, "fc8")
            except Unable:
                raise
            except UserError as e:
                raise UserError(why_unfit(prototxt, weights) or e) from None
            check_labels(len(forward(np.zeros((*TRIAL, 3), np.uint8))), prototxt, self.classes)


def write_model(path, net, weights, classes, size, settings=None, training=None, scores=None):
    """Write a model, and read and load it before it takes its place.

    net      : path of the deploy net: input `data`, scores `fc8`
    weights  : path of a .caffemodel, of a snapshot of `caffe train` too. Only what the net needs is kept. If it lacks
               the backbone's layers, those are the backbone's own
    settings, training, scores : see SETTINGS and TRAINING; anything that JSON holds

    The same arguments give the same bytes.
    """
    import ccnn
    net_bytes = Path(net).read_bytes()
    wanted = check_net(net_bytes, net)
    missing = wanted - set(stored_layers(weights))
    backbone, trunk = backbone_of(wanted), None
    if backbone and missing and missing <= set(backbone.layers):
        trunk = {"name": backbone.name, "sha256": checksum(read_caffemodel(backbone.fetch_weights()))}
    about = {"format": FORMAT, "classes": list(classes), "size": size, "mean": list(MEAN_BGR), "trunk": trunk,
             "ccnn": ccnn.__version__, "settings": settings or {}, "training": training or {}, "scores": scores or {}}
    try:
        text = json.dumps(about, ensure_ascii=False, allow_nan=False, indent=1).encode()
    except (TypeError, ValueError) as e:
        raise UserError(f"{path}: model.json cannot hold this: {e}") from None
    with whole_file(path) as part:
        with zipfile.ZipFile(part, "w") as archive:
            for name, data in zip(MEMBERS, (net_bytes, only_weights(weights, wanted), text)):
                member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                member.create_system, member.external_attr = 3, 0o644 << 16     # the same bytes on every system
                archive.writestr(member, data)
        try:
            read_model(part).try_out()
        except UserError as e:
            said = str(e)
            for inner, given in ((part / NET, net), (part / WEIGHTS, weights), (part, path)):
                said = said.replace(str(inner), str(given))
            raise UserError(said) from None


def read_model(path):
    """The ModelFile of a path; UserError, with one line, for anything else."""
    with opened(path) as archive:
        about = check_about(archive.read(ABOUT), f"{path}: {ABOUT}")
        net = archive.read(NET)
        check_net(net, f"{path}: {NET}", max(*TRIAL, *sizes_of(about["size"])))
        with archive.open(WEIGHTS) as file:
            found = fingerprint(about, net.decode(), file)
    rest = {key: about[key] for key in ("settings", "training", "scores", "ccnn")}
    return ModelFile(Path(path), tuple(about["classes"]), about["size"], tuple(about["mean"]), about["trunk"], rest,
                 net.decode(), found)


def fingerprint(about, net_text, weights, copy=None):
    """sha256 of what decides the masks. weights: an open file, read to its end, and written to the file `copy`."""
    decisive = {key: about[key] for key in ("classes", "size", "mean", "trunk")}
    cue = about.get("about", about)["settings"].get("cue")
    if cue:
        decisive["cue"] = cue
    found = hashlib.sha256(json.dumps([decisive, net_text]).encode())
    for chunk in iter(lambda: weights.read(1 << 20), b""):
        found.update(chunk)
        if copy:
            copy.write(chunk)
    return found.hexdigest()


@contextlib.contextmanager
def opened(path):
    """The zip, with exactly its three members, none larger than its limit and each as large as it claims."""
    if Path(path).exists() and not Path(path).is_file():       # a pipe would never end
        raise UserError(f"{path}: is not a file; name a .ccnn file")
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                check_members(archive.infolist(), path)
                yield archive
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError, OSError) as e:
            if isinstance(e, OSError) and e.errno != errno.EINVAL:      # EINVAL: an offset before the file's start
                raise
            if Path(path).suffix.casefold() == ".onnx":
                raise UserError(f"{path}: is an ONNX file, which other programs read; give the NAME.ccnn that it was "
                                "exported from") from None
            raise UserError(f"{path}: is not a whole .ccnn file: damaged, cut off or something else ({e}); {AGAIN}") \
                from None


def check_members(members, path):
    names = [member.filename for member in members]
    strange = [name for name in names if name not in MEMBERS]
    if strange:
        raise UserError(f"{path}: holds {shortened(strange[0])}, which is not part of a model; {AGAIN}")
    if sorted(names) != sorted(MEMBERS):
        raise UserError(f"{path}: holds {', '.join(names) or 'nothing'} instead of {', '.join(MEMBERS)}; {AGAIN}")
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise UserError(f"{path}: {member.filename} is compressed, which no model's members are; zip it again "
                            "with `zip -0`, or use the file as it was written")
        if member.flag_bits & 1:
            raise UserError(f"{path}: {member.filename} is encrypted; ask for the file without a password")
        if member.file_size > LIMITS[member.filename]:
            raise UserError(f"{path}: {member.filename} has {member.file_size} bytes, at most "
                            f"{LIMITS[member.filename]} are read; {AGAIN}")


def check_net(data, where, side=0):
    """The names of the net's layers that have weights; UserError if a layer is none of ALLOWED_LAYERS, or if the net
    would take more memory for an image of side x side pixels than any model does."""
    net = parse_net(data, where)
    for layer in net.layer:
        for word in (layer.name, layer.type):
            if len(word) > LONGEST:
                raise UserError(f"{where}: the name or type of a layer has {len(word)} characters, at most {LONGEST} "
                                f"are read; {AGAIN}")
        if layer.type not in ALLOWED_LAYERS:
            raise UserError(f"{where}: layer {layer.name!r} is of type {layer.type!r}; a model holds no code, only the "
                            f"layers {', '.join(sorted(ALLOWED_LAYERS))}: give a deploy net")
    if side:
        check_size(net, where, side)
    return {layer.name for layer in net.layer if layer.type == "Convolution"}


def check_about(data, where):
    """What model.json says, if it is all there and of the right shape."""
    try:
        about = load_json(data.decode(), parse_constant=not_a_number)
        if not isinstance(about, dict) or type(about.get("format")) is not int:
            raise ValueError("it says no format")
        if about["format"] != FORMAT:
            raise UserError(f"{where}: has format {about['format']}, and this version of ccnn reads {FORMAT}; "
                            f"{'get a newer ccnn' if about['format'] > FORMAT else 'train again'}")
        if about.keys() != KEYS.keys():
            raise ValueError(f"{min(about.keys() ^ KEYS.keys())!r} is missing or unknown")
        check_types(about, KEYS)
        check_types(about["settings"], SETTINGS)
        check_types(about["training"], TRAINING)
        check_classes(about["classes"])
        check_values(about)
    except UserError:
        raise
    except ValueError as e:
        raise UserError(f"{where}: does not describe a model: {e}; {AGAIN}") from None
    return about


def check_types(values, types):
    for key, kind in types.items():
        if key in values and (not isinstance(values[key], kind) or isinstance(values[key], bool)):
            raise ValueError(f"{key} cannot be {shortened(values[key])}")


def check_values(about):
    sizes_of(about["size"])
    if about["mean"] != list(MEAN_BGR):
        raise ValueError(f"mean must be {list(MEAN_BGR)}, got {shortened(about['mean'])}")
    trunk = about["trunk"]
    if trunk is not None and (trunk.keys() != {"name", "sha256"} or trunk["name"] not in [*BACKBONES]
                              or not re.fullmatch("[0-9a-f]{64}", str(trunk["sha256"]))):
        raise ValueError(f"trunk must be null, or a name ({', '.join(BACKBONES)}) and the sha256 of its weights; got "
                         f"{shortened(trunk)}")
    if not re.fullmatch(r"\w*", about["settings"].get("crf") or ""):            # a name, never a path
        raise ValueError(f"crf must be the name of a preset, got {shortened(about['settings']['crf'])}")
    check_cue(about["settings"].get("cue"), about["classes"])
    for name, number in about["training"].get("tags", {}).items():
        if name not in about["classes"] or type(number) is not int:
            raise ValueError(f"tags must be a number per class, got {shortened({name: number})}")


def check_cue(cue, classes):
    if cue is None:
        return
    if cue.keys() != {"name", "exponent", "surfaces"} or cue["name"] not in [*CUES]:
        raise ValueError(f"cue must have a name ({', '.join(CUES)}), exponent and surfaces; got {shortened(cue)}")
    if type(cue["exponent"]) not in (int, float) or not 0 < cue["exponent"] <= 10:
        raise ValueError(f"the exponent of the cue must be above 0 and at most 10, got {shortened(cue['exponent'])}")
    if not isinstance(cue["surfaces"], list) or not all(name in classes[1:] for name in cue["surfaces"]):
        raise ValueError(f"the surfaces of the cue must be classes, got {shortened(cue['surfaces'])}")


def check_classes(classes):
    """Names in any script, different from each other, that cannot disturb a terminal, a file or a page."""
    background = VOC_CLASSES[0]
    if not 2 <= len(classes) <= VOID or classes[0] != background:
        raise ValueError(f"classes must be {background!r} and 1 to {VOID - 1} names")
    for name in classes:
        if not isinstance(name, str) or name != name.strip() or not 1 <= len(name) <= 100:
            raise ValueError(f"a class name has 1 to 100 characters and no space around it, got {shortened(name)}")
        # control characters, halves of characters, line separators
        if any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or c in DIRECTIONS for c in name):
            raise ValueError(f"the class name {shortened(name)} holds control characters")
    plain = [unicodedata.normalize("NFC", name) for name in classes]
    twice = {name for name in plain if plain.count(name) > 1}
    if twice:
        raise ValueError(f"the class {min(twice)!r} is there twice")


def not_a_number(text):
    raise ValueError(f"{text} is not a number")


def checksum(weights):
    """sha256 of {layer: [arrays]}, however their file was written."""
    found = hashlib.sha256()
    for name in sorted(weights):
        for array in weights[name]:
            found.update(f"{name} {array.shape}\n".encode() + array.astype("<f4").tobytes())
    return found.hexdigest()
