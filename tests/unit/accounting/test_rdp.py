import logging

import pytest

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.rdp import calibrate_noise_rdp, rdp_epsilon
from tulle.accounting.training_events import BatchSampling, dpsgd_event, two_phase_event
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.events import (
    Composed,
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
)
from tulle.privacy.units import Adjacency

REMOVE = Adjacency.ADD_OR_REMOVE
STEP = PoissonSampled(sampling_prob=0.01, event=Gaussian(noise_multiplier=1.0))
EVENTS: dict[str, Event] = {
    "gaussian": Gaussian(noise_multiplier=1.0),
    "laplace": Laplace(noise_multiplier=2.0),
    "training": Repeated(event=STEP, count=1000),
    "labels and training": Composed(
        (events.RandomizedResponse(epsilon=1.0), Repeated(event=STEP, count=100))
    ),
    "labels only": Repeated(event=events.RandomizedResponse(epsilon=0.5), count=4),
    "nothing": Composed(),
}


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("delta", [1e-3, 1e-7])
def test_renyi_is_never_below_the_accountant(name: str, delta: float) -> None:
    exact = privacy_curve(EVENTS[name], REMOVE).epsilon(delta)
    assert rdp_epsilon(EVENTS[name], delta, REMOVE) >= exact * (1 - 1e-9)


def test_the_golden_values() -> None:
    """dp-accounting 0.6.0, noise 1: q=0.01, 1000 steps, delta 1e-7; and one Gaussian at 1e-6."""
    assert rdp_epsilon(EVENTS["training"], 1e-7, REMOVE) == pytest.approx(2.765, abs=2e-3)
    assert rdp_epsilon(EVENTS["gaussian"], 1e-6, REMOVE) == pytest.approx(5.222, abs=2e-3)


def test_local_randomizers_add_their_pure_epsilon() -> None:
    assert rdp_epsilon(EVENTS["labels only"], 1e-7, REMOVE) == 2.0
    training = rdp_epsilon(Repeated(event=STEP, count=100), 1e-7, REMOVE)
    together = rdp_epsilon(EVENTS["labels and training"], 1e-7, REMOVE)
    assert together == pytest.approx(1.0 + training)


@pytest.mark.parametrize("adjacency", [Adjacency.REPLACE, Adjacency.ZERO_OUT])
def test_other_adjacencies_are_refused(adjacency: Adjacency) -> None:
    for event in EVENTS.values():
        with pytest.raises(UnsupportedEventError, match=adjacency.value):
            rdp_epsilon(event, 1e-6, adjacency)


@pytest.mark.parametrize(
    "event",
    [
        events.DiscreteGaussian(scale=1.0),
        events.KeySelection(epsilon=1.0, delta=1e-6),
        events.NonPrivate(),
        PoissonSampled(sampling_prob=0.1, event=Laplace(noise_multiplier=1.0)),
        PoissonSampled(sampling_prob=0.1, event=EVENTS["gaussian"], max_rows_per_unit=2),
        events.FixedSizeSampled(batch_size=1, num_rows=9, event=Gaussian(noise_multiplier=1.0)),
        Gaussian(noise_multiplier=1e-160),
        Gaussian(noise_multiplier=1e160),
        PoissonSampled(sampling_prob=0.1, event=Gaussian(noise_multiplier=1e300)),
    ],
)
def test_what_the_papers_did_not_cover_is_refused(event: Event) -> None:
    for wrapped in (event, Repeated(event=event, count=3), Composed((STEP, event))):
        with pytest.raises(UnsupportedEventError, match="RDP"):
            rdp_epsilon(wrapped, 1e-6, REMOVE)


@pytest.mark.parametrize("level", [logging.NOTSET, logging.INFO, logging.CRITICAL])
def test_orders_that_are_left_out_are_not_reported_and_logging_stays_as_it_was(
    level: int, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("absl")
    before = logger.level
    # Orders near 1 do not converge at this noise.
    loud = PoissonSampled(sampling_prob=0.5, event=Gaussian(noise_multiplier=0.3))
    try:
        logger.setLevel(level)
        assert rdp_epsilon(Repeated(event=loud, count=10), 1e-7, REMOVE) > 50
        assert logger.level == level
        with pytest.raises(UnsupportedEventError):
            rdp_epsilon(Composed((loud, events.DiscreteGaussian(scale=1.0))), 1e-7, REMOVE)
        assert logger.level == level
    finally:
        logger.setLevel(before)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


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
