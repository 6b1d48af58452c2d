"""Counts of units by the set of channels they saw, and whether they converted.

A unit is in one cell at most, so that one unit more or less changes one count by 1. Sets of
more channels than wanted have a cell of their own: cut down to fewer channels, they would
be counted as people who saw less than they did.
"""

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_count, check_text

IntArray = npt.NDArray[np.int64]

MAX_CHANNELS = 12
MAX_CELLS = 5000
_TYPES = {"channels": pl.List(pl.String), "converted": pl.Boolean}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelCells:
    """The cells that units are counted in. Public."""

    channels: tuple[str, ...]
    """Their names; channels that are not in it are ignored."""
    max_set_size: int = 3
    """Units that saw more channels than so many are counted apart, and not used."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", tuple(self.channels))
        for channel in self.channels:
            check_text("channels", channel)
        if len(set(self.channels)) < len(self.channels):
            raise ConfigError(f"channels={list(self.channels)} must be distinct.")
        if not 2 <= len(self.channels) <= MAX_CHANNELS:
            raise ConfigError(
                f"channels has {len(self.channels)} names, must have 2 to {MAX_CHANNELS}; put "
                "small channels together in a column of their groups."
            )
        check_count("max_set_size", self.max_set_size)
        if self.num_cells > MAX_CELLS:
            raise ConfigError(
                f"max_set_size={self.max_set_size} with {len(self.channels)} channels makes "
                f"{self.num_cells} cells, must be at most {MAX_CELLS}; lower it, e.g. to 3."
            )

    @property
    def num_cells(self) -> int:
        """How many counts there are."""
        num_channels = len(self.channels)
        sizes = range(1, min(self.max_set_size, num_channels) + 1)
        return 2 * (1 + sum(math.comb(num_channels, size) for size in sizes))

    @functools.cached_property
    def masks(self) -> IntArray:
        """The sets, as numbers whose bit i says that channel i is in the set; by size."""
        every = np.arange(1, 1 << len(self.channels))
        sizes = np.bitwise_count(every)
        kept = every[sizes <= self.max_set_size]
        return kept[np.argsort(np.bitwise_count(kept), kind="stable")].astype(np.int64)


def raw_cell_counts(raw_sets: pl.DataFrame, cells: ChannelCells) -> IntArray:
    """Exact counts [sets + 1, 2] of units, not converted and converted. Sensitive.

    The last row is that of sets with more than max_set_size channels. Units that saw none of
    the channels are in no cell.

    Args:
      raw_sets: Columns `channels` (lists of text), `converted` (true or false) and
        `num_units` (whole numbers): how many units saw exactly these channels. Sensitive.
      cells: Channels and sizes of sets.

    Privacy:
      L1 sensitivity: 1 under add-or-remove. Relies on: each unit is counted in `num_units`
      of one row at most.
    """
    _check_table(raw_sets)
    bit_of = {channel: 1 << place for place, channel in enumerate(cells.channels)}
    place_of = {int(mask): place for place, mask in enumerate(cells.masks)}
    counts = np.zeros((len(place_of) + 1, 2), dtype=np.int64)
    for channels, converted, num_units in raw_sets.select([*_TYPES, "num_units"]).iter_rows():
        mask = sum(bit_of.get(channel, 0) for channel in set(channels))
        if mask:
            counts[place_of.get(mask, -1), int(converted)] += num_units
    return counts


def _check_table(raw_sets: pl.DataFrame) -> None:
    for name in (*_TYPES, "num_units"):
        if name not in raw_sets.columns:
            raise DataError(f"the table of channel sets has no column {name!r}; it needs it.")
        if raw_sets[name].null_count():
            raise DataError(f"column {name!r} of the channel sets has nulls; fill or drop them.")
    for name, dtype in _TYPES.items():
        if raw_sets.schema[name] != dtype:
            raise DataError(
                f"column {name!r} of the channel sets is {raw_sets.schema[name]}, must be {dtype}."
            )
    if not raw_sets.schema["num_units"].is_integer() or (raw_sets["num_units"] < 0).any():
        raise DataError("column 'num_units' of the channel sets must hold whole numbers >= 0.")
