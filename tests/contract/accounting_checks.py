"""Checks of an accountant against brute force, each for one way to under-report.

An accountant is anything from an event and an adjacency to a curve. Every check
raises AssertionError if the curve is below what a data set of a few rows shows.
"""

import itertools
from collections.abc import Callable, Iterable

import numpy as np

from tulle.accounting.curve import PrivacyCurve
from tulle.errors import ConfigError
from tulle.privacy import events
from tulle.privacy.events import Event, Gaussian, RandomizedResponse, Repeated
from tulle.privacy.units import Adjacency
from unit.accounting.hockey_stick import (
    Mixture,
    divergence,
    exact_gaussian_delta,
    fixed_size_sums,
    gaussian_delta,
    log_gaussian,
    poisson_sums,
    randomized_response_delta,
)

Accountant = Callable[[Event, Adjacency], PrivacyCurve]
REPLACE, REMOVE = Adjacency.REPLACE, Adjacency.ADD_OR_REMOVE
EPSILONS = (0.0, 0.1, 0.4, 1.0, 2.0, 4.0)
GAUSSIAN = Gaussian(noise_multiplier=0.8)
SWITCHED = events.SwitchedGaussian(noise_multiplier=0.8)


def assert_dominates(curve: PrivacyCurve, found: Iterable[float], at: Iterable[float]) -> None:
    """The curve is nowhere below what was found; the grids here are right to 1e-3."""
    for epsilon, delta in zip(at, found, strict=True):
        claimed = curve.delta(epsilon)
        assert claimed >= delta * (1 - 1e-3) - 1e-12, f"{claimed} < {delta} at {epsilon}"


def assert_hides(curve: PrivacyCurve, pairs: Iterable[tuple[Mixture, Mixture]]) -> None:
    """Gaussian noise of 0.8 on either mixture of sums looks alike, as claimed."""
    for p, q in pairs:
        for first, second in ((p, q), (q, p)):
            found = gaussian_delta(first, second, 0.8, EPSILONS, points_per_stddev=100)
            assert_dominates(curve, found, EPSILONS)


def check_every_response_counts(accountant: Accountant) -> None:
    """Several responses cost more than one, up to the sum of their epsilons."""
    for epsilon, count in ((1.0, 10), (4.0, 6), (0.3, 8)):
        event = Repeated(event=RandomizedResponse(epsilon=epsilon), count=count)
        at = [share * epsilon * count for share in (0.0, 0.3, 0.6, 0.95)]
        found = [randomized_response_delta(epsilon, 2, count, e) for e in at]
        assert_dominates(accountant(event, REPLACE), found, at)


def check_a_replaced_unit_moves_twice(accountant: Accountant) -> None:
    """One unit's clipped sum goes from -1 to 1."""
    assert_hides(accountant(GAUSSIAN, REPLACE), [({1: 1.0}, {-1: 1.0})])


def check_a_replaced_row_of_a_batch(accountant: Accountant) -> None:
    """A flipped label turns a sampled gradient round."""
    event = events.PoissonSampled(sampling_prob=0.3, event=GAUSSIAN)
    pair = poisson_sums((1,), 0.3), poisson_sums((-1,), 0.3)
    assert_hides(accountant(event, REPLACE), [pair])


def check_a_switched_label_of_a_batch(accountant: Accountant) -> None:
    """A label switches one vector on or off; others of the batch may be on."""
    event = events.PoissonSampled(sampling_prob=0.3, event=SWITCHED)
    assert_hides(accountant(event, REPLACE), [(poisson_sums((1,), 0.3), {0: 1.0})])
    cut = events.TruncatedPoissonSampled(
        sampling_prob=0.25, num_rows=8, max_batch_size=1, event=SWITCHED
    )
    for others in ((1,) * 7, (-1,) * 7, (0,) * 7, (1, 1, 1, -1, -1, 0, 0)):
        on, off = (poisson_sums((*others, own), 0.25, 1) for own in (1, 0))
        assert_hides(accountant(cut, REPLACE), [(on, off)])


def check_labels_that_switch_both_ways(accountant: Accountant) -> None:
    """Two labels of a unit, one goes on and one off: in one batch, and in two releases."""
    event = events.PoissonSampled(sampling_prob=0.3, event=SWITCHED, max_rows_per_unit=2)
    pair = poisson_sums((1, 0), 0.3), poisson_sums((0, -1), 0.3)
    assert_hides(accountant(event, REPLACE), [pair])
    step = events.PoissonSampled(sampling_prob=0.3, event=SWITCHED)
    curve = accountant(events.Composed((step, step)), REPLACE)
    on, off = ({0: 0.7, 1: 0.3}, {0: 1.0})
    grid = np.linspace(-6, 7, 1301)
    log_on, log_off = (log_gaussian(grid, m, 0.8) + np.log(0.01) for m in (on, off))
    for first, second in (((log_on, log_off), (log_off, log_on)), ((log_on,) * 2, (log_off,) * 2)):
        found = divergence(np.add.outer(*first), np.add.outer(*second), EPSILONS)
        assert_dominates(curve, found, EPSILONS)


def check_fixed_batches(accountant: Accountant) -> None:
    """In a batch of fixed size the row pushes another one out."""
    event = events.FixedSizeSampled(batch_size=2, num_rows=5, event=GAUSSIAN)
    pair = fixed_size_sums((-1, -1, -1, -1, 1), 2), fixed_size_sums((-1, -1, -1, -1, -1), 2)
    assert_hides(accountant(event, REPLACE), [pair])


def check_cut_batches(accountant: Accountant) -> None:
    """A batch that is cut is one of fixed size: an added row pushes another one out."""
    event = events.TruncatedPoissonSampled(
        sampling_prob=0.25, num_rows=12, max_batch_size=1, event=GAUSSIAN
    )
    others = (-1,) * 11
    with_row, without = (poisson_sums((*others, *row), 0.25, 1) for row in ((1,), ()))
    replaced = poisson_sums((*others, -1), 0.25, 1)
    assert_hides(accountant(event, REPLACE), [(with_row, replaced)])
    assert_hides(accountant(event, REMOVE), [(with_row, without)])


def check_all_rows_of_a_unit(accountant: Accountant) -> None:
    """Three rows of one unit point the same way."""
    event = events.PoissonSampled(sampling_prob=0.2, event=GAUSSIAN, max_rows_per_unit=3)
    up, down = poisson_sums((1, 1, 1), 0.2), poisson_sums((-1, -1, -1), 0.2)
    assert_hides(accountant(event, REPLACE), [(up, down)])
    assert_hides(accountant(event, REMOVE), [(up, {0: 1.0})])


def check_groups_of_units(accountant: Accountant) -> None:
    """Two rows of one user turn round together, and so does the label that was told."""
    group = events.Grouped(event=GAUSSIAN, group_size=2)
    assert_hides(accountant(group, REPLACE), [({2: 1.0}, {-2: 1.0})])
    assert_hides(accountant(group, REMOVE), [({2: 1.0}, {0: 1.0})])
    sampled = events.PoissonSampled(sampling_prob=0.2, event=GAUSSIAN)
    group = events.Grouped(event=sampled, group_size=3)
    up, down = poisson_sums((1, 1, 1), 0.2), poisson_sums((-1, -1, -1), 0.2)
    assert_hides(accountant(group, REPLACE), [(up, down)])
    together = accountant(events.Composed((group, RandomizedResponse(epsilon=1.0))), REPLACE)
    # The response of the truth has chance e / (1 + e) and loss 1, the other one loss -1.
    truth_prob = 1 / (1 + np.exp(-1.0))
    at = np.array([1.0, 2.0, 4.0])
    less, more = (gaussian_delta(up, down, 0.8, tuple(at + shift)) for shift in (-1.0, 1.0))
    found = truth_prob * np.array(less) + (1 - truth_prob) * np.array(more)
    assert_dominates(together, found, at)


def check_leaks_add_up(accountant: Accountant) -> None:
    """What is told outright with chance delta each time is told sooner or later."""
    event = Repeated(event=events.EpsilonDelta(epsilon=0.1, delta=1e-3), count=50)
    leaked = 1 - (1 - 1e-3) ** 50
    assert_dominates(accountant(event, REPLACE), [leaked, leaked], [5.0, 100.0])


def check_units_that_move_between_parts(accountant: Accountant) -> None:
    """A unit adds 0 or 1 to the count of the part that its own sensitive column decides."""
    noise = events.DiscreteLaplace(scale=1.0, replace_factor=1.0)
    event = events.Parallel(events=(noise, noise), parts_are_public=False)
    grid = np.arange(-40, 42)
    found = np.zeros(len(EPSILONS))
    for before, after in itertools.permutations(itertools.product((0, 1), repeat=2), 2):
        log_p, log_q = (
            np.add.outer(*(_log_count(grid, value if part == i else 0) for i in (0, 1)))
            for part, value in (before, after)
        )
        found = np.maximum(found, divergence(log_p, log_q, EPSILONS))
    assert_dominates(accountant(event, REPLACE), found, EPSILONS)


def check_deltas_that_rounding_hides(accountant: Accountant) -> None:
    """Many steps cost no less than one at any delta; or the question is refused."""
    sampling_prob, noise = 1e-3, 0.6
    step = events.PoissonSampled(
        sampling_prob=sampling_prob, event=Gaussian(noise_multiplier=noise)
    )
    curve = accountant(Repeated(event=step, count=1000), REPLACE)
    up, down = ({0: 1 - sampling_prob, s: sampling_prob} for s in (1, -1))
    for delta in (1e-8, 1e-18, 1e-30):
        try:
            epsilon = curve.epsilon(delta)
        except ConfigError:
            continue
        assert exact_gaussian_delta(up, down, noise, epsilon) <= delta


def check_both_orders(accountant: Accountant) -> None:
    """A removed row is found more easily than an added one, and both must be covered."""
    event = events.PoissonSampled(sampling_prob=0.4, event=GAUSSIAN)
    assert_hides(accountant(event, REMOVE), [(poisson_sums((1,), 0.4), {0: 1.0})])


def _log_count(grid: np.ndarray, raw_count: int) -> np.ndarray:
    return np.log(np.tanh(0.5)) - np.abs(grid - raw_count)
