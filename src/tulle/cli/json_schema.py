"""`--json-schema`: what editors complete and check settings files by."""

import json
from typing import Annotated, Any

import typer

_HELP = "Print the JSON Schema of the settings file, by which editors complete it, and stop."


def _print_measure_schema(wanted: bool) -> None:
    if wanted:
        from tulle.measure.config.config_file import MeasureFile

        _print_schema(MeasureFile, "Settings of tulle measure")


def _print_labels_schema(wanted: bool) -> None:
    if wanted:
        from tulle.labels.label_plan import ANY_MECHANISM

        _print_schema(ANY_MECHANISM, "Mechanism of tulle labels")


def _print_select_schema(wanted: bool) -> None:
    if wanted:
        from tulle.select.settings import SelectionFile

        _print_schema(SelectionFile, "Settings of tulle select")


def _print_schema(settings: Any, title: str) -> None:
    from tulle.privacy.codec import json_schema

    typer.echo(json.dumps(json_schema(settings, title=title), indent=2))
    raise typer.Exit


MeasureSchema = Annotated[
    bool,
    typer.Option("--json-schema", help=_HELP, is_eager=True, callback=_print_measure_schema),
]
SelectSchema = Annotated[
    bool,
    typer.Option("--json-schema", help=_HELP, is_eager=True, callback=_print_select_schema),
]
LabelsSchema = Annotated[
    bool,
    typer.Option(
        "--json-schema",
        help="Print the JSON Schema of all mechanisms as plain data, and stop.",
        is_eager=True,
        callback=_print_labels_schema,
    ),
]
