"""Who gets into the studio: the secrets, and connections that ask for nothing."""
import contextlib
import os
import re
import shlex
import socket
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import CHROMIUM, needs_browser
from drawn_photographs import draw
from repository_copy import copy_of_repository
from studio_server import Studio
from waiting import wait_for

pytest.importorskip("starlette", reason="needs the packages of requirements/studio.txt: make test-studio")
pytest.importorskip("uvicorn", reason="needs the packages of requirements/studio.txt: make test-studio")


@pytest.fixture(scope="module")
def place(root, tmp_path_factory):
    return copy_of_repository(root, tmp_path_factory.mktemp("repository"))


@pytest.fixture
def photos(tmp_path):
    draw(tmp_path / "photos", 2, seed=1)
    (tmp_path / "photos/classes.txt").write_text("cat\ndog\n")
    return tmp_path / "photos"


def stranger(studio, path="/", **headers):
    return studio.ask("GET", path, Authorization=None, Origin=None, **headers)


def cookie_of(answer):
    return answer.headers["set-cookie"].split(";")[0]


def command_lines():
    """What every user may read of every process."""
    for place in filter(str.isdigit, os.listdir("/proc")):
        try:
            yield Path(f"/proc/{place}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:                                                     # it has ended
            continue


def test_a_browser_is_opened_without_a_secret_in_the_list_of_processes(root, place, photos, tmp_path):
    browser, seen = tmp_path / "browser.py", tmp_path / "seen"
    browser.write_text(f"""import os, sys, time
sys.stdout.close(), sys.stderr.close(), os.close(1), os.close(2)
with open({str(seen)!r} + ".part", "w") as file:
    file.write(sys.argv[1])
os.rename({str(seen)!r} + ".part", {str(seen)!r})
while os.path.exists({str(seen)!r}):
    time.sleep(0.1)
""")
    with Studio(root, place, photos, browser=f"{shlex.quote(sys.executable)} {browser} %s &") as studio:
        wait_for(seen.exists, "the browser")
        shown = seen.read_text()
        file = Path(unquote(urlsplit(shown).path))
        assert shown.startswith("file:///") and file.stat().st_mode & 0o777 == 0o600
        address = re.search(r'url=(http://[^"]*)"', file.read_text())[1]
        ticket = re.search("ticket=(.*)", address)[1]
        assert studio.host in address and studio.token not in file.read_text()
        lines = list(command_lines())
        assert any(shown in line for line in lines)
        assert not any(studio.token in line or ticket in line for line in lines)

        # From a file: another site, for a browser. The cookie comes with a page that goes on by itself.
        path = f"/?ticket={ticket}"
        assert stranger(studio, "/?ticket=wrong").status == 401
        assert studio.ask("HEAD", path, Authorization=None).status == 401
        answer = stranger(studio, path, **{"Sec-Fetch-Site": "cross-site"})
        assert answer.status == 200 and b'http-equiv="refresh" content="0; url=/"' in answer.body
        assert stranger(studio, Cookie=cookie_of(answer)).status == 200
        again = stranger(studio, path)
        assert again.status == 401 and "set-cookie" not in again.headers            # for one use
        assert cookie_of(stranger(studio, f"/?token={studio.token}")) == cookie_of(answer)   # as printed: always
        seen.unlink()
    assert not file.exists()


def test_no_secret_stands_for_another(root, place, photos):
    with Studio(root, place, photos) as studio:
        cookie = cookie_of(stranger(studio, f"/?token={studio.token}"))
        name, value = cookie.split("=")
        assert studio.token not in cookie
        assert stranger(studio, Cookie=cookie).status == 200
        for wrong in ({"Cookie": f"{name}={studio.token}"}, {"Authorization": f"Bearer {value}"}):
            answer = studio.ask("GET", "/api/state", headers={"Authorization": None, **wrong})
            assert answer.status == 401 and "set-cookie" not in answer.headers
        for path in (f"/?token={value}", f"/?ticket={value}", f"/?ticket={studio.token}",
                     f"/page/?token={studio.token}"):
            assert stranger(studio, path).status == 401
        assert stranger(studio, f"/?token={studio.token}", **{"Sec-Fetch-Site": "cross-site"}).status == 403


@needs_browser
def test_a_real_browser_comes_in_through_the_file(root, place, photos, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: make test-studio")
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\nprintf %s \"$1\" > {seen}.part && mv {seen}.part {seen}\n")
    browser.chmod(0o755)
    with Studio(root, place, photos, browser=browser), playwright.sync_playwright() as api:
        wait_for(seen.exists, "the browser")
        started = api.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = started.new_page()
        page.goto(seen.read_text())
        playwright.expect(page.locator("#folder")).to_have_text(photos.name, timeout=120_000)
        assert "ticket" not in page.url
        started.close()


# Connections

def ended(connection):
    """Whether the server has closed a connection that nobody reads from."""
    try:
        return connection.recv(1000, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.faults
def test_idle_connections_lock_nobody_out(root, place, photos):
    with Studio(root, place, photos) as studio:
        address = studio.host.split(":")[0], int(studio.host.split(":")[1])
        idle = [socket.create_connection(address, timeout=60) for _ in range(320)]
        for connection in idle[::2]:                                    # half of a request, which never ends
            connection.sendall(b"GET / HTTP/1.1\r\nHost: " + studio.host.encode())
        answer = studio.ask("GET", "/api/state")
        assert answer.status == 200
        assert len([connection for connection in idle if not ended(connection)]) <= 100

        def all_ended():
            for connection in idle:                     # one letter at a time does not buy time
                with contextlib.suppress(OSError):
                    connection.sendall(b"x")
            return all(map(ended, idle))
        wait_for(all_ended, "the end of the idle connections", limit=60)
        assert studio.get("/api/state").status == 200
        for connection in idle:
            connection.close()


def test_a_stranger_is_answered_once_for_each_connection(root, place, photos):
    with Studio(root, place, photos) as studio:
        for headers, stays in (("", False), (f"Authorization: Bearer {studio.token}\r\n", True)):
            with socket.create_connection(studio.host.split(":"), timeout=60) as connection:
                for _ in range(2 if stays else 1):
                    connection.sendall(f"GET /api/state HTTP/1.1\r\nHost: {studio.host}\r\n{headers}\r\n".encode())
                    said = b""
                    while not (said.endswith(b"}") and said.count(b"{") == said.count(b"}")):
                        said += connection.recv(1 << 16)
                    assert said.startswith(b"HTTP/1.1 200" if stays else b"HTTP/1.1 401")
                    assert (b"\r\nconnection: close" in said.lower()) != stays           # else time alone would end it
                if not stays:
                    assert wait_for(lambda: ended(connection), "the end of the connection")


# What is written when the ground moves

def test_a_folder_that_is_moved_gets_no_ghost(root, place, photos, tmp_path):
    with Studio(root, place, photos) as studio:
        assert studio.tag(**{"0": [1]}).status == 200
        photos.rename(tmp_path / "elsewhere")
        before = (tmp_path / "elsewhere/tags.csv").read_bytes()
        for method, path, body in (("POST", "/api/classes", {"add": "bird"}), ("PUT", "/api/auto", {"auto": True})):
            answer = studio.ask(method, path, body)
            assert answer.status >= 400 and "folder" in answer.error
        photos.mkdir()                                      # another one under its name
        answer = studio.ask("POST", "/api/classes", {"add": "bird"})
        assert answer.status == 422 and "was moved or replaced" in answer.error
        photos.rmdir()
        assert (tmp_path / "elsewhere/tags.csv").read_bytes() == before
    assert not photos.exists()


@pytest.mark.parametrize("writes", range(12))
def test_a_renaming_that_is_killed_is_finished_later(photos, writes, monkeypatch):
    """Killed before the write of that number: every place where a kill can fall, without a race."""
    from ccnn.studio import album as studio_album
    (photos / "tags.csv").write_text("image,tags\n0.jpg,cat\n")

    class Killed(BaseException):
        pass

    def opened():
        (photos / ".ccnn/studio").mkdir(parents=True, exist_ok=True)
        found = studio_album.Album(photos)
        found.refresh()
        return found
    album, done = opened(), []

    def counted(function):
        def call(*arguments, **options):
            done.append(arguments)
            if len(done) > writes:
                raise Killed
            return function(*arguments, **options)
        return call
    with monkeypatch.context() as patch:
        for place, name in ((studio_album, "save"), (studio_album, "rewrite"), (Path, "unlink")):
            patch.setattr(place, name, counted(getattr(place, name)))
        patch.setattr("ccnn.annotations.table_editor.rewrite", counted(studio_album.rewrite))
        with contextlib.suppress(Killed):
            album.rename_class("cat", "lion")
    again = opened()
    again.finish_renaming()
    assert not again.renaming.exists() and again.problem is None
    name = (photos / "classes.txt").read_text().partition("\n")[0]          # nothing was renamed yet, or all of it is
    assert name == ("cat" if writes == 0 else "lion" if writes > 6 else name)
    assert (photos / "classes.txt").read_text() in ("cat\ndog\n", "lion\ndog\n")
    assert name in (photos / "tags.csv").read_text()
