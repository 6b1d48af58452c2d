import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.privacy import events
from tulle.privacy.events import (
    Composed,
    Event,
    Gaussian,
    Parallel,
    Repeated,
    event_from_dict,
    event_from_json,
    event_to_dict,
    event_to_json,
)

GAUSSIAN = Gaussian(noise_multiplier=1.0)


def test_events_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        GAUSSIAN.noise_multiplier = 0.1  # type: ignore[misc]


@pytest.mark.parametrize("noise", [0.0, -1.0, math.nan, math.inf, -math.inf, True, "1", None])
@pytest.mark.parametrize("cls", [events.Gaussian, events.Laplace])
def test_noise_is_a_positive_number(cls: type[Event], noise: object) -> None:
    with pytest.raises(ConfigError, match="noise_multiplier"):
        cls(noise_multiplier=noise)  # type: ignore[call-arg]


def test_no_noise_points_to_the_unprotected_event() -> None:
    with pytest.raises(ConfigError, match="NonPrivate"):
        Gaussian(noise_multiplier=0.0)


@pytest.mark.parametrize("factor", [0.0, 0.99, 2.01, math.nan, -1.0])
@pytest.mark.parametrize(
    "make",
    [
        lambda f: Gaussian(noise_multiplier=1.0, replace_factor=f),
        lambda f: events.Laplace(noise_multiplier=1.0, replace_factor=f),
        lambda f: events.DiscreteLaplace(scale=1.0, replace_factor=f),
        lambda f: events.DiscreteGaussian(scale=1.0, replace_factor=f),
    ],
)
def test_a_replaced_unit_moves_a_sum_by_one_to_two_contributions(make, factor: float) -> None:
    with pytest.raises(ConfigError, match="replace_factor"):
        make(factor)


@pytest.mark.parametrize("prob", [0.0, -0.1, 1.0001, math.nan, True])
def test_a_sampling_prob_is_above_zero_and_at_most_one(prob: object) -> None:
    with pytest.raises(ConfigError, match="sampling_prob"):
        events.PoissonSampled(sampling_prob=prob, event=GAUSSIAN)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, -1, 1.0, 1.5, True, "2", None])
def test_counts_are_whole_and_positive(count: object) -> None:
    with pytest.raises(ConfigError, match="count"):
        Repeated(event=GAUSSIAN, count=count)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_contribution"):
        events.DiscreteLaplace(scale=1.0, max_contribution=count)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="num_reports"):
        events.Shuffled(event=GAUSSIAN, num_reports=count)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_bits", [64, 1500, 40_000])
def test_counts_beyond_64_bits_are_refused_and_not_printed(num_bits: int) -> None:
    count = 2 ** (num_bits - 1)
    for name, make in (
        ("count", lambda: Repeated(event=GAUSSIAN, count=count)),
        ("num_values", lambda: events.RandomizedResponse(epsilon=1.0, num_values=count)),
        ("max_contribution", lambda: events.DiscreteLaplace(scale=1.0, max_contribution=count)),
        ("num_reports", lambda: events.Shuffled(event=GAUSSIAN, num_reports=count)),
        ("group_size", lambda: events.Grouped(event=GAUSSIAN, group_size=count)),
        (
            "max_rows_per_unit",
            lambda: events.PoissonSampled(
                sampling_prob=0.1, event=GAUSSIAN, max_rows_per_unit=count
            ),
        ),
    ):
        with pytest.raises(ConfigError, match=f"^{name} must be <= {2**63 - 1}") as refused:
            make()
        assert len(str(refused.value)) < 200
    assert Repeated(event=GAUSSIAN, count=2**63 - 1).count == 2**63 - 1


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 2.0, math.nan])
def test_a_delta_is_below_one(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta"):
        events.EpsilonDelta(epsilon=1.0, delta=delta)
    with pytest.raises(ConfigError, match="delta"):
        events.KeySelection(epsilon=1.0, delta=delta)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: events.RandomizedResponse(epsilon=1.0, num_values=1), "num_values"),
        (lambda: events.SubsetSelection(epsilon=1.0, num_values=3, subset_size=3), "subset_size"),
        (
            lambda: events.FixedSizeSampled(batch_size=11, num_rows=10, event=GAUSSIAN),
            "batch_size",
        ),
        (
            lambda: events.TruncatedPoissonSampled(
                sampling_prob=0.1, num_rows=10, max_batch_size=11, event=GAUSSIAN
            ),
            "max_batch_size",
        ),
        (
            lambda: events.TruncatedPoissonSampled(
                sampling_prob=0.1,
                num_rows=10,
                max_batch_size=5,
                event=GAUSSIAN,
                max_rows_per_unit=11,
            ),
            "max_rows_per_unit",
        ),
        (lambda: Parallel(events=(), parts_are_public=True), "events"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(make, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()


@pytest.mark.parametrize("public", ["no", "false", "", 0, 1, None, 0.5])
def test_whether_parts_are_public_is_true_or_false(public: object) -> None:
    """A text is true in Python: "no" would claim that units cannot move between parts."""
    with pytest.raises(ConfigError, match="parts_are_public"):
        Parallel(events=(GAUSSIAN,), parts_are_public=public)  # type: ignore[arg-type]


@pytest.mark.parametrize("inner", [None, "Gaussian", 1.0, Gaussian, {"kind": "Gaussian"}])
def test_events_hold_events_only(inner: object) -> None:
    with pytest.raises(ConfigError, match="event"):
        Repeated(event=inner, count=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"events\[1\]"):
        Composed((GAUSSIAN, inner))  # type: ignore[arg-type]


def test_lists_become_tuples_so_that_events_stay_hashable() -> None:
    from_list = Composed([GAUSSIAN, GAUSSIAN])  # type: ignore[arg-type]
    assert from_list == Composed((GAUSSIAN, GAUSSIAN))
    assert hash(from_list) == hash(Composed((GAUSSIAN, GAUSSIAN)))


def test_whole_and_numpy_numbers_are_the_same_events() -> None:
    whole, numpy_one = Gaussian(noise_multiplier=1), Gaussian(noise_multiplier=np.float64(1.0))
    assert whole == GAUSSIAN == numpy_one
    assert hash(whole) == hash(GAUSSIAN) == hash(numpy_one)
    assert event_to_json(whole) == event_to_json(GAUSSIAN) == event_to_json(numpy_one)


def test_settings_are_given_by_name() -> None:
    with pytest.raises(TypeError):
        Gaussian(1.0)  # type: ignore[misc]
    with pytest.raises(TypeError):
        Parallel((GAUSSIAN,), True)  # type: ignore[misc]
    with pytest.raises(TypeError):
        Parallel(events=(GAUSSIAN,))  # type: ignore[call-arg]


def test_without_any_part_a_composition_is_no_release() -> None:
    assert Composed() == Composed(())
    assert Composed() != events.NonPrivate()


POSITIVE = st.floats(1e-6, 1e6)
PROBABILITIES = st.floats(0.0, 0.999)
COUNTS = st.integers(1, 10**12)
FACTORS = st.floats(1.0, 2.0)
LEAVES: st.SearchStrategy[Event] = st.one_of(
    st.builds(events.Gaussian, noise_multiplier=POSITIVE, replace_factor=FACTORS),
    st.builds(events.Laplace, noise_multiplier=POSITIVE),
    st.builds(events.DiscreteLaplace, scale=POSITIVE, max_contribution=COUNTS),
    st.builds(events.RandomizedResponse, epsilon=POSITIVE, num_values=st.integers(2, 99)),
    st.builds(events.EpsilonDelta, epsilon=st.floats(0.0, 9.0), delta=PROBABILITIES),
    st.builds(events.KeySelection, epsilon=POSITIVE, delta=PROBABILITIES, max_keys_per_unit=COUNTS),
    st.just(events.NonPrivate()),
)
EVENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(events.Repeated, event=inner, count=COUNTS),
        st.builds(events.Composed, st.lists(inner, max_size=3).map(tuple)),
        st.builds(
            events.Parallel,
            events=st.lists(inner, min_size=1, max_size=3).map(tuple),
            parts_are_public=st.booleans(),
        ),
        st.builds(events.PoissonSampled, sampling_prob=st.floats(1e-9, 1.0), event=inner),
        st.builds(events.Shuffled, event=inner, num_reports=COUNTS),
        st.builds(events.Grouped, event=inner, group_size=COUNTS),
    ),
    max_leaves=6,
)


@given(EVENTS)
def test_every_event_comes_back_with_the_same_text(event: Event) -> None:
    text = event_to_json(event)
    again = event_from_json(text)
    assert again == event
    assert event_to_json(again) == text
    assert json.loads(text) == event_to_dict(event)


@given(EVENTS, EVENTS)
def test_equal_events_and_only_those_have_equal_text(first: Event, second: Event) -> None:
    assert (event_to_json(first) == event_to_json(second)) == (first == second)


def test_the_text_of_an_event_never_changes() -> None:
    """A ledger of today must be readable for ever: do not edit this text."""
    event = events.Composed(
        (
            events.RandomizedResponse(epsilon=1),
            events.Repeated(
                event=events.PoissonSampled(
                    sampling_prob=0.01, event=events.Gaussian(noise_multiplier=1.1)
                ),
                count=100,
            ),
        )
    )
    assert event_to_json(event) == (
        '{"events":[{"epsilon":1.0,"kind":"RandomizedResponse","num_values":2},'
        '{"count":100,"event":{"event":{"kind":"Gaussian","noise_multiplier":1.1,'
        '"replace_factor":2.0},"kind":"PoissonSampled","max_rows_per_unit":1,'
        '"sampling_prob":0.01},"kind":"Repeated"}],"kind":"Composed"}'
    )


def test_both_zeros_have_one_text() -> None:
    zero, minus_zero = (events.EpsilonDelta(epsilon=e, delta=e) for e in (0.0, -0.0))
    assert zero == minus_zero
    assert event_to_json(zero) == event_to_json(minus_zero)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        '"Gaussian"',
        "{}",
        '{"kind":null}',
        '{"kind":["Gaussian"]}',
        '{"kind":"Gausian","noise_multiplier":1}',
        '{"kind":"Event"}',
        '{"kind":"Gaussian"}',
        '{"kind":"Gaussian","noise_multiplier":NaN}',
        '{"kind":"Gaussian","noise_multiplier":Infinity}',
        '{"kind":"Gaussian","noise_multiplier":1e999}',
        '{"kind":"Gaussian","noise_multiplier":"1"}',
        '{"kind":"Gaussian","noise_multiplier":true}',
        '{"kind":"Gaussian","noise_multiplier":[1]}',
        '{"kind":"Gaussian","noise_multiplier":{"kind":"NonPrivate"}}',
        '{"kind":"Gaussian","noise_multiplier":1,"noise_multiplier":9}',
        '{"kind":"Gaussian","noise_multiplier":1,"extra":1}',
        '{"kind":"Repeated","count":2.0,"event":{"kind":"NonPrivate"}}',
        '{"kind":"Repeated","count":2,"event":[{"kind":"NonPrivate"}]}',
        '{"kind":"Composed","events":[[{"kind":"NonPrivate"}]]}',
        '{"kind":"Composed","events":"NonPrivate"}',
        '{"kind":"Parallel","events":[{"kind":"NonPrivate"}],"parts_are_public":"false"}',
        '{"kind":"Parallel","events":[{"kind":"NonPrivate"}],"parts_are_public":1}',
    ],
)
def test_what_is_no_event_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        event_from_json(text)


def test_an_event_nested_without_end_is_refused() -> None:
    depth = 100_000
    text = '{"kind":"Repeated","count":1,"event":' * depth + "1" + "}" * depth
    with pytest.raises(ConfigError):
        event_from_json(text)


def test_a_class_of_ones_own_has_no_text() -> None:
    class Gaussian(Event):
        """Has the name of a known event."""

    for event in (Gaussian(), Event()):
        with pytest.raises(ConfigError, match="no JSON form"):
            event_to_dict(event)


@pytest.mark.parametrize("data", [None, 1, [], "x", {"noise_multiplier": 1.0}])
def test_plain_data_without_a_kind_is_refused(data: object) -> None:
    with pytest.raises(ConfigError, match="kind"):
        event_from_dict(data)
