import dataclasses

import pytest

from tulle.accounting.noise_scaling import (
    MAX_NOISE_FACTOR,
    least_noise_factor,
    noise_setting,
    with_noise_scaled,
)
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.event_json import _EVENT_CLASSES
from tulle.privacy.events import Event

GAUSSIAN = events.Gaussian(noise_multiplier=1.5, replace_factor=1.0)
DOUBLE_GAUSSIAN = events.Gaussian(noise_multiplier=3.0, replace_factor=1.0)

WITH_DOUBLE_NOISE: list[tuple[Event, Event]] = [
    (GAUSSIAN, DOUBLE_GAUSSIAN),
    (
        events.SwitchedGaussian(noise_multiplier=2),
        events.SwitchedGaussian(noise_multiplier=4),
    ),
    (events.Laplace(noise_multiplier=2), events.Laplace(noise_multiplier=4)),
    (
        events.DiscreteLaplace(scale=3, max_contribution=2),
        events.DiscreteLaplace(scale=6, max_contribution=2),
    ),
    (events.DiscreteGaussian(scale=5), events.DiscreteGaussian(scale=10)),
    (
        events.RandomizedResponse(epsilon=1, num_values=5),
        events.RandomizedResponse(epsilon=0.5, num_values=5),
    ),
    (
        events.SubsetSelection(epsilon=1, num_values=9, subset_size=3),
        events.SubsetSelection(epsilon=0.5, num_values=9, subset_size=3),
    ),
    (
        events.EpsilonDelta(epsilon=1, delta=1e-6),
        events.EpsilonDelta(epsilon=0.5, delta=1e-6),
    ),
    (
        events.KeySelection(epsilon=1, delta=1e-6),
        events.KeySelection(epsilon=0.5, delta=1e-6),
    ),
    (
        events.PoissonSampled(sampling_prob=0.1, event=GAUSSIAN),
        events.PoissonSampled(sampling_prob=0.1, event=DOUBLE_GAUSSIAN),
    ),
    (
        events.TruncatedPoissonSampled(
            sampling_prob=0.1, num_rows=99, max_batch_size=9, event=GAUSSIAN
        ),
        events.TruncatedPoissonSampled(
            sampling_prob=0.1, num_rows=99, max_batch_size=9, event=DOUBLE_GAUSSIAN
        ),
    ),
    (
        events.FixedSizeSampled(batch_size=9, num_rows=99, event=GAUSSIAN),
        events.FixedSizeSampled(batch_size=9, num_rows=99, event=DOUBLE_GAUSSIAN),
    ),
    (
        events.Shuffled(event=events.RandomizedResponse(epsilon=1), num_reports=100),
        events.Shuffled(event=events.RandomizedResponse(epsilon=0.5), num_reports=100),
    ),
    (
        events.Repeated(event=GAUSSIAN, count=7),
        events.Repeated(event=DOUBLE_GAUSSIAN, count=7),
    ),
    (
        events.Composed((GAUSSIAN, events.EpsilonDelta(epsilon=1))),
        events.Composed((DOUBLE_GAUSSIAN, events.EpsilonDelta(epsilon=0.5))),
    ),
    (
        events.Parallel(events=(GAUSSIAN, GAUSSIAN), parts_are_public=True),
        events.Parallel(events=(DOUBLE_GAUSSIAN, DOUBLE_GAUSSIAN), parts_are_public=True),
    ),
    (
        events.Grouped(event=GAUSSIAN, group_size=3),
        events.Grouped(event=DOUBLE_GAUSSIAN, group_size=3),
    ),
    (events.NonPrivate(), events.NonPrivate()),
]


@pytest.mark.parametrize(("event", "expected"), WITH_DOUBLE_NOISE)
def test_scaling_changes_the_noise_and_nothing_else(event: Event, expected: Event) -> None:
    assert with_noise_scaled(event, 2.0) == expected
    assert with_noise_scaled(event, 1.0) == event


def test_every_event_class_is_listed_above() -> None:
    assert {type(event) for event, _ in WITH_DOUBLE_NOISE} == set(_EVENT_CLASSES.values())


def test_an_unknown_event_class_is_refused_by_name() -> None:
    @dataclasses.dataclass(frozen=True)
    class Novel(Event):
        pass

    with pytest.raises(UnsupportedEventError, match="Novel"):
        with_noise_scaled(Novel(), 2.0)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_a_factor_that_is_no_factor_is_refused(factor: float) -> None:
    with pytest.raises(ConfigError, match="factor="):
        with_noise_scaled(GAUSSIAN, factor)


@pytest.mark.parametrize("least", [1.0001, 1.7, 2.0, 16.0, 33.3, 4000.0])
def test_the_least_factor_fits_and_is_least_to_a_thousandth(least: float) -> None:
    def fits(event: Event) -> bool:
        assert isinstance(event, events.Gaussian)
        return event.noise_multiplier >= 1.5 * least

    factor = least_noise_factor(GAUSSIAN, fits)
    assert factor is not None
    assert fits(with_noise_scaled(GAUSSIAN, factor))
    assert factor <= least * 1.0011


def test_what_fits_already_needs_no_more_noise() -> None:
    assert least_noise_factor(GAUSSIAN, lambda _: True) == 1.0


def test_nothing_that_fits_is_none_after_few_tries() -> None:
    tried: list[Event] = []

    def never_fits(event: Event) -> bool:
        tried.append(event)
        return False

    assert least_noise_factor(GAUSSIAN, never_fits) is None
    assert with_noise_scaled(GAUSSIAN, MAX_NOISE_FACTOR) in tried
    assert len(tried) < 6


@pytest.mark.parametrize(
    ("event", "setting"),
    [
        (GAUSSIAN, ("noise_multiplier", 1.5)),
        (events.DiscreteLaplace(scale=3), ("scale", 3)),
        (events.RandomizedResponse(epsilon=0.5), ("epsilon", 0.5)),
        (
            events.Repeated(
                event=events.PoissonSampled(sampling_prob=0.1, event=GAUSSIAN), count=9
            ),
            ("noise_multiplier", 1.5),
        ),
        (events.Composed((GAUSSIAN, GAUSSIAN)), ("noise_multiplier", 1.5)),
        (events.Composed((GAUSSIAN, DOUBLE_GAUSSIAN)), None),
        (events.Composed(), None),
        (events.NonPrivate(), None),
    ],
)
def test_the_noise_setting_is_named_where_there_is_one(
    event: Event, setting: tuple[str, float] | None
) -> None:
    assert noise_setting(event) == setting
