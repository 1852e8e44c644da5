"""Where the package's own files are, and where downloads go. Nothing is ever written into site-packages.

ROOT holds models/, prototxt/ and solvers/: the clone, or the folder of them in the installed package. DATA holds what
is fetched once: data/ of the clone, else the user's cache folder; the variable CCNN_HOME names another place.

A path that the user gives is relative to the current directory. So are the paths inside solvers and nets, because
`caffe train` reads them so; those of the repository are written for its root.
"""
import os
import shlex
import shutil
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]

CLONE = all((PACKAGE.parent / folder).is_dir() for folder in ("tools", "prototxt", "solvers"))

ROOT = PACKAGE.parent if CLONE else PACKAGE / "_files"


def data_folder() -> Path:
    if os.environ.get("CCNN_HOME"):
        return Path(os.environ["CCNN_HOME"]).expanduser()
    if CLONE:
        return ROOT / "data"
    import platformdirs  # type: ignore[import-not-found]
    return Path(platformdirs.user_cache_dir("ccnn", appauthor=False))


DATA = data_folder()
VOC = DATA / "VOCdevkit/VOC2012"
FEATURES = DATA / "features"


def packages(extra: str = "photos", make: str = "") -> str:
    """How to get the Python packages that are missing.

    extra : of the package
    make  : the target that fetches them into a clone's runtime; "" stands for requirements.txt
    """
    if CLONE and make:
        return f"make {make}"
    return f"{shlex.quote(sys.executable)} -m pip install " + ("-r requirements.txt" if CLONE else f'"ccnn[{extra}]"')


def named(path: Path) -> str:
    """A path of the package or of the downloads in a few words: where --help says what the default is."""
    if path.is_relative_to(ROOT):
        said = f"{path.relative_to(ROOT).as_posix()} of the {'repository' if CLONE else 'package'}"
    else:
        home = os.path.expanduser("~")
        said = f"~/{path.relative_to(home).as_posix()}" if path.is_relative_to(home) else str(path)
    return said.replace("%", "%%")          # argparse fills in what follows a %


def typed(name: str, *words: object) -> str:
    """A command of ours as one can type it here: `ccnn NAME` where that is on the PATH, else tools/NAME.py."""
    tool = ROOT / "tools" / f"{'infer' if name == 'segment' else name.replace('-', '_')}.py"
    start = [os.path.relpath(tool)] if tool.exists() and not shutil.which("ccnn") else ["ccnn", name]
    return shlex.join([*start, *map(str, words)])
