"""All the ways in which a browser may report on one ad: the states of its noise.

A source (one impression or click) sends at most `max_reports` event-level reports. A
report carries one value of trigger data and comes at the end of one window. A state says
how many reports there are in each cell, a cell being a value of trigger data and a
window; no report at all is a state too. For each value, all its windows together have at
most as many reports as it has summary buckets. The number of states sets the noise.
"""

import dataclasses
import functools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_count

IntArray = NDArray[np.int64]

# Limits of the browser for one source; one that asks for more is refused, as there.
MOST_REPORTS = 20
MOST_WINDOWS = 5
MOST_TRIGGER_DATA = 32
MOST_STATES = 2**32 - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class TriggerData:
    """One value that a report may carry."""

    num_windows: int
    """Windows at whose end a report with it may come."""
    num_buckets: int
    """Summary buckets: the most reports with it."""

    def __post_init__(self) -> None:
        check_count("num_windows", self.num_windows)
        check_count("num_buckets", self.num_buckets)
        if self.num_windows > MOST_WINDOWS:
            raise ConfigError(f"num_windows={self.num_windows} must be <= {MOST_WINDOWS}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSpec:
    """What a source may report. Public: it is part of the registration."""

    max_reports: int
    """Most reports of one source."""
    trigger_data: tuple[TriggerData, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "trigger_data", tuple(self.trigger_data))
        check_count("max_reports", self.max_reports)
        if self.max_reports > MOST_REPORTS:
            raise ConfigError(f"max_reports={self.max_reports} must be <= {MOST_REPORTS}.")
        if not 1 <= len(self.trigger_data) <= MOST_TRIGGER_DATA:
            raise ConfigError(
                f"trigger_data has {len(self.trigger_data)} values and must have 1 to "
                f"{MOST_TRIGGER_DATA}."
            )
        if self.num_states > MOST_STATES:
            raise ConfigError(
                f"the spec has {self.num_states} states and may have {MOST_STATES}; take fewer "
                "windows, values of trigger data or reports."
            )

    @classmethod
    def default(cls, *, num_windows: int, num_trigger_data: int, max_reports: int) -> "ReportSpec":
        """The spec of any value in any window: C(windows * values + reports, reports) states.

        Args:
          num_windows: Windows of each value of trigger data.
          num_trigger_data: Values of trigger data.
          max_reports: Most reports of a source.
        """
        check_count("num_trigger_data", num_trigger_data)
        data = TriggerData(num_windows=num_windows, num_buckets=max_reports)
        return cls(max_reports=max_reports, trigger_data=(data,) * num_trigger_data)

    @classmethod
    def navigation(cls) -> "ReportSpec":
        """What a click may report unless the registration says otherwise."""
        return cls.default(num_windows=3, num_trigger_data=8, max_reports=3)

    @classmethod
    def event(cls) -> "ReportSpec":
        """What a view may report unless the registration says otherwise."""
        return cls.default(num_windows=1, num_trigger_data=2, max_reports=1)

    @property
    def num_cells(self) -> int:
        """Numbers that make a state: windows of the first value, then of the next."""
        return sum(data.num_windows for data in self.trigger_data)

    @functools.cached_property
    def num_states(self) -> int:
        """How many states there are, silence included."""
        return _count_states(self.max_reports, _shape(self.trigger_data))

    @functools.cached_property
    def mean_reports_per_cell(self) -> tuple[Fraction, ...]:
        """Reports in each cell of a uniform state, on average."""
        means = []
        for place, data in enumerate(self.trigger_data):
            # The mean is the sum over k >= 1 of the probability of at least k reports.
            at_least = sum(
                _count_states(self.max_reports - k, _shape(self.trigger_data, place, k))
                for k in range(1, min(self.max_reports, data.num_buckets) + 1)
            )
            means += [Fraction(at_least, self.num_states)] * data.num_windows
        return tuple(means)

    @property
    def mean_reports(self) -> Fraction:
        """Reports of a uniform state: what a noised source sends on average."""
        return sum(self.mean_reports_per_cell, Fraction(0))

    def states_at(self, places: ArrayLike) -> IntArray:
        """The states at places 0 to num_states - 1 of a fixed order: [places, cells].

        Place 0 is silence.
        """
        left = np.asarray(places, np.int64).copy()
        if left.ndim != 1 or np.any((left < 0) | (left >= self.num_states)):
            raise DataError(f"places must be from 0 to {self.num_states - 1}, in one dimension.")
        states = np.zeros((len(left), self.num_cells), np.int64)
        reports_left = np.full(len(left), self.max_reports)
        for cell, table, buckets_left in self._walk(len(left)):
            for _ in range(self.max_reports):
                counts = table[reports_left, buckets_left]
                is_further = left >= counts
                left -= np.where(is_further, counts, 0)
                states[:, cell] += is_further
                reports_left -= is_further
                buckets_left -= is_further
        return states

    def places_of(self, states: ArrayLike) -> IntArray:
        """The place of each state in that order; refuses what is no state of this spec."""
        reports = np.asarray(states)
        if (
            reports.ndim != 2
            or reports.shape[1] != self.num_cells
            or reports.dtype.kind not in "iu"
        ):
            raise DataError(
                f"states must be whole numbers in the shape (sources, {self.num_cells}), a column "
                "for each value of trigger data and window."
            )
        reports = reports.astype(np.int64)
        places = np.zeros(len(reports), np.int64)
        reports_left = np.full(len(reports), self.max_reports)
        for cell, table, buckets_left in self._walk(len(reports)):
            drawn = reports[:, cell].copy()
            if np.any((drawn < 0) | (drawn > np.minimum(reports_left, buckets_left))):
                raise DataError(
                    "a state has more reports than max_reports or summary buckets allow, or fewer "
                    "than none; drop the reports that the browser would not send."
                )
            for _ in range(self.max_reports):
                is_further = drawn > 0
                places += np.where(is_further, table[reports_left, buckets_left], 0)
                for number in (drawn, reports_left, buckets_left):
                    number -= is_further
        return places

    def _walk(self, num_sources: int) -> "Sequence[tuple[int, IntArray, IntArray]]":
        """Steps over all cells: how many states follow each, and what is left of its buckets.

        The array of what is left is shared by the cells of one value and changed by the caller.
        """
        steps: list[tuple[int, IntArray, IntArray]] = []
        for place, data in enumerate(self.trigger_data):
            most = min(data.num_buckets, self.max_reports)
            buckets_left = np.full(num_sources, most)
            for window in range(data.num_windows):
                table = self._tables[place][data.num_windows - window - 1]
                steps.append((len(steps), table, buckets_left))
        return steps

    @functools.cached_property
    def _tables(self) -> tuple[tuple[IntArray, ...], ...]:
        """[value][windows left][reports left, buckets left]: states of all that follows."""
        tables: list[tuple[IntArray, ...]] = []
        after = [1] * (self.max_reports + 1)
        for data in reversed(self.trigger_data):
            levels = _levels(after, data.num_windows)
            tables.append(tuple(np.array(level, np.int64) for level in levels))
            most = min(data.num_buckets, self.max_reports)
            after = [row[most] for row in levels[-1]]
        return tuple(reversed(tables))


Shape = tuple[tuple[int, int], ...]


def _shape(trigger_data: Sequence[TriggerData], place: int = -1, fewer: int = 0) -> Shape:
    """Windows and buckets of each value, with fewer buckets for one of them."""
    return tuple(
        (data.num_windows, data.num_buckets - (fewer if index == place else 0))
        for index, data in enumerate(trigger_data)
    )


def _count_states(max_reports: int, shape: Shape) -> int:
    after = [1] * (max_reports + 1)
    for num_windows, num_buckets in shape:
        most = min(num_buckets, max_reports)
        after = [row[most] for row in _levels(after, num_windows)[-1]]
    return after[max_reports]


def _levels(after: list[int], num_windows: int) -> list[list[list[int]]]:
    """[windows][reports left][buckets left]: states of one value and of all values after it.

    A window has j reports, which leaves j fewer reports and buckets:
    A(w, r, b) = sum over j of A(w - 1, r - j, b - j) = A(w - 1, r, b) + A(w, r - 1, b - 1).
    """
    size = len(after)
    levels = [[[after[reports]] * size for reports in range(size)]]
    for _ in range(num_windows):
        below = levels[-1]
        level = [row.copy() for row in below]
        for reports in range(1, size):
            for buckets in range(1, size):
                level[reports][buckets] += level[reports - 1][buckets - 1]
        levels.append(level)
    return levels
