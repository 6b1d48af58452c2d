"""`tulle select plan`: what it compares, recommends and writes, and that it reads no device."""

from pathlib import Path

import polars as pl
import pytest

from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.settings import read_settings
from unit.cli.select_files import facts_of, fill_folder, select
from unit.select.decisions.auction_tables import write_table

PLAN = "plan auctions.parquet --private-stddev 0.6 --reserve 0.02"
OBJECTIVES = ("welfare", "click_rate", "revenue", "surplus")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame:
    return fill_folder(tmp_path, monkeypatch)


def test_predictions_of_devices_are_not_read(
    table: pl.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    assert select(f"{PLAN} --epsilon 1 --json") == 0
    expected = facts_of(capsys)
    for garbage in (table.with_columns(p_device=pl.lit("?")), table.drop("p_device")):
        write_table(garbage, Path("auctions.parquet"))
        assert select(f"{PLAN} --epsilon 1 --json") == 0
        assert facts_of(capsys) == expected
    assert expected["is_from_devices"] is False
    # What does read them is stopped by the same garbage.
    assert select("plan auctions.parquet --epsilon 1 --from-devices") == 4
    assert "p_device" in capsys.readouterr().err


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("source", ["--private-stddev 0.6", "--from-devices"])
@pytest.mark.usefixtures("table")
def test_what_is_recommended_is_never_worse_than_no_personalisation(
    capsys: pytest.CaptureFixture[str], objective: str, source: str
) -> None:
    options = f"--epsilon 0.2 --epsilon 3 --objective {objective} --json {source}"
    assert select(f"plan auctions.parquet {options}") == 0
    facts = facts_of(capsys)
    assert [best["for_epsilon"] for best in facts["recommended"]] == [0.2, 3.0]
    for best in facts["recommended"]:
        assert best[objective] >= facts["baseline"][objective] * (1 - 1e-12)
        assert best["epsilon"] <= best["for_epsilon"]
        affordable = [o for o in facts["options"] if o["epsilon"] <= best["for_epsilon"]]
        assert best[objective] == max(option[objective] for option in affordable)
    # Some options are worse, so the choice is no accident.
    assert any(o[objective] < facts["baseline"][objective] for o in facts["options"])


@pytest.mark.usefixtures("table")
def test_settings_that_are_written_decide(capsys: pytest.CaptureFixture[str]) -> None:
    options = (
        "--epsilon 2 --unit user --max-decisions-per-user 4 --delta 1e-6 "
        "--least-finalists 3 --out planned.toml --json"
    )
    assert select(f"{PLAN} {options}") == 0
    facts = facts_of(capsys)
    config = read_settings(Path("planned.toml"))
    assert Path("planned.toml").read_text() == facts["settings"]
    assert config.mechanism.name == facts["recommended"][-1]["mechanism"]
    assert config.privacy.max_decisions_per_user == 4
    assert config.privacy.least_finalists == 3
    assert config.pricing.reserve == 0.02
    assert facts["user_guarantee"].startswith("epsilon=")
    assert select("decide planned.toml auctions.parquet --quiet --out c.parquet --json") == 0
    assert facts_of(capsys)["guarantee"] == facts["user_guarantee"]
    assert select("bill planned.toml auctions.parquet c.parquet") == 0


def test_a_shuffled_plan_decides_too(
    table: pl.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(table.drop("consent"), Path("auctions.parquet"))
    options = (
        "--epsilon 1 --pricing posted --min-cell-size 4 --delta 1e-6 --consent everyone "
        "--out planned.toml --json"
    )
    assert select(f"{PLAN} {options}") == 0
    capsys.readouterr()
    assert select("decide planned.toml auctions.parquet --quiet --out c.parquet") == 0
    assert pl.read_parquet("c.parquet").columns == ["cell", "ad", "impressions"]


@pytest.mark.usefixtures("table")
def test_a_plan_from_devices_says_that_it_is_not_private(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert select("plan auctions.parquet --epsilon 2 --from-devices") == 0
    assert "predictions of devices: NOT PRIVATE" in capsys.readouterr().out
    assert select("plan auctions.parquet --epsilon 2 --from-devices --json") == 0
    assert facts_of(capsys)["is_from_devices"] is True
    assert select(f"{PLAN} --epsilon 2") == 0
    assert "NOT PRIVATE" not in capsys.readouterr().out


@pytest.mark.parametrize("source", ["--private-stddev 0.6", "--from-devices"])
@pytest.mark.usefixtures("table")
def test_baselines_are_compared_and_settings_stay_what_decisions_can_use(
    capsys: pytest.CaptureFixture[str], source: str
) -> None:
    command = f"plan auctions.parquet --epsilon 0.3 --baselines --out p.toml --json {source}"
    assert select(command) == 0
    facts = facts_of(capsys)
    names = " ".join(option["mechanism"] for option in facts["options"])
    assert all(noise in names for noise in ("gumbel", "exponential", "laplace"))
    assert "prior" in names
    mechanism = read_settings(Path("p.toml")).mechanism
    assert isinstance(mechanism, FloorMechanism)
    floors = [
        option
        for option in facts["options"]
        if option["mechanism"].startswith("randomized response,")
        and "prior," not in option["mechanism"]
    ]
    own = [option for option in floors if option["mechanism"] == mechanism.name]
    assert own[0]["welfare"] == max(option["welfare"] for option in floors)


@pytest.mark.usefixtures("table")
def test_the_plot_is_an_svg(capsys: pytest.CaptureFixture[str]) -> None:
    assert select(f"{PLAN} --epsilon 1 --plot captured.svg") == 0
    text = Path("captured.svg").read_text()
    assert text.lstrip().startswith(("<svg", "<?xml"))
    assert "captured share of the gain" in text
    shown = capsys.readouterr().out
    assert "best at epsilon 1: randomized response" in shown
    assert "selection           randomized response" in shown
    assert "not personalised" in shown
    assert "greedy, not private" in shown


@pytest.mark.usefixtures("table")
def test_what_advertisers_may_object_to_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert select("plan auctions.parquet --private-stddev 0.6 --epsilon 1 --json") == 0
    findings = facts_of(capsys)["incentives"]
    assert findings
    assert all(finding["text"] and finding["severity"] for finding in findings)


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        ("auctions.parquet --epsilon 1", 2, "give --private-stddev, e.g. 0.6, or"),
        ("auctions.parquet --epsilon 1 --private-stddev 0", 2, "--private-stddev 0.0"),
        ("auctions.parquet --epsilon -1 --private-stddev 1", 2, "--epsilon -1.0"),
        ("auctions.parquet --epsilon inf --private-stddev 1", 2, "--epsilon inf"),
        ("auctions.parquet --private-stddev 1", 2, "--epsilon"),
        ("none.parquet --epsilon 1 --private-stddev 1", 4, "none.parquet"),
        ("auctions.parquet --epsilon 1 --private-stddev 1 --plot a.png", 2, "end in .svg"),
        ("auctions.parquet --epsilon 1 --private-stddev 1 --out a.txt", 2, "end in .toml"),
        ("auctions.parquet --epsilon 1 --private-stddev 1 --out selection.toml", 4, "exists"),
        ("auctions.parquet --epsilon 1 --private-stddev 1 --objective profit", 2, "--objective"),
        ("auctions.parquet --epsilon 1 --private-stddev 1 --pricing free", 2, "or 'posted'"),
        ("auctions.parquet --epsilon 1 --private-stddev 1 --reserve 1e9", 4, "server score of"),
        ("auctions.parquet --epsilon 1 --private-stddev 1 --unit user", 2, "--max-decisions-per-u"),
        ("auctions.parquet --epsilon 1 --private-stddev 1 --unit session", 2, "session"),
        ("auctions.parquet --epsilon 1 --private-stddev 1 --min-cell-size 9", 2, "fingerprint"),
        ("auctions.parquet --epsilon 1 --private-stddev 1 --consent maybe", 2, "--consent"),
        ("auctions.parquet --epsilon 1 --private-stddev 1 --bid-column bit", 4, "'bit'"),
    ],
)
@pytest.mark.usefixtures("table")
def test_mistakes_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, code: int, problem: str
) -> None:
    before = sorted(tmp_path.iterdir())
    assert select(f"plan {options}") == code
    shown = capsys.readouterr()
    assert problem in shown.err
    assert shown.out == ""
    assert sorted(tmp_path.iterdir()) == before
