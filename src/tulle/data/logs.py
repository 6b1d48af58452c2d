"""A log that can be read more than once and from any block on."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tulle.data.formats.blocks import BadLines, Block, Position
from tulle.data.formats.layout import Layout
from tulle.data.formats.tables import read_blocks
from tulle.data.formats.taobao import TAOBAO
from tulle.data.formats.taobao_tables import read_taobao_blocks

_ROWS_PER_BLOCK = 100_000


class Log(Protocol):
    """Where rows come from. Names of files, layout and choices are public, rows are not."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files; positions refer to them by their index."""

    @property
    def layout(self) -> Layout:
        """What the columns are."""

    @property
    def bad_lines(self) -> BadLines:
        """What happens to lines that cannot be read."""

    def blocks(self, start: Position | None = None) -> Iterator[Block]:
        """The rows, the same each time, from the beginning or from a position on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogFiles:
    """Files of one layout, one after the other."""

    paths: tuple[Path, ...]
    layout: Layout
    bad_lines: BadLines = BadLines.REFUSE
    rows_per_block: int = _ROWS_PER_BLOCK

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", tuple(map(Path, self.paths)))

    def blocks(self, start: Position | None = None) -> Iterator[Block]:
        """The rows, the same each time, from the beginning or from a position on."""
        return read_blocks(
            self.paths,
            self.layout,
            rows_per_block=self.rows_per_block,
            bad_lines=self.bad_lines,
            start=start,
        )


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
