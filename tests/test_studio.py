"""The studio's server: what it keeps, what it refuses, and that nothing is lost when it dies."""
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import zipfile
import zlib
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from drawn_photographs import draw
from PIL import Image
from repository_copy import copy_of_repository, environment
from scipy.ndimage import distance_transform_edt
from studio_server import Studio, descendants
from waiting import LIMIT, wait_for

pytest.importorskip("starlette", reason="needs the packages of requirements/studio.txt: make test-studio")
pytest.importorskip("uvicorn", reason="needs the packages of requirements/studio.txt: make test-studio")

from ccnn._util.system import is_running
from ccnn.annotations.import_formats import draw as draw_mask
from ccnn.annotations.import_formats import read_masks
from ccnn.annotations.table_editor import TagFile
from ccnn.annotations.tags import read_tags
from ccnn.cli import convert
from ccnn.images.masks import mask_classes
from ccnn.studio.batches import Batch
from ccnn.studio.server import last_port
from ccnn.supervision.marks import Scribbles

CLASSES = ("background", "cat", "dog")


@pytest.fixture(scope="module")
def place(root, tmp_path_factory):
    return copy_of_repository(root, tmp_path_factory.mktemp("repository"))


@pytest.fixture
def start(root, place, tmp_path):
    """Starts studios, and ends them."""
    running = []

    def start(folder, *options):
        running.append(Studio(root, place, folder, *options))
        return running[-1]
    yield start
    for studio in running:
        studio.end(signal.SIGKILL)


@pytest.fixture
def photos(tmp_path):
    """A folder of 8 drawn photographs, with classes."""
    draw(tmp_path / "photos", 8, seed=1)
    (tmp_path / "photos/classes.txt").write_text("cat\ndog\n")
    return tmp_path / "photos"


@pytest.fixture
def studio(start, photos):
    with start(photos) as studio:
        yield studio


def everything(folder):
    """{path: content} of what is the user's own."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and ".ccnn" not in path.parts}


# Who may ask

def test_the_address_opens_the_page_with_a_strict_cookie(studio):
    answer = studio.ask("GET", f"/?token={studio.token}", Authorization=None, Origin=None)
    cookie = answer.headers["set-cookie"]
    assert answer.status == 303 and answer.headers["location"] == "/"
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower() and studio.host.split(":")[1] in cookie
    answer = studio.ask("GET", "/", Authorization=None, Origin=None, Cookie=cookie.split(";")[0])
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


READS = ["/", "/page/index.html", "/api/state", "/api/photographs", "/api/photographs/0/thumbnail.jpg",
         "/api/export/tags.csv", "/api/events", "/nothing"]


@pytest.mark.parametrize("headers, status", [
    ({"Authorization": None}, 401),
    ({"Authorization": "Bearer wrong"}, 401),
    ({"Authorization": None, "Cookie": "ccnn-studio-1=x; ccnn-studio-8324=wrong"}, 401),
    ({"Host": "evil.example"}, 403),
    ({"Host": "127.0.0.1"}, 403),
    ({"Host": None}, 400),                                      # HTTP/1.1 asks for one
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "http://127.0.0.1:1"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403),                     # a page of another port
])
def test_nobody_else_is_answered(outside, headers, status):
    studio, before = outside
    for path in READS:
        answer = studio.ask("GET", path, headers=headers)
        assert answer.status == status, path
        assert status == 400 or answer.error
        assert "set-cookie" not in answer.headers
    for method, path in (("PUT", "/api/tags"), ("POST", "/api/classes"), ("POST", "/api/train"),
                         ("POST", "/api/photographs?name=a.jpg")):
        assert studio.ask(method, path, {"add": "bird"}, headers=headers).status == status
    assert everything(studio.folder.parent) == before
    assert studio.get("/api/state").status == 200


def test_a_cookie_alone_changes_nothing_without_an_origin(studio):
    cookie = studio.ask("GET", f"/?token={studio.token}", Authorization=None).headers["set-cookie"].split(";")[0]
    asked = {"Authorization": None, "Cookie": cookie}
    assert studio.ask("GET", "/api/state", headers={**asked, "Origin": None}).status == 200
    assert studio.ask("POST", "/api/classes", {"add": "bird"}, headers={**asked, "Origin": None}).status == 403
    assert studio.ask("POST", "/api/classes", {"add": "bird"}, headers=asked).status == 200
    assert studio.ask("GET", "/?token=wrong", Authorization=None, Origin=None).status == 401


def test_only_this_machine_is_listened_to(outside):
    studio, _ = outside
    port = int(studio.host.split(":")[1])
    addresses = {found[4][0] for found in socket.getaddrinfo(socket.gethostname(), port, socket.AF_INET)}
    for address in addresses - {"127.0.0.1"}:
        with pytest.raises(OSError), socket.create_connection((address, port), timeout=2):
            pass
    table = open("/proc/net/tcp").read()
    assert f"0100007F:{port:04X} 00000000:0000 0A" in table and f" 00000000:{port:04X} " not in table


# What it reads and writes

TRAVERSALS = ["../secret.txt", "..%2Fsecret.txt", "..%2Fsecret.jpg", "%2e%2e%2fsecret.txt", "..%5Csecret.txt",
              "..%252Fsecret.txt", "%2Fetc%2Fpasswd", "....//secret.txt", "secret.txt%00.html", "tags.csv", "-1", "0x0",
              "1e3", "%D9%A3", "", "99999999999999999999", "9" * 5000]


@pytest.mark.parametrize("path", [
    "/{}", "/page/{}", "/page/%2e%2e/{}", "/api/{}", "/api/photographs/{}", "/api/photographs/{}/thumbnail.jpg",
    "/api/photographs/{}/picture.jpg", "/api/photographs/{}/mask.png", "/api/photographs/0/{}",
    "/api/photographs/{}/probability.png?label=1", "/api/photographs/0/mask.png?side={}",
    "/api/photographs/0/mask.png?style={}", "/api/photographs/0/probability.png?label={}", "/api/scribbles/{}.png",
    "/api/scribbles/0.png?side={}", "/api/export/{}", "/api/export/..%2F{}", "/api/batches/{}", "/api/batches/1/{}",
    "/api/batches/{}/masks.zip", "/api/batches/1/overlay/{}.jpg"])
def test_no_parameter_leads_out_of_the_folder(outside, path):
    studio, before = outside
    for value in TRAVERSALS:
        if (path, value) in (("/api/photographs/0/mask.png?side={}", ""), ("/{}", ""), ("/api/photographs/{}", ""),
                             ("/api/photographs/0/{}", ""), ("/api/export/{}", "tags.csv")):
            continue                                            # addresses that mean something
        answer = studio.ask("GET", path.format(value))
        assert answer.status in (307, 400, 404, 405, 422), (path, value, answer.status, answer.body[:200])
        assert b"classified" not in answer.body and b"root:" not in answer.body
    assert everything(studio.folder.parent) == before
    assert studio.get("/api/state").status == 200


@pytest.fixture(scope="module")
def outside(root, place, tmp_path_factory):
    """A studio whose neighbours are secret, and all files beside it."""
    folder = tmp_path_factory.mktemp("outside")
    draw(folder / "photos", 2, seed=1)
    (folder / "photos/classes.txt").write_text("cat\ndog\n")
    (folder / "photos/tags.csv").write_text("image,tags\n0.jpg,cat\n")
    (folder / "secret.txt").write_text("classified")
    (folder / "photos/secret.txt").write_text("classified")
    with Studio(root, place, folder / "photos") as studio:
        yield studio, everything(folder)


def jpeg(size=(40, 30)):
    data = io.BytesIO()
    Image.new("RGB", size, "red").save(data, "JPEG")
    return data.getvalue()


@pytest.mark.parametrize("path", ["/api/photographs", "/api/batches/{}/photographs"])
def test_a_name_that_is_brought_is_no_path(outside, path):
    studio, before = outside
    batch = studio.ask("POST", "/api/batches", {}).json["batch"]
    for name in ("../a.jpg", "..\\a.jpg", "/etc/a.jpg", "a/b.jpg", ".a.jpg", "..", "a\0.jpg", "a\n.jpg", "", " ",
                 "a" * 300 + ".jpg", "C:\\a.jpg", "a\u202e.jpg"):
        answer = studio.ask("POST", f"{path.format(batch)}?name={quote(name)}", jpeg())
        assert answer.status == 400 and answer.error, name
    assert everything(studio.folder.parent) == before


def test_links_out_of_the_folder_and_damaged_files_are_not_used(start, photos):
    other = photos.parent / "other.jpg"
    other.write_bytes(jpeg())
    (photos / "link.jpg").symlink_to(other)
    (photos / "cut.jpg").write_bytes(jpeg((400, 300))[:2000])
    with start(photos) as studio:
        cut = studio.photographs()["cut.jpg"]
        answer = studio.get(f"/api/photographs/{cut['number']}/thumbnail.jpg")
        assert answer.status == 422 and answer.error.startswith("cut.jpg: is damaged")
        assert "is damaged" in studio.photographs()["cut.jpg"]["problem"] and studio.tag(cut=[1]).status == 409
        (photos / "cut.jpg").write_bytes(jpeg())                # replaced
        studio.wait(lambda _: "problem" not in studio.photographs()["cut.jpg"])
        there = studio.photographs()["link.jpg"]
        assert "link out of the folder" in there["problem"]
        for path in ("", "/thumbnail.jpg", "/picture.jpg", "/mask.png"):
            assert studio.get(f"/api/photographs/{there['number']}{path}").status in (404, 422)
        assert studio.tag(link=[1]).status == 409


def test_names_that_are_not_utf_8_are_shown(start, photos):
    """Two of them even have the same name, which one says of the other."""
    for suffix in (b".jpg", b".jpeg"):
        Path(os.fsdecode(bytes(photos / "odd") + b"\xff" + suffix)).write_bytes(jpeg())
    with start(photos) as studio:
        problems = [found["problem"] for name, found in studio.photographs().items() if name.startswith("odd")]
        assert sorted(problems)[0] == "has the same name as odd?.jpeg; rename one of them" and len(problems) == 2


# Uploads

def bomb(width=20_000, height=10_000):
    """A PNG of 200 megapixels in 200 KB."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = zlib.compressobj(9)
    packed = b"".join(rows.compress(bytes(width + 1)) for _ in range(height)) + rows.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + \
        chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def uploads_left(studio):
    return [path for path in (studio.folder / ".ccnn/studio").rglob("*") if path.is_file() and "batches" not in
            path.parts and path.name not in ("settings.json", "port")]


@pytest.mark.parametrize("target", ["/api/photographs?name=new.png", "/api/batches/{}/photographs?name=new.png"])
def test_bombs_and_rubbish_are_refused(studio, target):
    target = target.format(studio.ask("POST", "/api/batches", {}).json["batch"])
    before = everything(studio.folder)
    whole = jpeg((400, 300))
    for data, words in ((bomb(), "too many pixels"), (bomb(12_000, 11_000), "reduce it"), (b"", "empty"),
                        (whole[:len(whole) // 2], "damaged"), (b"<svg onload='alert(1)'/>", "not an image"),
                        (b"\x89PNG\r\n\x1a\n" + bytes(100), ""), (b"DDS " + bytes(124), "not an image"),
                        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n", "not an image")):
        answer = studio.ask("POST", target, data)
        assert answer.status == 422 and words in answer.error, (words, answer.status, answer.body)
        assert "new.png" in answer.error and str(studio.folder) not in answer.error
    answer = studio.ask("POST", target, bytes(51 << 20))
    assert answer.status == 413 and answer.error
    assert everything(studio.folder) == before and not uploads_left(studio)
    assert studio.get("/api/state").status == 200


def test_a_photograph_can_be_brought(studio):
    answer = studio.ask("POST", "/api/photographs?name=new%20one.jpg", jpeg())
    assert answer.status == 201 and answer.json["photograph"]["name"] == "new one.jpg"
    assert (studio.folder / "new one.jpg").read_bytes() == jpeg()
    assert studio.ask("POST", "/api/photographs?name=new%20one.jpg", jpeg()).status == 200       # the same
    for name in ("new%20one.jpg", "new%20one.png"):             # ccnn learn could not tell them apart
        answer = studio.ask("POST", f"/api/photographs?name={name}", jpeg((50, 50)))
        assert answer.status == 422 and "another photograph" in answer.error
    assert studio.ask("POST", "/api/photographs?name=a.avif", jpeg()).status == 422
    assert not uploads_left(studio)
    number = answer.json.get("number", studio.photographs()["new one.jpg"]["number"])
    assert Image.open(io.BytesIO(studio.get(f"/api/photographs/{number}/thumbnail.jpg").body)).size == (40, 30)


# JSON of the wrong shape

ROUTES = [("PUT", "/api/tags"), ("POST", "/api/classes"), ("PUT", "/api/auto"), ("POST", "/api/scribbles/0"),
          ("POST", "/api/scribbles/0/undo"), ("POST", "/api/photographs/0/solve"), ("POST", "/api/train"),
          ("POST", "/api/stop"), ("POST", "/api/batches"), ("POST", "/api/batches/1/segment")]

VALUES = [None, True, -1, 0.5, 10 ** 30, "x", "", [], [[]], [None], {}, {"a": 1}, [{}], "../x", float("inf")]

WRONG = [*VALUES[:11], {"strange": 1}, *({key: value} for key in (
    "changes", "add", "rename", "remove", "auto", "strokes", "revision", "bounds", "check") for value in VALUES)]

WRONG_PARTS = [
    *({"changes": [{"number": 0, "revision": 1, "tags": [], key: value}]} for key, wrong in (
        ("number", [-1, 10 ** 9, "0", None, True, 0.5]), ("revision", ["x", None, -1, True]),
        ("tags", [[0], [3], ["cat"], [1, 1], 1, "cat", {}, [True]]),
        ("large", [[1], [0], None, "x"])) for value in wrong),
    *({"revision": 0, "strokes": [{"label": 1, "radius": 0, "points": [[0, 0]], key: value}]} for key, wrong in (
        ("label", [3, 254, -1, "1", None]), ("radius", [-1, 2, None, "x"]),
        ("points", [[], [[0]], [[0, 2]], [[0, None]], [["x", 0]], None, [[0, 0]] * 6000])) for value in wrong),
    *({"bounds": {key: value}} for key in ("0", "9", "x", "-1") for value in ([0.5, 0.1], [2, None], [0], None, "x")),
    {"rename": "cat", "to": 1}, {"rename": 1, "to": "x"}, {"rename": "bird", "to": "x"}, {"add": "a;b"}, {"add": "cat"},
    {"add": "a\nb"}, {"add": "x" * 101}, {"add": "background"}, {"add": " "}, {"remove": "bird"}]


@pytest.mark.parametrize("method, path", ROUTES)
def test_json_of_the_wrong_shape(outside, method, path):
    studio, before = outside
    studio.ask("POST", "/api/batches", {})
    for value in [*WRONG, *WRONG_PARTS]:
        if (path, value) in (("/api/batches", {}), ("/api/auto", {"auto": True}), ("/api/classes", {"add": "x"}),
                             ("/api/classes", {"add": "../x"}), ("/api/train", {}), ("/api/train", {"check": True})):
            continue                                            # right, or seen in other tests
        answer = studio.ask(method, path, json.dumps(value).encode(), headers={"Content-Type": "application/json"})
        assert answer.status in (400, 404, 409, 422), (value, answer.status, answer.body)
        assert answer.error
    for body in (b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}', b'{"a": ' + b"9" * 1_000_000 + b"}",
                 b"{" + b'"a":1,' * 200_000 + b'"a":1}'):
        answer = studio.ask(method, path, body, headers={"Content-Type": "application/json"})
        assert answer.status in (400, 404, 413), body[:20]
        assert answer.error
        assert studio.ask(method, path, body, headers={"Content-Type": "text/plain"}).status in (404, 415)
    assert everything(studio.folder.parent) == before
    assert studio.status["training"]["phase"] == "idle"


def test_fifty_requests_at_once(studio):
    """Each is answered; one of fifty changes of the same photograph wins."""
    there = studio.photographs()["0.jpg"]
    answers = []

    def ask(k):
        if k % 2:
            answers.append(studio.ask("PUT", "/api/tags", {"changes": [
                {"number": there["number"], "revision": there["revision"], "tags": [1 + k % 4 // 2]}]}))
        else:
            answers.append(studio.get(["/api/state", "/api/photographs/1/thumbnail.jpg", "/api/photographs"][k % 3]))
    threads = [threading.Thread(target=ask, args=[k]) for k in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = [answer.status for answer in answers]
    assert sorted(statuses) == [200] * 26 + [409] * 24
    winner = next(answer.json for answer in answers if b'"photographs":[' in answer.body and answer.status == 200
                  and len(answer.json["photographs"]) == 1)
    tags = studio.photographs()["0.jpg"]["tags"]
    assert tags == winner["photographs"][0]["tags"]
    assert read_tags(studio.folder / "tags.csv", CLASSES)["0"][0].tolist() == [label in tags for label in range(3)]


# Tags

def test_no_decision_differs_from_none_of_the_classes(studio):
    assert {one["tags"] for one in studio.photographs().values()} == {None}
    assert not (studio.folder / "tags.csv").exists()
    assert studio.tag(**{"0": [1, 2], "1": []}).status == 200
    assert (studio.folder / "tags.csv").read_text() == "image,tags,large\n0.jpg,cat;dog,\n1.jpg,,\n"
    assert studio.get("/api/state").json["counts"] == {"photographs": 8, "decided": 2, "undecided": 6, "none": 1}
    assert studio.tag(**{"0": None}).status == 200
    assert (studio.folder / "tags.csv").read_text() == "image,tags,large\n1.jpg,,\n"
    assert studio.tag(**{"1": None}).status == 200                  # and back to the beginning
    assert (studio.folder / "tags.csv").read_text() == "image,tags,large\n"
    assert studio.status["why_not"] == "tag some photographs first"


def test_two_pages_do_not_overwrite_each_other(studio):
    seen = studio.photographs()

    def change(name, tags):
        one = seen[name]
        return {"number": one["number"], "revision": one["revision"], "tags": tags}
    assert studio.ask("PUT", "/api/tags", {"changes": [change("0.jpg", [1])]}).status == 200        # page one
    assert studio.ask("PUT", "/api/tags", {"changes": [change("1.jpg", [2])]}).status == 200        # page two: merged
    answer = studio.ask("PUT", "/api/tags", {"changes": [change("0.jpg", [2]), change("2.jpg", [])]})
    number = seen["0.jpg"]["number"]
    assert answer.status == 409 and answer.json["conflicts"] == [number] and "somebody else" in answer.error
    assert {one["number"]: one["tags"] for one in answer.json["photographs"]}[number] == [1]        # as it is now
    assert (studio.folder / "tags.csv").read_text() == "image,tags,large\n0.jpg,cat,\n1.jpg,dog,\n2.jpg,,\n"


def test_changes_from_outside_are_noticed_and_kept(studio):
    table = studio.folder / "tags.csv"
    table.write_text("image;photographer;tags\n0.jpg;Anna;cat\n")
    (studio.folder / "new.jpg").write_bytes(jpeg())
    studio.wait(lambda _: studio.photographs()["0.jpg"]["tags"] == [1] and "new.jpg" in studio.photographs())
    assert studio.tag(new=[2]).status == 200
    assert table.read_text() == "image;photographer;tags\n0.jpg;Anna;cat\nnew.jpg;;dog\n"
    seen = studio.photographs()["0.jpg"]
    table.write_text(table.read_text().replace("Anna;cat", "Anna;dog"))     # the next change comes at once
    change = {"number": seen["number"], "revision": seen["revision"], "tags": []}
    assert studio.ask("PUT", "/api/tags", {"changes": [change]}).status == 409
    assert "Anna;dog" in table.read_text()


def test_a_damaged_table_is_never_overwritten(studio):
    assert studio.tag(**{"0": [1]}).status == 200
    (studio.folder / "tags.csv").write_text("image,tags\n0.jpg,cta\n")
    answer = studio.tag(**{"1": [1]})
    assert answer.status == 422 and "did you mean 'cat'?" in answer.error
    assert (studio.folder / "tags.csv").read_text() == "image,tags\n0.jpg,cta\n"
    assert studio.ask("POST", "/api/train", {}).status == 422
    (studio.folder / "tags.csv").write_text("image,tags\n0.jpg,dog\nold.jpg,cat\n")
    assert studio.tag(**{"1": [1]}).status == 200
    assert "old.jpg" in studio.wait(lambda status: status["why_not"])["why_not"]        # ccnn learn would say so
    assert "old.jpg,cat" in (studio.folder / "tags.csv").read_text()


def test_events_tell_other_pages(studio):
    import http.client
    connection = http.client.HTTPConnection(studio.host, timeout=30)
    connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {studio.token}"})
    stream = connection.getresponse()

    def event(kind):
        while True:
            line = stream.readline().decode()
            if line == f"event: {kind}\n":
                return json.loads(stream.readline().decode().removeprefix("data: "))
    assert event("hello")["server"] == studio.get("/api/state").json["server"]
    studio.tag(**{"3": [2]})
    told = event("changed")
    assert [(one["name"], one["tags"]) for one in told["photographs"]] == [("3.jpg", [2])]
    assert event("classes")["counts"]["decided"] == 1
    connection.close()


def test_classes_are_added_renamed_and_removed(studio):
    studio.tag(**{"0": [1, 2], "1": [1]})

    def post(**value):
        return studio.ask("POST", "/api/classes", value)
    assert post(add="große Katze").status == 200
    assert post(rename="cat", to="Kater").status == 200
    assert (studio.folder / "classes.txt").read_text() == "Kater\ndog\ngroße Katze\n"
    assert "0.jpg,Kater;dog," in (studio.folder / "tags.csv").read_text()
    answer = post(remove="dog")
    assert answer.status == 422 and "1 photograph has the tag 'dog'" in answer.error
    assert [one["name"] for one in post(remove="große Katze").json["classes"]] == ["background", "Kater", "dog"]


# Scribbles

def test_scribbles_are_what_learn_reads(studio):
    number = studio.photographs()["0.jpg"]["number"]

    def draw(revision, **stroke):
        return studio.ask("POST", f"/api/scribbles/{number}", {"revision": revision, "strokes": [stroke]})
    answer = draw(0, label=0, radius=0.01, points=[[0.9, 0.9]])
    assert answer.status == 422 and "tag the photograph first" in answer.error
    first = draw(0, label=2, radius=0.05, points=[[0.25, 0.5], [0.5, 0.5]]).json["photograph"]
    assert first["tags"] == [2]                                     # what is marked is there
    assert draw(0, label=1, points=[[0.1, 0.1]]).status == 409
    second = draw(first["scribble"], label=0, points=[[0.99, 0.99]]).json["photograph"]
    marks = Scribbles(str(studio.folder / "scribbles"), CLASSES).read("0")
    assert marks.shape == (81, 97) and marks[40, 36] == 2 and marks[79, 95] == 0 and marks[2, 2] == 255
    assert (studio.folder / "constraints.toml").read_text() == "[scribbles]\n"
    answer = studio.tag(**{"0": [1]})
    assert answer.status == 409 and "erase them first" in answer.json["refused"][0]["error"]
    picture = Image.open(io.BytesIO(studio.get(f"/api/scribbles/{number}.png?side=320").body)).convert("RGBA")
    assert picture.getpixel((36, 40))[3] == 255 and picture.getpixel((2, 2))[3] == 0

    def undo(revision):
        return studio.ask("POST", f"/api/scribbles/{number}/undo", {"revision": revision})
    third = undo(second["scribble"]).json["photograph"]
    assert Scribbles(str(studio.folder / "scribbles"), CLASSES).read("0")[79, 95] == 255
    fourth = undo(third["scribble"]).json["photograph"]
    assert "scribble" not in fourth and not (studio.folder / "scribbles/0.png").exists()
    assert undo(0).status == 422
    assert studio.tag(**{"0": [1]}).status == 200


# Life and death

ONE_THREAD = """
import os, threading
import numpy as np
from threadpoolctl import threadpool_limits
from ccnn._util.workers import one_blas_thread
threadpool_limits(4, "blas")
with one_blas_thread():
    a, ended = np.ones((700, 700), np.float32), False
    def multiply():
        while not ended:
            a @ a
    thread = threading.Thread(target=multiply)
    thread.start()
    for _ in range(40):
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)
    ended = True
    thread.join()
"""


def test_a_child_that_starts_does_not_stop_linear_algebra():
    """A fork ends OpenBLAS's threads, and a product that waits for them never ends: so there are none."""
    pytest.importorskip("threadpoolctl")
    assert subprocess.run([sys.executable, "-c", ONE_THREAD], timeout=LIMIT).returncode == 0


def test_a_second_studio_on_the_folder_says_so(start, photos):
    with start(photos) as studio:
        other = start(photos)
        assert not other.address and other.process.returncode == 2
        line, = other.complaint.splitlines()
        assert "has this folder open in a studio" in line and f"kill {studio.process.pid}" in line


def test_another_port_is_taken(start, photos):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with start(photos, "--port", str(port)) as studio:
            assert studio.host != f"127.0.0.1:{port}" and studio.get("/api/state").status == 200
            other = int(studio.host.partition(":")[2])
    assert last_port(photos) == [other]             # a page that is open is let in again, and what it keeps is saved
    for strange in (b"", b"x", b"80", b"70000", b"true", b"[" * 9999, b"\xff" * 20):
        (photos / ".ccnn/studio/port").write_bytes(strange)
        assert last_port(photos) == []
    (photos / ".ccnn/studio/port").unlink()
    os.mkfifo(photos / ".ccnn/studio/port")         # nobody writes to it: a reader would wait for ever
    assert last_port(photos) == []


def test_a_new_folder_is_made(start, tmp_path):
    with start(tmp_path / "new/photos") as studio:
        assert studio.get("/api/state").json["counts"]["photographs"] == 0
        assert studio.status["why_not"] == "add a class first"
        assert studio.ask("POST", "/api/train", {}).status == 422


def wait_for_end(children):
    """children : {process: command line}"""
    wait_for(lambda: not any(map(is_running, children)), f"the end of {children}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_studio_is_the_end_of_its_children(start, photos, number):
    steps = "--steps", "1200"               # so many that the training runs while it is asked
    studio = start(photos, *steps)
    studio.tag(**{str(k): [[1], [2], [1, 2], []][k % 4] for k in range(8)})
    table = (photos / "tags.csv").read_text()
    assert studio.ask("POST", "/api/train", {}).status == 202
    studio.wait(lambda status: status["training"]["iteration"] >= 60)       # a snapshot every 60
    children = descendants(studio.process.pid)
    training = [pid for pid, command in children.items() if " learn " in command]
    assert training and len(children) >= 3
    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in training} == \
        {os.getpriority(os.PRIO_PROCESS, studio.process.pid)}                   # somebody waits for it
    studio.end(number)
    wait_for_end(children)
    if number == signal.SIGINT:                                     # the way to end it
        assert studio.process.returncode == 0
        assert studio.said == f"studio.py: closed; tags and model are in {photos}\n"
    with start(photos, *steps) as studio:                           # and everything is there
        assert (photos / "tags.csv").read_text() == table
        assert studio.photographs()["2.jpg"]["tags"] == [1, 2]
        status = studio.train()
        assert status["model"]["classes"] == list(CLASSES)
        if number != signal.SIGKILL:
            assert any("resuming at step" in line for line in status["training"]["lines"])


# The whole way

def masks_in(data, prefix=""):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name.removeprefix(prefix): np.asarray(Image.open(io.BytesIO(archive.read(name))))
                for name in archive.namelist() if name.endswith(".png")}


@pytest.fixture(scope="module")
def trained(root, place, tmp_path_factory):
    """A studio that was trained on seven photographs of eight."""
    folder = tmp_path_factory.mktemp("trained") / "photos"
    draw(folder, 8, seed=1)
    (folder / "classes.txt").write_text("cat\ndog\n")
    with Studio(root, place, folder) as studio:
        studio.tag(**{str(k): [[1], [2], [1, 2], []][k % 4] for k in range(7)})
        studio.trained = studio.train()
        studio.wait(lambda _: len(studio.get("/api/predictions").json["predictions"]) == 8)
        yield studio


def test_training_answers_about_every_photograph(trained):
    status = trained.trained
    assert status["stale"] is False and status["model"]["photographs"] == 7 and status["report"]
    curve = trained.get("/api/loss").json
    steps = [step for step, _ in curve["points"]]
    assert curve["rounds"] == [0, 400] and steps == sorted(set(steps))          # the second round goes on
    assert min(steps) == 0 and 400 in steps and 760 < max(steps) <= 800 == status["model"]["iterations"]
    answers = {one["number"]: one for one in trained.get("/api/predictions").json["predictions"]}
    assert all(np.isclose(sum(one["areas"]), 1, atol=1e-3) for one in answers.values())
    undecided = trained.photographs()["7.jpg"]["number"]
    assert [number for number, one in answers.items() if one["doubt"] is None] == [undecided]


def test_masks_and_probabilities_have_the_size_of_the_page(trained):
    address = f"/api/photographs/{trained.photographs()['2.jpg']['number']}"

    def picture(path):
        return np.asarray(Image.open(io.BytesIO(trained.get(f"{address}/{path}").body)).convert("RGBA"))
    mask = picture("mask.png")
    assert mask.shape == (81, 97, 4) and 0 < (mask[..., 3] > 0).mean() < 1
    colours = {one["colour"] for one in trained.get("/api/state").json["classes"]}
    assert {"#" + bytes(pixel[:3]).hex() for pixel in mask.reshape(-1, 4) if pixel[3]} <= colours
    assert 0 < (picture("mask.png?style=outline")[..., 3] > 0).mean() < (mask[..., 3] > 0).mean()
    total = sum(picture(f"probability.png?label={label}&side=1280")[..., 3].astype(int) for label in range(3))
    assert abs(total - 255).max() <= 2


def test_other_bounds_move_p(trained):
    address = f"/api/photographs/{trained.photographs()['2.jpg']['number']}"
    told = trained.get(address).json["explanation"]
    assert told["status"] == "optimal" and [area["name"] for area in told["areas"]] == list(CLASSES)
    assert all(area["least"] is not None for area in told["areas"][1:])         # a cue replaces the background's bounds
    other = trained.ask("POST", f"{address}/solve", {"bounds": {"0": [None, 0.1]}}).json
    assert other["areas"][0]["p"] <= 0.101 < told["areas"][0]["p"] and other["mask"] != told["mask"]
    both = trained.ask("POST", f"{address}/solve", {"bounds": {"0": [0.9, None], "1": [0.9, 1]}}).json
    assert both["areas"][1]["price"] and both["status"] == "optimal"            # a soft bound gives way
    hard = trained.ask("POST", f"{address}/solve", {"bounds": {label: [None, 0.1] for label in "012"}})
    assert hard.json["status"] == "infeasible"
    assert trained.ask("POST", "/api/classes", {"add": "bird"}).status == 200          # no photograph has it
    assert trained.get(address).json["explanation"]["areas"] == told["areas"]
    assert trained.ask("POST", "/api/classes", {"remove": "bird"}).status == 200


def test_exports_are_what_infer_makes(trained, root, place, tmp_path):
    ours = masks_in(trained.get("/api/export/masks.zip").body)
    subprocess.run([sys.executable, str(place / "tools/infer.py"), "--model", str(trained.folder / "model.ccnn"),
                    "--out", str(tmp_path / "masks"), str(trained.folder)], env=environment(root, place), check=True)
    assert len(ours) == 8 and any(mask.any() for mask in ours.values())
    for name in ours:
        assert (ours[name] == np.asarray(Image.open(tmp_path / "masks" / name))).mean() > 0.99, name
    for one in trained.get("/api/state").json["exports"]:                # the same masks in every format, read again
        answer, folder = trained.get(f"/api/export/{one['file']}"), tmp_path / "exports" / one["name"]
        assert answer.status == 200 and one["file"] in answer.headers["content-disposition"]
        folder.mkdir(parents=True)
        (folder / one["file"]).write_bytes(answer.body)
        if one["file"].endswith(".zip"):
            with zipfile.ZipFile(folder / one["file"]) as archive:
                archive.extractall(folder)
        files = [folder / name for name in ("tasks.json", one["file"]) if not name.endswith(".zip")]
        source = read_masks(next((file for file in files if file.is_file()), folder))
        names = {photograph.name.removesuffix(".jpg") + ".png": photograph for photograph in source.photographs}
        again = {name: draw_mask(source, photograph, ours[name].shape) for name, photograph in names.items()}
        order = np.array([source.classes.index(name) if name in source.classes else 0 for name in CLASSES], np.uint8)
        assert set(again) == set(ours), one
        assert all((again[name] == order[ours[name]]).mean() > 0.98 for name in ours), one
    convert.main([str(trained.folder), "--to", "masks", "--out", str(tmp_path / "converted")])
    for name in ours:
        assert (ours[name] == np.asarray(Image.open(tmp_path / "converted" / name))).all(), name
    for name in ("tags.csv", "model.ccnn"):
        assert trained.get(f"/api/export/{name}").body == (trained.folder / name).read_bytes()
    assert b"<html" in trained.get("/api/report.html").body


def test_another_folder_is_segmented(trained, tmp_path):
    draw(tmp_path / "other", 2, seed=2)
    batch = trained.ask("POST", "/api/batches", {}).json["batch"]
    assert trained.ask("POST", f"/api/batches/{batch}/segment", {}).status == 422           # nothing in it
    for _ in range(2):
        data = (tmp_path / "other/0.jpg").read_bytes()
        assert trained.ask("POST", f"/api/batches/{batch}/photographs?name=one.jpg", data).status == 201
    assert trained.ask("POST", f"/api/batches/{batch}/segment", {}).status == 202
    assert trained.ask("POST", f"/api/batches/{batch}/photographs?name=b.jpg", jpeg()).status == 409
    wait_for(lambda: trained.get(f"/api/batches/{batch}").json["phase"] != "segmenting", "the masks")
    told = trained.get(f"/api/batches/{batch}").json
    assert told["phase"] == "done" and told["done"] == 2
    data = trained.get(f"/api/batches/{batch}/masks.zip").body
    assert sorted(masks_in(data, "masks/")) == ["one-2.png", "one.png"]
    assert trained.get(f"/api/batches/{batch}/overlay/0.jpg").status == 200
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        (tmp_path / "one.png").write_bytes(archive.read("masks/one.png"))
    assert mask_classes(tmp_path / "one.png") == list(CLASSES)


def test_it_trains_again_by_itself_and_agrees_with_the_tool(trained, root, place):
    assert trained.ask("PUT", "/api/auto", {"auto": True}).json["auto"]
    trained.tag(**{"0": [2]})
    trained.wait(lambda status: status["training"]["phase"] != "idle")
    status = trained.wait(lambda status: status["training"]["phase"] == "idle")
    assert any("tags of 1 photograph changed" in line for line in status["training"]["lines"]), status["training"]
    assert not trained.ask("PUT", "/api/auto", {"auto": False}).json["auto"]
    trained.wait(lambda status: status["model"]["final"] and not status["stale"])
    done = subprocess.run([sys.executable, str(place / "tools/learn.py"), "--no-check", str(trained.folder)], text=True,
                          env=environment(root, place), capture_output=True)
    assert "nothing has changed since it was trained" in done.stderr


def iou(mask, truth):
    """The mean over the classes that are in the truth."""
    return np.mean([((mask == label) & (truth == label)).sum() / ((mask == label) | (truth == label)).sum()
                    for label in np.unique(truth)])


def test_corrections_hold_teach_and_survive(start, tmp_path):
    """Tag, train, correct with brush and region, kill, train again: marked pixels hold, the photograph gets better."""
    folder, steps = tmp_path / "photos", ("--steps", "10")       # too few: there is something to correct
    truth = draw(folder, 12, seed=5)
    (folder / "classes.txt").write_text("cat\ndog\n")
    with start(folder, *steps) as studio:
        identity = studio.get("/api/state").json["identity"]
        assert studio.ask("POST", "/api/photographs/0/region", {"x": 0, "y": 0, "kind": "whole"}).status == 404
        assert studio.tag(**{str(k): [[1], [2], [1, 2], []][k % 4] for k in range(12)}).status == 200
        assert studio.train()["model"]["previous"] is None
        studio.wait(lambda _: len(studio.get("/api/predictions").json["predictions"]) == 12)
        before = masks_in(studio.get("/api/export/masks.zip").body)
        worst = min((k for k in truth if truth[k].any()), key=lambda k: iou(before[f"{k}.png"], truth[k]))
        number, name = studio.photographs()[f"{worst}.jpg"]["number"], f"{worst}.png"
        height, width = truth[worst].shape

        def region(y, x, kind, label):
            found = studio.ask("POST", f"/api/photographs/{number}/region", {
                "x": (x + 0.5) / width, "y": (y + 0.5) / height, "kind": kind, "label": int(label)}).json
            pixels = np.zeros(height * width, bool)
            for begin, length in zip(found["runs"][::2], found["runs"][1::2]):
                pixels[begin:begin + length] = True
            return found, pixels.reshape(height, width)
        wrong = np.argwhere(before[name] != truth[worst])
        rng = np.random.default_rng(1)
        for y, x in rng.permutation(wrong)[:60]:
            found, pixels = region(y, x, "part", truth[worst][y, x])
            assert pixels[y, x] and found["size"] == [height, width]
            assert np.isclose(found["area"], pixels.mean(), 0, 1e-4)
            if (truth[worst][pixels] == truth[worst][y, x]).mean() > 0.9:
                break
        _, whole = region(y, x, "whole", 0)
        assert (before[name][whole] == before[name][y, x]).all() and whole[y, x]
        stroke = {"label": int(truth[worst][y, x]), "runs": found["runs"], "size": found["size"]}

        def draw_marks(studio, *strokes, **more):
            revision = studio.photographs()[f"{worst}.jpg"].get("scribble", 0)
            return studio.ask("POST", f"/api/scribbles/{number}", {"revision": revision, "strokes": strokes, **more})

        def step(studio, which):
            revision = studio.photographs()[f"{worst}.jpg"].get("scribble", 0)
            return studio.ask("POST", f"/api/scribbles/{number}/{which}", {"revision": revision})
        assert draw_marks(studio, {**stroke, "size": [height, width + 1]}).status == 422
        assert draw_marks(studio, stroke, name="other.jpg").json["other_photograph"]
        assert draw_marks(studio, stroke, identity="of another folder").json["other_folder"]
        assert draw_marks(studio, stroke, name=f"{worst}.jpg", identity=identity).status == 200
        pen, left = [], before[name] != truth[worst]
        for _ in range(3):                              # a dab of the brush where the mask is wrong most deeply
            depth = distance_transform_edt(np.pad(left, 1))[1:-1, 1:-1]
            y, x = np.unravel_index(depth.argmax(), depth.shape)
            pen.append({"label": int(truth[worst][y, x]), "radius": float(min(2, depth.max() - 1) / max(height, width)),
                        "points": [[x / (width - 1), y / (height - 1)]]})
            left[max(0, y - 12):y + 12, max(0, x - 12):x + 12] = False
        assert draw_marks(studio, *pen).json["photograph"]["undo"] == 2
        marks = Scribbles(str(folder / "scribbles"), CLASSES).read(worst)
        known = marks != 255
        assert known.any() and (marks[known] == truth[worst][known]).mean() > 0.9
        now = masks_in(studio.get("/api/export/masks.zip").body)        # at once, without a training
        assert (now[name] == marks)[known].all() and iou(now[name], truth[worst]) > iou(before[name], truth[worst])
        assert all((now[other] == before[other]).all() for other in before if other != name)
        assert studio.ask("POST", "/api/train", {}).status == 202
        studio.end(signal.SIGKILL)
    with start(folder, *steps) as studio:
        there = studio.photographs()[f"{worst}.jpg"]
        assert there["undo"] == 2 and studio.get("/api/state").json["identity"] == identity
        assert (Scribbles(str(folder / "scribbles"), CLASSES).read(worst) == marks).all()
        assert step(studio, "undo").json["photograph"]["redo"] == 1 and step(studio, "undo").status == 200
        assert not (folder / "scribbles" / name).exists() and step(studio, "undo").status == 422
        assert step(studio, "redo").status == 200 and step(studio, "redo").json["photograph"]["undo"] == 2
        assert (Scribbles(str(folder / "scribbles"), CLASSES).read(worst) == marks).all()
        model = studio.train(check=True)["model"]
        after = masks_in(studio.get("/api/export/masks.zip").body)
        assert (after[name] == marks)[known].all() and iou(after[name], truth[worst]) > iou(before[name], truth[worst])
        held = {one["name"]: one for one in model["results"]["classes"]}
        assert sum(one["pixels"] for one in held.values()) + (marks == 0).sum() == known.sum()
        assert 0 <= model["results"]["mean_iou"] <= 1 and held["cat"]["found"] + held["cat"]["missed"] == 6
        assert studio.get(f"/api/photographs/{number}/mask.png?of=previous").status == 200 and model["previous"]
        told = studio.wait(lambda _: len(studio.get("/api/predictions").json["predictions"]) == 12) and \
            studio.get("/api/predictions").json["predictions"]
        assert all(0 <= one["changed"] <= 1 for one in told)
        disputed = [bool(one["disputes"]) for one in sorted(told, key=lambda one: -one["rank"])]
        assert disputed == sorted(disputed, reverse=True)


def test_what_waited_for_a_new_server_is_not_lost(studio):
    """A page has no numbers and revisions of the new server: it sends names, and what it saw."""
    there, identity = {"tags": None, "large": []}, studio.get("/api/state").json["identity"]

    def send(*changes, identity=identity):
        return studio.ask("PUT", "/api/tags", {"identity": identity, "changes": changes})
    change = {"name": "0.jpg", "before": there, "tags": [1], "large": [1]}
    for _ in range(2):                              # it may not have heard the answer
        assert send(change).status == 200
    assert studio.photographs()["0.jpg"]["tags"] == [1] and studio.photographs()["0.jpg"]["large"] == [1]
    answer = send({**change, "tags": [2], "large": []}, {**change, "name": "gone.jpg"}, {**change, "name": "1.jpg"})
    assert answer.status == 409 and answer.json["conflicts"] == [studio.photographs()["0.jpg"]["number"]]
    assert [one["name"] for one in answer.json["refused"]] == ["gone.jpg"]
    assert studio.photographs()["1.jpg"]["tags"] == [1] and studio.photographs()["0.jpg"]["tags"] == [1]
    before = everything(studio.folder)
    assert send({**change, "name": "2.jpg"}, identity="of another folder").json["other_folder"]
    assert everything(studio.folder) == before


# Parts

@pytest.mark.parametrize("text, after", [
    (b"image,tags,large\na.jpg,cat,\n", b"image,tags,large\na.jpg,cat,\nb.jpg,cat;dog,dog\n"),
    (b"a.jpg,cat\n", b"image,tags,large\na.jpg,cat,\nb.jpg,cat;dog,dog\n"),
    (b"id;name;tags\r\n1;a.jpg;cat\r\n", b"id;name;tags;large\r\n1;a.jpg;cat;\r\n;b.jpg;cat;dog;dog\r\n"),
    ("image\ttags\tnote\na.jpg\tcat\tschön\n".encode("utf-8-sig"),
     "image\ttags\tnote\tlarge\na.jpg\tcat\tschön\t\nb.jpg\tcat;dog\t\tdog\n".encode("utf-8-sig")),
    ("image,tags\nä.jpg,cat\n".encode("cp1252"),
     "image,tags,large\nä.jpg,cat,\nb.jpg,cat;dog,dog\n".encode("utf-8-sig")),
    (b"sep=,\nimage,tags\na.jpg,cat\n", b"sep=,\nimage,tags,large\na.jpg,cat,\nb.jpg,cat;dog,dog\n"),
    (b"image,tag\na.jpg,cat\na.jpg,dog\n", b"image,tags,large\na.jpg,cat;dog,\nb.jpg,cat;dog,dog\n"),
    (b"image,cat,dog\na.jpg,1,0\n", b"image,tags,large\na.jpg,cat,\nb.jpg,cat;dog,dog\n"),
    (b"image,tags,large\n", b"image,tags,large\nb.jpg,cat;dog,dog\n"),
    (None, b"image,tags,large\nb.jpg,cat;dog,dog\n"),
])
def test_a_table_keeps_what_is_not_ours(tmp_path, text, after):
    path = tmp_path / "tags.csv"
    if text:
        path.write_bytes(text)
    table = TagFile(path, CLASSES)
    table.put("b.jpg", ("cat", "dog"), ("dog",))
    table.write()
    if b"name;tags" in after:                   # a field that holds the separator is quoted
        after = after.replace(b"cat;dog;dog", b'"cat;dog";dog')
    assert path.read_bytes() == after
    assert read_tags(path, CLASSES)["b"][1].tolist() == [False, False, True]
    again = TagFile(path, CLASSES)
    again.remove("b.jpg")
    again.write()
    assert "b" not in again.tags and all("b.jpg" not in line for line in path.read_text("utf-8-sig").splitlines())


def test_a_mask_that_is_being_written_is_not_done(tmp_path):
    batch = Batch(1, tmp_path / "1")
    for name in ("0000.png", ".0001.0a1b2c3d.part.png"):
        (batch.masks / name).write_bytes(b"")
    batch.poll()
    assert batch.done == {0}


def test_without_a_folder_it_asks_for_one(root, place, tmp_path):
    keyboard, terminal = os.openpty()
    process = subprocess.Popen([sys.executable, str(place / "tools/studio.py"), "--no-browser"],
                               stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment(root, place))
    os.write(keyboard, f"'{tmp_path / 'my photos'}'\n".encode())
    assert process.stdout.readline().startswith("http://127.0.0.1:") and (tmp_path / "my photos/.ccnn").is_dir()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert said.startswith("Which folder has your photographs?") and process.returncode == 0
    os.close(keyboard)
    os.close(terminal)


def test_the_kind_of_a_class_keeps_the_file(studio):
    rules = studio.folder / "constraints.toml"
    rules.write_text("# mine\n[cat]\nleast = 0.1   # a note\n")

    def kinds(**value):
        answer = studio.ask("POST", "/api/classes", value)
        assert answer.status == 200, answer.body
        return {one["name"]: one["kind"] for one in answer.json["classes"]}
    assert kinds(kind="cat", **{"is": "surface"})["cat"] == "surface"
    assert rules.read_text() == '# mine\n[cat]\nkind = "surface"\nleast = 0.1   # a note\n'
    assert kinds(kind="dog", **{"is": "object"}) == {"background": None, "cat": "surface", "dog": "object"}
    assert kinds(rename="dog", to="big dog") == {"background": None, "cat": "surface", "big dog": "object"}
    assert kinds(kind="big dog", **{"is": None})["big dog"] is None
    assert kinds(kind="cat", **{"is": None})["cat"] is None
    assert rules.read_text().strip() == "# mine\n[cat]\nleast = 0.1   # a note"
    assert studio.ask("POST", "/api/classes", {"kind": "cat", "is": "liquid"}).status == 400
    assert studio.ask("POST", "/api/classes", {"kind": "bird", "is": "object"}).status == 422


def test_the_program_says_what_is_missing(root, place, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "boxes/Annotations").mkdir(parents=True)
    for folder, words in (("file", "is a file"), ("boxes", "ccnn import-tags makes it")):
        done = subprocess.run([sys.executable, str(place / "tools/studio.py"), str(tmp_path / folder)], text=True,
                              env={**environment(root, place), "DISPLAY": ""}, capture_output=True, timeout=60)
        assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 1
    assert not os.listdir(tmp_path / "boxes/Annotations") and not (tmp_path / "boxes/.ccnn").exists()
