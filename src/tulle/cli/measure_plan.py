"""`tulle measure plan`, `attribute` and `clips`: what to know before a measurement.

Errors are expected ones, before anything is spent. Credit is exact, for the eyes of those who hold
the log; clips are chosen from public rows.
"""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.measure_options import (
    AsJson,
    EngineOptions,
    MeasureSchema,
    SettingsFile,
    aligned_lines,
    sum_name,
)
from tulle.cli.options import DATA, OUTPUT, PRIVACY, Quiet, option, present_name, taking_options
from tulle.cli.terminal import showing_steps
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.measure import ExactCredit, ExpectedErrors, MeasurePlan

PLAN_EPILOG = (
    "Example: tulle measure plan campaigns.toml"
    "\n\nExample: tulle measure plan --json-schema > measure.schema.json"
    "\n\nExample: tulle measure plan campaigns.toml --past last-week/measurement.json --output "
    "errors.svg"
)
_FIGURES = ("expected", "noise_stddev", "relative_error")
"""Columns of expected errors that are no slices."""


def plan(
    config: SettingsFile,
    past: Annotated[
        Path | None,
        option(
            DATA,
            "File with earlier numbers: a measurement.json, or a public table with the slice "
            "columns and count.",
        ),
    ] = None,
    tau: Annotated[
        float,
        option(OUTPUT, "Slices below this many conversions count as this many in relative errors."),
    ] = 5.0,
    top: Annotated[int, option(OUTPUT, "Number of slices to print for each query.", least=1)] = 10,
    output: Annotated[
        Path | None, option(OUTPUT, "SVG file with relative errors over slice sizes. Needs --past.")
    ] = None,
    as_json: AsJson = False,
    json_schema: MeasureSchema = False,
) -> None:
    """Print noise, expected relative errors and the guarantee. No row of the log is read."""
    from tulle import measure

    del json_schema  # it stopped the command before

    if output is not None and past is None:
        raise ConfigError("--output shows errors by slice size and needs --past with the sizes.")
    if output is not None and output.suffix != ".svg":
        raise ConfigError(f"--output {output} must end in .svg, which it will be.")
    made = measure.plan(config)
    errors = measure.expected_errors(made, past, tau=tau)
    if past is not None and all(found.slices is None for found in errors):
        typer.echo(
            f"{past.name} has none of the queries, so there are no relative errors; a table of a "
            "measurement goes with the query of the same name.",
            err=True,
        )
    if output is not None:
        from tulle.report.html.chart_svg import write_charts
        from tulle.report.measure_report import expected_error_chart

        write_charts(output, [expected_error_chart(errors, tau=tau)])
    if as_json:
        typer.echo(json.dumps(_facts(made, errors), allow_nan=False))
        return
    _print(made, errors, top)


def present_plan_name(name: str) -> str:
    """The name of an option of this command now: --plot was another word for --output."""
    return "output" if name == "plot" else present_name(name)


def _print(made: "MeasurePlan", errors: "list[ExpectedErrors]", top: int) -> None:
    from tulle.measure.queries.measure_record import CHANNEL_TABLE

    typer.echo(made.plan.mechanism)
    typer.echo(str(made.plan.guarantee))
    if made.crossing is not None:
        typer.echo(str(made.crossing))
    learnt = made.config.data_driven
    if learnt is not None:
        typer.echo(
            f"{CHANNEL_TABLE}: epsilon {learnt.epsilon:.4g} of {made.config.epsilon:.4g}; counts "
            f"of units by channels +- {learnt.noise.noise_stddev:,.4g} (standard deviation)"
        )
    unsaid = made.units_to_be_found
    listed = {query.name for query in made.config.queries if query.keys is not None}
    for found in errors:
        if found.query in unsaid:
            likely, sure = unsaid.pop(found.query)
            typer.echo(
                f"{found.query}: a slice needs about {likely:,} units to be found (surely from "
                f"{sure:,})"
            )
        _print_errors(found, sum_name(is_listed=found.query in listed), top)


def _print_errors(found: "ExpectedErrors", sum_of_slices: str, top: int) -> None:
    measured = ", as measured" if found.is_as_measured else ""
    typer.echo(
        f"{found.query}: {found.label} +- {_noise_text(found)} (standard deviation{measured}); "
        f"within 10% from {found.smallest_within:,.0f} on"
    )
    if found.slices is None or found.rmsre is None:
        return
    typer.echo(f"  root mean square relative error {found.rmsre:.3g}")
    names = [n for n in found.slices.columns if n not in _FIGURES]
    for row in found.slices.sort("expected", descending=True).head(top).to_dicts():
        parts = [sum_of_slices if row[n] is None else str(row[n]) for n in names]
        where = " > ".join(parts) or "(all)"
        typer.echo(f"  {where}: {row['expected']:,.0f} +- {row['relative_error']:.1%}")


def _noise_text(found: "ExpectedErrors") -> str:
    least, most = f"{found.least_noise_stddev:,.4g}", f"{found.noise_stddev:,.4g}"
    return most if least == most else f"{least} to {most}"


def _facts(made: "MeasurePlan", errors: "list[ExpectedErrors]") -> dict[str, object]:
    learnt = made.config.data_driven
    return {
        "plan": made.plan.to_dict(),
        "weights_of_channels": None if learnt is None else {"epsilon": learnt.epsilon},
        "private_slices": {
            name: {"likely_from_units": likely, "sure_from_units": sure}
            for name, (likely, sure) in made.units_to_be_found.items()
        },
        "lookback_crossing": None if made.crossing is None else made.crossing.to_dict(),
        "queries": [found.to_dict() for found in errors],
    }


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
        Path | None, option(OUTPUT, "Parquet file for one row for each impression with a share.")
    ] = None
    by: Annotated[
        list[str] | None,
        option(OUTPUT, "Column of impressions to print totals by; repeat it.", metavar="COLUMN"),
    ] = None
    rule: Annotated[
        list[str] | None,
        option(DATA, "Rule to compute; repeat it for several at once [default: that of the file]."),
    ] = None
    as_json: AsJson = False
    quiet: Quiet = False


@taking_options
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
        list[str], option(DATA, "Column of values to add up; repeat it.", metavar="COLUMN")
    ],
    epsilon: Annotated[float, option(PRIVACY, "Epsilon of the query that the clips are for.")],
    slices: Annotated[
        list[str] | None,
        option(DATA, "Column whose values make slices; repeat it.", "--slice", metavar="COLUMN"),
    ] = None,
    max_per_unit: Annotated[
        float, option(PRIVACY, "Conversions that count of one unit, as in the query's bounds.")
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
