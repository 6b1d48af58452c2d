"""`tulle measure plan`: the error of every number before anything is spent."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.json_schema import MeasureSchema
from tulle.cli.measure_options import DATA, OUTPUT, AsJson, SettingsFile
from tulle.cli.measure_output import sum_name
from tulle.cli.option_class import present_name
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.measure import ExpectedErrors, MeasurePlan

PLAN_MEASURE_EPILOG = (
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
        typer.Option(
            help="File with earlier numbers: a measurement.json, or a public table with the slice "
            "columns and count.",
            rich_help_panel=DATA,
        ),
    ] = None,
    tau: Annotated[
        float,
        typer.Option(
            help="Slices below this many conversions count as this many in relative errors.",
            rich_help_panel=OUTPUT,
        ),
    ] = 5.0,
    top: Annotated[
        int,
        typer.Option(
            min=1, help="Number of slices to print for each query.", rich_help_panel=OUTPUT
        ),
    ] = 10,
    output: Annotated[
        Path | None,
        typer.Option(
            help="SVG file with relative errors over slice sizes. Needs --past.",
            rich_help_panel=OUTPUT,
        ),
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
        "queries": [found.to_dict() for found in errors],
    }
