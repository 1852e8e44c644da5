"""Protobuf's wire format, as far as Caffe's binary files need it.

    for number, value in fields(data): ...              # of one message
    b"".join(enclosed(1, [b"conv1_1"]))                 # a field of bytes

A message is a row of fields: a key, which is the field's number and one of four encodings, and a value. Reading makes
views of the file's bytes instead of copies, and needs no memory that the file's own length does not pay for.
"""
from collections.abc import Iterable, Iterator
from typing import Union

Buffer = Union[bytes, memoryview]

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5

MOST_FIELDS = 100_000           # in one message. Caffe's have a few, or one per layer


LONGEST_TEXT = 4096             # bytes


class Damaged(ValueError):
    """The bytes are not a message, or not the one that they should be."""


def fields(data: memoryview) -> Iterator[tuple[int, Union[int, memoryview]]]:
    """(number, value) of each field: whole numbers as int, everything else as its bytes."""
    at = count = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, encoding = key >> 3, key & 7
        if encoding == VARINT:
            value, at = read_varint(data, at)
            yield number, value
        elif encoding in (FIXED64, DELIMITED, FIXED32):
            size = {FIXED64: 8, FIXED32: 4}.get(encoding)
            if size is None:
                size, at = read_varint(data, at)
            if not number or size > len(data) - at:
                raise Damaged("a field goes beyond the end")
            yield number, data[at:at + size]
            at += size
        else:
            raise Damaged(f"field {number} has the encoding {encoding}")
        count += 1
        if count > MOST_FIELDS:
            raise Damaged(f"a message has more than {MOST_FIELDS:,} fields")


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """(the number, where it ends): 7 bits per byte, the lowest first; the eighth bit says that more follow."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Damaged("a number goes beyond the end")
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value & (1 << 64) - 1, at
    raise Damaged("a number has more than 64 bits")


def signed(number: int) -> int:
    """int32 and int64 are stored as their 64 bits."""
    return number - (1 << 64) if number >> 63 else number


def numbers(value: Union[int, memoryview]) -> list[int]:
    """The whole numbers of a repeated field: one, or packed together."""
    if isinstance(value, int):
        return [signed(value)]
    found, at = [], 0
    while at < len(value):
        number, at = read_varint(value, at)
        found.append(signed(number))
    return found


def nested(value: Union[int, memoryview], name: str) -> memoryview:
    """The bytes of a field that holds a message or a text."""
    if isinstance(value, int):
        raise Damaged(f"{name} is a number")
    return value


def text(value: Union[int, memoryview], name: str) -> str:
    """A name or a path: it goes into messages and must not disturb a terminal."""
    try:
        found = bytes(nested(value, name)[:LONGEST_TEXT + 1]).decode()
    except UnicodeDecodeError:
        found = "\0"
    if len(found) > LONGEST_TEXT or not found.isprintable():
        raise Damaged(f"{name} is not text")
    return found


# Writing: a message is a list of buffers, so that large ones are not copied

def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))


def whole_number(number: int, value: int) -> bytes:
    """A field of a whole number."""
    return varint(number << 3 | VARINT) + varint(value)


def enclosed(number: int, parts: Iterable[Buffer]) -> list[Buffer]:
    """A field of bytes, a text or a message."""
    parts = list(parts)
    size = sum(memoryview(part).nbytes for part in parts)
    return [varint(number << 3 | DELIMITED) + varint(size), *parts]
