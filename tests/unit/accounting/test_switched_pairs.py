"""A switched label costs what its exact pair says, and less than a gradient that turns round."""

import numpy as np
import pytest

from tulle.accounting.accountant import pld_epsilon, privacy_curve
from tulle.accounting.amplification import without_amplification
from tulle.accounting.gaussian_pairs import sampled_gaussian_remove_profile
from tulle.accounting.switched_pairs import in_both_orders, num_switched_labels
from tulle.privacy.events import (
    Composed,
    Event,
    Gaussian,
    Grouped,
    Parallel,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    SwitchedGaussian,
    TruncatedPoissonSampled,
)
from tulle.privacy.units import Adjacency
from unit.accounting.hockey_stick import (
    Mixture,
    divergence,
    exact_gaussian_delta,
    gaussian_delta,
    log_gaussian,
    poisson_sums,
)

REPLACE, REMOVE, ZERO_OUT = Adjacency.REPLACE, Adjacency.ADD_OR_REMOVE, Adjacency.ZERO_OUT
EPSILONS = (0.0, 0.05, 0.2, 0.7, 1.5, 3.0)
CASES = [(0.01, 1.0), (0.1, 0.7), (0.5, 2.0), (0.3, 0.4), (1.0, 1.0)]


def step(sampling_prob: float, noise: float, max_rows: int = 1) -> PoissonSampled:
    noise_event = SwitchedGaussian(noise_multiplier=noise)
    return PoissonSampled(
        sampling_prob=sampling_prob, event=noise_event, max_rows_per_unit=max_rows
    )


def on_and_off(sampling_prob: float) -> tuple[Mixture, Mixture]:
    return {0: 1 - sampling_prob, 1: sampling_prob}, {0: 1.0}


@pytest.mark.parametrize(("sampling_prob", "noise"), CASES)
def test_the_claim_is_the_exact_pair_in_its_worse_order(sampling_prob: float, noise: float) -> None:
    curve = privacy_curve(step(sampling_prob, noise), REPLACE)
    on, off = on_and_off(sampling_prob)
    for epsilon in EPSILONS:
        exact = exact_gaussian_delta(on, off, noise, epsilon)
        assert exact * (1 - 1e-9) - 1e-15 <= curve.delta(epsilon) <= exact * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize(("sampling_prob", "noise"), CASES)
def test_the_claimed_epsilon_is_below_that_of_a_replaced_gradient(
    sampling_prob: float, noise: float
) -> None:
    turned = PoissonSampled(sampling_prob=sampling_prob, event=Gaussian(noise_multiplier=noise))
    for count in (1, 20):
        switched = Repeated(event=step(sampling_prob, noise), count=count)
        replaced = Repeated(event=turned, count=count)
        ours, theirs = (pld_epsilon(event, 1e-5, REPLACE) for event in (switched, replaced))
        assert ours < theirs
        assert ours == pytest.approx(pld_epsilon(replaced, 1e-5, REMOVE), rel=1e-9)


def test_two_steps_of_one_label_are_never_claimed_below_their_exact_pair() -> None:
    sampling_prob, noise, width = 0.2, 0.9, 0.02
    grid = np.arange(-7, 8, width)
    on, off = (log_gaussian(grid, m, noise) + np.log(width) for m in on_and_off(sampling_prob))
    curve = privacy_curve(Repeated(event=step(sampling_prob, noise), count=2), REPLACE)
    found = np.maximum(
        divergence(np.add.outer(on, on), np.add.outer(off, off), EPSILONS),
        divergence(np.add.outer(off, off), np.add.outer(on, on), EPSILONS),
    )
    claimed = np.array([curve.delta(epsilon) for epsilon in EPSILONS])
    assert np.all(claimed >= found * (1 - 1e-5))
    assert np.all(claimed <= found * 1.01 + 1e-9)


def test_two_labels_may_go_opposite_ways() -> None:
    one = step(0.2, 0.9)
    together = Repeated(event=one, count=2)
    apart = Composed((one, one))
    for epsilon in (0.1, 0.5, 1.0):
        assert (
            privacy_curve(apart, REPLACE).delta(epsilon)
            > privacy_curve(together, REPLACE).delta(epsilon) * 1.001
        )
        removed = [privacy_curve(event, REMOVE).delta(epsilon) for event in (apart, together)]
        assert removed[0] == removed[1]


def test_a_pair_in_both_orders_covers_each_order() -> None:
    pair = sampled_gaussian_remove_profile(0.3, 0.8)
    both = in_both_orders(pair)
    assert both.backward is None
    epsilons = np.linspace(0, 3, 50)
    assert pair.backward is not None
    assert np.all(both.forward(epsilons) >= pair.forward(epsilons))
    assert np.all(both.forward(epsilons) >= pair.backward(epsilons))
    assert in_both_orders(both) is both


SWITCHED = SwitchedGaussian(noise_multiplier=1.0)


@pytest.mark.parametrize(
    ("event", "num_labels"),
    [
        (SWITCHED, 1),
        (Gaussian(noise_multiplier=1.0), 0),
        (step(0.1, 1.0), 1),
        (Repeated(event=SWITCHED, count=5), 1),
        (Repeated(event=step(0.1, 1.0), count=5), 1),
        (Repeated(event=Repeated(event=step(0.1, 1.0), count=5), count=1), 1),
        (Repeated(event=Repeated(event=step(0.1, 1.0), count=5), count=2), 2),
        (Repeated(event=Composed((step(0.1, 1.0),)), count=3), 3),
        (Repeated(event=Composed((step(0.1, 1.0), step(0.2, 0.7), SWITCHED)), count=3), 9),
        (Composed((Repeated(event=step(0.1, 1.0), count=5), RandomizedResponse(epsilon=1))), 1),
        (Composed((step(0.1, 1.0), step(0.2, 1.0))), 2),
        (Parallel(events=(step(0.1, 1.0), SWITCHED), parts_are_public=True), 2),
        (Grouped(event=step(0.1, 1.0), group_size=3), 1),
    ],
)
def test_every_place_that_names_a_switch_is_a_label(event: Event, num_labels: int) -> None:
    assert num_switched_labels(event) == num_labels


def test_several_rows_of_a_unit_are_accounted_as_replaced_ones() -> None:
    switched = privacy_curve(step(0.2, 0.9, max_rows=3), REPLACE)
    replaced = PoissonSampled(
        sampling_prob=0.2, event=Gaussian(noise_multiplier=0.9), max_rows_per_unit=3
    )
    turned = privacy_curve(replaced, REPLACE)
    for epsilon in EPSILONS:
        assert switched.delta(epsilon) == turned.delta(epsilon)
    # One label on and two off, with vectors that point away from each other.
    pair = poisson_sums((1, 0, 0), 0.2), poisson_sums((0, -1, -1), 0.2)
    found = gaussian_delta(*pair, 0.9, EPSILONS)
    assert all(switched.delta(e) >= d * (1 - 1e-6) for e, d in zip(EPSILONS, found, strict=True))


@pytest.mark.parametrize("adjacency", [REMOVE, ZERO_OUT])
@pytest.mark.parametrize("max_rows", [1, 2])
def test_a_removed_row_costs_what_it_costs_with_ordinary_noise(
    adjacency: Adjacency, max_rows: int
) -> None:
    found = []
    for noise_event in (SWITCHED, Gaussian(noise_multiplier=1.0)):
        event = TruncatedPoissonSampled(
            sampling_prob=0.1,
            num_rows=100,
            max_batch_size=20,
            event=noise_event,
            max_rows_per_unit=max_rows,
        )
        found.append([privacy_curve(event, adjacency).delta(epsilon) for epsilon in EPSILONS])
    assert found[0] == found[1]


def test_several_labels_in_one_batch_are_accounted_as_replaced_ones() -> None:
    both = PoissonSampled(sampling_prob=0.3, event=Composed((SWITCHED, SWITCHED)))
    turned = PoissonSampled(
        sampling_prob=0.3, event=Repeated(event=Gaussian(noise_multiplier=1.0), count=2)
    )
    one = PoissonSampled(sampling_prob=0.3, event=Repeated(event=SWITCHED, count=2))
    for epsilon in (0.1, 1.0):
        found = privacy_curve(both, REPLACE).delta(epsilon)
        assert found == privacy_curve(turned, REPLACE).delta(epsilon)
        assert found > privacy_curve(one, REPLACE).delta(epsilon)


def test_without_sampling_every_row_moves_the_sum_by_one_contribution() -> None:
    for max_rows in (1, 4):
        event = without_amplification(step(0.1, 8.0, max_rows=max_rows))
        alone = Gaussian(noise_multiplier=8.0 / max_rows, replace_factor=1.0)
        assert pld_epsilon(event, 1e-5, REPLACE) == pld_epsilon(alone, 1e-5, REPLACE)


@pytest.mark.parametrize("noise", [20.0, 5.0, 1.0])
def test_whole_gradients_under_the_pair_of_a_switch_are_understated_by_up_to_twice(
    noise: float,
) -> None:
    """Clipping (sigma - y) J at C and accounting for a move of C is the wrong use.

    A replaced label turns such a gradient round: it moves by up to 2 C.
    """
    claimed = pld_epsilon(SwitchedGaussian(noise_multiplier=noise), 1e-5, REPLACE)
    true_delta = exact_gaussian_delta({1: 1.0}, {-1: 1.0}, noise, claimed)
    assert true_delta > 20 * 1e-5
    true_epsilon = pld_epsilon(Gaussian(noise_multiplier=noise), 1e-5, REPLACE)
    # Above 2 for little noise, where epsilon grows with the square of the distance.
    assert true_epsilon / claimed > 1.8
