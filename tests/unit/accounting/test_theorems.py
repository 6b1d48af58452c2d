import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.curve import NoPrivacyCurve
from tulle.accounting.theorems import (
    amplify_by_subsampling,
    compose_advanced,
    compose_basic,
    compose_parallel,
    group_epsilon,
)
from tulle.errors import ConfigError
from tulle.privacy import events
from tulle.privacy.events import EpsilonDelta, Gaussian, PoissonSampled, Repeated
from tulle.privacy.guarantee import group_parameters
from tulle.privacy.units import Adjacency

REPLACE, REMOVE = Adjacency.REPLACE, Adjacency.ADD_OR_REMOVE


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 0.0), (0.5, 1e-8), (2.0, 1e-4)])
@pytest.mark.parametrize("count", [2, 10, 300])
def test_the_theorems_are_never_below_the_accountant(
    epsilon: float, delta: float, count: int
) -> None:
    curve = privacy_curve(
        Repeated(event=EpsilonDelta(epsilon=epsilon, delta=delta), count=count), REPLACE
    )
    for total_epsilon, total_delta in (
        compose_basic([(epsilon, delta)] * count),
        compose_advanced((epsilon, delta), count, 1e-6),
        compose_advanced((epsilon, delta), count, 0.1),
    ):
        assert curve.delta(total_epsilon) <= total_delta * (1 + 1e-6) + 1e-11


def test_advanced_composition_is_the_published_formula() -> None:
    epsilon, count, extra = 0.1, 1000, 1e-6
    drift = count * epsilon * (math.exp(epsilon) - 1) / (math.exp(epsilon) + 1)
    spread = epsilon * math.sqrt(2 * count * math.log(1 / extra))
    total, delta = compose_advanced((epsilon, 1e-9), count, extra)
    assert total == pytest.approx(drift + spread)
    assert delta == pytest.approx(1 - (1 - 1e-9) ** count * (1 - extra), rel=1e-6)


def test_one_use_composes_to_itself() -> None:
    assert compose_basic([(0.3, 1e-6)]) == (0.3, 1e-6)
    assert compose_advanced((0.3, 1e-6), 1, 1e-9)[0] == 0.3
    assert compose_basic([]) == (0.0, 0.0)


@pytest.mark.parametrize("extra_delta", [0.0, 1.0, -1.0, math.nan])
def test_advanced_composition_needs_some_delta(extra_delta: float) -> None:
    with pytest.raises(ConfigError, match="extra_delta"):
        compose_advanced((1.0, 0.0), 10, extra_delta)


def test_a_pair_without_protection_composes_to_one_without() -> None:
    assert compose_basic([(1.0, 0.7), (1.0, 0.7)]) == (2.0, 1.0)
    assert compose_advanced((1.0, 1.0), 3, 1e-6)[1] == 1.0
    assert amplify_by_subsampling((math.inf, 0.0), 0.5)[0] == math.inf


def test_parallel_parts_cost_the_worst_of_each() -> None:
    assert compose_parallel([(1.0, 1e-6), (2.0, 0.0)]) == (2.0, 1e-6)
    assert compose_parallel([]) == (0.0, 0.0)


@pytest.mark.parametrize("sampling_prob", [1e-4, 0.1, 1.0])
def test_amplification_is_never_below_the_accountant(sampling_prob: float) -> None:
    laplace = events.Laplace(noise_multiplier=0.7)
    poisson = PoissonSampled(sampling_prob=sampling_prob, event=laplace)
    for event, adjacency, factor in (
        (poisson, REMOVE, 1.0),
        (events.FixedSizeSampled(batch_size=3, num_rows=10, event=laplace), REPLACE, 2.0),
    ):
        prob = sampling_prob if adjacency is REMOVE else 0.3
        epsilon, delta = amplify_by_subsampling((factor / 0.7, 0.0), prob)
        assert privacy_curve(event, adjacency).delta(epsilon) <= delta + 1e-15


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 1.0, 600.0, 1e5])
@pytest.mark.parametrize("sampling_prob", [1e-9, 1e-4, 0.5, 1.0])
def test_amplification_keeps_its_digits(epsilon: float, sampling_prob: float) -> None:
    amplified, _ = amplify_by_subsampling((epsilon, 0.0), sampling_prob)
    expected = (
        math.log1p(sampling_prob * math.expm1(epsilon))
        if epsilon < 700
        else epsilon + math.log(sampling_prob)
    )
    assert amplified == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.parametrize("sampling_prob", [0.0, -0.1, 1.1, math.nan])
def test_a_sampling_prob_is_a_chance(sampling_prob: float) -> None:
    with pytest.raises(ConfigError, match="sampling_prob"):
        amplify_by_subsampling((1.0, 0.0), sampling_prob)


@given(st.floats(0.0, 5.0), st.floats(0.0, 1e-3), st.integers(1, 12))
def test_a_group_costs_what_its_units_cost_one_after_the_other(
    epsilon: float, delta: float, num_units: int
) -> None:
    chained = 0.0
    for _ in range(num_units):
        chained = math.exp(epsilon) * chained + delta
    group, leaked = group_parameters(epsilon, delta, num_units)
    assert group == num_units * epsilon
    assert leaked == pytest.approx(min(1.0, chained), rel=1e-9)


@pytest.mark.parametrize("rows", [1, 2, 5, 10])
def test_group_privacy_is_never_below_the_exact_mixture(rows: int) -> None:
    """q=1e-3, noise 1, 1000 steps: 0.271, 0.573, 1.564, 3.551 against the mixture's."""
    one = Gaussian(noise_multiplier=1.0)
    single, unit = (
        privacy_curve(
            Repeated(
                event=PoissonSampled(sampling_prob=1e-3, event=one, max_rows_per_unit=k), count=1000
            ),
            REPLACE,
        )
        for k in (1, rows)
    )
    by_group = group_epsilon(single, rows, 1e-6)
    assert by_group >= unit.epsilon(1e-6) * (1 - 1e-6)
    assert by_group == pytest.approx({1: 0.271, 2: 0.573, 5: 1.564, 10: 3.551}[rows], rel=5e-3)


@pytest.mark.parametrize("rows", [5, 10])
def test_group_privacy_that_rounding_would_flatter_is_refused(rows: int) -> None:
    """A grid alone answers 32 for 5 rows; the truth is about 63."""
    step = PoissonSampled(sampling_prob=1e-3, event=Gaussian(noise_multiplier=0.6))
    curve = privacy_curve(Repeated(event=step, count=1000), REPLACE)
    with pytest.raises(ConfigError, match=f"num_units={rows}"):
        group_epsilon(curve, rows, 1e-6)
    assert group_epsilon(curve, 2, 1e-6) == pytest.approx(6.15, rel=0.01)


@pytest.mark.parametrize("num_units", [1, 2, 7])
def test_group_privacy_of_one_gaussian_is_never_below_the_moved_gaussian(num_units: int) -> None:
    one = privacy_curve(Gaussian(noise_multiplier=10.0), REMOVE)
    moved = privacy_curve(Gaussian(noise_multiplier=10.0 / num_units), REMOVE)
    assert group_epsilon(one, num_units, 1e-6) >= moved.epsilon(1e-6)


def test_group_privacy_of_a_pure_release_is_a_multiple() -> None:
    curve = privacy_curve(events.Laplace(noise_multiplier=2.0), REMOVE)
    assert group_epsilon(curve, 4, 1e-30) == pytest.approx(2.0, rel=1e-6)


def test_a_group_of_the_unprotected_is_unprotected() -> None:
    assert group_epsilon(NoPrivacyCurve(), 3, 1e-6) == math.inf


@pytest.mark.parametrize("num_units", [0, -1])
def test_a_group_has_someone_in_it(num_units: int) -> None:
    with pytest.raises(ConfigError, match="num_units"):
        group_epsilon(privacy_curve(Gaussian(noise_multiplier=1.0), REMOVE), num_units, 1e-6)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-9, math.nan])
def test_group_privacy_needs_a_delta(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta="):
        group_epsilon(privacy_curve(Gaussian(noise_multiplier=1.0), REMOVE), 2, delta)
