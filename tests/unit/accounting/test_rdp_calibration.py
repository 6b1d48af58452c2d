import pytest

from tulle.accounting.rdp import rdp_epsilon
from tulle.accounting.rdp_calibration import calibrate_noise_rdp
from tulle.accounting.training_events import BatchSampling, dpsgd_event, two_phase_event
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy.events import DiscreteGaussian, Event
from tulle.privacy.units import Adjacency

SAMPLING = BatchSampling(num_examples=100_000, batch_size=100, steps=2000)


def training(noise: float) -> Event:
    return dpsgd_event(SAMPLING, noise)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_noise_is_the_least_that_meets_the_target(epsilon: float) -> None:
    noise = calibrate_noise_rdp(training, epsilon=epsilon, delta=1e-6)
    assert rdp_epsilon(training(noise), 1e-6, Adjacency.ADD_OR_REMOVE) <= epsilon
    less = rdp_epsilon(training(noise * (1 - 2e-4)), 1e-6, Adjacency.ADD_OR_REMOVE)
    assert less > epsilon


def test_labels_take_their_epsilon_first() -> None:
    together = calibrate_noise_rdp(
        lambda noise: two_phase_event(SAMPLING, noise, 1.0), epsilon=3.0, delta=1e-6
    )
    assert together == pytest.approx(
        calibrate_noise_rdp(training, epsilon=2.0, delta=1e-6), rel=2e-4
    )


def test_targets_out_of_reach_and_unknown_events_are_refused() -> None:
    with pytest.raises(ConfigError, match="epsilon=0"):
        calibrate_noise_rdp(training, epsilon=0.0, delta=1e-6)
    with pytest.raises(UnsupportedEventError, match="RDP"):
        calibrate_noise_rdp(lambda noise: DiscreteGaussian(scale=noise), epsilon=1.0, delta=1e-6)
    with pytest.raises(ConfigError, match="needs more noise than"):
        calibrate_noise_rdp(
            lambda noise: two_phase_event(SAMPLING, noise, 5.0), epsilon=3.0, delta=1e-6
        )
