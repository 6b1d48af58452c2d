"""`tulle select decide`: auctions in, choices out."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.clean_stop import stopping_cleanly
from tulle.cli.data_progress import showing_progress
from tulle.cli.ledger_options import LedgerOptions, charge_of
from tulle.cli.option_class import command_taking
from tulle.cli.select_options import AuctionsFile, ColumnOptions, OutputOptions, SelectionFile

if TYPE_CHECKING:
    from tulle.report.card import Card
    from tulle.select.deciding.deciding import DecideResult

DECIDE_EPILOG = (
    "Example: tulle select decide selection.toml auctions.parquet --out choices.parquet"
    "\n\nExample: tulle select decide selection.toml auctions.jsonl --out choices.jsonl --ledger "
    "ledger.db"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecideCommandOptions(OutputOptions, LedgerOptions, ColumnOptions):
    """Options of decisions."""

    selection: SelectionFile
    auctions: AuctionsFile
    out: Annotated[
        Path,
        typer.Option(help="New file of choices (.parquet, .jsonl or .csv); a card goes beside it."),
    ]
    seed: Annotated[
        int | None,
        typer.Option(help="Makes the draws repeatable. Then they are not private.", min=0),
    ] = None


def decide(options: DecideCommandOptions) -> None:
    """Draw the ad of every auction, privately, and write choices with a record and a card.

    All scores are checked first; then the ledger is charged; then each auction is drawn, once.
    The same command with the same ledger gives back the stored choices and spends nothing.
    Choices leave exactly as drawn, so counts and bills need no further noise.
    """
    from tulle.mechanisms.entropy import SeededNoise, release_rng
    from tulle.report.card_file import write_card
    from tulle.report.select_card import select_card
    from tulle.runs.whole_files import reporting_disk_errors
    from tulle.select.deciding.deciding import DecideOptions
    from tulle.select.deciding.deciding import decide as decide_file
    from tulle.select.settings_file import read_settings

    config = read_settings(options.selection)
    charge = charge_of(options, default_purpose="select")
    rng = release_rng() if options.seed is None else SeededNoise(options.seed)
    with (
        stopping_cleanly("stopped as asked, nothing is out; run the same command again."),
        showing_progress("decide auctions", quiet=options.quiet) as report,
    ):
        result = decide_file(
            config,
            options.auctions,
            options.out,
            columns=options.columns(),
            rng=rng,
            options=DecideOptions(
                charge=charge, again=options.again, watch=lambda rows: report(rows, 0, 0)
            ),
        )
    card = select_card(result.record)
    card_name = f"{options.out.stem}.card"
    with reporting_disk_errors(options.out.with_name(f"{card_name}.json")):
        write_card(options.out.parent, card, name=card_name)
    _print_result(result, card, card_name, as_json=options.as_json)


def _print_result(result: "DecideResult", card: "Card", card_name: str, *, as_json: bool) -> None:
    from tulle.runs.release_files import record_path

    record = result.record
    facts: dict[str, object] = {
        "choices": str(result.table),
        "record": str(record_path(result.table)),
        "card": str(result.table.with_name(f"{card_name}.json")),
        "auctions": record.num_requests,
        "without_ad": record.num_without_ad,
        "personalised": record.num_personalised,
        "mechanism": record.plan.mechanism,
        "guarantee": str(record.plan.guarantee),
        "stored_before": result.is_stored,
        "verdict": card.verdict,
    }
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for name, value in facts.items():
        is_count = isinstance(value, int) and not isinstance(value, bool)
        typer.echo(f"{name.replace('_', ' '):<16}{f'{value:,}' if is_count else value}")
    if not record.num_personalised and record.plan.guarantee.epsilon > 0:
        typer.echo(
            "no decision was personalised: see consent, least_finalists and min_cell_size of the "
            "settings.",
            err=True,
        )
    if result.is_stored:
        typer.echo("nothing was spent: the stored choices were returned.", err=True)


decide_command = command_taking(DecideCommandOptions, decide)
