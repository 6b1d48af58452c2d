"""`tulle select bill`: exact counts and amounts for choices."""

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.option_class import command_taking
from tulle.cli.select_options import AuctionsFile, ChoicesFile, ColumnOptions, SelectionFile

if TYPE_CHECKING:
    from tulle.select.deciding.file_bills import FileBill

BILL_EPILOG = (
    "Example: tulle select bill selection.toml auctions.parquet choices.parquet --out bill.csv"
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
            help="auction_id of each click, for prices of clicks. Nothing protects clicks."
        ),
    ] = None
    out: Annotated[Path | None, typer.Option(help="CSV file with one line an ad.")] = None
    top: Annotated[int, typer.Option(min=0, help="Ads to print, by amount.")] = 10
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


def bill(options: BillOptions) -> None:
    """Count impressions and add up what each ad pays, exactly.

    Prices follow from public columns; private predictions are not read. A bill is
    post-processing of choices that are out already, so it costs nothing. Amounts are whole
    millionths of the currency.
    """
    from tulle.errors import ConfigError, RunStateError
    from tulle.runs.whole_files import reporting_disk_errors, write_text
    from tulle.select.deciding.file_bills import bill_file
    from tulle.select.settings_file import read_settings

    if options.out is not None and options.out.suffix != ".csv":
        raise ConfigError(f"--out {options.out} must end in .csv, which it will be.")
    if options.out is not None and options.out.exists():
        raise RunStateError(f"{options.out.name} exists already; name another file.")
    config = read_settings(options.selection)
    made = bill_file(
        config, options.auctions, options.choices, columns=options.columns(), clicks=options.clicks
    )
    if options.out is not None:
        with reporting_disk_errors(options.out):
            write_text(options.out, _csv_text(made))
    if options.as_json:
        typer.echo(json.dumps(_facts(made, config.pricing.name), allow_nan=False))
        return
    _print(made, config.pricing.name, options.top)


def _facts(made: "FileBill", pricing: str) -> dict[str, object]:
    return {
        "pricing": pricing,
        "paid_event": made.bill.paid_event.value,
        "impressions": made.bill.num_impressions,
        "auctions_without_choice": made.num_without_choice,
        "total": made.bill.total,
        "lines": [
            {
                "ad": ad,
                "impressions": line.impressions,
                "clicks": line.clicks,
                "amount": line.amount,
            }
            for ad, line in zip(made.ads, made.bill.lines, strict=True)
        ],
    }


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


def _csv_text(made: "FileBill") -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["ad", "impressions", "clicks", "amount"])
    for ad, line in zip(made.ads, made.bill.lines, strict=True):
        clicks = "" if line.clicks is None else line.clicks
        writer.writerow([ad, line.impressions, clicks, line.amount])
    return text.getvalue()


bill_command = command_taking(BillOptions, bill)
