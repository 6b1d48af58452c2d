"""Synthetic logs by their names, for a first try: in the shapes of public logs, and others.

The impressions have three columns more than the browser layout: region and age group of the user,
and the price. Events come 8,192 users at a time, in order of time within these.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tulle.data.formats.public import CONVERSIONS, IMPRESSIONS
from tulle.data.synth import shapes
from tulle.data.synth.auctions import AuctionConfig, write_auction_log
from tulle.data.synth.impressions import (
    ImpressionBlock,
    ImpressionConfig,
    advertiser_of,
    age_group_of,
    generate_impression_blocks,
    region_of,
)
from tulle.data.synth.table_files import (
    TableForm,
    TextMatrix,
    choose_text,
    constant_text,
    decimal_text,
    integer_text,
    join_lines,
    write_table,
)
from tulle.data.synth.write_logs import write_log, write_taobao_tables
from tulle.data.synth.zipf import salt_of, scramble
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


_NAMES = {"publisher", "advertiser", "campaign", "interaction", "geo", "age_group"}


def write_impression_logs(
    config: ImpressionConfig, impressions: Path, conversions: Path, *, seed: int
) -> None:
    """Writes the impressions and the conversions of one log, each whole or not at all.

    Args:
      config: What the log looks like.
      impressions: File to write, in the form its suffix says.
      conversions: File to write, in the form its suffix says.
      seed: Fixes the log; `generate_impression_blocks` with it gives the causes too.
    """
    if impressions == conversions:
        raise ConfigError(f"impressions and conversions are both {str(impressions)!r}; use two.")
    form = TableForm(
        columns=(*IMPRESSIONS.columns, "geo", "age_group", "price"),
        names=frozenset(_NAMES),
        reals=frozenset({"price"}),
    )
    # Making the events again is cheaper than holding the second file's lines back.
    blocks = generate_impression_blocks(config, seed=seed)
    write_table(impressions, form, (_impression_lines(config, block) for block in blocks))
    form = TableForm(
        columns=CONVERSIONS.columns,
        names=frozenset({"advertiser", "conversion_type"}),
        reals=frozenset({"value"}),
    )
    blocks = generate_impression_blocks(config, seed=seed)
    write_table(conversions, form, (_conversion_lines(block) for block in blocks))


def _impression_lines(config: ImpressionConfig, block: ImpressionBlock) -> bytes:
    num_rows = len(block.campaign)
    fields = {
        "impression_id": integer_text(block.impression_id),
        "timestamp": integer_text(block.impression_time),
        "user": integer_text(block.impression_user),
        "publisher": _named("news{}.example", block.publisher),
        "advertiser": _named("shop{}.example", advertiser_of(config, block.campaign)),
        "campaign": _named("campaign-{}", block.campaign),
        "interaction": choose_text(
            block.clicked, constant_text("click", num_rows), constant_text("view", num_rows)
        ),
        "geo": _named("region-{}", region_of(block.impression_user)),
        "age_group": _named("age-{}", age_group_of(block.impression_user)),
        "price": decimal_text(np.rint(block.price * 1e6).astype(np.int64), 6),
    }
    columns = (*IMPRESSIONS.columns, "geo", "age_group", "price")
    return join_lines([fields[name] for name in columns], IMPRESSIONS.separator)


def _conversion_lines(block: ImpressionBlock) -> bytes:
    num_rows = len(block.conversion_id)
    kind = scramble(block.conversion_id & 0xFFFFFFFF, salt_of("conversion type"))
    kinds = constant_text("purchase", num_rows), constant_text("signup", num_rows)
    fields = {
        "conversion_id": integer_text(block.conversion_id),
        "timestamp": integer_text(block.conversion_time),
        "user": integer_text(block.conversion_user),
        "advertiser": _named("shop{}.example", block.conversion_advertiser),
        "conversion_type": choose_text(kind < 0xC0000000, *kinds),
        "value": decimal_text(np.rint(block.conversion_value * 100).astype(np.int64), 2),
    }
    return join_lines([fields[name] for name in CONVERSIONS.columns], CONVERSIONS.separator)


def _named(pattern: str, numbers: npt.NDArray[np.integer]) -> TextMatrix:
    before, after = (constant_text(text, len(numbers)) for text in pattern.split("{}"))
    return np.hstack([before, integer_text(numbers), after])
