"""Options of commands that a ledger pays for."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.time_spans import span_of
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.runs.release_books import ReleaseCharge


@dataclasses.dataclass(frozen=True, kw_only=True)
class LedgerOptions:
    """Who pays, for data of which time."""

    ledger: Annotated[Path | None, typer.Option(help="Is charged before the first draw.")] = None
    purpose: Annotated[
        str | None,
        typer.Option(
            help="What the ledger calls it [default: measure, labels or select, by command]."
        ),
    ] = None
    at: Annotated[
        str | None, typer.Option(help="When the data are from, where a budget renews.")
    ] = None
    until: Annotated[str | None, typer.Option(help="Last date or time of the data.")] = None
    again: Annotated[
        bool, typer.Option("--again", help="Pay for a second release of the same data.")
    ] = False


def charge_of(options: LedgerOptions, *, default_purpose: str) -> "ReleaseCharge | None":
    """What the options charge, None without a ledger."""
    from tulle.accounting.ledger import Ledger
    from tulle.runs.release_books import ReleaseCharge

    if options.ledger is None:
        for name in ("purpose", "at", "until"):
            if getattr(options, name) is not None:
                raise ConfigError(f"--{name} is for a ledger; give --ledger too, or leave it out.")
        if options.again:
            raise ConfigError("--again is for a ledger, which alone knows the first release.")
        return None
    first, last = span_of(options.at, options.until)
    return ReleaseCharge(
        ledger=Ledger.open(options.ledger),
        purpose=options.purpose or default_purpose,
        at=first,
        until=last,
    )
