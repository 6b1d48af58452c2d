import copy
import dataclasses
import json
import math
import os
import pathlib
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
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import OperatingSystemNoise, SeededNoise
from tulle.privacy.events import Gaussian, NonPrivate
from tulle.privacy.plan import Assumption, ColumnRoles, Plan, Status
from tulle.privacy.units import Unit
from tulle.runs.card import Card, build_card, read_card, write_card
from tulle.runs.card_entries import CardAccounting

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
        CardAccounting(figures=())


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


CARD = make_card()
OTHER = build_card(make_plan(), randomness=SeededNoise(1), provenance=CARD.provenance)


class Crash(BaseException):
    """The process dies here."""


def names_in(folder: pathlib.Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_written_card_is_read_back(tmp_path: pathlib.Path) -> None:
    write_card(tmp_path, CARD)
    assert names_in(tmp_path) == {"card.json", "card.md"}
    assert read_card(tmp_path / "card.json") == CARD


def test_a_card_is_replaced_as_a_whole(tmp_path: pathlib.Path) -> None:
    write_card(tmp_path, CARD)
    write_card(tmp_path, OTHER)
    assert read_card(tmp_path / "card.json") == OTHER
    assert (tmp_path / "card.md").read_text().startswith("# NOT A PRIVATE RELEASE\n")
    assert names_in(tmp_path) == {"card.json", "card.md"}


def test_a_crash_before_the_rename_leaves_the_old_card(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_card(tmp_path, CARD)

    def crash(*_: pathlib.Path) -> None:
        raise Crash

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(Crash):
        write_card(tmp_path, OTHER)
    assert read_card(tmp_path / "card.json") == CARD
    assert names_in(tmp_path) == {"card.json"}


def test_a_crash_between_both_files_never_leaves_an_old_page_beside_a_new_card(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_card(tmp_path, CARD)
    rename = os.replace

    def crash_at_markdown(source: pathlib.Path, target: pathlib.Path) -> None:
        if target.name == "card.md":
            raise Crash
        rename(source, target)

    monkeypatch.setattr(os, "replace", crash_at_markdown)
    with pytest.raises(Crash):
        write_card(tmp_path, OTHER)
    assert read_card(tmp_path / "card.json") == OTHER
    assert names_in(tmp_path) == {"card.json"}


def test_a_crash_while_writing_leaves_the_old_card(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_card(tmp_path, CARD)

    def crash(_: int) -> None:
        raise Crash

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(Crash):
        write_card(tmp_path, OTHER)
    assert read_card(tmp_path / "card.json") == CARD
    assert names_in(tmp_path) == {"card.json", "card.md"}


def test_every_file_is_on_disk_before_it_gets_its_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, rename = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        steps.append("sync")
        sync(descriptor)

    def note_rename(source: pathlib.Path, target: pathlib.Path) -> None:
        steps.append(target.name)
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_rename)
    write_card(tmp_path, CARD)
    assert steps == ["sync", "sync", "card.json", "card.md", "sync"]


@pytest.mark.parametrize("text", ["", "{}", '{"verdict": NaN}', "[1]", '{"a": 1, "a": 2}'])
def test_a_file_that_is_no_card_is_refused(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "card.json").write_text(text)
    with pytest.raises(DataError, match=r"card\.json cannot be read"):
        read_card(tmp_path / "card.json")


def test_half_a_card_is_refused(tmp_path: pathlib.Path) -> None:
    write_card(tmp_path, CARD)
    path = tmp_path / "card.json"
    path.write_text(path.read_text()[:500])
    with pytest.raises(DataError, match="not JSON"):
        read_card(path)


def test_bytes_that_are_no_text_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "card.json").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="cannot be read"):
        read_card(tmp_path / "card.json")


def test_a_missing_card_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DataError, match=r"card\.json does not exist"):
        read_card(tmp_path / "card.json")
