"""Words of every verb that releases: whose ledger pays, for data of which time, and the seed."""

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from tulle.accounting.ledger import Ledger
from tulle.accounting.spans import span_of
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import noise_source
from tulle.privacy.events import EpsilonDelta
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.plan import Assumption, ColumnRoles, Plan, Status
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit
from tulle.runs.charging import ReleaseTerms, charge_to, release_plan

DAY = timedelta(days=1)


def draft(epsilon: float = 1.0) -> Plan:
    return Plan(
        name="a release",
        mechanism="Each label is randomized once.",
        settings={"steps": 9},
        event=EpsilonDelta(epsilon=1.0),
        guarantee=Guarantee(
            epsilon=epsilon,
            delta=0.0,
            unit=Unit.example(),
            adjacency=Adjacency.REPLACE,
            scope=Scope.LABELS,
        ),
        trust=TrustModel.CENTRAL,
        columns=ColumnRoles(label="clicked"),
        assumptions=(
            Assumption(statement="Labels are 0 or 1.", status=Status.ENFORCED, evidence="A type."),
        ),
    )


@pytest.mark.parametrize("day", ["2026-01-14", date(2026, 1, 14)])
def test_a_day_stands_for_all_its_hours(day: str | date) -> None:
    first, last = span_of(day, None)
    assert first == datetime(2026, 1, 14, tzinfo=UTC)
    assert last is not None
    assert DAY - timedelta(seconds=1) < last - first < DAY


@pytest.mark.parametrize("moment", ["2026-01-14T09:30", datetime(2026, 1, 14, 9, 30)])
def test_a_time_without_a_zone_is_in_utc(moment: str | datetime) -> None:
    assert span_of(moment, None) == (datetime(2026, 1, 14, 9, 30, tzinfo=UTC),) * 2


@pytest.mark.parametrize("text", ["2026-W03", "20260114", "yesterday", ""])
def test_other_texts_are_refused_by_the_name_of_the_setting(text: str) -> None:
    with pytest.raises(ConfigError, match=f"at='{text}' must be a date or a time"):
        span_of(text, None)


def test_settings_of_a_ledger_are_refused_without_one() -> None:
    assert charge_to(None, job="labels") is None
    with pytest.raises(ConfigError, match="at='2026-01-14' is for a ledger"):
        charge_to(None, job="labels", at="2026-01-14")
    with pytest.raises(ConfigError, match="purpose='weekly' is for a ledger"):
        charge_to(None, job="labels", purpose="weekly")
    with pytest.raises(ConfigError, match="again is for a ledger"):
        charge_to(None, job="labels", again=True)


def test_a_path_is_as_good_as_an_open_ledger(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    for given in (ledger, tmp_path / "ledger.db", str(tmp_path / "ledger.db")):
        charge = charge_to(given, job="labels", at="2026-01-14")
        assert charge is not None
        assert charge.ledger.path == ledger.path
        assert charge.until is not None
        assert charge.purpose == "labels"


def test_a_purpose_of_ones_own_is_charged(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    charge = charge_to(ledger, job="labels", purpose="weekly")
    assert charge is not None
    assert charge.purpose == "weekly"


def test_a_plan_says_who_pays_and_where_the_noise_comes_from() -> None:
    prior = Assumption(statement="The prior is public.", status=Status.ASSUMED)
    plan = release_plan(
        draft(), ReleaseTerms(has_ledger=True), what="measurement", assumed=(prior,)
    )
    assert plan.settings["charged to a ledger"] is True
    assert plan.settings["noise from"] == "operating-system entropy"
    assert plan.settings["steps"] == 9
    enforced, paid, assumed = plan.assumptions
    assert enforced.status is Status.ENFORCED
    assert "same measurement" in paid.statement
    assert assumed == prior


def test_a_plan_without_a_ledger_promises_no_single_payment() -> None:
    terms = ReleaseTerms(noise_source="a fixed seed")
    plan = release_plan(draft(), terms, what="measurement", noise_word="draws")
    assert plan.settings["draws from"] == "a fixed seed"
    assert [assumption.status for assumption in plan.assumptions] == [Status.ENFORCED]


def test_a_plan_that_claims_too_much_is_refused() -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        release_plan(draft(epsilon=0.5), ReleaseTerms(), what="measurement")


def test_charges_and_ledgers_load_no_accountant_before_something_is_priced() -> None:
    heavy = {"scipy", "polars", "torch", "dp_accounting"}
    code = f"import sys, tulle.runs.charging; print(*(set(sys.modules) & {heavy!r}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_noise_is_secure_without_a_seed_and_only_then() -> None:
    assert noise_source(None).is_secure
    assert not noise_source(0).is_secure
    for wrong in (-1, True, 1.5):
        with pytest.raises(ConfigError, match="seed="):
            noise_source(wrong)  # type: ignore[arg-type]
