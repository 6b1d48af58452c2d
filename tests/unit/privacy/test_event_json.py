import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.privacy import events
from tulle.privacy.event_json import (
    event_from_dict,
    event_from_json,
    event_to_dict,
    event_to_json,
)
from tulle.privacy.events import Event

POSITIVE = st.floats(1e-6, 1e6)
CHANCES = st.floats(0.0, 0.999)
COUNTS = st.integers(1, 10**12)
FACTORS = st.floats(1.0, 2.0)
LEAVES: st.SearchStrategy[Event] = st.one_of(
    st.builds(events.Gaussian, noise_multiplier=POSITIVE, replace_factor=FACTORS),
    st.builds(events.Laplace, noise_multiplier=POSITIVE),
    st.builds(events.DiscreteLaplace, scale=POSITIVE, max_contribution=COUNTS),
    st.builds(events.RandomizedResponse, epsilon=POSITIVE, num_values=st.integers(2, 99)),
    st.builds(events.EpsilonDelta, epsilon=st.floats(0.0, 9.0), delta=CHANCES),
    st.builds(events.KeySelection, epsilon=POSITIVE, delta=CHANCES, max_keys_per_unit=COUNTS),
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
