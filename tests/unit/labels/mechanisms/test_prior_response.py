import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from statistical.randomizer_checks import ScriptedNoise, assert_private, exact_chances
from tulle.errors import ConfigError, DataError
from tulle.labels.mechanisms.class_response import BinaryResponse, ClassResponse
from tulle.labels.mechanisms.prior_response import (
    PriorResponse,
    best_num_reported,
    true_report_probs,
)
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.thresholds import log_ratio

SKEWED = np.array([0.05, 0.5, 0.03, 0.4, 0.02])


def best_true_report_prob(prior: np.ndarray, epsilon: float) -> float:
    """The most that any epsilon-private channel can reach, by linear programming."""
    size = len(prior)

    def at(label: int, report: int) -> int:
        return label * size + report

    rows = []
    for report in range(size):
        for one, other in itertools.permutations(range(size), 2):
            row = np.zeros(size**2)
            row[at(one, report)], row[at(other, report)] = 1.0, -math.exp(epsilon)
            rows.append(row)
    totals = np.kron(np.eye(size), np.ones(size))
    solved = linprog(
        -np.diag(prior).reshape(-1),
        A_ub=np.array(rows),
        b_ub=np.zeros(len(rows)),
        A_eq=totals,
        b_eq=np.ones(size),
        bounds=(0, 1),
        method="highs",
    )
    assert solved.status == 0
    return float(-solved.fun)


def zero_based_choice(prior: np.ndarray, epsilon: float) -> int:
    """The choice of public code that counts k from 0 in one place and from 1 in another."""
    mass = np.cumsum(np.sort(prior)[::-1])
    index = np.arange(len(prior))
    return int(np.argmax(mass / (1 + (index - 1) * math.exp(-epsilon)))) + 1


def random_cases(num_cases: int) -> list[tuple[np.ndarray, float]]:
    rng = np.random.default_rng(7)
    return [
        (rng.dirichlet(np.full(rng.integers(2, 6), 0.7)), float(rng.uniform(0.1, 4.0)))
        for _ in range(num_cases)
    ]


def test_no_private_channel_reports_the_truth_more_often() -> None:
    for prior, epsilon in random_cases(60):
        ours = float(true_report_probs(prior, epsilon).max())
        assert ours == pytest.approx(best_true_report_prob(prior, epsilon), abs=1e-7)


def test_the_stated_chance_of_a_true_report_is_that_of_the_channel() -> None:
    mechanism = PriorResponse(epsilon=1.0, prior=SKEWED)
    channel = mechanism.realised_channel()
    chance = sum(float(channel[y][y]) * weight for y, weight in enumerate(SKEWED))
    assert mechanism.true_report_prob() == pytest.approx(chance, rel=1e-12)


def test_counting_k_from_zero_would_choose_a_worse_k() -> None:
    losses = []
    for prior, epsilon in random_cases(120):
        chances = true_report_probs(prior, epsilon)[0]
        right, wrong = int(best_num_reported(prior, epsilon)[0]), zero_based_choice(prior, epsilon)
        losses.append(chances[right - 1] - chances[wrong - 1])
    assert min(losses) >= 0
    assert sum(loss > 1e-9 for loss in losses) >= 10
    assert max(losses) > 0.02


def test_k_is_one_based_on_a_case_worked_by_hand() -> None:
    # e^eps = 2: w = 0.5, 2/3 * 0.8, 2/4 * 1.0 = 0.5, 0.5333, 0.5.
    prior, epsilon = np.array([0.2, 0.5, 0.3]), math.log(2)
    np.testing.assert_allclose(true_report_probs(prior, epsilon)[0], [0.5, 1.6 / 3, 0.5])
    mechanism = PriorResponse(epsilon=epsilon, prior=prior)
    assert mechanism.num_reported.tolist() == [2]
    assert mechanism.describe()["reported_classes"] == [1, 2]


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5, 6.0])
def test_the_channel_is_private_for_all_labels_and_reports(epsilon: float) -> None:
    priors = np.random.default_rng(3).dirichlet(np.full(5, 0.8), size=20)
    mechanism = PriorResponse(epsilon=epsilon, prior=priors)
    assert len(set(mechanism.num_reported.tolist())) > 1
    for row in range(len(priors)):
        channel = mechanism.realised_channel(row)
        possible = [c for c in zip(*channel, strict=True) if any(c)]
        assert_private(list(zip(*possible, strict=True)), epsilon)
        assert len(possible) == mechanism.num_reported[row]
        realised = np.array([[float(chance) for chance in law] for law in channel])
        np.testing.assert_allclose(mechanism.channel_matrix(row), realised, rtol=1e-12)
        ratios = [max(column) / min(column) for column in possible]
        if len(possible) > 1:
            one = PriorResponse(epsilon=epsilon, prior=priors[[row]])
            assert one.realised_epsilon == pytest.approx(log_ratio(max(ratios)), rel=1e-14)
            assert one.realised_epsilon <= mechanism.realised_epsilon <= epsilon


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_the_sampler_has_exactly_the_realised_channel(epsilon: float) -> None:
    mechanism = PriorResponse(epsilon=epsilon, prior=SKEWED)
    channel = mechanism.realised_channel()
    reported = set(mechanism.describe()["reported_classes"])
    assert 1 < len(reported) < 5
    for label in range(5):

        def report(word: int, label: int = label) -> int:
            rng = ScriptedNoise([word])
            return int(mechanism.release(np.array([label]), rng=rng).labels[0])

        if label in reported:
            chances = exact_chances(report)
            expected = {c: p for c, p in enumerate(channel[label]) if p}
            assert chances == expected
        else:
            # A uniform draw takes a word modulo k, and draws again above a multiple of k.
            k = len(reported)
            assert [report(word) for word in range(2 * k)] == [report(w) for w in range(k)] * 2
            assert {report(word) for word in range(k)} == reported
            assert [p for p in channel[label] if p] == [Fraction(1, k)] * k


def test_one_prior_a_row_is_used_for_its_own_row() -> None:
    priors = np.array([[0.9, 0.06, 0.04], [0.02, 0.49, 0.49], [1 / 3, 1 / 3, 1 / 3]])
    mechanism = PriorResponse(epsilon=1.0, prior=np.repeat(priors, 5000, axis=0))
    noisy = mechanism.release(np.tile([0, 1, 2], 5000), rng=SeededNoise(1)).labels
    first, second, third = noisy.reshape(3, 5000)
    assert set(first.tolist()) == {0}
    assert set(second.tolist()) == {1, 2}
    assert set(third.tolist()) == {0, 1, 2}


def test_what_could_be_reported_is_the_top_of_the_ranking() -> None:
    priors = np.random.default_rng(6).dirichlet(np.ones(4), size=40)
    priors[0] = 0.25
    mechanism = PriorResponse(epsilon=0.7, prior=priors)
    for label in range(4):
        marks = mechanism.could_report(np.full(40, label))
        expected = [
            label in mechanism.ranking[row, : mechanism.num_reported[row]] for row in range(40)
        ]
        assert marks.tolist() == expected


@pytest.mark.parametrize("rate", [0.01, 0.0674, 0.108, 0.25])
def test_a_rare_binary_label_is_refused_where_the_output_would_be_constant(rate: float) -> None:
    prior = np.array([1 - rate, rate])
    limit = math.log((1 - rate) / rate)
    with pytest.raises(ConfigError, match=r"says nothing\. Use rr"):
        PriorResponse(epsilon=0.999 * limit, prior=prior)
    assert PriorResponse(epsilon=1.001 * limit, prior=prior).num_reported.tolist() == [2]
    with pytest.raises(ConfigError, match="Use rr"):
        PriorResponse(epsilon=0.9 * limit, prior=np.array([[0.5, 0.5], prior]))


def test_one_prior_that_makes_any_output_constant_is_refused() -> None:
    with pytest.raises(ConfigError, match="Use class-rr"):
        PriorResponse(epsilon=0.5, prior=np.array([0.9, 0.05, 0.05]))


def test_a_flat_prior_gives_plain_randomized_response() -> None:
    mechanism = PriorResponse(epsilon=1.0, prior=np.full(4, 0.25))
    plain = ClassResponse(epsilon=1.0, num_classes=4)
    assert mechanism.is_invertible
    assert mechanism.realised_channel() == plain.response.realised_channel()


def test_two_classes_have_a_target_and_a_channel() -> None:
    mechanism = PriorResponse(epsilon=2.0, prior=np.array([0.7, 0.3]))
    noisy = mechanism.release(np.arange(400) % 2, rng=SeededNoise(0))
    assert noisy.channel is not None
    assert noisy.targets is not None
    assert noisy.targets.tolist() == noisy.channel.debiased_targets(noisy.labels).tolist()
    # Ranked by the prior or not, the channel is that of plain randomized response.
    probs = BinaryResponse(epsilon=2.0).channel
    assert float(noisy.channel.prob_if_positive) == float(probs.prob_if_positive)


def test_reports_that_leave_out_classes_cannot_be_undone() -> None:
    mechanism = PriorResponse(epsilon=1.0, prior=SKEWED)
    noisy = mechanism.release(np.arange(20) % 5, rng=SeededNoise(0))
    assert noisy.targets is None
    assert noisy.noise_variance is None
    assert not mechanism.is_invertible


@pytest.mark.parametrize(
    "prior",
    [
        [1.0],
        [0.5, 0.6],
        [-0.1, 1.1],
        [math.nan, 1.0],
        [[0.5, 0.5], [0.5, 0.4]],
        [[[0.5, 0.5]]],
    ],
)
def test_priors_that_are_no_law_are_refused(prior: Any) -> None:
    with pytest.raises(ConfigError, match="prior"):
        PriorResponse(epsilon=1.0, prior=np.asarray(prior))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_epsilon_without_meaning_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        PriorResponse(epsilon=epsilon, prior=np.full(3, 1 / 3))


def test_labels_must_match_the_priors() -> None:
    mechanism = PriorResponse(epsilon=1.0, prior=np.full((4, 3), 1 / 3))
    bad: list[Callable[[], object]] = [
        lambda: mechanism.release(np.array([0, 1, 2]), rng=SeededNoise(0)),
        lambda: mechanism.release(np.array([0, 1, 2, 3]), rng=SeededNoise(0)),
        lambda: mechanism.release(np.zeros((4, 1), int), rng=SeededNoise(0)),
        lambda: mechanism.check_labels(np.array([0.5])),
    ]
    for act in bad:
        with pytest.raises(DataError):
            act()


def test_the_prior_cannot_be_changed_afterwards() -> None:
    prior = np.full(3, 1 / 3)
    mechanism = PriorResponse(epsilon=1.0, prior=prior)
    prior[0] = 9.0
    assert mechanism.prior.tolist() == [1 / 3] * 3
    with pytest.raises(ValueError, match="read-only"):
        mechanism.prior[0] = 9.0
