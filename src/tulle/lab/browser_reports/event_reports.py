"""What error event-level reports would leave in a campaign's counts: a what-if tool.

A source's true reports are its first conversions within the windows; its state says how many of
them carry which value in which window, and is noised as a whole. The counts of a slice are
debiased sums over its sources, silent ones too. So their variance is exact: a sum over sources
that depends on their true numbers alone. What the limits on reports and windows lose is a bias.
The Attribution Reporting API, which this simulates, is retired by Chrome.
"""

import dataclasses

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.lab.browser_reports.attributed_log import (
    AttributedLog,
    distinct_slices,
    places_in,
    places_within_source,
)
from tulle.lab.browser_reports.event_settings import EventSettings, SourceReports
from tulle.lab.browser_reports.source_noise import debias, debiased_variance
from tulle.measure.expected_error import expected_relative_errors, root_mean_square
from tulle.measure.w3c.verbs import slice_names
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.randomized_response import release_randomized_response

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_CHUNK = 1 << 18
"""Most sources whose states are noised at once, which bounds the memory."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EventOutcome:
    """What a campaign would see. Sensitive: it holds raw counts."""

    slices: pl.DataFrame = dataclasses.field(repr=False)
    """A row a slice: slice, sources, conversions, reported, noise_stddev, relative_error,
    lost_share; and noisy, if noise was drawn. `reported` are the conversions for which the
    limits leave a report."""
    trigger_data: pl.DataFrame = dataclasses.field(repr=False)
    """Counts and errors of each slice, kind of source and value of trigger data."""
    lost_share: float
    """Share of the conversions for which the limits leave no report."""

    @property
    def rmsre(self) -> float:
        """RMSRE_tau of the counts of slices."""
        return root_mean_square(self.slices["relative_error"].to_numpy())


def expected_events(log: AttributedLog, settings: EventSettings) -> EventOutcome:
    """The error of each count from its exact variance, without drawing noise.

    Privacy:
      None: the outcome is computed from raw rows. Keep it with the data.
    """
    return _outcome(log, settings, None)


def simulate_events(
    log: AttributedLog, settings: EventSettings, *, rng: NoiseSource
) -> EventOutcome:
    """The error of each count with one draw of the browsers' noise, in the columns `noisy`.

    Args:
      log: Sources and the conversions credited to them; it needs the kinds of sources.
      settings: What clicks and views may report.
      rng: Source of the noise. Sensitive: never log or save its state.

    Privacy:
      The columns `noisy` alone follow from reports that are local: unit one source, replace,
      event one RandomizedResponse. The other columns are raw: keep the outcome with the data.
    """
    return _outcome(log, settings, rng)


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
        noisy = release_randomized_response(
            places[start : start + _CHUNK], group.reports.noise.response, rng=rng
        )
        heard = np.flatnonzero(noisy)  # Place 0 is silence.
        shown = spec.states_at(noisy[heard]).reshape(-1, num_data, num_windows).sum(axis=2)
        np.add.at(counts, group.slices[start + heard], shown)
    return counts


def _outcome(log: AttributedLog, settings: EventSettings, rng: NoiseSource | None) -> EventOutcome:
    slices = distinct_slices(log.sources, settings.by)
    names = slice_names(slices)
    by_datum, by_slice = [], []
    for group in source_groups(log, settings, places_in(log.sources, slices)):
        noisy = None if rng is None else noisy_counts(group, len(slices), rng=rng)
        by_datum.append(_with_errors(_datum_counts(group, names, noisy), settings.tau))
        by_slice.append(_slice_counts(group, names, noisy))
    table = pl.concat(by_slice).group_by("slice", maintain_order=True).sum()
    conversions = int(table["conversions"].sum())
    return EventOutcome(
        slices=_with_errors(table, settings.tau),
        trigger_data=pl.concat(by_datum),
        lost_share=1 - int(table["reported"].sum()) / conversions if conversions else 0.0,
    )


def _datum_counts(group: SourceGroup, names: pl.Series, noisy: IntArray | None) -> pl.DataFrame:
    reports, num_data = group.reports, group.reports.num_trigger_data
    size = len(names) * num_data
    cells = group.slices[group.sources] * num_data + group.data
    num_sources = np.bincount(group.slices, minlength=len(names)).repeat(num_data)
    pairs, counts = np.unique(
        (group.sources * num_data + group.data)[group.is_reported], return_counts=True
    )
    pair_cells = group.slices[pairs // num_data] * num_data + pairs % num_data
    columns = {
        "slice": names.gather(np.arange(len(names)).repeat(num_data)),
        "source": [reports.kind.value] * size,
        "trigger_data": np.tile(np.arange(num_data), len(names)),
        "sources": num_sources,
        "conversions": np.bincount(cells, minlength=size),
        "reported": np.bincount(cells[group.is_reported], minlength=size),
        "variance": _variance(reports, 1, num_sources, pair_cells, counts),
    }
    if noisy is not None:
        columns["noisy"] = _debiased(reports, 1, noisy.reshape(-1), num_sources)
    return pl.DataFrame(columns)


def _slice_counts(group: SourceGroup, names: pl.Series, noisy: IntArray | None) -> pl.DataFrame:
    reports, num_data = group.reports, group.reports.num_trigger_data
    num_sources = np.bincount(group.slices, minlength=len(names))
    owners, counts = np.unique(group.sources[group.is_reported], return_counts=True)
    cells = group.slices[group.sources]
    columns = {
        "slice": names,
        "sources": num_sources,
        "conversions": np.bincount(cells, minlength=len(names)),
        "reported": np.bincount(cells[group.is_reported], minlength=len(names)),
        "variance": _variance(reports, num_data, num_sources, group.slices[owners], counts),
    }
    if noisy is not None:
        columns["noisy"] = _debiased(reports, num_data, noisy.sum(axis=1), num_sources)
    return pl.DataFrame(columns)


def _variance(
    reports: SourceReports, num_data: int, num_sources: IntArray, cells: IntArray, counts: IntArray
) -> FloatArray:
    """Variance of each cell: the sum over its sources, of which those not listed are silent."""
    mean, mean_square = map(float, reports.uniform_moments(num_data))
    flip_prob = reports.noise.flip_prob
    silent = debiased_variance(0.0, mean, mean_square, flip_prob)
    extra = debiased_variance(counts.astype(np.float64), mean, mean_square, flip_prob) - silent
    heard = np.bincount(cells, weights=extra, minlength=len(num_sources))
    return np.asarray(num_sources * silent + heard, np.float64)


def _debiased(
    reports: SourceReports, num_data: int, noisy: IntArray, num_sources: IntArray
) -> FloatArray:
    mean = float(reports.uniform_moments(num_data)[0])
    return np.asarray(debias(noisy, num_sources * mean, reports.noise.flip_prob))


def _with_errors(table: pl.DataFrame, tau: float) -> pl.DataFrame:
    conversions, reported = table["conversions"].to_numpy(), table["reported"].to_numpy()
    variance = table["variance"].to_numpy()
    errors = expected_relative_errors(conversions, variance, bias=reported - conversions, tau=tau)
    columns = [name for name in table.columns if name not in {"variance", "noisy"}]
    noisy = ["noisy"] if "noisy" in table.columns else []
    return table.with_columns(
        noise_stddev=pl.Series(np.sqrt(variance)),
        relative_error=pl.Series(errors),
        lost_share=pl.Series((conversions - reported) / np.maximum(conversions, 1)),
    ).select(*columns, "noise_stddev", "relative_error", "lost_share", *noisy)


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
