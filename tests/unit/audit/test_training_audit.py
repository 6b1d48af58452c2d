"""Whole training runs by the public path: right ones pass, half the noise does not.

Rows have ids of their own, so the model itself shows what a step did for each of them: an
attacker who sees the model sees nearly as much as one who sees the steps. With rows that share
their features the model alone gives away far less, and half the noise could not be told.
"""

import math

import numpy as np
import pytest
from scipy import stats

from tulle.accounting.event_rules import with_noise_scaled
from tulle.audit.one_run import OneRunResult, audit_canaries
from tulle.audit.training_audit import TrainingAudit, audit_training, plant_label_canaries
from tulle.data.prepared.feature import PreparedFeature
from tulle.data.schema import Schema
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.units import Adjacency
from tulle.train.examples import ExampleSet
from tulle.train.methods.baseline import NonPrivateConfig
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.method import Accounting, Method
from tulle.train.methods.randomized_labels import RandomizedLabelsConfig
from tulle.train.run_context import RunOptions
from tulle.train.settings.models import LogisticRegression
from tulle.train.settings.optimizers import SGD, Adam
from tulle.train.settings.phases import LabelPhase, PlainPhase, PrivatePhase
from tulle.train.settings.units import ExampleLevel
from unit.train.small_data import make_examples

NUM_ROWS = 6000
NAMES = tuple(f"id{number}" for number in range(8))


def rows_of_their_own(num_rows: int = NUM_ROWS) -> ExampleSet:
    """Eight features, each with another id in every row."""
    return ExampleSet(
        features=tuple(
            PreparedFeature(name=name, role="public", num_ids=num_rows, table=name)
            for name in NAMES
        ),
        columns=Schema(label="click", public=NAMES, sensitive=(), unit=None).roles,
        public_features=np.tile(np.arange(num_rows, dtype=np.int32)[:, None], len(NAMES)),
        sensitive_features=None,
        labels=np.zeros(num_rows, np.float32),
    )


def one_step(noise_multiplier: float) -> Method:
    phase = PrivatePhase(
        epochs=0.8,
        batch_size=9 * NUM_ROWS // 10,
        clip_norm=0.5,
        optimizer=SGD(learning_rate=1.0, momentum=0.0),
        noise_multiplier=noise_multiplier,
        monitor_share=0.0,
    )
    config = DpSgdConfig(model=LogisticRegression(), private_phase=phase, unit=ExampleLevel())
    return config.calibrate(epsilon=3, delta=1e-5)


def audit_step(noise_multiplier: float) -> TrainingAudit:
    return audit_training(
        rows_of_their_own(),
        one_step(noise_multiplier),
        num_canaries=NUM_ROWS,
        rng=SeededNoise(3),
        options=RunOptions(seed=4),
    )


@pytest.mark.parametrize("noise_multiplier", [1.0, 2.0])
def test_a_right_run_keeps_its_claim_and_gives_something_away(noise_multiplier: float) -> None:
    audit = audit_step(noise_multiplier)
    assert not audit.result.is_violated
    assert 1.5 < audit.result.curve_lower_bound < audit.result.claimed_epsilon
    assert audit.result.claimed_epsilon == pytest.approx(
        audit.run.plan.privacy.guarantee.epsilon, rel=1e-3
    )


@pytest.mark.parametrize("claimed_noise", [1.0, 2.0])
def test_a_run_with_half_the_noise_of_its_claim_is_caught(claimed_noise: float) -> None:
    result = behind_the_claim(audit_step(claimed_noise / 2), 2.0)
    assert result.is_violated
    assert result.curve_lower_bound > result.claimed_epsilon


def behind_the_claim(audit: TrainingAudit, noise_factor: float) -> OneRunResult:
    """The same guesses, held against a claim of more noise than there was."""
    claimed = with_noise_scaled(audit.run.plan.privacy.event, noise_factor)
    return audit_canaries(audit.scores, audit.canaries.coins, claimed, Adjacency.REPLACE)


def small_label_config(epsilon: float) -> Method:
    phase = LabelPhase(epochs=3, batch_size=100, optimizer=Adam(learning_rate=0.3))
    config = RandomizedLabelsConfig(
        model=LogisticRegression(), label_phase=phase, unit=ExampleLevel()
    )
    return config.calibrate(epsilon=epsilon)


@pytest.mark.parametrize(("epsilon", "is_wrong"), [(1.0, False), (2.0, True)])
def test_randomized_labels_keep_their_claim_and_twice_its_epsilon_is_caught(
    epsilon: float, is_wrong: bool
) -> None:
    audit = audit_training(
        rows_of_their_own(2000),
        small_label_config(epsilon),
        num_canaries=2000,
        rng=SeededNoise(5),
        options=RunOptions(seed=6),
    )
    assert audit.result.delta == 0
    assert not audit.result.is_violated
    assert behind_the_claim(audit, epsilon).is_violated == is_wrong


def test_a_run_without_privacy_gives_its_coins_away() -> None:
    phase = PlainPhase(epochs=5, batch_size=100, optimizer=Adam(learning_rate=0.3))
    audit = audit_training(
        rows_of_their_own(1000),
        NonPrivateConfig(model=LogisticRegression(), phase=phase),
        num_canaries=1000,
        rng=SeededNoise(1),
    )
    assert math.isinf(audit.result.claimed_epsilon)
    assert audit.result.guesses.num_correct == audit.result.guesses.num_guesses
    assert audit.result.curve_lower_bound > 5
    assert not audit.result.is_violated


def test_accounting_of_the_papers_is_no_claim_about_labels() -> None:
    config = DpSgdConfig(accounting=Accounting.PAPER_RDP).calibrate(epsilon=3, delta=1e-5)
    with pytest.raises(ConfigError, match="accounting='paper'"):
        audit_training(make_examples(), config, num_canaries=10, rng=SeededNoise(1))


def test_coins_are_the_labels_of_canaries_and_no_other_label_changes() -> None:
    examples = make_examples(400)
    before = np.array(examples.labels)
    planted = plant_label_canaries(examples, 100, rng=SeededNoise(1))
    assert len(set(planted.rows.tolist())) == 100
    assert np.array_equal(planted.rows, np.sort(planted.rows))
    assert planted.examples.labels is not None
    assert np.array_equal(planted.examples.labels[planted.rows], planted.coins)
    others = np.delete(np.arange(400), planted.rows)
    assert np.array_equal(planted.examples.labels[others], before[others])
    assert np.array_equal(np.array(examples.labels), before)
    assert planted.examples.public_features is examples.public_features


def test_coins_are_fair_and_say_nothing_of_the_labels_they_replace() -> None:
    examples = make_examples(40_000)
    planted = plant_label_canaries(examples, 40_000, rng=SeededNoise(2))
    assert examples.labels is not None
    agrees = int(np.count_nonzero(examples.labels == planted.coins))
    for count in (int(planted.coins.sum()), agrees):
        assert stats.binomtest(count, 40_000, 0.5).pvalue > 1e-9
        assert stats.binomtest(count, 40_000, 0.525).pvalue < 1e-9


def test_every_row_is_as_likely_a_canary_as_every_other() -> None:
    examples = make_examples(40)
    chosen = [plant_label_canaries(examples, 10, rng=SeededNoise(s)).rows for s in range(2000)]
    counts = np.bincount(np.concatenate(chosen), minlength=40)
    assert stats.chisquare(counts).pvalue > 1e-9
    # The same counts reject rows of the first half that are a quarter likelier.
    wrong = np.repeat([1.25, 1.0], 20)
    assert stats.chisquare(counts, wrong / wrong.sum() * counts.sum()).pvalue < 1e-9


def test_no_unit_has_two_canaries() -> None:
    examples = make_examples(400, rows_per_user=4)
    planted = plant_label_canaries(examples, 100, rng=SeededNoise(3))
    assert examples.units is not None
    assert len(np.unique(examples.units[planted.rows])) == 100
    assert len(np.unique(planted.rows % 4)) == 4
    with pytest.raises(ConfigError, match="num_canaries=101 must be <= 100"):
        plant_label_canaries(examples, 101, rng=SeededNoise(3))


def test_rows_without_labels_are_refused() -> None:
    with pytest.raises(DataError, match="no label"):
        plant_label_canaries(make_examples(40).without_sensitive(), 10, rng=SeededNoise(1))
