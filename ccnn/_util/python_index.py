"""Where the package indexes of this Python's pip keep a file.

    address = find_file("some-package", "some_package-1.0.tar.gz")

`pip download` would run the setup.py of a source distribution. Here pip only tells its settings; the file is
then downloaded as any other, and nothing of it runs.
"""
import ast
import http.client
import re
import subprocess
import sys
import urllib.error
import urllib.request
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

from ccnn._util.download import TIMEOUT
from ccnn._util.errors import UserError

MOST = 1 << 24      # bytes of an index's page that are read


def find_file(package: str, name: str) -> str:
    """The address of a package's file on the first index that has it."""
    failures = []
    for index in indexes():
        try:
            page, address = read_page(f"{index.rstrip('/')}/{package}/")
        except (OSError, ValueError, http.client.HTTPException) as e:
            failures.append(f"{without_password(index)}: {getattr(e, 'reason', None) or e}")
            continue
        for link in Links(page).found:
            if unquote(urlsplit(link).path).rpartition("/")[2] == name:
                return urljoin(address, link)
        failures.append(f"{without_password(index)}: does not have it")
    why = "; ".join(failures) or "pip is configured without one"
    raise UserError(f"{name}: not found on the package index ({why})")


def indexes() -> list[str]:
    """The addresses of the indexes, as pip is configured by its files and the environment."""
    settings = {}
    for line in pip("config", "list").splitlines():
        key, _, value = line.partition("=")
        settings[key] = str(ast.literal_eval(value)) if value[:1] in "'\"" else value

    def setting(name: str) -> str:
        return next((settings[key] for key in (f":env:.{name}", f"download.{name}", f"global.{name}")
                     if key in settings), "")
    if setting("no-index").lower() in ("1", "true", "yes", "on"):
        return []
    standard = re.search(r"Package Index\s+\(default\s+(\S+?)\)", pip("download", "--help"))
    return [setting("index-url") or (standard[1] if standard else ""), *setting("extra-index-url").split()]


def pip(*words: str) -> str:
    run = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True)
    if run.returncode:
        raise UserError(f"pip cannot be asked for its package index: {' '.join(run.stderr.split())[-200:]}")
    return run.stdout


def read_page(address: str) -> tuple[str, str]:
    """(content, where it was found in the end) of an index's page of a package."""
    if address.startswith("file:"):
        address += "index.html"
    with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
        return answer.read(MOST).decode("utf-8", "replace"), answer.geturl()


def without_password(address: str) -> str:
    return re.sub("//[^/]*@", "//", address)


class Links(HTMLParser):
    """`found`: the links of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.found += [value for key, value in attrs if tag == "a" and key == "href" and value]
