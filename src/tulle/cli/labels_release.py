"""`tulle labels release`: a table whose labels are noisy."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tulle.cli.clean_stop import stopping_cleanly
from tulle.cli.data_progress import showing_progress
from tulle.cli.labels_noise import noise_of, open_table
from tulle.cli.labels_options import ReleaseCommandOptions
from tulle.cli.ledger_options import charge_of
from tulle.cli.option_class import command_taking
from tulle.cli.release_output import print_facts, write_card_beside

if TYPE_CHECKING:
    from tulle.labels.release.release_record import ReleaseRecord
    from tulle.report.card import Card
    from tulle.runs.release_once import Released

RELEASE_EPILOG = (
    "Example: tulle labels release clicks.parquet --schema schema.toml --mechanism rr --epsilon 2 "
    "--out noisy.parquet"
    '\n\nExample: tulle labels release clicks.parquet --schema schema.toml --unit "user per day" '
    "--mechanism joint-rr --epsilon 3 --out noisy.parquet --ledger ledger.db"
    "\n\nExample: tulle labels release sales.csv --schema schema.toml --mechanism unbiased "
    "--label-low 0 --label-high 400 --epsilon 2 --prior-epsilon 0.1 --out noisy.parquet"
)


def release(options: ReleaseCommandOptions) -> None:
    """Write public columns with noisy labels, targets, weights, a record and a card.

    All labels are checked first; then the ledger is charged; then noise is drawn, once. The
    same command with the same ledger gives back the stored table and spends nothing.
    """
    from tulle.labels.release.releasing import release_labels
    from tulle.mechanisms.entropy import SeededNoise, release_rng
    from tulle.report.labels_card import labels_card
    from tulle.runs.release_once import ReleaseOptions

    charge = charge_of(options, default_purpose="labels")
    table = open_table(options)
    noise = noise_of(options, options.mechanism)
    rng = release_rng() if options.seed is None else SeededNoise(options.seed)
    with (
        stopping_cleanly("stopped as asked, nothing is out; run the same command again."),
        showing_progress("release labels", quiet=options.quiet) as report,
    ):
        result = release_labels(
            table,
            noise,
            options.out,
            rng=rng,
            options=ReleaseOptions(
                charge=charge, again=options.again, watch=lambda rows: report(rows, 0, 0)
            ),
        )
    card = labels_card(result.record)
    card_path = write_card_beside(options.out, card)
    _print_result(result, card, card_path, as_json=options.as_json)


def _print_result(
    result: "Released[ReleaseRecord]", card: "Card", card_path: Path, *, as_json: bool
) -> None:
    from tulle.runs.release_files import record_path

    record, plan = result.record, result.record.plan
    facts: dict[str, object] = {
        "table": str(result.table),
        "record": str(record_path(result.table)),
        "card": str(card_path),
        "rows": record.num_rows,
        "mechanism": plan.settings["mechanism"],
        "unit": str(plan.guarantee.unit),
        "epsilon": plan.guarantee.epsilon,
        "added_columns": list(record.columns),
        "stored_before": result.is_stored,
        "verdict": card.verdict,
    }
    print_facts(facts, as_json=as_json)
    if result.is_stored and not as_json:
        typer.echo("nothing was spent: the stored release was returned.", err=True)


release_command = command_taking(ReleaseCommandOptions, release)
