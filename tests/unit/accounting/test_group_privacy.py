import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.accounting.accountant import (
    calibrate_noise,
    calibrate_steps,
    pld_epsilon,
    privacy_curve,
)
from tulle.accounting.budget import Budget
from tulle.accounting.curve import NoPrivacyCurve
from tulle.accounting.group_privacy import (
    GroupCurve,
    GroupTooLargeError,
    group_epsilon,
)
from tulle.accounting.ledger import Ledger
from tulle.accounting.refusal import SpendRefusedError
from tulle.accounting.sampling import amplified_epsilon
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.events import (
    Composed,
    EpsilonDelta,
    Event,
    Gaussian,
    Grouped,
    Laplace,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
)
from tulle.privacy.guarantee import group_parameters
from tulle.privacy.units import Adjacency, Unit

REPLACE = Adjacency.REPLACE
RESPONSE = RandomizedResponse(epsilon=0.5)


def training(noise: float, sampling_prob: float = 1e-3, steps: int = 1000) -> Event:
    step = PoissonSampled(sampling_prob=sampling_prob, event=Gaussian(noise_multiplier=noise))
    return Repeated(event=step, count=steps)


def of_users(noise: float, group_size: int = 3) -> Event:
    return Grouped(event=training(noise), group_size=group_size)


@pytest.mark.parametrize("group_size", [1, 2, 5])
def test_delta_is_that_of_one_unit_times_the_group_factor(group_size: int) -> None:
    one = privacy_curve(training(1.0), REPLACE)
    group = privacy_curve(of_users(1.0, group_size), REPLACE)
    for epsilon in (0.0, 0.05, 0.2, 0.4):
        expected = group_parameters(epsilon, one.delta(epsilon), group_size)[1]
        assert group.delta(group_size * epsilon) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("group_size", [1, 2, 5])
def test_epsilon_and_delta_agree(group_size: int) -> None:
    curve = privacy_curve(of_users(1.0, group_size), REPLACE)
    for delta in (1e-3, 1e-6):
        epsilon = curve.epsilon(delta)
        assert curve.delta(epsilon) <= delta
        assert curve.delta(epsilon * 0.999) > delta


@pytest.mark.parametrize("group_size", [2, 3, 10])
@pytest.mark.parametrize(
    "event",
    [
        EpsilonDelta(epsilon=0.5, delta=1e-6),
        Composed((Laplace(noise_multiplier=2.0), EpsilonDelta(epsilon=0.0, delta=1e-9))),
        Gaussian(noise_multiplier=1.0),
        training(0.7),
    ],
)
def test_what_holds_at_a_smaller_epsilon_holds_at_a_larger_one(
    event: Event, group_size: int
) -> None:
    curve = privacy_curve(Grouped(event=event, group_size=group_size), REPLACE)
    deltas = curve.deltas(np.concatenate([np.linspace(0.0, 60.0, 301), [1e2, 1e3, 1e5]]))
    assert np.all(np.diff(deltas) <= 1e-15)
    if event == EpsilonDelta(epsilon=0.5, delta=1e-6):
        least = 1e-6 * math.expm1(group_size / 2) / math.expm1(0.5)
        assert deltas[-1] == pytest.approx(least, rel=1e-9)


def test_a_pure_event_costs_group_size_times_as_much() -> None:
    event = Grouped(event=Laplace(noise_multiplier=4.0), group_size=3)
    curve = privacy_curve(event, REPLACE)
    assert curve.epsilon(0.0) == pytest.approx(1.5)
    assert curve.epsilon(1e-9) <= 1.5
    assert curve.delta(1.5) == 0.0
    huge = Grouped(event=RandomizedResponse(epsilon=200.0), group_size=9)
    assert privacy_curve(huge, REPLACE).epsilon(1e-9) == pytest.approx(1800.0)


def test_noise_too_small_to_protect_one_protects_no_group() -> None:
    curve = privacy_curve(Grouped(event=Gaussian(noise_multiplier=1e-9), group_size=2), REPLACE)
    assert curve.epsilon(1e-3) == math.inf
    assert curve.delta(5.0) == 1.0


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_a_curve_refuses_what_is_no_epsilon(bad: float) -> None:
    for event in (of_users(1.0), Composed((of_users(1.0), RESPONSE))):
        with pytest.raises(ConfigError, match="epsilon="):
            privacy_curve(event, REPLACE).delta(bad)


def test_pure_parts_add_their_epsilon() -> None:
    group = privacy_curve(of_users(1.0), REPLACE)
    parts = (of_users(1.0), Repeated(event=RESPONSE, count=2), Laplace(noise_multiplier=8.0))
    for order in itertools.permutations(parts):
        together = privacy_curve(Composed(order), REPLACE)
        assert together.epsilon(1e-6) == pytest.approx(group.epsilon(1e-6) + 1.25, rel=1e-12)
        assert together.delta(1.45) == pytest.approx(group.delta(0.2), rel=1e-9)
    nested = Composed((Composed((Repeated(event=parts[0], count=1), parts[1])), parts[2]))
    assert privacy_curve(nested, REPLACE).epsilon(1e-6) == together.epsilon(1e-6)


def test_below_the_pure_epsilon_the_curve_still_falls() -> None:
    together = privacy_curve(Composed((of_users(1.0), RESPONSE)), REPLACE)
    deltas = together.deltas(np.linspace(0.0, 1.0, 41))
    assert np.all(np.diff(deltas) < 0)
    # The response alone has tanh(epsilon / 2) of its mass apart.
    assert math.tanh(0.25) < deltas[0] < 1


def test_a_delta_that_rounding_hides_is_refused_with_the_way_out() -> None:
    with pytest.raises(GroupTooLargeError, match="max_rows_per_unit"):
        pld_epsilon(of_users(0.6, 5), 1e-6, REPLACE)
    assert isinstance(privacy_curve(training(0.6), REPLACE).epsilon(1e-6), float)


@pytest.mark.parametrize(("group_size", "epsilon"), [(2, 0.5), (2, 10.0), (5, 3.0), (10, 40.0)])
@pytest.mark.parametrize(
    "start",
    [
        0.3,
        pytest.param(
            1.0, marks=pytest.mark.long("the search from between two starts that are in make test")
        ),
        20.0,
    ],
)
def test_noise_is_calibrated_from_both_sides_of_what_group_privacy_can_say(
    group_size: int, epsilon: float, start: float
) -> None:
    noise = calibrate_noise(
        lambda sigma: of_users(sigma, group_size),
        epsilon=epsilon,
        delta=1e-6,
        adjacency=REPLACE,
        start=start,
    )
    assert pld_epsilon(of_users(noise, group_size), 1e-6, REPLACE) <= epsilon
    try:
        assert pld_epsilon(of_users(noise * 0.999, group_size), 1e-6, REPLACE) > epsilon
    except GroupTooLargeError:
        assert epsilon == 40.0


def test_steps_are_calibrated_too() -> None:
    def of_steps(steps: int) -> Event:
        return Grouped(event=training(0.8, steps=steps), group_size=2)

    steps = calibrate_steps(of_steps, epsilon=2.0, delta=1e-6, adjacency=REPLACE)
    assert pld_epsilon(of_steps(steps), 1e-6, REPLACE) <= 2.0
    assert pld_epsilon(of_steps(steps + 1), 1e-6, REPLACE) > 2.0


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger.create(tmp_path / "ledger.db")
    budget = Budget(name="ads", unit=Unit.user(), adjacency=REPLACE, epsilon=4.0, delta=1e-6)
    ledger.create_budget(budget)
    return ledger


def spend(ledger: Ledger, event: Event) -> None:
    with ledger.spend(event, purpose="training"):
        pass


def test_a_budget_counts_a_group_and_what_is_pure(ledger: Ledger) -> None:
    alone = pld_epsilon(of_users(1.0), 1e-6, REPLACE)
    for event, expected in ((of_users(1.0), alone), (RESPONSE, alone + 0.5)):
        spend(ledger, event)
        assert ledger.state("ads").spent_epsilon == pytest.approx(expected, rel=1e-12)
    with pytest.raises(SpendRefusedError, match="Least noise that fits: epsilon="):
        spend(ledger, RandomizedResponse(epsilon=3.5))
    assert len(ledger.spends("ads")) == 2


@pytest.mark.parametrize(
    "events",
    [
        (of_users(1.0), of_users(1.0)),
        (of_users(1.0), of_users(2.0)),
        (of_users(1.0), Gaussian(noise_multiplier=9.0)),
        (Gaussian(noise_multiplier=9.0), of_users(1.0)),
    ],
)
def test_a_budget_refuses_by_name_what_a_group_does_not_compose_with(
    ledger: Ledger, events: tuple[Event, Event]
) -> None:
    spend(ledger, events[0])
    before = ledger.state("ads")
    for attempt in (spend, lambda book, event: book.check(event, purpose="training")):
        with pytest.raises(UnsupportedEventError, match=r"Grouped.*max_rows_per_unit"):
            attempt(ledger, events[1])
    assert ledger.state("ads") == before
    assert len(ledger.spends("ads")) == 1


def test_a_group_that_is_too_dear_is_told_the_noise_that_fits(ledger: Ledger) -> None:
    with pytest.raises(SpendRefusedError, match="noise_multiplier=") as caught:
        spend(ledger, of_users(0.68))
    fitting = caught.value.refusal.fitting_event
    assert isinstance(fitting, Grouped)
    with pytest.raises(GroupTooLargeError, match="max_rows_per_unit"):
        spend(ledger, of_users(0.1, 9))
    assert ledger.spends("ads") == ()
    spend(ledger, fitting)


def test_an_unlucky_bound_is_never_below_that_of_one_unit() -> None:
    """Whatever the inner curve: a group costs no less than one of its units."""
    makers: list[Callable[[], Event]] = [
        lambda: Gaussian(noise_multiplier=2.0),
        lambda: EpsilonDelta(epsilon=0.3, delta=1e-8),
        lambda: training(1.0),
    ]
    for make in makers:
        one = privacy_curve(make(), REPLACE)
        group = GroupCurve(one, 4)
        for epsilon in (0.0, 0.1, 1.0, 5.0):
            assert group.delta(epsilon) >= one.delta(epsilon) * (1 - 1e-9)


REMOVE = Adjacency.ADD_OR_REMOVE


def compose_advanced(
    epsilon: float, delta: float, count: int, extra_delta: float
) -> tuple[float, float]:
    """The cost of `count` uses of one mechanism (Kairouz, Oh, Viswanath 2015, theorem 3.4)."""
    drift = count * epsilon * math.tanh(epsilon / 2)
    spread = min(
        math.log(1 / extra_delta), math.log(math.e + math.sqrt(count) * epsilon / extra_delta)
    )
    total = min(count * epsilon, drift + epsilon * math.sqrt(2 * count * spread))
    log_kept = count * math.log1p(-delta) + math.log1p(-extra_delta)
    return total, -math.expm1(log_kept)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 0.0), (0.5, 1e-8), (2.0, 1e-4)])
@pytest.mark.parametrize("count", [2, 10, 300])
def test_the_theorems_are_never_below_the_accountant(
    epsilon: float, delta: float, count: int
) -> None:
    curve = privacy_curve(
        Repeated(event=EpsilonDelta(epsilon=epsilon, delta=delta), count=count), REPLACE
    )
    for total_epsilon, total_delta in (
        (count * epsilon, count * delta),
        compose_advanced(epsilon, delta, count, 1e-6),
        compose_advanced(epsilon, delta, count, 0.1),
    ):
        assert curve.delta(total_epsilon) <= total_delta * (1 + 1e-6) + 1e-11


@pytest.mark.parametrize("sampling_prob", [1e-4, 0.1, 1.0])
def test_amplification_is_never_below_the_accountant(sampling_prob: float) -> None:
    laplace = events.Laplace(noise_multiplier=0.7)
    poisson = PoissonSampled(sampling_prob=sampling_prob, event=laplace)
    for event, adjacency, factor in (
        (poisson, REMOVE, 1.0),
        (events.FixedSizeSampled(batch_size=3, num_rows=10, event=laplace), REPLACE, 2.0),
    ):
        prob = sampling_prob if adjacency is REMOVE else 0.3
        epsilon = amplified_epsilon(factor / 0.7, prob)
        assert privacy_curve(event, adjacency).delta(epsilon) <= 1e-15


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 1.0, 600.0, 1e5])
@pytest.mark.parametrize("sampling_prob", [1e-9, 1e-4, 0.5, 1.0])
def test_amplification_keeps_its_digits(epsilon: float, sampling_prob: float) -> None:
    amplified = amplified_epsilon(epsilon, sampling_prob)
    expected = (
        math.log1p(sampling_prob * math.expm1(epsilon))
        if epsilon < 700
        else epsilon + math.log(sampling_prob)
    )
    assert amplified == pytest.approx(expected, rel=1e-9, abs=0)


@given(st.floats(0.0, 5.0), st.floats(0.0, 1e-3), st.integers(1, 12))
def test_a_group_costs_what_its_units_cost_one_after_the_other(
    epsilon: float, delta: float, num_units: int
) -> None:
    chained = 0.0
    for _ in range(num_units):
        chained = math.exp(epsilon) * chained + delta
    group, leaked = group_parameters(epsilon, delta, num_units)
    assert group == num_units * epsilon
    assert leaked == pytest.approx(min(1.0, chained), rel=1e-9)


@pytest.mark.parametrize("rows", [1, 2, 5, 10])
def test_group_privacy_is_never_below_the_exact_mixture(rows: int) -> None:
    """q=1e-3, noise 1, 1000 steps: 0.271, 0.573, 1.564, 3.551 against the mixture's."""
    one = Gaussian(noise_multiplier=1.0)
    single, unit = (
        privacy_curve(
            Repeated(
                event=PoissonSampled(sampling_prob=1e-3, event=one, max_rows_per_unit=k), count=1000
            ),
            REPLACE,
        )
        for k in (1, rows)
    )
    by_group = group_epsilon(single, rows, 1e-6)
    assert by_group >= unit.epsilon(1e-6) * (1 - 1e-6)
    assert by_group == pytest.approx({1: 0.271, 2: 0.573, 5: 1.564, 10: 3.551}[rows], rel=5e-3)


@pytest.mark.parametrize("rows", [5, 10])
def test_group_privacy_that_rounding_would_flatter_is_refused(rows: int) -> None:
    """A grid alone answers 32 for 5 rows; the truth is about 63."""
    step = PoissonSampled(sampling_prob=1e-3, event=Gaussian(noise_multiplier=0.6))
    curve = privacy_curve(Repeated(event=step, count=1000), REPLACE)
    with pytest.raises(ConfigError, match=f"num_units={rows}"):
        group_epsilon(curve, rows, 1e-6)
    assert group_epsilon(curve, 2, 1e-6) == pytest.approx(6.15, rel=0.01)


@pytest.mark.parametrize("num_units", [1, 2, 7])
def test_group_privacy_of_one_gaussian_is_never_below_the_moved_gaussian(num_units: int) -> None:
    one = privacy_curve(Gaussian(noise_multiplier=10.0), REMOVE)
    moved = privacy_curve(Gaussian(noise_multiplier=10.0 / num_units), REMOVE)
    assert group_epsilon(one, num_units, 1e-6) >= moved.epsilon(1e-6)


def test_group_privacy_of_a_pure_release_is_a_multiple() -> None:
    curve = privacy_curve(events.Laplace(noise_multiplier=2.0), REMOVE)
    assert group_epsilon(curve, 4, 1e-30) == pytest.approx(2.0, rel=1e-6)


def test_a_group_of_the_unprotected_is_unprotected() -> None:
    assert group_epsilon(NoPrivacyCurve(), 3, 1e-6) == math.inf


@pytest.mark.parametrize("num_units", [0, -1])
def test_a_group_has_someone_in_it(num_units: int) -> None:
    with pytest.raises(ConfigError, match="num_units"):
        group_epsilon(privacy_curve(Gaussian(noise_multiplier=1.0), REMOVE), num_units, 1e-6)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-9, math.nan])
def test_group_privacy_needs_a_delta(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta="):
        group_epsilon(privacy_curve(Gaussian(noise_multiplier=1.0), REMOVE), 2, delta)
