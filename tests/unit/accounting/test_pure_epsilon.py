from fractions import Fraction

import pytest

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.pure_epsilon import pure_epsilon
from tulle.errors import UnsupportedEventError
from tulle.privacy import events
from tulle.privacy.events import Event
from tulle.privacy.units import Adjacency

LAPLACE = events.Laplace(noise_multiplier=4.0, replace_factor=2.0)

PURE_EVENTS: list[tuple[Event, float, float]] = [
    (LAPLACE, 0.25, 0.5),
    (events.DiscreteLaplace(scale=8.0, max_contribution=3), 0.375, 0.75),
    (events.RandomizedResponse(epsilon=0.5, num_values=3), 0.5, 0.5),
    (events.SubsetSelection(epsilon=0.5, num_values=9, subset_size=2), 0.5, 0.5),
    (events.EpsilonDelta(epsilon=0.5), 0.5, 0.5),
    (events.KeySelection(epsilon=0.5, delta=0.0, max_keys_per_unit=3), 1.5, 3.0),
    (events.Repeated(event=LAPLACE, count=3), 0.75, 1.5),
    (events.Composed((LAPLACE, events.EpsilonDelta(epsilon=0.5))), 0.75, 1.0),
    (events.Composed(), 0.0, 0.0),
    (events.Parallel(events=(LAPLACE, LAPLACE, LAPLACE), parts_are_public=True), 0.25, 0.5),
    (events.Parallel(events=(LAPLACE, LAPLACE, LAPLACE), parts_are_public=False), 0.25, 1.0),
]


@pytest.mark.parametrize(("event", "add_remove", "replace"), PURE_EVENTS)
def test_pure_costs_are_known_under_each_adjacency(
    event: Event, add_remove: float, replace: float
) -> None:
    assert pure_epsilon(event, Adjacency.ADD_OR_REMOVE) == add_remove
    assert pure_epsilon(event, Adjacency.ZERO_OUT) == add_remove
    assert pure_epsilon(event, Adjacency.REPLACE) == replace


@pytest.mark.parametrize("event", [event for event, _, _ in PURE_EVENTS])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_accountant_agrees(event: Event, adjacency: Adjacency) -> None:
    assert privacy_curve(event, adjacency).epsilon(0.0) == pytest.approx(
        float(pure_epsilon(event, adjacency) or 0), rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize(
    "event",
    [
        events.Gaussian(noise_multiplier=1.0),
        events.DiscreteGaussian(scale=1.0),
        events.EpsilonDelta(epsilon=0.5, delta=1e-9),
        events.KeySelection(epsilon=0.5, delta=1e-9),
        events.PoissonSampled(sampling_prob=0.5, event=LAPLACE),
        events.NonPrivate(),
        events.Composed((LAPLACE, events.NonPrivate())),
        events.Repeated(event=events.Gaussian(noise_multiplier=1.0), count=2),
        events.Parallel(events=(LAPLACE, events.NonPrivate()), parts_are_public=True),
    ],
)
def test_what_is_not_pure_has_no_pure_cost(event: Event) -> None:
    assert pure_epsilon(event, Adjacency.REPLACE) is None


@pytest.mark.parametrize(
    "part",
    [
        events.EpsilonDelta(epsilon=0.5),
        events.Composed(
            (LAPLACE, events.Repeated(event=events.EpsilonDelta(epsilon=0.5), count=2))
        ),
        events.Parallel(events=(LAPLACE, LAPLACE), parts_are_public=True),
    ],
)
def test_what_holds_for_fixed_units_has_no_pure_cost_where_units_move(part: Event) -> None:
    moving = events.Parallel(events=(part, LAPLACE), parts_are_public=False)
    with pytest.raises(UnsupportedEventError, match="in private parts"):
        privacy_curve(moving, Adjacency.REPLACE)
    assert pure_epsilon(moving, Adjacency.REPLACE) is None
    assert pure_epsilon(moving, Adjacency.ADD_OR_REMOVE) is not None
    alone = events.Parallel(events=(part,), parts_are_public=False)
    assert pure_epsilon(alone, Adjacency.REPLACE) == pure_epsilon(part, Adjacency.REPLACE)


def test_sums_are_exact() -> None:
    tenth = events.EpsilonDelta(epsilon=0.1)
    together = events.Composed((events.Repeated(event=tenth, count=10**9), tenth))
    assert pure_epsilon(together, Adjacency.REPLACE) == (10**9 + 1) * Fraction(0.1)
