import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.lab.browser_reports.report_states import MOST_STATES, ReportSpec, TriggerData


def spec_of(max_reports: int, *shape: tuple[int, int]) -> ReportSpec:
    """One value of trigger data for each pair of windows and buckets."""
    data = tuple(TriggerData(num_windows=w, num_buckets=b) for w, b in shape)
    return ReportSpec(max_reports=max_reports, trigger_data=data)


FLEXIBLE = [
    spec_of(1, (1, 1)),
    spec_of(3, (2, 2)),
    spec_of(3, (1, 5)),
    spec_of(2, (2, 1), (1, 2)),
    spec_of(4, (3, 2), (1, 4), (2, 1)),
    spec_of(3, (5, 3), (1, 1)),
]
each_flexible = pytest.mark.parametrize("spec", FLEXIBLE)


def brute_force_states(spec: ReportSpec) -> set[tuple[int, ...]]:
    windows = [data.num_windows for data in spec.trigger_data]
    ends = list(itertools.accumulate(windows))
    found = set()
    for cells in itertools.product(range(spec.max_reports + 1), repeat=sum(windows)):
        per_value = [sum(cells[e - w : e]) for w, e in zip(windows, ends, strict=True)]
        fits = all(
            n <= data.num_buckets for n, data in zip(per_value, spec.trigger_data, strict=True)
        )
        if fits and sum(cells) <= spec.max_reports:
            found.add(cells)
    return found


@functools.cache
def published_recurrence(reports: int, windows: tuple[int, ...], buckets: tuple[int, ...]) -> int:
    if not windows:
        return 1
    if windows[-1] == 0:
        return published_recurrence(reports, windows[:-1], buckets[:-1])
    return sum(
        published_recurrence(
            reports - j, (*windows[:-1], windows[-1] - 1), (*buckets[:-1], buckets[-1] - j)
        )
        for j in range(min(buckets[-1], reports) + 1)
    )


@each_flexible
def test_states_are_those_of_brute_force(spec: ReportSpec) -> None:
    expected = brute_force_states(spec)
    states = spec.states_at(np.arange(spec.num_states))
    assert spec.num_states == len(expected)
    assert {tuple(state.tolist()) for state in states} == expected


@pytest.mark.parametrize(
    "spec", [*FLEXIBLE, spec_of(20, (5, 3), (2, 20), (1, 1)), spec_of(7, *[(1, 2)] * 12)]
)
def test_the_number_of_states_is_that_of_the_published_recurrence(spec: ReportSpec) -> None:
    windows = tuple(data.num_windows for data in spec.trigger_data)
    buckets = tuple(data.num_buckets for data in spec.trigger_data)
    assert spec.num_states == published_recurrence(spec.max_reports, windows, buckets)


@pytest.mark.parametrize("num_windows", [1, 2, 5])
@pytest.mark.parametrize("bits", [0, 1, 3])
@pytest.mark.parametrize("max_reports", [1, 2, 3])
def test_default_specs_have_the_binomial_number_of_states(
    num_windows: int, bits: int, max_reports: int
) -> None:
    spec = ReportSpec.default(
        num_windows=num_windows, num_trigger_data=2**bits, max_reports=max_reports
    )
    cells = num_windows * 2**bits
    assert spec.num_states == math.comb(cells + max_reports, max_reports)
    assert spec.mean_reports == Fraction(max_reports * cells, cells + 1)


def test_the_browser_defaults_have_the_published_numbers() -> None:
    assert ReportSpec.navigation().num_states == 2925
    assert ReportSpec.event().num_states == 3
    for num_windows, num_states in ((1, 165), (2, 969)):
        spec = ReportSpec.default(num_windows=num_windows, num_trigger_data=8, max_reports=3)
        assert spec.num_states == num_states
    assert float(ReportSpec.navigation().mean_reports) == 2.88


@each_flexible
def test_mean_reports_are_those_over_all_states(spec: ReportSpec) -> None:
    states = brute_force_states(spec)
    sums = [sum(state[cell] for state in states) for cell in range(spec.num_cells)]
    assert spec.mean_reports_per_cell == tuple(Fraction(s, len(states)) for s in sums)
    assert spec.mean_reports == Fraction(sum(map(sum, states)), len(states))


@pytest.mark.parametrize("spec", [*FLEXIBLE, ReportSpec.navigation()])
def test_a_place_and_its_state_belong_together_and_silence_is_first(spec: ReportSpec) -> None:
    places = np.arange(spec.num_states)
    states = spec.states_at(places)
    assert np.array_equal(spec.places_of(states), places)
    assert not states[0].any()


def test_places_of_the_largest_specs_do_not_overflow() -> None:
    spec = ReportSpec.default(num_windows=4, num_trigger_data=32, max_reports=5)
    assert 2**28 < spec.num_states <= MOST_STATES
    places = np.array([0, 1, spec.num_states // 3, spec.num_states - 1])
    assert np.array_equal(spec.places_of(spec.states_at(places)), places)


def test_what_is_no_state_is_refused() -> None:
    spec = spec_of(3, (2, 1), (1, 3))
    for state in ([1, 1, 0], [0, 0, 4], [1, 0, 3], [0, 0, -1]):
        with pytest.raises(DataError, match="more reports than"):
            spec.places_of([state])
    with pytest.raises(DataError, match="shape"):
        spec.places_of([[0, 0]])
    with pytest.raises(DataError, match="shape"):
        spec.places_of([[0.0, 0.0, 1.0]])
    for place in (-1, spec.num_states):
        with pytest.raises(DataError, match="places must be"):
            spec.states_at([place])


def test_the_limits_of_browsers_are_kept() -> None:
    with pytest.raises(ConfigError, match="num_windows=6"):
        TriggerData(num_windows=6, num_buckets=1)
    with pytest.raises(ConfigError, match="max_reports=21"):
        spec_of(21, (1, 1))
    with pytest.raises(ConfigError, match="trigger_data has 33"):
        ReportSpec.default(num_windows=1, num_trigger_data=33, max_reports=1)
    with pytest.raises(ConfigError, match="trigger_data has 0"):
        spec_of(1)
    with pytest.raises(ConfigError, match="4294967295; take fewer"):
        ReportSpec.default(num_windows=5, num_trigger_data=32, max_reports=6)
    assert spec_of(20, (1, 20)).num_states == 21
