"""The studio's server: one socket on this machine's own address, one token, one session.

A connection is anybody's until its first request has shown a secret. Those that still owe it do not keep others out:
each has a few seconds, and if there are too many, the one that has waited longest ends. A request without a secret ends
its connection, too (ccnn.studio.access).
"""
import asyncio
import contextlib
import os
import secrets
import socket
import sys
import webbrowser
from pathlib import Path
from typing import Callable, Optional

from ccnn._util.errors import UserError
from ccnn._util.files import save
from ccnn._util.foreign_files import parse_json
from ccnn._util.work_folder import WORK

PATIENCE = 10           # seconds from the beginning of a request to the end of its headers

STRANGERS = 100         # connections without any request yet


def connection_class():
    """A kind of uvicorn's connections."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Connection(H11Protocol):
        """A connection that ends if it does not ask in time."""

        strangers: dict = {}            # the connections without any request yet, in the order in which they came

        def connection_made(self, transport) -> None:
            super().connection_made(transport)
            self.timer: Optional[asyncio.TimerHandle] = None
            self.strangers[self] = True
            if len(self.strangers) > STRANGERS:
                next(iter(self.strangers)).end()
            self.watch()

        def connection_lost(self, exc) -> None:
            super().connection_lost(exc)
            self.forget()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch()

        def watch(self) -> None:
            """Give the headers their time: from the first byte, or from the beginning of the connection."""
            if self.conn.their_state is not h11.IDLE:           # they have come
                self.forget()
            elif not self.timer:
                self.timer = self.loop.call_later(PATIENCE, self.end)

        def forget(self) -> None:
            self.strangers.pop(self, None)
            if self.timer:
                self.timer.cancel()
                self.timer = None

        def end(self) -> None:
            self.forget()
            self.transport.abort()
    return Connection


def last_port(folder: Path) -> list:
    """[port] of the last studio on the folder; [] if there was none. A browser keeps what waits under the address, and
    lets in a page that is still open."""
    try:
        port = parse_json(folder / WORK / "studio/port")
    except (OSError, ValueError):
        return []
    return [port] if type(port) is int and 1024 <= port < 1 << 16 else []


def find_port(*wanted: int, host: str = "127.0.0.1") -> socket.socket:
    """A socket, by default on this machine's own address, on the first port that is free; if none is, on another."""
    for port in (*wanted, 0):
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, port))
            found.listen(128)
            return found
        except OSError:
            found.close()
    raise UserError(f"no port is free on {host}; end some programs, or name an address of this machine")


def configuration(app):
    """How uvicorn runs an application of ours."""
    import uvicorn
    return uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, ws="none",
        http=connection_class(), loop="asyncio", lifespan="on", timeout_graceful_shutdown=2, timeout_keep_alive=60)


async def serve(folder: Path, opened: socket.socket, steps: Optional[int], quiet: bool,
                announce: Callable[[str], None]) -> None:
    """announce : takes the address of the page, as soon as it can be opened"""
    import uvicorn

    from ccnn.studio.access import AccessControl, forward
    from ccnn.studio.routes import application
    from ccnn.studio.session import Session
    port, token = opened.getsockname()[1], secrets.token_urlsafe(24)
    session = Session(folder, steps)
    access = AccessControl(application(session), port, token)
    opener = session.place / "open.html"

    class Server(uvicorn.Server):
        def handle_exit(self, sig, frame):
            session.hub.close()                    # pages listen for ever: let them go first
            super().handle_exit(sig, frame)

        async def startup(self, sockets=None):
            await super().startup(sockets)
            save(session.place / "port", str(port).encode())
            announce(f"http://127.0.0.1:{port}/?token={token}")
            if not quiet and (os.environ.get("DISPLAY") or sys.platform == "darwin"):
                # Everybody may read the arguments of a browser, so they name a file that nobody else may read. It lies
                # with the photographs, because a browser in a sandbox does not see the folders for temporary files.
                save(opener, forward(f"http://127.0.0.1:{port}/?ticket={access.new_ticket()}").encode(), 0o600)
                await asyncio.to_thread(webbrowser.open, opener.resolve().as_uri())

    try:
        await Server(configuration(access)).serve(sockets=[opened])
    finally:
        with contextlib.suppress(FileNotFoundError):
            opener.unlink()
