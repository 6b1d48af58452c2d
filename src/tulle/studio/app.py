"""The pages and answers of the studio. Every one of them reads; none spends, writes or deletes."""

import dataclasses
import functools
from collections.abc import Callable
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tulle.errors import TulleError
from tulle.studio.access import Access, GuardedApp
from tulle.studio.answering import PANELS, Answers
from tulle.studio.fields import Field, named_field, read_fields
from tulle.studio.ledger_panel import ledger_state
from tulle.studio.runs_panel import finished_runs, stored_report
from tulle.studio.select_panel import AUCTIONS_FILE, MARKET_FIELDS, auctions_text
from tulle.studio.settings import StudioConfig

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_PAGE = "index.html"
_REPORT_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


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
        return Response(self._assets[_PAGE], media_type="text/html")

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
        try:
            page = await self._answers.run(
                functools.partial(stored_report, self._config.runs, name)
            )
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
