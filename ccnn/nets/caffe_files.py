"""Caffe's files as protobuf messages: nets and solvers as text, weights and states as bytes."""
import warnings
from collections.abc import Iterable
from pathlib import Path

from ccnn._util.errors import UserError
from ccnn._util.files import PathLike

MOMENTS = {"SGD": 1, "Nesterov": 1, "AdaGrad": 1, "RMSProp": 1, "AdaDelta": 2, "Adam": 2}    # blobs kept per parameter


def read_net(prototxt: PathLike):
    """A net's description: caffe.proto's NetParameter."""
    return parse_net(Path(prototxt).read_bytes(), prototxt)


def parse_net(data: bytes, where: object):
    """The same of the file's bytes; `where` names them in an error."""
    from caffe.proto import caffe_pb2
    return parse_text(data, where, caffe_pb2.NetParameter(), "net")


def read_solver(prototxt: PathLike, changes: Iterable[str] = ()):
    """A solver's settings, caffe.proto's SolverParameter, with changes as in "max_iter=3000"."""
    from caffe.proto import caffe_pb2
    solver = parse_text(Path(prototxt).read_bytes(), prototxt, caffe_pb2.SolverParameter(), "solver")
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


def change_setting(solver, change: str) -> None:
    """Apply "key=value" to a SolverParameter."""
    from google.protobuf import text_format
    key, _, value = change.partition("=")
    field = solver.DESCRIPTOR.fields_by_name.get(key)
    try:
        quoted = f'"{value}"' if field and field.type == field.TYPE_STRING else value
        text_format.Merge(f"{key}: {quoted}", solver)
    except text_format.ParseError as e:
        raise UserError(f"--set {change}: {str(e).split(' : ')[-1]}; "
                        "give key=value as in Caffe's solver files") from None


def parse_text(data: bytes, where: object, message, kind: str):
    """The message, filled from the bytes of a text file; kind: what the file should be."""
    from google.protobuf import text_format
    try:
        return text_format.Parse(data.decode("utf-8"), message)
    except text_format.ParseError as e:
        raise UserError(f"{where}: is not a {kind}: line {e}") from None
    except ValueError as e:             # bytes that are no text
        raise UserError(f"{where}: is not a {kind}: {e}") from None


def read_message(path: PathLike, message):
    """The protobuf message in a binary file, which must be whole."""
    from google.protobuf.message import DecodeError
    kind = {"NetParameter": ".caffemodel", "SolverState": ".solverstate"}[message.DESCRIPTOR.name]
    try:
        with warnings.catch_warnings(record=True) as stopped:
            warnings.simplefilter("always")         # protobuf only warns where it stops before the end
            message.ParseFromString(Path(path).read_bytes())
        whole = not stopped
    except DecodeError:
        whole = False
    if not whole:
        raise UserError(f"{path}: is not a whole {kind}: damaged, cut off or something else; "
                        "fetch or train it again")
    return message
