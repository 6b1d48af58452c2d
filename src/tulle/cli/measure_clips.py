"""`tulle measure clips`: where to clip values, and what share of a contribution each gets."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tulle.cli.data_log import AsJson

CLIPS_EPILOG = (
    "Example: tulle measure clips public-conversions.parquet --value price --value items "
    "--slice campaign --epsilon 1 --max-per-unit 3"
)
_STEPS = 1 << 16


def clips(
    history: Annotated[
        Path,
        typer.Argument(
            help="CSV or Parquet with one row for each conversion of a past period. It is read "
            "without noise: public or simulated, never the log to be measured."
        ),
    ],
    value: Annotated[list[str], typer.Option(help="Column of values to add up; repeat it.")],
    epsilon: Annotated[float, typer.Option(help="Of the query that the clips are for.")],
    slices: Annotated[
        list[str] | None, typer.Option("--slice", metavar="COLUMN", help="Slices; repeat it.")
    ] = None,
    max_per_unit: Annotated[
        float, typer.Option(help="Conversions that count of one unit, as in the query's bounds.")
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Choose clips and shares for the least relative error, with the count for free.

    Prints the `values` of a query with measure = "average", to be pasted into its settings.
    """
    from tulle.errors import ConfigError
    from tulle.measure.clipping.clip_plan import optimise_clips
    from tulle.measure.clipping.value_history import read_value_history
    from tulle.measure.trees.level_noise import LaplaceLevels

    if not max_per_unit > 0:
        raise ConfigError(f"--max-per-unit {max_per_unit} must be > 0.")
    found = optimise_clips(
        read_value_history(history, slices=slices or [], values=value),
        LaplaceLevels(
            epsilon=epsilon, max_steps_per_unit=max(1, int(max_per_unit * _STEPS)), steps=_STEPS
        ),
    )
    if as_json:
        amounts = [
            {"column": amount.column, "clip": amount.clip, "share": amount.share}
            for amount in found.amounts
        ]
        typer.echo(json.dumps({"values": amounts, "expected_rmsre": found.expected_rmsre}))
        return
    typer.echo("values = [")
    for amount in found.amounts:
        column = json.dumps(amount.column)
        typer.echo(
            f"  {{ column = {column}, clip = {amount.clip:.6g}, share = {amount.share:.6g} }},"
        )
    typer.echo("]")
    typer.echo(f"expected relative error {found.expected_rmsre:.3g}", err=True)
