"""One payment, one draw, one table, whatever happens in between."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.accounting.refusal import SpendRefusedError
from tulle.data.schema import Schema
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.labels import noisy_table
from tulle.labels.label_noise import (
    RowNoise,
)
from tulle.labels.label_release import ReleaseRecord, release_labels
from tulle.labels.mechanisms.class_response import BinaryResponse
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.privacy.units import Unit
from tulle.runs.charging import ReleaseCharge
from tulle.runs.release_files import ReleaseFiles, read_record
from tulle.runs.release_once import ReleaseOptions
from unit.labels.label_files import (
    ROWS,
    clicks_table,
    ledger_with,
    raising,
    release,
    statuses,
    write_clicks,
)


def test_public_columns_stay_and_the_label_is_gone(clicks: Path, tmp_path: Path) -> None:
    result = release(clicks, tmp_path / "noisy.parquet", None)
    raw, noisy = pl.read_parquet(clicks), pl.read_parquet(result.path)
    assert noisy.select("campaign", "advertiser", "user", "second").equals(
        raw.select("campaign", "advertiser", "user", "second")
    )
    assert "sale" not in noisy.columns
    assert set(read_record(result.path, ReleaseRecord.from_json).columns) <= set(noisy.columns)
    assert result.record.num_rows == raw.height


def test_reports_and_targets_follow_the_stated_channel(tmp_path: Path) -> None:
    write_clicks(tmp_path / "many.parquet", num_rows=60_000)
    result = release_labels(
        clicks_table(tmp_path / "many.parquet"),
        ROWS,
        tmp_path / "noisy.parquet",
        rng=SeededNoise(5),
    )
    raw = pl.read_parquet(tmp_path / "many.parquet")["sale"].to_numpy()
    noisy = pl.read_parquet(result.path)
    reports = noisy["noisy_label"].to_numpy()
    for label, column in ((0, "prob_if_negative"), (1, "prob_if_positive")):
        chance = noisy[column][0]
        found = reports[raw == label].mean()
        assert abs(found - chance) < 6.2 * np.sqrt(chance * (1 - chance) / np.sum(raw == label))
        # The same sample must refuse 5% less epsilon.
        flip = 1 / (1 + np.exp(0.95))
        wrong = 1 - flip if label else flip
        assert abs(found - wrong) > abs(found - chance)
    targets = noisy["target"].to_numpy()
    gain = noisy["prob_if_positive"][0] - noisy["prob_if_negative"][0]
    assert np.allclose(targets, (reports - noisy["prob_if_negative"][0]) / gain)
    assert not result.record.is_secure


def test_the_same_command_returns_the_stored_table(
    clicks: Path, tmp_path: Path, ledger: Ledger
) -> None:
    first = release(clicks, tmp_path / "noisy.parquet", ledger)
    content = first.path.read_bytes()
    second = release(clicks, tmp_path / "noisy.parquet", ledger)
    assert (first.is_stored, second.is_stored) == (False, True)
    assert second.path.read_bytes() == content
    elsewhere = release(clicks, tmp_path / "copy.parquet", ledger)
    assert elsewhere.path.read_bytes() == content
    assert statuses(ledger) == [SpendStatus.RELEASED]


def test_a_second_release_without_budget_is_refused_and_writes_nothing(
    clicks: Path, tmp_path: Path, ledger: Ledger
) -> None:
    release(clicks, tmp_path / "noisy.parquet", ledger)
    other = RowNoise(mechanism=BinaryResponse(epsilon=0.9))
    with pytest.raises(SpendRefusedError, match=r"needs epsilon=0\.9"):
        release(clicks, tmp_path / "other.parquet", ledger, noise=other)
    with pytest.raises(SpendRefusedError):
        release(clicks, tmp_path / "other.parquet", ledger, again=True)
    assert not (tmp_path / "other.parquet").exists()
    assert statuses(ledger) == [SpendStatus.RELEASED]


def test_a_second_release_with_budget_is_paid_and_differs(clicks: Path, tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path / "rich.db", epsilon=2.0)
    first = release(clicks, tmp_path / "noisy.parquet", ledger)
    second = release(clicks, tmp_path / "again.parquet", ledger, again=True)
    assert statuses(ledger) == [SpendStatus.RELEASED] * 2
    reports = [pl.read_parquet(result.path)["noisy_label"] for result in (first, second)]
    assert not reports[0].equals(reports[1])


def test_a_changed_table_is_another_release(clicks: Path, tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path / "rich.db", epsilon=2.0)
    first = release(clicks, tmp_path / "noisy.parquet", ledger)
    write_clicks(clicks, seed=1)
    second = release(clicks, tmp_path / "other.parquet", ledger)
    assert not second.is_stored
    # Nothing in public tells whether two releases are of the same data.
    told = [result.record.to_json().encode() for result in (first, second)]
    notes = [spend.request.note.split()[2].encode() for spend in ledger.spends("all")]
    assert len(set(notes)) == 2
    assert not any(note in text for note in notes for text in told)


def test_a_lost_or_changed_release_is_not_drawn_anew(
    clicks: Path, tmp_path: Path, ledger: Ledger
) -> None:
    out = tmp_path / "noisy.parquet"
    release(clicks, out, ledger)
    content = out.read_bytes()
    out.write_bytes(content[:-1] + b"x")
    with pytest.raises(RunStateError, match="gone or changed"):
        release(clicks, out, ledger)
    out.unlink()
    with pytest.raises(RunStateError, match="--again"):
        release(clicks, tmp_path / "copy.parquet", ledger)
    out.write_bytes(content)
    assert release(clicks, out, ledger).is_stored


def test_a_try_that_failed_before_the_end_pays_for_the_next(
    clicks: Path, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "noisy.parquet"
    with monkeypatch.context() as patched:
        patched.setattr(noisy_table, "sink_tables", raising(OSError("no room")))
        with pytest.raises(RunStateError, match="cannot be written to: no room"):
            release(clicks, out, ledger)
    assert statuses(ledger) == [SpendStatus.OPEN]
    assert not out.exists()
    assert not list(tmp_path.glob(".*unreleased"))
    assert not release(clicks, out, ledger).is_stored
    assert statuses(ledger) == [SpendStatus.RELEASED]


def test_a_table_that_was_paid_and_not_put_in_place_is_found(
    clicks: Path, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "noisy.parquet"
    with monkeypatch.context() as patched:
        patched.setattr(ReleaseFiles, "put_in_place", die)
        with pytest.raises(KeyboardInterrupt):
            release(clicks, out, ledger)
    assert statuses(ledger) == [SpendStatus.RELEASED]
    (hidden,) = tmp_path.glob(".noisy.parquet.*.unreleased")
    staged = hidden.read_bytes()
    found = release(clicks, out, ledger)
    assert found.is_stored
    assert found.path.read_bytes() == staged


def test_wrong_labels_are_found_before_anything_is_spent(
    clicks: Path, tmp_path: Path, ledger: Ledger
) -> None:
    table = pl.read_parquet(clicks)
    labels = table["sale"].to_list()
    labels[999] = 2
    table.with_columns(sale=pl.Series(labels)).write_parquet(clicks)
    with pytest.raises(DataError):
        release(clicks, tmp_path / "noisy.parquet", ledger)
    assert statuses(ledger) == []
    assert not (tmp_path / "noisy.parquet").exists()


def test_two_processes_cannot_release_on_one_ledger_at_once(
    clicks: Path, tmp_path: Path, ledger: Ledger
) -> None:
    def nested(_rows: int) -> None:
        release(clicks, tmp_path / "inner.parquet", ledger)

    options = ReleaseOptions(charge=ReleaseCharge(ledger=ledger, purpose="labels"), watch=nested)
    with pytest.raises(RunStateError, match="another process makes a label release"):
        release_labels(
            clicks_table(clicks),
            ROWS,
            tmp_path / "outer.parquet",
            rng=release_rng(),
            options=options,
        )
    assert statuses(ledger) == [SpendStatus.OPEN]


def test_a_file_that_changes_while_it_is_read_is_refused(clicks: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    write_clicks(other, seed=3)

    def change(_rows: int) -> None:
        clicks.write_bytes(other.read_bytes())

    with pytest.raises(DataError):
        release_labels(
            clicks_table(clicks),
            ROWS,
            tmp_path / "noisy.parquet",
            rng=release_rng(),
            options=ReleaseOptions(watch=change),
        )
    assert not (tmp_path / "noisy.parquet").exists()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("noisy.csv", r"must end in \.parquet"),
        ("noisy.PARQUET", r"must end in \.parquet"),
        ("nowhere/noisy.parquet", "no folder that exists"),
        ("clicks.parquet", "a file that is read"),
        ("there.parquet", "exists and is not this release"),
    ],
)
def test_a_wrong_place_is_refused(clicks: Path, tmp_path: Path, out: str, message: str) -> None:
    (tmp_path / "there.parquet").write_bytes(b"")
    with pytest.raises((ConfigError, RunStateError), match=message):
        release(clicks, tmp_path / out, None)


def test_a_column_with_the_name_of_an_added_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "clicks.parquet"
    write_clicks(path).rename({"campaign": "target"}).write_parquet(path)
    table = clicks_table(path, schema=Schema(label="sale", public=("target",)))
    with pytest.raises(ConfigError, match="'target' has the name"):
        release_labels(table, ROWS, tmp_path / "noisy.parquet", rng=release_rng())


def test_an_add_or_remove_budget_is_refused(clicks: Path, tmp_path: Path) -> None:
    from tulle.accounting.budget import Budget
    from tulle.privacy.units import Adjacency

    ledger = Ledger.create(tmp_path / "ledger.db")
    budget = Budget(
        name="all",
        unit=Unit.example(),
        adjacency=Adjacency.ADD_OR_REMOVE,
        epsilon=9.0,
        delta=0.0,
    )
    ledger.create_budget(budget)
    with pytest.raises(ConfigError, match="adjacency replace"):
        release(clicks, tmp_path / "noisy.parquet", ledger)
