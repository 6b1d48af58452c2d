import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.budget import Budget
from tulle.accounting.event_rules import pure_epsilon
from tulle.errors import UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.events import Event, Gaussian, Laplace, Parallel, RandomizedResponse, Repeated
from tulle.privacy.units import Adjacency, Unit
from unit.accounting.hockey_stick import divergence

REPLACE, REMOVE = Adjacency.REPLACE, Adjacency.ADD_OR_REMOVE
EPSILONS = [0.0, 0.2, 0.5, 1.0, 1.7, 2.5]


def deltas(event: Event, adjacency: Adjacency, at: list[float] = EPSILONS) -> np.ndarray:
    curve = privacy_curve(event, adjacency)
    return np.array([curve.delta(e) for e in at])


def public(*parts: Event) -> Event:
    return Parallel(events=parts, parts_are_public=True)


def private(*parts: Event) -> Event:
    return Parallel(events=parts, parts_are_public=False)


def test_public_parts_cost_the_worst_of_them() -> None:
    quiet, loud = Laplace(noise_multiplier=4.0), Laplace(noise_multiplier=1.0)
    for adjacency in (REPLACE, REMOVE):
        expected = deltas(loud, adjacency)
        got = deltas(public(quiet, loud, quiet), adjacency)
        assert np.all(got >= expected * (1 - 1e-9))
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-12)


def test_private_parts_cost_one_when_removed_and_two_when_replaced() -> None:
    part = Gaussian(noise_multiplier=2.0)
    np.testing.assert_array_equal(deltas(private(part, part), REMOVE), deltas(part, REMOVE))
    twice = deltas(Repeated(event=part, count=2), REPLACE)
    np.testing.assert_array_equal(deltas(private(part, part, part), REPLACE), twice)
    np.testing.assert_array_equal(deltas(private(part), REPLACE), deltas(part, REPLACE))


def test_private_parts_cost_the_worst_two_different_ones() -> None:
    a, b, c = (Laplace(noise_multiplier=s) for s in (1.0, 2.0, 8.0))
    worst_two = deltas(events.Composed((a, b)), REPLACE)
    got = deltas(private(a, b, c), REPLACE)
    assert np.all(got >= worst_two * (1 - 1e-9))
    np.testing.assert_allclose(got, worst_two, rtol=1e-3, atol=1e-11)


def log_response(value: int, epsilon: float) -> np.ndarray:
    odds = np.where(np.arange(2) == value, 0.0, -epsilon)
    return odds - np.logaddexp.reduce(odds)


def test_two_responses_on_two_public_parts_by_brute_force() -> None:
    """A unit holds a part and a bit; the part where it is not reports a fixed bit."""
    epsilons = (1.0, 0.6)
    event = public(*(RandomizedResponse(epsilon=e) for e in epsilons))
    bound = deltas(event, REPLACE)
    worst = np.zeros(len(EPSILONS))
    for before, after in itertools.product(itertools.product((0, 1), repeat=2), repeat=2):
        if before[0] != after[0]:
            continue
        log_p, log_q = (
            np.add.outer(*(log_response(bit if part == i else 0, epsilons[i]) for i in range(2)))
            for part, bit in (before, after)
        )
        worst = np.maximum(worst, divergence(log_p, log_q, EPSILONS))
    assert np.all(worst <= bound * (1 + 1e-9) + 1e-12)
    np.testing.assert_allclose(worst, bound, rtol=5e-3, atol=1e-9)


@pytest.mark.parametrize("parts_are_public", [True, False])
def test_two_counts_on_two_parts_by_brute_force(parts_are_public: bool) -> None:
    """A unit adds 0 or 1 to the count of its part, under discrete Laplace noise."""
    scales = (1.0, 2.0)
    event = Parallel(
        events=tuple(events.DiscreteLaplace(scale=s, replace_factor=1.0) for s in scales),
        parts_are_public=parts_are_public,
    )
    bound = deltas(event, REPLACE)
    grid = np.arange(-80, 82)
    worst = np.zeros(len(EPSILONS))
    states = [(part, value) for part in range(2) for value in range(2)]
    for before, after in itertools.permutations(states, 2):
        if parts_are_public and before[0] != after[0]:
            continue
        log_p, log_q = (
            np.add.outer(
                *(
                    -np.abs(grid - (value if part == i else 0)) / s + math.log(math.tanh(0.5 / s))
                    for i, s in enumerate(scales)
                )
            )
            for part, value in (before, after)
        )
        worst = np.maximum(worst, divergence(log_p, log_q, EPSILONS))
    assert np.all(worst <= bound * (1 + 1e-9) + 1e-12)
    np.testing.assert_allclose(worst, bound, rtol=5e-3, atol=1e-9)


def test_parts_that_sometimes_leak_stay_affordable() -> None:
    """At a delta above every leak, parallel parts cost what the worst of them costs."""
    keys = events.KeySelection(epsilon=1.0, delta=1e-6)
    noise = Gaussian(noise_multiplier=1.0)
    alone = max(privacy_curve(part, REMOVE).epsilon(1e-5) for part in (keys, noise))
    together = privacy_curve(public(keys, noise), REMOVE).epsilon(1e-5)
    assert alone * (1 - 1e-9) <= together <= alone * 1.05


def test_small_leaks_of_parts_do_not_limit_larger_questions() -> None:
    leaky = Repeated(event=events.EpsilonDelta(epsilon=1.0, delta=1e-10), count=2)
    together = privacy_curve(public(leaky, Gaussian(noise_multiplier=1.0)), REMOVE)
    assert together.epsilon(1e-5) == pytest.approx(4.38, rel=0.01)


@pytest.mark.parametrize("delta", [1e-9, 1e-12])
def test_parallel_parts_every_day_of_a_year_stay_affordable(delta: float) -> None:
    parts = public(Gaussian(noise_multiplier=100.0), Gaussian(noise_multiplier=200.0))
    worst = Repeated(event=Gaussian(noise_multiplier=100.0), count=365)
    expected = privacy_curve(worst, REMOVE).epsilon(delta)
    got = privacy_curve(Repeated(event=parts, count=365), REMOVE).epsilon(delta)
    assert expected * (1 - 1e-9) <= got <= expected * 1.05


def test_many_shuffles_cost_about_the_square_root_of_their_number() -> None:
    once = events.Shuffled(event=RandomizedResponse(epsilon=2.0), num_reports=1_000_000)
    alone = privacy_curve(once, REPLACE).epsilon(1e-9)
    often = privacy_curve(Repeated(event=once, count=1000), REPLACE).epsilon(1e-9)
    assert alone < often < 1.3 * math.sqrt(1000) * alone


@pytest.mark.parametrize(
    "part",
    [
        events.Shuffled(event=RandomizedResponse(epsilon=1.0), num_reports=100),
        events.EpsilonDelta(epsilon=0.0),
        RandomizedResponse(epsilon=1.0),
        events.SubsetSelection(epsilon=1.0, num_values=5, subset_size=2),
        events.TruncatedPoissonSampled(
            sampling_prob=0.5, num_rows=4, max_batch_size=2, event=Gaussian(noise_multiplier=1.0)
        ),
    ],
)
def test_a_part_whose_number_of_units_is_public_cannot_be_private(part: Event) -> None:
    """A unit that moves is removed from one part and added to another.

    The exact number of units of a part has epsilon 0 under replace; which parts
    they are in is then no secret.
    """
    with pytest.raises(UnsupportedEventError, match=type(part).__name__):
        privacy_curve(private(part, part), REPLACE)


def test_gaussian_releases_of_one_unit_are_one_gaussian() -> None:
    parts = [Gaussian(noise_multiplier=s) for s in (3.0, 4.0)]
    joint = Gaussian(noise_multiplier=1 / math.hypot(1 / 3, 1 / 4))
    for adjacency in (REPLACE, REMOVE):
        np.testing.assert_allclose(
            deltas(events.Composed(tuple(parts)), adjacency), deltas(joint, adjacency), rtol=1e-12
        )
    sampled = events.PoissonSampled(sampling_prob=0.1, event=events.Composed(tuple(parts)))
    np.testing.assert_allclose(
        deltas(sampled, REPLACE),
        deltas(events.PoissonSampled(sampling_prob=0.1, event=joint), REPLACE),
        rtol=1e-12,
    )


@pytest.mark.parametrize("factor", [1.0, math.sqrt(2), 2.0])
def test_a_replaced_unit_moves_the_sum_by_its_factor(factor: float) -> None:
    for make in (Gaussian, Laplace):
        event = make(noise_multiplier=1.5, replace_factor=factor)
        moved = make(noise_multiplier=1.5 / factor)
        np.testing.assert_allclose(deltas(event, REPLACE), deltas(moved, REMOVE), rtol=1e-12)


def test_whole_numbers_move_by_whole_numbers() -> None:
    """An integer that moves by at most 3 sqrt(2) moves by at most 4; rounding takes no step off."""
    for factor, contribution, distance in (
        (math.sqrt(2), 3, 4),
        (2.0, 3, 6),
        (1 + 1 / 3, 3, 4),
        (4 / 3, 300, 400),
        (1.1, 10, 11),
        (1.7, 10, 17),
    ):
        event = events.DiscreteLaplace(
            scale=3.0, max_contribution=contribution, replace_factor=factor
        )
        moved = events.DiscreteLaplace(scale=3.0, max_contribution=distance)
        np.testing.assert_array_equal(deltas(event, REPLACE), deltas(moved, REMOVE))


def test_a_replaced_unit_leaves_keys_and_enters_as_many() -> None:
    keys = events.KeySelection(epsilon=0.2, delta=1e-6, max_keys_per_unit=3)
    each = events.EpsilonDelta(epsilon=0.2, delta=1e-6)
    for adjacency, touched in ((REMOVE, 3), (REPLACE, 6)):
        expected = deltas(Repeated(event=each, count=touched), adjacency)
        np.testing.assert_array_equal(deltas(keys, adjacency), expected)


@pytest.mark.parametrize(("num_values", "subset_size"), [(2, 1), (5, 2), (6, 5)])
def test_subset_selection_is_the_sum_over_all_subsets(num_values: int, subset_size: int) -> None:
    epsilon = 1.3
    subsets = list(itertools.combinations(range(num_values), subset_size))
    log_p, log_q = (
        np.array([epsilon if value in subset else 0.0 for subset in subsets]) for value in (0, 1)
    )
    log_p, log_q = log_p - np.logaddexp.reduce(log_p), log_q - np.logaddexp.reduce(log_q)
    event = events.SubsetSelection(epsilon=epsilon, num_values=num_values, subset_size=subset_size)
    expected = divergence(log_p, log_q, EPSILONS)
    np.testing.assert_allclose(deltas(event, REPLACE), expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_device_that_reports_several_times_is_protected_by_all_of_them(count: int) -> None:
    """What a shuffle can do depends on the whole epsilon of a device, count times that of one."""
    for once in (RandomizedResponse(epsilon=0.4), Laplace(noise_multiplier=5.0)):
        several = events.Shuffled(event=Repeated(event=once, count=count), num_reports=500)
        stated = events.EpsilonDelta(epsilon=0.4 * count)
        at_once = events.Shuffled(event=stated, num_reports=500)
        for delta in (0.0, 1e-6):
            claimed = privacy_curve(several, REPLACE).epsilon(delta)
            expected = privacy_curve(at_once, REPLACE).epsilon(delta)
            assert claimed == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_parts_that_are_pure_stay_pure_however_often_they_are_released(count: int) -> None:
    often = Repeated(event=Laplace(noise_multiplier=4.0), count=count)
    once = events.EpsilonDelta(epsilon=0.3)
    assert privacy_curve(public(often, once), REMOVE).epsilon(0.0) == pytest.approx(count / 4)
    moved = private(often, Laplace(noise_multiplier=4.0))
    assert privacy_curve(moved, REPLACE).epsilon(0.0) == pytest.approx(count / 2 + 0.5)


@pytest.mark.parametrize("noise", [1e-3, 1e-10, 1e-170])
def test_hardly_any_noise_is_no_privacy_and_no_crash(noise: float) -> None:
    gaussian = Gaussian(noise_multiplier=noise)
    for event in (
        gaussian,
        Laplace(noise_multiplier=noise),
        events.PoissonSampled(sampling_prob=0.1, event=gaussian),
        events.PoissonSampled(sampling_prob=0.1, event=gaussian, max_rows_per_unit=2),
        events.DiscreteLaplace(scale=noise),
        events.DiscreteGaussian(scale=noise),
    ):
        assert privacy_curve(event, REPLACE).epsilon(1e-6) >= 0.1 / noise


def sampled(event: Event) -> Event:
    return events.PoissonSampled(sampling_prob=0.01, event=event)


def cut(event: Event, max_rows_per_unit: int) -> Event:
    return events.TruncatedPoissonSampled(
        sampling_prob=0.01,
        num_rows=10_000,
        max_batch_size=150,
        event=event,
        max_rows_per_unit=max_rows_per_unit,
    )


@pytest.mark.parametrize("noise", [1.0, 1e6, 1e20, 1e160, 1e300, 1.7e308])
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(
    "around",
    [
        lambda noise: noise,
        lambda noise: Repeated(event=noise, count=3),
        lambda noise: events.Composed((noise, Laplace(noise_multiplier=2.0))),
        sampled,
        lambda noise: Repeated(event=sampled(noise), count=3),
        lambda noise: events.PoissonSampled(sampling_prob=0.5, event=noise, max_rows_per_unit=4),
        lambda noise: cut(noise, 1),
        lambda noise: cut(noise, 4),
        lambda noise: public(noise, noise),
        lambda noise: events.Grouped(event=noise, group_size=3),
    ],
)
def test_gaussian_noise_has_no_epsilon_without_a_delta_however_much_there_is(
    around, noise: float, adjacency: Adjacency
) -> None:
    event = around(Gaussian(noise_multiplier=noise))
    assert privacy_curve(event, adjacency).epsilon(0.0) == math.inf


@pytest.mark.parametrize("delta", [1e-7, 1e-12, 1e-18, 1e-30])
def test_more_noise_than_can_be_told_from_none_is_never_priced_too_low(delta: float) -> None:
    """Where both terms of a delta agree in all digits their difference would be zero."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        for noise in (1e6, 1e8, 1e12, 1e18):
            epsilon = privacy_curve(Gaussian(noise_multiplier=noise), REPLACE).epsilon(delta)
            distance, at = mpmath.mpf(2) / mpmath.mpf(noise), mpmath.mpf(epsilon)
            above = mpmath.ncdf(distance / 2 - at / distance)
            right = above - mpmath.exp(at) * mpmath.ncdf(-distance / 2 - at / distance)
            assert right <= delta * (1 + 1e-4)


@pytest.mark.parametrize("adjacency", [REPLACE, REMOVE])
@pytest.mark.parametrize(
    "make",
    [
        lambda noise: Gaussian(noise_multiplier=noise),
        lambda noise: Laplace(noise_multiplier=noise),
        lambda noise: events.DiscreteLaplace(scale=noise),
        lambda noise: sampled(Gaussian(noise_multiplier=noise)),
        lambda noise: sampled(Laplace(noise_multiplier=noise)),
        lambda noise: cut(Gaussian(noise_multiplier=noise), 1),
        lambda noise: cut(Gaussian(noise_multiplier=noise), 2),
        lambda noise: events.RandomizedResponse(epsilon=1 / noise),
        lambda noise: events.EpsilonDelta(epsilon=1 / noise),
    ],
)
def test_a_price_falls_with_the_noise_from_the_least_float_to_the_largest(
    make, adjacency: Adjacency
) -> None:
    noises = [1e-307, 1e-160, 1e-20, 1e-3, 1.0, 1e3, 1e20, 1e160, 1e300, 1.7e308]
    curves = [privacy_curve(make(noise), adjacency) for noise in noises]
    for delta in (0.0, 1e-300, 1e-7):
        prices = [curve.epsilon(delta) for curve in curves]
        assert not any(math.isnan(price) for price in prices)
        assert prices == sorted(prices, reverse=True)


def test_a_pure_price_beyond_the_search_is_the_pure_price() -> None:
    curve = privacy_curve(Laplace(noise_multiplier=1e-7), REPLACE)
    assert curve.epsilon(1e-7) == curve.epsilon(0.0) == pytest.approx(2e7)


@pytest.mark.parametrize(
    "event",
    [
        Laplace(noise_multiplier=5e-324),
        events.DiscreteLaplace(scale=5e-324, max_contribution=2**62),
        Repeated(event=events.EpsilonDelta(epsilon=1.7e308), count=3),
        Repeated(event=Laplace(noise_multiplier=1e-300), count=2**62),
    ],
)
def test_a_price_beyond_all_numbers_is_infinite(event: Event) -> None:
    assert privacy_curve(event, REPLACE).epsilon(0.0) == math.inf
    budget = Budget(name="ads", unit=Unit.user(), adjacency=REPLACE, epsilon=1.0, delta=0.0)
    assert budget.cost(event) == math.inf


@pytest.mark.parametrize("local", [5e-324, 1e-160, 1e-10, 299.0, 301.0, 1e7, 1.7e308])
@pytest.mark.parametrize("num_values", [2, 3, 2**62])
def test_a_shuffle_never_costs_more_than_the_report_however_strange(
    local: float, num_values: int
) -> None:
    for report in (
        RandomizedResponse(epsilon=local, num_values=num_values),
        events.EpsilonDelta(epsilon=local),
    ):
        for num_reports in (1, 50, 2**62):
            curve = privacy_curve(events.Shuffled(event=report, num_reports=num_reports), REPLACE)
            assert 0 <= curve.epsilon(1e-7) <= local
            assert curve.epsilon(0.0) == local


def test_a_chance_that_underflows_is_a_chance() -> None:
    step = events.TruncatedPoissonSampled(
        sampling_prob=5e-324, num_rows=2, max_batch_size=1, event=Gaussian(noise_multiplier=1.0)
    )
    assert privacy_curve(Repeated(event=step, count=9), REMOVE).epsilon(1e-7) == 0


def test_a_unit_of_many_rows_below_all_noise_costs_nothing_at_a_delta() -> None:
    event = events.PoissonSampled(
        sampling_prob=0.01, event=Gaussian(noise_multiplier=1e20), max_rows_per_unit=3
    )
    assert privacy_curve(Repeated(event=event, count=9), REPLACE).epsilon(1e-7) == 0


def test_more_releases_than_a_float_can_count_are_refused() -> None:
    event: Event = RandomizedResponse(epsilon=1.0)
    for _ in range(18):
        event = Repeated(event=event, count=2**62)
    with pytest.raises(UnsupportedEventError, match="account for fewer at a time"):
        privacy_curve(event, REPLACE)


LAPLACE = events.Laplace(noise_multiplier=4.0, replace_factor=2.0)

PURE_EVENTS: list[tuple[Event, float, float]] = [
    (LAPLACE, 0.25, 0.5),
    (events.DiscreteLaplace(scale=8.0, max_contribution=3), 0.375, 0.75),
    (events.RandomizedResponse(epsilon=0.5, num_values=3), 0.5, 0.5),
    (events.SubsetSelection(epsilon=0.5, num_values=9, subset_size=2), 0.5, 0.5),
    (events.EpsilonDelta(epsilon=0.5), 0.5, 0.5),
    (events.KeySelection(epsilon=0.5, delta=0.0, max_keys_per_unit=3), 1.5, 3.0),
    (events.Repeated(event=LAPLACE, count=3), 0.75, 1.5),
    (events.Composed((LAPLACE, events.EpsilonDelta(epsilon=0.5))), 0.75, 1.0),
    (events.Composed(), 0.0, 0.0),
    (events.Parallel(events=(LAPLACE, LAPLACE, LAPLACE), parts_are_public=True), 0.25, 0.5),
    (events.Parallel(events=(LAPLACE, LAPLACE, LAPLACE), parts_are_public=False), 0.25, 1.0),
]


@pytest.mark.parametrize(("event", "add_remove", "replace"), PURE_EVENTS)
def test_pure_costs_are_known_under_each_adjacency(
    event: Event, add_remove: float, replace: float
) -> None:
    assert pure_epsilon(event, Adjacency.ADD_OR_REMOVE) == add_remove
    assert pure_epsilon(event, Adjacency.ZERO_OUT) == add_remove
    assert pure_epsilon(event, Adjacency.REPLACE) == replace


@pytest.mark.parametrize("event", [event for event, _, _ in PURE_EVENTS])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_accountant_agrees(event: Event, adjacency: Adjacency) -> None:
    assert privacy_curve(event, adjacency).epsilon(0.0) == pytest.approx(
        float(pure_epsilon(event, adjacency) or 0), rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize(
    "event",
    [
        events.Gaussian(noise_multiplier=1.0),
        events.DiscreteGaussian(scale=1.0),
        events.EpsilonDelta(epsilon=0.5, delta=1e-9),
        events.KeySelection(epsilon=0.5, delta=1e-9),
        events.PoissonSampled(sampling_prob=0.5, event=LAPLACE),
        events.NonPrivate(),
        events.Composed((LAPLACE, events.NonPrivate())),
        events.Repeated(event=events.Gaussian(noise_multiplier=1.0), count=2),
        events.Parallel(events=(LAPLACE, events.NonPrivate()), parts_are_public=True),
    ],
)
def test_what_is_not_pure_has_no_pure_cost(event: Event) -> None:
    assert pure_epsilon(event, Adjacency.REPLACE) is None


@pytest.mark.parametrize(
    "part",
    [
        events.EpsilonDelta(epsilon=0.5),
        events.Composed(
            (LAPLACE, events.Repeated(event=events.EpsilonDelta(epsilon=0.5), count=2))
        ),
        events.Parallel(events=(LAPLACE, LAPLACE), parts_are_public=True),
    ],
)
def test_what_holds_for_fixed_units_has_no_pure_cost_where_units_move(part: Event) -> None:
    moving = events.Parallel(events=(part, LAPLACE), parts_are_public=False)
    with pytest.raises(UnsupportedEventError, match="in private parts"):
        privacy_curve(moving, Adjacency.REPLACE)
    assert pure_epsilon(moving, Adjacency.REPLACE) is None
    assert pure_epsilon(moving, Adjacency.ADD_OR_REMOVE) is not None
    alone = events.Parallel(events=(part,), parts_are_public=False)
    assert pure_epsilon(alone, Adjacency.REPLACE) == pure_epsilon(part, Adjacency.REPLACE)


def test_sums_are_exact() -> None:
    tenth = events.EpsilonDelta(epsilon=0.1)
    together = events.Composed((events.Repeated(event=tenth, count=10**9), tenth))
    assert pure_epsilon(together, Adjacency.REPLACE) == (10**9 + 1) * Fraction(0.1)
