import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from golden.card.fixed_card import make_plan
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.privacy.events import NonPrivate
from tulle.runs.card import Card, read_card, write_card
from tulle.runs.card_text import NOT_PRIVATE
from tulle.runs.folder import RunFolder
from tulle.runs.record import card_of, check_baseline, read_training, relative_auc_loss

METRICS = {
    "auc_loss": 0.25,
    "auc_loss_standard_error": 0.01,
    "auc_loss_interval": [0.23, 0.27],
    "log_loss": 0.4,
    "log_loss_standard_error": 0.01,
    "normalised_cross_entropy": 0.9,
    "calibration": 1.05,
    "calibration_error": 0.02,
    "deciles": [],
    "num_rows": 100,
    "num_positives": 20,
}


def make_run(path: Path, *, seed: int | None = None, **changes: Any) -> RunFolder:
    plan = make_plan()
    if changes.get("method") == "nonprivate":
        guarantee = dataclasses.replace(plan.guarantee, epsilon=math.inf, delta=0.0)
        plan = dataclasses.replace(
            plan, event=NonPrivate(), guarantee=guarantee, variants=(), assumptions=()
        )
    folder = RunFolder.create(path, settings={"a": 1}, plan=plan, facts={"seed": seed})
    result = {
        "format": "tulle training result 1",
        "method": "two-phase",
        "epsilon": 1.0,
        "delta": 1e-7,
        "label_epsilon": 0.6,
        "noise_multiplier": 2.0,
        "steps": 10,
        "steps_lost": 0,
        "seconds": 1.0,
        "randomness": {"description": "operating system", "is_secure": seed is None},
        "accounting_note": "",
        "reproduction_only": False,
        "test": "0.2 of the rows",
        "metrics": METRICS,
    }
    folder.write_json("result.json", result | changes)
    return folder


def figures(card: Card) -> dict[str, float]:
    return {figure.name: figure.value for figure in card.utility}


def test_a_card_has_the_figures_of_the_run_and_where_they_are_from(tmp_path: Path) -> None:
    card = card_of(read_training(make_run(tmp_path / "a")))
    assert figures(card) == {
        "AUC": 0.75,
        "AUC loss": 0.25,
        "log loss": 0.4,
        "calibration, mean prediction over mean label": 1.05,
        "normalised cross-entropy": 0.9,
    }
    auc, auc_loss = (figure.interval for figure in card.utility[:2])
    assert auc is not None
    assert auc_loss is not None
    assert (auc.low, auc.high) == (0.73, 0.77)
    assert (auc_loss.low, auc_loss.high, auc_loss.confidence) == (0.23, 0.27, 0.95)
    assert {figure.measured_on for figure in card.utility} == {"0.2 of the rows"}
    assert card.randomness.is_secure
    assert {"torch", "safetensors", "dp-accounting"} <= set(card.provenance.libraries)


def test_a_card_can_be_written_and_read(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    card = card_of(read_training(folder))
    write_card(folder.path, card)
    assert read_card(folder.path / "card.json").to_dict() == card.to_dict()


def test_a_baseline_gives_the_relative_loss(tmp_path: Path) -> None:
    raw = make_run(tmp_path / "raw", method="nonprivate", metrics=METRICS | {"auc_loss": 0.2})
    assert relative_auc_loss(make_run(tmp_path / "a"), raw) == pytest.approx(25)


@pytest.mark.parametrize(
    ("changes", "error", "what"),
    [
        ({"method": "rr"}, ConfigError, "of method rr"),
        ({"metrics": None}, DataError, "tested on no rows"),
        ({"metrics": METRICS | {"num_positives": 21}}, DataError, "tested on other rows"),
        ({"metrics": METRICS | {"num_rows": 99}}, DataError, "tested on other rows"),
        ({"metrics": METRICS | {"auc_loss": 0.0}}, DataError, "auc_loss=0"),
    ],
)
def test_a_baseline_must_be_comparable(
    changes: dict[str, Any], error: type[Exception], what: str, tmp_path: Path
) -> None:
    baseline = make_run(tmp_path / "raw", **{"method": "nonprivate"} | changes)
    with pytest.raises(error, match=what):
        check_baseline(baseline, num_rows=100, num_positives=20)
    with pytest.raises(error, match=what):
        relative_auc_loss(make_run(tmp_path / "a"), baseline)


def test_a_run_without_privacy_says_so(tmp_path: Path) -> None:
    card = card_of(read_training(make_run(tmp_path / "raw", method="nonprivate")))
    assert card.verdict == NOT_PRIVATE


def test_a_seeded_run_says_so_whatever_its_result_says(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", seed=3)
    assert card_of(read_training(folder)).verdict == NOT_PRIVATE
    randomness = {"description": "operating system", "is_secure": True}
    lying = make_run(tmp_path / "b", seed=3, randomness=randomness)
    assert card_of(read_training(lying)).verdict == NOT_PRIVATE


def test_the_papers_accounting_is_for_reproduction(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", accounting_note="as in a paper", reproduction_only=True)
    card = card_of(read_training(folder))
    assert card.verdict == NOT_PRIVATE
    assert any("as in a paper" in reason for reason in card.reasons)


def test_an_unfinished_run_has_no_card(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a", settings={"a": 1}, plan=make_plan(), facts={})
    with pytest.raises(RunStateError, match="a is not finished; go on with it"):
        card_of(read_training(folder))


@pytest.mark.parametrize("changes", [{"format": "other"}, {"more": 1}, {"method": ""}])
def test_another_result_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", **changes)
    with pytest.raises(RunStateError, match="not that of a training run"):
        card_of(read_training(folder))


def test_likelihood_and_money_are_on_the_card_if_the_result_has_them(tmp_path: Path) -> None:
    more = {"relative_log_likelihood": 0.1, "bidding_over_constant": 1.4}
    old, new = (
        card_of(read_training(make_run(tmp_path / name, metrics=metrics))).utility
        for name, metrics in (("old", METRICS), ("new", METRICS | more))
    )
    assert new[: len(old)] == old
    assert {figure.name: figure.value for figure in new[len(old) :]} == {
        "log likelihood gained over the mean label": 0.1,
        "bidding utility, times that of bidding the mean label": 1.4,
    }


def test_a_run_that_was_not_tested_has_no_figures(tmp_path: Path) -> None:
    assert card_of(read_training(make_run(tmp_path / "a", metrics=None))).utility == ()
