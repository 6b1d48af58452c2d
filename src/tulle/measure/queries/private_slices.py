"""Slices that are given, or found privately among those that occur."""

import bisect

import numpy as np
import polars as pl

from tulle.measure.slice_jobs import IntArray, SliceTotals
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.key_selection import KeySelectionConfig, select_keys


def chosen_slices(
    slices: pl.DataFrame,
    raw_unit_counts: IntArray,
    selection: KeySelectionConfig | None,
    *,
    rng: NoiseSource,
) -> pl.DataFrame:
    """The slices that are published.

    Args:
      slices: Those that occur, or those that were asked for.
      raw_unit_counts: Units in each, after bounding.
      selection: How they are chosen; None if they were asked for, and are public.
      rng: Source of the choice. Sensitive: never log or save its state.

    Privacy:
      Event: one key selection, or none for public slices. Relies on: a unit is in at most
      `selection.max_keys_per_unit` slices.
    """
    if selection is None:
        return slices
    return slices.filter(pl.Series(select_keys(raw_unit_counts, selection, rng=rng)))


def units_to_be_found(selection: KeySelectionConfig) -> tuple[int, int]:
    """Units with which a slice is found as often as not, and with which it always is."""
    sure = selection.num_units_sure
    counts = range(sure + 1)
    likely = bisect.bisect_left(counts, 0.5, key=selection.keep_prob)
    return likely, sure


def steps_of(totals: SliceTotals, slices: pl.DataFrame) -> IntArray:
    """The raw steps of these slices, 0 for those that the totals lack."""
    if not slices.width or totals.slices.equals(slices):
        return totals.raw_steps
    places = rows_of(totals.slices, slices)
    found = places.is_not_null().to_numpy()
    steps = np.zeros((slices.height, totals.raw_steps.shape[1]), np.int64)
    steps[found] = totals.raw_steps[places.drop_nulls().to_numpy()]
    return steps


def rows_of(slices: pl.DataFrame, wanted: pl.DataFrame) -> pl.Series:
    """At which row of `slices` each wanted slice is, null for those that it lacks."""
    name = "".join(("row ", *slices.columns))  # longer than any of them, so none of them
    rows = slices.with_row_index(name)
    return wanted.join(rows, on=wanted.columns, how="left", maintain_order="left")[name]
