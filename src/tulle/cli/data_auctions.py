"""`tulle data auctions`: auctions from a log of shown ads."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.data_log import AsJson, Quiet
from tulle.cli.data_progress import showing_progress
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.data.auction_log_rows import LogColumns
    from tulle.data.auctions_from_log import AuctionLogFacts

AUCTIONS_EPILOG = (
    "Example: tulle data auctions log.parquet --output auctions.parquet --server-predictions "
    "server.parquet --device-predictions device.parquet"
    "\n\nExample: tulle data auctions raw_sample.csv --format taobao --ad-table ad_feature.csv "
    "--output auctions.parquet --server-predictions server.parquet --device-predictions "
    "device.parquet --bid-factor 0.001"
)

_TAOBAO = "taobao"
_WARNING = (
    "the file holds predictions made from private data, and the figures are exact: keep both "
    "with the log."
)

_Log = Annotated[
    Path, typer.Argument(help="Log of shown ads: Parquet, CSV or JSON lines, one row an ad.")
]
_Output = Annotated[
    Path,
    typer.Option("--output", "--out", help="File of auctions: .parquet, .csv or .jsonl."),
]
_Format = Annotated[
    str | None,
    typer.Option("--format", help="taobao: the columns of raw_sample.csv and ad_feature.csv."),
]
_User = Annotated[str | None, typer.Option(help="Column of the user [default: user_id].")]
_Time = Annotated[
    str | None, typer.Option(help="Column of the time: whole seconds [default: timestamp].")
]
_Ad = Annotated[str | None, typer.Option(help="Column of the ad [default: ad_id].")]
_Price = Annotated[
    str | None, typer.Option(help="Column of the price, in log or table of ads [default: price].")
]
_Click = Annotated[
    str | None, typer.Option(help="Column that says whether the ad was clicked, to keep it.")
]
_AdTable = Annotated[Path | None, typer.Option(help="File with one row an ad and its price.")]
_ServerPredictions = Annotated[
    Path | None,
    typer.Option(
        help="Chances of a click by public data: Parquet with row (of the log, from 0) and "
        "probability, as tulle train --predictions writes it."
    ),
]
_DevicePredictions = Annotated[
    Path | None, typer.Option(help="The same by private data too. They stay raw.")
]
_Consent = Annotated[
    str | None, typer.Option(help="Column that says who agreed to personalised ads, to keep it.")
]
_ServerColumn = Annotated[
    str | None, typer.Option(help="Or: column of the log with the chances by public data.")
]
_DeviceColumn = Annotated[
    str | None, typer.Option(help="Or: column of the log with the chances by private data.")
]
_BidFactor = Annotated[float, typer.Option(help="Bid for a click divided by the price.")]
_MinCandidates = Annotated[int, typer.Option(help="Leave out auctions with fewer candidates.")]


def auctions(
    log: _Log,
    output: _Output,
    format_name: _Format = None,
    user: _User = None,
    time: _Time = None,
    ad: _Ad = None,
    price: _Price = None,
    click: _Click = None,
    consent: _Consent = None,
    ad_table: _AdTable = None,
    server_predictions: _ServerPredictions = None,
    device_predictions: _DevicePredictions = None,
    server_column: _ServerColumn = None,
    device_column: _DeviceColumn = None,
    bid_factor: _BidFactor = 1.0,
    min_candidates: _MinCandidates = 2,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make auctions of a log: ads shown to one user at one time compete for one slot.

    Bids are prices times a factor. The least server score is printed, for a reserve. An ad that
    an auction has twice is merged into its first row. Auctions in which a candidate lacks a
    prediction of the server are left out.

    Predictions name rows of this log: give the log that was predicted, whole, and prepare it
    without leaving out rows. The models should not have been trained on these rows.
    """
    from tulle.data.auction_log_rows import LogSources
    from tulle.data.auctions_from_log import AuctionLogConfig, write_auctions_from_log

    named = {
        "user": user,
        "time": time,
        "ad": ad,
        "price": price,
        "click": click,
        "consent": consent,
        "server_prob": server_column,
        "device_prob": device_column,
    }
    config = AuctionLogConfig(
        columns=_columns(format_name, {role: name for role, name in named.items() if name}),
        bid_factor=bid_factor,
        min_candidates=min_candidates,
    )
    sources = LogSources(
        log=log,
        ad_table=ad_table,
        server_predictions=server_predictions,
        device_predictions=device_predictions,
    )
    for side in ("server", "device"):
        _check_one_source(named[f"{side}_prob"], getattr(sources, f"{side}_predictions"), side)
    with showing_progress("auctions", quiet=quiet) as report:
        facts = write_auctions_from_log(
            sources, output, config, progress=lambda rows: report(rows, 0, 0)
        )
    _print(facts, output, as_json=as_json)
    if not quiet:
        typer.echo(_WARNING, err=True)


def _columns(format_name: str | None, named: dict[str, str]) -> "LogColumns":
    import dataclasses

    from tulle.data.auction_log_rows import TAOBAO_COLUMNS, LogColumns
    from tulle.privacy.fields import did_you_mean

    if format_name not in (None, _TAOBAO):
        raise ConfigError(
            f"--format {format_name} is unknown{did_you_mean(format_name, [_TAOBAO])}; use "
            f"{_TAOBAO}, or name the columns."
        )
    start = LogColumns() if format_name is None else TAOBAO_COLUMNS
    return dataclasses.replace(start, **named)  # type: ignore[arg-type]


def _check_one_source(column: str | None, path: Path | None, side: str) -> None:
    if (column is None) == (path is None):
        raise ConfigError(
            f"give either --{side}-predictions FILE or --{side}-column NAME: the chances of a "
            f"click as the {side} predicts them."
        )


def _print(facts: "AuctionLogFacts", output: Path, *, as_json: bool) -> None:
    shown = {"output": str(output)} | facts.to_dict()
    if as_json:
        typer.echo(json.dumps(shown, allow_nan=False))
        return
    for name, value in shown.items():
        if value is not None:
            text = f"{value:,}" if isinstance(value, int) else value
            text = f"{value:.6g}" if isinstance(value, float) else text
            typer.echo(f"{name.replace('_', ' '):<30}{text}")
