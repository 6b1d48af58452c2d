"""`tulle labels evaluate`: how good predictions are, from noisy labels or from raw ones."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tulle.cli.data_log import AsJson, SchemaFile
from tulle.errors import ConfigError

EVALUATE_EPILOG = (
    "Example: tulle labels evaluate predictions.parquet --release noisy.parquet"
    "\n\nExample: tulle labels evaluate predictions.parquet --raw test.parquet --schema schema.toml"
)


def evaluate(
    predictions: Annotated[
        Path,
        typer.Argument(
            help="Parquet file with the columns row (from 0) and probability, as tulle train "
            "--predictions writes it."
        ),
    ],
    release: Annotated[
        Path | None,
        typer.Option(help="Released table: estimates with errors, at no cost of privacy."),
    ] = None,
    raw: Annotated[
        Path | None,
        typer.Option(help="Or: raw table, exact. The figures are not protected then."),
    ] = None,
    schema: SchemaFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare predicted chances with labels: ranking, likelihood, calibration, bidding.

    Rows that a model was trained on flatter it: predict rows it has not seen. AUC alone
    misleads a bidder, so the likelihood relative to a constant and the utility of bids by
    the predictions come with it.
    """
    if (release is None) == (raw is None):
        raise ConfigError("give either --release for noisy labels or --raw for true ones.")
    if release is not None:
        facts = _on_release(predictions, release)
    else:
        facts = _on_raw(predictions, raw, schema)
        typer.echo("these figures are exact and not protected: keep them with the data.", err=True)
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for name, value in facts.items():
        typer.echo(f"{name.replace('_', ' '):<40}{_shown(value)}")


def _on_release(predictions: Path, release: Path) -> dict[str, Any]:
    from tulle.labels.release.evaluation import evaluate_on_release

    return evaluate_on_release(predictions, release).to_dict()


def _on_raw(predictions: Path, raw: Path | None, schema: Path | None) -> dict[str, Any]:
    from tulle.data.formats.generic import layout_for
    from tulle.data.schema_file import read_schema
    from tulle.labels.release.evaluation import evaluate_on_raw
    from tulle.labels.release.label_table import LabelTable
    from tulle.privacy.units import Unit

    if raw is None or schema is None:
        raise ConfigError("--raw needs --schema, which names the label.")
    table = LabelTable(
        paths=(raw,), layout=layout_for(raw, read_schema(schema)), unit=Unit.example()
    )
    facts = evaluate_on_raw(predictions, table).to_dict()
    return {name: value for name, value in facts.items() if name != "deciles"}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['value']:.5g} (standard error {value['standard_error']:.2g})"
    if isinstance(value, list):
        return ", ".join(f"{entry:.5g}" for entry in value)
    return f"{value:.5g}" if isinstance(value, float) else f"{value}"
