"""`tulle data`: prepare logs for training, describe them, make synthetic ones."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.data_auctions import AUCTIONS_EPILOG, auctions_command
from tulle.cli.data_prepare import (
    AsJson,
    LayoutName,
    Quiet,
    SchemaFile,
    SkipBadLines,
    prepare,
)
from tulle.cli.data_progress import showing_progress
from tulle.cli.data_synth import synth
from tulle.cli.option_class import PanelledCommand

if TYPE_CHECKING:
    from tulle.data.description import Description, RawStatistic

_NEVER = "never"
_WARNING = (
    f"Release '{_NEVER}': an exact statistic of sensitive data. Release a noisy one in its place, "
    "charged to a ledger. Under add-or-remove not even the number of rows is public."
)

data_app = typer.Typer(
    name="data",
    help="Prepare logs for training, describe them, make synthetic ones.",
    no_args_is_help=True,
)
data_app.command(
    epilog="Example: tulle data prepare train.txt --layout display --output display-train "
    "--hash-bins-public 100000 --hash-bins-sensitive 50000"
)(prepare)
data_app.command(
    epilog="Example: tulle data synth display --rows 1000000 --seed 1 --output display.tsv"
)(synth)
data_app.command("auctions", cls=PanelledCommand, epilog=AUCTIONS_EPILOG)(auctions_command)


@data_app.command(
    epilog="Example: tulle data describe clicks.parquet --schema criteo_search_parquet.toml"
)
def describe(
    inputs: Annotated[
        list[Path], typer.Argument(help="Files of one log, or the folder of a prepared dataset.")
    ],
    layout: LayoutName = None,
    schema: SchemaFile = None,
    skip_bad_lines: SkipBadLines = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Print rows, label rate, cardinalities and rows per unit, and what must not be released.

    The figures are exact statistics of raw data, for those who may see the data.
    """
    from tulle.data import describe as describe_data

    with showing_progress("describe", quiet=quiet) as report:
        description = describe_data(
            inputs,
            schema,
            layout=layout,
            skip_bad_lines=skip_bad_lines,
            watch=lambda rows: report(rows, 0, 0),
        )
    if as_json:
        typer.echo(json.dumps(description.to_dict(), allow_nan=False))
    else:
        _print_description(description)


def _print_description(description: "Description") -> None:
    lines = [("rows", "", _number(description.num_rows), "", _mark(description.num_rows))]
    if description.num_bad_lines.value:
        bad = description.num_bad_lines
        lines.append(("bad lines left out", "", _number(bad), "", _mark(bad)))
    if (rate := description.label_rate) is not None:
        lines.append(("label rate", "", f"{rate.value:.4f}", "", _mark(rate)))
    for name, figure in description.rows_per_unit.items():
        lines.append((f"rows per unit, {name}", "", _number(figure), "", _mark(figure)))
    lines.append(("", "", "", "", ""))
    lines.append(("column", "role", "distinct", "missing", "release"))
    for column in description.columns:
        missing = "" if column.missing_share is None else f"{column.missing_share.value:.1%}"
        distinct = column.num_distinct
        lines.append((column.name, column.role, _number(distinct), missing, _mark(distinct)))
    widths = [max(len(line[place]) for line in lines) for place in range(5)]
    for name, role, value, missing, mark in lines:
        text = f"{name:<{widths[0]}}  {role:<{widths[1]}}  {value:>{widths[2]}}"
        typer.echo(f"{text}  {missing:>{widths[3]}}  {mark}".rstrip())
    typer.echo(f"\n{_WARNING}")


def _number(figure: "RawStatistic") -> str:
    error = f" ±{figure.relative_error:.1%}" if figure.relative_error else ""
    return f"{figure.value:,.0f}{error}"


def _mark(figure: "RawStatistic") -> str:
    return _NEVER if figure.must_not_be_released else "yes"
