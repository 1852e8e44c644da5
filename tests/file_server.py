"""A server of files that can fail, stall and cut connections."""
import contextlib
import http.server
import threading

from ccnn._util import download


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`. ranges: honours Range; cuts: bytes after which a request is cut, one entry a request;
    errors: statuses of the first requests; `asked` is the log: (path, Range header, bytes sent)."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ranges, self.cuts, self.errors, self.asked = {}, True, [], [], []
        self.stall = threading.Event()
        self.stall.set()

    def url(self, name):
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server, data = self.server, self.server.files.get(self.path[1:])
        wanted = self.headers.get("Range") if server.ranges else None
        start = int(wanted[6:-1]) if wanted else 0
        if data is None or server.errors:
            return self.send_error(server.errors.pop(0) if server.errors else 404)
        if start >= len(data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            return self.end_headers()
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(data) - start))
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        body = data[start:]
        if server.cuts:
            body = body[:server.cuts.pop(0)]
        server.asked.append((self.path[1:], self.headers.get("Range"), len(body)))
        self.wfile.write(body)
        self.wfile.flush()
        server.stall.wait(20)
        self.close_connection = True

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serving(monkeypatch, files):
    """A Server of {name: bytes}; between attempts nobody waits."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "pause", lambda failures: 0)
    server = Server()
    server.files = files
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.stall.set()
    server.shutdown()
    thread.join()
    server.server_close()
