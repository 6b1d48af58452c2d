"""Membership: rates by brute force; no noise breaks the bound that private models keep."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from statistical.noise_checks import assert_gaussian
from tulle.accounting.accountant import pld_epsilon, privacy_curve
from tulle.audit.profile import ProfileAuditConfig, audit_profile
from tulle.errors import ConfigError, DataError
from tulle.lab.attacks.bounds import area_under_curve, true_positive_ceilings, true_positive_rates
from tulle.lab.attacks.membership import (
    FALSE_POSITIVE_RATES,
    FloatArray,
    MembershipConfig,
    MembershipResult,
    NoisyGradientSteps,
    Trainer,
    _draw_candidates,
    _private_trainer,
    attack_by_membership,
    clipped_sum,
    example_gradients,
    train_plainly,
    train_privately,
)
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.privacy.units import Adjacency

SCORES = st.lists(st.integers(-3, 3), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def result() -> MembershipResult:
    return attack_by_membership(MembershipConfig(num_models=20, num_features=800))


@given(members=SCORES, others=SCORES, rate=st.floats(0, 1))
def test_rates_are_the_best_over_all_thresholds(
    members: list[int], others: list[int], rate: float
) -> None:
    thresholds = [-math.inf, *range(-4, 5)]
    best = max(
        sum(score > threshold for score in members) / len(members)
        for threshold in thresholds
        if sum(score > threshold for score in others) <= rate * len(others) + 1e-9
    )
    found = true_positive_rates(np.array(members, float), np.array(others, float), np.array([rate]))
    assert found[0] == pytest.approx(best)


@given(members=SCORES, others=SCORES)
def test_the_area_is_the_share_of_pairs_in_the_right_order(
    members: list[int], others: list[int]
) -> None:
    wins = [1.0 if m > o else 0.5 if m == o else 0.0 for m in members for o in others]
    found = area_under_curve(np.array(members, float), np.array(others, float))
    assert found == pytest.approx(np.mean(wins))


def one_candidate_a_model(train: Trainer, num_models: int) -> tuple[FloatArray, FloatArray]:
    """Scores of one candidate of each model, in and out: these are independent."""
    config = MembershipConfig(num_candidates=20, num_features=200)
    inside, outside = [], []
    for number in range(num_models):
        drawn = _draw_candidates(config, number)
        score = drawn.margins(train(*drawn.members(), drawn.seed))[0]
        (inside if drawn.is_member[0] else outside).append(score)
    return np.array(inside), np.array(outside)


def test_private_models_keep_the_claim_and_a_model_without_noise_breaks_it() -> None:
    sure = ProfileAuditConfig(false_alarm_prob=1e-9)
    settings = NoisyGradientSteps.for_epsilon(1.0, 1e-5, expected_examples=10)
    claim = privacy_curve(settings.event(), Adjacency.ADD_OR_REMOVE)
    scores = one_candidate_a_model(_private_trainer(settings), 1000)
    assert not audit_profile(*scores, claim, sure).is_violated
    # The planted fault: no noise under the same claim.
    scores = one_candidate_a_model(lambda x, y, _: train_plainly(x, y, num_steps=60), 1000)
    assert audit_profile(*scores, claim, sure).is_violated


def test_curves_of_private_models_are_under_their_bound_and_the_plain_one_is_not(
    result: MembershipResult,
) -> None:
    plain, *private = result.models
    # Below one percent a few candidates decide. Those of one model are not independent.
    rates = np.array(FALSE_POSITIVE_RATES)
    is_shown = rates >= 0.01
    for model in private:
        ceilings = true_positive_ceilings(rates, model.epsilon, model.delta)
        assert np.all((np.array(model.true_positive_rates) <= ceilings)[is_shown])
    ceilings = true_positive_ceilings(rates, 1.0, 1e-5)
    assert np.any(np.array(plain.true_positive_rates) > 5 * ceilings)


def test_privacy_costs_accuracy_and_buys_silence(result: MembershipResult) -> None:
    plain, strict, loose = result.models
    assert (plain.epsilon, plain.delta) == (math.inf, 1.0)
    assert (strict.epsilon, loose.epsilon) == result.config.epsilons
    assert plain.area_under_curve > 0.8 > loose.area_under_curve > strict.area_under_curve
    assert plain.true_positive_rate > 0.1 > strict.true_positive_rate
    # By heart: all members right, others not.
    assert plain.member_accuracy > 0.99
    assert 0.99 > plain.fresh_accuracy > loose.fresh_accuracy > strict.fresh_accuracy > 0.5


def test_ceilings_are_those_of_the_guarantee(result: MembershipResult) -> None:
    rate = result.config.low_false_positive_rate
    assert result.models[0].ceiling == 1.0
    for model in result.models[1:]:
        expected = math.exp(model.epsilon) * rate + result.config.delta
        assert model.ceiling == pytest.approx(expected)


def test_the_same_seed_gives_the_same_result_as_strict_json() -> None:
    config = MembershipConfig(num_models=2, num_candidates=20, num_features=10)
    first, second = (attack_by_membership(config).to_dict() for _ in range(2))
    assert json.dumps(first, allow_nan=False) == json.dumps(second, allow_nan=False)
    models = first["models"]
    assert isinstance(models, list)
    assert [model["epsilon"] for model in models] == [None, 1.0, 4.0]


def test_the_coin_of_a_candidate_is_fair_and_says_nothing_about_it() -> None:
    config = MembershipConfig(num_candidates=20_000, num_features=1)
    drawn = _draw_candidates(config, 0)
    assert stats.binomtest(int(drawn.is_member.sum()), 20_000).pvalue > 1e-9
    means = [
        float(drawn.features[is_in, 0].mean()) for is_in in (drawn.is_member, ~drawn.is_member)
    ]
    assert abs(means[0] - means[1]) < 6.2 * math.sqrt(4 / 20_000)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_candidates": 9},
        {"num_features": 0},
        {"num_models": 1},
        {"epsilons": (0.0,)},
        {"delta": 0.0},
        {"low_false_positive_rate": 1.0},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        MembershipConfig(**settings)  # type: ignore[arg-type]


def test_a_curve_of_nobody_is_refused() -> None:
    with pytest.raises(DataError, match="at least one"):
        true_positive_rates(np.array([]), np.array([1.0]), np.array([0.1]))


ONE_STEP = NoisyGradientSteps(noise_multiplier=1.0, expected_examples=1, num_steps=1)
SURE = ProfileAuditConfig(false_alarm_prob=1e-9)
CLAIM = privacy_curve(ONE_STEP.event(), Adjacency.ADD_OR_REMOVE)


def examples(num_examples: int, num_features: int, seed: int = 1) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((num_examples, num_features))
    return features, np.where(features[:, 0] + rng.standard_normal(num_examples) > 0, 1.0, -1.0)


def test_gradients_are_slopes_of_the_loss() -> None:
    features, labels = examples(7, 4)
    weights = np.array([0.5, -1.0, 2.0, 0.1])

    def losses(at: FloatArray) -> FloatArray:
        return np.log1p(np.exp(-labels * (features @ at)))

    for feature in range(4):
        step = np.eye(4)[feature] * 1e-6
        slopes = (losses(weights + step) - losses(weights - step)) / 2e-6
        found = example_gradients(weights, features, labels)[:, feature]
        assert found == pytest.approx(slopes, abs=1e-8)


@given(seed=st.integers(0, 2**32), clip_norm=st.floats(1e-3, 1e3), size=st.floats(0, 1e6))
def test_one_example_moves_the_clipped_sum_by_no_more_than_the_clip_norm(
    seed: int, clip_norm: float, size: float
) -> None:
    gradients = size * np.random.default_rng(seed).standard_normal((5, 3))
    moved = clipped_sum(gradients, clip_norm) - clipped_sum(gradients[1:], clip_norm)
    assert np.linalg.norm(moved) <= clip_norm * (1 + 1e-9)


def test_clipping_the_sum_instead_would_be_seen() -> None:
    # The planted fault: one example turns the direction of the whole sum.
    gradients = np.array([[100.0, 0.0], [-60.0, 0.0]])

    def clip_after_summing(rows: FloatArray) -> FloatArray:
        total = rows.sum(axis=0)
        return np.asarray(total / max(1.0, float(np.linalg.norm(total))))

    moved = clip_after_summing(gradients) - clip_after_summing(gradients[1:])
    assert np.linalg.norm(moved) > 1.9
    assert np.linalg.norm(clipped_sum(gradients, 1.0) - clipped_sum(gradients[1:], 1.0)) <= 1.0


def test_small_gradients_are_not_scaled() -> None:
    gradients = np.array([[0.1, 0.2], [0.3, -0.4], [0.0, 0.0]])
    assert clipped_sum(gradients, 1.0) == pytest.approx([0.4, -0.2], abs=1e-15)


def test_a_step_has_noise_of_the_stated_scale() -> None:
    def sample(rng: NoiseSource, size: int) -> FloatArray:
        return train_privately(np.zeros((0, size)), np.zeros(0), settings, rng=rng)

    settings = dataclasses.replace(
        ONE_STEP, noise_multiplier=3.0, clip_norm=0.5, learning_rate=2.0, expected_examples=10
    )
    assert_gaussian(sample, stddev=3.0 * 0.5 * 2.0 / 10)


def scores_of_steps(
    settings: NoisyGradientSteps, num_runs: int, *, size: float = 4.0
) -> tuple[FloatArray, FloatArray]:
    """The weight that an example would move, over many runs with and without it."""
    features, labels = np.array([[size, 0.0]]), np.array([1.0])
    runs = []
    for offset, num_rows in ((0, 1), (num_runs, 0)):
        runs.append(
            np.array(
                [
                    train_privately(
                        features[:num_rows],
                        labels[:num_rows],
                        settings,
                        rng=SeededNoise(offset + number),
                    )[0]
                    for number in range(num_runs)
                ]
            )
        )
    return runs[0], runs[1]


def test_the_trained_weights_keep_the_claim_and_half_the_noise_does_not() -> None:
    with_example, without = scores_of_steps(ONE_STEP, 4000)
    result = audit_profile(with_example, without, CLAIM, SURE)
    assert not result.is_violated
    assert result.epsilon_lower_bound > 0.5
    half = dataclasses.replace(ONE_STEP, noise_multiplier=0.5)
    assert audit_profile(*scores_of_steps(half, 4000), CLAIM, SURE).is_violated
    # An example that is clipped to twice the norm that the noise is for.
    loose = dataclasses.replace(ONE_STEP, clip_norm=2.0, noise_multiplier=0.5)
    assert audit_profile(*scores_of_steps(loose, 4000), CLAIM, SURE).is_violated


def test_all_steps_together_meet_the_target_and_less_noise_does_not() -> None:
    settings = NoisyGradientSteps.for_epsilon(1.5, 1e-5, expected_examples=100)
    spent = pld_epsilon(settings.event(), 1e-5, Adjacency.ADD_OR_REMOVE)
    assert 1.49 < spent <= 1.5
    less = dataclasses.replace(settings, noise_multiplier=0.95 * settings.noise_multiplier)
    assert pld_epsilon(less.event(), 1e-5, Adjacency.ADD_OR_REMOVE) > 1.5


def test_without_clip_and_noise_private_training_is_plain_training() -> None:
    features, labels = examples(50, 5)
    plain = train_plainly(features, labels, num_steps=20, learning_rate=0.5)
    settings = NoisyGradientSteps(
        noise_multiplier=1e-6,
        expected_examples=50,
        num_steps=20,
        learning_rate=0.5,
        clip_norm=100.0,
    )
    found = train_privately(features, labels, settings, rng=SeededNoise(1))
    assert found == pytest.approx(plain, abs=1e-4)
    assert np.mean(labels * (features @ plain) > 0) > 0.6


def test_sums_are_divided_by_a_public_number_not_by_that_of_the_examples() -> None:
    features = np.full((10, 1), 2.0)
    settings = NoisyGradientSteps(
        noise_multiplier=1e-6, expected_examples=40, num_steps=1, clip_norm=10.0
    )
    found = train_privately(features, np.ones(10), settings, rng=SeededNoise(1))
    # Ten gradients of -1 each, over 40.
    assert found == pytest.approx([0.25], abs=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"noise_multiplier": 0.0},
        {"noise_multiplier": math.inf},
        {"clip_norm": 0.0},
        {"num_steps": 0},
        {"learning_rate": 0.0},
        {"expected_examples": 0},
    ],
)
def test_steps_out_of_range_are_refused(settings: dict[str, float]) -> None:
    given = {"noise_multiplier": 1.0, "expected_examples": 10} | settings
    with pytest.raises(ConfigError, match=next(iter(settings))):
        NoisyGradientSteps(**given)  # type: ignore[arg-type]
