import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.accounting.profiles import (
    Profile,
    discrete_gaussian_profile,
    discrete_laplace_profile,
    epsilon_delta_profile,
    interpolated_profile,
    laplace_profile,
    three_point_profile,
)
from unit.accounting.hockey_stick import discrete_delta, divergence, laplace_delta, log_laplace


def grid_to(reach: float) -> np.ndarray:
    return reach * np.array([0.0, 1e-6, 0.01, 0.2, 0.5, 0.9, 0.999, 1.0, 1.001, 7.0])


def both_orders(profile: Profile, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return profile.forward(epsilons), profile.swapped().forward(epsilons)


@pytest.mark.parametrize("distance", [1e-4, 0.1, 1.0, 2.0, 20.0, 400.0])
def test_laplace_is_the_integral(distance: float) -> None:
    epsilons = grid_to(distance)
    forward, backward = both_orders(laplace_profile(distance), epsilons)
    expected = laplace_delta({distance: 1.0}, {0: 1.0}, 1.0, epsilons)
    np.testing.assert_allclose(forward, expected, rtol=1e-4, atol=1e-12)
    np.testing.assert_array_equal(forward, backward)


@pytest.mark.parametrize("distance", [1e-12, 0.3, 30.0, 1e6])
def test_laplace_at_zero_is_the_total_variation(distance: float) -> None:
    assert laplace_profile(distance).forward(np.zeros(1))[0] == pytest.approx(
        -math.expm1(-distance / 2), rel=1e-14
    )


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 7.3, 40.0])
@pytest.mark.parametrize("distance", [1, 2, 3, 10])
def test_discrete_laplace_is_the_sum(scale: float, distance: int) -> None:
    profile = discrete_laplace_profile(scale, distance)
    epsilons = grid_to(distance / scale)
    expected = discrete_delta({distance: 1.0}, {0: 1.0}, scale, epsilons, power=1)
    reverse = discrete_delta({0: 1.0}, {distance: 1.0}, scale, epsilons, power=1)
    np.testing.assert_allclose(profile.forward(epsilons), expected, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(profile.swapped().forward(epsilons), reverse, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("scale", [1e6, 1e9, 1e12])
def test_discrete_laplace_keeps_its_digits_at_large_scales(scale: float) -> None:
    for distance in (1, 2):
        at_zero = discrete_laplace_profile(scale, distance).forward(np.zeros(1))[0]
        # Mass of |distance| central points: tanh(1 / (2 scale)) each.
        assert at_zero == pytest.approx(distance * math.tanh(0.5 / scale), rel=1e-9 + 2 / scale)


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 7.3, 100.0])
@pytest.mark.parametrize("distance", [1, 2, 5])
def test_discrete_gaussian_is_the_sum(scale: float, distance: int) -> None:
    profile = discrete_gaussian_profile(scale, distance)
    mean_loss = distance**2 / (2 * scale**2)
    epsilons = np.concatenate((grid_to(mean_loss), mean_loss + distance / scale * np.arange(7)))
    rounding = 1e-15 * (1 + epsilons)
    in_range = epsilons < 700
    for order, (p, q) in enumerate([({distance: 1.0}, {0: 1.0}), ({0: 1.0}, {distance: 1.0})]):
        expected = discrete_delta(p, q, scale, epsilons, power=2)
        got = both_orders(profile, epsilons)[order]
        assert np.all(got >= expected * (1 - 1e-9) - rounding)
        assert np.all(got[in_range] <= (expected * (1 + 1e-9) + rounding)[in_range])


@pytest.mark.parametrize("epsilon", [1e-6, 0.5, 3.0, 50.0, 1e6])
@pytest.mark.parametrize("num_values", [2, 3, 100])
def test_three_points_are_randomized_response(epsilon: float, num_values: int) -> None:
    truth = 1 / (1 + (num_values - 1) * math.exp(-epsilon))
    others = [-epsilon] * (num_values - 2)
    log_p, log_q = np.array([0.0, -epsilon, *others]), np.array([-epsilon, 0.0, *others])
    at = grid_to(epsilon)
    expected = truth * divergence(log_p, log_q, at)
    np.testing.assert_allclose(
        three_point_profile(epsilon, truth).forward(at), expected, rtol=1e-9, atol=1e-15
    )


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.3), (1.0, 0.0), (1.0, 1e-12), (5.0, 0.9)])
def test_epsilon_delta_is_a_response_that_sometimes_tells_all(epsilon: float, delta: float) -> None:
    truth = (1 - delta) / (1 + math.exp(-epsilon))
    p = np.array([delta, 0.0, truth, 1 - delta - truth])
    q = np.array([0.0, delta, 1 - delta - truth, truth])
    at = np.array([0.0, 0.1, epsilon / 2, epsilon, epsilon + 1, 300.0])
    expected = [np.maximum(0.0, p - np.exp(e) * q).sum() for e in at]
    got = epsilon_delta_profile(epsilon, delta).forward(at)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    "profile",
    [
        laplace_profile(1.5),
        discrete_laplace_profile(2.0, 3),
        discrete_gaussian_profile(2.0, 3),
        three_point_profile(1.0, 0.6),
        epsilon_delta_profile(1.0, 1e-3),
    ],
)
def test_delta_falls_and_is_zero_from_the_pure_epsilon_on(profile: Profile) -> None:
    epsilons = np.linspace(0.0, 40.0, 4001)
    for order in both_orders(profile, epsilons):
        assert np.all(np.diff(order) <= 0)
        assert np.all((order >= 0) & (order <= 1))
        if math.isfinite(profile.pure_epsilon):
            assert np.all(order[epsilons >= profile.pure_epsilon] == 0)
            assert np.all(order[epsilons < profile.pure_epsilon] > 0)


@settings(max_examples=60)
@given(
    st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=3),
    st.floats(0.1, 4.0),
    st.floats(0.0, 0.99),
)
def test_laplace_split_over_numbers_is_never_worse(
    shares: list[float], distance: float, epsilon_share: float
) -> None:
    """The loss of a split is a sum of losses; convolve them exactly on a grid of losses."""
    parts = [share / sum(shares) * distance for share in shares]
    epsilon = epsilon_share * distance
    split = split_laplace_delta(parts, epsilon)
    assert split <= laplace_profile(distance).forward(np.array([epsilon]))[0] + 1e-12


def split_laplace_delta(parts: list[float], epsilon: float, points: int = 2001) -> float:
    """Losses rounded down to a common grid: at most the true delta, and close to it."""
    width = sum(parts) / points
    total = np.ones(1)
    offset = 0
    for part in parts:
        steps = max(1, math.floor(part / width))
        # P(loss >= l) for noise moved by `part`: loss = part - 2x inside, +-part outside.
        edges = width * np.arange(-steps, steps + 1)
        at_least = np.where(edges <= -part, 1.0, 1 - 0.5 * np.exp(-(part - edges) / 2))
        at_least[0] = 1.0
        masses = at_least - np.append(at_least[1:], 0.0)
        total, offset = np.convolve(total, masses), offset - steps
    losses = width * (offset + np.arange(total.size))
    return float((total * -np.expm1(np.minimum(0.0, epsilon - losses))).sum())


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.9, 1.5])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_laplace_in_two_dimensions_is_never_worse(epsilon: float, share: float) -> None:
    grid = np.linspace(-25, 27, 2601)
    log_step = math.log(grid[1] - grid[0])
    first = log_laplace(grid, {2 * share: 1.0}, 1.0)[:, None] + log_step
    second = log_laplace(grid, {2 * (1 - share): 1.0}, 1.0)[None, :] + log_step
    zero = log_laplace(grid, {0: 1.0}, 1.0) + log_step
    split = divergence(first + second, zero[:, None] + zero[None, :], [epsilon])[0]
    whole = laplace_profile(2.0).forward(np.array([epsilon]))[0]
    assert split <= whole * (1 + 1e-3)
    assert split > 0.5 * whole or epsilon > 1


@pytest.mark.parametrize("parts", [(1, 1), (1, 2), (1, 1, 1), (2, 1, 1)])
@pytest.mark.parametrize("scale", [0.7, 2.0])
def test_discrete_laplace_split_over_numbers_is_never_worse(
    parts: tuple[int, ...], scale: float
) -> None:
    grid = np.arange(-20, 24, dtype=np.float64)
    log_norm = math.log(math.tanh(0.5 / scale))
    log_p, log_q = np.zeros((1,)), np.zeros((1,))
    for part in parts:
        log_p = np.add.outer(log_p, -np.abs(grid - part) / scale + log_norm).ravel()
        log_q = np.add.outer(log_q, -np.abs(grid) / scale + log_norm).ravel()
    epsilons = np.linspace(0.0, sum(parts) / scale, 9)
    split = divergence(log_p, log_q, epsilons)
    whole = discrete_laplace_profile(scale, sum(parts)).forward(epsilons)
    assert np.all(split <= whole * (1 + 1e-9) + 1e-12)


def test_chords_lie_above_the_curve_they_interpolate() -> None:
    exact = laplace_profile(3.0).forward
    points = np.linspace(0.0, 3.0, 9)
    chords = interpolated_profile(points, exact(points)).forward
    fine = np.linspace(0.0, 5.0, 1001)
    assert np.all(chords(fine) >= exact(fine) - 1e-16)
    np.testing.assert_allclose(chords(points), exact(points), atol=1e-16)


def test_chords_between_points_far_apart_do_not_overflow() -> None:
    profile = interpolated_profile(np.array([0.0, 2000.0, 9000.0]), np.array([0.5, 0.1, 0.01]))
    at = np.array([0.0, 1000.0, 1999.0, 2000.0, 8999.0, 9000.0, 1e5])
    share = math.exp(-1)
    expected = [0.5, 0.5, 0.5 - 0.4 * share, 0.1, 0.1 - 0.09 * share, 0.01, 0.01]
    np.testing.assert_allclose(profile.forward(at), expected, rtol=1e-12)


def test_beyond_the_last_known_point_delta_stays() -> None:
    profile = interpolated_profile(np.array([0.0, 1.0]), np.array([0.5, 0.125]))
    np.testing.assert_array_equal(profile.forward(np.array([1.0, 2.0, 1e6])), 0.125)


def test_the_worst_order_is_the_larger_one_and_swapping_twice_changes_nothing() -> None:
    profile = Profile(lambda e: 0.5 * np.exp(-e), lambda e: 0.4 * np.exp(-e / 2), 3.0)
    epsilons = np.array([0.0, 5.0])
    np.testing.assert_allclose(profile.worst(epsilons), [0.5, 0.4 * math.exp(-2.5)])
    np.testing.assert_allclose(profile.swapped().worst(epsilons), profile.worst(epsilons))
    assert profile.swapped().swapped() == profile
