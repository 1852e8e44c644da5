"""The addresses of the studio. Each reads a request, calls the session, and responds with JSON or a picture."""
import asyncio
import contextlib
import os
from pathlib import Path
from typing import Optional

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ccnn._util.errors import UserError
from ccnn._util.work_folder import check
from ccnn.annotations.export_formats import FORMATS, check_name
from ccnn.images.formats import PIXELS
from ccnn.images.labels import VOID
from ccnn.images.overlays import colours
from ccnn.images.reading import upright_shape
from ccnn.studio import requests
from ccnn.studio.access import error
from ccnn.studio.album import Change, Conflict, NotThere, display_name
from ccnn.studio.batches import MOST, MOST_BYTES, Batch
from ccnn.studio.exports import described, parts, zipped
from ccnn.studio.predictions import (
    all_classes,
    explain,
    mask_png,
    own_mask,
    own_scores,
    probability_png,
    scribble_png,
    shades,
)
from ccnn.studio.requests import Wrong, read_json
from ccnn.studio.session import Session
from ccnn.studio.thumbnails import PICTURE, THUMBNAIL, check_photograph
from ccnn.supervision import rules_file

PAGE = Path(__file__).resolve().parent / "page"

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml",
         ".png": "image/png", ".woff2": "font/woff2"}

UPLOAD_BYTES, UPLOADS, PHOTOGRAPHS = 50 << 20, 3, 10_000       # of a photograph; at a time; in a folder

COPIES = {"thumbnail": THUMBNAIL, "picture": PICTURE}

KEPT = {"Cache-Control": "private, max-age=31536000, immutable"}       # the address names the version

NOT_KEPT = {"Cache-Control": "no-store"}


def session_of(request: Request) -> Session:
    return request.app.state.session


def answer(value: object, status: int = 200) -> Response:
    return JSONResponse(value, status, NOT_KEPT)


# The page

async def page(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    known = {path.name: path for path in PAGE.glob("*") if path.suffix in KINDS and path.is_file()}
    if name not in known:
        raise NotThere(f"there is no file {requests.shortened(name)}")
    return Response(known[name].read_bytes(), media_type=KINDS[known[name].suffix],
                    headers={"Cache-Control": "no-cache"})


# State

async def state(request: Request) -> Response:
    limits = {"bytes": UPLOAD_BYTES, "pixels": PIXELS, "photographs": PHOTOGRAPHS, "batch": MOST,
              "strokes": requests.STROKES, "points": requests.POINTS, "uploads": UPLOADS}
    exports = [{"name": name, "title": format.title, "file": format.file, "note": format.note}
               for name, format in FORMATS.items()]
    return answer({**session_of(request).state(), "limits": limits, "exports": exports})


async def photographs(request: Request) -> Response:
    return Response(session_of(request).photographs(), media_type="application/json", headers=NOT_KEPT)


async def predictions(request: Request) -> Response:
    session = session_of(request)
    return answer({"version": session.head and session.head.version, "predictions": list(session.predictions.values())})


async def loss(request: Request) -> Response:
    return answer(session_of(request).trainer.curve())


async def events(request: Request) -> Response:
    session = session_of(request)
    hello = {"server": session.server, "revision": session.album.revision}
    return StreamingResponse(session.hub.listen(hello), media_type="text/event-stream", headers=NOT_KEPT)


# Changes

def check_identity(request: Request, value: dict) -> Optional[Response]:
    """A refusal if the request was meant for another folder, which a studio at this address had open before."""
    asked = value.get("identity")
    if asked is None or asked == session_of(request).identity:
        return None
    return error(409, "this is another folder than the one that was changed; open that one again", other_folder=True)


async def put_tags(request: Request) -> Response:
    session, album, value = session_of(request), session_of(request).album, await read_json(request)
    wanted = requests.changes(value, album.classes)
    if refusal := check_identity(request, value):
        return refusal
    for change in wanted:
        if isinstance(change, Change):
            album.get(change.number)
    changed, conflicts, refused = await session.change(album.put_tags, wanted)
    numbers = sorted({*changed, *conflicts, *(key for key in refused if isinstance(key, int))})
    body = {"revision": album.revision, "photographs": [album.describe(album.get(number)) for number in numbers]}
    if not conflicts and not refused:
        return answer(body)
    text = "somebody else has changed these photographs meanwhile" if conflicts else next(iter(refused.values()))
    return answer({"error": text, **body, "conflicts": conflicts, "refused": [
        {"name" if isinstance(key, str) else "number": key, "error": why} for key, why in refused.items()]}, 409)


async def post_classes(request: Request) -> Response:
    session, album, value = session_of(request), session_of(request).album, await read_json(request)
    if set(value) == {"add"}:
        await session.change(album.add_class, requests.text(value["add"], "add"))
    elif set(value) == {"rename", "to"}:
        names = requests.text(value["rename"], "rename"), requests.text(value["to"], "to")
        await session.change(album.rename_class, *names)
    elif set(value) == {"remove"}:
        await session.change(album.remove_class, requests.text(value["remove"], "remove"))
    elif set(value) == {"kind", "is"}:
        if value["is"] not in (*rules_file.KINDS, None):
            raise Wrong(f"is must be {', '.join(rules_file.KINDS)} or null; got {requests.shortened(value['is'])}")
        await session.change(album.set_kind, requests.text(value["kind"], "kind"), value["is"])
    else:
        raise Wrong('expected {"add": name}, {"rename": name, "to": name}, {"remove": name} or '
                    '{"kind": name, "is": kind}')
    return answer(session.classes())


async def put_auto(request: Request) -> Response:
    session, value = session_of(request), requests.only(await read_json(request), "auto")
    await asyncio.to_thread(session.set_auto, requests.switch(value.get("auto"), "auto"))
    return answer(session.status())


async def post_strokes(request: Request) -> Response:
    session, album = session_of(request), session_of(request).album
    value = requests.only(await read_json(request), "revision", "strokes", "identity", "name")
    drawn = requests.strokes(value.get("strokes"), album.classes)
    found = album.get(request.path_params["number"])
    if refusal := check_identity(request, value):
        return refusal
    if value.get("name") not in (None, display_name(found.path)):
        return error(409, "this number belongs to another photograph now; load the page again", other_photograph=True)
    return await scribbled(request, session, album.draw, requests.whole(value.get("revision"), "revision"), drawn)


async def step_strokes(request: Request) -> Response:
    session, album = session_of(request), session_of(request).album
    value = requests.only(await read_json(request), "revision")
    return await scribbled(request, session, album.step_scribble, requests.whole(value.get("revision"), "revision"),
                           request.url.path.rsplit("/", 1)[1])


async def scribbled(request: Request, session: Session, function, *arguments) -> Response:
    photograph = session.album.get(request.path_params["number"])
    try:
        await session.change(function, photograph.number, *arguments)
    except Conflict as conflict:
        return error(409, conflict, photograph=session.album.describe(photograph))
    return answer({"revision": session.album.revision, "photograph": session.album.describe(photograph)})


async def region(request: Request) -> Response:
    """The region of a photograph at a place, for the page to draw, and to send back as a stroke."""
    session, value = session_of(request), requests.only(await read_json(request), "x", "y", "kind", "label")
    found = session.album.get(request.path_params["number"])
    x, y = (requests.number(value.get(key), key, 0, 1) for key in "xy")
    label = requests.whole(value.get("label", 0), "label", 0, VOID)
    kind = value.get("kind")
    if kind not in ("part", "whole"):
        raise Wrong(f"kind must be part or whole; got {requests.shortened(kind)}")
    return answer({"kind": kind, **await asyncio.to_thread(session.region, found, x, y, kind == "whole", label)})


# Pictures

async def copy(request: Request) -> Response:
    session = session_of(request)
    photograph, name = session.album.get(request.path_params["number"]), request.path_params["copy"]
    if name not in COPIES:
        raise NotThere(f"there is no picture {requests.shortened(name)}")
    path = await session.copy(photograph, COPIES[name])
    return Response(await asyncio.to_thread(path.read_bytes), media_type="image/jpeg", headers=KEPT)


async def picture_of_scores(request: Request, make) -> Response:
    """make(session, head, photograph, known, scores, size) in a thread, of a photograph under the present model. That
    of a marked photograph is not kept by the browser: its marks and tags change it."""
    session, of = session_of(request), request.query_params.get("of", "model")
    if of not in ("model", "previous"):
        raise Wrong(f"of must be model or previous; got {requests.shortened(of)}")
    photograph = session.album.get(request.path_params["number"])
    head, known = session.previous if of == "previous" else session.head, session.known(photograph)
    if of == "previous" and not head:
        raise NotThere("there is no previous model")
    data = await asyncio.to_thread(
        lambda: make(session, head, photograph, known, *session.scores(photograph, head)))
    kept = head and request.query_params.get("v") == head.version and not photograph.scribble
    return Response(data, media_type="image/png", headers=KEPT if kept else NOT_KEPT)


async def mask(request: Request) -> Response:
    side, style = requests.side(request), request.query_params.get("style", "fill")
    if style not in ("fill", "outline"):
        raise Wrong(f"style must be fill or outline; got {requests.shortened(style)}")

    def make(session, head, photograph, known, scores, size):
        labels, names = own_mask(head, scores, size, photograph.id, known, session.work, side)
        return mask_png(labels, shades(names, session.album.classes), style)
    return await picture_of_scores(request, make)


async def probability(request: Request) -> Response:
    classes = session_of(request).album.classes
    side, label = requests.side(request), requests.query_number(request, "label", len(classes) - 1)

    def make(session, head, photograph, known, scores, size):
        if classes[label] not in head.classes:
            raise NotThere(f"the model does not know {classes[label]!r} yet")
        scores = own_scores(head, scores, size, photograph.id, known, session.work)
        return probability_png(scores, size, head.classes.index(classes[label]), side, colours()[label])
    return await picture_of_scores(request, make)


async def scribble(request: Request) -> Response:
    album, side = session_of(request).album, requests.side(request)
    photograph = album.get(request.path_params["number"])

    def made():
        marks = album.read_scribble(photograph)
        if marks is None:
            raise NotThere("nothing is marked in it")
        return scribble_png(marks, marks.shape, side)
    return Response(await asyncio.to_thread(made), media_type="image/png", headers=NOT_KEPT)


# One photograph

async def photograph(request: Request) -> Response:
    album = session_of(request).album
    found = album.get(request.path_params["number"])
    file = album.file(found)
    height, width = await asyncio.to_thread(upright_shape, str(file))
    explanation = None
    with contextlib.suppress(NotThere):
        explanation = await explained(request, {})
    return answer({"photograph": album.describe(found), "width": width, "height": height, "bytes": found.stamp[1],
                   "explanation": explanation})


async def solve(request: Request) -> Response:
    value = requests.only(await read_json(request), "bounds")
    head = session_of(request).head
    return answer(await explained(request, requests.bounds(value.get("bounds"), len(head.classes) if head else 1)))


async def explained(request: Request, bounds: dict) -> dict:
    session = session_of(request)
    found, head = session.album.get(request.path_params["number"]), session.head
    known = session.known(found)
    if not known:
        raise NotThere("it has no tags yet")
    now = known.of(head) if head else known
    if not now:
        raise NotThere("the classes have changed since the model was trained; train again")

    def made():
        scores, size = session.scores(found, head)
        return explain(head, scores, size, now, bounds, session.work)
    return await asyncio.to_thread(made)


# The loop

async def train(request: Request) -> Response:
    session, value = session_of(request), requests.only(await read_json(request), "check")
    check = requests.switch(value.get("check", False), "check")
    async with session.starting:
        if session.training:
            return error(409, "a training is running")
        await session.train(check)
    return answer(session.status(), 202)


async def stop(request: Request) -> Response:
    session = session_of(request)
    requests.only(await read_json(request))
    if not session.trainer.running:
        return error(409, "no training is running")
    session.trainer.stop()
    return answer(session.status(), 202)


# Out

def download(name: str) -> dict:
    return {**NOT_KEPT, "Content-Disposition": f'attachment; filename="{name}"'}


async def export_file(request: Request) -> Response:
    name = request.path_params["name"]
    format = next((known for known, format in FORMATS.items() if format.file == name), None)
    if format:
        return await export_labels(session_of(request), format)
    path = session_of(request).root / name
    if name not in ("model.ccnn", "tags.csv") or not path.is_file():
        raise NotThere(f"there is no {requests.shortened(name)} yet")
    return FileResponse(path, headers=download(name), media_type="application/octet-stream")


async def report(request: Request) -> Response:
    path = session_of(request).root / "report.html"
    if not path.is_file():
        raise NotThere("there is no report yet; train first")
    return FileResponse(path, media_type="text/html", headers={
        **NOT_KEPT, "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox"})


def for_export(session: Session) -> tuple:
    """(head, [(name, id, file, what is known)])"""
    if not session.head:
        raise NotThere("there is no model yet; train first")
    return session.head, [(found.path, found.id, session.album.images / found.path, session.known(found))
                           for found in session.album.there() if not found.problem]


async def export_labels(session: Session, name: str) -> Response:
    """The masks in a format of labels; an archive is given away as it grows."""
    format = FORMATS[name]
    head, items = for_export(session)
    classes = all_classes(head, session.album.classes)
    for path, *_ in items:
        check_name(path)

    async def members():
        kept = []
        for few in parts(items, 8):
            made = await asyncio.gather(*(session.pool.run(described, name, head, session.work, *one) for one in few))
            for (path, *_), value in zip(few, made):
                if value is not None and format.each:
                    yield format.path(path), value
                elif value is not None:
                    kept.append((path, value))
        for path, data in (await asyncio.to_thread(format.common, kept, classes)).items():
            yield path, data
    if format.archive:
        return StreamingResponse(zipped(members()), media_type="application/zip", headers=download(format.file))
    [(_, data)] = [member async for member in members()]
    kind = "application/json" if format.file.endswith(".json") else "application/xml"
    return Response(data, media_type=kind, headers=download(format.file))


# In

@contextlib.asynccontextmanager
async def upload(request: Request, name: str):
    """The body in a file that can be read to its last pixel; the file is removed afterwards, unless it was moved."""
    session = session_of(request)
    if session.uploads >= UPLOADS:
        raise Wrong(f"{UPLOADS} photographs are being read; send this one again in a moment", 429)
    session.uploads += 1
    folder = session.place / "uploads"
    part = folder / f"{session.next_upload()}{Path(name).suffix.lower()}"
    try:
        check(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with open(part, "xb") as file:
            async for data in requests.limited(request, UPLOAD_BYTES):
                await asyncio.to_thread(file.write, data)
        try:
            await session.pool.run(check_photograph, part)
        except UserError as problem:
            raise UserError(str(problem).replace(str(part), name).replace(part.name, name)) from None
        yield part
    finally:
        session.uploads -= 1
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


async def post_photograph(request: Request) -> Response:
    session, name = session_of(request), requests.photograph_name(request)
    if len(session.album.photographs) >= PHOTOGRAPHS:
        raise Wrong(f"the folder has {PHOTOGRAPHS} photographs; the studio takes no more", 422)
    async with upload(request, name) as part:
        found, new = await session.change(session.album.add_photograph, name, part)
    return answer({"photograph": session.album.describe(found)}, 201 if new else 200)


def batch_of(request: Request) -> Batch:
    return session_of(request).batches.get(request.path_params["batch"])


async def new_batch(request: Request) -> Response:
    requests.only(await read_json(request))
    return answer((await session_of(request).batches.new()).describe(), 201)


async def get_batch(request: Request) -> Response:
    return answer(batch_of(request).describe())


async def post_to_batch(request: Request) -> Response:
    batch, name = batch_of(request), requests.file_name(request)
    if batch.phase != "open":
        return error(409, "this batch is being segmented; begin a new one")
    if len(batch.names) >= MOST:
        raise Wrong(f"a batch has at most {MOST} photographs; segment these first", 422)
    async with upload(request, name) as part:
        if batch.bytes + part.stat().st_size > MOST_BYTES:
            raise Wrong(f"a batch has at most {MOST_BYTES >> 30} GB; segment these photographs first", 422)
        batch.add(name, part)
    return answer(batch.describe(), 201)


async def segment_batch(request: Request) -> Response:
    requests.only(await read_json(request))
    batch = batch_of(request)
    await session_of(request).batches.segment(batch)
    return answer(batch.describe(), 202)


async def batch_overlay(request: Request) -> Response:
    path = batch_of(request).masks / f"overlay/{request.path_params['number']:04}.jpg"
    if not path.is_file():
        raise NotThere("it is not segmented yet")
    return FileResponse(path, media_type="image/jpeg", headers=NOT_KEPT)


async def batch_zip(request: Request) -> Response:
    batch = batch_of(request)
    if not batch.done:
        raise NotThere("nothing is segmented yet")

    async def members():
        for path, name in batch.members():
            if path.is_file():
                yield name, await asyncio.to_thread(path.read_bytes)
    return StreamingResponse(zipped(members()), media_type="application/zip", headers=download("masks.zip"))


# All together

async def show_error(request: Request, problem: Exception) -> Response:
    """One line for whatever went wrong."""
    status = {Wrong: getattr(problem, "status", 400), NotThere: 404, UserError: 422, OSError: 500,
              HTTPException: getattr(problem, "status_code", 500)}
    found = next((number for kind, number in status.items() if isinstance(problem, kind)), 500)
    text = problem.detail if isinstance(problem, HTTPException) else str(problem)
    if found == 500 and not isinstance(problem, OSError):
        text = f"the studio failed ({type(problem).__name__}); the terminal tells more"
    return error(found, session_of(request).plain(text))


class Number(Convertor):
    """A number in an address. Python reads no more than 4300 digits, and nothing has as many as ten."""

    regex = "[0-9]{1,9}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("number", Number())

ROUTES = [
    ("GET", "/", page),
    ("GET", "/page/{name}", page),
    ("GET", "/api/state", state),
    ("GET", "/api/photographs", photographs),
    ("POST", "/api/photographs", post_photograph),
    ("GET", "/api/predictions", predictions),
    ("GET", "/api/loss", loss),
    ("GET", "/api/events", events),
    ("PUT", "/api/tags", put_tags),
    ("POST", "/api/classes", post_classes),
    ("PUT", "/api/auto", put_auto),
    ("POST", "/api/scribbles/{number:number}", post_strokes),
    ("POST", "/api/scribbles/{number:number}/undo", step_strokes),
    ("POST", "/api/scribbles/{number:number}/redo", step_strokes),
    ("GET", "/api/scribbles/{number:number}.png", scribble),
    ("GET", "/api/photographs/{number:number}", photograph),
    ("POST", "/api/photographs/{number:number}/solve", solve),
    ("POST", "/api/photographs/{number:number}/region", region),
    ("GET", "/api/photographs/{number:number}/{copy}.jpg", copy),
    ("GET", "/api/photographs/{number:number}/mask.png", mask),
    ("GET", "/api/photographs/{number:number}/probability.png", probability),
    ("POST", "/api/train", train),
    ("POST", "/api/stop", stop),
    ("GET", "/api/export/{name}", export_file),
    ("GET", "/api/report.html", report),
    ("POST", "/api/batches", new_batch),
    ("GET", "/api/batches/{batch:number}", get_batch),
    ("POST", "/api/batches/{batch:number}/photographs", post_to_batch),
    ("POST", "/api/batches/{batch:number}/segment", segment_batch),
    ("GET", "/api/batches/{batch:number}/overlay/{number:number}.jpg", batch_overlay),
    ("GET", "/api/batches/{batch:number}/masks.zip", batch_zip),
]


def application(session: Session) -> Starlette:
    @contextlib.asynccontextmanager
    async def life(app):
        await session.open()
        try:
            yield
        finally:
            await session.close()

    routes = [Route(path, function, methods=[method]) for method, path, function in ROUTES]
    kinds = (Wrong, NotThere, UserError, OSError, HTTPException, Exception)
    app = Starlette(routes=routes, lifespan=life, exception_handlers=dict.fromkeys(kinds, show_error))
    app.state.session = session
    return app
