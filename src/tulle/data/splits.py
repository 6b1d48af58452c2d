"""Splits of the rows into parts, such as train and test: by time, by unit or at random.

Every function returns one vector of row numbers for each part, in ascending order;
together they hold every row once. The same key gives the same split.
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.data.contribution import checked_times, checked_unit_ids
from tulle.data.keyed_hash import hash_columns
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import Words
from tulle.mechanisms.thresholds import WORD_VALUES

IntArray = NDArray[np.int64]

_SECONDS_PER_DAY = 86_400


def split_by_time(times: ArrayLike, *, fractions: Sequence[float]) -> list[IntArray]:
    """Earlier rows before later ones, in parts of about these fractions.

    Rows at the same time stay together, so no part reaches back into the one
    before it; with few distinct times parts can be larger or smaller than asked.

    Args:
      times: When each row happened.
      fractions: Share of each part, in order of time; they add up to 1.

    Privacy:
      The cut times are exact statistics of the times: public where times are.
    """
    checked = checked_times(times)
    cuts = [math.floor(share * checked.size) for share in _cumulated(fractions)[:-1]]
    if checked.size == 0:
        return split_at_times(checked, boundaries=[0.0] * len(cuts))
    ordered = np.sort(checked)
    boundaries = [ordered[min(cut, checked.size - 1)] for cut in cuts]
    return split_at_times(checked, boundaries=boundaries)


def split_at_times(times: ArrayLike, *, boundaries: Sequence[float]) -> list[IntArray]:
    """Rows before the first boundary, from it to before the next, and so on.

    Args:
      times: When each row happened.
      boundaries: First time of each part but the first, in ascending order; public.
    """
    checked = checked_times(times)
    if any(later < earlier for earlier, later in itertools.pairwise(boundaries)):
        raise ConfigError(f"boundaries={list(boundaries)} must be in ascending order.")
    if not all(math.isfinite(boundary) for boundary in boundaries):
        raise ConfigError(f"boundaries={list(boundaries)} must be finite; leave out the others.")
    parts = np.searchsorted(np.asarray(boundaries), checked, side="right")
    return _rows_of_parts(parts, len(boundaries) + 1)


def split_at_days(
    times: ArrayLike, *, boundary_days: Sequence[int], start: float = 0
) -> list[IntArray]:
    """Splits rows as `split_at_times` does, at boundaries in whole days of 86,400 seconds.

    Args:
      times: Time of each row, in seconds.
      boundary_days: Whole days since `start` at which a new part begins.
      start: Time at which day 0 begins, in the same seconds.
    """
    boundaries = [start + day * _SECONDS_PER_DAY for day in boundary_days]
    return split_at_times(times, boundaries=boundaries)


def split_by_unit(
    raw_unit_ids: ArrayLike, *, fractions: Sequence[float], key: bytes
) -> list[IntArray]:
    """Puts all rows of a unit into one part, drawn by a keyed hash of its id.

    Args:
      raw_unit_ids: The unit of each row, as whole numbers.
      fractions: Probability of each part; they add up to 1.
      key: Key of the hash, at least 16 bytes. A unit keeps its part when other data come with the
        same key.

    Privacy:
      Releases nothing: the part of a unit is fixed by its id and the key alone, so that no other
      unit can change it.
    """
    unit_ids = checked_unit_ids(raw_unit_ids)
    hashes = hash_columns(key, "split by unit", unit_ids.astype(np.int64))
    return _split_by_hash(hashes, fractions)


def split_at_random(num_rows: int, *, fractions: Sequence[float], key: bytes) -> list[IntArray]:
    """Puts each row into a part, drawn by a keyed hash of its number.

    Rows of one unit can land in several parts; use `split_by_unit` to test on users
    that a model has not seen.

    Args:
      num_rows: Number of rows to split.
      fractions: Probability of each part; they add up to 1.
      key: Key of the hash, at least 16 bytes. The same key gives the same split.
    """
    if isinstance(num_rows, bool) or not isinstance(num_rows, int) or num_rows < 0:
        raise DataError(f"num_rows={num_rows!r} must be a whole number >= 0.")
    hashes = hash_columns(key, "split at random", np.arange(num_rows))
    return _split_by_hash(hashes, fractions)


def _split_by_hash(hashes: Words, fractions: Sequence[float]) -> list[IntArray]:
    shares = _cumulated(fractions)[:-1]
    thresholds = np.array([math.floor(share * WORD_VALUES) for share in shares], np.uint64)
    parts = np.searchsorted(thresholds, hashes, side="right")
    return _rows_of_parts(parts, len(fractions))


def _cumulated(fractions: Sequence[float]) -> list[Fraction]:
    """The shares up to and with each part; the last one is 1."""
    if len(fractions) < 2:
        raise ConfigError(f"fractions={list(fractions)} must name at least two parts.")
    if not all(0 < fraction < 1 for fraction in fractions):
        raise ConfigError(
            f"fractions={list(fractions)} must be between 0 and 1; leave out empty parts."
        )
    if abs(math.fsum(fractions) - 1) > 1e-9:
        raise ConfigError(
            f"fractions={list(fractions)} add up to {math.fsum(fractions):g} and must add up to 1; "
            "add a part for the rest."
        )
    exact = list(itertools.accumulate(Fraction(fraction) for fraction in fractions))
    return [share / exact[-1] for share in exact]


def _rows_of_parts(parts: NDArray[np.intp], num_parts: int) -> list[IntArray]:
    return [np.flatnonzero(parts == part) for part in range(num_parts)]
