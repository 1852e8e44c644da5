"""ccnn serve as it is started, asked by programs, by a page and by Label Studio, as each of them sends its requests."""
import base64
import io
import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from browser import CHROMIUM
from PIL import Image
from studio_server import Studio
from tiny_net import make_net
from waiting import LIMIT

pytest.importorskip("starlette", reason="needs the packages of requirements/studio.txt: make test-studio")
pytest.importorskip("uvicorn", reason="needs the packages of requirements/studio.txt: make test-studio")

from ccnn._util.system import is_running
from ccnn.annotations.regions import Brush, Runs
from ccnn.images.masks import mask_classes
from ccnn.inference.model_file import write_model

PATIENCE = 1000 * LIMIT         # milliseconds

CLASSES = ("background", "fish", "große Katze")

CONFIG = """<View><Image name="photo" value="$picture"/><{control} name="what" toName="photo">
<Label value="Fish"/><Label value="stone"/></{control}></View>"""


def photograph(width=97, height=65):
    """Red rises to the right: the left is background, the right a fish (tests/tiny_net.py)."""
    rgb = np.zeros((height, width, 3), np.uint8)
    rgb[..., 0] = np.linspace(0, 255, width)
    return rgb


def png(rgb=None, format="PNG"):
    data = io.BytesIO()
    Image.fromarray(photograph() if rgb is None else rgb).save(data, format)
    return data.getvalue()


class Server(Studio):
    """A running ccnn serve. It has no token on this machine's own address."""

    def __init__(self, root, *options, **environment):
        self.process = subprocess.Popen(
            [sys.executable, str(root / "tools/serve.py"), *map(str, options), "--port", "18325"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            self.process.wait()
            self.complaint = self.process.stderr.read()
            return
        self.host, _, token = self.address.removeprefix("http://").partition("/")
        self.token = token.removeprefix("?token=") or None

    def ask(self, method, path, body=None, headers=None, **changes):
        return super().ask(method, path, body, {"Authorization": None, "Origin": None, **(headers or {})}, **changes)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_model(folder / "fish.ccnn", *make_net(folder, labels=3), CLASSES, 97)
    return folder / "fish.ccnn"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    (folder / "sub").mkdir()
    (folder / "sub/a b.png").write_bytes(png())
    return folder


@pytest.fixture(scope="module")
def server(root, model, photos):
    with Server(root, model, "--photos", photos) as server:
        yield server


def mask_in(answer):
    assert answer.status == 200, answer.body
    return np.asarray(Image.open(io.BytesIO(answer.body)))


def test_a_photograph_in_a_mask_out(server, tmp_path):
    answer = server.ask("POST", "/segment", png())
    mask = mask_in(answer)
    assert answer.headers["content-type"] == "image/png" and mask.shape == (65, 97)
    assert set(np.unique(mask)) == {0, 1} and (np.diff(mask.astype(int), axis=1) >= 0).all()
    (tmp_path / "mask.png").write_bytes(answer.body)
    assert mask_classes(tmp_path / "mask.png") == list(CLASSES)
    assert (mask_in(server.ask("POST", "/segment?tags=fish", png())) == np.minimum(mask, 1)).all()
    assert mask_in(server.ask("POST", "/segment?crf=1", png(format="WEBP"))).shape == mask.shape
    assert mask_in(server.ask("POST", "/segment?format=overlay", png())).ndim == 3
    found = server.ask("POST", "/segment?format=json", png()).json
    assert (found["width"], found["height"]) == (97, 65)
    for one in found["objects"]:
        runs = Runs(one["segmentation"]["counts"], (65, 97), (0, 0, 65, 97), "F")
        assert (runs.draw((65, 97)) == (mask == CLASSES.index(one["class"]))).all()
    assert json.loads(server.ask("POST", "/segment?format=coco-polygons", png()).body)["annotations"]
    assert b"<polygon" in server.ask("POST", "/segment?format=cvat-polygons", png()).body
    assert server.get("/model").json["classes"] == ["fish", "große Katze"]


def bomb():
    """A PNG that says it has 200 million pixels."""
    data = bytearray(png(np.zeros((1, 1, 3), np.uint8)))
    data[16:24] = (20_000).to_bytes(4, "big") + (10_000).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("path, body, status, words", [
    ("/segment", b"", 400, "it is empty"),
    ("/segment", b"not a photograph", 422, "the photograph: is not an image that can be read"),
    ("/segment", png()[:100], 422, "the photograph: is damaged"),
    ("/segment", bomb(), 422, "the photograph"),
    ("/segment", bytes(51 << 20), 413, "bytes"),
    ("/segment?tags=cow", png(), 422, "tag 'cow' is not a class of the model"),
    ("/segment?format=exe", png(), 400, "format must be png"),
    ("/segment?model=/etc/passwd", png(), 400, "no such parameter"),
    ("/predict", b"{", 415, "JSON"),
    ("/predict", {"tasks": []}, 400, "label_config must be the text"),
    ("/predict", {"tasks": [], "label_config": "<View>"}, 422, "label_config: is not XML"),
    ("/predict", {"tasks": [], "label_config": "<!DOCTYPE a><View/>"}, 422, "DOCTYPE"),
    ("/predict", {"tasks": [], "label_config": "<View/>"}, 422, "has no BrushLabels or PolygonLabels"),
    ("/predict", {"tasks": [7], "label_config": CONFIG.format(control="BrushLabels")}, 400, "data needs 'picture'"),
    ("/predict", {"tasks": [{"data": {"picture": "/etc/passwd"}}],
                  "label_config": CONFIG.format(control="BrushLabels")}, 422, "is not a photograph in"),
    ("/predict", {"tasks": [{"data": {"picture": "http://127.0.0.1:1/x.png"}}],
                  "label_config": CONFIG.format(control="BrushLabels")}, 422, "is not a photograph in"),
])
def test_what_cannot_be_meant_is_one_line(server, path, body, status, words):
    answer = server.ask("POST", path, body)
    assert answer.status == status and words in answer.error


@pytest.mark.parametrize("headers", [{"Host": "evil.example:18325"}, {"Host": "["}, {"Origin": "http://evil.example"},
                                     {"Sec-Fetch-Site": "cross-site"}])
def test_pages_of_others_are_refused(server, headers):
    assert server.ask("POST", "/segment", png(), headers).status == 403
    assert server.ask("GET", "/", None, headers).status == 403


def test_the_page(server, root):
    page = server.get("/")
    assert page.status == 200 and b"/page/serve.js" in page.body
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert b"/segment" in server.get("/page/serve.js").body
    for name in ("style.css", "icon.svg"):                      # it looks as the studio does
        assert f"/page/{name}".encode() in page.body
        assert server.get(f"/page/{name}").body == (root / "ccnn/studio/page" / name).read_bytes()
    for path in ("/page/../server.py", "/page/%2e%2e%2fserver.py", "/page/server.py", "/api/state"):
        assert server.get(path).status == 404
    own = {"Origin": f"http://{server.host}", "Sec-Fetch-Site": "same-origin"}
    assert server.ask("POST", "/segment?format=overlay", png(), own).status == 200


def test_a_photograph_is_chosen_on_the_page(server, tmp_path):
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make .caffe/packages/test-studio.txt")
    if not CHROMIUM:
        pytest.skip("needs chromium")
    (tmp_path / "my fish.png").write_bytes(png())
    (tmp_path / "rubbish.png").write_bytes(b"rubbish")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 375, "height": 700})
        problems = []
        page.on("pageerror", lambda problem: problems.append(problem))
        page.goto(f"http://{server.host}/")
        api.expect(page.locator("#classes")).to_have_text("It knows fish, große Katze.", timeout=PATIENCE)
        page.set_input_files("#file", tmp_path / "rubbish.png")
        api.expect(page.locator("#said")).to_contain_text(
            "rubbish.png: is not an image that can be read", timeout=PATIENCE)
        page.set_input_files("#file", tmp_path / "my fish.png")
        api.expect(page.locator("#picture")).to_be_visible(timeout=PATIENCE)
        assert page.evaluate("document.querySelector('#picture').naturalWidth") >= 97
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        with page.expect_download() as download:
            page.click("#mask")
        assert download.value.suggested_filename == "my fish.png"
        assert set(np.unique(np.asarray(Image.open(download.value.path())))) == {0, 1}
        assert not problems
        browser.close()


# Label Studio, in the form of label_studio/ml/api_connector.py

def labelling(control, *addresses):
    return {"tasks": [{"id": k, "data": {"picture": address}, "annotations": [], "predictions": []}
                      for k, address in enumerate(addresses)], "project": "1.1612345678",
            "label_config": CONFIG.format(control=control),
            "params": {"login": None, "password": None, "context": None}}


def test_label_studio_asks_for_pre_annotations(server):
    assert server.get("/health").json["status"] == "UP"
    connected = server.ask("POST", "/setup", {
        "project": "1.1612345678", "schema": CONFIG.format(control="BrushLabels"), "hostname": "http://localhost:8080",
        "access_token": "abc", "extra_params": None})
    assert connected.status == 200 and connected.json["model_version"]
    mask = mask_in(server.ask("POST", "/segment", png()))
    address = "data:image/png;base64," + base64.b64encode(png()).decode()
    answer = server.ask("POST", "/predict", labelling(
        "BrushLabels", "/data/local-files/?d=sub/a%20b.png", "/data/upload/3/0a1b2c3d-a b.png", address))
    assert answer.status == 200, answer.body
    assert len(answer.json["results"]) == 3
    assert answer.json["results"][0]["model_version"] == connected.json["model_version"]
    for prediction in answer.json["results"]:
        [one] = prediction["result"]            # the project calls the fish Fish
        assert (one["from_name"], one["to_name"], one["type"]) == ("what", "photo", "brushlabels")
        assert one["value"]["brushlabels"] == ["Fish"] and (one["original_width"], one["original_height"]) == (97, 65)
        assert (Brush(one["value"]["rle"], (65, 97), "").draw((65, 97)) == (mask == 1)).all()
    [polygons] = server.ask("POST", "/predict", labelling("PolygonLabels", "a b.png")).json["results"]
    assert polygons["result"][0]["value"]["polygonlabels"] == ["Fish"]
    assert server.ask("POST", "/webhook", {"action": "ANNOTATION_CREATED"}).status == 200


def test_photographs_of_one_label_studio_are_fetched_with_its_token(root, model):
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, self.headers.get("Authorization")))
            self.send_response(302 if "moved" in self.path else 200)
            self.send_header("Location", "http://127.0.0.1:1/steal.png")
            self.end_headers()
            self.wfile.write(b"nonsense" if "nonsense" in self.path else png())

        def send_response(self, code):
            if "broken" not in self.path:
                super().send_response(code)

        def log_message(self, *_):
            pass
    theirs = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=theirs.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{theirs.server_port}"
    try:
        with Server(root, model, "--label-studio", address, LABEL_STUDIO_API_KEY="secret") as server:
            found = server.ask("POST", "/predict", labelling("BrushLabels", "/data/upload/1/a.png"))
            assert found.status == 200 and found.json["results"][0]["result"]
            assert seen == [("/data/upload/1/a.png", "Token secret")]
            for other in (f"{address}.evil.example/a.png", "http://evil.example/a.png", "file:///etc/passwd"):
                assert "is not a photograph" in server.ask("POST", "/predict", labelling("BrushLabels", other)).error
            assert "does not give it" in server.ask("POST", "/predict", labelling("BrushLabels", "/moved.png")).error
            assert len(seen) == 2
            assert server.ask("POST", "/predict", labelling("BrushLabels", "/über uns/a.png")).status == 200
            assert seen[2][0] == "/%C3%BCber%20uns/a.png"
            for other in ("/broken.png", "/a\r\nX: y\t.png", "http://[", "\ud800.png", "/nonsense.png"):
                answer = server.ask("POST", "/predict", labelling("BrushLabels", other))
                assert answer.status == (200 if "X:" in other else 422), answer.body         # of Label Studio alone
        assert "Traceback" not in server.said
    finally:
        theirs.shutdown()


def test_beyond_this_machine_a_secret_is_asked_for(root, model):
    with Server(root, model, "--host", "0.0.0.0") as server:
        server.host = server.host.replace("0.0.0.0", "127.0.0.1")
        assert server.token and server.ask("POST", "/segment", png()).status == 401
        basic = base64.b64encode(f"any:{server.token}".encode()).decode()
        for secret in (f"Bearer {server.token}", f"Basic {basic}"):
            assert server.ask("POST", "/segment", png(), {"Authorization": secret}).status == 200
        assert server.ask("POST", "/segment", png(), {"Authorization": "Basic YTpi"}).status == 401


def test_it_ends_quietly_and_leaves_nothing(root, model):
    server = Server(root, model)
    assert server.ask("POST", "/segment", png()).status == 200
    server.end(signal.SIGINT)
    assert server.process.returncode == 0 and server.said == "serve.py: ended\n"
    assert not is_running(server.process.pid)


@pytest.mark.parametrize("options, words", [
    (["nowhere.ccnn"], "nowhere.ccnn: No such file"),
    ([__file__], "is not a whole .ccnn file"),
    (["--photos", "nowhere"], "--photos nowhere: no such folder"),
    (["--label-studio", "localhost"], "need an address such as http://localhost:8080"),
    (["--host", "192.0.2.1"], "no port is free on 192.0.2.1"),
])
def test_mistakes_in_the_call(root, model, options, words):
    server = Server(root, *([model] if options[0].startswith("--") else []), *options)
    assert server.process.returncode == 2 and words in server.complaint and server.complaint.count("\n") == 1
    for stream in (server.process.stdout, server.process.stderr):
        stream.close()
