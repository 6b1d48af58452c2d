"""`tulle select decide`: auctions in, choices out."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.clean_stop import stopping_cleanly
from tulle.cli.data_progress import showing_progress
from tulle.cli.json_schema import SelectSchema
from tulle.cli.ledger_options import LedgerOptions
from tulle.cli.option_class import command_taking
from tulle.cli.release_output import print_facts
from tulle.cli.select_options import (
    OUTPUT,
    PRIVACY,
    AuctionsFile,
    ColumnOptions,
    OutputOptions,
    SelectionFile,
)

if TYPE_CHECKING:
    from tulle.privacy.plan import Plan
    from tulle.runs.record import Result
    from tulle.select.decisions.selection_record import SelectionRecord

DECIDE_EPILOG = (
    "Example: tulle select decide selection.toml auctions.parquet --output choices.parquet"
    "\n\nExample: tulle select decide selection.toml auctions.jsonl --output choices.jsonl "
    "--ledger ledger.db"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecideCommandOptions(OutputOptions, LedgerOptions, ColumnOptions):
    """Options of decisions."""

    selection: SelectionFile
    auctions: AuctionsFile
    output: Annotated[
        Path,
        typer.Option(
            help="New file of choices (.parquet, .jsonl or .csv); a record and a card go beside "
            "it.",
            rich_help_panel=OUTPUT,
        ),
    ]
    seed: Annotated[
        int | None,
        typer.Option(
            help="Make the draws repeatable. Then they are not private.",
            min=0,
            rich_help_panel=PRIVACY,
        ),
    ] = None
    json_schema: SelectSchema = False


def decide(options: DecideCommandOptions) -> None:
    """Draw the ad of every auction, privately, and write choices with a record and a card.

    All scores are checked first; then the ledger is charged; then each auction is drawn, once.
    The same command with the same ledger gives back the stored choices and spends nothing.
    Choices leave exactly as drawn, so counts and bills need no further noise.
    """
    from tulle.select import decide as decide_auctions

    with (
        stopping_cleanly("stopped as asked, nothing is out; run the same command again."),
        showing_progress("decide auctions", quiet=options.quiet) as report,
    ):
        result = decide_auctions(
            options.selection,
            options.auctions,
            columns=options.columns(),
            output=options.output,
            ledger=options.ledger,
            purpose=options.purpose,
            at=options.at,
            until=options.until,
            again=options.again,
            seed=options.seed,
            watch=lambda rows: report(rows, 0, 0),
        )
    _print_result(result, options.output, as_json=options.as_json)


def _print_result(result: "Result[SelectionRecord, Plan]", output: Path, *, as_json: bool) -> None:
    from tulle.runs.release_files import card_path, record_path

    record = result.record
    facts: dict[str, object] = {
        "choices": str(output),
        "record": str(record_path(output)),
        "card": str(card_path(output)),
        "auctions": record.num_requests,
        "without_ad": record.num_without_ad,
        "personalised": record.num_personalised,
        "mechanism": record.plan.mechanism,
        "guarantee": str(record.plan.guarantee),
        "stored_before": result.is_stored,
        "verdict": result.card.verdict,
    }
    print_facts(facts, as_json=as_json)
    if as_json:
        return
    if not record.num_personalised and record.plan.guarantee.epsilon > 0:
        typer.echo(
            "no decision was personalised: see consent, least_finalists and min_cell_size of the "
            "settings.",
            err=True,
        )
    if result.is_stored:
        typer.echo("nothing was spent: the stored choices were returned.", err=True)


decide_command = command_taking(DecideCommandOptions, decide)
