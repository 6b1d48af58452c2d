"""`tulle data synth`: made-up logs in the shapes of public ones, and for measurement."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tulle.cli.data_progress import showing_progress
from tulle.errors import ConfigError

_Write = Callable[[int, int, Path], None]
_Progress = Callable[[int], None]


def synth(
    shape: Annotated[
        str,
        typer.Argument(
            help="display, attribution, search, taobao; taobao-tables or impressions, which make "
            "a folder of files; auctions."
        ),
    ],
    rows: Annotated[
        int, typer.Option(help="Rows; users of impressions, auctions of an auction log.")
    ],
    output: Annotated[
        Path, typer.Option(help="What to write. Files may end in .gz, .zst or .parquet.")
    ],
    seed: Annotated[int, typer.Option(help="Fixes the log.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False,
) -> None:
    """Write a made-up log with known truth. It holds nobody's data."""
    with showing_progress("writing", quiet=quiet) as report:
        _write(shape, rows, seed, output, lambda done: report(done, done, rows))
    if as_json:
        facts = {"shape": shape, "rows": rows, "seed": seed, "output": str(output)}
        typer.echo(json.dumps(facts))
    else:
        what = {"impressions": "users", "auctions": "auctions"}.get(shape, "rows")
        typer.echo(f"{output}: a made-up log, {shape} of {rows:,} {what}, seed {seed}")


def _write(shape: str, rows: int, seed: int, output: Path, progress: _Progress) -> None:
    from tulle.privacy.fields import did_you_mean

    writers = _writers(progress)
    if shape not in writers:
        raise ConfigError(
            f"shape {shape} is unknown{did_you_mean(shape, writers)}; "
            f"use one of {', '.join(writers)}."
        )
    if output.exists():
        raise ConfigError(f"--output {output.name} exists; choose another name.")
    writers[shape](rows, seed, output)


def _writers(progress: _Progress) -> dict[str, _Write]:
    from tulle.data.synth import shapes
    from tulle.data.synth.auctions import AuctionConfig, write_auction_log
    from tulle.data.synth.impressions import ImpressionConfig
    from tulle.data.synth.shape import SynthShape
    from tulle.data.synth.write_impressions import write_impression_logs
    from tulle.data.synth.write_logs import write_log, write_taobao_tables

    def clicks(shape: SynthShape) -> _Write:
        return lambda rows, seed, path: write_log(
            shape, path, num_rows=rows, seed=seed, progress=progress
        )

    def taobao_tables(rows: int, seed: int, folder: Path) -> None:
        folder.mkdir(parents=True)
        write_taobao_tables(folder, num_rows=rows, seed=seed)

    def impressions(rows: int, seed: int, folder: Path) -> None:
        config = ImpressionConfig(num_users=rows)
        folder.mkdir(parents=True)
        names = ("impressions.csv", "conversions.csv")
        write_impression_logs(config, *(folder / name for name in names), seed=seed)

    def auctions(rows: int, seed: int, path: Path) -> None:
        write_auction_log(AuctionConfig(num_auctions=rows), path, seed=seed)

    logs = (shapes.DISPLAY, shapes.ATTRIBUTION, shapes.SEARCH, shapes.TAOBAO)
    return {shape.name: clicks(shape) for shape in logs} | {
        "taobao-tables": taobao_tables,
        "impressions": impressions,
        "auctions": auctions,
    }
