import math
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.budget import Account, Budget
from tulle.accounting.spans import Span
from tulle.errors import ConfigError
from tulle.privacy.events import (
    Composed,
    EpsilonDelta,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    Repeated,
)
from tulle.privacy.units import Adjacency, Unit


def make_budget(*, unit: Unit | None = None, epsilon: float = 1.0, delta: float = 1e-6) -> Budget:
    return Budget(
        name="ads",
        unit=unit or Unit.user(),
        adjacency=Adjacency.ADD_OR_REMOVE,
        epsilon=epsilon,
        delta=delta,
    )


def make_account(budget: Budget, spent: Composed) -> Account:
    return Account(budget=budget, window=0, spent=spent, num_spends=1, num_open=0)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", math.inf),
        ("epsilon", math.nan),
        ("epsilon", "1"),
        ("delta", -0.1),
        ("delta", 1.0),
        ("delta", math.nan),
        ("name", ""),
        ("name", " ads"),
        ("name", "a\nb"),
        ("purpose", ""),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(setting: str, value: object) -> None:
    settings = {
        "name": "ads",
        "unit": Unit.user(),
        "adjacency": Adjacency.REPLACE,
        "epsilon": 1.0,
        "delta": 1e-6,
        "purpose": None,
    }
    with pytest.raises(ConfigError, match=f"{setting}="):
        Budget(**(settings | {setting: value}))  # type: ignore[arg-type]


def test_a_window_of_centuries_is_refused() -> None:
    with pytest.raises(ConfigError, match="use 'user'"):
        make_budget(unit=Unit.user(days=40_000))


def test_windows_are_aligned_to_the_epoch_in_utc() -> None:
    weekly = make_budget(unit=Unit.user(days=7))
    # 2026-01-14 is day 20467 = 7 * 2923 + 6, the last day of its window.
    last_moment = datetime(2026, 1, 14, 23, 59, 59, 999_999, tzinfo=UTC)
    assert weekly.windows(Span.of(last_moment, None)) == range(2923, 2924)
    assert weekly.windows(Span.of(last_moment + timedelta(microseconds=1), None))[0] == 2924
    assert weekly.window_bounds(2923) == (
        datetime(2026, 1, 8, tzinfo=UTC),
        datetime(2026, 1, 15, tzinfo=UTC),
    )


def test_a_time_zone_moves_the_moment_not_the_window() -> None:
    daily = make_budget(unit=Unit.user(days=1))
    in_tokyo = datetime(2026, 1, 15, 8, tzinfo=timezone(timedelta(hours=9)))
    assert daily.windows(Span.of(in_tokyo, None)) == daily.windows(
        Span.of(datetime(2026, 1, 14, tzinfo=UTC), None)
    )


def test_times_before_1970_fall_into_windows_too() -> None:
    daily = make_budget(unit=Unit.user(days=1))
    assert daily.windows(Span.of(datetime(1969, 12, 31, 23, tzinfo=UTC), None))[0] == -1


def test_a_span_touches_every_window_from_first_to_last_moment() -> None:
    daily = make_budget(unit=Unit.user(days=1))
    first, last = datetime(2026, 1, 14, 12, tzinfo=UTC), datetime(2026, 1, 17, tzinfo=UTC)
    assert len(daily.windows(Span.of(first, last))) == 4


def test_a_budget_without_a_window_never_renews() -> None:
    budget = make_budget()
    early, late = datetime(1990, 1, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC)
    assert budget.windows(Span.of(early, None)) == budget.windows(Span.of(late, None)) == range(1)
    assert budget.windows(None) == range(1)
    assert budget.window_bounds(0) is None


def test_a_budget_that_renews_needs_the_time_of_the_data() -> None:
    with pytest.raises(ConfigError, match="which of its windows to charge; say with at="):
        make_budget(unit=Unit.user(days=7)).windows(None)


def test_too_many_windows_are_refused() -> None:
    by_second = make_budget(unit=Unit.parse("user per second"))
    first = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(ConfigError, match="at most 4096"):
        by_second.windows(Span.of(first, first + timedelta(days=1)))


def test_the_bounds_of_the_last_window_of_the_calendar_exist() -> None:
    decade = make_budget(unit=Unit.user(days=3650))
    (window,) = decade.windows(Span.of(datetime(9999, 12, 31, tzinfo=UTC), None))
    assert decade.window_bounds(window) is not None


@pytest.mark.parametrize(
    ("at", "until", "message"),
    [
        (datetime(2026, 1, 14), None, "at=.* time zone"),
        (datetime(2026, 1, 14, tzinfo=UTC), datetime(2026, 1, 15), "until=.* time zone"),
        (datetime(2026, 1, 14, tzinfo=UTC), datetime(2026, 1, 13, tzinfo=UTC), "before"),
        (None, datetime(2026, 1, 13, tzinfo=UTC), "needs at="),
    ],
)
def test_a_span_that_is_none_is_refused(
    at: datetime | None, until: datetime | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Span.of(at, until)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(("share", "count"), [(0.1, 10), (0.01, 100), (1 / 3, 3), (1e-6, 10**6)])
def test_the_whole_budget_can_be_spent_in_parts_and_not_more(
    share: float, count: int, delta: float
) -> None:
    budget = make_budget(delta=delta)
    whole = Repeated(event=EpsilonDelta(epsilon=share), count=count)
    assert budget.covers_cost(whole)
    if delta == 0:
        assert not budget.covers_cost(Composed((whole, EpsilonDelta(epsilon=1e-9))))


def test_the_tolerance_does_not_grow_with_the_number_of_spends() -> None:
    budget = make_budget(delta=0.0)
    a_bit_much = EpsilonDelta(epsilon=1e-5 * (1 + 1e-11))
    assert not budget.covers_cost(Repeated(event=a_bit_much, count=10**5))


def test_gaussian_noise_has_no_cost_without_a_delta() -> None:
    budget = make_budget(delta=0.0)
    event = Composed((Laplace(noise_multiplier=10), Gaussian(noise_multiplier=10)))
    assert budget.cost(event) == math.inf
    assert not budget.covers_cost(event)


def test_a_sampled_pure_event_fits_a_budget_without_a_delta() -> None:
    sampled = PoissonSampled(sampling_prob=0.1, event=Laplace(noise_multiplier=1))
    cost = make_budget(delta=0.0).cost(sampled)
    assert cost == pytest.approx(math.log1p(0.1 * math.expm1(1)), rel=1e-3)


def test_many_pure_spends_cost_less_than_their_sum() -> None:
    budget = make_budget(epsilon=3.0)
    spends = Repeated(event=Laplace(noise_multiplier=20), count=80)
    assert budget.cost(spends) < 3.0 < 80 / 20
    assert budget.covers_cost(spends)


def test_the_cost_is_the_accountants() -> None:
    event = Composed((Gaussian(noise_multiplier=3), Laplace(noise_multiplier=5)))
    expected = privacy_curve(event, Adjacency.ADD_OR_REMOVE).epsilon(1e-6)
    assert make_budget().cost(event) == expected


def test_nothing_fits_after_a_release_without_privacy() -> None:
    account = make_account(make_budget(), Composed((NonPrivate(),)))
    assert account.state().left_epsilon == 0
    assert not account.fits(EpsilonDelta(epsilon=0))


def test_a_pure_spend_of_what_is_left_always_fits() -> None:
    spent = Composed((Gaussian(noise_multiplier=8), Laplace(noise_multiplier=9)))
    account = make_account(make_budget(), spent)
    left = account.state().left_epsilon
    assert 0 < left < 1
    assert account.fits(EpsilonDelta(epsilon=left * (1 - 1e-3)))
    assert not account.fits(EpsilonDelta(epsilon=left * 1.1))
