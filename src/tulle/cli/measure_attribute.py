"""`tulle measure attribute` and `tulle measure clips`: what to know before a measurement.

Credit is exact, for the eyes of those who hold the log; clips are chosen from public rows.
"""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.measure_options import (
    DATA,
    OUTPUT,
    PRIVACY,
    AsJson,
    EngineOptions,
    Quiet,
    SettingsFile,
)
from tulle.cli.measure_output import aligned_lines
from tulle.cli.measure_progress import showing_steps
from tulle.cli.option_class import command_taking
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.measure import ExactCredit

ATTRIBUTE_EPILOG = (
    "Example: tulle measure attribute campaigns.toml --output credits.parquet"
    "\n\nExample: tulle measure attribute campaigns.toml --rule last-touch --rule linear "
    "--by campaign"
)
CLIPS_EPILOG = (
    "Example: tulle measure clips public-conversions.parquet --value price --value items "
    "--slice campaign --epsilon 1 --max-per-unit 3"
)
_NOT_PRIVATE = "NOT A PRIVATE RELEASE: exact credit, for those who may see the log itself."
_MOST_ROWS = 20
"""Most rows of totals that are printed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttributeOptions(EngineOptions):
    """Options of exact attribution."""

    config: SettingsFile
    output: Annotated[
        Path | None,
        typer.Option(
            help="Parquet file for one row for each impression with a share.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of impressions to print totals by; repeat it.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help="Rule to compute; repeat it for several at once [default: that of the file].",
            rich_help_panel=DATA,
        ),
    ] = None
    as_json: AsJson = False
    quiet: Quiet = False


def attribute(options: AttributeOptions) -> None:
    """Share the credit for each conversion by one or several rules, exactly and without noise.

    The result is as sensitive as the log. Use `tulle measure run` for numbers to publish.
    """
    from tulle import measure

    if options.output is None and not options.by:
        raise ConfigError("say what to do with the credit: --output FILE, --by COLUMN, or both.")
    with (
        showing_steps(quiet=options.quiet) as say,
        measure.open_engine(
            options.engine, memory_limit=options.memory_limit, spill_folder=options.spill_folder
        ) as engine,
    ):
        credit = measure.attribute(
            options.config,
            rules=options.rule or (),
            by=options.by or (),
            output=options.output,
            engine=engine,
            watch=say,
        )
    typer.echo(_NOT_PRIVATE, err=True)
    if options.as_json:
        rows = None if credit.totals is None else credit.totals.to_dicts()
        output = None if credit.path is None else str(credit.path)
        typer.echo(json.dumps({"output": output, "is_private": False, "totals": rows}))
        return
    if credit.path is not None:
        typer.echo(f"{credit.path}: {_identified(credit)}")
    if credit.totals is not None:
        _print_totals(credit.totals.to_dicts(), options.by or [])


def clips(
    history: Annotated[
        Path,
        typer.Argument(
            help="File with one row for each conversion of a past period. It is read without "
            "noise: public or simulated, never the log to be measured."
        ),
    ],
    value: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN",
            help="Column of values to add up; repeat it.",
            rich_help_panel=DATA,
        ),
    ],
    epsilon: Annotated[
        float,
        typer.Option(help="Epsilon of the query that the clips are for.", rich_help_panel=PRIVACY),
    ],
    slices: Annotated[
        list[str] | None,
        typer.Option(
            "--slice",
            metavar="COLUMN",
            help="Column whose values make slices; repeat it.",
            rich_help_panel=DATA,
        ),
    ] = None,
    max_per_unit: Annotated[
        float,
        typer.Option(
            help="Conversions that count of one unit, as in the query's bounds.",
            rich_help_panel=PRIVACY,
        ),
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Choose clips and shares for the least relative error, with the count for free.

    Prints the `values` of a query with measure = "average", to be pasted into its settings.
    """
    from tulle import measure

    found = measure.choose_clips(
        history, value, epsilon=epsilon, by=slices or (), max_per_unit=max_per_unit
    )
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return
    typer.echo(found.to_toml())
    typer.echo(f"expected relative error {found.expected_rmsre:.3g}", err=True)


def _identified(credit: "ExactCredit") -> str:
    """Which columns of the file say what a row is about."""
    hint = ""
    if credit.missing_ids:
        names = " and no ".join(credit.missing_ids)
        hint = f"; no {names}: name the column in [columns] to have it"
    return f"a row is known by {', '.join(credit.row_key)}{hint}"


def _print_totals(rows: list[dict[str, object]], by: list[str]) -> None:
    if not rows:
        typer.echo("no conversion has an impression within the lookback")
        return
    lines = [list(rows[0])]
    for row in rows[:_MOST_ROWS]:
        lines.append(
            [
                str(value) if name in by else f"{float(str(value)):,.2f}"
                for name, value in row.items()
            ]
        )
    for line in aligned_lines(lines, num_texts=len(by)):
        typer.echo(line)
    if len(rows) > _MOST_ROWS:
        typer.echo(f"… {len(rows) - _MOST_ROWS:,} more; --json prints all")


attribute_command = command_taking(AttributeOptions, attribute)
