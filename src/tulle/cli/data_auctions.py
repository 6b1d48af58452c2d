"""`tulle data auctions`: auctions from a log of shown ads."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.data_progress import showing_progress
from tulle.cli.option_class import command_taking
from tulle.cli.select_options import DATA, OUTPUT, OutputOptions

if TYPE_CHECKING:
    from tulle.select.files.auctions_from_log import AuctionLogFacts

AUCTIONS_EPILOG = (
    "Example: tulle data auctions log.parquet --output auctions.parquet --server-predictions "
    "server.parquet --device-predictions device.parquet"
    "\n\nExample: tulle data auctions raw_sample.csv --format taobao --ad-table ad_feature.csv "
    "--output auctions.parquet --server-predictions server.parquet --device-predictions "
    "device.parquet --bid-factor 0.001"
)

_COLUMNS, _PREDICTIONS, _AUCTIONS = "Columns", "Predictions", "Auctions"
_WARNING = (
    "the file holds predictions made from private data, and the figures are exact: keep both "
    "with the log."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuctionsOptions(OutputOptions):
    """Options of auctions from a log."""

    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG", help="Log of shown ads: Parquet, CSV or JSON lines, one row an ad."
        ),
    ]
    output: Annotated[
        Path,
        typer.Option(
            help="New file of auctions: .parquet, .csv or .jsonl.", rich_help_panel=OUTPUT
        ),
    ]
    ad_table: Annotated[
        Path | None,
        typer.Option(help="File with one row an ad and its price.", rich_help_panel=DATA),
    ] = None
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="taobao: the columns of raw_sample.csv and ad_feature.csv.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None
    user: Annotated[
        str | None,
        typer.Option(help="Column with the user [default: user_id].", rich_help_panel=_COLUMNS),
    ] = None
    time: Annotated[
        str | None,
        typer.Option(
            help="Column with the time, in whole seconds [default: timestamp].",
            rich_help_panel=_COLUMNS,
        ),
    ] = None
    ad: Annotated[
        str | None,
        typer.Option(help="Column with the ad [default: ad_id].", rich_help_panel=_COLUMNS),
    ] = None
    price: Annotated[
        str | None,
        typer.Option(
            help="Column with the price, in the log or in the table of ads [default: price].",
            rich_help_panel=_COLUMNS,
        ),
    ] = None
    click: Annotated[
        str | None,
        typer.Option(
            help="Column that says whether the ad was clicked, to keep it.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None
    consent: Annotated[
        str | None,
        typer.Option(
            help="Column that says who agreed to personalised ads, to keep it.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None
    server_predictions: Annotated[
        Path | None,
        typer.Option(
            help="Probabilities of a click by public data: Parquet with row (of the log, from 0) "
            "and probability, as tulle train --predictions writes it.",
            rich_help_panel=_PREDICTIONS,
        ),
    ] = None
    device_predictions: Annotated[
        Path | None,
        typer.Option(
            help="The same by private data too. They stay raw.", rich_help_panel=_PREDICTIONS
        ),
    ] = None
    server_column: Annotated[
        str | None,
        typer.Option(
            help="Or: column of the log with the probabilities by public data.",
            rich_help_panel=_PREDICTIONS,
        ),
    ] = None
    device_column: Annotated[
        str | None,
        typer.Option(
            help="Or: column of the log with the probabilities by private data.",
            rich_help_panel=_PREDICTIONS,
        ),
    ] = None
    bid_factor: Annotated[
        float,
        typer.Option(help="Bid for a click divided by the price.", rich_help_panel=_AUCTIONS),
    ] = 1.0
    min_candidates: Annotated[
        int,
        typer.Option(help="Leave out auctions with fewer candidates.", rich_help_panel=_AUCTIONS),
    ] = 2


def auctions(options: AuctionsOptions) -> None:
    """Make auctions of a log: ads shown to one user at one time compete for one slot.

    Bids are prices times a factor. The least server score is printed, for a reserve. An ad that
    an auction has twice is merged into its first row. Auctions in which a candidate lacks a
    prediction of the server are left out.

    Predictions name rows of this log: give the log that was predicted, whole, and prepare it
    without leaving out rows. The models should not have been trained on these rows.
    """
    from tulle.select import auctions_from_log

    named = {
        "user": options.user,
        "time": options.time,
        "ad": options.ad,
        "price": options.price,
        "click": options.click,
        "consent": options.consent,
        "server_prob": options.server_column,
        "device_prob": options.device_column,
    }
    with showing_progress("auctions", quiet=options.quiet) as report:
        facts = auctions_from_log(
            options.log,
            options.output,
            layout=options.format_name,
            columns={role: name for role, name in named.items() if name},
            ad_table=options.ad_table,
            server_predictions=options.server_predictions,
            device_predictions=options.device_predictions,
            bid_factor=options.bid_factor,
            min_candidates=options.min_candidates,
            watch=lambda rows: report(rows, 0, 0),
        )
    _print(facts, options.output, as_json=options.as_json)
    if not options.quiet:
        typer.echo(_WARNING, err=True)


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


auctions_command = command_taking(AuctionsOptions, auctions)
