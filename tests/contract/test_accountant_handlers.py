"""The contract of every event: its JSON, its checks, and what it costs under each adjacency."""

import dataclasses
import functools
import inspect
import itertools
import math

import numpy as np
import pytest

from tulle.accounting import event_rules
from tulle.accounting.accountant import privacy_curve
from tulle.accounting.curve import PrivacyCurve
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.events import (
    _EVENT_CLASSES,
    Event,
    contains,
    event_from_dict,
    event_from_json,
    event_to_dict,
    event_to_json,
)
from tulle.privacy.units import Adjacency

REPLACE, REMOVE, ZERO_OUT = Adjacency.REPLACE, Adjacency.ADD_OR_REMOVE, Adjacency.ZERO_OUT
GAUSSIAN = events.Gaussian(noise_multiplier=1.5)
SWITCHED = events.SwitchedGaussian(noise_multiplier=1.5)
LAPLACE = events.Laplace(noise_multiplier=2.0)
RESPONSE = events.RandomizedResponse(epsilon=1.0)

EXAMPLES: dict[str, tuple[Event, ...]] = {
    "Gaussian": (GAUSSIAN, events.Gaussian(noise_multiplier=0.5, replace_factor=1.0)),
    "SwitchedGaussian": (SWITCHED,),
    "Laplace": (LAPLACE, events.Laplace(noise_multiplier=0.5, replace_factor=1.0)),
    "DiscreteLaplace": (events.DiscreteLaplace(scale=2.0, max_contribution=3),),
    "DiscreteGaussian": (events.DiscreteGaussian(scale=2.5, max_contribution=2),),
    "RandomizedResponse": (RESPONSE, events.RandomizedResponse(epsilon=2.0, num_values=5)),
    "SubsetSelection": (events.SubsetSelection(epsilon=1.0, num_values=9, subset_size=3),),
    "EpsilonDelta": (events.EpsilonDelta(epsilon=0.5, delta=1e-6),),
    "KeySelection": (events.KeySelection(epsilon=0.3, delta=1e-6, max_keys_per_unit=2),),
    "PoissonSampled": (
        events.PoissonSampled(sampling_prob=0.1, event=GAUSSIAN),
        events.PoissonSampled(sampling_prob=0.1, event=GAUSSIAN, max_rows_per_unit=3),
        events.PoissonSampled(sampling_prob=0.1, event=SWITCHED),
        events.PoissonSampled(sampling_prob=0.1, event=SWITCHED, max_rows_per_unit=3),
        events.PoissonSampled(sampling_prob=0.1, event=LAPLACE),
        events.PoissonSampled(sampling_prob=0.1, event=events.DiscreteLaplace(scale=2.0)),
        events.PoissonSampled(sampling_prob=0.1, event=events.DiscreteGaussian(scale=2.0)),
        events.PoissonSampled(sampling_prob=0.1, event=events.Repeated(event=GAUSSIAN, count=2)),
    ),
    "TruncatedPoissonSampled": (
        events.TruncatedPoissonSampled(
            sampling_prob=0.1, num_rows=100, max_batch_size=15, event=GAUSSIAN
        ),
        events.TruncatedPoissonSampled(
            sampling_prob=0.1,
            num_rows=100,
            max_batch_size=30,
            event=GAUSSIAN,
            max_rows_per_unit=2,
        ),
        events.TruncatedPoissonSampled(
            sampling_prob=0.1, num_rows=100, max_batch_size=15, event=SWITCHED
        ),
        events.TruncatedPoissonSampled(
            sampling_prob=0.1,
            num_rows=100,
            max_batch_size=30,
            event=SWITCHED,
            max_rows_per_unit=2,
        ),
    ),
    "FixedSizeSampled": (
        events.FixedSizeSampled(batch_size=10, num_rows=100, event=GAUSSIAN),
        events.FixedSizeSampled(batch_size=10, num_rows=100, event=LAPLACE),
    ),
    "Shuffled": (
        events.Shuffled(event=RESPONSE, num_reports=1000),
        events.Shuffled(event=events.EpsilonDelta(epsilon=1.0), num_reports=1000),
    ),
    "Repeated": (events.Repeated(event=GAUSSIAN, count=3), events.Repeated(event=LAPLACE, count=3)),
    "Composed": (events.Composed((GAUSSIAN, RESPONSE)), events.Composed()),
    "Parallel": (
        events.Parallel(events=(GAUSSIAN, LAPLACE), parts_are_public=True),
        events.Parallel(events=(GAUSSIAN, LAPLACE), parts_are_public=False),
    ),
    "Grouped": (
        events.Grouped(event=GAUSSIAN, group_size=2),
        events.Grouped(
            event=events.Composed(
                (RESPONSE, events.PoissonSampled(sampling_prob=0.1, event=GAUSSIAN))
            ),
            group_size=3,
        ),
    ),
    "NonPrivate": (events.NonPrivate(),),
}
ALL = [pytest.param(e, id=f"{name}-{i}") for name, es in EXAMPLES.items() for i, e in enumerate(es)]
PRIVATE = [case for case in ALL if not isinstance(case.values[0], events.NonPrivate)]
REFUSED = set(itertools.product(("FixedSizeSampled", "Shuffled"), (REMOVE, ZERO_OUT)))
each_event = pytest.mark.parametrize("event", ALL)
each_private_event = pytest.mark.parametrize("event", PRIVATE)
each_adjacency = pytest.mark.parametrize("adjacency", list(Adjacency))


def is_refused(event: Event, adjacency: Adjacency) -> bool:
    return (type(event).__name__, adjacency) in REFUSED


@functools.cache
def cached_curve(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    return privacy_curve(event, adjacency)


def curve_or_skip(event: Event, adjacency: Adjacency) -> PrivacyCurve:
    if is_refused(event, adjacency):
        pytest.skip("refused by name; tested as such")
    return cached_curve(event, adjacency)


def test_every_event_class_has_an_example() -> None:
    classes = dict(inspect.getmembers(events, inspect.isclass))
    concrete = {n for n, cls in classes.items() if issubclass(cls, Event) and cls is not Event}
    assert set(EXAMPLES) == set(_EVENT_CLASSES) == concrete
    for name, examples in EXAMPLES.items():
        assert all(type(e).__name__ == name for e in examples)


def test_every_event_class_has_rules() -> None:
    """A new mechanism is a class in mechanism_rules.py, a new composition one in event_rules.py."""
    assert {cls.__name__ for cls in event_rules._RULES} == set(EXAMPLES)


@each_event
def test_rules_scale_noise_and_open_batches(event: Event) -> None:
    """Each event says what it is with more noise and without sampling, or names what it is."""
    assert event_rules.with_noise_scaled(event, 1.0) == event
    assert type(event_rules.with_noise_scaled(event, 2.0)) is type(event)
    opened = event_rules.without_amplification(event)
    sampled = (
        events.PoissonSampled,
        events.TruncatedPoissonSampled,
        events.FixedSizeSampled,
        events.Shuffled,
    )
    assert not any(contains(opened, kind) for kind in sampled)


@each_event
def test_json_is_stable_and_comes_back(event: Event) -> None:
    text = event_to_json(event)
    again = event_from_json(text)
    assert again == event
    assert hash(again) == hash(event)
    assert event_to_json(again) == text
    assert event_from_dict(event_to_dict(event)) == event
    assert "\n" not in text


@each_event
def test_events_compare_by_value(event: Event) -> None:
    assert event == dataclasses.replace(event)
    others = [case.values[0] for case in ALL if case.values[0] is not event]
    assert all(event != other for other in others)
    assert len({event_to_json(case.values[0]) for case in ALL}) == len(ALL)


@each_event
def test_every_bad_field_is_refused_by_name(event: Event) -> None:
    for field in dataclasses.fields(event):
        bad_values: list[object] = ["1", None, math.nan, math.inf, -1, [1]]
        bad_values += [] if field.name == "parts_are_public" else [True]
        bad_values += [10**400] if field.type is float else [0.5]
        for bad in bad_values:
            with pytest.raises(ConfigError, match=field.name.removesuffix("s")):
                dataclasses.replace(event, **{field.name: bad})


@each_event
def test_unknown_and_missing_keys_are_refused_by_name(event: Event) -> None:
    data = event_to_dict(event)
    with pytest.raises(ConfigError, match="sampling_probability"):
        event_from_dict(data | {"sampling_probability": 0.5})
    for field in dataclasses.fields(event):
        if field.default is dataclasses.MISSING:
            less = {key: value for key, value in data.items() if key != field.name}
            with pytest.raises(ConfigError, match=field.name):
                event_from_dict(less)


@each_event
@each_adjacency
def test_a_refusal_names_the_event_and_the_adjacency(event: Event, adjacency: Adjacency) -> None:
    if not is_refused(event, adjacency):
        privacy_curve(event, adjacency)
        return
    with pytest.raises(UnsupportedEventError, match=type(event).__name__) as caught:
        privacy_curve(event, adjacency)
    assert adjacency.value in str(caught.value)


@each_private_event
@each_adjacency
def test_the_curve_falls(event: Event, adjacency: Adjacency) -> None:
    curve = curve_or_skip(event, adjacency)
    deltas = np.array([curve.delta(float(e)) for e in np.linspace(0.0, 12.0, 17)])
    assert np.all((deltas >= 0) & (deltas <= 1))
    assert np.all(np.diff(deltas) <= 1e-15)
    epsilons = [curve.epsilon(float(d)) for d in (1e-2, 1e-4)]
    assert epsilons == sorted(epsilons)
    assert all(e >= 0 for e in epsilons)


@each_private_event
def test_a_replaced_unit_costs_no_less_than_a_removed_one(event: Event) -> None:
    removed, replaced = curve_or_skip(event, REMOVE), curve_or_skip(event, REPLACE)
    zeroed = privacy_curve(event, ZERO_OUT)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0):
        tolerance = replaced.delta(epsilon) * 1e-6 + 1e-12
        assert removed.delta(epsilon) <= replaced.delta(epsilon) + tolerance
        assert zeroed.delta(epsilon) <= removed.delta(epsilon) + tolerance


@each_private_event
@each_adjacency
def test_twice_costs_at_least_once_and_at_most_the_sum(event: Event, adjacency: Adjacency) -> None:
    if isinstance(event, events.Grouped):
        pytest.skip("refused by name; tested as such")
    once = curve_or_skip(event, adjacency)
    twice = privacy_curve(events.Repeated(event=event, count=2), adjacency)
    for epsilon in (0.0, 0.1, 0.5, 1.5):
        alone = once.delta(epsilon)
        assert twice.delta(epsilon) >= alone * (1 - 1e-9)
        assert twice.delta(2 * epsilon) <= 2 * alone * (1 + 1e-3) + 1e-11


@each_private_event
@each_adjacency
def test_one_part_alone_costs_what_it_costs(event: Event, adjacency: Adjacency) -> None:
    alone = curve_or_skip(event, adjacency)
    wraps = [
        events.Composed((event,)),
        events.Composed((events.Composed(), event)),
        events.Repeated(event=event, count=1),
    ]
    if not isinstance(event, events.Grouped):
        wraps.append(events.Parallel(events=(event,), parts_are_public=True))
    for wrapped in wraps:
        again = privacy_curve(wrapped, adjacency)
        assert [again.delta(e) for e in (0.0, 0.3)] == [alone.delta(e) for e in (0.0, 0.3)]


NOISE_FIELDS = {"noise_multiplier": 2.0, "scale": 2.0, "epsilon": 0.5}


def with_less_leak(event: Event) -> Event:
    """The same event with twice the noise, or half the epsilon, everywhere inside."""
    changes: dict[str, object] = {}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if field.name in NOISE_FIELDS:
            changes[field.name] = value * NOISE_FIELDS[field.name]
        elif isinstance(value, Event):
            changes[field.name] = with_less_leak(value)
        elif isinstance(value, tuple):
            changes[field.name] = tuple(with_less_leak(part) for part in value)
    return dataclasses.replace(event, **changes)


@each_private_event
@each_adjacency
def test_more_noise_never_costs_more(event: Event, adjacency: Adjacency) -> None:
    quiet = curve_or_skip(event, adjacency)
    loud = privacy_curve(with_less_leak(event), adjacency)
    for epsilon in (0.0, 0.2, 1.0):
        assert loud.delta(epsilon) <= quiet.delta(epsilon) * (1 + 1e-9) + 1e-15


@each_adjacency
def test_one_unprotected_part_makes_everything_unprotected(adjacency: Adjacency) -> None:
    exposed = events.NonPrivate()
    for event in (
        exposed,
        events.Repeated(event=exposed, count=2),
        events.Composed((GAUSSIAN, events.Composed((LAPLACE, exposed)))),
        events.Parallel(events=(GAUSSIAN, exposed), parts_are_public=True),
        events.PoissonSampled(sampling_prob=1e-6, event=exposed),
        events.FixedSizeSampled(batch_size=1, num_rows=10, event=exposed),
        events.Shuffled(event=events.Composed((RESPONSE, exposed)), num_reports=10),
        events.Grouped(event=exposed, group_size=2),
    ):
        assert contains(event, events.NonPrivate)
        curve = privacy_curve(event, adjacency)
        assert curve.epsilon(0.5) == math.inf
        assert curve.delta(100.0) == 1.0


BAD_COMBINATIONS = [
    (events.PoissonSampled(sampling_prob=0.1, event=RESPONSE), REPLACE),
    (events.PoissonSampled(sampling_prob=0.1, event=RESPONSE), REMOVE),
    (events.PoissonSampled(sampling_prob=0.1, event=LAPLACE, max_rows_per_unit=2), REMOVE),
    (events.PoissonSampled(sampling_prob=0.1, event=events.Composed((GAUSSIAN, LAPLACE))), REPLACE),
    (
        events.TruncatedPoissonSampled(
            sampling_prob=0.1, num_rows=10, max_batch_size=5, event=LAPLACE
        ),
        REPLACE,
    ),
    (events.FixedSizeSampled(batch_size=1, num_rows=2, event=RESPONSE), REPLACE),
    (events.FixedSizeSampled(batch_size=1, num_rows=2, event=SWITCHED), REPLACE),
    (events.Shuffled(event=SWITCHED, num_reports=10), REPLACE),
    (
        events.PoissonSampled(sampling_prob=0.1, event=events.Composed((SWITCHED, GAUSSIAN))),
        REPLACE,
    ),
    (
        events.TruncatedPoissonSampled(
            sampling_prob=0.1,
            num_rows=10,
            max_batch_size=5,
            event=events.Composed((SWITCHED, LAPLACE)),
        ),
        REMOVE,
    ),
    (events.Shuffled(event=GAUSSIAN, num_reports=10), REPLACE),
    (events.Shuffled(event=events.EpsilonDelta(epsilon=1.0, delta=1e-9), num_reports=9), REPLACE),
    (
        events.Shuffled(
            event=events.PoissonSampled(sampling_prob=0.1, event=LAPLACE), num_reports=9
        ),
        REPLACE,
    ),
    (
        events.Shuffled(
            event=events.FixedSizeSampled(batch_size=1, num_rows=9, event=LAPLACE), num_reports=9
        ),
        REPLACE,
    ),
    (events.DiscreteGaussian(scale=1e6), REPLACE),
    (events.DiscreteGaussian(scale=1.0, max_contribution=10**13), REPLACE),
    (Event(), REPLACE),
]


@pytest.mark.parametrize(("event", "adjacency"), BAD_COMBINATIONS)
def test_combinations_without_a_sound_pair_are_refused(event: Event, adjacency: Adjacency) -> None:
    wrappers = (
        lambda e: e,
        lambda e: events.Composed((GAUSSIAN, e)),
        lambda e: events.Repeated(event=e, count=2),
        lambda e: events.Parallel(events=(GAUSSIAN, e), parts_are_public=True),
    )
    for wrap in wrappers:
        with pytest.raises(UnsupportedEventError, match=type(event).__name__):
            privacy_curve(wrap(event), adjacency)


GROUPED = EXAMPLES["Grouped"][0]


@each_adjacency
@pytest.mark.parametrize(
    "event",
    [
        events.Repeated(event=GROUPED, count=2),
        events.PoissonSampled(sampling_prob=0.1, event=GROUPED),
        events.TruncatedPoissonSampled(
            sampling_prob=0.1, num_rows=10, max_batch_size=5, event=GROUPED
        ),
        events.FixedSizeSampled(batch_size=1, num_rows=9, event=GROUPED),
        events.Shuffled(event=events.Grouped(event=RESPONSE, group_size=2), num_reports=10),
        events.Parallel(events=(GROUPED,), parts_are_public=True),
        events.Grouped(event=GROUPED, group_size=2),
        events.Composed((GROUPED, GROUPED)),
        events.Composed((GROUPED, GAUSSIAN)),
        events.Composed((GROUPED, events.EpsilonDelta(epsilon=0.1, delta=1e-9))),
        events.Composed((RESPONSE, events.Repeated(event=GROUPED, count=2))),
    ],
)
def test_group_privacy_is_refused_where_it_is_not_outermost(
    event: Event, adjacency: Adjacency
) -> None:
    with pytest.raises(UnsupportedEventError, match=r"Grouped.*max_rows_per_unit"):
        privacy_curve(event, adjacency)


@pytest.mark.parametrize("adjacency", ["replace", "add-remove", None, 1])
def test_an_adjacency_is_one_of_the_known_ones(adjacency: object) -> None:
    for event in (GAUSSIAN, EXAMPLES["PoissonSampled"][0], events.NonPrivate()):
        with pytest.raises(ConfigError, match="adjacency"):
            privacy_curve(event, adjacency)  # type: ignore[arg-type]


def test_order_and_nesting_do_not_matter() -> None:
    parts = (GAUSSIAN, RESPONSE, EXAMPLES["PoissonSampled"][0])
    costs = [
        privacy_curve(events.Composed(order), REPLACE).epsilon(1e-5)
        for order in itertools.permutations(parts)
    ]
    nested = events.Composed((parts[0], events.Composed(parts[1:])))
    costs.append(privacy_curve(nested, REPLACE).epsilon(1e-5))
    assert max(costs) <= min(costs) * (1 + 1e-6)
