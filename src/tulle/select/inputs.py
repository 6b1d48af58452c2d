"""What the verbs of selection take, in any form: selections, names of columns, tables and files."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tulle.data.tables.scratch import as_file
from tulle.runs.record import Result
from tulle.runs.release_files import released_file
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.files.choice_files import CLICK_COLUMNS, RELEASED_COLUMNS
from tulle.select.recommending import SelectionPlan
from tulle.select.selection_config import SelectionConfig
from tulle.select.settings import read_settings, settings_of

FilePath = str | os.PathLike[str]
Selection = SelectionConfig | SelectionPlan | Mapping[str, Any] | FilePath
"""A selection: what `plan` gave, a config, the tables of a settings file, or its path."""
Columns = AuctionColumns | Mapping[str, Any] | None
"""Names of the columns of auctions; None: those of the plan, or the usual ones."""


def selection_of(given: Selection) -> SelectionConfig:
    """The selection, whichever way it was given.

    Raises:
      ConfigError: A setting is unknown, missing or wrong, or two do not go together.
      DataError: The file cannot be read.
    """
    if isinstance(given, SelectionPlan):
        return given.config
    if isinstance(given, SelectionConfig):
        return given
    if isinstance(given, Mapping):
        return settings_of(given, name="selection")
    return read_settings(Path(given))


def auction_columns(given: Columns, selection: Selection | None = None) -> AuctionColumns:
    """Names of the columns: as given, else those that the selection was planned with."""
    if given is None:
        return selection.columns if isinstance(selection, SelectionPlan) else AuctionColumns()
    return given if isinstance(given, AuctionColumns) else AuctionColumns(**given)


def auctions_file(
    auctions: object, columns: AuctionColumns, *, with_device: bool
) -> contextlib.AbstractContextManager[Path]:
    """The file of auctions; of a table in memory, with no column that is not needed.

    Args:
      auctions: A path or a table.
      columns: Names of its columns.
      with_device: Whether predictions of devices are needed. If not, they stay in memory.
    """
    needed = columns.needed(with_device=with_device)
    return as_file(auctions, name="auctions.parquet", columns=needed)


@contextlib.contextmanager
def choices_file(choices: object) -> Iterator[Path]:
    """The file of choices: of a release, with its record, or of a path or a table."""
    with contextlib.ExitStack() as stack:
        if isinstance(choices, Result):
            yield stack.enter_context(released_file(choices))
        else:
            yield stack.enter_context(
                as_file(choices, name="choices.parquet", columns=RELEASED_COLUMNS)
            )


def clicks_file(clicks: object) -> contextlib.AbstractContextManager[Path]:
    """The file of clicks; of a table in memory, with the columns that are read."""
    return as_file(clicks, name="clicks.parquet", columns=CLICK_COLUMNS)
