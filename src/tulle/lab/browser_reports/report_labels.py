"""Labels out of event-level reports: counts, silence, bins, and targets without bias.

A source that is noised with the probability p shows a random state, which biases whatever is
read off it; source_noise.py has the noise and how its bias is taken out. Nothing here reads raw
data: it costs no privacy.

Browsers also carry out randomized response on bins of a value. With one value of trigger data, one
window, and the sum of values put into summary buckets, a source sends one report for every bucket
that the sum reaches: its reports say the bin, and silence is the lowest bin. The states are the
bins, and the browser's noise over them is randomized response on bins.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.lab.browser_reports.report_states import MOST_REPORTS, ReportSpec, TriggerData
from tulle.lab.browser_reports.source_noise import MOST_EPSILON, SourceNoise, debias
from tulle.labels.label_mechanism import NoisyLabels
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.privacy.fields import check_count, check_fields, check_list

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def closed_sources(
    source_times: ArrayLike, *, last_window_seconds: int, now: int, max_delay_seconds: int = 0
) -> BoolArray:
    """Which sources can send no further report, so that silence means a label of 0.

    Args:
      source_times: When each source was registered, in seconds.
      last_window_seconds: End of the last window after registration.
      now: The time up to which reports have been collected.
      max_delay_seconds: How late after its window a report may arrive.
    """
    check_count("last_window_seconds", last_window_seconds)
    check_count("max_delay_seconds", max_delay_seconds, least=0)
    times = np.asarray(source_times, np.int64)
    return times + last_window_seconds + max_delay_seconds <= now


def count_reports(source_ids: ArrayLike, report_source_ids: ArrayLike) -> IntArray:
    """Reports of each source. A source without any has 0: silence is an answer.

    Raises:
      DataError: A source twice, or a report of a source that is not listed.
    """
    sources, reports = np.asarray(source_ids), np.asarray(report_source_ids)
    if sources.ndim != 1 or reports.ndim != 1:
        raise DataError("source ids must be in one dimension: one a source, one a report.")
    names, places = np.unique(sources, return_inverse=True)
    if len(names) < len(sources):
        raise DataError("a source is listed twice; keep one row for each source.")
    if reports.size == 0:
        return np.zeros(len(sources), np.int64)
    found = np.minimum(np.searchsorted(names, reports), max(len(names) - 1, 0))
    if not len(names) or np.any(names[found] != reports):
        raise DataError("a report names a source that is not listed; list all sources.")
    return np.bincount(found, minlength=len(names))[places].astype(np.int64)


def label_sources(
    report_counts: ArrayLike,
    noise: SourceNoise,
    *,
    base_rate: float,
    randomized_trigger_rates: ArrayLike | None = None,
) -> NoisyLabels:
    """Labels each source by "at least one conversion", with targets without bias.

    Args:
      report_counts: Reports of each source, of closed sources only.
      noise: Spec and epsilon that the sources were registered with.
      base_rate: Public guess of the share of sources with a conversion, for the variance.
      randomized_trigger_rates: Probability of noise of each source, where they differ. For
        sources without a report it must come from their registration.
    """
    counts = np.asarray(report_counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or np.any(counts < 0):
        raise DataError("report_counts must be whole numbers >= 0, one a source.")
    if np.any(counts > noise.spec.max_reports):
        raise DataError(
            f"a source has more than max_reports={noise.spec.max_reports} reports; drop repeated "
            "deliveries, or give the spec of the registration."
        )
    channel = noise.any_conversion_channel()
    if randomized_trigger_rates is not None:
        channel = channel_of_rates(randomized_trigger_rates, noise.spec.num_states)
        if channel.gain.shape != counts.shape:
            raise DataError("randomized_trigger_rates must have one number for each source.")
    labels = (counts > 0).astype(np.int64)
    return NoisyLabels(
        labels=labels,
        targets=channel.debiased_targets(labels),
        noise_variance=channel.mean_variance(base_rate),
        channel=channel,
    )


def channel_of_rates(randomized_trigger_rates: ArrayLike, num_states: int) -> BinaryChannel:
    """The channel of "at least one report" from each source's own probability of noise."""
    check_count("num_states", num_states, least=2)
    rates = np.asarray(randomized_trigger_rates, np.float64)
    if not np.all((rates >= 0) & (rates < 1)):
        raise ConfigError("randomized_trigger_rates must be probabilities in [0, 1).")
    silent = rates / num_states
    return BinaryChannel(prob_if_negative=rates - silent, prob_if_positive=1 - silent)


def debias_counts(report_counts: ArrayLike, noise: SourceNoise) -> FloatArray:
    """Numbers whose mean over the noise is the true number of reports."""
    counts = np.asarray(report_counts, np.float64)
    return np.asarray(debias(counts, float(noise.spec.mean_reports), noise.flip_prob))


def debias_values(
    noisy_states: ArrayLike, cell_values: ArrayLike, noise: SourceNoise
) -> FloatArray:
    """Numbers whose mean over the noise is the true sum of values, each cell with its own.

    Args:
      noisy_states: Reports in each cell of each source: [sources, cells].
      cell_values: What one report in a cell is worth.
      noise: Spec and epsilon that the sources were registered with.
    """
    states = np.asarray(noisy_states, np.float64)
    values = np.asarray(cell_values, np.float64)
    if values.shape != (noise.spec.num_cells,) or states.shape[1:] != values.shape:
        raise DataError(
            f"cell_values and each state must have {noise.spec.num_cells} numbers, one for each "
            "value of trigger data and window."
        )
    cell_means = np.array([float(mean) for mean in noise.spec.mean_reports_per_cell])
    return np.asarray(debias(states @ values, float(cell_means @ values), noise.flip_prob))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinReports:
    """Bins as summary buckets. Public: it is part of the registration."""

    bin_starts: tuple[int, ...]
    """The least value of each bin but the lowest, ascending and >= 1: the summary buckets."""
    window_seconds: int
    """End of the one window after registration."""
    epsilon: float = MOST_EPSILON

    def __post_init__(self) -> None:
        object.__setattr__(self, "bin_starts", tuple(self.bin_starts))
        for start in self.bin_starts:
            check_count("bin_starts", start)
        if not self.bin_starts or any(np.diff(self.bin_starts) <= 0):
            raise ConfigError(
                f"bin_starts={self.bin_starts} must be ascending, at least one: the lowest bin "
                "has no start, it is silence."
            )
        if len(self.bin_starts) > MOST_REPORTS:
            raise ConfigError(
                f"bin_starts has {len(self.bin_starts)} buckets; a source reports at most "
                f"{MOST_REPORTS} times, so there can be {MOST_REPORTS + 1} bins."
            )
        check_count("window_seconds", self.window_seconds)
        self.noise.event()

    @property
    def num_bins(self) -> int:
        """Bins, which are the states."""
        return len(self.bin_starts) + 1

    @property
    def noise(self) -> SourceNoise:
        """The browser's noise over the bins."""
        data = TriggerData(num_windows=1, num_buckets=len(self.bin_starts))
        spec = ReportSpec(max_reports=len(self.bin_starts), trigger_data=(data,))
        return SourceNoise(spec=spec, epsilon=self.epsilon)

    def bins_of(self, values: ArrayLike) -> IntArray:
        """The bin of each value: how many reports it makes."""
        return np.searchsorted(self.bin_starts, np.asarray(values), side="right").astype(np.int64)

    def registration(self) -> dict[str, Any]:
        """The part of a source's registration that sets this up."""
        return {
            "trigger_specs": [
                {
                    "trigger_data": [0],
                    "event_report_windows": {"end_times": [self.window_seconds]},
                    "summary_operator": "value_sum",
                    "summary_buckets": list(self.bin_starts),
                }
            ],
            # One report for each bucket: with fewer the upper bins would be one.
            "max_event_level_reports": len(self.bin_starts),
            "event_level_epsilon": self.epsilon,
        }

    def debiased_values(self, report_counts: ArrayLike, bin_values: Sequence[float]) -> FloatArray:
        """Numbers whose mean over the noise is the value of the true bin.

        Args:
          report_counts: Reports of each closed source, which say its noisy bin.
          bin_values: What each bin stands for, the lowest first.
        """
        values = np.asarray(bin_values, np.float64)
        bins = np.asarray(report_counts)
        if values.shape != (self.num_bins,):
            raise ConfigError(f"bin_values has {values.size} numbers for {self.num_bins} bins.")
        if bins.dtype.kind not in "iu" or np.any((bins < 0) | (bins >= self.num_bins)):
            raise DataError(f"report_counts must be whole numbers from 0 to {self.num_bins - 1}.")
        return np.asarray(debias(values[bins], float(values.mean()), self.noise.flip_prob))


def spec_of_registration(registration: dict[str, Any]) -> ReportSpec:
    """The states' spec of a registration with `trigger_specs`.

    A part without summary buckets has one for each report.
    """
    max_reports = check_count(
        "max_event_level_reports", registration.get("max_event_level_reports")
    )
    data: dict[int, TriggerData] = {}
    for part in check_list("trigger_specs", registration.get("trigger_specs")):
        fields = check_fields(
            "trigger_specs",
            part,
            ("trigger_data", "event_report_windows"),
            ("summary_buckets", "summary_operator"),
        )
        windows = check_fields(
            "event_report_windows", fields["event_report_windows"], ["end_times"], ["start_time"]
        )
        buckets = fields.get("summary_buckets", list(range(1, max_reports + 1)))
        one = TriggerData(
            num_windows=len(check_list("end_times", windows["end_times"])),
            num_buckets=len(check_list("summary_buckets", buckets)),
        )
        for value in check_list("trigger_data", fields["trigger_data"]):
            if value in data:
                raise ConfigError(f"trigger_data {value!r} is there twice; list each value once.")
            data[value] = one
    return ReportSpec(max_reports=max_reports, trigger_data=tuple(data.values()))
