"""`tulle select decide`: auctions in, choices out."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.clean_stop import stopping_cleanly
from tulle.cli.data_progress import showing_progress
from tulle.cli.ledger_options import LedgerOptions, charge_of
from tulle.cli.option_class import command_taking
from tulle.cli.release_output import print_facts, write_card_beside
from tulle.cli.select_options import AuctionsFile, ColumnOptions, OutputOptions, SelectionFile

if TYPE_CHECKING:
    from tulle.report.card import Card
    from tulle.runs.release_once import Released
    from tulle.select.deciding.selection_record import SelectionRecord

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
    from tulle.report.select_card import select_card
    from tulle.runs.release_once import ReleaseOptions
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
            options=ReleaseOptions(
                charge=charge, again=options.again, watch=lambda rows: report(rows, 0, 0)
            ),
        )
    card = select_card(result.record)
    card_path = write_card_beside(options.out, card)
    _print_result(result, card, card_path, as_json=options.as_json)


def _print_result(
    result: "Released[SelectionRecord]", card: "Card", card_path: Path, *, as_json: bool
) -> None:
    from tulle.runs.release_files import record_path

    record = result.record
    facts: dict[str, object] = {
        "choices": str(result.table),
        "record": str(record_path(result.table)),
        "card": str(card_path),
        "auctions": record.num_requests,
        "without_ad": record.num_without_ad,
        "personalised": record.num_personalised,
        "mechanism": record.plan.mechanism,
        "guarantee": str(record.plan.guarantee),
        "stored_before": result.is_stored,
        "verdict": card.verdict,
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
