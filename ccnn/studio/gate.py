"""Who may ask: this machine's own page, opened with the address that the program printed.

1. Host names this server: no other name that a browser resolves to this machine (DNS rebinding).
2. Origin, and what browsers say of a request's beginning, names this server: no page of somebody else.
3. The token came along: in the printed address, then in a cookie of this port, or as `Authorization: Bearer`.
"""
import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.responses import JSONResponse, RedirectResponse, Response

UNSAFE = {"POST", "PUT", "DELETE", "PATCH"}

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
                               "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Gate:
    """ASGI middleware."""

    def __init__(self, app, port: int, token: str) -> None:
        self.app, self.token, self.cookie = app, token, f"ccnn-studio-{port}"
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def send_with_headers(message):
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((key.lower().encode(), value.encode())
                                                             for key, value in HEADERS.items())]
            await send(message)

        answer = self.refusal(scope)
        await (answer or self.app)(scope, receive, send_with_headers)

    def refusal(self, scope):
        """What to answer instead of the page; None: go on."""
        headers: dict = {}
        for key, value in scope["headers"]:
            headers.setdefault(key.decode("latin-1"), []).append(value.decode("latin-1"))
        return self.wrong_place(headers) or self.wrong_token(scope, headers)

    def wrong_place(self, headers: dict):
        host = headers.get("host", [])
        if len(host) != 1 or host[0] not in self.hosts:
            return error(403, "this address is not the studio's; open the one that it printed")
        if any(one != f"http://{host[0]}" for one in headers.get("origin", [])) or \
                any(one not in ("same-origin", "none") for one in headers.get("sec-fetch-site", [])):
            return error(403, "this request comes from another page")
        return None

    def wrong_token(self, scope, headers: dict):
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and scope["method"] in ("GET", "HEAD") and self.is_token(asked):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
            return answer
        bearer = [value[7:] for value in headers.get("authorization", []) if value.startswith("Bearer ")]
        if any(map(self.is_token, bearer)):
            return None
        if not any(map(self.is_token, self.cookies(headers))):
            return error(401, "open the address that the studio printed when it was started")
        if scope["method"] in UNSAFE and "origin" not in headers:
            return error(403, "this request does not say which page it comes from")
        return None

    def cookies(self, headers: dict) -> list:
        found = []
        for text in headers.get("cookie", []):
            try:
                morsel = SimpleCookie(text).get(self.cookie)
            except CookieError:
                continue
            found += [morsel.value] if morsel else []
        return found

    def is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())


def error(status: int, text: object, **more) -> Response:
    return JSONResponse({"error": " ".join(str(text).split()), **more}, status)
