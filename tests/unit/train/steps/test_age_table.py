"""The moments of every age are right to 13 digits, whatever the momentum and the schedule."""

import math
from collections.abc import Callable, Sequence

import mpmath
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.train.settings.phases import CosineDecay
from tulle.train.steps.age_table import AgeTable

Values = NDArray[np.float64]
Schedule = Callable[[int], list[float]]

MOMENTA = [0.0, 0.5, 0.9, 0.99]
MOST_ERROR = 1e-13


def constant(num_steps: int) -> list[float]:
    return [0.3] * num_steps


def cosine(num_steps: int) -> list[float]:
    return [0.1 * CosineDecay().rate_factor(step, num_steps) for step in range(num_steps)]


def warmup_and_cosine(num_steps: int) -> list[float]:
    schedule = CosineDecay(warmup_share=0.1)
    return [0.1 * schedule.rate_factor(step, num_steps) for step in range(num_steps)]


def rising(num_steps: int) -> list[float]:
    """The other way: only the last rates are large."""
    return cosine(num_steps)[::-1]


def random(num_steps: int) -> list[float]:
    """Over 6 decades."""
    exponents = np.random.default_rng(1).uniform(-6, 0, num_steps)
    return [float(rate) for rate in 10**exponents]


SCHEDULES = [constant, cosine, warmup_and_cosine, rising, random]


def table_after(rates: Sequence[float], momentum: float, weight_decay: float = 0.0) -> AgeTable:
    table = AgeTable(momentum=momentum, weight_decay=weight_decay)
    for rate in rates:
        table.end_step(rate)
    return table


def some_ages(num_steps: int) -> list[int]:
    spread = np.geomspace(1, num_steps, 60).round().astype(int)
    return sorted({0, 2, 3, num_steps - 1, *spread.tolist()})


def moments_of(table: AgeTable, ages: Sequence[int]) -> dict[str, Values]:
    moments = table.moments(torch.tensor(ages))
    named = {
        "kept": moments.kept,
        "drift": moments.drift,
        "memory": moments.memory,
        "weight variance": moments.weight_variance,
        "covariance": moments.covariance,
        "momentum variance": moments.momentum_variance,
    }
    return {name: values.numpy() for name, values in named.items() if values is not None}


def exact_moments(
    rates: Sequence[float], momentum: float, ages: Sequence[int], weight_decay: float = 0.0
) -> dict[str, list[mpmath.mpf]]:
    """The defining sums with 40 digits, from now backwards."""
    names = ("kept", "drift", "memory", "weight variance", "covariance", "momentum variance")
    columns: dict[str, list[mpmath.mpf]] = {name: [] for name in names}
    wanted = set(ages)
    with mpmath.workdps(40):
        mu, decay = mpmath.mpf(momentum), mpmath.mpf(weight_decay)
        kept, drift, memory = mpmath.mpf(1), mpmath.mpf(0), mpmath.mpf(1)
        variance = covariance = momentum_variance = mpmath.mpf(0)
        for age in range(max(ages) + 1):
            if age > 0:
                rate = rates[-age]
                drift = rate * kept + mu * drift
                kept *= 1 - rate * decay
                memory *= mu
                variance += drift**2
                covariance -= drift * memory
                momentum_variance += memory**2
            if age in wanted:
                row = (kept, drift, memory, variance, covariance, momentum_variance)
                for column, value in zip(columns.values(), row, strict=True):
                    column.append(value)
    return columns


def largest_error(found: dict[str, Values], exact: dict[str, list[mpmath.mpf]]) -> float:
    """Relative; a power of the momentum below 1e-18 may be 0."""
    errors = [
        float(abs(value - true) / max(abs(true), 1e-4 if name == "memory" else 0))
        for name, values in found.items()
        for value, true in zip(values.tolist(), exact[name], strict=True)
        if value != true
    ]
    return max(errors, default=0.0)


@pytest.mark.parametrize("momentum", MOMENTA)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_every_age_has_its_exact_moments(
    schedule: Schedule, momentum: float, weight_decay: float
) -> None:
    rates, ages = schedule(2200), some_ages(2200)
    found = moments_of(table_after(rates, momentum, weight_decay), ages)
    assert ("kept" in found) == (weight_decay > 0)
    exact = exact_moments(rates, momentum, ages, weight_decay)
    assert largest_error(found, exact) <= MOST_ERROR


@pytest.mark.long("follows runs of millions of steps; shorter ones are exact in make test")
@pytest.mark.parametrize("momentum", [0.0, 0.9, 0.99])
@pytest.mark.parametrize("schedule", [constant, warmup_and_cosine])
def test_ages_of_a_very_long_run_have_their_exact_moments(
    schedule: Schedule, momentum: float
) -> None:
    rates, ages = schedule(110_000), some_ages(110_000)
    found = moments_of(table_after(rates, momentum), ages)
    assert largest_error(found, exact_moments(rates, momentum, ages)) <= MOST_ERROR


def test_moments_are_right_after_every_step_and_not_only_at_the_end() -> None:
    rates = warmup_and_cosine(40)
    table = AgeTable(momentum=0.9)
    for num_steps in range(1, 41):
        table.end_step(rates[num_steps - 1])
        ages = list(range(num_steps + 1))
        exact = exact_moments(rates[:num_steps], 0.9, ages)
        assert largest_error(moments_of(table, ages), exact) <= MOST_ERROR


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_with_rate_zero_move_no_weight_and_still_shrink_momentum(momentum: float) -> None:
    rates = [0.2, 0.1, 0.0, 0.0]
    found = moments_of(table_after(rates, momentum), [0, 1, 2, 3, 4])
    exact = exact_moments(rates, momentum, [0, 1, 2, 3, 4])
    assert largest_error(found, exact) <= MOST_ERROR
    assert found["weight variance"][:3].tolist() == [0, 0, 0]
    assert found["weight variance"][3] > 0


def prefix_sum_variances(
    schedule: Sequence[float], now: int, momentum: float, ages: Sequence[int]
) -> Values:
    """The weight variance from sums over the whole schedule, which must be known beforehand.

    Equal in algebra, and what one would write first: it needs no table of ages.
    """
    heads = np.zeros(len(schedule) + 1)
    for step in reversed(range(len(schedule))):
        heads[step] = schedule[step] + momentum * heads[step + 1]
    squares = np.concatenate([[0.0], np.cumsum(heads[:-1] ** 2)])
    mixed = np.zeros(len(schedule) + 1)
    for step in range(len(schedule)):
        mixed[step + 1] = momentum * (mixed[step] + heads[step])
    first, left = now - np.array(ages), momentum ** np.array(ages)
    momentum_variance = momentum**2 * (1 - left**2) / (1 - momentum**2)
    shared = mixed[now] - left * mixed[first]
    differences = squares[now] - squares[first] - 2 * heads[now] * shared
    return np.asarray(differences + heads[now] ** 2 * momentum_variance)


def test_the_check_sees_the_digits_that_prefix_sums_lose_where_the_rate_goes_to_zero() -> None:
    ages = [1, 2, 5]

    def errors(now: int) -> tuple[float, float]:
        rates = cosine(2200)
        exact = exact_moments(rates[:now], 0.9, ages)
        wrong = {"weight variance": prefix_sum_variances(rates, now, 0.9, ages)}
        right = moments_of(table_after(rates[:now], 0.9), ages)
        return largest_error(wrong, exact), largest_error(right, exact)

    # The formula is right: in the first steps little cancels.
    assert max(errors(10)) < 1e-9
    by_prefix_sums, by_ages = errors(2199)
    assert by_prefix_sums > 1e-3
    assert by_ages <= MOST_ERROR


def test_the_check_sees_an_age_that_is_one_off() -> None:
    rates = cosine(100)
    found = moments_of(table_after(rates, 0.9), range(2, 100))
    assert largest_error(found, exact_moments(rates, 0.9, range(1, 99))) > 0.001


def test_a_table_that_forgot_the_past_goes_on_as_one_that_starts_there() -> None:
    rates = random(3000)
    table = table_after(rates[:2500], 0.9, 0.01)
    table.forget_past()
    fresh = AgeTable(momentum=0.9, weight_decay=0.01, step=2500)
    for rate in rates[2500:]:
        table.end_step(rate)
        fresh.end_step(rate)
    assert table.step == fresh.step == 3000
    ages = range(501)
    for name, values in moments_of(table, ages).items():
        assert np.array_equal(values, moments_of(fresh, ages)[name])


def test_an_age_before_the_table_began_is_refused() -> None:
    table = AgeTable(momentum=0.9, step=7)
    for rate in (0.1, 0.2):
        table.end_step(rate)
    table.moments(torch.tensor([2]))
    with pytest.raises(IndexError):
        table.moments(torch.tensor([3]))


@pytest.mark.parametrize("rate", [-0.1, math.nan, math.inf])
def test_rates_must_be_finite_and_not_negative(rate: float) -> None:
    table = AgeTable(momentum=0.9)
    with pytest.raises(ConfigError, match="rate"):
        table.end_step(rate)
    assert table.step == 0


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"momentum": 1.0}, "momentum"),
        ({"momentum": -0.1}, "momentum"),
        ({"momentum": 0.9, "weight_decay": -1.0}, "weight_decay"),
        ({"momentum": 0.9, "step": -1}, "step"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, float], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        AgeTable(**settings)  # type: ignore[arg-type]
