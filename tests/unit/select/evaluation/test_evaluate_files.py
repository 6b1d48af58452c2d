"""An evaluation of files is that of the arrays in them, paid once, and covers the truth."""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tulle.accounting.accountant import guarantee
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.units import Adjacency, Scope, Unit
from tulle.runs.charging import ReleaseCharge, ReleaseTerms
from tulle.runs.release_files import record_path
from tulle.runs.release_once import ReleaseOptions
from tulle.select.auctions import Auctions
from tulle.select.evaluation.device_terms import DecisionLog, Estimator
from tulle.select.evaluation.estimate import EvaluationResult, release_estimate
from tulle.select.evaluation.evaluate_files import EvaluationFiles, evaluate_files
from tulle.select.evaluation.evaluation_plan import EvaluationConfig, make_evaluation_plan
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import NonPersonalised
from tulle.select.mechanisms.shortlists import TopCandidates
from tulle.select.mechanisms.slots import SlotMechanism
from tulle.select.selection_config import Consent, Pricing, SelectionConfig
from unit.select.decisions.auction_tables import (
    COLUMNS,
    auction_table,
    by_user,
    decide_seeded,
    make_ledger,
    selection,
    write_table,
)

TARGET = selection(name="target", mechanism=FloorMechanism(epsilon=3.0))


@dataclasses.dataclass(frozen=True)
class Logged:
    """Files of decisions, and the arrays in them."""

    files: EvaluationFiles
    table: pl.DataFrame
    choices: pl.DataFrame
    clicked: Any


def logged(
    folder: Path, config: SelectionConfig, table: pl.DataFrame, ending: str = "csv"
) -> Logged:
    """Decides, and clicks as often as devices predict."""
    auctions = write_table(table, folder / "auctions.parquet")
    decide_seeded(config, auctions, folder / "choices.parquet")
    choices = pl.read_parquet(folder / "choices.parquet")
    probs = choices.join(table, on=["auction_id", "ad"], maintain_order="left")["p_device"]
    # Another stream than that of the choices.
    clicked = np.random.default_rng([5, 1]).random(len(probs)) < probs.to_numpy()
    clicks = choices.filter(clicked).select("auction_id").sample(fraction=1, shuffle=True, seed=1)
    files = EvaluationFiles(
        auctions=auctions,
        choices=folder / "choices.parquet",
        clicks=write_table(clicks, folder / f"clicks.{ending}"),
        columns=COLUMNS,
    )
    return Logged(files=files, table=table, choices=choices, clicked=clicked)


def auctions_of(table: pl.DataFrame) -> Auctions:
    sizes = table.group_by("auction_id", maintain_order=True).len()["len"].to_numpy()
    return Auctions(
        offsets=np.append(0, np.cumsum(sizes.astype(np.int64))),
        ads=table["ad"].to_numpy(),
        bids=table["bid"].to_numpy(),
        server_click_probs=table["p_server"].to_numpy(),
    )


def evaluate(config: EvaluationConfig, log: Logged, out: Path, **options: Any) -> Any:
    """Record, numbers, and whether they were stored."""
    released, numbers = evaluate_files(
        config, log.files, out, rng=SeededNoise(8), options=ReleaseOptions(**options)
    )
    return released.record, numbers, released.is_stored


def expected_result(config: EvaluationConfig, log: Logged) -> EvaluationResult:
    """The same by a loop over decisions and arrays of the table."""
    auctions = auctions_of(log.table)
    places, users, personal = [], [], []
    seen: Counter[int] = Counter()
    limit = config.logging.privacy.max_decisions_per_user
    rows = log.table.partition_by("auction_id", maintain_order=True)
    for number, (part, ad) in enumerate(zip(rows, log.choices["ad"], strict=True)):
        places.append(int(auctions.offsets[number]) + part["ad"].to_list().index(ad))
        user = number if limit is None else part["user_id"][0]
        users.append(user)
        is_personal = part["consent"][0] and part.height >= 2
        if limit is not None:
            is_personal = is_personal and seen[user] < limit
            seen[user] += is_personal
        personal.append(is_personal)
    probs = log.table["p_device"].to_numpy()
    decisions = DecisionLog(
        users=np.array(users),
        choices=np.array(places),
        raw_clicks=log.clicked,
        raw_scores=auctions.bids * probs,
        raw_model_clicks=probs,
        is_personalised=np.array(personal),
    )
    return release_estimate(
        auctions,
        decisions,
        config.evaluation(),
        rng=SeededNoise(8),
        confidence=config.confidence,
    )


@pytest.mark.parametrize("estimator", list(Estimator))
@pytest.mark.parametrize(
    "config", [selection(consent=Consent.COLUMN), by_user(2, consent=Consent.COLUMN)]
)
def test_files_give_the_estimate_of_their_arrays(
    tmp_path: Path, config: SelectionConfig, estimator: Estimator
) -> None:
    table = auction_table(200, seed=1, num_users=50, has_refusals=True)
    # Numbers in no order, so that what is found by number must be put back in that of the file.
    table = table.with_columns(auction_id=pl.col("auction_id") * 7919 % 1_000_003)
    log = logged(tmp_path, config, table)
    evaluation = EvaluationConfig(logging=config, target=TARGET, epsilon=1.0, estimator=estimator)
    record, numbers, is_stored = evaluate(evaluation, log, tmp_path / "value.json")
    expected = expected_result(evaluation, log)
    assert not is_stored
    assert numbers == {
        "clicks_per_decision": expected.estimate.value,
        "interval": [max(expected.interval.low, 0.0), min(expected.interval.high, 1.0)],
        "noise_stddev": expected.estimate.noise_stddev,
        "sampling_stddev": expected.sampling_stddev,
        "num_decisions": expected.num_decisions,
        "num_users": expected.num_users,
        "max_weight": expected.max_weight,
        "is_weight_cut": False,
    }
    assert 0 < expected.num_decisions < 200
    assert list(record.columns) == list(numbers)


@pytest.mark.parametrize("estimator", list(Estimator))
def test_the_interval_covers_the_truth_and_not_the_value_of_the_logging_selection(
    tmp_path: Path, estimator: Estimator
) -> None:
    table = auction_table(15_000, seed=2, sizes=(5, 5))
    # Clicks are frequent and differ much, so that the interval is narrow.
    table = table.with_columns(p_device=np.random.default_rng(3).random(table.height))
    log = logged(tmp_path, selection(), table)
    config = EvaluationConfig(
        logging=selection(), target=TARGET, epsilon=5.0, estimator=estimator, confidence=1 - 1e-9
    )
    _, numbers, _ = evaluate(config, log, tmp_path / "value.json")
    low, high = numbers["interval"]
    probs = table["p_device"].to_numpy()
    scores = (table["bid"].to_numpy() * probs).reshape(-1, 5)

    def value(epsilon: float) -> float:
        """Clicks of randomized response over five ads, exactly."""
        clicks = probs.reshape(-1, 5)
        best = np.take_along_axis(clicks, scores.argmax(1)[:, np.newaxis], axis=1)[:, 0]
        weights = clicks.sum(1) + np.expm1(epsilon) * best
        return float(np.mean(weights / (4 + np.exp(epsilon))))

    assert low <= value(3.0) <= high
    assert not low <= value(1.0) <= high


def test_an_evaluation_is_paid_once(tmp_path: Path) -> None:
    log = logged(tmp_path, selection(), auction_table(100, seed=1))
    ledger = make_ledger(tmp_path, epsilon=2.0)
    charge = ReleaseCharge(ledger=ledger, purpose="select")
    config = EvaluationConfig(logging=selection(), target=TARGET, epsilon=1.0)
    out = tmp_path / "value.json"
    first = evaluate(config, log, out, charge=charge)
    second = evaluate(config, log, out, charge=charge)
    assert (first[2], second[2]) == (False, True)
    assert first[:2] == second[:2]
    (spend,) = ledger.spends("all")
    assert spend.request.event == config.evaluation().event()
    third = evaluate(config, log, tmp_path / "again.json", charge=charge, again=True)
    assert not third[2]
    assert len(ledger.spends("all")) == 2


@pytest.mark.parametrize("changed", ["auctions", "choices", "clicks"])
def test_other_files_are_another_evaluation(tmp_path: Path, changed: str) -> None:
    log = logged(tmp_path, selection(), auction_table(100, seed=1))
    ledger = make_ledger(tmp_path, epsilon=2.0)
    charge = ReleaseCharge(ledger=ledger, purpose="select")
    config = EvaluationConfig(logging=selection(), target=TARGET, epsilon=1.0)
    assert not evaluate(config, log, tmp_path / "a.json", charge=charge)[2]
    if changed == "auctions":
        other = log.table.with_columns(p_device=pl.col("p_device") / 2)
        write_table(other, log.files.auctions)
    elif changed == "choices":
        record_path(log.files.choices).unlink()
        write_table(log.choices.reverse(), log.files.choices)
    else:
        write_table(log.choices[:3].select("auction_id"), log.files.clicks)
    assert not evaluate(config, log, tmp_path / "b.json", charge=charge)[2]
    assert len(ledger.spends("all")) == 2


def test_the_plan_claims_what_the_sums_cost() -> None:
    for logging, unit in ((selection(), Unit.impression()), (by_user(4), Unit.user())):
        config = EvaluationConfig(logging=logging, target=TARGET, epsilon=0.7)
        plan = make_evaluation_plan(
            config, COLUMNS, ReleaseTerms(noise_source="dice", has_ledger=True)
        )
        assert plan.guarantee == guarantee(
            config.evaluation().event(),
            delta=0.0,
            unit=unit,
            adjacency=Adjacency.REPLACE,
            scope=Scope.SENSITIVE_COLUMNS,
        )
        assert plan.guarantee.epsilon == pytest.approx(0.7, rel=1e-6)
        assert plan.columns.sensitive == ("p_device", "clicked")


@pytest.mark.parametrize("field", ["logging", "target"])
def test_another_selection_is_another_evaluation(field: str) -> None:
    config = EvaluationConfig(logging=selection(), target=TARGET, epsilon=0.7)
    change: dict[str, Any] = {field: selection(least_finalists=3)}
    other = dataclasses.replace(config, **change)
    first, second = (
        make_evaluation_plan(
            one, COLUMNS, ReleaseTerms(noise_source="dice", has_ledger=True)
        ).fingerprint()
        for one in (config, other)
    )
    assert first != second


SHUFFLED = selection(min_cell_size=5, pricing=Pricing(rule="posted"), delta=1e-6)
SLOTS = selection(mechanism=SlotMechanism(epsilon=1.0, num_slots=2))


@pytest.mark.parametrize(
    ("logging", "target", "problem"),
    [
        (SHUFFLED, TARGET, "choices are not linked to auctions"),
        (SLOTS, TARGET, "logging has several slots"),
        (selection(), SLOTS, "target has several slots"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    logging: SelectionConfig, target: SelectionConfig, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        EvaluationConfig(logging=logging, target=target, epsilon=1.0)


def test_a_target_beyond_the_logged_finalists_is_refused(tmp_path: Path) -> None:
    short = FloorMechanism(epsilon=1.0, shortlist=TopCandidates(num_finalists=2))
    config = selection(mechanism=short)
    log = logged(tmp_path, config, auction_table(100, seed=1))
    with pytest.raises(ConfigError, match="may show ads that"):
        evaluate(
            EvaluationConfig(logging=config, target=TARGET, epsilon=1.0), log, tmp_path / "v.json"
        )
    assert not (tmp_path / "v.json").exists()


def test_a_target_that_does_not_personalise_can_be_evaluated(tmp_path: Path) -> None:
    log = logged(tmp_path, selection(), auction_table(100, seed=1))
    target = selection(mechanism=NonPersonalised())
    config = EvaluationConfig(logging=selection(), target=target, epsilon=1.0)
    _, numbers, _ = evaluate(config, log, tmp_path / "value.json")
    assert np.isfinite(numbers["clicks_per_decision"])


class TestFiles:
    CONFIG = EvaluationConfig(logging=selection(), target=TARGET, epsilon=1.0)

    @pytest.mark.parametrize("kept", [slice(0, 50), slice(50, 100)])
    def test_choices_of_some_auctions_are_refused(self, tmp_path: Path, kept: slice) -> None:
        log = logged(tmp_path, selection(), auction_table(100, seed=1))
        record_path(log.files.choices).unlink()
        write_table(log.choices[kept], log.files.choices)
        write_table(log.choices[kept][:1].select("auction_id"), log.files.clicks)
        with pytest.raises(DataError, match="not one choice for each auction"):
            evaluate(self.CONFIG, log, tmp_path / "value.json")

    def test_clicks_on_other_auctions_are_refused(self, tmp_path: Path) -> None:
        log = logged(tmp_path, selection(), auction_table(100, seed=1))
        write_table(pl.DataFrame({"auction_id": [1]}), log.files.clicks)
        with pytest.raises(DataError, match="of no choice"):
            evaluate(self.CONFIG, log, tmp_path / "value.json")

    def test_refused_files_cost_nothing(self, tmp_path: Path) -> None:
        log = logged(tmp_path, selection(), auction_table(100, seed=1))
        write_table(pl.DataFrame({"auction_id": [1]}), log.files.clicks)
        ledger = make_ledger(tmp_path)
        charge = ReleaseCharge(ledger=ledger, purpose="select")
        with pytest.raises(DataError):
            evaluate(self.CONFIG, log, tmp_path / "value.json", charge=charge)
        assert ledger.spends("all") == ()

    def test_the_new_file_is_json_in_a_folder(self, tmp_path: Path) -> None:
        log = logged(tmp_path, selection(), auction_table(10, seed=1))
        for out, problem in (("v.csv", r"end in \.json"), ("none/v.json", "no folder")):
            with pytest.raises(ConfigError, match=problem):
                evaluate(self.CONFIG, log, tmp_path / out)
