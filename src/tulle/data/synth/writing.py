"""Synthetic logs by their names, for a first try: in the shapes of public logs, and others."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from tulle.data.synth import shapes
from tulle.data.synth.auctions import AuctionConfig, write_auction_log
from tulle.data.synth.impressions import ImpressionConfig
from tulle.data.synth.write_impressions import write_impression_logs
from tulle.data.synth.write_logs import write_log, write_taobao_tables
from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, did_you_mean

_CLICKS = {
    shape.name: shape
    for shape in (shapes.DISPLAY, shapes.ATTRIBUTION, shapes.SEARCH, shapes.TAOBAO)
}


def write_synthetic(
    shape: str,
    output: str | os.PathLike[str],
    *,
    rows: int,
    seed: int = 0,
    watch: Callable[[int], None] | None = None,
) -> Path:
    """Writes a synthetic log with known truth. It holds nobody's data.

    Args:
      shape: "display", "attribution", "search" or "taobao"; "taobao-tables" or "impressions",
        which make a folder of files; "auctions".
      output: The new file, or the new folder. Files may end in .gz, .zst or .parquet.
      rows: Number of rows; of users for impressions, of auctions for auctions.
      seed: Fixes the log.
      watch: Function that is told the number of rows done, for logs of clicks.

    Returns:
      What was written.

    Raises:
      ConfigError: The shape is unknown, or the output exists.
    """
    path = Path(output)
    known = (*_CLICKS, *_OTHERS)
    if shape not in known:
        raise ConfigError(
            f"shape {shape} is unknown{did_you_mean(shape, known)}; use one of {', '.join(known)}."
        )
    if path.exists():
        raise ConfigError(f"output={path.name!r} exists; choose another name.")
    if shape in _CLICKS:
        write_log(_CLICKS[shape], path, num_rows=rows, seed=seed, progress=watch)
    else:
        _OTHERS[shape](path, check_count("rows", rows), seed)
    return path


def _write_taobao_tables(folder: Path, rows: int, seed: int) -> None:
    folder.mkdir(parents=True)
    write_taobao_tables(folder, num_rows=rows, seed=seed)


def _write_impressions(folder: Path, rows: int, seed: int) -> None:
    config = ImpressionConfig(num_users=rows)
    folder.mkdir(parents=True)
    names = ("impressions.csv", "conversions.csv")
    write_impression_logs(config, *(folder / name for name in names), seed=seed)


def _write_auctions(path: Path, rows: int, seed: int) -> None:
    write_auction_log(AuctionConfig(num_auctions=rows), path, seed=seed)


_OTHERS: Mapping[str, Callable[[Path, int, int], None]] = {
    "taobao-tables": _write_taobao_tables,
    "impressions": _write_impressions,
    "auctions": _write_auctions,
}
