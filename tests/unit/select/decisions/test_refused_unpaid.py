"""What can be known to fail before a draw is refused before it is paid."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.accounting.ledger import Ledger
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.runs.charging import ReleaseCharge
from tulle.runs.release_once import ReleaseOptions
from tulle.select.decisions.bills import bill_file
from tulle.select.evaluation.evaluate_files import EvaluationFiles, evaluate_files
from tulle.select.evaluation.evaluation_plan import EvaluationConfig
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.noisy_max import NoisyMax, ScaledScores
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.shortlists import Cutoff, TopCandidates
from tulle.select.selection_config import Pricing
from unit.select.decisions.auction_tables import (
    COLUMNS,
    auction_table,
    decide_seeded,
    make_ledger,
    read_in_small_blocks,
    selection,
    server_winners,
    with_text_ids,
    write_table,
)


def charge(ledger: Ledger) -> ReleaseCharge:
    return ReleaseCharge(ledger=ledger, purpose="select")


def test_too_many_finalists_for_a_noisy_maximum_cost_nothing(tmp_path: Path) -> None:
    table = auction_table(1, seed=1, sizes=(1200, 1200), num_ads=1200)
    path = write_table(table, tmp_path / "auctions.parquet")
    ledger = make_ledger(tmp_path)
    mechanism = NoisyMax(epsilon=1.0, noise=NoiseKind.EXPONENTIAL, score_bound=ScaledScores())
    with pytest.raises(ConfigError, match="finalists"):
        decide_seeded(
            selection(mechanism=mechanism), path, tmp_path / "c.parquet", charge=charge(ledger)
        )
    assert ledger.spends("all") == ()


def test_an_unwritable_place_costs_nothing(tmp_path: Path) -> None:
    path = write_table(auction_table(5, seed=1), tmp_path / "auctions.parquet")
    ledger = make_ledger(tmp_path)
    out = tmp_path / f"{'x' * 230}.parquet"  # the hidden name is too long for a file
    with pytest.raises(RunStateError, match="cannot be written") as caught:
        decide_seeded(selection(), path, out, charge=charge(ledger))
    assert "unreleased" not in str(caught.value)
    assert ledger.spends("all") == ()


def test_a_reserve_that_nobody_reaches_costs_nothing(tmp_path: Path) -> None:
    path = write_table(auction_table(5, seed=1), tmp_path / "auctions.parquet")
    ledger = make_ledger(tmp_path)
    config = selection(pricing=Pricing(reserve=1e6))
    with pytest.raises(DataError, match="lower the reserve"):
        decide_seeded(config, path, tmp_path / "c.parquet", charge=charge(ledger))
    assert ledger.spends("all") == ()


def test_blocks_without_an_eligible_ad_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = with_text_ids(auction_table(40, seed=2))
    is_poor = pl.col("auction_id").is_in(table["auction_id"].unique(maintain_order=True)[:20])
    table = table.with_columns(bid=pl.when(is_poor).then(0.0).otherwise("bid"))
    path = write_table(table, tmp_path / "auctions.parquet")
    read_in_small_blocks(monkeypatch)
    config = selection(pricing=Pricing(reserve=1e-6))
    result = decide_seeded(config, path, tmp_path / "c.parquet")
    assert result.record.num_without_ad == 20
    shown = pl.read_parquet(tmp_path / "c.parquet")["auction_id"].to_list()
    assert shown == list(server_winners(table, reserve=1e-6))


def evaluation(tmp_path: Path, logging: int, target: int) -> tuple[EvaluationConfig, Path]:
    path = write_table(auction_table(200, seed=3, sizes=(4, 6)), tmp_path / "auctions.parquet")
    logged, other = (
        selection(
            mechanism=FloorMechanism(epsilon=1.0, shortlist=TopCandidates(num_finalists=count))
        )
        for count in (logging, target)
    )
    decide_seeded(logged, path, tmp_path / "choices.parquet")
    (tmp_path / "clicks.jsonl").write_text("")
    return EvaluationConfig(logging=logged, target=other, epsilon=1.0), path


def files_of(tmp_path: Path) -> EvaluationFiles:
    return EvaluationFiles(
        auctions=tmp_path / "auctions.parquet",
        choices=tmp_path / "choices.parquet",
        clicks=tmp_path / "clicks.jsonl",
        columns=COLUMNS,
    )


def test_a_target_that_was_never_shown_costs_nothing(tmp_path: Path) -> None:
    config, _ = evaluation(tmp_path, 2, 4)
    ledger = make_ledger(tmp_path)
    out = tmp_path / "evaluation.json"
    with pytest.raises(ConfigError, match="never shows"):
        evaluate_files(
            config,
            files_of(tmp_path),
            out,
            rng=SeededNoise(1),
            options=ReleaseOptions(charge=charge(ledger)),
        )
    assert ledger.spends("all") == ()


def test_nobody_clicking_is_a_number_like_others(tmp_path: Path) -> None:
    config, _ = evaluation(tmp_path, 4, 2)
    out = tmp_path / "evaluation.json"
    _, numbers = evaluate_files(config, files_of(tmp_path), out, rng=SeededNoise(1))
    low, high = numbers["interval"]
    assert low == 0.0  # noise may say less, clicks can not be
    assert high <= 1.0


class TestChoicesOfOtherSettings:
    def test_are_not_evaluated(self, tmp_path: Path) -> None:
        config, _ = evaluation(tmp_path, 4, 2)
        other = EvaluationConfig(
            logging=selection(mechanism=FloorMechanism(epsilon=2.0)),
            target=config.target,
            epsilon=1.0,
        )
        with pytest.raises(DataError, match="drawn by other settings"):
            evaluate_files(other, files_of(tmp_path), tmp_path / "e.json", rng=SeededNoise(1))

    def test_are_not_evaluated_without_a_record_if_they_are_impossible(
        self, tmp_path: Path
    ) -> None:
        config, _ = evaluation(tmp_path, 4, 1 + 1)
        (tmp_path / "choices.release.json").unlink()
        shorter = EvaluationConfig(logging=config.target, target=config.target, epsilon=1.0)
        with pytest.raises(DataError, match="never show"):
            evaluate_files(shorter, files_of(tmp_path), tmp_path / "e.json", rng=SeededNoise(1))

    def test_are_not_billed(self, tmp_path: Path) -> None:
        config, path = evaluation(tmp_path, 4, 2)
        with pytest.raises(DataError, match="drawn by other settings"):
            bill_file(config.target, path, tmp_path / "choices.parquet", columns=COLUMNS)
        whole = bill_file(config.logging, path, tmp_path / "choices.parquet", columns=COLUMNS)
        assert whole.num_without_choice == 0

    def test_are_not_taken_for_those_of_a_record(self, tmp_path: Path) -> None:
        config, path = evaluation(tmp_path, 4, 2)
        choices = tmp_path / "choices.parquet"
        pl.read_parquet(choices).head(50).write_parquet(choices)
        with pytest.raises(DataError, match="not the file of its record"):
            bill_file(config.logging, path, choices, columns=COLUMNS)
        part = choices.rename(tmp_path / "part.parquet")
        billed = bill_file(config.logging, path, part, columns=COLUMNS)
        assert billed.num_without_choice == 150


@pytest.mark.parametrize("shortlist", [Cutoff(gamma=0.0), TopCandidates(num_finalists=1)])
def test_a_choice_of_one_ad_is_not_charged_for(shortlist: Cutoff | TopCandidates) -> None:
    with pytest.raises(ConfigError, match="non-personalised"):
        selection(mechanism=FloorMechanism(epsilon=1.0, shortlist=shortlist))


def test_an_epsilon_that_is_no_protection_is_refused() -> None:
    selection(mechanism=FloorMechanism(epsilon=40.0))
    with pytest.raises(ConfigError, match="above 40"):
        selection(mechanism=FloorMechanism(epsilon=40.5))


def test_private_data_of_a_panel_are_said_on_the_card(tmp_path: Path) -> None:
    path = write_table(auction_table(20, seed=4), tmp_path / "auctions.parquet")
    result = decide_seeded(selection(planned_on_devices=True), path, tmp_path / "c.parquet")
    assumed = [a.statement for a in result.record.plan.assumptions if a.status.value == "assumed"]
    assert len(assumed) == 1
    assert "panel" in assumed[0]
    plain = decide_seeded(selection(), path, tmp_path / "d.parquet")
    assert all(a.status.value != "assumed" for a in plain.record.plan.assumptions)


def test_numbers_of_devices_that_refused_do_not_plan(tmp_path: Path) -> None:
    from tulle.select.decisions.requests import first_auctions

    table = auction_table(60, seed=5, has_refusals=True)
    blocks = []
    for name, other in (("a", pl.col("p_device")), ("b", pl.lit(0.5))):
        changed = table.with_columns(p_device=pl.when("consent").then("p_device").otherwise(other))
        path = write_table(changed, tmp_path / f"{name}.parquet")
        blocks.append(first_auctions(path, COLUMNS, num_auctions=50, reserve=0.0, with_device=True))
    agreed = table.filter("consent")["auction_id"].unique().sort().to_list()
    ids = blocks[0].rows.auction_ids[blocks[0].kept].tolist()
    assert ids == [i for i in agreed if i < 1050]
    np.testing.assert_array_equal(
        blocks[0].device_clicks().click_probs, blocks[1].device_clicks().click_probs
    )
