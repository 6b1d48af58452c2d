"""The reports that are true of each source, and what browsers send instead.

A source's true reports are its first conversions within the windows; its state says how
many of them carry which value in which window, and is noised as a whole.
"""

import dataclasses

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.measure.reports.attributed_log import AttributedLog
from tulle.measure.reports.event_settings import EventSettings, SourceReports
from tulle.measure.reports.report_budget import places_within_source
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.randomized_response import randomize

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_CHUNK = 1 << 18


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SourceGroup:
    """Sources of one kind with their conversions. Sensitive: raw rows."""

    reports: SourceReports
    slices: IntArray = dataclasses.field(repr=False)
    """The slice of each source."""
    sources: IntArray = dataclasses.field(repr=False)
    """Source of each conversion, as its place in this group."""
    data: IntArray = dataclasses.field(repr=False)
    """Trigger data of each conversion."""
    windows: IntArray = dataclasses.field(repr=False)
    """Window of each conversion."""
    is_reported: BoolArray = dataclasses.field(repr=False)
    """Whether the limits leave a report for a conversion."""


def source_groups(
    log: AttributedLog, settings: EventSettings, slices: IntArray
) -> tuple[SourceGroup, SourceGroup]:
    """Clicks and views.

    Args:
      log: Sources and the conversions credited to them; it needs the kinds of sources.
      settings: What clicks and views may report.
      slices: The slice of each source.

    Privacy:
      Returns raw rows, without any protection.
    """
    if log.kinds is None:
        raise ConfigError(
            "event-level reports differ for clicks and views; name the column that says it as "
            "LogColumns.kind."
        )
    is_click = log.kinds.is_in(settings.click_kinds).to_numpy()
    data = np.zeros(len(log.conversion_sources), np.int64)
    if settings.trigger_data_column is not None:
        values = log.column(settings.trigger_data_column).cast(pl.String).fill_null("")
        data = values.rank("dense").cast(pl.Int64).to_numpy() - 1
    return (
        _group(log, settings.clicks, is_click, slices, data),
        _group(log, settings.views, ~is_click, slices, data),
    )


def noisy_counts(group: SourceGroup, num_slices: int, *, rng: NoiseSource) -> IntArray:
    """Reports that arrive, with their bias: [slices, trigger data].

    Args:
      group: Sources of one kind.
      num_slices: How many slices there are.
      rng: Source of the noise. Sensitive: never log or save its state.

    Privacy:
      Unit: one source, replace. Local: each source is noised on its own, once. Event: one
      RandomizedResponse over all states.
    """
    spec, num_windows = group.reports.noise.spec, len(group.reports.window_ends)
    num_data = group.reports.num_trigger_data
    owners, rows = np.unique(group.sources[group.is_reported], return_inverse=True)
    states = np.zeros((len(owners), spec.num_cells), np.int64)
    cells = (group.data * num_windows + group.windows)[group.is_reported]
    np.add.at(states, (rows, cells), 1)
    places = np.zeros(len(group.slices), np.int64)
    places[owners] = spec.places_of(states)
    counts = np.zeros((num_slices, num_data), np.int64)
    for start in range(0, len(places), _CHUNK):
        noisy = randomize(places[start : start + _CHUNK], group.reports.noise.response, rng=rng)
        heard = np.flatnonzero(noisy)  # Place 0 is silence.
        shown = spec.states_at(noisy[heard]).reshape(-1, num_data, num_windows).sum(axis=2)
        np.add.at(counts, group.slices[start + heard], shown)
    return counts


def _group(
    log: AttributedLog,
    reports: SourceReports,
    is_member: BoolArray,
    slices: IntArray,
    data: IntArray,
) -> SourceGroup:
    is_of_group = is_member[log.conversion_sources]
    sources = (np.cumsum(is_member) - 1)[log.conversion_sources[is_of_group]]
    ages = log.ages[is_of_group]
    windows = np.searchsorted(reports.window_ends, ages, side="right")
    is_reported = windows < len(reports.window_ends)
    # The first ones count: once a source has sent all its reports, later ones are dropped.
    is_reported[is_reported] = places_within_source(sources[is_reported]) < reports.max_reports
    return SourceGroup(
        reports=reports,
        slices=slices[is_member],
        sources=sources,
        data=data[is_of_group] % reports.num_trigger_data,
        windows=windows,
        is_reported=is_reported,
    )
