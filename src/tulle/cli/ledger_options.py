"""Options of commands that a ledger pays for."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

_LEDGER = "Ledger"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LedgerOptions:
    """Who pays, for data of which time."""

    ledger: Annotated[
        Path | None,
        typer.Option(help="Ledger that is charged before the first draw.", rich_help_panel=_LEDGER),
    ] = None
    purpose: Annotated[
        str | None,
        typer.Option(
            help="Name of the purpose in the ledger [default: measure, labels or select, by "
            "command].",
            rich_help_panel=_LEDGER,
        ),
    ] = None
    at: Annotated[
        str | None,
        typer.Option(
            help="Date or time that the data are from, where a budget renews.",
            rich_help_panel=_LEDGER,
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(help="Last date or time of the data.", rich_help_panel=_LEDGER),
    ] = None
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Pay for a second release of the same data.",
            rich_help_panel=_LEDGER,
        ),
    ] = False
