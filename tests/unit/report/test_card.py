import copy
import dataclasses
import json
import math
from typing import Any

import pytest

from golden.card.fixed_card import (
    AUDIT,
    BOTH,
    COLUMNS,
    ENFORCED,
    PROVENANCE,
    UTILITY,
    make_card,
    make_plan,
    promise,
)
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import OperatingSystemNoise, SeededNoise
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.events import Gaussian, NonPrivate
from tulle.privacy.plan import Assumption, Plan, Status
from tulle.privacy.units import Unit
from tulle.report.card import Card, build_card
from tulle.report.figures import Accounting

NOISE = Gaussian(noise_multiplier=20.0)


def quick_plan(**changes: object) -> Plan:
    fields: dict[str, object] = {
        "event": NOISE,
        "guarantee": promise(0.8, Unit.user(), BOTH),
        "variants": (),
    }
    return make_plan(**fields | changes)


def quick_card(plan: Plan | None = None, **changes: Any) -> Card:
    fields = {"randomness": OperatingSystemNoise(), "provenance": PROVENANCE} | changes
    return build_card(plan or quick_plan(), **fields)


def test_a_private_release_says_so_in_its_first_line() -> None:
    card = quick_card()
    assert card.reasons == ()
    assert card.verdict == (
        "Private release: epsilon=0.8, delta=1e-07 for the labels and sensitive columns "
        "of one user (replace)"
    )
    assert next(iter(card.to_dict())) == "verdict"


def assert_not_private(card: Card, reason: str) -> None:
    assert card.verdict == "NOT A PRIVATE RELEASE"
    assert len(card.reasons) == 1
    assert reason in card.reasons[0]
    data = card.to_dict()
    assert data["is_private"] is False
    assert data["claim"]["sentence"].startswith("There is no guarantee")


def test_a_fixed_seed_is_not_a_private_release() -> None:
    assert_not_private(quick_card(randomness=SeededNoise(7)), "fixed seed 7")


def test_an_unprotected_event_is_not_a_private_release() -> None:
    plan = quick_plan(event=NonPrivate(), guarantee=promise(math.inf, Unit.user(), BOTH))
    assert_not_private(quick_card(plan), "epsilon is infinite")


def test_an_infinite_claim_for_a_protected_event_is_not_a_private_release() -> None:
    plan = quick_plan(guarantee=promise(math.inf, Unit.user(), BOTH))
    assert_not_private(quick_card(plan), "epsilon is infinite")


def test_a_delta_of_one_is_not_a_private_release() -> None:
    certain = dataclasses.replace(promise(0.8, Unit.user(), BOTH), delta=1.0)
    assert_not_private(quick_card(quick_plan(guarantee=certain)), "no protection")


def test_an_unenforced_assumption_is_not_a_private_release() -> None:
    assumed = Assumption(statement="Users do not share devices.", status=Status.ASSUMED)
    card = quick_card(quick_plan(assumptions=(ENFORCED, assumed)))
    assert_not_private(card, "Users do not share devices.")


def test_accounting_for_reproduction_is_not_a_private_release() -> None:
    note = "add-or-remove RDP, for reproduction only"
    card = quick_card(accounting_note=note, reproduction_only=True)
    assert_not_private(card, note)


def test_a_refuted_claim_is_not_a_private_release() -> None:
    audit = dataclasses.replace(AUDIT, claim=0.8, lower_bound=0.9)
    assert_not_private(quick_card(audit=audit), "epsilon is at least 0.9")


def test_every_reason_is_listed() -> None:
    assumed = tuple(Assumption(statement=f"no. {i}", status=Status.ASSUMED) for i in range(2))
    card = quick_card(
        quick_plan(assumptions=assumed),
        randomness=SeededNoise(7),
        accounting_note="RDP",
        reproduction_only=True,
    )
    assert len(card.reasons) == 4


def test_a_note_alone_leaves_a_release_private() -> None:
    assert quick_card(accounting_note="RDP, sound under add-or-remove").reasons == ()


def test_accounting_for_reproduction_needs_a_note() -> None:
    with pytest.raises(ConfigError, match="accounting_note"):
        quick_card(reproduction_only=True)


def test_a_plan_that_claims_too_much_cannot_become_a_card() -> None:
    with pytest.raises(ConfigError, match=r"claims epsilon=0\.1"):
        quick_card(quick_plan(guarantee=promise(0.1, Unit.user(), BOTH)))


def test_a_card_cannot_be_put_together_with_figures_of_another_plan() -> None:
    other = make_card().accounting
    with pytest.raises(ConfigError, match=r"accounting\.figures"):
        dataclasses.replace(quick_card(), accounting=other)
    with pytest.raises(ConfigError, match="at least one figure"):
        Accounting(figures=())


def test_an_audit_of_another_claim_is_refused() -> None:
    with pytest.raises(ConfigError, match="audit claim=5"):
        quick_card(audit=dataclasses.replace(AUDIT, claim=5.0))


def test_the_figures_come_from_the_events() -> None:
    figures = make_card().to_dict()["accounting"]["figures"]
    assert [f["guarantee"]["epsilon"] for f in figures] == [2.2, 0.8, 0.75]
    for figure in figures:
        claimed, amplified = figure["guarantee"]["epsilon"], figure["epsilon"]
        assert amplified <= claimed < figure["epsilon_without_amplification"]


def test_without_sampling_both_figures_agree() -> None:
    (figure,) = quick_card().accounting.figures
    assert figure.epsilon == figure.epsilon_without_amplification


def refuse_constant(name: str) -> None:
    raise AssertionError(name)


@pytest.mark.parametrize("epsilon", [0.8, math.inf])
def test_a_card_is_strict_json_and_comes_back(epsilon: float) -> None:
    plan = quick_plan(guarantee=promise(epsilon, Unit.user(), BOTH))
    audit = dataclasses.replace(AUDIT, claim=epsilon)
    card = quick_card(plan, utility=[UTILITY], audit=audit)
    text = json.dumps(card.to_dict(), allow_nan=False)
    assert Card.from_dict(json.loads(text, parse_constant=refuse_constant)) == card


def test_an_infinite_epsilon_is_null() -> None:
    plan = quick_plan(event=NonPrivate(), guarantee=promise(math.inf, Unit.user(), BOTH))
    data = quick_card(plan).to_dict()
    assert data["claim"]["epsilon"] is None
    assert data["accounting"]["figures"][0]["epsilon"] is None
    assert data["is_private"] is False


TAMPERED: list[tuple[tuple[Any, ...], object, str]] = [
    (("verdict",), "Private release: epsilon=0.1, delta=0 for one user (replace)", "verdict"),
    (("is_private",), False, "is_private"),
    (("claim", "epsilon"), 0.1, "figures"),
    (("accounting", "figures", 0, "guarantee", "epsilon"), 0.1, "gives only"),
    (("accounting", "figures", 0, "event", "noise_multiplier"), 99.0, "plan_fingerprint"),
    (("accounting", "method"), "guess", "guess"),
    (("accounting", "note"), None, "accounting_note"),
    (("accounting", "reproduction_only"), 0, "reproduction_only"),
    (("randomness", "is_secure"), "yes", "is_secure"),
    (("assumptions", 0, "status"), "assumed", "plan_fingerprint"),
    (("assumptions",), [], "plan_fingerprint"),
    (("provenance", "plan_fingerprint"), "0" * 64, "plan_fingerprint"),
    (("provenance", "created_at"), "yesterday", "created_at"),
    (("provenance",), None, "provenance"),
    (("mechanism", "setings"), {}, "did you mean 'settings'"),
    (("format",), "tulle card 9", "tulle card 9"),
    (("extra",), 1, "'extra'"),
]


@pytest.mark.parametrize(("path", "value", "message"), TAMPERED)
def test_a_card_changed_by_hand_is_refused(
    path: tuple[Any, ...], value: object, message: str
) -> None:
    data: Any = copy.deepcopy(quick_card(utility=[UTILITY]).to_dict())
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ConfigError, match=message):
        Card.from_dict(data)


@pytest.mark.parametrize("key", sorted(make_card().to_dict()))
def test_a_missing_entry_is_named(key: str) -> None:
    data = make_card().to_dict()
    del data[key]
    with pytest.raises(ConfigError, match=f"card needs the key '{key}'"):
        Card.from_dict(data)


def test_what_is_not_protected_is_listed() -> None:
    facts = " ".join(make_card().to_dict()["claim"]["not_protected"])
    for text in (*COLUMNS.public, "day", "how many rows", UTILITY.measured_on):
        assert text in facts
    assert "age_group" not in facts


def test_a_label_only_claim_lists_the_sensitive_columns_as_open() -> None:
    columns = ColumnRoles(label="y", public=("p",), sensitive=("s",), unit="u")
    labels = promise(0.8, Unit.user(), columns.scope.LABELS)
    card = quick_card(quick_plan(columns=columns, guarantee=labels))
    assert "The sensitive columns: s." in card.to_dict()["claim"]["not_protected"]
