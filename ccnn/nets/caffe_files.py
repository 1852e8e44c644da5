"""Caffe's files without Caffe: nets and solvers as text, weights and the states of a training as bytes.

    net = read_net("prototxt/head_deploy.prototxt")         # a message of schema.proto: net.layer[0].name
    solver = read_solver("solvers/head_tags.prototxt", ["max_iter=3000"])
    weights = read_caffemodel("vgg16.caffemodel")           # {"conv1_1": [weights, bias], ...}
    write_caffemodel("other.caffemodel", weights)
    state = read_state("ccnn_iter_100.solverstate")

Every file may be damaged, or a stranger's: what is not understood is a UserError of one line. No memory is taken for a
blob before its shape and its bytes agree.
"""
import math
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import PathLike, whole_file
from ccnn.nets.protobuf_wire import Buffer, Damaged, enclosed, fields, nested, numbers, text, varint, whole_number
from ccnn.nets.schema import message

Arrays = dict[str, list[np.ndarray]]            # {layer: [weights, bias]}

MOMENTS = {"SGD": 1, "Nesterov": 1, "AdaGrad": 1, "RMSProp": 1, "AdaDelta": 2, "Adam": 2}    # blobs kept per parameter

LARGEST_TEXT, LARGEST = 1 << 24, (1 << 31) - 1          # bytes of a file; Caffe reads no more than 2 GB of weights

MOST_AXES = 32                  # of a blob, in Caffe


# Nets and solvers

def read_net(prototxt: PathLike):
    """A net: a NetParameter."""
    return parse_net(read_bytes(prototxt, LARGEST_TEXT), prototxt)


def parse_net(data: bytes, where: object):
    """The same of the file's bytes; `where` names them in an error."""
    return parse_text(data, where, message("NetParameter"), "net")


def read_solver(prototxt: PathLike, changes: Iterable[str] = ()):
    """A solver: a SolverParameter, with changes as in "max_iter=3000"."""
    solver = parse_solver(read_bytes(prototxt, LARGEST_TEXT), prototxt)
    for change in changes:
        change_setting(solver, change)
    for key in ("net", "snapshot_prefix", "max_iter", "iter_size"):
        if not getattr(solver, key):
            raise UserError(f"{prototxt}: has no {key}")
    if solver.type not in MOMENTS:
        raise UserError(f"{prototxt}: type {solver.type!r} is none of {', '.join(MOMENTS)}")
    if solver.snapshot_format != solver.BINARYPROTO:
        raise UserError(f"{prototxt}: snapshot_format must be BINARYPROTO (Caffe's default)")
    return solver


def parse_solver(data: bytes, where: object):
    """A SolverParameter of the file's bytes, without the checks of read_solver."""
    return parse_text(data, where, message("SolverParameter"), "solver")


def change_setting(solver, change: str) -> None:
    """Apply "key=value" to a SolverParameter."""
    from google.protobuf import text_format
    key, _, value = change.partition("=")
    field = solver.DESCRIPTOR.fields_by_name.get(key)
    try:
        quoted = f'"{value}"' if field and field.type == field.TYPE_STRING else value
        text_format.Merge(f"{key}: {quoted}", solver)
    except (text_format.ParseError, ValueError) as e:
        raise UserError(f"--set {change}: {parse_problem(e)}; give key=value as in Caffe's solver files") from None


def parse_text(data: bytes, where: object, made, kind: str):
    """The message, filled from the bytes of a text file; kind: what the file should be."""
    from google.protobuf import text_format
    long = re.search(rb"\d{400}", data)                     # Python takes a minute to read a million digits
    if long:
        raise UserError(f"{where}: is not a {kind}: line {data.count(10, 0, long.start()) + 1}: "
                        "a number has hundreds of digits")
    try:
        return text_format.Parse(data.decode("utf-8"), made)
    except text_format.ParseError as e:
        raise UserError(f"{where}: is not a {kind}: line {e.GetLine()}: {parse_problem(e)}") from None
    except ValueError as e:             # bytes that are not text
        raise UserError(f"{where}: is not a {kind}: {e}") from None


def parse_problem(error: Exception) -> str:
    """What protobuf says is wrong, without the line of the file, which may be long."""
    said = re.sub(r"^\d+:\d+ : ('.*': )?", "", str(error), flags=re.DOTALL)
    unknown = re.search(r'"ccnn\.caffe\.(\w+)" has no field named "(.*)"', said)
    if unknown:
        remedy = "that is the format of before 2015, which upgrade_net_proto_text of Caffe turns into today's" \
            if unknown[2] == "layers" else "Caffe 1.0 does not know it"
        return f"{unknown[1]} has no field {unknown[2][:60]!r}; {remedy}"
    return ascii(said.replace("ccnn.caffe.", ""))[1:-1][:200]


# Weights

class Blob(NamedTuple):
    """An array as it lies in a file."""
    shape: tuple[int, ...]
    four: bool                  # the shape is in the old fields num, channels, height and width
    values: list[memoryview]    # the numbers, in pieces; mostly one
    kind: str                   # their type: "<f4" or "<f8"

    def array(self, where: object) -> np.ndarray:
        """A float32 array; UserError unless it holds as many numbers as its shape says, all finite."""
        size = sum(map(len, self.values))
        count = size // np.dtype(self.kind).itemsize
        if len(self.shape) > MOST_AXES or not all(0 < side <= LARGEST for side in self.shape):
            raise UserError(f"{where}: has the shape {by(self.shape[:5])}, which is not that of a blob")
        if count != math.prod(self.shape) or size % np.dtype(self.kind).itemsize:
            raise UserError(f"{where}: holds {count} numbers, but its shape is {by(self.shape)}")
        data = self.values[0] if len(self.values) == 1 else b"".join(self.values)
        with np.errstate(over="ignore"):
            array = np.frombuffer(data, self.kind).astype(np.float32).reshape(self.shape)       # aligned in memory
        if not np.isfinite(array).all():
            raise UserError(f"{where}: holds {np.count_nonzero(~np.isfinite(array))} NaN or infinite values")
        return array


def read_caffemodel(path: PathLike) -> Arrays:
    """{layer: [arrays]} of a .caffemodel, also of one in Caffe's old format."""
    return {name: [blob.array(f"{path}: layer {name}") for blob in blobs]
            for name, blobs in layers_with_weights(path)}


def stored_layers(path: PathLike) -> list[str]:
    """The names of the layers that have weights in a .caffemodel."""
    return [name for name, _ in layers_with_weights(path)]


def layers_with_weights(path: PathLike) -> list[tuple[str, list[Blob]]]:
    """[(name, its blobs)]"""
    try:
        found = [layer for layer in read_layers(read_bytes(path, LARGEST)) if layer[1]]
    except Damaged as e:
        raise not_whole(path, ".caffemodel", e) from None
    if not found:
        raise UserError(f"{path}: holds no weights; give a .caffemodel")
    return found


def read_layers(data: bytes) -> Iterator[tuple[str, list[Blob]]]:
    """Of a NetParameter: layer = 100 { name = 1, blobs = 7 }, or layers = 2 { name = 4, blobs = 6 }, the old format."""
    for number, value in fields(memoryview(data)):
        if number not in (2, 100):
            continue
        of_name, of_blobs = (1, 7) if number == 100 else (4, 6)
        name, blobs = "", []
        for inner, part in fields(nested(value, "layer")):
            if inner == of_name:
                name = text(part, "a layer's name")
            elif inner == of_blobs:
                blobs.append(read_blob(nested(part, "blob")))
        yield name, blobs


def read_blob(data: memoryview) -> Blob:
    """BlobProto: num = 1, channels = 2, height = 3, width = 4, or shape = 7 { dim = 1 }; data = 5, double_data = 8."""
    sides: Optional[list[int]] = None
    old, single, double = [0, 0, 0, 0], [], []
    for number, value in fields(data):
        if number in (1, 2, 3, 4):
            old[number - 1] = numbers(value)[-1] if isinstance(value, int) else -1
        elif number == 5:
            single.append(nested(value, "data"))
        elif number == 8:
            double.append(nested(value, "double_data"))
        elif number == 7:
            sides = sides or []
            for inner, dim in fields(nested(value, "shape")):
                sides += numbers(dim) if inner == 1 else []
                if len(sides) > MOST_AXES:
                    raise Damaged(f"a blob has more than {MOST_AXES} axes")
    return Blob(tuple(old if sides is None else sides), sides is None, double or single, "<f8" if double else "<f4")


def write_caffemodel(path: PathLike, weights: Arrays) -> None:
    blobs = ((name, [array_blob(array) for array in arrays]) for name, arrays in weights.items())
    with whole_file(path) as file, open(file, "wb") as out:
        out.writelines(net_parts(Path(path).stem, blobs, "Convolution"))


def only_weights(path: PathLike, layers: Collection[str]) -> bytes:
    """A .caffemodel's bytes with the blobs of these layers alone: no training net, no paths, no gradients."""
    kept = [(name, blobs) for name, blobs in layers_with_weights(path) if name in layers]
    return b"".join(net_parts("ccnn", kept))


def array_blob(array: np.ndarray) -> Blob:
    values = np.ascontiguousarray(array, "<f4").reshape(-1)
    return Blob(array.shape, False, [values.data.cast("B")], "<f4")


def net_parts(name: str, layers: Iterable[tuple[str, list[Blob]]], kind: str = "") -> list[Buffer]:
    """The bytes of a NetParameter with these layers, in parts, as Caffe would write them."""
    parts = enclosed(1, [name.encode()])
    for layer, blobs in layers:
        content = enclosed(1, [layer.encode()]) + (enclosed(2, [kind.encode()]) if kind else [])
        for blob in blobs:
            content += enclosed(7, blob_parts(blob))
        parts += enclosed(100, content)
    return parts


def blob_parts(blob: Blob) -> list[Buffer]:
    values = enclosed(5 if blob.kind == "<f4" else 8, blob.values)
    if blob.four:           # a bias is 1 x 1 x 1 x n there, which Caffe takes from the old fields only
        return [whole_number(k + 1, side) for k, side in enumerate(blob.shape)] + values
    dims = enclosed(1, [b"".join(map(varint, blob.shape))])
    return values + enclosed(7, dims) if blob.kind == "<f4" else enclosed(7, dims) + values


# Training states

class TrainingState(NamedTuple):
    """A .solverstate."""
    iteration: int
    weights: str                    # path of the .caffemodel beside it
    history: list[np.ndarray]       # of the optimiser
    step: Optional[int]             # the last field that Caffe writes; None: the file was cut before it


def read_state(path: PathLike) -> TrainingState:
    """SolverState: iter = 1, learned_net = 2, history = 3, current_step = 4."""
    iteration, weights, history, step = 0, "", [], None
    try:
        for number, value in fields(memoryview(read_bytes(path, LARGEST))):
            if number == 1:
                iteration = whole(value, "iter")
            elif number == 2:
                weights = text(value, "learned_net")
            elif number == 3:
                history.append(read_blob(nested(value, "history")))
            elif number == 4:
                step = whole(value, "current_step")
    except Damaged as e:
        raise not_whole(path, ".solverstate", e) from None
    return TrainingState(iteration, weights, [blob.array(path) for blob in history], step)


def write_state(path: PathLike, state: TrainingState) -> None:
    parts = [whole_number(1, state.iteration), *enclosed(2, [state.weights.encode()])]
    for array in state.history:
        parts += enclosed(3, blob_parts(array_blob(array)))
    with whole_file(path) as file, open(file, "wb") as out:
        out.writelines([*parts, whole_number(4, state.step or 0)])


def whole(value: Any, name: str) -> int:
    if not isinstance(value, int):
        raise Damaged(f"{name} is not a number")
    return numbers(value)[0]


def read_bytes(path: PathLike, most: int) -> bytes:
    """The bytes of a file; UserError if there are more than `most`, which are not read, or if it is a pipe or a device:
    a training state names the weights beside it, and a stranger's may name what never ends."""
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode) or found.st_size > most:
        raise UserError(f"{path}: " + ("is a folder; name a file in it" if stat.S_ISDIR(found.st_mode) else
                                       f"has more than {most >> 20} MB, the most that is read of such a file"))
    if not stat.S_ISREG(found.st_mode):
        raise UserError(f"{path}: is a pipe or a device; name an ordinary file")
    with open(path, "rb") as file:
        return file.read(most)


def not_whole(path: PathLike, kind: str, error: Damaged) -> UserError:
    return UserError(f"{path}: is not a whole {kind}: damaged, cut off or something else ({error}); "
                     "fetch or train it again")


def by(shape: tuple[int, ...]) -> str:
    """A shape as text: 64x3x3x3"""
    return "x".join(map(str, shape))
