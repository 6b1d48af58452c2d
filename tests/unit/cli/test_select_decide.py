"""`tulle select decide`: what a user sees, also when something is wrong."""

import json
from pathlib import Path

import polars as pl
import pytest

from tulle.accounting.ledger import Ledger
from tulle.cli.main import run_with
from unit.cli.select_files import facts_of, fill_folder, select, write_settings
from unit.select.decisions.auction_tables import server_winners, with_text_ids, write_table

DECIDE = "decide selection.toml auctions.parquet --quiet --out"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame:
    return fill_folder(tmp_path, monkeypatch)


def test_choices_come_with_record_and_card(
    table: pl.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    assert select(f"{DECIDE} choices.parquet --json") == 0
    facts = facts_of(capsys)
    winners = server_winners(table, 0.02)
    choices = pl.read_parquet("choices.parquet")
    assert facts["auctions"] == choices.height == len(winners)
    assert 0 < facts["personalised"] < facts["auctions"]
    assert facts["guarantee"].startswith("epsilon=1 ")
    assert facts["verdict"].startswith("Private release: epsilon=1, delta=0")
    assert facts["stored_before"] is False
    card = json.loads(Path("choices.card.json").read_text())
    assert card["is_private"]
    assert Path("choices.card.md").exists()
    assert json.loads(Path("choices.release.json").read_text())["table"] == "choices.parquet"


@pytest.mark.usefixtures("table")
def test_a_seed_repeats_choices_and_is_no_private_release(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("a", "b"):
        assert select(f"{DECIDE} {name}.parquet --seed 7 --json") == 0
        assert facts_of(capsys)["verdict"].startswith("NOT A PRIVATE RELEASE")
    assert Path("a.parquet").read_bytes() == Path("b.parquet").read_bytes()
    assert not json.loads(Path("a.card.json").read_text())["is_private"]


@pytest.mark.usefixtures("table")
def test_entropy_does_not_repeat_choices() -> None:
    for name in ("a", "b"):
        assert select(f"{DECIDE} {name}.parquet") == 0
    assert not pl.read_parquet("a.parquet").equals(pl.read_parquet("b.parquet"))


@pytest.mark.usefixtures("table")
def test_the_same_command_spends_once_and_again_pays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    paid = f"{DECIDE} choices.parquet --ledger ledger.db --purpose ads"
    assert select(paid) == 0
    content = Path("choices.parquet").read_bytes()
    capsys.readouterr()
    assert select(paid) == 0
    shown = capsys.readouterr()
    assert "nothing was spent: the stored choices were returned" in shown.err
    assert "stored before   True" in shown.out
    assert Path("choices.parquet").read_bytes() == content
    assert len(ledger.spends("all")) == 1
    assert [spend.request.purpose for spend in ledger.spends("all")] == ["ads"]
    # The budget has nothing left for a second one.
    assert select(f"{DECIDE} second.parquet --ledger ledger.db --again") == 3
    assert "epsilon" in capsys.readouterr().err
    assert len(ledger.spends("all")) == 1
    assert not list(tmp_path.glob("*second*"))


@pytest.mark.usefixtures("table")
def test_a_budget_of_another_adjacency_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ledger.db").unlink()
    create = "create ledger.db --name all --unit impression --adjacency add-remove --epsilon 9"
    assert run_with(["budget", *create.split(), "--delta", "0"]) == 0
    assert select(f"{DECIDE} choices.parquet --ledger ledger.db") == 2
    assert "protects under replace" in capsys.readouterr().err
    assert not Path("choices.parquet").exists()


def test_shuffled_counts_leave_as_counts(
    table: pl.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    write_settings(
        Path("selection.toml"),
        mechanism="num_finalists = 2",
        privacy="min_cell_size = 3\ndelta = 1e-6",
        rule="posted",
    )
    assert select(f"{DECIDE} counts.jsonl --json") == 0
    facts = facts_of(capsys)
    counts = pl.read_ndjson("counts.jsonl")
    assert counts.columns == ["cell", "ad", "impressions"]
    assert counts["impressions"].sum() == facts["auctions"] == len(server_winners(table, 0.02))


def test_text_ids_and_json_lines_go_through(table: pl.DataFrame) -> None:
    write_table(with_text_ids(table), Path("auctions.jsonl"))
    assert select("decide selection.toml auctions.jsonl --quiet --out choices.jsonl") == 0
    choices = pl.read_ndjson("choices.jsonl")
    assert choices["ad"].str.starts_with("shop ").all()
    assert choices["auction_id"].str.starts_with("q").all()


def test_columns_can_be_named(table: pl.DataFrame) -> None:
    names = {"auction_id": "a", "ad": "b", "bid": "c", "p_server": "d", "p_device": "e"}
    write_table(table.rename(names | {"consent": "yes"}), Path("other.parquet"))
    options = (
        "--auction-column a --ad-column b --bid-column c --server-column d --device-column e "
        "--consent-column yes --seed 3"
    )
    command = "decide selection.toml other.parquet --quiet --out other_choices.parquet"
    assert select(f"{command} {options}") == 0
    assert select(f"{DECIDE} choices.parquet --seed 3") == 0
    assert pl.read_parquet("other_choices.parquet").equals(pl.read_parquet("choices.parquet"))


def test_nobody_personalised_is_said(
    table: pl.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(table.with_columns(consent=pl.lit(value=False)), Path("auctions.parquet"))
    assert select(f"{DECIDE} choices.parquet") == 0
    assert "no decision was personalised" in capsys.readouterr().err
    assert dict(pl.read_parquet("choices.parquet").rows()) == server_winners(table, 0.02)


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        ("none.toml auctions.parquet --out c.parquet", 4, "none.toml does not exist"),
        ("selection.toml none.parquet --out c.parquet", 4, "none.parquet"),
        ("selection.toml auctions.parquet --out c.txt", 2, "does not say how to write rows"),
        ("selection.toml auctions.parquet --out x/c.parquet", 2, "in no folder that exists"),
        ("selection.toml auctions.parquet --out auctions.parquet", 2, "a file that is read"),
        ("selection.toml auctions.parquet --out c.parquet --bid-column bit", 4, "'bit'"),
        (
            "selection.toml auctions.parquet --out c.parquet --consent-column agreed",
            4,
            "'agreed'",
        ),
        ("selection.toml auctions.parquet --out c.parquet --purpose x", 2, "give --ledger too"),
        ("selection.toml auctions.parquet --out c.parquet --again", 2, "--again is for a ledger"),
        ("selection.toml auctions.parquet --out c.parquet --ledger no.db", 4, "no.db"),
        ("selection.toml auctions.parquet --out c.parquet --ad-column bid", 2, "bid"),
    ],
)
@pytest.mark.usefixtures("table")
def test_mistakes_are_explained(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: str,
    code: int,
    problem: str,
) -> None:
    before = sorted(tmp_path.iterdir())
    assert select(f"decide {options} --quiet") == code, capsys.readouterr().err
    shown = capsys.readouterr()
    assert problem in shown.err
    assert shown.out == ""
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("column", "way_out"), [("consent", "--consent-column"), ("p_device", "p_device")]
)
def test_missing_columns_are_explained(
    table: pl.DataFrame, capsys: pytest.CaptureFixture[str], column: str, way_out: str
) -> None:
    write_table(table.drop(column), Path("auctions.parquet"))
    assert select(f"{DECIDE} choices.parquet") == 4
    shown = capsys.readouterr().err
    assert way_out in shown
    assert f"no column '{column}'" in shown


def test_messages_show_no_private_value(
    table: pl.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(table.with_columns(p_device=pl.lit(1.234567)), Path("auctions.parquet"))
    assert select(f"{DECIDE} choices.parquet") == 4
    assert "1.23" not in capsys.readouterr().err
