"""The studio's server: one socket on this machine's own address, one token, one workshop."""
import asyncio
import os
import secrets
import socket
import sys
import webbrowser
from pathlib import Path
from typing import Optional

from ccnn._util.errors import UserError


def find_port(wanted: int) -> socket.socket:
    """A socket on this machine's own address; another port if the wanted one is taken."""
    for port in (wanted, 0):
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("127.0.0.1", port))
            found.listen(128)
            return found
        except OSError:
            found.close()
    raise UserError("no port is free on 127.0.0.1; end some programs")


async def serve(folder: Path, opened: socket.socket, steps: Optional[int], quiet: bool) -> None:
    import uvicorn

    from ccnn.studio.gate import Gate
    from ccnn.studio.routes import application
    from ccnn.studio.workshop import Workshop
    port, token = opened.getsockname()[1], secrets.token_urlsafe(24)
    workshop = Workshop(folder, steps)

    class Server(uvicorn.Server):
        def handle_exit(self, sig, frame):
            workshop.hub.close()                    # pages listen for ever: let them go first
            super().handle_exit(sig, frame)

        async def startup(self, sockets=None):
            await super().startup(sockets)
            address = f"http://127.0.0.1:{port}/?token={token}"
            print(address, flush=True)
            if not quiet and (os.environ.get("DISPLAY") or sys.platform == "darwin"):
                await asyncio.to_thread(webbrowser.open, address)

    await Server(uvicorn.Config(
        Gate(application(workshop), port, token), log_level="warning", access_log=False, server_header=False,
        proxy_headers=False, ws="none", http="h11", loop="asyncio", lifespan="on", timeout_graceful_shutdown=2,
        timeout_keep_alive=60, limit_concurrency=300)).serve(sockets=[opened])
