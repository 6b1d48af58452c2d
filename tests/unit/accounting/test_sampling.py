import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.curve import ComposedCurve
from tulle.accounting.profiles import (
    Profile,
    discrete_laplace_profile,
    gaussian_profile,
    laplace_profile,
)
from tulle.accounting.sampling import (
    MOST_ROWS_PER_UNIT,
    fixed_size_replace_profile,
    mixed_profile,
    poisson_gaussian_profile,
    poisson_remove_profile,
    poisson_replace_profile,
    rows_used_weights,
    truncation_profile,
)
from tulle.errors import ConfigError
from tulle.privacy.events import Gaussian, PoissonSampled, TruncatedPoissonSampled
from tulle.privacy.units import Adjacency
from unit.accounting.hockey_stick import (
    discrete_delta,
    divergence,
    exact_gaussian_delta,
    fixed_size_sums,
    gaussian_delta,
    laplace_delta,
    log_gaussian,
    poisson_sums,
    small_data_sets,
)

EPSILONS = np.array([0.0, 0.01, 0.1, 0.3, 0.7, 1.2, 2.0, 4.0])
PROBS = [1e-7, 0.01, 0.3, 0.9, 1.0]


@pytest.mark.parametrize("sampling_prob", PROBS)
def test_a_removed_laplace_row_has_the_exact_pair(sampling_prob: float) -> None:
    profile = poisson_remove_profile(laplace_profile(1.5), sampling_prob)
    without, mixed = {0: 1.0}, {0: 1 - sampling_prob, 1.5: sampling_prob}
    mixed = {shift: weight for shift, weight in mixed.items() if weight > 0}
    at = np.array([0.0, 0.2, 0.7, 0.99, 1.1]) * profile.pure_epsilon
    removed = laplace_delta(mixed, without, 1.0, at)
    added = laplace_delta(without, mixed, 1.0, at)
    np.testing.assert_allclose(profile.forward(at), removed, rtol=2e-3, atol=1e-13)
    np.testing.assert_allclose(profile.swapped().forward(at), added, rtol=2e-3, atol=1e-13)


@pytest.mark.parametrize("sampling_prob", PROBS)
@pytest.mark.parametrize("scale", [0.4, 3.0])
def test_a_removed_discrete_laplace_row_has_the_exact_pair(
    sampling_prob: float, scale: float
) -> None:
    profile = poisson_remove_profile(discrete_laplace_profile(scale, 2), sampling_prob)
    mixed = {s: w for s, w in ((0, 1 - sampling_prob), (2, sampling_prob)) if w > 0}
    at = np.array([0.0, 0.2, 0.7, 0.99, 1.1]) * profile.pure_epsilon
    removed = discrete_delta(mixed, {0: 1.0}, scale, at, power=1)
    added = discrete_delta({0: 1.0}, mixed, scale, at, power=1)
    np.testing.assert_allclose(profile.forward(at), removed, rtol=1e-6, atol=1e-15)
    np.testing.assert_allclose(profile.swapped().forward(at), added, rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("sampling_prob", [0.01, 0.3, 1.0])
def test_a_removed_gaussian_row_agrees_with_its_closed_form(sampling_prob: float) -> None:
    generic = poisson_remove_profile(gaussian_profile(1 / 0.8), sampling_prob)
    closed = poisson_gaussian_profile(sampling_prob, 0.8, 1, replace=False)
    for ours, theirs in ((generic, closed), (generic.swapped(), closed.swapped())):
        np.testing.assert_allclose(
            ours.forward(EPSILONS), theirs.forward(EPSILONS), rtol=1e-7, atol=1e-16
        )


@pytest.mark.parametrize("sampling_prob", [1e-9, 1e-7, 1e-3, 0.5])
@pytest.mark.parametrize("distance", [1e-8, 1e-3, 1.0, 800.0])
def test_the_pure_epsilon_is_amplified_to_the_last_digit(
    sampling_prob: float, distance: float
) -> None:
    expected = (
        math.log1p(sampling_prob * math.expm1(distance))
        if distance < 700
        else distance + math.log(sampling_prob)
    )
    for profile in (
        poisson_remove_profile(laplace_profile(distance), sampling_prob),
        fixed_size_replace_profile(laplace_profile(distance), sampling_prob),
    ):
        assert profile.pure_epsilon == pytest.approx(expected, rel=1e-9, abs=0)


Noise = Callable[[dict, dict, np.ndarray], np.ndarray]
NOISES: dict[str, tuple[Profile, Profile, Noise]] = {
    "laplace": (
        laplace_profile(1.0),
        laplace_profile(2.0),
        lambda p, q, at: laplace_delta(p, q, 1.0, at, points=60_000),
    ),
    "discrete laplace": (
        discrete_laplace_profile(1.5, 1),
        discrete_laplace_profile(1.5, 2),
        lambda p, q, at: discrete_delta(p, q, 1.5, at, power=1),
    ),
    "gaussian": (
        gaussian_profile(1 / 0.8),
        gaussian_profile(2 / 0.8),
        lambda p, q, at: gaussian_delta(p, q, 0.8, at, points_per_stddev=200),
    ),
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("sampling_prob", [1e-4, 0.05, 0.5, 1.0])
def test_the_bound_for_a_replaced_row_holds_for_all_contributions(
    noise: str, sampling_prob: float
) -> None:
    removed, replaced, delta = NOISES[noise]
    bound = poisson_replace_profile(removed, replaced, sampling_prob).forward(EPSILONS)
    for others, before, after in itertools.product((-1, 0), (-1, 0, 1), (-1, 0, 1)):
        p, q = (poisson_sums((others, row), sampling_prob) for row in (before, after))
        assert np.all(delta(p, q, EPSILONS) <= bound * (1 + 1e-3) + 1e-12)


@pytest.mark.parametrize("sampling_prob", [1e-7, 1e-3, 0.2, 0.9, 1.0])
@pytest.mark.parametrize("noise", [0.3, 1.0, 5.0])
def test_the_bound_is_never_below_the_tight_gaussian_pair(
    sampling_prob: float, noise: float
) -> None:
    bound = poisson_replace_profile(
        gaussian_profile(1 / noise), gaussian_profile(2 / noise), sampling_prob
    )
    tight = poisson_gaussian_profile(sampling_prob, noise, 1, replace=True)
    at = sampling_prob * EPSILONS
    assert np.all(bound.forward(at) >= tight.forward(at) * (1 - 1e-9) - 1e-17)


@pytest.mark.parametrize(("num_rows", "batch_size"), [(4, 2), (5, 3), (6, 2), (4, 4)])
@pytest.mark.parametrize("noise", ["gaussian", "discrete laplace"])
def test_the_fixed_size_bound_holds_for_every_small_data_set(
    num_rows: int, batch_size: int, noise: str
) -> None:
    _, replaced, delta = NOISES[noise]
    bound = fixed_size_replace_profile(replaced, batch_size / num_rows).forward(EPSILONS)
    for others in small_data_sets(num_rows - 1):
        for before, after in itertools.permutations((-1, 0, 1), 2):
            p, q = (fixed_size_sums((*others, row), batch_size) for row in (before, after))
            assert np.all(delta(p, q, EPSILONS) <= bound * (1 + 1e-3) + 1e-12)


def test_the_fixed_size_bound_is_attained_when_all_others_agree() -> None:
    bound = fixed_size_replace_profile(gaussian_profile(2 / 0.8), 0.5).forward(EPSILONS)
    attained = gaussian_delta(
        fixed_size_sums((-1, -1, -1, 1), 2), fixed_size_sums((-1, -1, -1, -1), 2), 0.8, EPSILONS
    )
    np.testing.assert_allclose(attained, bound, rtol=1e-4)


@pytest.mark.parametrize("others", [(-1, -1, -1), (1, 1, 1), (-1, 0, 1)])
def test_two_fixed_size_steps_hold_when_the_roles_swap(others: tuple[int, ...]) -> None:
    """The second step's contributions follow from the first output, in either order."""
    stddev = 0.8
    axis = np.arange(-7.0, 7.0, 0.02)
    high, low = (
        log_gaussian(axis, fixed_size_sums((*others, row), 2), stddev) + math.log(0.02)
        for row in (1, -1)
    )
    bound = ComposedCurve([(fixed_size_replace_profile(gaussian_profile(2 / stddev), 0.5), 2)])
    swaps = {
        "never": np.zeros(axis.size, bool),
        "always": np.ones(axis.size, bool),
        "if the first is large": axis > 0,
        "if the first is small": axis < 0,
    }
    for swap in swaps.values():
        second_p = np.where(swap[:, None], low[None, :], high[None, :])
        second_q = np.where(swap[:, None], high[None, :], low[None, :])
        log_p, log_q = high[:, None] + second_p, low[:, None] + second_q
        for p, q in ((log_p, log_q), (log_q, log_p)):
            at = [0.0, 0.5, 1.5, 3.0]
            claimed = np.array([bound.delta(e) for e in at])
            assert np.all(divergence(p, q, at) <= claimed * (1 + 1e-3))


def truncated_event(num_rows: int, sampling_prob: float, max_batch: int, rows: int, noise: float):
    return TruncatedPoissonSampled(
        sampling_prob=sampling_prob,
        num_rows=num_rows,
        max_batch_size=max_batch,
        event=Gaussian(noise_multiplier=noise),
        max_rows_per_unit=rows,
    )


TRUNCATIONS = [(4, 0.5, 2, 1), (6, 0.5, 3, 1), (5, 0.2, 1, 1), (5, 0.3, 3, 2), (6, 0.5, 4, 2)]


@pytest.mark.parametrize(("num_rows", "sampling_prob", "max_batch", "rows"), TRUNCATIONS)
@pytest.mark.parametrize("adjacency", [Adjacency.REPLACE, Adjacency.ADD_OR_REMOVE])
@pytest.mark.parametrize("noise", [0.5, 0.8, 4.0])
def test_truncation_holds_for_every_small_data_set(
    num_rows: int,
    sampling_prob: float,
    max_batch: int,
    rows: int,
    adjacency: Adjacency,
    noise: float,
) -> None:
    curve = privacy_curve(
        truncated_event(num_rows, sampling_prob, max_batch, rows, noise), adjacency
    )
    bound = np.array([curve.delta(float(e)) for e in EPSILONS])
    units: list[tuple[int, ...]] = list(itertools.combinations_with_replacement((-1, 1), rows))
    afters = [()] if adjacency is Adjacency.ADD_OR_REMOVE else [(0,) * rows, *units]
    for others in small_data_sets(num_rows - rows):
        for before, after in itertools.product(units, afters):
            p, q = (
                poisson_sums((*others, *unit), sampling_prob, max_batch) for unit in (before, after)
            )
            for first, second in ((p, q), (q, p)):
                found = gaussian_delta(first, second, noise, EPSILONS, points_per_stddev=40)
                assert np.all(found <= bound * (1 + 5e-3) + 1e-12)


def test_a_unit_may_own_fewer_rows_than_the_most_allowed() -> None:
    curve = privacy_curve(truncated_event(6, 0.5, 3, 2, 0.8), Adjacency.ADD_OR_REMOVE)
    bound = np.array([curve.delta(float(e)) for e in EPSILONS])
    for others in small_data_sets(5):
        p, q = (poisson_sums((*others, *unit), 0.5, 3) for unit in ((1,), ()))
        for first, second in ((p, q), (q, p)):
            found = gaussian_delta(first, second, 0.8, EPSILONS, points_per_stddev=40)
            assert np.all(found <= bound * (1 + 5e-3) + 1e-12)


def test_truncation_that_hardly_ever_happens_costs_hardly_anything() -> None:
    chance, _ = truncation_profile(100_000, 0.01, 1200, 1.0, 1)
    assert 0 < chance < 1e-8
    never, _ = truncation_profile(1000, 0.01, 1000, 1.0, 1)
    assert never == pytest.approx(0.01**999, abs=1e-300)


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("rows", [2, 3, 5])
def test_a_batch_without_room_for_the_unit_is_always_cut(rows: int, noise: float) -> None:
    """All of its rows turn round or push out others: a distance of twice their number."""
    chance, profile = truncation_profile(10, 0.5, rows - 1, noise, rows)
    assert chance == 1.0
    exact = [exact_gaussian_delta({rows: 1.0}, {-rows: 1.0}, noise, e) for e in EPSILONS]
    np.testing.assert_allclose(profile.forward(EPSILONS), exact, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("noise", [0.5, 4.0])
@pytest.mark.parametrize("max_batch", [2, 6])
def test_a_cut_batch_of_one_row_a_unit_is_one_of_fixed_size_at_a_distance_of_two(
    max_batch: int, noise: float
) -> None:
    """The row is in it with some chance, and then another row is not."""
    num_rows, prob = 20, 0.3
    chance, profile = truncation_profile(num_rows, prob, max_batch, noise, 1)
    sizes = np.arange(num_rows + 1)
    counts = np.array([math.comb(num_rows, j) for j in sizes])
    sizes_prob = counts * prob**sizes * (1 - prob) ** (num_rows - sizes)
    others = np.array([math.comb(num_rows - 1, j) for j in sizes[:-1]])
    others_prob = others * prob ** sizes[:-1] * (1 - prob) ** (num_rows - 1 - sizes[:-1])
    assert chance == pytest.approx(others_prob[max_batch:].sum(), rel=1e-12)
    inclusion = sizes_prob[max_batch + 1 :].sum() * max_batch / num_rows / chance
    exact = gaussian_delta(
        {0: 1 - inclusion, 2: inclusion}, {0: 1 - inclusion, -2: inclusion}, noise, EPSILONS
    )
    np.testing.assert_allclose(profile.forward(EPSILONS), exact, rtol=1e-5, atol=1e-12)


def test_a_public_coin_mixes_deltas_in_both_orders() -> None:
    first, second = poisson_gaussian_profile(0.1, 1.0, 1, replace=False), gaussian_profile(2.0)
    mixed = mixed_profile(first, second, 0.25)
    expected = 0.75 * first.forward(EPSILONS) + 0.25 * second.forward(EPSILONS)
    swapped = 0.75 * first.swapped().forward(EPSILONS) + 0.25 * second.forward(EPSILONS)
    np.testing.assert_allclose(mixed.forward(EPSILONS), expected, rtol=1e-14)
    np.testing.assert_allclose(mixed.swapped().forward(EPSILONS), swapped, rtol=1e-14)


def test_a_public_coin_mixes_the_chances_of_an_infinite_loss() -> None:
    first = Profile(np.zeros_like, infinite_prob=0.1)
    both_orders = Profile(np.zeros_like, np.zeros_like, infinite_prob=0.3)
    for second in (Profile(np.zeros_like, infinite_prob=0.3), both_orders):
        assert mixed_profile(first, second, 0.25).infinite_prob == pytest.approx(0.15)


@pytest.mark.parametrize("replace", [True, False])
def test_more_rows_than_can_be_accounted_are_refused(replace: bool) -> None:
    poisson_gaussian_profile(0.01, 1e3, MOST_ROWS_PER_UNIT, replace=replace)
    with pytest.raises(ConfigError, match=r"max_rows_per_unit=10001 must be <= 10000.* fewer rows"):
        poisson_gaussian_profile(0.01, 1e3, MOST_ROWS_PER_UNIT + 1, replace=replace)
    for event in (
        truncated_event(10**9, 1e-6, 10**6, 10**6, 1e3),
        PoissonSampled(
            sampling_prob=0.01, event=Gaussian(noise_multiplier=1.0), max_rows_per_unit=10**6
        ),
    ):
        with pytest.raises(ConfigError, match="max_rows_per_unit=1000000"):
            privacy_curve(event, Adjacency.REPLACE if replace else Adjacency.ADD_OR_REMOVE)


@pytest.mark.parametrize("max_rows", [1, 5, 20])
@pytest.mark.parametrize("sampling_prob", [1e-7, 0.3, 1.0])
def test_the_used_rows_are_binomial(max_rows: int, sampling_prob: float) -> None:
    weights = rows_used_weights(max_rows, sampling_prob)
    expected = [
        math.comb(max_rows, j) * sampling_prob**j * (1 - sampling_prob) ** (max_rows - j)
        for j in range(max_rows + 1)
    ]
    np.testing.assert_allclose(weights, expected, rtol=1e-11)
