"""Look, pay, draw, write, mark, put in place: in this order, once."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tulle.accounting.accountant import guarantee
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger, OpenSpend
from tulle.accounting.ledger_rows import SpendStatus
from tulle.accounting.refusal import SpendRefusedError
from tulle.data.source_files import content_sha256
from tulle.errors import DataError, RunStateError
from tulle.privacy.events import RandomizedResponse
from tulle.privacy.plan import ColumnRoles, Plan
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit
from tulle.runs.charging import ReleaseCharge, ReleaseKind
from tulle.runs.record import Record, TableRecord
from tulle.runs.release_files import ReleaseFiles
from tulle.runs.release_once import OneRelease, ReleaseOptions, release_once

KIND = ReleaseKind(name="draw", key_ending="draw-key", adjacency=Adjacency.REPLACE)


def make_plan(name: str = "draws") -> Plan:
    event = RandomizedResponse(epsilon=1.0, num_values=2)
    return Plan(
        name=name,
        mechanism="drawn.",
        settings={},
        event=event,
        guarantee=guarantee(
            event,
            delta=0.0,
            unit=Unit.example(),
            adjacency=Adjacency.REPLACE,
            scope=Scope.SENSITIVE_COLUMNS,
        ),
        trust=TrustModel.CENTRAL,
        columns=ColumnRoles(label=None, public=("a",), sensitive=("b",)),
        bounds=(),
        assumptions=(),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DrawRecord(TableRecord):
    formats: ClassVar[tuple[str, ...]] = ("draw 1",)
    keys: ClassVar[tuple[str, ...]] = (
        *("format", "plan", "number", "columns", "table", "table_sha256", "randomness"),
    )
    number: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class WholeRecord(Record):
    """Holds what is released itself."""

    formats: ClassVar[tuple[str, ...]] = ("whole 1",)
    keys: ClassVar[tuple[str, ...]] = ("format", "plan", "number", "randomness")
    number: int


class Draw:
    """Writes how often it has drawn, and keeps what happened in which order."""

    def __init__(self, ledger: Ledger | None, *, fails_at: str = "") -> None:
        self._ledger, self.fails_at = ledger, fails_at
        self.num_draws = 0
        self.steps: list[tuple[str, int]] = []
        self.data = b"data"
        self.plan = make_plan()

    def check(self) -> None:
        self._note("check")

    def digest(self) -> bytes:
        return self.data

    def write(self, files: ReleaseFiles[DrawRecord]) -> DrawRecord:
        self._note("write")
        self.num_draws += 1
        files.hidden_table.write_text(f"draw {self.num_draws}")
        sha256 = content_sha256(files.hidden_table)
        record = DrawRecord(
            plan=self.plan,
            randomness="dice",
            is_secure=True,
            number=self.num_draws,
            columns={},
            table=files.table.name,
            table_sha256=sha256,
        )
        files.hide_record(record)
        self._note("written")
        return record

    def fail(self) -> None:
        raise DataError("killed")

    def _note(self, step: str) -> None:
        spent = 0 if self._ledger is None else len(self._ledger.spends("all"))
        self.steps.append((step, spent))
        if step == self.fails_at:
            raise DataError(f"no {step}")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "ledger.db")
    made.create_budget(
        Budget(name="all", unit=Unit.example(), adjacency=Adjacency.REPLACE, epsilon=2.0, delta=0.0)
    )
    return made


def one(out: Path, ledger: Ledger | None = None, **changes: Any) -> OneRelease[DrawRecord]:
    charge = None if ledger is None else ReleaseCharge(ledger=ledger, purpose="x")
    given: dict[str, Any] = {
        "plan": make_plan(),
        "kind": KIND,
        "out": out,
        "record_type": DrawRecord,
        "options": ReleaseOptions(charge=charge, again=changes.pop("again", False)),
    }
    return OneRelease(**given | changes)


def visible(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith("ledger"))


def test_data_are_looked_at_before_and_drawn_after_the_payment(
    tmp_path: Path, ledger: Ledger
) -> None:
    draw = Draw(ledger)
    released = release_once(one(tmp_path / "t.csv", ledger), draw)
    record, is_stored = released.record, released.is_stored
    assert draw.steps == [("check", 0), ("write", 1), ("written", 1)]
    assert not is_stored
    assert record.number == 1
    assert (tmp_path / "t.csv").read_text() == "draw 1"
    assert visible(tmp_path) == ["t.csv", "t.release.json"]
    assert [spend.status for spend in ledger.spends("all")] == [SpendStatus.RELEASED]


def test_a_repeated_command_finds_the_first_table(tmp_path: Path, ledger: Ledger) -> None:
    draw = Draw(ledger)
    for place, (name, expected) in enumerate([("t.csv", False), ("t.csv", True), ("u.csv", True)]):
        released = release_once(one(tmp_path / name, ledger), draw)
        record, is_stored = released.record, released.is_stored
        assert (is_stored, record.number, record.table) == (expected, 1, name), place
    assert draw.num_draws == 1
    assert (tmp_path / "u.csv").read_text() == "draw 1"
    assert len(ledger.spends("all")) == 1


def test_a_payment_that_is_asked_for_again_draws_again(tmp_path: Path, ledger: Ledger) -> None:
    draw = Draw(ledger)
    release_once(one(tmp_path / "t.csv", ledger), draw)
    released = release_once(one(tmp_path / "u.csv", ledger, again=True), draw)
    record, is_stored = released.record, released.is_stored
    assert (is_stored, record.number) == (False, 2)
    assert len(ledger.spends("all")) == 2
    # From now on the later one is the stored one.
    record = release_once(one(tmp_path / "u.csv", ledger), draw).record
    assert record.number == 2


@pytest.mark.parametrize(("step", "num_spends"), [("check", 0), ("write", 1), ("written", 1)])
def test_a_draw_that_fails_leaves_nothing_and_is_not_paid_twice(
    tmp_path: Path, ledger: Ledger, step: str, num_spends: int
) -> None:
    draw = Draw(ledger, fails_at=step)
    with pytest.raises(DataError, match=f"no {step}"):
        release_once(one(tmp_path / "t.csv", ledger), draw)
    assert visible(tmp_path) == []
    assert [s.status for s in ledger.spends("all")] == [SpendStatus.OPEN] * num_spends
    draw.fails_at = ""
    release_once(one(tmp_path / "t.csv", ledger), draw)
    assert [s.status for s in ledger.spends("all")] == [SpendStatus.RELEASED]


def seen_when_marked(folder: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What lies under its name at the moment at which the ledger says that it is out."""
    mark = OpenSpend.mark_released
    seen: list[str] = []

    def watched(spend: OpenSpend, **options: Any) -> None:
        seen.extend(name for name in visible(folder) if not name.startswith("."))
        mark(spend, **options)

    with monkeypatch.context() as patch:
        patch.setattr(OpenSpend, "mark_released", watched)
        release_once(one(folder / "t.csv", ledger), Draw(ledger))
    return seen


def test_nothing_has_its_name_before_the_ledger_says_that_it_is_out(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seen_when_marked(tmp_path, ledger, monkeypatch) == []


def test_a_table_that_is_put_in_place_too_early_would_be_seen(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide = ReleaseFiles.hide_record

    def eager(files: ReleaseFiles[DrawRecord], record: DrawRecord) -> None:
        hide(files, record)
        files.table.write_text(files.hidden_table.read_text())

    monkeypatch.setattr(ReleaseFiles, "hide_record", eager)
    with pytest.raises(RunStateError):
        seen_when_marked(tmp_path, ledger, monkeypatch)
    assert (tmp_path / "t.csv").exists()


def test_a_draw_before_the_payment_would_be_seen(tmp_path: Path, ledger: Ledger) -> None:
    draw = Draw(ledger)
    release = one(tmp_path / "t.csv", ledger)
    draw.check()
    draw.write(release.files(release.out, "tag"))
    assert draw.steps == [("check", 0), ("write", 0), ("written", 0)]


def test_a_refused_payment_draws_nothing(tmp_path: Path, ledger: Ledger) -> None:
    draw = Draw(ledger)
    for place in range(2):
        release_once(one(tmp_path / f"{place}.csv", ledger, again=True), draw)
    draw.steps.clear()
    with pytest.raises(SpendRefusedError):
        release_once(one(tmp_path / "t.csv", ledger, again=True), draw)
    assert draw.steps == []
    assert not (tmp_path / "t.csv").exists()


@pytest.mark.parametrize("change", ["plan", "data"])
def test_another_plan_or_other_data_are_another_release(
    tmp_path: Path, ledger: Ledger, change: str
) -> None:
    draw = Draw(ledger)
    release_once(one(tmp_path / "t.csv", ledger), draw)
    other = one(tmp_path / "u.csv", ledger)
    if change == "plan":
        draw.plan = make_plan("others")
        other = dataclasses.replace(other, plan=draw.plan)
    else:
        draw.data = b"other data"
    is_stored = release_once(other, draw).is_stored
    assert not is_stored
    assert len(ledger.spends("all")) == 2


def test_a_stored_table_that_was_changed_is_not_returned(tmp_path: Path, ledger: Ledger) -> None:
    draw = Draw(ledger)
    release_once(one(tmp_path / "t.csv", ledger), draw)
    (tmp_path / "t.csv").write_text("forged")
    with pytest.raises(RunStateError, match="gone or changed"):
        release_once(one(tmp_path / "t.csv", ledger), draw)
    assert draw.num_draws == 1


def test_a_record_of_another_plan_is_not_returned(tmp_path: Path, ledger: Ledger) -> None:
    draw = Draw(ledger)
    record = release_once(one(tmp_path / "t.csv", ledger), draw).record
    forged = dataclasses.replace(record, plan=make_plan("others"))
    (tmp_path / "t.release.json").write_text(forged.to_json())
    with pytest.raises(RunStateError, match="gone or changed"):
        release_once(one(tmp_path / "t.csv", ledger), draw)
    assert draw.num_draws == 1


def test_a_copy_keeps_the_form_of_the_table(tmp_path: Path, ledger: Ledger) -> None:
    draw = Draw(ledger)
    release_once(one(tmp_path / "t.csv", ledger), draw)
    with pytest.raises(RunStateError, match=r"ends in \.csv, not \.jsonl"):
        release_once(one(tmp_path / "u.jsonl", ledger), draw)
    assert visible(tmp_path) == ["t.csv", "t.release.json"]


@pytest.mark.parametrize("name", ["t.csv", "t.release.json"])
@pytest.mark.parametrize("has_ledger", [False, True])
def test_a_name_that_is_taken_is_refused_before_anything(
    tmp_path: Path, ledger: Ledger, name: str, has_ledger: bool
) -> None:
    (tmp_path / name).write_text("mine")
    draw = Draw(ledger)
    with pytest.raises(RunStateError, match=f"{name} exists and is not this release"):
        release_once(one(tmp_path / "t.csv", ledger if has_ledger else None), draw)
    assert draw.steps == []
    assert (tmp_path / name).read_text() == "mine"
    assert ledger.spends("all") == ()


def test_without_a_ledger_every_command_draws(tmp_path: Path) -> None:
    draw = Draw(None)
    (tmp_path / ".t.csv.0123456789abcdef.unreleased").write_text("left by a killed try")
    for name in ("t.csv", "u.csv"):
        is_stored = release_once(one(tmp_path / name), draw).is_stored
        assert not is_stored
    assert draw.num_draws == 2
    assert visible(tmp_path) == ["t.csv", "t.release.json", "u.csv", "u.release.json"]


@pytest.mark.parametrize("step", ["check", "write", "written"])
def test_without_a_ledger_a_failure_leaves_nothing(tmp_path: Path, step: str) -> None:
    with pytest.raises(DataError, match=f"no {step}"):
        release_once(one(tmp_path / "t.csv"), Draw(None, fails_at=step))
    assert visible(tmp_path) == []


class WholeDraw(Draw):
    """Releases its record alone."""

    def write(self, files: ReleaseFiles[WholeRecord]) -> WholeRecord:
        self._note("write")
        self.num_draws += 1
        record = WholeRecord(
            plan=self.plan, randomness="dice", is_secure=True, number=self.num_draws
        )
        files.hide_record(record)
        self._note("written")
        return record


def whole(out: Path, ledger: Ledger | None, **changes: Any) -> OneRelease[WholeRecord]:
    return one(out, ledger, record_type=WholeRecord, **changes)


def test_a_record_that_is_released_itself_goes_the_same_way(tmp_path: Path, ledger: Ledger) -> None:
    draw = WholeDraw(ledger)
    first = release_once(whole(tmp_path / "a.json", ledger), draw)
    assert draw.steps == [("check", 0), ("write", 1), ("written", 1)]
    assert visible(tmp_path) == ["a.json"]
    for name in ("a.json", "b.json"):
        found = release_once(whole(tmp_path / name, ledger), draw)
        assert (found.is_stored, found.record) == (True, first.record)
    assert (tmp_path / "b.json").read_bytes() == (tmp_path / "a.json").read_bytes()
    assert draw.num_draws == len(ledger.spends("all")) == 1
    (tmp_path / "a.json").write_text(first.record.to_json() + " ")
    (tmp_path / "b.json").unlink()
    with pytest.raises(RunStateError, match="gone or changed"):
        release_once(whole(tmp_path / "a.json", ledger), draw)
    with pytest.raises(RunStateError, match=r"a\.json exists and is not this release"):
        release_once(whole(tmp_path / "a.json", ledger, again=True), draw)


def test_a_draw_that_is_marked_is_not_lost_to_another_for_the_same_name(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another release to the same output must leave hidden files alone that are paid and out."""
    draw = WholeDraw(ledger)
    with monkeypatch.context() as patch:
        patch.setattr(ReleaseFiles, "put_in_place", lambda _: draw.fail())
        with pytest.raises(DataError, match="killed"):
            release_once(whole(tmp_path / "a.json", ledger), draw)
    other = WholeDraw(ledger)
    other.data = b"other data"
    release_once(whole(tmp_path / "a.json", ledger), other)
    (tmp_path / "a.json").rename(tmp_path / "other.json")
    found = release_once(whole(tmp_path / "a.json", ledger), draw)
    assert found.is_stored
    assert len(ledger.spends("all")) == 2
