import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.accounting.accountant import pld_epsilon, privacy_curve
from tulle.accounting.event_rules import num_switched_labels, without_amplification
from tulle.accounting.gaussian_pairs import (
    multi_row_remove_profile,
    multi_row_replace_profile,
    sampled_gaussian_remove_profile,
    sampled_gaussian_replace_profile,
)
from tulle.accounting.profiles import Profile, gaussian_profile, in_both_orders
from tulle.accounting.sampling import poisson_gaussian_profile, rows_used_weights
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
    shift_weights,
)

NOISES = [0.05, 0.3, 1.0, 7.0, 100.0]
PROBS = [1e-7, 1e-3, 0.3, 0.999, 1.0]
ROWS = [1, 2, 5, 20]


def pairs(sampling_prob: float, max_rows: int) -> dict[str, tuple[Mixture, Mixture]]:
    """The mixtures of each direction, oriented so that the loss increases."""
    weights = rows_used_weights(max_rows, sampling_prob)
    up, down, stay = shift_weights(weights), shift_weights(weights, -1), {0: 1.0}
    return {"replace": (up, down), "remove": (up, stay), "add": (stay, down)}


def orders(sampling_prob: float, noise: float, max_rows: int) -> dict[str, Profile]:
    replace = poisson_gaussian_profile(sampling_prob, noise, max_rows, replace=True)
    remove = poisson_gaussian_profile(sampling_prob, noise, max_rows, replace=False)
    return {"replace": replace, "remove": remove, "add": remove.swapped()}


def typical_epsilons(sampling_prob: float, noise: float, max_rows: int) -> np.ndarray:
    reach = max_rows**2 / (2 * noise**2) + 3 * max_rows / noise
    amplified = reach + math.log(sampling_prob + (1 - sampling_prob) * math.exp(-reach))
    return np.array([0.0, 1e-3, 0.1, 0.5, 1.0, 2.0]) * amplified


@pytest.mark.parametrize("max_rows", ROWS)
@pytest.mark.parametrize("sampling_prob", PROBS)
@pytest.mark.parametrize("noise", NOISES)
def test_every_pair_is_the_integral(noise: float, sampling_prob: float, max_rows: int) -> None:
    epsilons = typical_epsilons(sampling_prob, noise, max_rows)
    profiles = orders(sampling_prob, noise, max_rows)
    for name, (p, q) in pairs(sampling_prob, max_rows).items():
        expected = gaussian_delta(p, q, noise, epsilons, points_per_stddev=200)
        one_by_one = [profiles[name].forward(np.array([e]))[0] for e in epsilons]
        # The grid has 200 points a standard deviation; smaller deltas are not resolved by it.
        assert np.all(one_by_one >= expected * (1 - 2e-3) - 1e-16 * epsilons[-1])
        close = (expected > 1e-18) & (epsilons < 700)
        np.testing.assert_allclose(np.array(one_by_one)[close], expected[close], rtol=0.03)


@pytest.mark.parametrize("name", ["replace", "remove", "add"])
@pytest.mark.parametrize("max_rows", [1, 3, 20])
@pytest.mark.parametrize(
    ("noise", "sampling_prob"), [(0.05, 1e-3), (1.0, 1e-7), (1.0, 0.3), (0.6, 1.0), (100.0, 0.01)]
)
def test_every_pair_keeps_its_digits(
    noise: float, sampling_prob: float, max_rows: int, name: str
) -> None:
    p, q = pairs(sampling_prob, max_rows)[name]
    profile = orders(sampling_prob, noise, max_rows)[name]
    for epsilon in typical_epsilons(sampling_prob, noise, max_rows)[[0, 2, 3]]:
        got = profile.forward(np.array([epsilon]))[0]
        exact = exact_gaussian_delta(p, q, noise, float(epsilon))
        # 1e-7 + (1 - 1e-7) rounds in the ninth digit of 1e-7.
        assert got >= exact * (1 - 1e-8) - 1e-25
        assert got <= exact * (1 + 1e-8) + 1e-25 or epsilon > 500


@pytest.mark.parametrize("name", ["replace", "remove", "add"])
@pytest.mark.parametrize("sampling_prob", [1e-7, 1e-4])
def test_small_epsilons_are_right_next_to_huge_ones(sampling_prob: float, name: str) -> None:
    p, q = pairs(sampling_prob, 20)[name]
    profile = orders(sampling_prob, 1.0, 20)[name]
    epsilons = sampling_prob * np.array([0.0, 20.0, 300.0, 10_000.0])
    together = profile.forward(np.append(epsilons, 2.0**23))
    for got, epsilon in zip(together, epsilons, strict=False):
        exact = exact_gaussian_delta(p, q, 1.0, float(epsilon))
        assert got >= exact * (1 - 1e-7) - 1e-20


MANY_ROWS = [
    (10, 0.03, 11.0),
    (20, 1e-3, 0.3),
    (100, 0.05, 8.0),
    (300, 0.3, 40.0),
    (1000, 1e-3, 2.0),
]


@pytest.mark.parametrize(("max_rows", "sampling_prob", "noise"), MANY_ROWS)
def test_many_rows_are_the_integral(max_rows: int, sampling_prob: float, noise: float) -> None:
    mean = max_rows * sampling_prob
    epsilons = np.array([0.0, 0.01, 0.1, 0.5, 1.0, 2.0]) * (mean + 6 * math.sqrt(mean)) / noise
    profiles = orders(sampling_prob, noise, max_rows)
    for name, (p, q) in pairs(sampling_prob, max_rows).items():
        expected = gaussian_delta(p, q, noise, epsilons, points_per_stddev=60)
        got = profiles[name].forward(epsilons)
        assert np.all(got >= expected * (1 - 2e-3) - 1e-16)
        close = expected > 1e-14
        np.testing.assert_allclose(got[close], expected[close], rtol=0.02)


@pytest.mark.parametrize("name", ["replace", "remove", "add"])
@pytest.mark.parametrize(("max_rows", "sampling_prob", "noise"), MANY_ROWS)
def test_many_epsilons_at_once_get_no_less_than_each_alone(
    max_rows: int, sampling_prob: float, noise: float, name: str
) -> None:
    profile = orders(sampling_prob, noise, max_rows)[name]
    reach = 2 * max_rows * sampling_prob / noise + 20 / noise
    epsilons = np.concatenate((np.linspace(0.0, reach, 2000), np.geomspace(reach, 2.0**23, 100)))
    together = profile.forward(epsilons)
    apart = np.concatenate([profile.forward(part) for part in np.array_split(epsilons, 20)])
    assert np.all(together >= apart * (1 - 1e-10) - 1e-16 * apart[0])
    np.testing.assert_allclose(together, apart, rtol=1e-4, atol=1e-25)
    # An upper bound that is none: half of it must be seen.
    assert not np.all(0.999 * together >= apart * (1 - 1e-10) - 1e-16 * apart[0])


@pytest.mark.parametrize("name", ["replace", "remove", "add"])
def test_numbers_of_rows_that_never_come_count_as_infinite_losses(name: str) -> None:
    profile = orders(0.001, 2.0, 1000)[name]
    assert 0 < profile.infinite_prob <= 1e-30
    assert profile.forward(np.array([2.0**23]))[0] >= profile.infinite_prob
    p, q = pairs(0.02, 60)[name]
    for epsilon in (0.0, 0.3, 2.0, 20.0):
        exact = exact_gaussian_delta(p, q, 1.5, epsilon)
        got = orders(0.02, 1.5, 60)[name].forward(np.array([epsilon]))[0]
        assert exact * (1 - 1e-8) <= got <= exact * (1 + 1e-8) + 1e-24


def test_few_rows_are_never_left_out() -> None:
    """Unlikely as they are (1e-60), they bound the loss of an added unit."""
    profile = orders(0.999, 1.0, 20)["add"]
    exact = exact_gaussian_delta({0: 1.0}, pairs(0.999, 20)["add"][1], 1.0, 100.0)
    assert profile.forward(np.array([100.0]))[0] == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("distance", [1e-6, 0.02, 1.0, 40.0, 1000.0])
def test_plain_gaussian_has_the_closed_form(distance: float) -> None:
    profile = gaussian_profile(distance)
    epsilons = distance * np.array([0.0, 0.1, 1.0, 3.0]) + distance**2 / 2 * np.array([0, 0, 1, 1])
    for epsilon in epsilons:
        exact = exact_gaussian_delta({distance: 1.0}, {0: 1.0}, 1.0, float(epsilon))
        assert profile.forward(np.array([epsilon]))[0] == pytest.approx(exact, rel=3e-8, abs=1e-25)


@pytest.mark.parametrize("epsilon", [1e3, 1e4, 1e5, 1e6, 2.0**23])
def test_huge_epsilons_give_neither_nan_nor_a_negative_delta(epsilon: float) -> None:
    for noise in NOISES:
        for sampling_prob in PROBS:
            for max_rows in (1, 3):
                for profile in orders(sampling_prob, noise, max_rows).values():
                    delta = profile.forward(np.array([epsilon]))[0]
                    assert 0 <= delta <= 1


@pytest.mark.parametrize("sampling_prob", np.linspace(0.01, 0.99, 50))
def test_the_largest_loss_of_an_added_row_is_reached_quietly(sampling_prob: float) -> None:
    for max_rows in (1, 2):
        largest = -max_rows * math.log1p(-sampling_prob)
        around = [np.nextafter(largest, 0.0), largest, np.nextafter(largest, 9.0), largest - 1e-12]
        deltas = orders(float(sampling_prob), 1.0, max_rows)["add"].forward(np.array(around))
        assert np.all((deltas >= 0) & (deltas < 1e-9))


@pytest.mark.parametrize("noise", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("max_rows", [1, 3])
def test_delta_falls_with_epsilon_and_noise_and_grows_with_rows_and_sampling(
    noise: float, max_rows: int
) -> None:
    epsilons = np.linspace(0.0, 5.0, 301)
    for name, profile in orders(0.1, noise, max_rows).items():
        delta = profile.forward(epsilons)
        assert np.all(np.diff(delta) <= 1e-15)
        for other in (
            orders(0.1, 1.01 * noise, max_rows),
            orders(0.099, noise, max_rows),
        ):
            assert np.all(other[name].forward(epsilons) <= delta + 1e-15)
        assert np.all(orders(0.1, noise, max_rows + 1)[name].forward(epsilons) >= delta - 1e-15)
    replace, remove = orders(0.1, noise, max_rows)["replace"], orders(0.1, noise, max_rows)
    assert np.all(replace.forward(epsilons) >= remove["remove"].worst(epsilons) - 1e-15)


def test_one_row_is_the_special_case_of_many() -> None:
    epsilons = np.linspace(0.0, 3.0, 40)
    weights = np.array([0.9, 0.1])
    for one, many in (
        (sampled_gaussian_replace_profile(0.1, 0.8), multi_row_replace_profile(weights, 0.8)),
        (sampled_gaussian_remove_profile(0.1, 0.8), multi_row_remove_profile(weights, 0.8)),
    ):
        np.testing.assert_allclose(one.forward(epsilons), many.forward(epsilons), rtol=1e-9)
        swapped = many.swapped().forward(epsilons)
        np.testing.assert_allclose(one.swapped().forward(epsilons), swapped, rtol=1e-8, atol=1e-18)


ANGLES = st.floats(0.0, 2 * math.pi)
RADII = st.floats(0.0, 1.0)
ROW = st.tuples(RADII, ANGLES)


@st.composite
def replaced_units(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chances of every subset of k rows, and the rows before and after, in the unit disc."""
    max_rows = draw(st.integers(1, 3))
    raw = draw(st.lists(st.floats(0.0, 1.0), min_size=2**max_rows, max_size=2**max_rows))
    chances = (np.array(raw) + 1e-9) / (sum(raw) + 1e-9 * len(raw))
    before, after = (draw(st.tuples(*[ROW] * max_rows)) for _ in range(2))
    return chances, on_the_plane(before), on_the_plane(after)


def on_the_plane(rows: tuple[tuple[float, float], ...]) -> np.ndarray:
    return np.array([(r * math.cos(angle), r * math.sin(angle)) for r, angle in rows])


def planar_log_density(chances: np.ndarray, rows: np.ndarray, noise: float) -> np.ndarray:
    reach = len(rows) + 6 * noise
    axis = np.arange(-reach, reach, 0.06 * noise)
    log_cell = 2 * math.log(0.06 * noise)
    terms = []
    for subset, chance in enumerate(chances):
        used = [(subset >> i) & 1 for i in range(len(rows))]
        x, y = np.array(used) @ rows
        first, second = (log_gaussian(axis, {float(s): 1.0}, noise) for s in (x, y))
        terms.append(math.log(chance) + first[:, None] + second[None, :])
    return np.logaddexp.reduce(terms, axis=0) + log_cell


def size_weights(chances: np.ndarray) -> np.ndarray:
    weights = np.zeros(chances.size.bit_length())
    for subset, chance in enumerate(chances):
        weights[subset.bit_count()] += chance
    return weights


@settings(max_examples=30)
@given(replaced_units(), st.sampled_from([0.5, 1.0, 2.0]))
def test_no_contributions_in_the_plane_are_worse_than_the_pair_on_a_line(
    unit: tuple[np.ndarray, np.ndarray, np.ndarray], noise: float
) -> None:
    """Any law of the used rows, any contributions of norm <= 1; the grid is right to 1e-4."""
    chances, before, after = unit
    weights = size_weights(chances)
    epsilons = np.array([0.0, 0.3, 1.0, 3.0])
    log_before, log_after = (planar_log_density(chances, rows, noise) for rows in (before, after))
    log_without = planar_log_density(chances, np.zeros_like(before), noise)
    replaced = divergence(log_before, log_after, epsilons)
    removed = divergence(log_before, log_without, epsilons)
    added = divergence(log_without, log_before, epsilons)
    remove_profile = multi_row_remove_profile(weights, noise)
    assert np.all(replaced <= multi_row_replace_profile(weights, noise).forward(epsilons) + 3e-4)
    assert np.all(removed <= remove_profile.forward(epsilons) + 3e-4)
    assert np.all(added <= remove_profile.swapped().forward(epsilons) + 3e-4)


@pytest.mark.parametrize("max_rows", [1, 2, 3])
def test_opposite_contributions_attain_the_pair(max_rows: int) -> None:
    chances = np.arange(1.0, 2**max_rows + 1)
    chances /= chances.sum()
    direction = np.array([[0.6, 0.8]] * max_rows)
    epsilons = np.array([0.0, 0.3, 1.0])
    attained = divergence(
        planar_log_density(chances, direction, 1.0),
        planar_log_density(chances, -direction, 1.0),
        epsilons,
    )
    profile = multi_row_replace_profile(size_weights(chances), 1.0)
    np.testing.assert_allclose(attained, profile.forward(epsilons), rtol=1e-3)


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
