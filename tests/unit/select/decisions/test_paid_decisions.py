"""A ledger pays once for the decisions of a file, before the first draw."""

from pathlib import Path

import polars as pl
import pytest

from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.accounting.refusal import SpendRefusedError
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.mechanisms.entropy import SeededNoise, Words
from tulle.privacy import events
from tulle.privacy.units import Adjacency, Unit
from tulle.runs.charging import ReleaseCharge
from tulle.runs.release_once import ReleaseOptions
from tulle.select.decisions.draws import decide
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.selection_config import Consent, Pricing
from unit.select.decisions.auction_tables import (
    COLUMNS,
    auction_table,
    by_user,
    decide_seeded,
    make_ledger,
    selection,
    write_table,
)


@pytest.fixture
def auctions(tmp_path: Path) -> Path:
    return write_table(auction_table(60, seed=1), tmp_path / "auctions.parquet")


def charge(ledger: Ledger) -> ReleaseCharge:
    return ReleaseCharge(ledger=ledger, purpose="select")


def test_the_same_decisions_are_stored_and_cost_nothing(tmp_path: Path, auctions: Path) -> None:
    ledger = make_ledger(tmp_path)
    out = tmp_path / "choices.parquet"
    first = decide_seeded(selection(), auctions, out, charge=charge(ledger))
    content = out.read_bytes()
    again = decide_seeded(selection(), auctions, out, charge=charge(ledger))
    assert (first.is_stored, again.is_stored) == (False, True)
    assert out.read_bytes() == content
    assert again.record == first.record
    (spend,) = ledger.spends("all")
    assert spend.status is SpendStatus.RELEASED
    assert spend.request.event == events.RandomizedResponse(epsilon=1.0, num_values=2)


def test_a_copy_under_another_name_is_the_same_draw(tmp_path: Path, auctions: Path) -> None:
    ledger = make_ledger(tmp_path)
    first, second = (tmp_path / f"{name}.parquet" for name in "ab")
    decide_seeded(selection(), auctions, first, charge=charge(ledger))
    # Another seed is another plan; the same one shows that nothing was drawn.
    result = decide_seeded(selection(), auctions, second, charge=charge(ledger))
    assert result.is_stored
    assert result.record.table == "b.parquet"
    assert first.read_bytes() == second.read_bytes()


def test_a_copy_is_not_given_the_name_of_another_form(tmp_path: Path, auctions: Path) -> None:
    ledger = make_ledger(tmp_path)
    decide_seeded(selection(), auctions, tmp_path / "a.parquet", charge=charge(ledger))
    with pytest.raises(RunStateError, match=r"ends in \.parquet, not \.jsonl"):
        decide_seeded(selection(), auctions, tmp_path / "b.jsonl", charge=charge(ledger))
    assert not (tmp_path / "b.jsonl").exists()


def test_a_second_draw_is_paid(tmp_path: Path, auctions: Path) -> None:
    ledger = make_ledger(tmp_path, epsilon=2.0)
    for place, again in enumerate((False, True)):
        out = tmp_path / f"choices{place}.parquet"
        result = decide_seeded(selection(), auctions, out, charge=charge(ledger), again=again)
        assert not result.is_stored
    assert len(ledger.spends("all")) == 2
    with pytest.raises(SpendRefusedError):
        decide_seeded(
            selection(), auctions, tmp_path / "c.parquet", charge=charge(ledger), again=True
        )
    assert len(ledger.spends("all")) == 2
    assert not list(tmp_path.glob("*c.*"))


def test_a_budget_that_is_too_small_pays_nothing(tmp_path: Path, auctions: Path) -> None:
    ledger = make_ledger(tmp_path, epsilon=0.9)
    with pytest.raises(SpendRefusedError, match="epsilon"):
        decide_seeded(selection(), auctions, tmp_path / "choices.parquet", charge=charge(ledger))
    assert ledger.spends("all") == ()
    assert not list(tmp_path.glob("*choices*"))


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_OR_REMOVE, Adjacency.ZERO_OUT])
def test_a_budget_under_another_adjacency_is_refused(
    tmp_path: Path, auctions: Path, adjacency: Adjacency
) -> None:
    ledger = make_ledger(tmp_path, adjacency=adjacency, epsilon=10.0)
    with pytest.raises(ConfigError, match="protects under replace"):
        decide_seeded(selection(), auctions, tmp_path / "choices.parquet", charge=charge(ledger))
    assert ledger.spends("all") == ()


def test_a_budget_of_users_is_charged_for_all_their_decisions(
    tmp_path: Path, auctions: Path
) -> None:
    ledger = make_ledger(tmp_path, unit=Unit.user(), epsilon=3.0)
    config = by_user(3)
    decide_seeded(config, auctions, tmp_path / "choices.parquet", charge=charge(ledger))
    (spend,) = ledger.spends("all")
    response = events.RandomizedResponse(epsilon=1.0, num_values=2)
    assert spend.request.event == events.Repeated(event=response, count=3)
    # Nothing is left for one more decision.
    with pytest.raises(SpendRefusedError):
        decide_seeded(by_user(1), auctions, tmp_path / "more.parquet", charge=charge(ledger))


def test_decisions_by_impression_are_not_charged_to_users(tmp_path: Path, auctions: Path) -> None:
    ledger = make_ledger(tmp_path, unit=Unit.user(), epsilon=100.0)
    with pytest.raises((ConfigError, SpendRefusedError), match="unit"):
        decide_seeded(selection(), auctions, tmp_path / "choices.parquet", charge=charge(ledger))
    assert ledger.spends("all") == ()


def test_a_shuffle_is_charged_as_one(tmp_path: Path, auctions: Path) -> None:
    ledger = make_ledger(tmp_path, delta=1e-6)
    config = selection(min_cell_size=20, pricing=Pricing(rule="posted"), delta=1e-6)
    decide_seeded(config, auctions, tmp_path / "counts.parquet", charge=charge(ledger))
    (spend,) = ledger.spends("all")
    assert isinstance(spend.request.event, events.Shuffled)
    assert spend.request.event.num_reports == 20


def test_data_that_cannot_be_used_cost_nothing(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    table = auction_table(60, seed=1)
    is_last = pl.int_range(pl.len()) == table.height - 1
    broken = table.with_columns(p_device=pl.when(is_last).then(2.0).otherwise("p_device"))
    path = write_table(broken, tmp_path / "auctions.parquet")
    with pytest.raises(DataError, match="probability"):
        decide_seeded(selection(), path, tmp_path / "choices.parquet", charge=charge(ledger))
    assert ledger.spends("all") == ()


class WatchedNoise(SeededNoise):
    """Says what the ledger knew when the first word was drawn."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(1)
        self._ledger = ledger
        self.spends_at_first_draw: int | None = None

    def words(self, num_words: int) -> Words:
        if self.spends_at_first_draw is None:
            self.spends_at_first_draw = len(self._ledger.spends("all"))
        return super().words(num_words)


def test_the_ledger_is_charged_before_the_first_draw(tmp_path: Path, auctions: Path) -> None:
    ledger = make_ledger(tmp_path)
    rng = WatchedNoise(ledger)
    options = ReleaseOptions(charge=charge(ledger))
    out = tmp_path / "choices.parquet"
    decide(selection(), auctions, out, columns=COLUMNS, rng=rng, options=options)
    assert rng.spends_at_first_draw == 1


def test_a_changed_file_or_selection_is_another_release(tmp_path: Path, auctions: Path) -> None:
    ledger = make_ledger(tmp_path, epsilon=10.0)
    configs = [selection(), selection(mechanism=FloorMechanism(epsilon=1.5))]
    for place, config in enumerate(configs):
        out = tmp_path / f"a{place}.parquet"
        assert not decide_seeded(config, auctions, out, charge=charge(ledger)).is_stored
    write_table(auction_table(60, seed=2), auctions)
    out = tmp_path / "c.parquet"
    assert not decide_seeded(selection(), auctions, out, charge=charge(ledger)).is_stored
    assert len(ledger.spends("all")) == 3


def test_another_column_of_consent_is_another_release(tmp_path: Path) -> None:
    table = auction_table(60, seed=1, has_refusals=True)
    path = write_table(table.with_columns(later=pl.lit(value=True)), tmp_path / "auctions.parquet")
    ledger = make_ledger(tmp_path, epsilon=2.0)
    for name in ("consent", "later"):
        result = decide(
            selection(consent=Consent.COLUMN),
            path,
            tmp_path / f"{name}.parquet",
            columns=AuctionColumns(consent=name),
            rng=SeededNoise(1),
            options=ReleaseOptions(charge=charge(ledger)),
        )
        assert not result.is_stored
    assert len(ledger.spends("all")) == 2


def test_stored_decisions_that_are_gone_are_not_drawn_anew(tmp_path: Path, auctions: Path) -> None:
    ledger = make_ledger(tmp_path)
    out = tmp_path / "choices.parquet"
    decide_seeded(selection(), auctions, out, charge=charge(ledger))
    out.unlink()
    with pytest.raises(RunStateError, match="gone or changed"):
        decide_seeded(selection(), auctions, out, charge=charge(ledger))
    assert len(ledger.spends("all")) == 1
