"""Reading the three files of the Taobao log as one table.

The click log is streamed; ads and profiles are small and are held in memory.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from tulle.data.formats.public import AD_FEATURES, CLICKS, MISSING, TAOBAO, USER_FEATURES
from tulle.data.tables.layout import BadLines, Block, Layout, Position, Reading, TextForm
from tulle.data.tables.sources import read_files
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import did_you_mean

# Blocks of ads and profiles, which are joined to one table anyway, and of the click log, which is
# streamed: larger ones cost memory, smaller ones a join each.
_NUM_ROWS_AT_ONCE = 200_000
_ROWS_PER_BLOCK = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaobaoTables:
    """The three files of the Taobao log, joined while they are read."""

    raw_sample: Path
    ad_feature: Path
    user_profile: Path
    bad_lines: BadLines = BadLines.REFUSE
    rows_per_block: int = _ROWS_PER_BLOCK

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files, the one with the rows first."""
        return (Path(self.raw_sample), Path(self.ad_feature), Path(self.user_profile))

    @property
    def layout(self) -> Layout:
        """The columns of the joined rows."""
        return TAOBAO

    def blocks(self, start: Position | None = None) -> Iterator[Block]:
        """The rows, the same each time, from the beginning or from a position on."""
        return read_taobao_blocks(
            *self.paths, rows_per_block=self.rows_per_block, bad_lines=self.bad_lines, start=start
        )


def read_taobao_blocks(
    raw_sample: Path,
    ad_feature: Path,
    user_profile: Path,
    *,
    rows_per_block: int = 200_000,
    bad_lines: BadLines = BadLines.REFUSE,
    start: Position | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[Block]:
    """Streams the click log with the features of its ads and users.

    A click whose ad or user is in no table is kept, with nulls: about one
    click in twenty has no profile. Bad lines of the two small tables are
    counted in the first block of a reading from the beginning.

    Args:
      raw_sample: The click log.
      ad_feature: One row an ad.
      user_profile: One row a user.
      rows_per_block: Most rows in a block.
      bad_lines: What to do with lines that cannot be read without guessing.
      start: `next` of the last block already seen; None starts at the beginning.
      columns: Columns of `TAOBAO` with a role to read, in this order; None for all.

    Privacy:
      Reads sensitive rows and releases nothing. Every row is joined by its own
      keys, so the rows of one unit do not depend on another unit.
    """
    used = TAOBAO.schema.used
    chosen = used if columns is None else tuple(columns)
    if unknown := [name for name in chosen if name not in used]:
        raise ConfigError(
            f"column {unknown[0]!r} has no role under which layout 'taobao' reads it"
            f"{did_you_mean(unknown[0], used)}; read one of {', '.join(used)}."
        )
    clicks = tuple(name for name in CLICKS if name in {*chosen, "user", "adgroup_id"})
    reading = Reading(
        form=_form(CLICKS), columns=clicks, rows_per_block=rows_per_block, bad_lines=bad_lines
    )
    blocks = read_files([raw_sample], reading, start)
    tables = [
        _read_features(ad_feature, ("adgroup_id", *AD_FEATURES), "adgroup_id", bad_lines),
        _read_features(user_profile, ("userid", *USER_FEATURES), "user", bad_lines),
    ]
    return _joined(blocks, tables, chosen, is_first=start is None or start.row == 0)


@dataclasses.dataclass(frozen=True)
class _Features:
    table: pl.DataFrame
    key: str
    num_bad_lines: int


def _joined(
    blocks: Iterator[Block],
    features: Sequence[_Features],
    columns: Sequence[str],
    *,
    is_first: bool,
) -> Iterator[Block]:
    num_bad_lines = sum(table.num_bad_lines for table in features) if is_first else 0
    for block in blocks:
        joined = block.table
        for part in features:
            joined = _with_text_key(joined, part.key)
            joined = joined.join(part.table, on=part.key, how="left", maintain_order="left")
        num_bad_lines += block.num_bad_lines
        yield Block(joined.select(columns), block.next, num_bad_lines)
        num_bad_lines = 0


def _read_features(
    path: Path, columns: tuple[str, ...], key: str, bad_lines: BadLines
) -> _Features:
    reading = Reading(
        form=_form(columns),
        columns=columns,
        rows_per_block=_NUM_ROWS_AT_ONCE,
        bad_lines=bad_lines,
    )
    blocks = list(read_files([path], reading, None))
    if not blocks:
        raise DataError(f"{path.name} has no rows; every ad and user would lack its features.")
    table = pl.concat([block.table for block in blocks]).rename({columns[0]: key})
    table = _with_text_key(table, key)
    if table[key].null_count() or table[key].is_duplicated().any():
        raise DataError(
            f"{path.name} must have one row for each {columns[0]}, but has it missing or twice; "
            "remove such rows."
        )
    return _Features(table, key, sum(block.num_bad_lines for block in blocks))


def _with_text_key(table: pl.DataFrame, key: str) -> pl.DataFrame:
    kind = table[key].dtype
    if kind != pl.String and not kind.is_integer():
        raise DataError(f"column {key!r} has type {kind}, but must be text or integers to join by.")
    return table.with_columns(pl.col(key).cast(pl.String))


def _form(columns: tuple[str, ...]) -> TextForm:
    return TextForm(columns=columns, separator=",", has_header=True, missing=MISSING)
