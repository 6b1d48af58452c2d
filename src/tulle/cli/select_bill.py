"""`tulle select bill`: exact counts and amounts for choices."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.option_class import command_taking
from tulle.cli.select_options import (
    DATA,
    OUTPUT,
    AuctionsFile,
    ChoicesFile,
    ColumnOptions,
    SelectionFile,
)

if TYPE_CHECKING:
    from tulle.select.decisions.bills import FileBill

BILL_EPILOG = (
    "Example: tulle select bill selection.toml auctions.parquet choices.parquet --output bill.csv"
    "\n\nExample: tulle select bill per-click.toml auctions.parquet choices.parquet --clicks "
    "clicks.csv --json"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BillOptions(ColumnOptions):
    """Options of a bill."""

    selection: SelectionFile
    auctions: AuctionsFile
    choices: ChoicesFile
    clicks: Annotated[
        Path | None,
        typer.Option(
            help="File with the auction_id of each click, for prices of clicks. Nothing protects "
            "clicks.",
            rich_help_panel=DATA,
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(help="New CSV file with one line an ad.", rich_help_panel=OUTPUT),
    ] = None
    top: Annotated[
        int, typer.Option(min=0, help="Number of ads to print, by amount.", rich_help_panel=OUTPUT)
    ] = 10
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)] = (
        False
    )


def bill(options: BillOptions) -> None:
    """Count impressions and add up what each ad pays, exactly.

    Prices follow from public columns; private predictions are not read. A bill is
    post-processing of choices that are out already, so it costs nothing. Amounts are whole
    millionths of the currency.
    """
    from tulle.select import bill as bill_choices
    from tulle.select import selection_of

    config = selection_of(options.selection)
    made = bill_choices(
        config,
        options.auctions,
        options.choices,
        clicks=options.clicks,
        columns=options.columns(),
        output=options.output,
    )
    if options.as_json:
        facts = {"pricing": config.pricing.name, **made.to_dict()}
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    _print(made, config.pricing.name, options.top)


def _print(made: "FileBill", pricing: str, top: int) -> None:
    bill = made.bill
    typer.echo(f"pricing         {pricing}, paid by {bill.paid_event.value}")
    typer.echo(f"impressions     {bill.num_impressions:,}")
    if made.num_without_choice:
        typer.echo(f"without choice  {made.num_without_choice:,} auctions, which nobody pays")
    typer.echo(f"ads             {len(bill.lines):,}")
    typer.echo(f"total           {bill.total}")
    pairs = sorted(zip(made.ads, bill.lines, strict=True), key=lambda pair: -pair[1].amount_micros)
    for ad, line in pairs[:top]:
        clicks = "" if line.clicks is None else f", {line.clicks:,} clicks"
        typer.echo(f"  ad {ad}: {line.impressions:,} impressions{clicks}, {line.amount}")


bill_command = command_taking(BillOptions, bill)
