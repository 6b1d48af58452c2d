"""What error event-level reports would leave in a campaign's counts: a what-if tool.

The counts of a slice are debiased sums over its sources, silent ones too. So their variance
is exact: a sum over sources that depends on their true numbers alone. What the limits on
reports and windows lose is a bias. The Attribution Reporting API, which this simulates, is
retired by Chrome.
"""

import dataclasses

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.measure.expected_error import expected_relative_errors, root_mean_square
from tulle.measure.reports.attributed_log import AttributedLog
from tulle.measure.reports.event_settings import EventSettings, SourceReports
from tulle.measure.reports.event_states import SourceGroup, noisy_counts, source_groups
from tulle.measure.reports.slice_places import distinct_slices, places_in, slice_names
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.source_noise import debias, debiased_variance

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EventOutcome:
    """What a campaign would see. Sensitive: it holds raw counts."""

    slices: pl.DataFrame = dataclasses.field(repr=False)
    """A row a slice: slice, sources, conversions, reported, noise_stddev, relative_error,
    lost_share; and noisy, if noise was drawn. `reported` are the conversions for which the
    limits leave a report."""
    trigger_data: pl.DataFrame = dataclasses.field(repr=False)
    """The same for each slice, kind of source and value of trigger data."""
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
    """The same with one draw of the browsers' noise, in the columns `noisy`.

    Args:
      log: Sources and the conversions credited to them; it needs the kinds of sources.
      settings: What clicks and views may report.
      rng: Source of the noise. Sensitive: never log or save its state.

    Privacy:
      The columns `noisy` alone follow from reports that are local: unit one source, replace,
      event one RandomizedResponse. The other columns are raw: keep the outcome with the data.
    """
    return _outcome(log, settings, rng)


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
    """Of each cell: the sum over its sources, of which those not listed have no report."""
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
