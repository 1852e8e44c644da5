"""Caffe's nets and solvers as protobuf messages, without Caffe: the classes that schema.proto describes.

    net = message("NetParameter")           # an empty one

The schema is compiled here, at the first call, with the few lines of grammar that it uses. Code that protoc generates
fits neighbouring versions of the protobuf runtime only. This fits 3.20, which Caffe needs, and today's.
"""
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ccnn._util.errors import UserError

SCHEMA = Path(__file__).with_name("schema.proto")

TOKEN = re.compile(r'//.*|"[^"]*"|[\w.+-]+|[{}\[\]=;,]')


def message(name: str) -> Any:
    """An empty message of this name."""
    return classes()[name]()


@functools.cache
def classes() -> dict[str, Any]:
    """{name: class} of all messages."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as e:
        raise UserError(f"nets are read with the package protobuf, which does not load ({e}); get it with: "
                        f"{sys.executable} -m pip install protobuf") from None
    file = descriptor_pb2.FileDescriptorProto(name="ccnn/schema.proto")
    declare_file(file, (token for token in TOKEN.findall(SCHEMA.read_text()) if not token.startswith("//")))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    if hasattr(message_factory, "GetMessageClass"):
        make = message_factory.GetMessageClass
    else:                                                           # before protobuf 4.22
        make = message_factory.MessageFactory(pool).GetPrototype
    return {one.name: make(pool.FindMessageTypeByName(f"{file.package}.{one.name}")) for one in file.message_type}


def declare_file(file: Any, tokens: Iterator[str]) -> None:
    enums: dict[str, str] = {}              # {name: full name}
    for word in tokens:
        if word == "enum":
            declare_enum(file.enum_type.add(), tokens)
            enums[file.enum_type[-1].name] = f".{file.package}.{file.enum_type[-1].name}"
        elif word == "message":
            declare_message(file.message_type.add(), tokens, file.package, enums)
        else:                               # syntax = "proto2"; package ccnn.caffe;
            *_, value = iter(tokens.__next__, ";")
            setattr(file, word, value.strip('"'))


def declare_enum(enum: Any, tokens: Iterator[str]) -> None:
    """NAME { VALUE = 0; ... }"""
    enum.name, _ = next(tokens), next(tokens)
    for name in iter(tokens.__next__, "}"):
        _, number, _ = next(tokens), next(tokens), next(tokens)
        enum.value.add(name=name, number=int(number))


def declare_message(made: Any, tokens: Iterator[str], package: str, enums: dict[str, str]) -> None:
    """NAME { enum ...  optional TYPE NAME = 1 [default = 2, packed = true]; ... }"""
    made.name, _ = next(tokens), next(tokens)
    enums = dict(enums)
    for label in iter(tokens.__next__, "}"):
        if label == "enum":
            declare_enum(made.enum_type.add(), tokens)
            enums[made.enum_type[-1].name] = f".{package}.{made.name}.{made.enum_type[-1].name}"
            continue
        kind, name, _, number, *options = iter(tokens.__next__, ";")
        field = made.field.add(name=name, number=int(number))
        field.label = getattr(field, f"LABEL_{label.upper()}")
        if hasattr(field, f"TYPE_{kind.upper()}"):
            field.type = getattr(field, f"TYPE_{kind.upper()}")
        else:
            field.type = field.TYPE_ENUM if kind in enums else field.TYPE_MESSAGE
            field.type_name = enums.get(kind, f".{package}.{kind}")
        given = dict(zip(options[1::4], options[3::4]))             # of [ key = value , key = value ]
        if "default" in given:
            field.default_value = given["default"].strip('"')
        if "packed" in given:
            field.options.packed = given["packed"] == "true"
