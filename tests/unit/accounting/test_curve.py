import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as peer
from scipy import special, stats

from tulle.accounting import curve
from tulle.accounting.accountant import guarantee, privacy_curve
from tulle.accounting.curve import (
    ComposedCurve,
    ExactCurve,
    LossDistribution,
    NoPrivacyCurve,
    PrivacyCurve,
    compose,
    curve_of_parts,
    discretize,
)
from tulle.accounting.gaussian_pairs import (
    sampled_gaussian_remove_profile,
    sampled_gaussian_replace_profile,
)
from tulle.accounting.profiles import (
    Profile,
    discrete_laplace_profile,
    epsilon_delta_profile,
    gaussian_profile,
    laplace_profile,
    three_point_profile,
)
from tulle.accounting.sampling import poisson_gaussian_profile, poisson_remove_profile
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.units import Adjacency, Unit
from unit.accounting.hockey_stick import randomized_response_delta

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


PROFILES = {
    "gaussian": gaussian_profile(1.5),
    "tiny gaussian": gaussian_profile(1e-4),
    "sampled replace": sampled_gaussian_replace_profile(1e-3, 0.8),
    "sampled remove": sampled_gaussian_remove_profile(0.05, 0.7),
    "five rows": poisson_gaussian_profile(1e-3, 1.0, 5, replace=True),
    "laplace": laplace_profile(0.7),
    "sampled laplace": poisson_remove_profile(laplace_profile(1.0), 0.01),
    "discrete laplace": discrete_laplace_profile(3.0, 2),
    "response": three_point_profile(1.0, 1 / (1 + math.exp(-1.0))),
    "leaky": epsilon_delta_profile(0.5, 1e-3),
}


def response(epsilon: float, num_values: int = 2) -> Profile:
    return three_point_profile(epsilon, 1 / (1 + (num_values - 1) * math.exp(-epsilon)))


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("width", [0.5, 0.013, 1e-4])
def test_a_discretized_profile_is_never_below_the_profile(name: str, width: float) -> None:
    for profile in (PROFILES[name], PROFILES[name].swapped()):
        distribution = discretize(profile, width, 1e-18)
        at = distribution.losses >= 0
        deltas, exact = distribution.deltas()[at], profile.forward(distribution.losses[at])
        assert np.all(deltas >= exact * (1 - 1e-9) - 1e-14)
        np.testing.assert_allclose(deltas, exact, rtol=1e-6, atol=1e-11)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("width", [0.3, 0.01, 1e-4])
def test_a_discretized_profile_loses_no_chance_on_either_side(name: str, width: float) -> None:
    profile = PROFILES[name]
    distribution = discretize(profile, width, 1e-18)
    mirrored = discretize(profile.swapped(), width, 1e-18)
    under_p = distribution.probs.sum() + distribution.infinite_prob
    under_q = (distribution.probs * np.exp(-distribution.losses)).sum() + mirrored.infinite_prob
    # Rounding of delta is divided by the width.
    assert under_p >= 1 - 1e-15 / width
    assert under_q >= 1 - 1e-15 / width
    assert under_p <= 1 + 1e-7


@pytest.mark.parametrize("name", PROFILES)
def test_a_finer_grid_is_never_worse(name: str) -> None:
    profile = PROFILES[name]
    width = 2.0 * float(profile.forward(np.zeros(1))[0])
    coarse, fine = (ComposedCurve([(profile, 4)]) for _ in range(2))
    coarse._tables = [type(coarse._tables[0])(convolved(profile, 4, width))]
    fine._tables = [type(fine._tables[0])(convolved(profile, 4, width / 8))]
    for epsilon in width * np.array([0.0, 1.5, 4.0, 8.0]):
        assert fine.delta(epsilon) <= coarse.delta(epsilon) * (1 + 1e-8)


def convolved(profile: Profile, count: int, width: float) -> LossDistribution:
    part = discretize(profile, width, 1e-18)
    steps = math.ceil(part.losses[-1] / width) * count
    return curve._convolve([(part, count)], part.first * count, steps)


@pytest.mark.parametrize(
    ("distance", "count"),
    [(1e-6, 2), (1e-3, 1000), (0.01, 100_000), (0.3, 50), (1.0, 7), (6.0, 3), (40.0, 20)],
)
def test_repeated_gaussians_are_one_gaussian(distance: float, count: int) -> None:
    curve = ComposedCurve([(gaussian_profile(distance), count)])
    exact = ExactCurve(gaussian_profile(distance * math.sqrt(count)))
    for delta in (1e-1, 1e-3, 1e-6, 1e-9, 1e-11):
        expected = exact.epsilon(delta)
        assert curve.epsilon(delta) >= expected * (1 - 1e-9)
        assert curve.epsilon(delta) <= expected * 1.003 + 1e-12
    for delta in (0.3, 1e-3, 1e-8):
        epsilon = exact.epsilon(delta)
        assert curve.delta(epsilon) >= exact.delta(epsilon) * (1 - 1e-9)
        assert curve.delta(epsilon) <= exact.delta(epsilon) * 1.05


@pytest.mark.parametrize("num_values", [2, 3, 10])
@pytest.mark.parametrize(("epsilon", "count"), [(0.01, 40), (0.5, 30), (1.0, 10), (4.0, 6)])
def test_repeated_responses_are_the_exact_sum(epsilon: float, num_values: int, count: int) -> None:
    curve = ComposedCurve([(response(epsilon, num_values), count)])
    for share in (0.0, 0.11, 0.35, 0.62, 0.9):
        at = share * epsilon * count
        exact = randomized_response_delta(epsilon, num_values, count, at)
        assert curve.delta(at) >= exact
        assert curve.delta(at) <= exact * 1.02 + 1e-12


def test_repeated_responses_keep_their_pure_epsilon() -> None:
    curve = ComposedCurve([(response(0.5), 10)])
    assert curve.epsilon(0.0) == pytest.approx(5.0, rel=1e-12)
    assert curve.epsilon(1e-13) <= 5.0
    assert curve.delta(5.0) == 0.0


@pytest.mark.parametrize("count", [2, 50])
def test_leaks_add_up(count: int) -> None:
    curve = ComposedCurve([(epsilon_delta_profile(0.1, 1e-4), count)])
    leaked = -math.expm1(count * math.log1p(-1e-4))
    assert curve.delta(1e3) == pytest.approx(leaked, rel=1e-9)
    assert curve.delta(1e3) >= leaked
    assert curve.epsilon(leaked * 0.999) == math.inf


@pytest.mark.parametrize("label_epsilon", [0.05, 1.0, 3.0])
def test_labels_and_training_together_have_the_closed_form(label_epsilon: float) -> None:
    step = sampled_gaussian_replace_profile(1e-3, 0.7)
    alone = ComposedCurve([(step, 500)])
    joint = ComposedCurve([(response(label_epsilon), 1), (step, 500)])
    truth = 1 / (1 + math.exp(-label_epsilon))

    def training_delta(epsilon: float) -> float:
        if epsilon >= 0:
            return alone.delta(epsilon)
        # H(P || Q) at e^-x is 1 - e^-x + e^-x H(Q || P) at e^x.
        return -math.expm1(epsilon) + math.exp(epsilon) * alone.delta(-epsilon)

    for epsilon in (0.0, 0.5, 1.0, 2.5, 4.0):
        expected = truth * training_delta(epsilon - label_epsilon)
        expected += (1 - truth) * training_delta(epsilon + label_epsilon)
        assert joint.delta(epsilon) == pytest.approx(expected, rel=2e-3, abs=1e-12)


def test_many_small_steps_have_the_normal_limit() -> None:
    sampling_prob, noise, count = 1e-3, 2.0, 100_000
    curve = ComposedCurve([(sampled_gaussian_replace_profile(sampling_prob, noise), count)])
    # One step's loss has variance 4 q^2 sinh(1 / s^2); the sum is nearly Gaussian.
    distance = 2 * sampling_prob * math.sqrt(count * math.sinh(1 / noise**2))
    limit = ExactCurve(gaussian_profile(distance))
    for delta in (1e-3, 1e-6, 1e-9):
        assert curve.epsilon(delta) == pytest.approx(limit.epsilon(delta), rel=0.01)


@pytest.mark.parametrize(("sampling_prob", "noise"), [(4.55e-4, 0.7), (1e-5, 1.0), (0.01, 1.0)])
def test_long_runs_do_not_depend_on_the_grid(
    sampling_prob: float, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [(sampled_gaussian_replace_profile(sampling_prob, noise), 100_000)]
    usual = ComposedCurve(parts)
    monkeypatch.setattr(curve, "_STEPS_PER_TYPICAL_LOSS", 40)
    monkeypatch.setattr(curve, "_FEWEST_POINTS", 2**19)
    finer = ComposedCurve(parts)
    for delta in (1e-4, 1e-7, 1e-10):
        assert finer.epsilon(delta) <= usual.epsilon(delta) * (1 + 1e-9)
        assert finer.epsilon(delta) >= usual.epsilon(delta) * 0.998


@pytest.mark.parametrize("max_rows", [2, 5, 20])
@pytest.mark.parametrize("replace", [True, False])
def test_rare_rows_of_one_unit_compose_to_a_finite_cost(max_rows: int, replace: bool) -> None:
    """Most losses are tiny, a few are large: neither may be cut off."""
    one = poisson_gaussian_profile(1e-7, 1.0, max_rows, replace=replace)
    curve = ComposedCurve([(one, 1000)])
    # A thousand steps move a sum by 1e-7 each; large losses have chance 1e-7 a row and step.
    assert curve.epsilon(1e-7) < 0.01 * max_rows


@pytest.mark.parametrize("count", [1, 3])
def test_nothing_to_hide_costs_nothing(count: int) -> None:
    curve = ComposedCurve([(epsilon_delta_profile(0.0, 0.0), count), (laplace_profile(1e-15), 1)])
    assert curve.epsilon(1e-9) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("count", [10**7, 10**9, 10**10])
def test_absurdly_many_steps_are_never_too_cheap(count: int) -> None:
    distance = 0.5 / math.sqrt(count)
    curve = ComposedCurve([(gaussian_profile(distance), count)])
    assert curve.delta(1.0) >= ExactCurve(gaussian_profile(0.5)).delta(1.0) * (1 - 1e-9)


def test_losses_that_no_grid_holds_are_refused() -> None:
    profile = poisson_gaussian_profile(1e-3, 0.005, 1000, replace=True)
    with pytest.raises(UnsupportedEventError, match="too far"):
        compose([(profile, 100)])


def test_a_grid_that_is_too_fine_ends_early_and_what_is_beyond_counts_as_infinite() -> None:
    profile, width = gaussian_profile(20.0), 1e-5
    made = discretize(profile, width, 1e-18)
    assert made.probs.size < 2**23 + 2
    assert made.infinite_prob == profile.forward(made.losses[-1:])[0] > 0.9


def test_what_leaves_the_window_is_counted_as_infinite() -> None:
    distribution = compose([(gaussian_profile(1.0), 3), (response(0.3), 5)])
    assert distribution.infinite_prob >= 1e-15
    kept = distribution.probs.sum()
    assert kept + distribution.infinite_prob >= 1 - 1e-12
    assert kept <= 1 + 1e-9


def test_the_loss_has_the_mean_and_spread_of_its_parts() -> None:
    distribution = compose([(gaussian_profile(0.2), 25)])
    mean = float(distribution.probs @ distribution.losses)
    variance = float(distribution.probs @ distribution.losses**2) - mean**2
    assert mean == pytest.approx(0.5, rel=1e-3)
    assert variance == pytest.approx(1.0, rel=1e-3)
    below = float(distribution.probs[distribution.losses <= 1.0].sum())
    assert below == pytest.approx(stats.norm.cdf(0.5), abs=1e-3)


def test_moments_are_those_of_the_general_sum() -> None:
    draw = np.random.default_rng(20260114)
    for size in (1, 2, 4097, 131_073):
        values = draw.normal(0.0, 30.0, size)
        values[draw.random(size) < 0.2] = -np.inf
        for case in (values, np.round(values), np.full(size, -np.inf)):
            expected = float(special.logsumexp(case))
            assert curve._log_sum_exp(case) == pytest.approx(expected, rel=1e-14), size
