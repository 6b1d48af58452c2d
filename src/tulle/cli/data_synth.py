"""`tulle data synth`: synthetic logs in the shapes of public ones, and for measurement."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tulle.cli.data_progress import showing_progress


def synth(
    shape: Annotated[
        str,
        typer.Argument(
            help="display, attribution, search, taobao; taobao-tables or impressions, which make "
            "a folder of files; auctions."
        ),
    ],
    rows: Annotated[
        int,
        typer.Option(help="Number of rows; for impressions of users, for auctions of auctions."),
    ],
    output: Annotated[
        Path, typer.Option(help="New file or folder. Files may end in .gz, .zst or .parquet.")
    ],
    seed: Annotated[int, typer.Option(help="Seed that fixes the log.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress on stderr.")] = False,
) -> None:
    """Write a synthetic log with known truth. It holds nobody's data."""
    from tulle.data import write_synthetic

    with showing_progress("writing", quiet=quiet) as report:
        write_synthetic(
            shape, output, rows=rows, seed=seed, watch=lambda done: report(done, done, rows)
        )
    if as_json:
        facts = {"shape": shape, "rows": rows, "seed": seed, "output": str(output)}
        typer.echo(json.dumps(facts))
    else:
        what = {"impressions": "users", "auctions": "auctions"}.get(shape, "rows")
        typer.echo(f"{output}: a synthetic log, {shape} of {rows:,} {what}, seed {seed}")
