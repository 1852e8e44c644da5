"""A model behind HTTP: for programs, for Label Studio, and for a page where one drops a photograph.

    ccnn serve photos/model.ccnn                        # prints the address of the page, on this machine alone
    curl --data-binary @cat.jpg http://127.0.0.1:8325/segment -o mask.png
    curl --data-binary @cat.jpg "http://127.0.0.1:8325/segment?format=json&crf=1"

    ccnn serve photos/model.ccnn --photos photos        # an ML backend of Label Studio: http://127.0.0.1:8325
    LABEL_STUDIO_API_KEY=... ccnn serve photos/model.ccnn --label-studio http://localhost:8080

Label Studio sends addresses of photographs. They are looked up by name in --photos, or fetched from --label-studio;
nothing else is fetched. With --host other machines may ask, too, with the token that is then printed. docs/serve.md has
every request. ^C ends it.
"""
import asyncio
import os
import secrets
from functools import partial
from pathlib import Path

from ccnn._util.errors import UserError
from ccnn.cli import command
from ccnn.crf.presets import PRESETS

PORT = 8325


def main(argv=None):
    args = parse_args(argv)
    command.need_server()
    from ccnn.inference.model import Model
    from ccnn.inference.predict import find_model
    from ccnn.serving import server as serving
    from ccnn.studio import server
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    source = find_model(args.model)
    Model(args.model)                               # a wrong model ends here, with one line; downloads happen here
    studio = serving.LabelStudio(args.label_studio, os.environ.get("LABEL_STUDIO_API_KEY", "")) \
        if args.label_studio else None
    service = serving.Service(args.model, source.classes, str(source.identity["model"])[:12], args.crf or False,
                              args.jobs, args.photos, studio)
    try:
        asyncio.run(serving.serve(service, server.find_port(args.port, host=args.host), args.host,
                                  secrets.token_urlsafe(24), partial(print, flush=True)))
    except KeyboardInterrupt:
        command.say("ended")


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("model", nargs="?", type=Path, help="photos/model.ccnn of ccnn learn (default: the model that comes with the "
        "package, which knows VOC's 20 classes)")
    add("--port", type=command.port, default=PORT, metavar="N", help="if it is taken, another (default: %(default)s)")
    add("--host", default="127.0.0.1", metavar="ADDRESS", help="the address to listen on (default: %(default)s, this "
        "machine alone); 0.0.0.0 is every one, and a request then needs the token")
    add("--crf", nargs="?", const=True, choices=(True, *PRESETS), metavar="PRESET",
        help="sharpen every mask with a dense CRF, unless a request says crf=0")
    add("--jobs", type=command.count, default=1, metavar="N",
        help="photographs at the same time (default: %(default)s)")
    add("--photos", type=Path, metavar="DIR", help="the photographs that Label Studio's tasks name")
    add("--label-studio", metavar="ADDRESS", help="the Label Studio to fetch photographs from, with the token in "
        "LABEL_STUDIO_API_KEY")
    args = parser.parse_args(argv)
    if args.photos and not args.photos.is_dir():
        raise UserError(f"--photos {args.photos}: no such folder")
    if args.label_studio and not args.label_studio.startswith(("http://", "https://")):
        raise UserError(f"--label-studio {args.label_studio}: need an address such as http://localhost:8080")
    return args
