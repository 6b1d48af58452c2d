"""What clicks and views may report on their own, event by event.

A source sends a few reports of one small value each, at the end of windows, and the browser
noises the whole of them by randomized response. The API is retired by Chrome.
"""

import dataclasses
import functools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.lab.browser_reports.report_states import ReportSpec
from tulle.lab.browser_reports.source_noise import (
    MOST_EPSILON,
    SourceKind,
    SourceNoise,
    check_gain,
    debias,
)
from tulle.privacy.fields import check_count, check_finite

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DAY = 86_400


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceReports:
    """What one kind of source may report. Public: it is part of the registration."""

    kind: SourceKind
    window_ends: tuple[int, ...]
    """Ends of the windows in seconds after the source, ascending. A conversion is reported at
    the end of its window; from the last end on it is not reported."""
    num_trigger_data: int
    """Values that a report may carry; larger ones are taken modulo this."""
    max_reports: int
    epsilon: float = MOST_EPSILON

    def __post_init__(self) -> None:
        object.__setattr__(self, "window_ends", tuple(self.window_ends))
        for end in self.window_ends:
            check_count("window_ends", end)
        if not self.window_ends or np.any(np.diff(self.window_ends) <= 0):
            raise ConfigError(f"window_ends={self.window_ends} must be ascending, at least one.")
        check_gain(self.noise.spec.num_states, self.epsilon, self.kind)

    @classmethod
    def click(cls, epsilon: float = MOST_EPSILON) -> "SourceReports":
        """What a click may report unless the registration says otherwise."""
        return cls(
            kind=SourceKind.NAVIGATION,
            window_ends=(2 * DAY, 7 * DAY, 30 * DAY),
            num_trigger_data=8,
            max_reports=3,
            epsilon=epsilon,
        )

    @classmethod
    def view(cls, epsilon: float = MOST_EPSILON) -> "SourceReports":
        """What a view may report unless the registration says otherwise."""
        return cls(
            kind=SourceKind.EVENT,
            window_ends=(30 * DAY,),
            num_trigger_data=2,
            max_reports=1,
            epsilon=epsilon,
        )

    @functools.cached_property
    def noise(self) -> SourceNoise:
        """The noise over all states of such a source."""
        spec = ReportSpec.default(
            num_windows=len(self.window_ends),
            num_trigger_data=self.num_trigger_data,
            max_reports=self.max_reports,
        )
        return SourceNoise(spec=spec, epsilon=self.epsilon)

    def uniform_moments(self, num_data: int) -> tuple[Fraction, Fraction]:
        """Mean and mean square of the reports with `num_data` of the values, in a random state.

        States are multisets: k reports in c cells are C(k + c - 1, c - 1) ways, and at most r in
        the c' others are C(r + c', c').
        """
        num_cells = num_data * len(self.window_ends)
        num_others = self.noise.spec.num_cells - num_cells
        ways = [
            math.comb(k + num_cells - 1, num_cells - 1)
            * math.comb(self.max_reports - k + num_others, num_others)
            for k in range(self.max_reports + 1)
        ]
        mean = Fraction(sum(k * way for k, way in enumerate(ways)), sum(ways))
        mean_square = Fraction(sum(k * k * way for k, way in enumerate(ways)), sum(ways))
        return mean, mean_square


def debias_state_counts(state_counts: ArrayLike, noise: SourceNoise) -> FloatArray:
    """How many sources were in each state, estimated without bias from noisy states.

    Inverts (1 - p) I + (p / k) 1 1^T on the counts. Any number of reports follows by
    multiplying with what each state says.

    Args:
      state_counts: Sources seen in each state, the last axis in the order of the spec's places.
      noise: What the sources were registered with.
    """
    counts = np.asarray(state_counts, np.float64)
    if counts.ndim < 1 or counts.shape[-1] != noise.spec.num_states:
        raise DataError(f"state_counts must have {noise.spec.num_states} numbers, one a state.")
    uniform = counts.sum(axis=-1, keepdims=True) / noise.spec.num_states
    return np.asarray(debias(counts, uniform, noise.flip_prob))


_CLICK, _VIEW = SourceReports.click(), SourceReports.view()


@dataclasses.dataclass(frozen=True, kw_only=True)
class EventSettings:
    """Settings of event-level reports. Every field is public information."""

    clicks: SourceReports = _CLICK
    views: SourceReports = _VIEW
    click_kinds: tuple[str, ...] = ("click",)
    """Kinds of impressions that are clicks; all others are views."""
    by: tuple[str, ...] = ("campaign",)
    """Columns of impressions whose values make the slices."""
    trigger_data_column: str | None = None
    """The column of conversions whose values are reported, numbered in their order; None for
    one value alone."""
    tau: float = 5.0
    """Counts below this count as this in relative errors."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "click_kinds", tuple(self.click_kinds))
        object.__setattr__(self, "by", tuple(self.by))
        if not self.by:
            raise ConfigError("by must name a column of impressions, e.g. campaign.")
        if not check_finite("tau", self.tau) > 0:
            raise ConfigError(f"tau={self.tau} must be > 0, e.g. 5.")
