import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as peer

from tulle.accounting.accountant import guarantee, privacy_curve
from tulle.accounting.curve import (
    ComposedCurve,
    ExactCurve,
    NoPrivacyCurve,
    PrivacyCurve,
    curve_of_parts,
)
from tulle.accounting.gaussian_pairs import gaussian_profile
from tulle.accounting.profiles import epsilon_delta_profile, laplace_profile, three_point_profile
from tulle.errors import ConfigError
from tulle.privacy import events
from tulle.privacy.units import Adjacency, Unit

REPLACE, REMOVE = Adjacency.REPLACE, Adjacency.ADD_OR_REMOVE


def poisson(sampling_prob: float, noise: float, rows: int = 1) -> events.Event:
    noise_event = events.Gaussian(noise_multiplier=noise)
    return events.PoissonSampled(
        sampling_prob=sampling_prob, event=noise_event, max_rows_per_unit=rows
    )


CURVES: dict[str, PrivacyCurve] = {
    "gaussian": ExactCurve(gaussian_profile(1.0)),
    "loud gaussian": ExactCurve(gaussian_profile(30.0)),
    "laplace": ExactCurve(laplace_profile(1.0)),
    "leaky": ExactCurve(epsilon_delta_profile(1.0, 1e-9)),
    "two laplace": ComposedCurve([(laplace_profile(1.0), 2)]),
    "training": privacy_curve(events.Repeated(event=poisson(0.01, 1.0), count=200), REPLACE),
    "training, removed": privacy_curve(
        events.Repeated(event=poisson(0.01, 1.0), count=200), REMOVE
    ),
    "users": privacy_curve(events.Repeated(event=poisson(0.01, 1.0, 3), count=50), REPLACE),
}


@pytest.mark.parametrize("name", CURVES)
def test_epsilon_and_delta_are_inverse(name: str) -> None:
    curve = CURVES[name]
    for delta in (0.3, 1e-2, 1e-5, 1e-8):
        epsilon = curve.epsilon(delta)
        assert curve.delta(epsilon) <= delta * (1 + 1e-9)
        if epsilon > 0:
            assert curve.delta(epsilon * (1 - 1e-6)) > delta * (1 - 1e-9)


@pytest.mark.parametrize("name", CURVES)
def test_both_fall(name: str) -> None:
    curve = CURVES[name]
    epsilons = [curve.epsilon(float(d)) for d in np.geomspace(0.9, 1e-8, 60)]
    deltas = [curve.delta(float(e)) for e in np.linspace(0.0, 40.0, 160)]
    assert np.all(np.diff(epsilons) >= 0)
    assert np.all(np.diff(deltas) <= 1e-18)
    assert all(0 <= d <= 1 for d in deltas)


def test_pure_curves_have_an_epsilon_without_delta() -> None:
    assert CURVES["laplace"].epsilon(0.0) == 1.0
    assert CURVES["two laplace"].epsilon(0.0) == 2.0
    assert CURVES["two laplace"].delta(2.0) == 0.0
    assert CURVES["gaussian"].epsilon(0.0) == math.inf


@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-16])
def test_a_delta_that_rounding_hides_is_refused(delta: float) -> None:
    for name in ("training", "training, removed", "users"):
        with pytest.raises(ConfigError, match="delta="):
            CURVES[name].epsilon(delta)


def test_without_delta_gaussian_noise_has_no_epsilon() -> None:
    for name in ("training", "training, removed", "users"):
        assert CURVES[name].epsilon(0.0) == math.inf


def test_beyond_the_grid_delta_stays_at_what_rounding_hides() -> None:
    assert 0 < CURVES["training"].delta(1e5) < 1e-9


def test_a_leak_larger_than_delta_has_no_epsilon() -> None:
    assert CURVES["leaky"].epsilon(1e-10) == math.inf
    twice = ComposedCurve([(epsilon_delta_profile(1.0, 1e-6), 2)])
    assert twice.epsilon(1e-6) == math.inf
    assert twice.epsilon(3e-6) == pytest.approx(2.0, rel=1e-3)


def test_no_release_costs_nothing_and_no_protection_everything() -> None:
    nothing, everything = curve_of_parts([]), NoPrivacyCurve()
    assert (nothing.epsilon(0.0), nothing.delta(0.0)) == (0.0, 0.0)
    assert (everything.epsilon(0.5), everything.delta(100.0)) == (math.inf, 1.0)


@pytest.mark.parametrize("curve", [*CURVES.values(), NoPrivacyCurve(), curve_of_parts([])])
def test_impossible_questions_are_refused(curve: PrivacyCurve) -> None:
    for delta in (-1e-9, 1.0, 2.0, math.nan, math.inf):
        with pytest.raises(ConfigError, match="delta="):
            curve.epsilon(delta)
    for epsilon in (-1e-9, math.nan, math.inf):
        with pytest.raises(ConfigError, match="epsilon="):
            curve.delta(epsilon)


@pytest.mark.parametrize("distance", [1e-3, 1.0, 40.0, 2000.0])
def test_one_profile_is_inverted_to_the_last_digits(distance: float) -> None:
    curve = ExactCurve(gaussian_profile(distance))
    for delta in (1e-2, 1e-7, 1e-15):
        epsilon = curve.epsilon(delta)
        if 0 < epsilon < 2.0**23:
            assert curve.delta(epsilon) == pytest.approx(delta, rel=1e-5)
            assert curve.delta(epsilon) <= delta


def test_an_epsilon_too_large_to_count_is_infinite() -> None:
    assert ExactCurve(gaussian_profile(1e5)).epsilon(1e-6) == math.inf


def test_the_golden_values_of_the_two_adjacencies() -> None:
    """Two independent implementations, noise 1 and delta 1e-7; Google PLD 0.6.0 agrees."""
    for sampling_prob, steps, removed, replaced in (
        (16384 / 36e6, 1000, 0.0985, 0.1357),
        (0.01, 1000, 2.4117, 3.5568),
        (0.01, 10_000, 7.5688, 12.9387),
    ):
        event = events.Repeated(event=poisson(sampling_prob, 1.0), count=steps)
        assert privacy_curve(event, REMOVE).epsilon(1e-7) == pytest.approx(removed, rel=4e-3)
        assert privacy_curve(event, REPLACE).epsilon(1e-7) == pytest.approx(replaced, rel=4e-3)


def test_the_golden_values_of_units_with_many_rows() -> None:
    """Mixture of Gaussians; q=1e-3, 1000 steps, delta 1e-6."""
    for rows, noise, replaced in ((2, 1.0, 0.5702), (10, 1.0, 3.2543), (5, 0.6, 7.25)):
        event = events.Repeated(event=poisson(1e-3, noise, rows), count=1000)
        assert privacy_curve(event, REPLACE).epsilon(1e-6) == pytest.approx(replaced, rel=5e-3)


def peer_gaussian(noise: float, sampling_prob: float, replace: bool, pessimistic: bool):
    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    return peer.from_gaussian_mechanism(
        noise,
        sampling_prob=sampling_prob,
        pessimistic_estimate=pessimistic,
        value_discretization_interval=1e-3,
        neighboring_relation=relation,
        use_connect_dots=pessimistic,
    )


@pytest.mark.parametrize("replace", [True, False])
def test_mixed_training_runs_agree_with_another_library(replace: bool) -> None:
    event = events.Composed(
        (
            events.Repeated(event=poisson(0.1, 1.0), count=30),
            events.Repeated(event=poisson(0.3, 2.0), count=20),
            events.Gaussian(noise_multiplier=3.0),
        )
    )
    curve = privacy_curve(event, REPLACE if replace else REMOVE)
    bounds = []
    for pessimistic in (True, False):
        parts = [
            peer_gaussian(1.0, 0.1, replace, pessimistic).self_compose(30),
            peer_gaussian(2.0, 0.3, replace, pessimistic).self_compose(20),
            peer_gaussian(3.0, 1.0, replace, pessimistic),
        ]
        bounds.append(parts[0].compose(parts[1]).compose(parts[2]))
    for delta in (1e-3, 1e-6, 1e-9):
        upper, lower = (bound.get_epsilon_for_delta(delta) for bound in bounds)
        assert curve.epsilon(delta) <= upper * 1.01
        assert curve.epsilon(delta) >= lower


def test_pure_and_gaussian_releases_agree_with_another_library() -> None:
    event = events.Composed(
        (
            events.Repeated(event=events.Laplace(noise_multiplier=4.0), count=10),
            events.Repeated(event=events.DiscreteLaplace(scale=5.0), count=6),
            events.Gaussian(noise_multiplier=2.0),
        )
    )
    curve = privacy_curve(event, REMOVE)
    for pessimistic in (True, False):
        settings = {"pessimistic_estimate": pessimistic, "value_discretization_interval": 1e-3}
        other = (
            peer.from_laplace_mechanism(4.0, use_connect_dots=pessimistic, **settings)
            .self_compose(10)
            .compose(peer.from_discrete_laplace_mechanism(1 / 5.0, **settings).self_compose(6))
            .compose(peer_gaussian(2.0, 1.0, False, pessimistic))
        )
        for delta in (1e-2, 1e-5, 1e-9):
            expected = other.get_epsilon_for_delta(delta)
            ours = curve.epsilon(delta)
            assert ours <= expected * 1.01 if pessimistic else ours >= expected


@pytest.mark.parametrize("truncated_at", [12, 20])
@pytest.mark.parametrize("replace", [True, False])
def test_truncated_batches_agree_with_another_library(truncated_at: int, replace: bool) -> None:
    event = events.TruncatedPoissonSampled(
        sampling_prob=0.1,
        num_rows=100,
        max_batch_size=truncated_at,
        event=events.Gaussian(noise_multiplier=1.5),
    )
    curve = privacy_curve(events.Repeated(event=event, count=10), REPLACE if replace else REMOVE)
    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    other = peer.from_truncated_subsampled_gaussian_mechanism(
        100,
        0.1,
        truncated_at,
        1.5,
        value_discretization_interval=1e-3,
        neighboring_relation=relation,
    ).self_compose(10)
    for delta in (1e-3, 1e-6):
        assert curve.epsilon(delta) == pytest.approx(other.get_epsilon_for_delta(delta), rel=5e-3)


def test_repeated_responses_count_every_response() -> None:
    """The PLD accountant of dp-accounting 0.6.0 answers 1.0 here."""
    event = events.Repeated(event=events.RandomizedResponse(epsilon=1.0), count=10)
    assert privacy_curve(event, REPLACE).epsilon(1e-9) == pytest.approx(10.0, rel=1e-3)


def test_a_guarantee_says_all_it_was_asked() -> None:
    unit = Unit.user(days=7)
    claim = guarantee(
        events.Gaussian(noise_multiplier=1.0), delta=1e-6, unit=unit, adjacency=REPLACE
    )
    assert (claim.delta, claim.unit, claim.adjacency) == (1e-6, unit, REPLACE)
    assert claim.epsilon == pytest.approx(10.9972, abs=1e-4)


def test_three_points_compose_without_a_grid_error_at_their_ends() -> None:
    """All the chance of a pure composition may sit on its largest loss."""
    for epsilon, count in ((4.0, 6), (2.0, 3), (1.0, 10), (0.7, 9), (12.0, 5)):
        truth = 1 / (1 + math.exp(-epsilon))
        curve = ComposedCurve([(three_point_profile(epsilon, truth), count)])
        almost = epsilon * count - 0.5
        assert curve.delta(almost) >= truth**count * -math.expm1(-0.5) * (1 - 1e-9)
