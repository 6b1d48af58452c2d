"""Randomized response on bins of a value, carried out by browsers.

One value of trigger data, one window, and the sum of values put into summary buckets: a
source sends one report for every bucket that the sum reaches, so its reports say the
bin, and silence is the lowest bin. The states are the bins, and the browser's noise over
them is randomized response on bins.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.lab.browser_reports.report_states import MOST_REPORTS, ReportSpec, TriggerData
from tulle.lab.browser_reports.source_noise import MOST_EPSILON, SourceNoise, debias
from tulle.privacy.fields import check_count, check_fields, check_list

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_REQUIRED = ("trigger_data", "event_report_windows")
_OPTIONAL = ("summary_buckets", "summary_operator")


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
        fields = check_fields("trigger_specs", part, _REQUIRED, _OPTIONAL)
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
