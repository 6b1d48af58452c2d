"""Serving the studio on this computer until it is stopped.

Every page and every answer reads; none spends, writes or deletes.
"""

import dataclasses
import functools
import socket
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tulle.errors import ConfigError, TulleError
from tulle.studio.access import LOOPBACK, Access, GuardedApp
from tulle.studio.answering import PANELS, Answers
from tulle.studio.panel import Field, named_field, read_fields
from tulle.studio.select_panel import AUCTIONS_FILE, MARKET_FIELDS, auctions_text
from tulle.studio.stored import finished_runs, ledger_state, stored_report

_GRACE_S = 1
"""Seconds that answers under way have when the studio stops."""

_MOST_PORT = 65_535
"""Ports of TCP have 16 bits."""

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


_REPORT_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudioConfig:
    """Settings of the studio. It listens on this computer alone; no setting changes that."""

    ledger: Path | None = None
    runs: Path | None = None
    """Runs are the folders directly below it."""
    port: int = 0
    """0 for one that is free."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= _MOST_PORT:
            raise ConfigError(
                f"port={self.port} must be from 1 to {_MOST_PORT}; leave it out for a free one."
            )
        if self.runs is not None and not self.runs.is_dir():
            raise ConfigError(
                f"runs={self.runs} is no folder; name the one that holds the folders of runs."
            )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Studio:
    """A studio that listens. Made by `open_studio`; requests wait until it is served."""

    access: Access
    listener: socket.socket
    answers: Answers
    server: uvicorn.Server

    @property
    def is_computing(self) -> bool:
        """Whether something is still being computed, also after it stopped."""
        return self.answers.is_busy

    @property
    def address(self) -> str:
        """Address of the page, with the token. A secret of whoever started it."""
        return self.access.address

    def serve(self) -> None:
        """Answers requests until `stop`, or until the process is interrupted.

        Raises:
          KeyboardInterrupt: Somebody pressed Ctrl-C; everything is closed by then.
        """
        try:
            self.server.run(sockets=[self.listener])
        finally:
            self.listener.close()

    def stop(self) -> None:
        """Ends `serve`, from any thread."""
        self.server.should_exit = True


def open_studio(config: StudioConfig) -> Studio:
    """Takes the port and checks what will be shown.

    Raises:
      ConfigError: The port is taken.
      RunStateError: The ledger cannot be read.
    """
    ledger_state(config.ledger)
    listener = _listen(config.port)
    access, answers = Access(port=listener.getsockname()[1]), Answers()
    settings = uvicorn.Config(
        make_app(config, access, answers),
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(settings, answers)
    return Studio(access=access, listener=listener, answers=answers, server=server)


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"port={port} cannot be used: {error.strerror}; choose another, or leave it out for a "
            "free one."
        ) from None
    return listener


class _Server(uvicorn.Server):
    """Lets go of answers under way when it stops, so that it stops at once."""

    def __init__(self, config: uvicorn.Config, answers: Answers) -> None:
        super().__init__(config)
        self._answers = answers

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._answers.stop()
        await super().shutdown(sockets)


def make_app(config: StudioConfig, access: Access, answers: Answers) -> ASGIApp:
    """The studio behind its guard.

    Args:
      config: Settings of the studio.
      access: Guard that lets requests with the right secret in.
      answers: What the panels answer, a few questions at a time.
    """
    studio = _Studio(config, answers)
    routes = [
        Route("/", studio.page),
        Route("/static/{name}", studio.asset),
        Route("/api/panels", studio.panels),
        Route("/api/answers/{name}", studio.answer),
        Route("/api/ledger", studio.ledger),
        Route("/api/runs", studio.runs),
        Route("/runs/{name}/report", studio.report),
        Route(f"/files/{AUCTIONS_FILE}", studio.auctions),
    ]
    return GuardedApp(Starlette(routes=routes), access)


class _Studio:
    def __init__(self, config: StudioConfig, answers: Answers) -> None:
        self._config = config
        self._answers = answers
        self._assets = _read_assets()

    async def page(self, _request: Request) -> Response:
        return Response(self._assets["index.html"], media_type="text/html")

    async def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._assets:
            return _not_found()
        ending = name[name.rindex(".") :]
        return Response(self._assets[name], media_type=_TYPES[ending])

    async def panels(self, _request: Request) -> Response:
        return JSONResponse([panel.to_dict() for panel in PANELS])

    async def answer(self, request: Request) -> Response:
        panel = self._answers.panel(request.path_params["name"])
        if panel is None:
            return _not_found()
        given = tuple(request.query_params.multi_items())
        try:
            return _data(await self._answers.ask(panel, given))
        except TulleError as error:
            return _error(error, panel.fields)

    async def ledger(self, _request: Request) -> Response:
        return await self._read(functools.partial(ledger_state, self._config.ledger))

    async def runs(self, _request: Request) -> Response:
        return await self._read(functools.partial(finished_runs, self._config.runs))

    async def report(self, request: Request) -> Response:
        name = request.path_params["name"]
        work = functools.partial(stored_report, self._config.runs, name)
        try:
            page = await self._answers.run(work)
        except TulleError as error:
            return _error(error, ())
        if page is None:
            return _not_found()
        policy = {"content-security-policy": _REPORT_POLICY}
        return Response(page, media_type="text/html", headers=policy)

    async def auctions(self, request: Request) -> Response:
        try:
            given = read_fields(MARKET_FIELDS, request.query_params.multi_items())
            text = await self._answers.run(functools.partial(auctions_text, given))
        except TulleError as error:
            return _error(error, MARKET_FIELDS)
        return PlainTextResponse(text)

    async def _read(self, work: Callable[[], Any]) -> Response:
        try:
            return _data(await self._answers.run(work))
        except TulleError as error:
            return _error(error, ())


def _read_assets() -> dict[str, bytes]:
    """Everything the page is made of, held in memory: no request leads to a file."""
    folder = resources.files("tulle.studio") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def _data(found: Any) -> Response:
    return JSONResponse(dataclasses.asdict(found))


def _error(error: TulleError, fields: tuple[Field, ...]) -> Response:
    found = {"error": str(error), "field": named_field(error, fields)}
    return JSONResponse(found, status_code=400)


def _not_found() -> Response:
    return PlainTextResponse("There is no such page.\n", status_code=404)
