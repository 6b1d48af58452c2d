import dataclasses
import pickle
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tulle.accounting import ledger_file
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.errors import BudgetExceededError, ConfigError, RunStateError, UnsupportedEventError
from tulle.privacy.events import (
    Composed,
    EpsilonDelta,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    RandomizedResponse,
    Repeated,
)
from tulle.privacy.units import Adjacency, Unit

AT = datetime(2026, 1, 14, tzinfo=UTC)
WEEK = timedelta(days=7)
TENTH = EpsilonDelta(epsilon=0.1)
HALF = EpsilonDelta(epsilon=0.5)


def make_budget(
    name: str = "ads",
    *,
    unit: Unit | None = None,
    epsilon: float = 1.0,
    delta: float = 0.0,
    purpose: str | None = None,
) -> Budget:
    return Budget(
        name=name,
        unit=unit or Unit.user(),
        adjacency=Adjacency.ADD_OR_REMOVE,
        epsilon=epsilon,
        delta=delta,
        purpose=purpose,
    )


def make_ledger(tmp_path: Path, *budgets: Budget) -> Ledger:
    ledger = Ledger.create(tmp_path / "ledger.db")
    for budget in budgets or (make_budget(),):
        ledger.create_budget(budget)
    return ledger


def test_budgets_come_back_as_they_were_given(tmp_path: Path) -> None:
    given = (
        make_budget("a", unit=Unit.user_advertiser(days=7), epsilon=0.1, delta=1e-6),
        make_budget("b", unit=Unit.parse("user per 12 hours"), purpose="measurement"),
    )
    make_ledger(tmp_path, *given)
    assert Ledger.open(tmp_path / "ledger.db").budgets() == given


def test_a_spend_is_on_the_books_before_the_release(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    with ledger.spend(HALF, purpose="counts", note="first week") as spend:
        (inside,) = ledger.spends("ads")
        assert inside.status is SpendStatus.OPEN
        assert ledger.state("ads").num_open == 1
        assert ledger.state("ads").left_epsilon == 0.5
    (after,) = ledger.spends("ads")
    assert after.id == spend.id
    assert after.status is SpendStatus.RELEASED
    assert (after.request.event, after.request.purpose) == (HALF, "counts")
    assert after.request.note == "first week"
    assert after.recorded_at.utcoffset() == timedelta(0)
    assert after.finished_at is not None
    assert after.finished_at >= after.recorded_at


def test_a_failed_release_stays_spent(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    with pytest.raises(ZeroDivisionError), ledger.spend(HALF, purpose="counts"):
        1 / 0  # noqa: B018
    (spend,) = ledger.spends("ads")
    assert spend.status is SpendStatus.FAILED
    assert ledger.state("ads").spent_epsilon == 0.5


def test_a_spend_counts_even_if_its_block_is_never_entered(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    ledger.spend(HALF, purpose="counts")
    assert ledger.state("ads").spent_epsilon == 0.5


def test_one_spend_pays_for_one_release(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    spend = ledger.spend(HALF, purpose="counts")
    with spend:
        pass
    with pytest.raises(RunStateError, match="already paid"), spend:
        pass


def test_a_refused_spend_writes_nothing(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    with pytest.raises(BudgetExceededError):
        ledger.spend(EpsilonDelta(epsilon=1.1), purpose="counts")
    assert ledger.spends("ads") == ()
    assert ledger.state("ads").left_epsilon == 1.0


def test_ten_tenths_are_the_whole_budget(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    for _ in range(10):
        ledger.spend(TENTH, purpose="counts")
    with pytest.raises(BudgetExceededError):
        ledger.spend(EpsilonDelta(epsilon=1e-9), purpose="counts")


def test_noise_of_several_spends_composes_better_than_the_sum(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget(delta=1e-6))
    event = Gaussian(noise_multiplier=12.0)
    alone = ledger.check(event, purpose="counts")[0].spent_epsilon
    for _ in range(4):
        ledger.spend(event, purpose="counts")
    assert ledger.state("ads").spent_epsilon < 3 * alone


def test_each_window_has_its_own_budget(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget(unit=Unit.user(days=7)))
    ledger.spend(EpsilonDelta(epsilon=1.0), purpose="counts", at=AT)
    with pytest.raises(BudgetExceededError):
        ledger.spend(TENTH, purpose="counts", at=AT)
    ledger.spend(TENTH, purpose="counts", at=AT + WEEK)
    assert ledger.state("ads", AT).left_epsilon == 0
    assert ledger.state("ads", AT + WEEK).left_epsilon == 0.9
    assert ledger.state("ads", AT + 2 * WEEK).left_epsilon == 1.0


def test_data_of_several_windows_are_charged_to_each(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget(unit=Unit.user(days=7)))
    spend = ledger.spend(HALF, purpose="counts", at=AT, until=AT + 2 * WEEK)
    assert [state.left_epsilon for state in spend.states()] == [0.5, 0.5, 0.5]
    for weeks, left in ((-1, 1.0), (0, 0.5), (1, 0.5), (2, 0.5), (3, 1.0)):
        assert ledger.state("ads", AT + weeks * WEEK).left_epsilon == left
    (window,) = ledger.budget("ads").windows(ledger.spends("ads")[0].request.span)[:1]
    assert len(ledger.spends("ads", window)) == 1
    assert ledger.spends("ads", window - 1) == ()


def test_one_full_window_refuses_the_whole_span(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget(unit=Unit.user(days=7)))
    ledger.spend(EpsilonDelta(epsilon=1.0), purpose="counts", at=AT + WEEK)
    with pytest.raises(BudgetExceededError, match="2026-01-15"):
        ledger.spend(TENTH, purpose="counts", at=AT, until=AT + 2 * WEEK)
    assert ledger.state("ads", AT).num_spends == 0


def test_a_budget_that_renews_needs_the_time_of_the_data(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget(unit=Unit.user(days=7)))
    with pytest.raises(ConfigError, match="which time the data are from"):
        ledger.spend(TENTH, purpose="counts")
    assert ledger.spends("ads") == ()


def test_a_spend_counts_for_its_purpose_and_for_budgets_of_every_purpose(tmp_path: Path) -> None:
    ledger = make_ledger(
        tmp_path,
        make_budget("all", epsilon=1.0),
        make_budget("measuring", epsilon=0.5, purpose="measurement"),
        make_budget("training", epsilon=0.8, purpose="training"),
    )
    ledger.spend(HALF, purpose="measurement")
    left = {b.name: ledger.state(b.name).left_epsilon for b in ledger.budgets()}
    assert left == {"all": 0.5, "measuring": 0.0, "training": 0.8}
    with pytest.raises(BudgetExceededError, match="budget 'measuring'"):
        ledger.spend(TENTH, purpose="measurement")
    with pytest.raises(BudgetExceededError, match="budget 'all'"):
        ledger.spend(EpsilonDelta(epsilon=0.6), purpose="training")


def test_nothing_is_released_uncharged(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget(purpose="measurement"))
    with pytest.raises(ConfigError, match=r"'training' is counted by no budget.*'measurement'"):
        ledger.spend(TENTH, purpose="training")
    empty = Ledger.create(tmp_path / "empty.db")
    with pytest.raises(ConfigError, match="there is no budget"):
        empty.spend(TENTH, purpose="training")


def test_an_event_about_a_smaller_unit_cannot_be_charged(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget(unit=Unit.user(days=7)))
    ledger.spend(TENTH, purpose="counts", unit=Unit.user(), at=AT)
    for smaller in (Unit.user(days=1), Unit.user_advertiser(), Unit.example()):
        with pytest.raises(ConfigError, match="does not cover unit 'user per 7 days'"):
            ledger.spend(TENTH, purpose="counts", unit=smaller, at=AT)
    assert [spend.request.unit for spend in ledger.spends("ads")] == [Unit.user()]


def test_an_event_for_budgets_of_several_units_must_name_its_unit(tmp_path: Path) -> None:
    pairs = replacing(make_budget("pairs", unit=Unit.user_advertiser()))
    ledger = make_ledger(tmp_path, replacing(make_budget("people")), pairs)
    with pytest.raises(ConfigError, match=r"unit=None.*'user', 'user x advertiser'"):
        ledger.spend(TENTH, purpose="counts")
    with pytest.raises(ConfigError, match="does not cover unit 'user' of budget 'people'"):
        ledger.spend(TENTH, purpose="counts", unit=Unit.user_advertiser())
    ledger.spend(TENTH, purpose="counts", unit=Unit.user())
    assert [ledger.state(name).num_spends for name in ("people", "pairs")] == [1, 1]


def test_an_event_about_several_windows_must_name_its_unit(tmp_path: Path) -> None:
    week = replacing(make_budget("week", unit=Unit.user(days=7)))
    ledger = make_ledger(tmp_path, week, replacing(make_budget("all")))
    ledger.spend(TENTH, purpose="counts", at=AT)
    with pytest.raises(ConfigError, match=r"unit=None.*'user', 'user per 7 days'"):
        ledger.spend(TENTH, purpose="counts", at=AT, until=AT + WEEK)
    ledger.spend(TENTH, purpose="counts", unit=Unit.user(), at=AT, until=AT + WEEK)
    assert ledger.state("all").spent_epsilon == 0.2


@pytest.mark.parametrize(
    "part", [Unit.impression(), Unit.user_advertiser(), Unit.example(), Unit.user(days=7)]
)
def test_a_part_of_a_unit_is_not_charged_as_the_whole_where_rows_come_and_go(
    part: Unit, tmp_path: Path
) -> None:
    """One impression less of a user who keeps another moves a count from one slice to another."""
    ledger = make_ledger(tmp_path, make_budget("parts", unit=part))
    with pytest.raises(ConfigError, match=r"larger than unit.*adjacency replace"):
        ledger.spend(TENTH, purpose="counts", unit=Unit.user(), at=AT, until=AT + WEEK)
    assert ledger.spends("parts") == ()
    ledger.spend(TENTH, purpose="counts", unit=part, at=AT, until=AT + WEEK)
    if part == Unit.user(days=7):
        # All rows of a user in data of one window are all rows of the user.
        ledger.spend(TENTH, purpose="counts", unit=Unit.user(), at=AT)


def replacing(budget: Budget) -> Budget:
    return dataclasses.replace(budget, adjacency=Adjacency.REPLACE)


def test_a_stated_epsilon_is_not_charged_under_several_adjacencies(tmp_path: Path) -> None:
    ledger = make_ledger(
        tmp_path, make_budget("removing", delta=1e-6), replacing(make_budget("replacing"))
    )
    for stated in (TENTH, Composed((Repeated(event=TENTH, count=2),))):
        with pytest.raises(ConfigError, match=r"EpsilonDelta.*add-remove, replace"):
            ledger.spend(stated, purpose="counts")
    ledger.spend(Laplace(noise_multiplier=4.0), purpose="counts")
    assert ledger.state("removing").spent_epsilon == pytest.approx(0.25, rel=1e-4)
    assert ledger.state("replacing").spent_epsilon == 0.5


def test_a_check_tells_what_would_be_left_and_writes_nothing(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    (state,) = ledger.check(HALF, purpose="counts")
    assert (state.left_epsilon, state.num_spends) == (0.5, 1)
    with pytest.raises(BudgetExceededError, match=r"Least noise that fits: epsilon=(0\.99|1\.)"):
        ledger.check(RandomizedResponse(epsilon=2.0), purpose="counts")
    assert ledger.spends("ads") == ()


def test_an_event_without_known_cost_is_refused_and_not_written(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget(delta=1e-6))
    event = FixedSizeSampled(batch_size=1, num_rows=10, event=Laplace(noise_multiplier=1))
    with pytest.raises(UnsupportedEventError):
        ledger.spend(event, purpose="counts")
    assert ledger.spends("ads") == ()


def test_a_budget_cannot_be_raised(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    with pytest.raises(ConfigError, match=r"'ads' exists with epsilon=1.*new ledger"):
        ledger.create_budget(make_budget(epsilon=2.0))
    assert ledger.budget("ads").epsilon == 1.0


def test_a_second_budget_does_not_lift_the_first(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget("small", epsilon=0.1), make_budget("large"))
    with pytest.raises(BudgetExceededError, match="'small'"):
        ledger.spend(HALF, purpose="counts")


def test_a_budget_comes_before_what_it_counts(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, make_budget(purpose="measurement"))
    ledger.spend(TENTH, purpose="measurement")
    with pytest.raises(ConfigError, match="create budgets before spending"):
        ledger.create_budget(make_budget("all"))
    ledger.create_budget(make_budget("training", purpose="training"))


def test_an_unknown_budget_is_named_with_the_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'adds' does not exist; existing: 'ads'"):
        make_ledger(tmp_path).state("adds")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"purpose": ""}, "purpose="),
        ({"purpose": "counts", "note": 3}, "note="),
        ({"purpose": "counts", "note": "half a character: \ud800"}, "note="),
        ({"purpose": "counts", "until": AT}, "until="),
    ],
)
def test_a_setting_of_a_spend_that_cannot_be_used_is_named(
    tmp_path: Path, settings: dict[str, object], message: str
) -> None:
    ledger = make_ledger(tmp_path)
    with pytest.raises(ConfigError, match=message):
        ledger.spend(TENTH, **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="event="):
        ledger.spend("Gaussian", purpose="counts")  # type: ignore[arg-type]
    assert ledger.spends("ads") == ()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf")])
def test_a_timeout_must_be_a_time(tmp_path: Path, seconds: float) -> None:
    with pytest.raises(ConfigError, match="busy_timeout_s="):
        Ledger.create(tmp_path / "ledger.db", busy_timeout_s=seconds)


def test_a_ledger_moves_between_processes_and_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.create("ledger.db")
    ledger.create_budget(make_budget())
    monkeypatch.chdir("/")
    copy = pickle.loads(pickle.dumps(ledger))  # noqa: S301
    copy.spend(HALF, purpose="counts")
    assert ledger.state("ads").num_spends == 1


def test_a_mark_that_cannot_be_written_does_not_lose_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = make_ledger(tmp_path)

    def fail(*_: object) -> None:
        raise RunStateError("ledger.db cannot be written")

    spend = ledger.spend(HALF, purpose="counts")
    monkeypatch.setattr(ledger_file, "writing", fail)
    with pytest.warns(RuntimeWarning, match="spend 1 stays open"), spend:
        pass
    assert ledger.state("ads").num_open == 1


def test_an_error_is_not_hidden_by_a_mark_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = make_ledger(tmp_path)
    spend = ledger.spend(HALF, purpose="counts")

    def fail(*_: object) -> None:
        raise RunStateError("ledger.db cannot be written")

    monkeypatch.setattr(ledger_file, "writing", fail)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ZeroDivisionError), spend:
            1 / 0  # noqa: B018


def test_a_ledger_is_opened_or_created(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open_or_create(path).create_budget(
        Budget(name="all", unit="user", adjacency="replace", epsilon=1.0, delta=0.0)  # type: ignore[arg-type]
    )
    assert [budget.name for budget in Ledger.open_or_create(path).budgets()] == ["all"]


def test_days_and_units_may_be_text(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    budget = Budget(
        name="weekly",
        unit=Unit.user(days=7),
        adjacency=Adjacency.REPLACE,
        epsilon=1.0,
        delta=0.0,
    )
    ledger.create_budget(budget)
    event = EpsilonDelta(epsilon=0.25)
    # Two weeks from Thursday to Wednesday: windows begin with 1970-01-01.
    with ledger.spend(
        event, purpose="any", unit="user per 7 days", at="2026-01-14", until="2026-01-15"
    ) as spend:
        pass
    assert len(spend.states()) == 2
    (state,) = ledger.states("2026-01-14")
    assert state == ledger.state("weekly", datetime(2026, 1, 14, tzinfo=UTC))
    assert state.to_dict()["spent_epsilon"] == 0.25
    assert state.to_dict()["unit"] == "user per 7 days"
    assert ledger.check(event, purpose="any", at="2026-01-14")[0].spent_epsilon == 0.5
    with pytest.raises(ConfigError, match="must have a time zone"):
        ledger.state("weekly", datetime(2026, 1, 14))


def test_of_two_tries_that_took_up_one_spend_the_second_must_not_release(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    spend_id = ledger.spend(TENTH, unit=Unit.user(), purpose="ads", note="weekly").id
    first, second = (ledger.reopen(spend_id, note="weekly") for _ in range(2))
    first.mark_released(released_as="sha256 of the first draw")
    with pytest.raises(RunStateError, match="another process ended it"):
        second.mark_released(released_as="sha256 of another draw")
    (spend,) = ledger.spends("ads")
    assert spend.released_as == "sha256 of the first draw"
