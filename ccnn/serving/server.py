"""A model behind HTTP, for programs, for Label Studio and for a page where one drops a photograph.

    POST /segment           the body is a photograph; the answer its mask, PNG. ?format=NAME: json, overlay, or one of
                            ccnn.annotations.export_formats; ?tags=cat,dog: nothing else will be found; ?crf=1
    GET  /model             the names of the classes, the version, the limits
    GET  /health, POST /setup, POST /predict, POST /webhook     Label Studio's protocol for ML backends

Limits, checks and processes are those of the studio. Label Studio names photographs by address. They are taken from
one folder, by name, or from one Label Studio: nothing else is ever fetched.
"""
import asyncio
import base64
import contextlib
import functools
import http.client
import io
import ipaddress
import os
import socket
import string
import tempfile
import urllib.request
from pathlib import Path
from typing import Any, Callable, Optional
from urllib.parse import quote, urljoin, urlsplit

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ccnn._util.errors import ImageError, UserError
from ccnn._util.foreign_files import parse_xml_bytes
from ccnn._util.text import plain
from ccnn.annotations import coco, label_studio
from ccnn.annotations.export_formats import FORMATS
from ccnn.images.formats import PIXELS
from ccnn.images.listing import PhotographIndex
from ccnn.images.overlays import overlay
from ccnn.images.reading import read_image
from ccnn.inference.model import Model
from ccnn.studio import requests, routes
from ccnn.studio.access import AT_ONCE, AccessControl, error, same
from ccnn.studio.album import NotThere
from ccnn.studio.processes import Pool
from ccnn.studio.requests import Wrong, read_json
from ccnn.studio.routes import KINDS, NOT_KEPT, UPLOAD_BYTES, answer, show_error

PAGE = Path(__file__).resolve().parent / "page"

LOOK = ("style.css", "icon.svg")        # the studio's, so that both pages look the same

WAITING = 16            # photographs that are segmented or wait for it

TASKS = 100             # of a request of Label Studio

SECONDS = 30            # to fetch a photograph from Label Studio

PHOTOGRAPH = "photograph.jpg"           # its name in files of labels

ONE_FILE = {name: format for name, format in FORMATS.items() if not format.archive}

CONTROLS = {"BrushLabels": label_studio.brushes, "PolygonLabels": label_studio.polygons}


# For the pool

@functools.lru_cache(maxsize=1)
def loaded(model: Optional[Path]) -> Model:
    return Model(model)


def segment_file(model: Optional[Path], file: Path, tags: Optional[list], crf: Any, format: str) -> Any:
    """A photograph in the format that was asked for: bytes, or a value of JSON."""
    net, rgb = loaded(model), read_image(file)
    mask = net.segment(rgb, tags, crf)
    if format == "overlay":
        data = io.BytesIO()
        overlay(rgb, mask, net.classes).save(data, "JPEG", quality=90)
        return data.getvalue()
    if format == "json":
        return described(mask, net.classes)
    if format in CONTROLS:
        return CONTROLS[format](mask, net.classes)
    if format == "masks":
        return FORMATS["masks"].describe("", mask, net.classes)
    value = FORMATS[format].describe(PHOTOGRAPH, mask, net.classes)
    [(_, data)] = FORMATS[format].files([(PHOTOGRAPH, value)], net.classes)
    return data


def described(mask: np.ndarray, classes: tuple) -> dict:
    height, width, found = coco.describe_runs("", mask, classes)
    return {"width": width, "height": height, "objects": [
        {"class": classes[one["category_id"]], "label": one["category_id"], "share": round(one["area"] / mask.size, 4),
         "bbox": one["bbox"], "segmentation": one["segmentation"]} for one in found]}


# In the server

class Service:
    """What the requests share."""

    def __init__(self, model: Optional[Path], classes: tuple, version: str, crf: Any, jobs: int,
                 photos: Optional[Path] = None, studio: Optional["LabelStudio"] = None) -> None:
        self.model, self.classes, self.version, self.crf = model, classes, version, crf
        self.photos, self.studio = photos, studio
        self.pool, self.waiting = Pool(jobs), 0
        self.folder = tempfile.TemporaryDirectory(prefix="ccnn-")

    def plain(self, text: str) -> str:
        return text

    async def segment(self, file: Path, name: str, format: str, tags: Optional[list] = None, crf: Any = None) -> Any:
        if self.waiting >= WAITING:
            raise Wrong(f"{WAITING} photographs wait already; send this one again in a moment", 429)
        self.waiting += 1
        try:
            return await self.pool.run(segment_file, self.model, file, tags, self.crf if crf is None else crf, format)
        except ImageError as problem:
            raise UserError(str(problem).replace(str(file), name)) from None
        finally:
            self.waiting -= 1

    @contextlib.contextmanager
    def new_file(self):
        handle, name = tempfile.mkstemp(dir=self.folder.name)
        os.close(handle)
        try:
            yield Path(name)
        finally:
            os.unlink(name)


def service_of(request: Request) -> Service:
    return request.app.state.session


async def page(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    if name not in LOOK and name not in os.listdir(PAGE):
        raise NotThere(f"there is no file {requests.shortened(name)}")
    path = (routes.PAGE if name in LOOK else PAGE) / name
    return Response(path.read_bytes(), media_type=KINDS[path.suffix], headers={"Cache-Control": "no-cache"})


async def about_model(request: Request) -> Response:
    service = service_of(request)
    return answer({"classes": list(service.classes[1:]), "version": service.version, "formats": [
        "png", "json", "overlay", *(name for name in ONE_FILE)], "limits": {"bytes": UPLOAD_BYTES, "pixels": PIXELS}})


async def segment(request: Request) -> Response:
    service, query = service_of(request), request.query_params
    strange = [key for key in query if key not in ("format", "tags", "crf")]
    if strange:
        raise Wrong(f"{requests.shortened(strange[0])}: no such parameter; known: format, tags, crf")
    format = query.get("format", "png")
    if format not in ("png", "json", "overlay", *ONE_FILE):
        raise Wrong(f"format must be png, json, overlay, {', '.join(ONE_FILE)}; got {requests.shortened(format)}")
    tags = [plain(tag) for tag in query["tags"].split(",") if tag.strip()] if "tags" in query else None
    if query.get("crf", "0") not in ("0", "1"):
        raise Wrong(f"crf must be 0 or 1; got {requests.shortened(query['crf'])}")
    crf = {"1": True, "0": False}[query["crf"]] if "crf" in query else None
    with service.new_file() as file:
        with open(file, "wb") as part:
            async for data in requests.limited(request, UPLOAD_BYTES):
                await asyncio.to_thread(part.write, data)
        if not file.stat().st_size:
            raise Wrong("the body must be a photograph; it is empty")
        found = await service.segment(file, "the photograph", "masks" if format == "png" else format, tags, crf)
    if isinstance(found, dict):
        return answer(found)
    kind = {"png": "image/png", "overlay": "image/jpeg"}.get(
        format, "application/xml" if format.startswith("cvat") else "application/json")
    return Response(found, media_type=kind, headers=NOT_KEPT)


# Label Studio

class LabelStudio:
    """Photographs of one Label Studio. No redirection is followed: the token is for that server alone."""

    def __init__(self, address: str, token: str) -> None:
        self.address, self.token = address.rstrip("/") + "/", token

        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_):
                return None
        self.open = urllib.request.build_opener(Stay).open

    def fetch(self, url: str, file: Path) -> bool:
        """Whether the photograph is one of that server's; it is in the file then."""
        try:
            found = quote(urljoin(self.address, url), safe=string.punctuation)
            if not found.startswith(self.address):
                return False
            asked = urllib.request.Request(found)
            if self.token:
                asked.add_header("Authorization", f"Token {self.token}")
            with self.open(asked, timeout=SECONDS) as source:
                data = source.read(UPLOAD_BYTES + 1)
        except (OSError, ValueError, http.client.HTTPException) as problem:
            raise UserError(f"{requests.shortened(url)}: {self.address} does not give it: {problem}; is "
                            "LABEL_STUDIO_API_KEY right?") from None
        if len(data) > UPLOAD_BYTES:
            raise UserError(f"{url}: has more than {UPLOAD_BYTES} bytes")
        file.write_bytes(data)
        return True


class Interface:
    """The first control of a labelling interface that takes masks: what it is called, and its labels."""

    def __init__(self, text: Any) -> None:
        if not isinstance(text, str):
            raise Wrong(f"label_config must be the text of a labelling interface; got {requests.shortened(text)}")
        root = parse_xml_bytes(text.encode("utf-8", "replace"), "label_config")
        images = {one.get("name"): one.get("value", "") for one in root.iter("Image")}
        for one in root.iter():
            if one.tag in CONTROLS and one.get("toName") in images:
                self.control, self.name, self.image = one.tag, one.get("name"), one.get("toName")
                self.key = images[self.image].lstrip("$")
                self.labels = {plain(label.get("value", "")).casefold(): label.get("value")
                               for label in one.iter("Label")}
                return
        raise Wrong(f"label_config: has no {' or '.join(CONTROLS)} on an Image, so no mask can be shown", 422)

    def results(self, found: list) -> list:
        """The results in the project's own names; of classes that it does not have there are none."""
        kept = []
        for one in found:
            [label] = one["value"][one["type"]]
            own = self.labels.get(plain(label).casefold())
            if own is not None:
                value = {**one["value"], one["type"]: [own]}
                kept.append({**one, "from_name": self.name, "to_name": self.image, "value": value})
        return label_studio.numbered(kept)


async def health(request: Request) -> Response:
    return answer({"status": "UP", "model_class": "CCNN", "model_version": service_of(request).version})


async def setup(request: Request) -> Response:
    """Label Studio sends its project when it is connected. Its address and token are not used: they may be anyone's."""
    value = await read_json(request)
    if value.get("schema"):
        Interface(value["schema"])
    return answer({"model_version": service_of(request).version})


async def webhook(request: Request) -> Response:
    await read_json(request)
    return answer({"status": "not trained here: ccnn import-tags and ccnn learn do that"})


async def predict(request: Request) -> Response:
    service, value = service_of(request), await read_json(request)
    interface = Interface(value.get("label_config"))
    tasks = requests.several(value.get("tasks"), "tasks", TASKS)
    results = []
    for k, task in enumerate(tasks):
        data = task.get("data") if isinstance(task, dict) else None
        url = data.get(interface.key) if isinstance(data, dict) else None
        if not isinstance(url, str):
            raise Wrong(f"tasks[{k}]: data needs {interface.key!r}, the address of a photograph")
        with service.new_file() as part:
            file = await asyncio.to_thread(photograph_of, service, url, part)
            found = await service.segment(file, label_studio.file_name(url) or "the photograph", interface.control)
        results.append({"result": interface.results(found), "score": 1.0, "model_version": service.version})
    return answer({"results": results, "model_version": service.version})


def photograph_of(service: Service, url: str, part: Path) -> Path:
    """The file of a task's photograph."""
    if url.startswith("data:"):
        try:
            part.write_bytes(base64.b64decode(url.partition(",")[2], validate=True))
        except ValueError:
            raise Wrong("a data: address must hold base64") from None
        return part
    name = label_studio.file_name(url)
    if service.photos:
        found = PhotographIndex(service.photos).find(name)
        if found:
            return service.photos / found
    if service.studio and service.studio.fetch(url, part):
        return part
    where = " nor of ".join([*([f"in {service.photos}"] if service.photos else []),
                             *([service.studio.address] if service.studio else [])])
    raise UserError(f"{requests.shortened(url)}: " + (f"is not a photograph {where}" if where else
                    "start ccnn serve with --photos FOLDER or --label-studio ADDRESS"))


# Who may ask

class ServeAccess(AccessControl):
    """As the studio's, but on this machine's own address nobody needs the token; beyond it, it is also taken as the
    password of basic authentication, which Label Studio sends."""

    def __init__(self, app, port: int, host: str, token: str) -> None:
        super().__init__(app, port, token)
        self.port, self.open = port, ipaddress.ip_address(socket.gethostbyname(host)).is_loopback
        self.names = {"localhost", "host.docker.internal", host, socket.gethostname()}

    def wrong_host(self, headers: dict) -> Optional[JSONResponse]:
        """No name but ours. An address in numbers is never somebody's name that resolves to this machine."""
        given = headers.get("host", [])
        name = None
        with contextlib.suppress(ValueError):
            name = urlsplit(f"//{given[0]}").hostname if len(given) == 1 else None
            ipaddress.ip_address(name or "")
            return None
        return None if name in self.names else error(403, "this address is not the server's; use the one it printed")

    def wrong_secret(self, scope, asked: dict, headers: dict):
        for one in headers.get("authorization", []):
            if one.startswith("Basic "):
                with contextlib.suppress(ValueError):
                    password = base64.b64decode(one[6:]).decode("utf-8", "replace").partition(":")[2]
                    if same(password, self.token):
                        return None
        if self.open:
            return error(503, f"{AT_ONCE} requests are being answered") if self.running >= AT_ONCE else None
        return super().wrong_secret(scope, asked, headers)


ROUTES = [
    ("GET", "/", page),
    ("GET", "/page/{name}", page),
    ("GET", "/model", about_model),
    ("POST", "/segment", segment),
    ("GET", "/health", health),
    ("POST", "/setup", setup),
    ("POST", "/predict", predict),
    ("POST", "/webhook", webhook),
]


def application(service: Service) -> Starlette:
    @contextlib.asynccontextmanager
    async def life(app):
        service.pool.warm()
        try:
            yield
        finally:
            service.pool.close()
            service.folder.cleanup()

    kinds = (Wrong, NotThere, UserError, OSError, HTTPException, Exception)
    app = Starlette(routes=[Route(path, function, methods=[method]) for method, path, function in ROUTES],
                    lifespan=life, exception_handlers=dict.fromkeys(kinds, show_error))
    app.state.session = service
    return app


async def serve(service: Service, opened: socket.socket, host: str, token: str,
                announce: Callable[[str], None]) -> None:
    """announce : takes the address of the page, as soon as it can be opened"""
    import uvicorn

    from ccnn.studio.server import configuration
    port = opened.getsockname()[1]
    access = ServeAccess(application(service), port, host, token)

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            announce(f"http://{host}:{port}/" + ("" if access.open else f"?token={token}"))
    await Server(configuration(access)).serve(sockets=[opened])
