"""Downloads that resume, with a checksum."""
import http.client
import logging
import os
import re
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple, Optional

from ccnn._util.errors import UserError
from ccnn._util.files import digest
from ccnn._util.progress import Progress

BLOCK = 1 << 20     # bytes
TIMEOUT = 30        # seconds without a byte
PATIENCE = 5        # attempts in a row that bring no byte

log = logging.getLogger(__name__)


class Archive(NamedTuple):
    url: str
    checksum: str
    size: int       # bytes, to check the disk beforehand
    algorithm: str = "md5"
    title: str = ""             # what a message calls it; by default its address
    remedy: str = "use --archives"      # for those who get it elsewhere

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


def given(archive: Archive, folder: Path) -> Path:
    """The path of an archive that the user has, its checksum verified."""
    path = folder / archive.name
    if not path.is_file():
        raise UserError(f"{path}: no such file; download {archive.url} into {folder}, or leave --archives out")
    found = checksum(path, archive)
    if found != archive.checksum:
        raise UserError(f"{path}: {archive.algorithm} is {found}, need {archive.checksum}; the file is cut off or "
                        f"another one: download {archive.url} again")
    return path


def fetch(archive: Archive, folder: Path) -> Path:
    """Download an archive, resuming at what is there already; return its path, its checksum verified."""
    path = folder / archive.name
    part = path.with_name(path.name + ".part")
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists() and checksum(path, archive) == archive.checksum:
        return path
    log.info("downloading %s to %s", archive.title or archive.url, folder if archive.title else path)
    for _ in range(2):                                  # a resumed file may be wrong: then once from the start
        resumed = part.exists()
        download(archive, part)
        found = checksum(part, archive)
        if found == archive.checksum:
            if path.exists():
                log.warning("replacing %s: its %s was wrong", path, archive.algorithm)
            os.replace(part, path)
            return path
        part.unlink()
        if not resumed:
            break
    raise UserError(f"{archive.url}: {archive.algorithm} is {found}, need {archive.checksum}; the server sends another "
                    f"file: get {path.name} elsewhere and {archive.remedy}")


def checksum(path: Path, archive: Archive) -> str:
    return digest(path, algorithm=archive.algorithm, bar=True)


def download(archive: Archive, part: Path) -> None:
    """Download to the file `part` after the bytes it holds; try again until nothing comes any more."""
    failures = 0
    with Progress(unit="B", unit_scale=True, desc=archive.title or archive.name) as bar:
        while True:
            before = length(part)
            reason = attempt(archive, part, bar)
            if reason is None:
                return
            failures = 1 if length(part) > before else failures + 1
            if failures == PATIENCE:
                raise UserError(f"{archive.url}: {reason}, {PATIENCE} times in a row; run again later to resume, "
                                f"or get the file elsewhere and {archive.remedy}")
            time.sleep(pause(failures))


def pause(failures: int) -> int:
    """Seconds to wait after so many failures in a row: 1, 2, 4, 8."""
    return 2 ** (failures - 1)


def length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def attempt(archive: Archive, part: Path, bar: Progress) -> Optional[str]:
    """One request. None if the file is whole; else why it is not, if another attempt may help."""
    try:
        return None if receive(archive.url, part, bar) else "the connection was cut"
    except urllib.error.HTTPError as e:
        if e.code < 500 and e.code not in (408, 429):
            raise UserError(f"{archive.url}: the server answers {e.code} {e.reason}; "
                            f"get the file elsewhere and {archive.remedy}") from None
        return f"the server answers {e.code} {e.reason}"
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, socket.timeout) as e:
        return str(getattr(e, "reason", None) or e or type(e).__name__)


def receive(url: str, part: Path, bar: Progress) -> bool:
    """Append to `part` what it lacks. True if the file is whole, False if the connection was cut."""
    have = length(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as e:
        if e.code != 416:                               # "range not satisfiable"
            raise
        if e.headers.get("Content-Range") == f"bytes */{have}":
            return True                                 # nothing is missing
        part.unlink()                                   # longer than the server's file: start again
        return False
    with response:
        start, total = extent(response, have)
        bar.total, bar.n = total, start
        with open(part, "ab" if start else "wb") as file:
            for block in iter(lambda: response.read1(BLOCK), b""):
                file.write(block)
                bar.update(len(block))
            return total is None or file.tell() == total


def extent(response, have: int) -> tuple[int, Optional[int]]:
    """(byte at which an answer begins, bytes of the whole file or None); a server without ranges sends everything."""
    if response.status != 206:
        size = response.headers.get("Content-Length")
        return 0, int(size) if size else None
    sent = response.headers.get("Content-Range", "")
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", sent)
    if not span or int(span[1]) != have:
        raise http.client.HTTPException(f"asked for bytes from {have}, the server sends {sent or None}")
    return have, int(span[2])
