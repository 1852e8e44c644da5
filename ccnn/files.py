"""Files that are whole or not there."""
import contextlib
import hashlib
import os
import sys
from pathlib import Path


@contextlib.contextmanager
def whole_file(path):
    """Yield a temporary path beside `path`; rename it to `path` on success, remove it on failure.

    The suffix stays, for libraries that read the format from it; missing folders are made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield part
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def digest(path, algorithm):
    found = hashlib.new(algorithm)
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            found.update(chunk)
    return found.hexdigest()


def say_if_replaced(path):
    if path.exists():
        print(f"replacing {path}", file=sys.stderr)
