import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statistical.randomizer_checks import assert_follows, assert_rejects
from tulle.errors import ConfigError
from tulle.select.auctions import FloatArray
from tulle.select.mechanisms.noisy_max_probs import (
    NoiseKind,
    first_candidate_probs,
    noisy_max_probs,
    unit_nodes,
)

NUM_DRAWS = 1_000_000


def row_probs(scores: list[float], rate: float, noise: NoiseKind) -> FloatArray:
    return noisy_max_probs(np.array([scores]), rate, noise)[0]


@pytest.mark.parametrize(
    ("scores", "rate", "noise", "expected"),
    [
        (
            [0, 0.3, 0.7, 1],
            2,
            NoiseKind.EXPONENTIAL,
            [0.0512528, 0.0967067, 0.2409973, 0.6110432],
        ),
        ([0, 0.5, 1, 2], 1, NoiseKind.EXPONENTIAL, [0.0552627, 0.0937771, 0.1628868, 0.6880735]),
        ([0, 0.5, 1, 2], 1, NoiseKind.GUMBEL, [0.0783941, 0.1292501, 0.2130973, 0.5792586]),
    ],
)
def test_chances_have_their_known_values(
    scores: list[float], rate: float, noise: NoiseKind, expected: list[float]
) -> None:
    assert row_probs(scores, rate, noise) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize("num_candidates", [1, 2, 3, 7, 25, 40])
@pytest.mark.parametrize("rate", [0.0, 0.1, 3.0, 28.0])
def test_chances_add_up_to_one(noise: NoiseKind, num_candidates: int, rate: float) -> None:
    scores = np.random.default_rng(1).random((50, num_candidates))
    probs = noisy_max_probs(scores, rate, noise)
    assert np.abs(probs.sum(axis=1) - 1).max() < 1e-13
    assert probs.min() > 0


def exact_flip_probs(odds: list[Fraction]) -> list[Fraction]:
    """The integral of the product of 1 - q_j u as a polynomial, with exact fractions."""
    probs = []
    for place, own in enumerate(odds):
        coefficients = [Fraction(1)]
        for other in odds[:place] + odds[place + 1 :]:
            shifted = [Fraction(0), *(-other * value for value in coefficients)]
            coefficients = [
                a + b for a, b in zip([*coefficients, Fraction(0)], shifted, strict=True)
            ]
        probs.append(own * sum(value / (power + 1) for power, value in enumerate(coefficients)))
    return probs


@pytest.mark.parametrize("num_candidates", [2, 5, 10, 15])
def test_permute_and_flip_equals_the_integral_in_exact_fractions(num_candidates: int) -> None:
    generator = np.random.default_rng(num_candidates)
    for rate in (0.5, 5.0, 28.0):
        scores = generator.random(num_candidates)
        odds = [Fraction(math.exp(-rate * (scores.max() - s))) for s in scores.tolist()]
        exact = [float(prob) for prob in exact_flip_probs(odds)]
        np.testing.assert_allclose(
            row_probs(scores.tolist(), rate, NoiseKind.EXPONENTIAL), exact, rtol=3e-14
        )


@pytest.mark.parametrize("num_candidates", [100, 1000])
def test_permute_and_flip_stays_exact_for_many_candidates(num_candidates: int) -> None:
    # Of equal scores each has 1 / n; one that is worse than all others by t has e^-t / n.
    equal = np.zeros((1, num_candidates))
    probs = noisy_max_probs(equal, 1.0, NoiseKind.EXPONENTIAL)
    np.testing.assert_allclose(probs, 1 / num_candidates, rtol=1e-12)
    spread = 10.0
    scores = np.full((1, num_candidates), spread)
    scores[0, 0] = 0.0
    loser = first_candidate_probs(scores, 1.0, NoiseKind.EXPONENTIAL)[0]
    assert loser == pytest.approx(math.exp(-spread) / num_candidates, rel=1e-12)
    winner = noisy_max_probs(spread - scores, 1.0, NoiseKind.EXPONENTIAL)[0, 0]
    # Its noise exceeds the largest of the others' less t.
    exact = -math.expm1(num_candidates * math.log1p(-math.exp(-spread)))
    assert winner == pytest.approx(exact * math.exp(spread) / num_candidates, rel=1e-12)


def laplace_prob(scores: list[float], place: int) -> float:
    """By mpmath's quadrature between the scores, with densities of its own."""

    def share(z: float) -> float:
        return mpmath.exp(z) / 2 if z < 0 else 1 - mpmath.exp(-z) / 2

    def density(y: float) -> float:
        others = [share(y - s) for j, s in enumerate(scores) if j != place]
        return mpmath.exp(-abs(y - scores[place])) / 2 * mpmath.fprod(others)

    with mpmath.workdps(30):
        edges = [-mpmath.inf, *sorted(set(scores)), mpmath.inf]
        return float(mpmath.quad(density, edges))


@pytest.mark.parametrize("scores", [[0.0, 3.0], [1.0, 1.0, 1.0], [0.0, 2.5, 9.0, 9.0, 4.0, 20.0]])
def test_laplace_chances_equal_another_quadrature(scores: list[float]) -> None:
    exact = [laplace_prob(scores, place) for place in range(len(scores))]
    np.testing.assert_allclose(row_probs(scores, 1.0, NoiseKind.LAPLACE), exact, rtol=1e-12)


@pytest.mark.parametrize("noise", NoiseKind)
def test_a_hopeless_candidate_leaves_the_others_as_they_are(noise: NoiseKind) -> None:
    probs = row_probs([0.0, 5_000.0, 5_001.0], 1.0, noise)
    np.testing.assert_allclose(probs[1:], row_probs([0.0, 1.0], 1.0, noise), rtol=1e-12)
    assert probs[0] < 1e-290


def test_two_laplace_scores_have_the_closed_form() -> None:
    for gap in (0.0, 0.5, 4.0, 30.0):
        lower = row_probs([gap, 0.0], 1.0, NoiseKind.LAPLACE)[1]
        assert lower == pytest.approx(math.exp(-gap) * (0.5 + gap / 4), rel=1e-13)


@pytest.mark.parametrize("noise", NoiseKind)
def test_one_candidates_chance_is_that_of_all(noise: NoiseKind) -> None:
    scores = np.random.default_rng(2).random((300, 9))
    rates = np.linspace(0, 20, 300)
    np.testing.assert_allclose(
        first_candidate_probs(scores, rates, noise),
        noisy_max_probs(scores, rates, noise)[:, 0],
        rtol=1e-13,
    )


def draw_noise(noise: NoiseKind, shape: tuple[int, int], seed: int) -> FloatArray:
    generator = np.random.default_rng(seed)
    if noise is NoiseKind.GUMBEL:
        return generator.gumbel(size=shape)
    if noise is NoiseKind.LAPLACE:
        return generator.laplace(size=shape)
    return generator.exponential(size=shape)


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize("num_candidates", [2, 5, 15])
def test_chances_are_those_of_drawing_noise(noise: NoiseKind, num_candidates: int) -> None:
    scores, rate = np.linspace(0, 1, num_candidates), 4.0
    counts = np.zeros(num_candidates, np.int64)
    for part in range(10):
        drawn = draw_noise(noise, (NUM_DRAWS // 10, num_candidates), seed=part)
        counts += np.bincount((rate * scores + drawn).argmax(axis=1), minlength=num_candidates)
    assert_follows(counts, row_probs(scores.tolist(), rate, noise).tolist())
    assert_rejects(counts, row_probs(scores.tolist(), 1.05 * rate, noise).tolist())


def test_exponential_noise_is_permute_and_flip() -> None:
    scores, rate = np.array([0.0, 0.4, 0.7, 1.0]), 3.0
    generator = np.random.default_rng(7)
    orders = generator.permuted(np.tile(np.arange(4), (NUM_DRAWS, 1)), axis=1)
    heads = generator.random((NUM_DRAWS, 4)) < np.exp(rate * (scores[orders] - scores.max()))
    first = heads.argmax(axis=1)  # the best one's coin always shows heads
    counts = np.bincount(orders[np.arange(NUM_DRAWS), first], minlength=4)
    assert_follows(counts, row_probs(scores.tolist(), rate, NoiseKind.EXPONENTIAL).tolist())
    assert_rejects(counts, row_probs(scores.tolist(), 1.05 * rate, NoiseKind.EXPONENTIAL).tolist())
    assert_rejects(counts, row_probs(scores.tolist(), rate, NoiseKind.GUMBEL).tolist())


@settings(max_examples=150)
@given(
    noise=st.sampled_from(list(NoiseKind)),
    scores=st.lists(st.floats(0, 20), min_size=2, max_size=8),
    rise=st.floats(0, 5),
)
def test_more_score_makes_a_candidate_likelier_and_its_rivals_less(
    noise: NoiseKind, scores: list[float], rise: float
) -> None:
    before = row_probs(scores, 1.0, noise)
    after = row_probs([scores[0] + rise, *scores[1:]], 1.0, noise)
    assert after[0] >= before[0] * (1 - 1e-12)
    assert np.all(after[1:] <= before[1:] * (1 + 1e-12))


@pytest.mark.parametrize("rate", [0.5, 2.0, 10.0])
def test_at_one_rate_permute_and_flip_is_worth_at_least_gumbel_noise(rate: float) -> None:
    scores = np.random.default_rng(3).random((500, 12))
    flip = (noisy_max_probs(scores, rate, NoiseKind.EXPONENTIAL) * scores).sum(axis=1)
    gumbel = (noisy_max_probs(scores, rate, NoiseKind.GUMBEL) * scores).sum(axis=1)
    assert np.all(flip > gumbel)


def test_permute_and_flip_is_not_of_bounded_range_but_gumbel_noise_is() -> None:
    def losses(noise: NoiseKind) -> FloatArray:
        return np.log(row_probs([0.0, 0.0], 1.0, noise) / row_probs([1.0, -1.0], 1.0, noise))

    assert losses(NoiseKind.EXPONENTIAL) == pytest.approx([-0.6230813, 2.0], abs=1e-7)
    assert np.ptp(losses(NoiseKind.EXPONENTIAL)) > 2.6
    assert np.ptp(losses(NoiseKind.GUMBEL)) == pytest.approx(2.0)


def test_float32_scores_are_refused() -> None:
    with pytest.raises(ConfigError, match="float64"):
        noisy_max_probs(np.zeros((1, 3), np.float32), 1.0, NoiseKind.GUMBEL)


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 8, 13, 60, 500])
def test_powers_are_integrated_exactly_up_to_the_degree(num_nodes: int) -> None:
    nodes, weights = unit_nodes(num_nodes)
    assert nodes.min() > 0
    assert nodes.max() < 1
    for power in {0, 1, num_nodes, 2 * num_nodes - 1}:
        assert weights @ nodes**power == pytest.approx(1 / (power + 1), rel=2e-13)
    # One degree more is not.
    if num_nodes <= 8:
        wrong = weights @ nodes ** (2 * num_nodes)
        assert abs(wrong * (2 * num_nodes + 1) - 1) > 1e-10


@pytest.mark.parametrize("num_nodes", [1, 4, 20])
def test_nodes_are_those_of_numpy(num_nodes: int) -> None:
    nodes, weights = unit_nodes(num_nodes)
    expected_nodes, expected_weights = np.polynomial.legendre.leggauss(num_nodes)
    order = np.argsort(nodes)
    np.testing.assert_allclose(nodes[order], (expected_nodes + 1) / 2, rtol=1e-13)
    np.testing.assert_allclose(weights[order], expected_weights / 2, rtol=1e-12)
