"""The addresses of the studio. Each reads a request, asks the workshop, and answers with JSON or a picture."""
import asyncio
import contextlib
import json
import os
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ccnn._util.errors import UserError
from ccnn._util.work_folder import check
from ccnn.images.formats import PIXELS
from ccnn.images.overlays import colours
from ccnn.images.reading import upright_shape
from ccnn.studio import requests
from ccnn.studio.album import Conflict, NotThere
from ccnn.studio.batches import MOST, MOST_BYTES, Batch
from ccnn.studio.copies import PICTURE, THUMBNAIL, check_photograph
from ccnn.studio.exports import coco, coco_regions, mask_file, parts, zipped
from ccnn.studio.gate import error
from ccnn.studio.requests import Wrong, read_json
from ccnn.studio.view import explain, mask_of, mask_png, probability_png, scribble_png, shades
from ccnn.studio.workshop import Workshop

PAGE = Path(__file__).resolve().parent / "page"

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml",
         ".png": "image/png", ".woff2": "font/woff2"}

UPLOAD_BYTES, UPLOADS, PHOTOGRAPHS = 50 << 20, 3, 10_000       # of a photograph; at a time; in a folder

COPIES = {"thumbnail": THUMBNAIL, "picture": PICTURE}

KEPT = {"Cache-Control": "private, max-age=31536000, immutable"}       # the address names the version

NOT_KEPT = {"Cache-Control": "no-store"}


def workshop_of(request: Request) -> Workshop:
    return request.app.state.workshop


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
    return answer({**workshop_of(request).state(), "limits": limits})


async def photographs(request: Request) -> Response:
    return Response(workshop_of(request).photographs(), media_type="application/json", headers=NOT_KEPT)


async def answers(request: Request) -> Response:
    workshop = workshop_of(request)
    return answer({"version": workshop.head and workshop.head.version, "answers": list(workshop.answers.values())})


async def loss(request: Request) -> Response:
    return answer(workshop_of(request).trainer.curve())


async def events(request: Request) -> Response:
    workshop = workshop_of(request)
    hello = {"server": workshop.server, "revision": workshop.album.revision}
    return StreamingResponse(workshop.hub.listen(hello), media_type="text/event-stream", headers=NOT_KEPT)


# Changes

async def put_tags(request: Request) -> Response:
    workshop, album = workshop_of(request), workshop_of(request).album
    wanted = requests.changes(await read_json(request), album.classes)
    for change in wanted:
        album.get(change.number)
    outcome = await workshop.change(album.put_tags, wanted)
    told = {"revision": album.revision, "photographs": [album.describe(album.get(change.number)) for change in wanted]}
    if not outcome.conflicts and not outcome.refused:
        return answer(told)
    text = "somebody else has changed these photographs meanwhile" if outcome.conflicts else \
        next(iter(outcome.refused.values()))
    return answer({"error": text, **told, "conflicts": outcome.conflicts, "refused": [
        {"number": number, "error": why} for number, why in outcome.refused.items()]}, 409)


async def post_classes(request: Request) -> Response:
    workshop, album, value = workshop_of(request), workshop_of(request).album, await read_json(request)
    if set(value) == {"add"}:
        await workshop.change(album.add_class, requests.text(value["add"], "add"))
    elif set(value) == {"rename", "to"}:
        names = requests.text(value["rename"], "rename"), requests.text(value["to"], "to")
        await workshop.change(album.rename_class, *names)
    elif set(value) == {"remove"}:
        await workshop.change(album.remove_class, requests.text(value["remove"], "remove"))
    else:
        raise Wrong('expected {"add": name}, {"rename": name, "to": name} or {"remove": name}')
    return answer(workshop.classes())


async def put_auto(request: Request) -> Response:
    workshop, value = workshop_of(request), requests.only(await read_json(request), "auto")
    await asyncio.to_thread(workshop.set_auto, requests.switch(value.get("auto"), "auto"))
    return answer(workshop.status())


async def post_strokes(request: Request) -> Response:
    workshop, album = workshop_of(request), workshop_of(request).album
    value = requests.only(await read_json(request), "revision", "strokes")
    drawn = requests.strokes(value.get("strokes"), album.classes)
    return await scribbled(request, workshop, album.draw, requests.whole(value.get("revision"), "revision"), drawn)


async def undo_strokes(request: Request) -> Response:
    workshop, album = workshop_of(request), workshop_of(request).album
    value = requests.only(await read_json(request), "revision")
    return await scribbled(request, workshop, album.undo_scribble, requests.whole(value.get("revision"), "revision"))


async def scribbled(request: Request, workshop: Workshop, function, *arguments) -> Response:
    photograph = workshop.album.get(request.path_params["number"])
    try:
        await workshop.change(function, photograph.number, *arguments)
    except Conflict as conflict:
        return error(409, conflict, photograph=workshop.album.describe(photograph))
    return answer({"revision": workshop.album.revision, "photograph": workshop.album.describe(photograph)})


# Pictures

async def copy(request: Request) -> Response:
    workshop = workshop_of(request)
    photograph, name = workshop.album.get(request.path_params["number"]), request.path_params["copy"]
    if name not in COPIES:
        raise NotThere(f"there is no picture {requests.shortened(name)}")
    path = await workshop.copy(photograph, COPIES[name])
    return Response(await asyncio.to_thread(path.read_bytes), media_type="image/jpeg", headers=KEPT)


async def picture_of_scores(request: Request, make) -> Response:
    """make(workshop, head, scores, size) in a thread, of a photograph under the present model."""
    workshop = workshop_of(request)
    photograph, head = workshop.album.get(request.path_params["number"]), workshop.head

    def made():
        scores, size = workshop.scores(photograph, head)
        return make(workshop, head, scores, size)
    asked = request.query_params.get("v")
    data = await asyncio.to_thread(made)
    return Response(data, media_type="image/png", headers=KEPT if head and asked == head.version else NOT_KEPT)


async def mask(request: Request) -> Response:
    side, style = requests.side(request), request.query_params.get("style", "fill")
    if style not in ("fill", "outline"):
        raise Wrong(f"style must be fill or outline; got {requests.shortened(style)}")
    return await picture_of_scores(request, lambda workshop, head, scores, size: mask_png(
        mask_of(scores, size, side), shades(head.classes, workshop.album.classes), style))


async def probability(request: Request) -> Response:
    classes = workshop_of(request).album.classes
    side, label = requests.side(request), requests.query_number(request, "label", len(classes) - 1)

    def make(workshop, head, scores, size):
        if classes[label] not in head.classes:
            raise NotThere(f"the model does not know {classes[label]!r} yet")
        return probability_png(scores, size, head.classes.index(classes[label]), side, colours()[label])
    return await picture_of_scores(request, make)


async def scribble(request: Request) -> Response:
    album, side = workshop_of(request).album, requests.side(request)
    photograph = album.get(request.path_params["number"])

    def made():
        marks = album.read_scribble(photograph)
        if marks is None:
            raise NotThere("nothing is marked in it")
        return scribble_png(marks, marks.shape, side)
    return Response(await asyncio.to_thread(made), media_type="image/png", headers=NOT_KEPT)


# One photograph

async def photograph(request: Request) -> Response:
    album = workshop_of(request).album
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
    head = workshop_of(request).head
    return answer(await explained(request, requests.bounds(value.get("bounds"), len(head.classes) if head else 1)))


async def explained(request: Request, bounds: dict) -> dict:
    workshop = workshop_of(request)
    found, head = workshop.album.get(request.path_params["number"]), workshop.head
    known = workshop.known(found)
    if not known:
        raise NotThere("it has no tags yet")
    if head and head.classes != known.classes:
        raise NotThere("the classes have changed since the model was trained")

    def made():
        scores, size = workshop.scores(found, head)
        return explain(head, scores, size, known, bounds)
    return await asyncio.to_thread(made)


# The loop

async def train(request: Request) -> Response:
    workshop, value = workshop_of(request), requests.only(await read_json(request), "check")
    check = requests.switch(value.get("check", False), "check")
    async with workshop.starting:
        if workshop.training:
            return error(409, "a training is running")
        await workshop.train(check)
    return answer(workshop.status(), 202)


async def stop(request: Request) -> Response:
    workshop = workshop_of(request)
    requests.only(await read_json(request))
    if not workshop.trainer.running:
        return error(409, "no training is running")
    workshop.trainer.stop()
    return answer(workshop.status(), 202)


# Out

def download(name: str) -> dict:
    return {**NOT_KEPT, "Content-Disposition": f'attachment; filename="{name}"'}


async def export_file(request: Request) -> Response:
    name = request.path_params["name"]
    path = workshop_of(request).root / name
    if name not in ("model.ccnn", "tags.csv") or not path.is_file():
        raise NotThere(f"there is no {requests.shortened(name)} yet")
    return FileResponse(path, headers=download(name), media_type="application/octet-stream")


async def report(request: Request) -> Response:
    path = workshop_of(request).root / "report.html"
    if not path.is_file():
        raise NotThere("there is no report yet; train first")
    return FileResponse(path, media_type="text/html", headers={
        **NOT_KEPT, "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox"})


def for_export(workshop: Workshop) -> tuple:
    """(head, [(name, id, file)])"""
    if not workshop.head:
        raise NotThere("there is no model yet; train first")
    return workshop.head, [(found.path, found.id, workshop.album.images / found.path)
                           for found in workshop.album.there() if not found.problem]


async def export_masks(request: Request) -> Response:
    workshop = workshop_of(request)
    head, items = for_export(workshop)

    async def members():
        for few in parts(items, 8):
            made = await asyncio.gather(*(workshop.pool.run(mask_file, head, workshop.work, id, file)
                                          for _, id, file in few))
            for (_, id, _), data in zip(few, made):
                if data:
                    yield f"{id}.png", data
    return StreamingResponse(zipped(members()), media_type="application/zip", headers=download("masks.zip"))


async def export_coco(request: Request) -> Response:
    workshop = workshop_of(request)
    head, items = for_export(workshop)
    found = []
    for few in parts(items, 8):
        made = await asyncio.gather(*(workshop.pool.run(coco_regions, head, workshop.work, id, file)
                                      for _, id, file in few))
        found += [(name, regions) for (name, _, _), regions in zip(few, made) if regions]
    data = await asyncio.to_thread(lambda: json.dumps(coco(head.classes, found), ensure_ascii=False).encode())
    return Response(data, media_type="application/json", headers=download("coco.json"))


# In

@contextlib.asynccontextmanager
async def upload(request: Request, name: str):
    """The body in a file that can be read to its last pixel; the file is removed afterwards, unless it was moved."""
    workshop = workshop_of(request)
    if workshop.uploads >= UPLOADS:
        raise Wrong(f"{UPLOADS} photographs are being read; send this one again in a moment", 429)
    workshop.uploads += 1
    folder = workshop.place / "uploads"
    part = folder / f"{workshop.next_upload()}{Path(name).suffix.lower()}"
    try:
        check(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with open(part, "xb") as file:
            async for data in requests.limited(request, UPLOAD_BYTES):
                await asyncio.to_thread(file.write, data)
        try:
            await workshop.pool.run(check_photograph, part)
        except UserError as problem:
            raise UserError(str(problem).replace(str(part), name).replace(part.name, name)) from None
        yield part
    finally:
        workshop.uploads -= 1
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


async def post_photograph(request: Request) -> Response:
    workshop, name = workshop_of(request), requests.photograph_name(request)
    if len(workshop.album.photographs) >= PHOTOGRAPHS:
        raise Wrong(f"the folder has {PHOTOGRAPHS} photographs; the studio takes no more", 422)
    async with upload(request, name) as part:
        found, new = await workshop.change(workshop.album.add_photograph, name, part)
    return answer({"photograph": workshop.album.describe(found)}, 201 if new else 200)


def batch_of(request: Request) -> Batch:
    return workshop_of(request).batches.get(request.path_params["batch"])


async def new_batch(request: Request) -> Response:
    requests.only(await read_json(request))
    return answer((await workshop_of(request).batches.new()).describe(), 201)


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
    await workshop_of(request).batches.segment(batch)
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
    return error(found, workshop_of(request).plain(text))


ROUTES = [
    ("GET", "/", page),
    ("GET", "/page/{name}", page),
    ("GET", "/api/state", state),
    ("GET", "/api/photographs", photographs),
    ("POST", "/api/photographs", post_photograph),
    ("GET", "/api/answers", answers),
    ("GET", "/api/loss", loss),
    ("GET", "/api/events", events),
    ("PUT", "/api/tags", put_tags),
    ("POST", "/api/classes", post_classes),
    ("PUT", "/api/auto", put_auto),
    ("POST", "/api/scribbles/{number:int}", post_strokes),
    ("POST", "/api/scribbles/{number:int}/undo", undo_strokes),
    ("GET", "/api/scribbles/{number:int}.png", scribble),
    ("GET", "/api/photographs/{number:int}", photograph),
    ("POST", "/api/photographs/{number:int}/solve", solve),
    ("GET", "/api/photographs/{number:int}/{copy}.jpg", copy),
    ("GET", "/api/photographs/{number:int}/mask.png", mask),
    ("GET", "/api/photographs/{number:int}/probability.png", probability),
    ("POST", "/api/train", train),
    ("POST", "/api/stop", stop),
    ("GET", "/api/export/masks.zip", export_masks),
    ("GET", "/api/export/coco.json", export_coco),
    ("GET", "/api/export/{name}", export_file),
    ("GET", "/api/report.html", report),
    ("POST", "/api/batches", new_batch),
    ("GET", "/api/batches/{batch:int}", get_batch),
    ("POST", "/api/batches/{batch:int}/photographs", post_to_batch),
    ("POST", "/api/batches/{batch:int}/segment", segment_batch),
    ("GET", "/api/batches/{batch:int}/overlay/{number:int}.jpg", batch_overlay),
    ("GET", "/api/batches/{batch:int}/masks.zip", batch_zip),
]


def application(workshop: Workshop) -> Starlette:
    @contextlib.asynccontextmanager
    async def life(app):
        await workshop.open()
        try:
            yield
        finally:
            await workshop.close()

    routes = [Route(path, function, methods=[method]) for method, path, function in ROUTES]
    kinds = (Wrong, NotThere, UserError, OSError, HTTPException, Exception)
    app = Starlette(routes=routes, lifespan=life, exception_handlers=dict.fromkeys(kinds, show_error))
    app.state.workshop = workshop
    return app
