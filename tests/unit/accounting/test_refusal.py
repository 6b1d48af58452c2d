import dataclasses
import math
import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tulle.accounting.budget import Account, Budget
from tulle.accounting.event_rules import noise_setting, with_noise_scaled
from tulle.accounting.ledger import Ledger
from tulle.accounting.refusal import (
    MAX_NOISE_FACTOR,
    SpendRefusedError,
    explain_refusal,
    least_noise_factor,
)
from tulle.errors import BudgetExceededError, ConfigError, UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.events import (
    _EVENT_CLASSES,
    Composed,
    DiscreteGaussian,
    EpsilonDelta,
    Event,
    Gaussian,
    NonPrivate,
    RandomizedResponse,
)
from tulle.privacy.units import Adjacency, Unit

AT = datetime(2026, 1, 14, tzinfo=UTC)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Budgets of 4 a week and 6 in all; all but 0.31 of the week of AT is spent."""
    made = Ledger.create(tmp_path / "ledger.db")
    for name, unit, epsilon in (("week", Unit.user(days=7), 4.0), ("all", Unit.user(), 6.0)):
        made.create_budget(
            Budget(name=name, unit=unit, adjacency=Adjacency.REPLACE, epsilon=epsilon, delta=1e-6)
        )
    with made.spend(EpsilonDelta(epsilon=3.69), purpose="counts", at=AT):
        pass
    return made


def refusal_of(ledger: Ledger, event: Event) -> SpendRefusedError:
    with pytest.raises(BudgetExceededError) as caught:
        ledger.spend(event, purpose="counts", at=AT)
    assert isinstance(caught.value, SpendRefusedError)
    return caught.value


def test_a_refusal_says_asked_left_and_the_least_noise_that_fits(ledger: Ledger) -> None:
    error = refusal_of(ledger, RandomizedResponse(epsilon=0.5))
    assert str(error).startswith(
        "this release needs epsilon=0.5, unit 'user per 7 days' has 0.31 of 4 left "
        "(delta=1e-06, budget 'week', window 2026-01-08T00:00Z to 2026-01-15T00:00Z). "
        "Least noise that fits: epsilon=0.3"
    )
    assert error.asked_epsilon == pytest.approx(0.5, rel=1e-5)
    assert error.left_epsilon == pytest.approx(0.31, rel=1e-4)
    assert error.least_noise_factor == pytest.approx(0.5 / 0.31, rel=2e-3)


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (Gaussian(noise_multiplier=2), "noise_multiplier"),
        (DiscreteGaussian(scale=9, max_contribution=3), "scale"),
        (RandomizedResponse(epsilon=0.5, num_values=3), "epsilon"),
    ],
)
def test_the_noise_that_is_printed_fits_and_hardly_less_does(
    ledger: Ledger, event: Event, name: str
) -> None:
    text = str(refusal_of(ledger, event)).rpartition(f"{name}=")[2]
    printed = float(text.rstrip("."))
    less_noise = printed * (1.01 if name == "epsilon" else 0.99)
    settings = {field: getattr(event, field) for field in event.__dataclass_fields__}
    refusal_of(ledger, type(event)(**(settings | {name: less_noise})))
    spend = ledger.spend(type(event)(**(settings | {name: printed})), purpose="counts", at=AT)
    for state in spend.states():
        assert state.spent_epsilon <= state.budget.epsilon * (1 + 1e-12)


def test_the_noise_fits_every_budget_not_just_the_one_that_refused(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    for name, epsilon in (("wide", 1.0), ("narrow", 0.1)):
        ledger.create_budget(
            Budget(
                name=name,
                unit=Unit.user(),
                adjacency=Adjacency.REPLACE,
                epsilon=epsilon,
                delta=0.0,
            )
        )
    error = refusal_of(ledger, RandomizedResponse(epsilon=2.0))
    assert error.refusal.state.budget.name == "wide"
    assert error.least_noise_factor == pytest.approx(20, rel=2e-3)


def test_several_kinds_of_noise_are_scaled_together(ledger: Ledger) -> None:
    event = Composed((Gaussian(noise_multiplier=2), RandomizedResponse(epsilon=0.5)))
    assert "Least noise that fits: all noise times" in str(refusal_of(ledger, event))


def test_a_release_without_privacy_fits_with_no_noise(ledger: Ledger) -> None:
    error = refusal_of(ledger, NonPrivate())
    assert error.least_noise_factor is None
    assert "needs epsilon=inf" in str(error)
    assert "No noise makes it fit" in str(error)


def test_a_budget_that_is_overdrawn_without_limit_still_says_what_was_asked() -> None:
    """What a release costs is no difference of two infinities."""
    budget = Budget(
        name="ads", unit=Unit.user(), adjacency=Adjacency.REPLACE, epsilon=1.0, delta=0.0
    )
    spent = Composed((NonPrivate(),))
    account = Account(budget=budget, window=0, spent=spent, num_spends=1, num_open=0)
    refusal = explain_refusal(RandomizedResponse(epsilon=0.5), (account,), account)
    assert refusal.asked_epsilon == math.inf
    assert str(refusal).startswith("this release needs epsilon=inf, unit 'user' has 0 of 1 left")


def test_noise_beyond_what_can_be_accounted_is_no_advice(ledger: Ledger) -> None:
    with ledger.spend(EpsilonDelta(epsilon=0.31), purpose="counts", at=AT):
        pass
    assert refusal_of(ledger, DiscreteGaussian(scale=9)).least_noise_factor is None


def test_a_refusal_survives_the_way_between_processes(ledger: Ledger) -> None:
    error = refusal_of(ledger, RandomizedResponse(epsilon=0.5))
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert str(copy) == str(error)
    assert copy.refusal == error.refusal


GAUSSIAN = events.Gaussian(noise_multiplier=1.5, replace_factor=1.0)
DOUBLE_GAUSSIAN = events.Gaussian(noise_multiplier=3.0, replace_factor=1.0)

WITH_DOUBLE_NOISE: list[tuple[Event, Event]] = [
    (GAUSSIAN, DOUBLE_GAUSSIAN),
    (
        events.SwitchedGaussian(noise_multiplier=2),
        events.SwitchedGaussian(noise_multiplier=4),
    ),
    (events.Laplace(noise_multiplier=2), events.Laplace(noise_multiplier=4)),
    (
        events.DiscreteLaplace(scale=3, max_contribution=2),
        events.DiscreteLaplace(scale=6, max_contribution=2),
    ),
    (events.DiscreteGaussian(scale=5), events.DiscreteGaussian(scale=10)),
    (
        events.RandomizedResponse(epsilon=1, num_values=5),
        events.RandomizedResponse(epsilon=0.5, num_values=5),
    ),
    (
        events.SubsetSelection(epsilon=1, num_values=9, subset_size=3),
        events.SubsetSelection(epsilon=0.5, num_values=9, subset_size=3),
    ),
    (
        events.EpsilonDelta(epsilon=1, delta=1e-6),
        events.EpsilonDelta(epsilon=0.5, delta=1e-6),
    ),
    (
        events.KeySelection(epsilon=1, delta=1e-6),
        events.KeySelection(epsilon=0.5, delta=1e-6),
    ),
    (
        events.PoissonSampled(sampling_prob=0.1, event=GAUSSIAN),
        events.PoissonSampled(sampling_prob=0.1, event=DOUBLE_GAUSSIAN),
    ),
    (
        events.TruncatedPoissonSampled(
            sampling_prob=0.1, num_rows=99, max_batch_size=9, event=GAUSSIAN
        ),
        events.TruncatedPoissonSampled(
            sampling_prob=0.1, num_rows=99, max_batch_size=9, event=DOUBLE_GAUSSIAN
        ),
    ),
    (
        events.FixedSizeSampled(batch_size=9, num_rows=99, event=GAUSSIAN),
        events.FixedSizeSampled(batch_size=9, num_rows=99, event=DOUBLE_GAUSSIAN),
    ),
    (
        events.Shuffled(event=events.RandomizedResponse(epsilon=1), num_reports=100),
        events.Shuffled(event=events.RandomizedResponse(epsilon=0.5), num_reports=100),
    ),
    (
        events.Repeated(event=GAUSSIAN, count=7),
        events.Repeated(event=DOUBLE_GAUSSIAN, count=7),
    ),
    (
        events.Composed((GAUSSIAN, events.EpsilonDelta(epsilon=1))),
        events.Composed((DOUBLE_GAUSSIAN, events.EpsilonDelta(epsilon=0.5))),
    ),
    (
        events.Parallel(events=(GAUSSIAN, GAUSSIAN), parts_are_public=True),
        events.Parallel(events=(DOUBLE_GAUSSIAN, DOUBLE_GAUSSIAN), parts_are_public=True),
    ),
    (
        events.Grouped(event=GAUSSIAN, group_size=3),
        events.Grouped(event=DOUBLE_GAUSSIAN, group_size=3),
    ),
    (events.NonPrivate(), events.NonPrivate()),
]


@pytest.mark.parametrize(("event", "expected"), WITH_DOUBLE_NOISE)
def test_scaling_changes_the_noise_and_nothing_else(event: Event, expected: Event) -> None:
    assert with_noise_scaled(event, 2.0) == expected
    assert with_noise_scaled(event, 1.0) == event


def test_every_event_class_is_listed_above() -> None:
    assert {type(event) for event, _ in WITH_DOUBLE_NOISE} == set(_EVENT_CLASSES.values())


def test_an_unknown_event_class_is_refused_by_name() -> None:
    @dataclasses.dataclass(frozen=True)
    class Novel(Event):
        pass

    with pytest.raises(UnsupportedEventError, match="Novel"):
        with_noise_scaled(Novel(), 2.0)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_a_factor_that_is_no_factor_is_refused(factor: float) -> None:
    with pytest.raises(ConfigError, match="factor="):
        with_noise_scaled(GAUSSIAN, factor)


@pytest.mark.parametrize("least", [1.0001, 1.7, 2.0, 16.0, 33.3, 4000.0])
def test_the_least_factor_fits_and_is_least_to_a_thousandth(least: float) -> None:
    def fits(event: Event) -> bool:
        assert isinstance(event, events.Gaussian)
        return event.noise_multiplier >= 1.5 * least

    factor = least_noise_factor(GAUSSIAN, fits)
    assert factor is not None
    assert fits(with_noise_scaled(GAUSSIAN, factor))
    assert factor <= least * 1.0011


def test_what_fits_already_needs_no_more_noise() -> None:
    assert least_noise_factor(GAUSSIAN, lambda _: True) == 1.0


def test_nothing_that_fits_is_none_after_few_tries() -> None:
    tried: list[Event] = []

    def never_fits(event: Event) -> bool:
        tried.append(event)
        return False

    assert least_noise_factor(GAUSSIAN, never_fits) is None
    assert with_noise_scaled(GAUSSIAN, MAX_NOISE_FACTOR) in tried
    assert len(tried) < 6


@pytest.mark.parametrize(
    ("event", "setting"),
    [
        (GAUSSIAN, ("noise_multiplier", 1.5)),
        (events.DiscreteLaplace(scale=3), ("scale", 3)),
        (events.RandomizedResponse(epsilon=0.5), ("epsilon", 0.5)),
        (
            events.Repeated(
                event=events.PoissonSampled(sampling_prob=0.1, event=GAUSSIAN), count=9
            ),
            ("noise_multiplier", 1.5),
        ),
        (events.Composed((GAUSSIAN, GAUSSIAN)), ("noise_multiplier", 1.5)),
        (events.Composed((GAUSSIAN, DOUBLE_GAUSSIAN)), None),
        (events.Composed(), None),
        (events.NonPrivate(), None),
    ],
)
def test_the_noise_setting_is_named_where_there_is_one(
    event: Event, setting: tuple[str, float] | None
) -> None:
    assert noise_setting(event) == setting
