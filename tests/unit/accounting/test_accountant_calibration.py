import math
from collections.abc import Callable

import pytest

from tulle.accounting.accountant import (
    calibrate_noise,
    calibrate_steps,
    privacy_curve,
)
from tulle.errors import ConfigError
from tulle.privacy.events import (
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    EpsilonDelta,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    Repeated,
)
from tulle.privacy.units import Adjacency

REPLACE = Adjacency.REPLACE
MOST_EVALUATIONS = 40


def gaussian(noise: float) -> Event:
    return Gaussian(noise_multiplier=noise)


def laplace(noise: float) -> Event:
    return Laplace(noise_multiplier=noise)


def training(noise: float, sampling_prob: float = 0.01, steps: int = 100) -> Event:
    step = PoissonSampled(sampling_prob=sampling_prob, event=gaussian(noise))
    return Repeated(event=step, count=steps)


MAKERS: dict[str, Callable[[float], Event]] = {
    "gaussian": gaussian,
    "laplace": laplace,
    "discrete laplace": lambda noise: DiscreteLaplace(scale=noise),
    "laplace often": lambda noise: Repeated(event=laplace(noise), count=20),
    "training": training,
}


class Counted:
    """An event maker that gives up on a search that does not end."""

    def __init__(self, make: Callable[[float], Event]) -> None:
        self.calls = 0
        self._make = make

    def __call__(self, setting: float) -> Event:
        self.calls += 1
        assert self.calls <= MOST_EVALUATIONS, f"no answer after {self.calls - 1} evaluations"
        return self._make(setting)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1e-3, 1e-6), (1e-3, 1e-2), (0.1, 0.1), (1.0, 1e-12), (3.0, 1e-7), (10.0, 1e-3)],
)
def test_the_least_noise_meets_the_target_and_less_does_not(
    name: str, epsilon: float, delta: float
) -> None:
    make = MAKERS[name]
    noise = calibrate_noise(Counted(make), epsilon=epsilon, delta=delta, adjacency=REPLACE)
    assert privacy_curve(make(noise), REPLACE).epsilon(delta) <= epsilon
    assert privacy_curve(make(0.998 * noise), REPLACE).epsilon(delta) > epsilon


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.1), (3.0, 1e-7)])
def test_noise_is_found_next_to_a_cost_that_does_not_depend_on_it(
    epsilon: float, delta: float
) -> None:
    def make(noise: float) -> Event:
        return Composed((gaussian(noise), EpsilonDelta(epsilon=0.05)))

    noise = calibrate_noise(Counted(make), epsilon=epsilon, delta=delta, adjacency=REPLACE)
    assert privacy_curve(make(noise), REPLACE).epsilon(delta) <= epsilon
    assert privacy_curve(make(0.998 * noise), REPLACE).epsilon(delta) > epsilon


@pytest.mark.parametrize("name", ["gaussian", "laplace", "discrete laplace"])
@pytest.mark.parametrize("epsilon", [50.0, 90.0])
def test_large_targets_within_the_stated_range_are_found(name: str, epsilon: float) -> None:
    noise = calibrate_noise(MAKERS[name], epsilon=epsilon, delta=1e-9, adjacency=REPLACE)
    assert 0.01 <= noise < 1
    assert privacy_curve(MAKERS[name](noise), REPLACE).epsilon(1e-9) <= epsilon


@pytest.mark.parametrize("noise", [0.012, 0.04, 3.0, 2e5, 9e5])
@pytest.mark.parametrize("delta", [0.0, 1e-12])
def test_any_noise_of_the_stated_range_can_be_the_answer(noise: float, delta: float) -> None:
    found = calibrate_noise(laplace, epsilon=2 / noise, delta=delta, adjacency=REPLACE)
    assert found == pytest.approx(noise, rel=2e-4)
    assert found >= noise * (1 - 1e-5)


@pytest.mark.parametrize("start", [0.01, 0.3, 1.0, 40.0, 1e6])
def test_the_first_guess_does_not_matter(start: float) -> None:
    noise = calibrate_noise(gaussian, epsilon=1.0, delta=1e-6, adjacency=REPLACE, start=start)
    assert noise == pytest.approx(8.4492, rel=3e-4)


@pytest.mark.parametrize("start", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_first_guess_is_refused(start: float) -> None:
    with pytest.raises(ConfigError, match="start"):
        calibrate_noise(gaussian, epsilon=1.0, delta=1e-6, adjacency=REPLACE, start=start)


def test_pure_noise_is_calibrated_without_delta() -> None:
    noise = calibrate_noise(laplace, epsilon=0.5, delta=0.0, adjacency=Adjacency.ADD_OR_REMOVE)
    assert noise == pytest.approx(2.0, rel=2e-4)
    assert noise >= 2.0


@pytest.mark.parametrize(
    "make",
    [
        lambda noise: PoissonSampled(sampling_prob=0.01, event=laplace(noise)),
        lambda noise: Composed((laplace(noise), EpsilonDelta(epsilon=0.3))),
        lambda noise: Composed((laplace(noise), laplace(2 * noise), EpsilonDelta(epsilon=0.3))),
        lambda noise: DiscreteLaplace(scale=noise, max_contribution=3),
    ],
)
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_pure_costs_need_not_be_proportional_to_the_noise(
    make: Callable[[float], Event], epsilon: float
) -> None:
    noise = calibrate_noise(Counted(make), epsilon=epsilon, delta=0.0, adjacency=REPLACE)
    assert privacy_curve(make(noise), REPLACE).epsilon(0.0) <= epsilon
    assert privacy_curve(make(0.998 * noise), REPLACE).epsilon(0.0) > epsilon


def test_a_pure_target_below_the_fixed_cost_is_refused() -> None:
    make = Counted(lambda noise: Composed((laplace(noise), EpsilonDelta(epsilon=0.7))))
    with pytest.raises(ConfigError):
        calibrate_noise(make, epsilon=0.5, delta=0.0, adjacency=REPLACE)


def test_the_golden_noise_of_one_gaussian() -> None:
    """Analytic Gaussian mechanism (Balle, Wang 2018): epsilon 1, delta 1e-6, distance 1."""
    noise = calibrate_noise(gaussian, epsilon=1.0, delta=1e-6, adjacency=Adjacency.ADD_OR_REMOVE)
    assert noise == pytest.approx(4.2246, rel=2e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda noise: NonPrivate() if noise else gaussian(noise),
        lambda noise: Composed((gaussian(noise), EpsilonDelta(epsilon=2.0))),
        lambda noise: Composed((gaussian(noise), EpsilonDelta(epsilon=0.1, delta=1e-3))),
    ],
)
def test_a_target_that_no_noise_meets_is_refused(make: Callable[[float], Event]) -> None:
    with pytest.raises(ConfigError, match="target"):
        calibrate_noise(Counted(make), epsilon=1.0, delta=1e-6, adjacency=REPLACE)


def test_a_target_that_every_noise_meets_is_refused() -> None:
    with pytest.raises(ConfigError, match="target"):
        calibrate_noise(lambda _: Composed(), epsilon=1.0, delta=1e-6, adjacency=REPLACE)


def test_a_gaussian_without_delta_is_refused() -> None:
    with pytest.raises(ConfigError):
        calibrate_noise(gaussian, epsilon=1.0, delta=0.0, adjacency=REPLACE)


def test_noise_that_is_accounted_up_to_a_limit_is_found_below_it() -> None:
    target = {"epsilon": 1e-3, "delta": 1e-6, "adjacency": REPLACE}
    noise = calibrate_noise(lambda scale: DiscreteGaussian(scale=scale), **target)
    assert noise == pytest.approx(calibrate_noise(gaussian, **target), rel=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 1e-6), (-1.0, 1e-6), (math.inf, 1e-6), (math.nan, 1e-6), (1.0, 1.0), (1.0, -0.1)],
)
def test_targets_are_checked(epsilon: float, delta: float) -> None:
    target = {"epsilon": epsilon, "delta": delta, "adjacency": REPLACE}
    named = "epsilon" if delta == 1e-6 else "delta"
    with pytest.raises(ConfigError, match=named):
        calibrate_noise(gaussian, **target)
    with pytest.raises(ConfigError, match=named):
        calibrate_steps(lambda steps: training(1.0, steps=steps), **target)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (8.0, 1e-9)])
def test_one_step_more_than_the_most_is_too_many(epsilon: float, delta: float) -> None:
    def make(steps: int) -> Event:
        return training(1.0, steps=steps)

    steps = calibrate_steps(make, epsilon=epsilon, delta=delta, adjacency=REPLACE)
    assert privacy_curve(make(steps), REPLACE).epsilon(delta) <= epsilon
    assert privacy_curve(make(steps + 1), REPLACE).epsilon(delta) > epsilon


def test_steps_are_the_inverse_of_noise() -> None:
    noise = calibrate_noise(training, epsilon=2.0, delta=1e-6, adjacency=REPLACE)
    steps = calibrate_steps(
        lambda n: training(noise, steps=n), epsilon=2.0, delta=1e-6, adjacency=REPLACE
    )
    assert 100 <= steps <= 101


def test_too_costly_a_first_step_is_refused() -> None:
    with pytest.raises(ConfigError, match="single step"):
        calibrate_steps(
            lambda n: Repeated(event=gaussian(1.0), count=n),
            epsilon=0.1,
            delta=1e-6,
            adjacency=REPLACE,
        )


def test_steps_that_cost_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="costs nothing"):
        calibrate_steps(lambda _: Composed(), epsilon=0.1, delta=1e-6, adjacency=REPLACE)
