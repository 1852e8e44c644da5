"""The studio as a user starts it: a program in a process of its own, and a client that asks it."""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from urllib.parse import urlsplit

from repository_copy import environment
from waiting import LIMIT, wait_for


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The one line of a refusal."""
        text = self.json["error"]
        assert 400 <= self.status < 600 and text and "\n" not in text and "Traceback" not in text, (self.status, text)
        return text


class Studio:
    """A running studio; `with Studio(root, place, folder) as studio: studio.get("/api/state")`."""

    def __init__(self, root, place, folder, *options, browser=None):
        self.folder = folder
        opening = {"DISPLAY": ":0", "BROWSER": str(browser)} if browser else {}
        self.process = subprocess.Popen(
            [sys.executable, str(place / "tools/studio.py"), str(folder), *([] if browser else ["--no-browser"]),
             *options], cwd=place, env={**environment(root, place), **opening},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            self.process.wait()
            self.complaint = self.process.stderr.read()
            return
        self.token = re.search("token=(.*)", self.address)[1]
        self.host = urlsplit(self.address).netloc

    def __enter__(self):
        assert self.address, self.complaint
        return self

    def __exit__(self, *_):
        self.end(signal.SIGINT)

    def end(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(timeout=LIMIT)
        if not self.process.stderr.closed:
            self.said = self.process.stderr.read()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()

    def ask(self, method, path, body=None, headers=None, **changes):
        """An Answer. headers : in place of the usual ones, None leaves one out."""
        usual = {"Host": self.host, "Authorization": f"Bearer {self.token}", "Origin": f"http://{self.host}"}
        if body is not None and not isinstance(body, bytes):
            body, usual["Content-Type"] = json.dumps(body).encode(), "application/json"
        usual = {**usual, **(headers or {}), **changes}
        connection = http.client.HTTPConnection(self.host, timeout=LIMIT)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for key, value in usual.items():
                if value is not None:
                    connection.putheader(key, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path):
        return self.ask("GET", path)

    @property
    def status(self):
        return self.get("/api/state").json["status"]

    def photographs(self):
        """{name: photograph}"""
        return {one["name"]: one for one in self.get("/api/photographs").json["photographs"]}

    def tag(self, **tags):
        """tag(a=[1], b=None): the tags of a.jpg and b.jpg, with their present revisions."""
        there = self.photographs()
        return self.ask("PUT", "/api/tags", {"changes": [
            {"number": there[f"{name}.jpg"]["number"], "revision": there[f"{name}.jpg"]["revision"], "tags": labels}
            for name, labels in tags.items()]})

    def wait(self, until):
        """The status when until(status) is true."""
        def found():
            self.last = self.status
            return until(self.last)
        wait_for(found, lambda: self.last)
        return self.last

    def train(self, **options):
        answer = self.ask("POST", "/api/train", options)
        assert answer.status == 202, answer.body
        status = self.wait(lambda status: status["training"]["phase"] == "idle")
        assert status["training"]["problem"] is None and status["model"]["final"], status
        return status


def descendants(pid):
    """{process: command line} of all that a process has started, and that they have."""
    parents, commands = {}, {}
    for place in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{place}/cmdline") as file, open(f"/proc/{place}/stat") as stat:
                commands[int(place)] = file.read().replace("\0", " ")
                state, parent, *_ = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        if state not in "ZX":
            parents[int(place)] = int(parent)
    found, new = {}, {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        found.update((child, commands[child]) for child in new)
    return found
