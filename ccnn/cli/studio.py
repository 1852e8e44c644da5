"""Tag photographs in a browser, train, look at the masks, correct, train again.

    ccnn studio photos              # prints the address of a page on this machine, and opens it

The folder holds photographs; it may be empty, or new. Whatever the page does is kept in the files that ccnn learn
uses: classes.txt, tags.csv, scribbles/, model.ccnn. So the page may be closed at any moment, and the tools and the page
may be used in turn.

While you tag, the features of the photographs are computed in the background. "Train" runs ccnn learn: half a
minute for 60 photographs on two cores once the features are there. The masks appear while it learns. Each training
starts from scratch with all tags; one that was stopped resumes, unless tags have changed.

Only this machine can open the page, and only with the address that is printed. ^C ends everything.
"""
import asyncio
import os
import sys
from functools import partial
from pathlib import Path

from ccnn._util.errors import UserError
from ccnn._util.files import lock
from ccnn._util.paths import CLONE, ROOT
from ccnn._util.work_folder import WORK, claim
from ccnn._util.workers import THREADS, one_blas_thread
from ccnn.cli import command

PORT = 8324

DEFAULT = ROOT / "output/studio" if CLONE else Path("photos")


def main(argv=None):
    args = parse_args(argv)
    command.need_server()
    from ccnn.studio import server
    os.environ.setdefault(THREADS, "1")              # of the processes that are started
    folder = open_folder(args.photos or ask())
    held = lock(folder / WORK / "studio.lock", "process {holder} has this folder open in a studio; use its page, or "
                "stop it (kill {holder})")
    ports = [args.port] if args.port else [*server.last_port(folder), PORT]
    try:
        with one_blas_thread():
            asyncio.run(server.serve(folder, server.find_port(*ports), args.steps, args.no_browser,
                                     partial(print, flush=True)))
    except KeyboardInterrupt:                       # the way to end it, after which every child has ended
        command.say(f"closed; tags and model are in {folder}")
    held.close()


def ask() -> Path:
    """The folder, from whoever sits at the terminal; the default if nobody does."""
    if not sys.stdin.isatty():
        return DEFAULT
    print(f"Which folder has your photographs? It may be a new one. [{DEFAULT}] ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:                                    # ^D
        raise UserError("no folder was given; type: ccnn studio FOLDER")
    name = line.strip().strip("'\"")                # in quotes if it was dragged into the terminal
    return Path(name).expanduser() if name else DEFAULT


def open_folder(folder: Path) -> Path:
    """The folder, which is made if it is not there."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file; give the folder of your photographs")
    if (folder / "Annotations").is_dir() and not (folder / "tags.csv").exists():
        raise UserError(f"{folder}: has boxes in Annotations and no tags.csv; ccnn import-tags makes it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}); give a folder of your own") from None
    claim(folder)
    return folder


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("photos", nargs="?", type=Path, help=f"the folder; without it, you are asked (default: {DEFAULT})")
    add("--port", type=command.port, metavar="N",
        help=f"if it is taken, another (default: that of the last time, or {PORT})")
    add("--steps", type=command.count, metavar="N", help="of a training, as ccnn learn takes them")
    add("--no-browser", action="store_true", help="print the address only")
    return parser.parse_args(argv)
