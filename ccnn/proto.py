"""Caffe's files as protobuf messages: nets and solvers as text, weights and states as bytes."""
import warnings
from pathlib import Path

from ccnn.errors import UserError


def read_net(prototxt):
    """A net's description: caffe.proto's NetParameter."""
    return parse_net(Path(prototxt).read_bytes(), prototxt)


def parse_net(data, where):
    """The same of the file's bytes; `where` names them in an error."""
    from caffe.proto import caffe_pb2
    from google.protobuf import text_format
    try:
        return text_format.Parse(data.decode("utf-8"), caffe_pb2.NetParameter())
    except text_format.ParseError as e:
        raise UserError(f"{where}: is not a net: line {e}") from None
    except ValueError as e:             # bytes that are no text
        raise UserError(f"{where}: is not a net: {e}") from None


def read_message(path, message):
    """The protobuf message in a file, which must be whole."""
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
