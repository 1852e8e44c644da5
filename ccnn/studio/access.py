"""Access control: only this machine's own page, opened with the address that the program printed.

1. Host names this server: no other name that a browser resolves to this machine (DNS rebinding).
2. Origin, and what browsers say of a request's beginning, names this server: no page of somebody else.
3. A secret came along. There are three, and none is taken in the place of another:
     the token    in the printed address, or as `Authorization: Bearer`
     a ticket     in the address that our own file sends the browser to, once
     the cookie   which both are exchanged for; a browser shows it to every port of this machine
"""
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

UNSAFE = {"POST", "PUT", "DELETE", "PATCH"}

AT_ONCE = 300           # requests with a secret that are answered at the same time, pages that listen included

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
                               "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class AccessControl:
    """ASGI middleware."""

    def __init__(self, app, port: int, token: str) -> None:
        self.app, self.token, self.name = app, token, f"ccnn-studio-{port}"
        self.cookie, self.tickets, self.running = secrets.token_urlsafe(24), set[str](), 0
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    def new_ticket(self) -> str:
        """A secret that opens the page once."""
        self.tickets.add(ticket := secrets.token_urlsafe(24))
        return ticket

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def send_with_headers(message):
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((key.lower().encode(), value.encode())
                                                             for key, value in HEADERS.items())]
            await send(message)

        answer = self.refusal(scope)
        if answer:
            answer.headers["Connection"] = "close"          # a stranger's connection ends with the answer
            return await answer(scope, receive, send_with_headers)
        self.running += 1
        try:
            await self.app(scope, receive, send_with_headers)
        finally:
            self.running -= 1

    def refusal(self, scope):
        """What to answer instead of the page; None: go on."""
        headers: dict = {}
        for key, value in scope["headers"]:
            headers.setdefault(key.decode("latin-1"), []).append(value.decode("latin-1"))
        asked = parse_qs(scope["query_string"].decode("latin-1")) if scope["path"] == "/" else {}
        return self.wrong_host(headers) or self.opened(scope, asked) or self.wrong_page(headers) or \
            self.wrong_secret(scope, asked, headers)

    def wrong_host(self, headers: dict):
        host = headers.get("host", [])
        if len(host) != 1 or host[0] not in self.hosts:
            return error(403, "this address is not the studio's; open the one that it printed")
        return None

    def opened(self, scope, asked: dict):
        """The page for a ticket. The browser comes from a file: it would send no strict cookie along if it were
        redirected, but does so when a page of ours sends it on."""
        ticket = next((one for one in self.tickets if same(asked.get("ticket", [""])[0], one)), None)
        if not ticket or scope["method"] != "GET":
            return None
        self.tickets.remove(ticket)
        return self.with_cookie(HTMLResponse(forward("/"), headers={"Cache-Control": "no-store"}))

    def wrong_page(self, headers: dict):
        if any(one != f"http://{headers['host'][0]}" for one in headers.get("origin", [])) or \
                any(one not in ("same-origin", "none") for one in headers.get("sec-fetch-site", [])):
            return error(403, "this request comes from another page")
        return None

    def wrong_secret(self, scope, asked: dict, headers: dict):
        if scope["method"] in ("GET", "HEAD") and same(asked.get("token", [""])[0], self.token):
            return self.with_cookie(RedirectResponse("/", 303))
        bearer = [value[7:] for value in headers.get("authorization", []) if value.startswith("Bearer ")]
        if not any(same(one, self.token) for one in bearer):
            if not any(same(one, self.cookie) for one in self.cookies(headers)):
                return error(401, "open the address that the studio printed when it was started")
            if scope["method"] in UNSAFE and "origin" not in headers:
                return error(403, "this request does not say which page it comes from")
        if self.running >= AT_ONCE:
            return error(503, f"{AT_ONCE} requests are being answered; close some pages")
        return None

    def with_cookie(self, answer: Response) -> Response:
        answer.set_cookie(self.name, self.cookie, httponly=True, samesite="strict", path="/")
        return answer

    def cookies(self, headers: dict) -> list:
        found = []
        for text in headers.get("cookie", []):
            try:
                morsel = SimpleCookie(text).get(self.name)
            except CookieError:
                continue
            found += [morsel.value] if morsel else []
        return found


def same(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())


def forward(address: str) -> str:
    """A page that sends the browser on."""
    return f'<!DOCTYPE html><meta charset="utf-8"><meta name="referrer" content="no-referrer">' \
           f'<meta http-equiv="refresh" content="0; url={address}"><title>CCNN studio</title>'


def error(status: int, text: object, **more) -> Response:
    line = " ".join(str(text).split()).encode("utf-8", "replace").decode()          # half a character is no JSON
    return JSONResponse({"error": line, **more}, status)
