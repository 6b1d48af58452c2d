"""Who may see the page: whoever was given the token, from this computer, under its own name.

The token comes once, in the address. It is exchanged for a cookie that scripts cannot read and
other sites cannot send, so that it leaves the address bar. Requests that name another host are
refused: a site elsewhere may point its name to this computer (DNS rebinding).
"""

import dataclasses
import hmac
import secrets
from importlib import resources

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"

_NAMES = (LOOPBACK, "localhost")
_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Access:
    """The secrets of one start of the studio. Never logged, gone when it stops."""

    port: int
    token: str = dataclasses.field(default_factory=lambda: secrets.token_urlsafe(32))
    """Secret in the address that is printed."""
    session: str = dataclasses.field(default_factory=lambda: secrets.token_urlsafe(32))
    """Secret in the cookie."""

    @property
    def address(self) -> str:
        """Address of the page, with the token."""
        return f"http://{LOOPBACK}:{self.port}/?token={self.token}"

    @property
    def cookie_name(self) -> str:
        """Browsers share cookies between ports, so the port is in the name."""
        return f"tulle-studio-{self.port}"

    def is_own_host(self, hosts: list[str]) -> bool:
        """Whether a request names this computer and this port, once."""
        return len(hosts) == 1 and hosts[0] in {f"{name}:{self.port}" for name in _NAMES}

    def is_token(self, text: str) -> bool:
        """Whether the text is right, in a time that does not tell how much of it is."""
        return hmac.compare_digest(text.encode(), self.token.encode())

    def is_session(self, text: str) -> bool:
        """Whether the text is right, in a time that does not tell how much of it is."""
        return hmac.compare_digest(text.encode(), self.session.encode())


class GuardedApp:
    """Lets requests through to an application that may see it, and seals its answers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; anything but HTTP goes to the application, which has no other."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer: ASGIApp = self._refusal(Request(scope)) or self._app

        async def send_sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await answer(scope, receive, send_sealed)

    def _refusal(self, request: Request) -> Response | None:
        """What to answer in place of the application; None lets the request through."""
        access = self._access
        if not access.is_own_host(request.headers.getlist("host")):
            return PlainTextResponse("This address is not the studio's.\n", status_code=421)
        if request.method != "GET":
            return PlainTextResponse(
                "The studio only reads.\n", status_code=405, headers={"allow": "GET"}
            )
        if request.url.path == "/" and access.is_token(request.query_params.get("token", "")):
            entered = RedirectResponse("/", status_code=303)
            entered.set_cookie(access.cookie_name, access.session, httponly=True, samesite="strict")
            return entered
        if access.is_session(request.cookies.get(access.cookie_name, "")):
            return None
        page = resources.files("tulle.studio") / "static" / "refused.html"
        return HTMLResponse(page.read_text(encoding="utf-8"), status_code=401)
