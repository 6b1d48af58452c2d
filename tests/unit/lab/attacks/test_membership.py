"""Membership: rates by brute force; no noise breaks the bound that private models keep."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tulle.accounting.accountant import privacy_curve
from tulle.audit.profile import ProfileAuditConfig, audit_profile
from tulle.errors import ConfigError, DataError
from tulle.lab.attacks.bounds import true_positive_ceilings
from tulle.lab.attacks.membership import (
    FALSE_POSITIVE_RATES,
    FloatArray,
    MembershipConfig,
    MembershipResult,
    Trainer,
    _draw_candidates,
    _private_trainer,
    area_under_curve,
    attack_by_membership,
    true_positive_rates,
)
from tulle.lab.attacks.small_classifiers import (
    NoisyGradientSteps,
    PlainGradientSteps,
    train_plainly,
)
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
    plain = PlainGradientSteps(num_steps=60)
    scores = one_candidate_a_model(lambda x, y, _: train_plainly(x, y, plain), 1000)
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
