import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from tulle.accounting.event_rules import pure_epsilon
from tulle.errors import ConfigError, DataError
from tulle.labels.label_grid import LabelGrid
from tulle.labels.mechanisms.added_noise import LaplaceLabels
from tulle.labels.mechanisms.stepped_noise import DiscreteLaplaceLabels, StaircaseLabels
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.staircase_noise import StaircaseAim
from tulle.privacy.events import EpsilonDelta
from tulle.privacy.units import Adjacency
from unit.mechanisms.continuous_staircase import continuous_variance

CLASSES: list[Any] = [LaplaceLabels, DiscreteLaplaceLabels, StaircaseLabels]
ON_STEPS: list[Any] = [DiscreteLaplaceLabels, StaircaseLabels]
SMALL = LabelGrid(low=-1.0, high=2.0, step=0.5)
WIDE = LabelGrid(low=0, high=400)
each_class = pytest.mark.parametrize("kind", CLASSES)
each_on_steps = pytest.mark.parametrize("kind", ON_STEPS)


def exact_step_chance(mechanism: Any, step: int) -> mpmath.mpf:
    """The chance of noise of this many steps, from the law's definition."""
    if isinstance(mechanism, StaircaseLabels):
        noise = mechanism.noise
        odds = mpmath.exp(-1 / mpmath.mpf(noise.scale))
        width, inner = noise.sensitivity, noise.inner_width
        total = 2 * inner - 1 + 2 * width * odds / (1 - odds)
        level = 0 if abs(step) < inner else (abs(step) - inner) // width + 1
        return odds**level / total
    odds = mpmath.exp(-1 / mpmath.mpf(mechanism.noise.scale))
    return (1 - odds) / (1 + odds) * odds ** abs(step)


def steps_per_value(mechanism: Any) -> int:
    return mechanism.refinement if isinstance(mechanism, StaircaseLabels) else 1


def clipped_channel(mechanism: Any) -> list[list[mpmath.mpf]]:
    """Chances of the clipped outputs, one row for each label, with 50 digits."""
    fine = steps_per_value(mechanism)
    last = (mechanism.grid.num_values - 1) * fine
    reach = math.ceil(140 / mechanism.epsilon) * last
    chances = [exact_step_chance(mechanism, size) for size in range(reach)]
    tails = list(itertools.accumulate(reversed(chances)))[::-1]
    return [
        [tails[place], *(chances[abs(out - place)] for out in range(1, last)), tails[last - place]]
        for place in range(0, last + 1, fine)
    ]


@each_on_steps
@pytest.mark.parametrize("epsilon", [0.4, 1.0, 2.0, 3.0])
def test_no_output_is_likelier_than_e_to_epsilon_for_one_label_than_for_another(
    kind: Any, epsilon: float
) -> None:
    mechanism = kind(epsilon=epsilon, grid=SMALL)
    fine = steps_per_value(mechanism)
    last = (SMALL.num_values - 1) * fine
    with mpmath.workdps(50):
        most = mpmath.exp(epsilon)
        chances = [exact_step_chance(mechanism, size) for size in range(5 * last)]
        # Staircase chances take few values: all pairs of labels, then all distinct ratios.
        for one, other in itertools.product(range(0, last + 1, fine), repeat=2):
            pairs = {
                (chances[abs(out - one)], chances[abs(out - other)])
                for out in range(-3 * last, 4 * last)
            }
            assert all(first <= most * second for first, second in pairs)


@each_on_steps
def test_the_noise_is_no_wider_than_epsilon_asks_for(kind: Any) -> None:
    mechanism = kind(epsilon=1.0, grid=SMALL)
    last = (SMALL.num_values - 1) * steps_per_value(mechanism)
    with mpmath.workdps(50):
        worst = max(
            exact_step_chance(mechanism, output) / exact_step_chance(mechanism, output - last)
            for output in range(-2 * last, 3 * last)
        )
        assert worst > mpmath.exp(1) * (1 - mpmath.mpf(10) ** -12)


@each_on_steps
@pytest.mark.parametrize("epsilon", [0.4, 1.0, 2.0, 3.0])
def test_clipped_outputs_are_private_and_have_the_stated_moments(kind: Any, epsilon: float) -> None:
    mechanism = kind(epsilon=epsilon, grid=SMALL, clip=True)
    with mpmath.workdps(50):
        channel = clipped_channel(mechanism)
        for column in zip(*channel, strict=True):
            assert max(column) / min(column) <= mpmath.exp(epsilon)
    for label, row in zip(SMALL.values, channel, strict=True):
        law = np.array([float(chance) for chance in row])
        outputs = np.linspace(SMALL.low, SMALL.high, law.size)
        assert law.sum() == pytest.approx(1, rel=1e-12)
        mean = law @ outputs
        assert mechanism.mean(float(label)) == pytest.approx(mean, abs=1e-10)
        variance = law @ (outputs - mean) ** 2
        assert mechanism.variance(float(label)) == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 6.0])
@pytest.mark.parametrize("grid", [SMALL, WIDE, LabelGrid(low=0.1, high=0.7, step=0.2)])
def test_laplace_noise_covers_the_range_after_rounding_to_its_lattice(
    epsilon: float, grid: LabelGrid
) -> None:
    noise = LaplaceLabels(epsilon=epsilon, grid=grid).noise
    low, high = noise.fitted.lattice.multiples([grid.low, grid.high]).tolist()
    # The log-likelihood ratio of rounded Laplace noise is at most distance over scale.
    assert Fraction(high - low) / Fraction(noise.fitted.noise_in_steps) <= Fraction(epsilon)


@each_class
@pytest.mark.parametrize("clip", [False, True])
def test_the_event_costs_at_most_epsilon(kind: Any, clip: bool) -> None:
    for epsilon in (0.1, 0.3, 1.0, 4.0):
        mechanism = kind(epsilon=epsilon, grid=WIDE, clip=clip)
        cost = pure_epsilon(mechanism.event(), Adjacency.REPLACE)
        assert cost is not None
        assert Fraction(epsilon) * (1 - Fraction(1, 10**12)) < cost <= Fraction(epsilon)
    assert isinstance(StaircaseLabels(epsilon=1.0, grid=WIDE).event(), EpsilonDelta)


@each_class
def test_without_clipping_the_mean_is_the_label(kind: Any) -> None:
    mechanism = kind(epsilon=1.0, grid=SMALL)
    for label in SMALL.values.tolist():
        assert mechanism.mean(label) == pytest.approx(label, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_variances_are_the_closed_forms(epsilon: float) -> None:
    laplace = LaplaceLabels(epsilon=epsilon, grid=WIDE).variance(3.0)
    assert laplace == pytest.approx(2 * 400**2 / epsilon**2, rel=1e-5)
    discrete = DiscreteLaplaceLabels(epsilon=epsilon, grid=WIDE).variance(3.0)
    odds = math.exp(-epsilon / 400)
    assert discrete == pytest.approx(2 * odds / (1 - odds) ** 2, rel=1e-9)
    staircase = StaircaseLabels(epsilon=epsilon, grid=WIDE).variance(3.0)
    assert staircase == pytest.approx(continuous_variance(epsilon, 400), rel=1e-4)
    assert staircase < discrete < laplace * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("label", [-1.0, 0.3, 2.0])
def test_clipped_laplace_has_the_moments_of_numeric_integration(
    epsilon: float, label: float
) -> None:
    mechanism = LaplaceLabels(epsilon=epsilon, grid=SMALL, clip=True)
    law = stats.laplace(loc=label, scale=mechanism.noise.noise_scale)
    points = np.linspace(-1.0, 2.0, 200_001)
    width = points[1] - points[0]
    tail = law.sf(points)
    mean = -1.0 + width * (tail.sum() - (tail[0] + tail[-1]) / 2)
    weighted = 2 * (points + 1.0) * tail
    square = width * (weighted.sum() - (weighted[0] + weighted[-1]) / 2)
    assert mechanism.mean(label) == pytest.approx(mean, abs=1e-7)
    assert mechanism.variance(label) == pytest.approx(square - (mean + 1.0) ** 2, abs=1e-6)


@each_class
def test_a_release_is_its_own_target(kind: Any) -> None:
    mechanism = kind(epsilon=1.0, grid=WIDE)
    noisy = mechanism.release(np.array([0.0, 12.0, 400.0] * 10), rng=SeededNoise(0))
    assert noisy.targets is noisy.labels
    assert noisy.labels.dtype == np.float64
    assert float(noisy.noise_variance) == mechanism.variance(0.0)
    assert noisy.channel is None


@each_class
def test_a_clipped_release_stays_in_the_range_and_has_no_target(kind: Any) -> None:
    plain, clipped = (kind(epsilon=0.5, grid=WIDE, clip=clip) for clip in (False, True))
    raw = np.arange(401) * 1.0
    before, after = (m.release(raw, rng=SeededNoise(2)) for m in (plain, clipped))
    assert after.labels.tolist() == np.clip(before.labels, 0, 400).tolist()
    assert (after.targets, after.noise_variance) == (None, None)
    assert clipped.name == plain.name + "-clipped"


@each_class
def test_clipping_pulls_the_mean_inwards_and_shrinks_the_variance(kind: Any) -> None:
    plain, clipped = (kind(epsilon=1.0, grid=WIDE, clip=clip) for clip in (False, True))
    assert clipped.mean(0.0) > 50
    assert clipped.mean(400.0) < 350
    assert clipped.mean(200.0) == pytest.approx(200)
    assert clipped.variance(100.0) < plain.variance(100.0) / 5


@each_on_steps
def test_noise_on_steps_keeps_to_the_grid(kind: Any) -> None:
    noisy = kind(epsilon=1.0, grid=SMALL).release(np.full(500, 0.4), rng=SeededNoise(0))
    steps = (noisy.labels + 1.0) / 0.5 * steps_per_value(kind(epsilon=1.0, grid=SMALL))
    assert steps.tolist() == np.rint(steps).tolist()
    assert kind(epsilon=1.0, grid=SMALL).mean(0.4) == 0.5


@each_class
@pytest.mark.parametrize("bad", [[401.0], [-0.5], [math.nan], [math.inf], ["a"], [None]])
def test_labels_outside_of_the_range_are_refused(kind: Any, bad: list[Any]) -> None:
    mechanism = kind(epsilon=1.0, grid=WIDE)
    for act in (mechanism.check_labels, lambda raw: mechanism.release(raw, rng=SeededNoise(0))):
        with pytest.raises(DataError) as caught:
            act(np.asarray(bad))
        assert "401" not in str(caught.value)


@each_class
@pytest.mark.parametrize("wrong", [{"epsilon": 0.0}, {"epsilon": math.inf}, {"epsilon": math.nan}])
def test_settings_without_meaning_are_refused(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        kind(**({"epsilon": 1.0, "grid": WIDE} | wrong))


def test_the_staircase_can_aim_at_its_size() -> None:
    by_size = StaircaseLabels(epsilon=2.0, grid=WIDE, aim=StaircaseAim.SIZE)
    by_variance = StaircaseLabels(epsilon=2.0, grid=WIDE)
    assert by_size.noise.mean_size < by_variance.noise.mean_size
    assert by_size.variance(0.0) > by_variance.variance(0.0)
    assert by_size.describe()["aim"] == "size"


@pytest.mark.parametrize("num_steps", [1, 2, 5, 20, 50, 400])
def test_on_any_grid_the_staircase_is_as_good_as_on_real_numbers(num_steps: int) -> None:
    grid = LabelGrid(low=0, high=num_steps)
    for epsilon in (0.1, 0.9, 2.3, 4.2, 6.4, 8.5, 11.3, 12.0):
        mechanism = StaircaseLabels(epsilon=epsilon, grid=grid)
        best = continuous_variance(epsilon, num_steps)
        assert mechanism.variance(0.0) <= best * 1.001
        coarse = mechanism._config_with(1)
        assert mechanism.variance(0.0) <= coarse.variance * (1 + 1e-12)


def test_a_grid_that_is_too_coarse_for_the_staircase_is_refined() -> None:
    mechanism = StaircaseLabels(epsilon=8.5, grid=LabelGrid(low=0, high=20))
    assert mechanism.refinement > 1
    assert mechanism._config_with(1).variance > 1.15 * mechanism.variance(0.0)
    noisy = mechanism.release(np.full(200, 3.0), rng=SeededNoise(0)).labels
    assert np.any(noisy != np.rint(noisy))
    steps = noisy * mechanism.refinement
    assert steps.tolist() == np.rint(steps).tolist()
