"""`tulle export`: a model of tables in a form that another stack runs."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.options import DATA, OUTPUT, AsJson, option, taking_options
from tulle.cli.terminal import print_facts

if TYPE_CHECKING:
    from tulle.serve.exports import ExportedForm

EXPORT_EPILOG = (
    "Example: tulle export model --form json --output model.json"
    "\n\nExample: tulle export model --form onnx --values catalogue.csv --output model.onnx"
    "\n\nExample: tulle export model --form sql --dialect bigquery --values catalogue.csv "
    "--output model-sql"
)


def _forms() -> list[str]:
    from tulle.serve.exports import FORMS

    return list(FORMS)


def _dialects() -> list[str]:
    from tulle.measure.engines.sql_text import DIALECTS

    return list(DIALECTS)


Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", help="Folder of a model or of a training run.", show_default=False
    ),
]
Values = Annotated[
    Path | None,
    option(
        DATA,
        "Values of hashed columns that may be public, such as a catalogue. They leave with the "
        "model; others count as rare ones.",
        metavar="DATA",
    ),
]
Rows = Annotated[str, option(OUTPUT, "SQL: name of the table of rows.", metavar="TABLE")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Which model, in which form, and where it goes."""

    model: Model
    form: Annotated[str, option(OUTPUT, "json, onnx or sql.", words=_forms)]
    output: Annotated[Path, option(OUTPUT, "New file of JSON or ONNX; new folder of SQL.")]
    dialect: Annotated[
        str | None,
        option(OUTPUT, "SQL: duckdb, spark, bigquery, snowflake or trino.", words=_dialects),
    ] = None
    values: Values = None
    rows: Rows = "new_rows"
    as_json: AsJson = False


@taking_options
def export(options: ExportOptions) -> None:
    """Write a model of tables in a form that another stack runs: JSON, ONNX or SQL.

    JSON holds all that a row needs, hashes included. SQL and ONNX cannot hash texts and need the
    values of hashed columns. Nothing is spent.
    """
    from tulle.serve import export as write_form

    made = write_form(
        options.model,
        options.output,
        form=options.form,
        dialect=options.dialect,
        values=options.values,
        rows=options.rows,
    )
    print_export(made, as_json=options.as_json)


def print_export(made: "ExportedForm", *, as_json: bool) -> None:
    """Says where a model is, and which columns its rows need."""
    facts = {
        "export": str(made.path),
        "form": made.form,
        "columns": list(made.columns),
        "mapped": list(made.mapped),
    }
    print_facts(facts, as_json=as_json)
