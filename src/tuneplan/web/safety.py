"""Who may ask, how much, and what a browser may do with the answer.

The page listens on this machine alone, yet any site that the user visits can make the browser ask
it. So the name that was asked for must be one of ours (DNS rebinding), what other sites start is
refused (``Sec-Fetch-Site``, ``Origin``), and answers are not framed, sniffed or read by others.
Source: www.w3.org/TR/fetch-metadata, www.w3.org/TR/CSP3, OWASP "Cross-Site Request Forgery".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from tuneplan.language import say
from tuneplan.web.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LONGEST_TARGET: Final = 32 * 2**10
_METHODS: Final = ("GET", "HEAD", "POST")
CONTENT_POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
# Not "no-referrer": with that, a form that is sent without scripts has the origin "null" (Fetch,
# "append a request Origin header"), and would be taken for somebody else's.
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class TooLarge(Exception):
    """More was sent than is taken."""


class Safety:
    """The first thing that a request meets."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or hand on with a limit on the body and our headers on the answer."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._refused(scope)
        if refused is not None:
            await refused(scope, receive, _with_headers(send))
            return
        try:
            await self.app(scope, self._limited(receive), _with_headers(send))
        except TooLarge:
            answer = _plain(413, say("more was sent than is taken"))
            await answer(scope, receive, _with_headers(send))

    def _refused(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if _host_name(headers.get("host", "")) not in self.settings.hosts:
            return _plain(421, say("this page answers on this machine alone"))
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _LONGEST_TARGET:
            return _plain(414, say("the address is too long"))
        if scope["method"] not in _METHODS:
            return _plain(405, say("only GET and POST are answered"), Allow=", ".join(_METHODS))
        if _from_elsewhere(scope["method"], headers):
            return _plain(403, say("another site asked for this"))
        length = headers.get("content-length", "0")
        if (
            not (length.isascii() and length.isdigit())
            or int(length[:18]) > self.settings.upload_limit_bytes
        ):
            return _plain(413, say("more was sent than is taken"))
        return None

    def _limited(self, receive: Receive) -> Receive:
        left = self.settings.upload_limit_bytes

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise TooLarge
            return message

        return counted


def _plain(status: int, text: str, **headers: str) -> PlainTextResponse:
    return PlainTextResponse(text + "\n", status_code=status, headers=headers)


def _host_name(host: str) -> str:
    """``127.0.0.1:8000`` without its port."""
    name, colon, port = host.strip().lower().rpartition(":")
    return name if colon and port.isdigit() else host.strip().lower()


def _from_elsewhere(method: str, headers: Headers) -> bool:
    """Whether another site started this: anything but a link that somebody followed."""
    site = headers.get("sec-fetch-site", "none")
    if site not in ("same-origin", "none"):
        followed = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if not followed or headers.get("sec-fetch-dest", "document") != "document":
            return True
    origin = headers.get("origin")
    if method != "POST" or origin is None:
        return False
    try:
        said = urlsplit(origin)
    except ValueError:
        return True
    ours = headers.get("host", "").strip().lower()
    return said.scheme not in ("http", "https") or said.netloc.lower() != ours


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if "cache-control" not in headers:
                headers["Cache-Control"] = "no-store"
        await send(message)

    return sent


def encoded(text: str) -> bytes:
    """UTF-8; halves of surrogate pairs, which escapes in YAML and JSON can name, become ``?``."""
    return text.encode("utf-8", "replace")


def cookie(response: Any, name: str, value: str) -> None:
    """Keep a choice of the reader's; nothing else is ever kept."""
    response.set_cookie(name, value, max_age=365 * 24 * 3600, samesite="lax", httponly=True)
