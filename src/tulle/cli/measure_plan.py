"""`tulle measure plan`: the error of every number before anything is spent."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.data_log import AsJson
from tulle.cli.measure_output import sum_name
from tulle.cli.measure_run import SettingsFile

if TYPE_CHECKING:
    from tulle.measure.queries.measure_plan import MeasurePlan
    from tulle.measure.queries.what_if import ExpectedErrors

PLAN_MEASURE_EPILOG = (
    "Example: tulle measure plan campaigns.toml"
    "\n\nExample: tulle measure plan campaigns.toml --past last-week/measurement.json --plot "
    "errors.svg"
)


def plan(
    config: SettingsFile,
    past: Annotated[
        Path | None,
        typer.Option(
            help="Earlier numbers: a measurement.json, or a public table with the slice columns "
            "and count."
        ),
    ] = None,
    tau: Annotated[
        float, typer.Option(help="Errors are relative to at least this many conversions.")
    ] = 5.0,
    top: Annotated[int, typer.Option(min=1, help="Slices to print for each query.")] = 10,
    plot: Annotated[
        Path | None, typer.Option(help="SVG file: relative error over slice size. Needs --past.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print noise, expected relative errors and the guarantee. No row of the log is read."""
    from tulle.errors import ConfigError
    from tulle.measure.config.config_file import read_config
    from tulle.measure.config.history import read_history, read_past
    from tulle.measure.queries.measure_plan import make_measure_plan
    from tulle.measure.queries.what_if import expected_errors

    if plot is not None and past is None:
        raise ConfigError("--plot shows errors by slice size and needs --past with the sizes.")
    if plot is not None and plot.suffix != ".svg":
        raise ConfigError(f"--plot {plot} must end in .svg, which it will be.")
    file = read_config(config)
    by_name = {query.name: query for query in file.config.queries}
    histories = {n: read_history(p, by_name[n]).counts for n, p in file.history_paths.items()}
    made = make_measure_plan(file.config, history=histories)
    known = {} if past is None else read_past(past, file.config.queries)
    if past is not None and not known:
        typer.echo(
            f"{past.name} has none of the queries, so there are no relative errors; a table of a "
            "measurement goes with the query of the same name.",
            err=True,
        )
    errors = expected_errors(made, known, tau=tau)
    if plot is not None:
        _write_plot(plot, errors, tau)
    if as_json:
        typer.echo(json.dumps(_facts(made, errors), allow_nan=False))
        return
    _print(made, errors, top)


def _print(made: "MeasurePlan", errors: "list[ExpectedErrors]", top: int) -> None:
    from tulle.measure.queries.channel_table import CHANNEL_TABLE
    from tulle.measure.queries.private_slices import units_to_be_found

    said: set[str] = set()
    typer.echo(made.plan.mechanism)
    typer.echo(str(made.plan.guarantee))
    learnt = made.config.data_driven
    if learnt is not None:
        typer.echo(
            f"{CHANNEL_TABLE}: epsilon {learnt.epsilon:.4g} of {made.config.epsilon:.4g}; counts "
            f"of units by channels +- {learnt.noise.noise_stddev:,.4g} (standard deviation)"
        )
    by_name = {planned.query.name: planned for planned in made.queries}
    for found in errors:
        planned = by_name[found.query]
        if planned.selection is not None and found.query not in said:
            likely, sure = units_to_be_found(planned.selection)
            typer.echo(
                f"{found.query}: a slice needs about {likely:,} units to be found (surely from "
                f"{sure:,})"
            )
        said.add(found.query)
        _print_errors(found, sum_name(is_listed=planned.query.keys is not None), top)


def _print_errors(found: "ExpectedErrors", sum_of_slices: str, top: int) -> None:
    measured = ", as measured" if found.is_as_measured else ""
    typer.echo(
        f"{found.query}: {_number_text(found)} +- {_noise_text(found)} (standard "
        f"deviation{measured}); within 10% from {found.smallest_within:,.0f} on"
    )
    if found.slices is None or found.rmsre is None:
        return
    typer.echo(f"  root mean square relative error {found.rmsre:.3g}")
    names = [n for n in found.slices.columns if n not in _FIGURES]
    for row in found.slices.sort("expected", descending=True).head(top).to_dicts():
        parts = [sum_of_slices if row[n] is None else str(row[n]) for n in names]
        where = " > ".join(parts) or "(all)"
        typer.echo(f"  {where}: {row['expected']:,.0f} +- {row['relative_error']:.1%}")


def _number_text(found: "ExpectedErrors") -> str:
    from tulle.measure.queries.number_noise import TOTAL_LEVEL

    if not found.level:
        return found.number
    return f"{found.number} {'in' if found.level == TOTAL_LEVEL else 'by'} {found.level}"


def _noise_text(found: "ExpectedErrors") -> str:
    least, most = f"{found.least_noise_stddev:,.4g}", f"{found.noise_stddev:,.4g}"
    return most if least == most else f"{least} to {most}"


_FOUND = ("likely_from_units", "sure_from_units")
_FIGURES = {"expected", "noise_stddev", "relative_error"}


def _facts(made: "MeasurePlan", errors: "list[ExpectedErrors]") -> dict[str, object]:
    from tulle.measure.queries.private_slices import units_to_be_found

    learnt = made.config.data_driven
    finding = {
        planned.query.name: dict(zip(_FOUND, units_to_be_found(planned.selection), strict=True))
        for planned in made.queries
        if planned.selection is not None
    }
    return {
        "plan": made.plan.to_dict(),
        "weights_of_channels": None if learnt is None else {"epsilon": learnt.epsilon},
        "private_slices": finding,
        "queries": [
            {
                "query": found.query,
                "number": found.number,
                "level": found.level or None,
                "noise_stddev": found.noise_stddev,
                "least_noise_stddev": found.least_noise_stddev,
                "is_as_measured": found.is_as_measured,
                "within_10_percent_from": found.smallest_within,
                "rmsre": found.rmsre,
                "slices": None if found.slices is None else found.slices.to_dicts(),
            }
            for found in errors
        ],
    }


def _write_plot(path: Path, errors: "list[ExpectedErrors]", tau: float) -> None:
    from tulle.report.measure_plots import SliceErrors, plot_expected_error
    from tulle.report.svg_figures import write_plot
    from tulle.runs.whole_files import reporting_disk_errors

    groups = [
        SliceErrors(
            label=f"{found.query}: {_number_text(found)}",
            expected_counts=found.slices["expected"].to_list(),
            relative_errors=found.slices["relative_error"].to_list(),
        )
        for found in errors
        if found.slices is not None
    ]
    svg = plot_expected_error(groups, tau=tau, title="Expected relative error")
    with reporting_disk_errors(path):
        write_plot(path, svg)
