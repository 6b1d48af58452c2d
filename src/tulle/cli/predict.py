"""`tulle predict`: what a model predicts for the rows of a log, as a file."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from tulle.cli.export import Model, Values, print_export
from tulle.cli.options import DATA, OUTPUT, AsJson, Quiet, layout_words, option, taking_options
from tulle.cli.terminal import print_facts, showing_progress, stopping_cleanly
from tulle.errors import ConfigError

PREDICT_EPILOG = (
    "Example: tulle predict model new.csv --output scores.parquet"
    "\n\nExample: tulle predict runs/monday new.parquet --keep impression_id --output scores.csv"
    "\n\nExample: tulle predict model --emit-sql bigquery --values catalogue.csv --output model-sql"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """Which model, which rows, and where their predictions go."""

    model: Model
    output: Annotated[
        Path, option(OUTPUT, "New file: .parquet or .csv; new folder with --emit-sql.")
    ]
    data: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DATA", help="Files of one log, in order.", show_default=False),
    ] = None
    keep: Annotated[
        list[str] | None,
        option(DATA, "Column to keep beside the predictions; may be repeated.", metavar="COLUMN"),
    ] = None
    layout: Annotated[
        str | None,
        option(DATA, "A public log, where its files have no header.", words=layout_words),
    ] = None
    emit_sql: Annotated[
        str | None,
        option(
            OUTPUT,
            "Write SQL that predicts in place of predictions, as `tulle export --form sql` does: "
            "duckdb, spark, bigquery, snowflake or trino.",
            metavar="DIALECT",
        ),
    ] = None
    values: Values = None
    as_json: AsJson = False
    quiet: Quiet = False


@taking_options
def predict(options: PredictOptions) -> None:
    """Write what a model predicts for each row of a log. No label is needed.

    Only the columns that the model looks at are read, and those to keep. Files may be of any
    size. The predictions are as sensitive as the rows.
    """
    from tulle.serve import export
    from tulle.serve import predict as write_predictions

    if options.emit_sql is not None:
        if options.data:
            raise ConfigError("--emit-sql writes SQL and reads no rows; leave out the data.")
        dialect, values = options.emit_sql, options.values
        made = export(options.model, options.output, form="sql", dialect=dialect, values=values)
        print_export(made, as_json=options.as_json)
        return
    if options.values is not None:
        raise ConfigError(
            "--values is for --emit-sql: predictions compute hashes themselves and need no table "
            "of values; leave it out."
        )
    if not options.data:
        raise ConfigError("predictions need the rows: name their files after the model.")
    with (
        stopping_cleanly(),
        showing_progress("predicting", quiet=options.quiet) as report,
    ):
        written = write_predictions(
            options.model,
            options.data,
            output=options.output,
            keep=options.keep or (),
            layout=options.layout,
            watch=report,
        )
    facts = {
        "predictions": str(written.path),
        "rows": written.num_rows,
        "columns": list(written.columns),
    }
    print_facts(facts, as_json=options.as_json)
