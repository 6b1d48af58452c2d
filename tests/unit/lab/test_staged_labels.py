from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tulle.accounting.event_rules import pure_epsilon
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.lab.staged_labels import StagedRelease, StagePlan
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.units import Adjacency

KEY = b"sixteen bytes ok"
PLAN = StagePlan(epsilon=1.0, num_classes=3, shares=(0.6, 0.4))


def fit_softmax(features: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Weights of a softmax model, by plain gradient descent."""
    weights = np.zeros((features.shape[1], num_classes))
    one_hot = np.eye(num_classes)[labels]
    for _ in range(300):
        weights += 0.5 * features.T @ (one_hot - softmax(features @ weights)) / len(labels)
    return weights


def softmax(logits: np.ndarray) -> np.ndarray:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def clusters(num_rows: int, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, num_classes, num_rows)
    features = np.eye(num_classes)[labels] * 2 + rng.normal(0, 0.5, (num_rows, num_classes))
    return np.column_stack([features, np.ones(num_rows)]), labels


def test_a_model_of_the_first_stage_makes_reports_of_the_second_truer() -> None:
    num_classes = 6
    features, labels = clusters(20_000, num_classes)
    plan = StagePlan(epsilon=1.0, num_classes=num_classes, shares=(0.6, 0.4), temperature=0.5)
    release = StagedRelease(plan, len(labels), key=KEY)
    rng = SeededNoise(1)
    one, two = release.rows_of(0), release.rows_of(1)
    first = release.release_part(0, labels[one], rng=rng)
    weights = fit_softmax(features[one], first.labels, num_classes)
    class_probs = softmax(features[two] @ weights)
    second = release.release_part(1, labels[two], class_probs=class_probs, rng=rng)
    plain = np.e / (np.e + num_classes - 1)
    assert np.mean(first.labels == labels[one]) == pytest.approx(plain, abs=0.03)
    assert np.mean(second.labels == labels[two]) > plain + 0.15
    kept = release.still_likely(0, first.labels, softmax(features[one] @ weights))
    is_true = first.labels == labels[one]
    assert 0.1 < kept.mean() < 0.95
    assert is_true[kept].mean() > is_true.mean() + 0.15


def test_the_parts_hold_every_row_once_and_follow_from_the_key() -> None:
    release, same, other = (
        StagedRelease(PLAN, 1000, key=key) for key in (KEY, KEY, b"another key of 16")
    )
    rows = [release.rows_of(stage) for stage in (0, 1)]
    assert sorted(np.concatenate(rows).tolist()) == list(range(1000))
    assert rows[0].tolist() == same.rows_of(0).tolist()
    assert rows[0].tolist() != other.rows_of(0).tolist()
    assert rows[0].size == pytest.approx(600, abs=80)


def test_all_stages_together_cost_one_epsilon() -> None:
    plan = StagePlan(epsilon=1.25, num_classes=3, shares=(0.25,) * 4)
    assert plan.num_stages == 4
    assert pure_epsilon(plan.event(), Adjacency.REPLACE) == Fraction(1.25)


def test_a_part_is_drawn_once() -> None:
    release = StagedRelease(PLAN, 50, key=KEY)
    labels = np.zeros(release.rows_of(0).size, int)
    release.release_part(0, labels, rng=SeededNoise(0))
    with pytest.raises(RunStateError, match="was drawn already"):
        release.release_part(0, labels, rng=SeededNoise(0))
    assert release.num_drawn == 1


def test_a_part_whose_draw_failed_midway_counts_as_drawn() -> None:
    class BrokenNoise(SeededNoise):
        def words(self, num_words: int) -> Any:
            del num_words
            raise OSError("no entropy")

    release = StagedRelease(PLAN, 50, key=KEY)
    labels = np.zeros(release.rows_of(0).size, int)
    with pytest.raises(OSError, match="no entropy"):
        release.release_part(0, labels, rng=BrokenNoise(0))
    with pytest.raises(RunStateError, match="was drawn already"):
        release.release_part(0, labels, rng=SeededNoise(0))


def test_stages_come_in_order() -> None:
    release = StagedRelease(PLAN, 50, key=KEY)
    size = release.rows_of(1).size
    with pytest.raises(RunStateError, match="comes later"):
        release.release_part(
            1, np.zeros(size, int), class_probs=np.full((size, 3), 1 / 3), rng=SeededNoise(0)
        )
    with pytest.raises(RunStateError, match="not drawn yet"):
        release.still_likely(0, np.zeros(3, int), np.full((3, 3), 1 / 3))


def test_wrong_labels_leave_the_part_undrawn() -> None:
    release = StagedRelease(PLAN, 50, key=KEY)
    size = release.rows_of(0).size
    for bad in (np.zeros(size + 1, int), np.full(size, 3)):
        with pytest.raises(DataError):
            release.release_part(0, bad, rng=SeededNoise(0))
    assert release.num_drawn == 0


def test_a_prior_is_for_the_later_stages_alone() -> None:
    release = StagedRelease(PLAN, 50, key=KEY)
    first, second = (np.zeros(release.rows_of(stage).size, int) for stage in (0, 1))
    with pytest.raises(ConfigError, match="must be None for stage=0"):
        release.release_part(0, first, class_probs=np.ones((first.size, 3)) / 3, rng=SeededNoise(0))
    release.release_part(0, first, rng=SeededNoise(0))
    with pytest.raises(ConfigError, match="must be given for stage=1"):
        release.release_part(1, second, rng=SeededNoise(0))


def test_priors_are_the_softmax_of_logits_over_the_temperature() -> None:
    logits = np.random.default_rng(0).normal(size=(5, 3))
    for temperature in (0.3, 1.0, 2.0):
        plan = StagePlan(epsilon=1.0, num_classes=3, temperature=temperature)
        np.testing.assert_allclose(plan.priors(softmax(logits)), softmax(logits / temperature))
    np.testing.assert_allclose(PLAN.priors([[0.0, 1.0, 0.0]]), [[0.0, 1.0, 0.0]])


@pytest.mark.parametrize(
    "class_probs", [[0.5, 0.3, 0.2], [[0.5, 0.5]], [[2.0, -1.0, 0.0]], [[1.0, 2.0, 3.0]]]
)
def test_what_is_no_probability_is_refused(class_probs: Any) -> None:
    with pytest.raises(DataError, match="class_probs"):
        PLAN.priors(class_probs)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_classes": 2},
        {"temperature": 0.0},
        {"shares": (1.0,)},
        {"shares": (0.5, 0.4)},
        {"epsilon": 0.0},
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        StagePlan(**({"epsilon": 1.0, "num_classes": 3} | wrong))


def test_a_stage_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="stage=2"):
        StagedRelease(PLAN, 50, key=KEY).rows_of(2)
