import math
import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tulle.accounting.budget import Account, Budget
from tulle.accounting.ledger import Ledger
from tulle.accounting.refusal import SpendRefusedError, explain_refusal
from tulle.errors import BudgetExceededError
from tulle.privacy.events import (
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
