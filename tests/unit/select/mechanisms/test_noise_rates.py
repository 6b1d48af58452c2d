import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.select.auctions import FloatArray
from tulle.select.mechanisms.noise_rates import (
    box_epsilons,
    box_rates,
    equal_box_epsilon,
    equal_box_spread,
    usual_rates,
)
from tulle.select.mechanisms.noisy_max_probs import NoiseKind, noisy_max_probs


@pytest.mark.parametrize(
    ("noise", "num_candidates", "expected"),
    [
        (NoiseKind.GUMBEL, 15, 3.58580),
        (NoiseKind.EXPONENTIAL, 15, 3.88020),
        (NoiseKind.GUMBEL, 2, 2.00000),
        (NoiseKind.EXPONENTIAL, 2, 2.62308),
    ],
)
def test_exact_epsilon_has_its_known_values(
    noise: NoiseKind, num_candidates: int, expected: float
) -> None:
    assert equal_box_epsilon(noise, num_candidates, 2.0) == pytest.approx(expected, abs=5e-6)


def largest_log_ratio(noise: NoiseKind, states: FloatArray, rate: float) -> float:
    """Over all pairs of states and all choices."""
    logs = np.log(noisy_max_probs(states, rate, noise))
    return float((logs.max(axis=0) - logs.min(axis=0)).max())


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize("rate", [0.3, 1.0, 5.0])
def test_exact_epsilon_is_the_largest_over_all_vertices_of_the_box(
    noise: NoiseKind, rate: float
) -> None:
    generator = np.random.default_rng(5)
    for num_candidates in (2, 3, 5):
        lows = generator.random(num_candidates) * 3
        highs = lows + generator.random(num_candidates) * 2
        vertices = np.array(list(itertools.product(*zip(lows, highs, strict=True))))
        inside = lows + generator.random((500, num_candidates)) * (highs - lows)
        exact = float(box_epsilons(noise, lows[None], highs[None], np.array([rate]))[0])
        assert largest_log_ratio(noise, vertices, rate) == pytest.approx(exact, rel=1e-12)
        assert largest_log_ratio(noise, inside, rate) < exact


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize("num_candidates", [1, 2, 4, 15])
def test_a_shared_interval_is_a_box(noise: NoiseKind, num_candidates: int) -> None:
    lows = np.full((1, num_candidates), 0.7)
    for spread in (0.0, 0.01, 2.0, 9.0):
        boxed = box_epsilons(noise, lows, lows + 2.0, np.array([spread / 2]))[0]
        shared = equal_box_epsilon(noise, num_candidates, spread)
        assert shared == pytest.approx(float(boxed), rel=1e-12, abs=1e-15)


def test_gumbel_noise_with_centres_has_the_closed_form() -> None:
    centres, width, rate = np.array([[0.2, 1.0, 1.7]]), 0.8, 2.5
    least = float((np.exp(rate * centres) / np.exp(rate * centres).sum()).min())
    t = rate * width
    expected = t + math.log((least + (1 - least) * math.exp(t)) / (least * math.exp(t) + 1 - least))
    exact = box_epsilons(
        NoiseKind.GUMBEL, centres - width / 2, centres + width / 2, np.array([rate])
    )
    assert exact[0] == pytest.approx(expected, rel=1e-13)


@settings(max_examples=100)
@given(
    noise=st.sampled_from(list(NoiseKind)),
    epsilon=st.floats(0.01, 12),
    boxes=st.lists(st.tuples(st.floats(0, 3), st.floats(0.2, 2)), min_size=2, max_size=6),
)
def test_the_usual_rate_never_exceeds_epsilon(
    noise: NoiseKind, epsilon: float, boxes: list[tuple[float, float]]
) -> None:
    lows = np.array([[low for low, _ in boxes]])
    highs = lows + np.array([[width for _, width in boxes]])
    rates = usual_rates(lows, highs, epsilon)
    assert np.all(rates >= epsilon / (2 * (highs - lows).max()) * (1 - 1e-12))
    assert box_epsilons(noise, lows, highs, rates)[0] <= epsilon * (1 + 1e-12)


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_a_tight_rate_spends_epsilon_and_no_more(noise: NoiseKind, epsilon: float) -> None:
    generator = np.random.default_rng(9)
    num_rows = 5 if noise is NoiseKind.LAPLACE else 40
    for num_candidates in (2, 3, 8):
        lows = generator.random((num_rows, num_candidates))
        highs = lows + generator.uniform(0.3, 1.0, (num_rows, 1))
        rates = box_rates(noise, lows, highs, epsilon)
        spent = box_epsilons(noise, lows, highs, rates)
        assert np.all(spent <= epsilon * (1 - 0.9e-9))
        assert np.all(spent >= epsilon * (1 - 1e-6))
        assert np.all(rates >= usual_rates(lows, highs, epsilon) * (1 - 2e-9))


def test_candidates_too_far_behind_have_no_computed_ratio() -> None:
    lows = np.array([[0.0, 700.0]])
    with pytest.raises(ConfigError, match="leave out the candidates"):
        box_epsilons(NoiseKind.GUMBEL, lows, lows + 1, np.ones(1))


def test_rates_are_not_above_their_limit() -> None:
    lows, highs = np.zeros((2, 3)), np.ones((2, 3))
    rates = box_rates(NoiseKind.GUMBEL, lows, highs, 2.0, np.array([0.4, 1.05]))
    assert rates.tolist() == [0.4, 1.05]


def test_scores_that_cannot_change_need_no_rate() -> None:
    fixed = np.array([[1.0, 2.0, 3.0]])
    assert box_rates(NoiseKind.EXPONENTIAL, fixed, fixed, 1.0).tolist() == [0.0]


@pytest.mark.parametrize(
    ("noise", "num_candidates", "epsilon", "gain"),
    [
        (NoiseKind.GUMBEL, 2, 1.0, 2.0),
        (NoiseKind.GUMBEL, 2, 5.0, 2.0),
        (NoiseKind.GUMBEL, 4, 1.0, 1.35),
        (NoiseKind.GUMBEL, 4, 5.0, 1.58),
        (NoiseKind.GUMBEL, 15, 1.0, 1.07),
        (NoiseKind.GUMBEL, 15, 5.0, 1.17),
        (NoiseKind.EXPONENTIAL, 2, 1.0, 1.24),
        (NoiseKind.EXPONENTIAL, 2, 5.0, 1.73),
        (NoiseKind.EXPONENTIAL, 15, 1.0, 1.00),
        (NoiseKind.EXPONENTIAL, 15, 5.0, 1.09),
    ],
)
def test_the_gain_over_the_usual_rate_has_its_known_values(
    noise: NoiseKind, num_candidates: int, epsilon: float, gain: float
) -> None:
    spread = equal_box_spread(noise, num_candidates, epsilon)
    assert spread / (epsilon / 2) == pytest.approx(gain, abs=0.0051)


@pytest.mark.parametrize("num_candidates", [2, 5, 60])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 15.0])
def test_a_shared_rate_is_on_the_safe_side_in_many_digits(
    num_candidates: int, epsilon: float
) -> None:
    with mpmath.workdps(50):
        t = mpmath.mpf(equal_box_spread(NoiseKind.EXPONENTIAL, num_candidates, epsilon))
        flip = 2 * t + mpmath.log(1 - (1 - mpmath.exp(-t)) ** num_candidates)
        t = mpmath.mpf(equal_box_spread(NoiseKind.GUMBEL, num_candidates, epsilon))
        others = num_candidates - 1
        gumbel = mpmath.log((1 + others * mpmath.exp(t)) / (1 + others * mpmath.exp(-t)))
        for spent in (flip, gumbel):
            assert epsilon * (1 - 1.1e-9) < spent < epsilon


def test_a_check_of_tightness_sees_a_rate_that_is_too_high() -> None:
    lows = np.array([[0.0, 0.3, 0.5, 1.0]])
    highs = lows + 1
    for noise in NoiseKind:
        rates = box_rates(noise, lows, highs, 2.0)
        vertices = np.array(list(itertools.product(*zip(lows[0], highs[0], strict=True))))
        assert largest_log_ratio(noise, vertices, float(rates[0])) < 2.0
        assert largest_log_ratio(noise, vertices, 1.001 * float(rates[0])) > 2.0
        # The rate for changes that all go one way spends nearly twice epsilon.
        assert largest_log_ratio(noise, vertices, 2.0) > 3.0
