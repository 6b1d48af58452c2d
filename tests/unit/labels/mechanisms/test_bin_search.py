"""The bins found are the best of all: against brute force, a layered program and an LP."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.optimize import linprog, minimize_scalar

from tulle.errors import ConfigError
from tulle.labels.mechanisms.bin_search import (
    MOST_LABELS,
    POISSON,
    SQUARED,
    BinCosts,
    BregmanLoss,
    best_starts,
    expected_loss,
    find_bins,
)

ITAKURA_SAITO = BregmanLoss(name="itakura-saito", phi=lambda x: -np.log(x), least_label=1e-300)
LOSSES = [SQUARED, POISSON, ITAKURA_SAITO]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


def divergence(loss: BregmanLoss, value: float, labels: np.ndarray) -> np.ndarray:
    """The three losses, written out."""
    if loss is SQUARED:
        return (value - labels) ** 2
    ratio = labels / value
    if loss is POISSON:
        safe = np.where(labels > 0, ratio, 1.0)
        return labels * np.log(safe) - labels + value
    return ratio - np.log(ratio) - 1


def random_prior(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(size, 0.7))


def set_partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in set_partitions(rest):
        yield [[first], *partition]
        for place, part in enumerate(partition):
            yield [*partition[:place], [first, *part], *partition[place + 1 :]]


def loss_of_partition(
    parts: list[list[int]], labels: np.ndarray, prior: np.ndarray, epsilon: float, loss: BregmanLoss
) -> float:
    total = 0.0
    for part in parts:
        weights = prior.copy()
        weights[part] *= math.exp(epsilon)
        value = weights @ labels / weights.sum()
        total += weights @ divergence(loss, value, labels)
    return total / (math.exp(epsilon) + len(parts) - 1)


@each_loss
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 5.0])
def test_no_partition_of_the_labels_loses_less(loss: BregmanLoss, epsilon: float) -> None:
    for seed, size in ((0, 5), (1, 6), (2, 7)):
        labels, prior = np.arange(1.0, size + 1) ** 1.3, random_prior(size, seed)
        best = min(
            loss_of_partition(parts, labels, prior, epsilon, loss)
            for parts in set_partitions(list(range(size)))
        )
        found = find_bins(prior, labels, epsilon, loss)
        assert found.expected_loss == pytest.approx(best, rel=1e-11)


@each_loss
def test_the_stated_loss_is_that_of_the_channel(loss: BregmanLoss) -> None:
    labels, prior = np.arange(1.0, 31.0), random_prior(30, 4)
    bins = find_bins(prior, labels, 3.0, loss)
    chances = np.full((30, bins.num_bins), 1.0)
    chances[np.arange(30), bins.bin_of_label()] = math.exp(3.0)
    chances /= chances.sum(axis=1, keepdims=True)
    losses = np.array([divergence(loss, value, labels) for value in bins.values]).T
    assert bins.expected_loss == pytest.approx(prior @ (chances * losses).sum(axis=1), rel=1e-12)


@each_loss
def test_a_bin_reports_its_best_value(loss: BregmanLoss) -> None:
    labels, prior = np.arange(1.0, 21.0), random_prior(20, 5)
    bins = find_bins(prior, labels, 4.0, loss)
    place = bins.bin_of_label()
    for index, value in enumerate(bins.values):
        weights = np.where(place == index, math.exp(4.0), 1.0) * prior
        search = minimize_scalar(
            lambda v, weights=weights: weights @ divergence(loss, v, labels),
            bounds=(1.0, 20.0),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert value == pytest.approx(search.x, abs=1e-5)


def layered_losses(
    labels: np.ndarray, prior: np.ndarray, epsilon: float, loss: BregmanLoss, most: int
) -> list[float]:
    """Least loss with exactly 1, 2, ... bins, by the textbook program."""
    costs = BinCosts.of_prior(labels, prior, epsilon, loss)
    size = labels.size
    least = np.full(size + 1, np.inf)
    least[0] = 0.0
    result = []
    for num_bins in range(1, most + 1):
        longer = np.full(size + 1, np.inf)
        for end in range(1, size + 1):
            longer[end] = (least[:end] + costs.of_bins(slice(0, end), end)).min()
        least = longer
        result.append(least[size] / (math.expm1(epsilon) + num_bins))
    return result


@each_loss
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0, 8.0])
def test_the_ratio_search_equals_the_program_over_numbers_of_bins(
    loss: BregmanLoss, epsilon: float
) -> None:
    labels = np.arange(1.0, 49.0)
    for prior in (random_prior(48, 7), np.exp(-labels / 12) / np.exp(-labels / 12).sum()):
        each = layered_losses(labels, prior, epsilon, loss, most=48)
        found = find_bins(prior, labels, epsilon, loss)
        assert found.expected_loss == pytest.approx(min(each), rel=1e-10)
        assert each[found.num_bins - 1] == pytest.approx(min(each), rel=1e-10)


@each_loss
def test_many_bins_lose_at_least_the_populations_own_loss_each(loss: BregmanLoss) -> None:
    # A bin costs the whole population's loss at its value, which is least at the mean,
    # and more: F(k) >= k L / (e^epsilon + k - 1) for any loss that is never negative.
    labels, prior = np.arange(1.0, 25.0), random_prior(24, 8)
    alone = prior @ divergence(loss, prior @ labels, labels)
    each = layered_losses(labels, prior, 2.0, loss, most=24)
    bounds = [k * alone / (math.expm1(2.0) + k) for k in range(1, 25)]
    assert all(value >= bound * (1 - 1e-12) for value, bound in zip(each, bounds, strict=True))
    assert each[0] == pytest.approx(alone)


@pytest.mark.parametrize("epsilon", [0.5, 1.5, 4.0])
def test_no_channel_onto_a_grid_of_outputs_loses_less(epsilon: float) -> None:
    for seed in range(4):
        labels, prior = np.arange(5.0), random_prior(5, 20 + seed)
        bins = find_bins(prior, labels, epsilon)
        outputs = np.union1d(np.linspace(0, 4, 33), bins.values)
        assert bins.expected_loss == pytest.approx(
            least_channel_loss(labels, prior, outputs, epsilon), rel=1e-8
        )


def least_channel_loss(
    labels: np.ndarray, prior: np.ndarray, outputs: np.ndarray, epsilon: float
) -> float:
    """The linear program over all channels: m_o <= M(o|y) <= e^epsilon m_o."""
    num_labels, num_outputs = labels.size, outputs.size
    num_chances = num_labels * num_outputs
    costs = (prior[:, None] * (outputs - labels[:, None]) ** 2).reshape(-1)
    least = np.tile(np.eye(num_outputs), (num_labels, 1))
    upper = np.hstack([np.eye(num_chances), -math.exp(epsilon) * least])
    lower = np.hstack([-np.eye(num_chances), least])
    sums = np.hstack(
        [np.kron(np.eye(num_labels), np.ones(num_outputs)), np.zeros((num_labels, num_outputs))]
    )
    found = linprog(
        np.concatenate([costs, np.zeros(num_outputs)]),
        A_ub=np.vstack([upper, lower]),
        b_ub=np.zeros(2 * num_chances),
        A_eq=sums,
        b_eq=np.ones(num_labels),
    )
    assert found.status == 0
    return float(found.fun)


def test_best_starts_do_not_move_in_one_direction() -> None:
    # If they did, divide and conquer would be right. A first bin's cost has a global term.
    backward = 0
    for seed in range(40):
        size = 14
        prior = np.random.default_rng(seed).dirichlet(np.full(size, 0.3))
        costs = BinCosts.of_prior(np.arange(float(size)), prior, 2.0, SQUARED)
        two_bins = np.array([float(costs.of_bins(slice(0, 1), end)[0]) for end in range(1, size)])
        starts = [
            int((two_bins[: end - 1] + costs.of_bins(slice(1, end), end)).argmin())
            for end in range(2, size + 1)
        ]
        backward += any(later < earlier for earlier, later in itertools.pairwise(starts))
    assert backward > 0


def test_a_wrong_ratio_gives_worse_bins() -> None:
    labels, prior = np.arange(40.0), random_prior(40, 30)
    costs = BinCosts.of_prior(labels, prior, 4.0, SQUARED)
    best = find_bins(prior, labels, 4.0)
    assert expected_loss(costs, best_starts(costs, best.expected_loss)) == pytest.approx(
        best.expected_loss
    )
    assert (
        expected_loss(costs, best_starts(costs, 5 * best.expected_loss)) > best.expected_loss * 1.01
    )


def test_every_label_is_in_one_bin_in_order() -> None:
    bins = find_bins(random_prior(100, 9), np.arange(100.0), 5.0)
    place = bins.bin_of_label()
    assert place.size == 100
    assert place[0] == 0
    assert set(np.diff(place)) <= {0, 1}
    assert place[-1] == bins.num_bins - 1 == bins.values.size - 1
    assert np.all(np.diff(bins.values) > 0)


def test_more_bins_pay_for_larger_epsilon() -> None:
    prior = np.exp(-np.arange(401) / 100)
    counts = [
        find_bins(prior / prior.sum(), np.arange(401.0), epsilon).num_bins
        for epsilon in (0.5, 2.0, 4.0, 6.0, 8.0, 14.0, 40.0)
    ]
    assert counts == sorted(counts)
    assert counts[0] == 2
    assert counts[-1] == 401


def test_labels_far_from_zero_have_the_same_bins() -> None:
    prior = random_prior(60, 11)
    near, far = (find_bins(prior, np.arange(60.0) + shift, 4.0) for shift in (0.0, 1e6))
    assert near.starts.tolist() == far.starts.tolist()
    assert near.expected_loss == pytest.approx(far.expected_loss, rel=1e-4)


def test_a_prior_with_one_possible_label_has_one_bin() -> None:
    assert find_bins(np.eye(9)[3], np.arange(9.0), 1.0).num_bins == 1


@pytest.mark.parametrize(
    ("prior", "values", "epsilon", "loss"),
    [
        ([0.5, 0.5], [0.0, 1.0], 0.0, SQUARED),
        ([0.5, 0.5], [0.0, 1.0], math.inf, SQUARED),
        ([0.5, 0.6], [0.0, 1.0], 1.0, SQUARED),
        ([0.5, 0.5], [1.0, 0.0], 1.0, SQUARED),
        ([1.0], [1.0], 1.0, SQUARED),
        ([0.5, 0.5], [-1.0, 0.0], 1.0, POISSON),
        ([0.5, 0.5], [0.0, 1.0], 1.0, ITAKURA_SAITO),
        (np.full(MOST_LABELS + 1, 1 / (MOST_LABELS + 1)), np.arange(MOST_LABELS + 1), 1.0, SQUARED),
    ],
)
def test_settings_without_meaning_are_refused(
    prior: list[float], values: list[float], epsilon: float, loss: BregmanLoss
) -> None:
    with pytest.raises(ConfigError):
        find_bins(prior, values, epsilon, loss)


LABELS = np.array([0.0, 1.0, 2.5, 4.0, 9.0])
PRIOR = np.array([0.4, 0.0, 0.3, 0.2, 0.1])


@pytest.mark.parametrize("start", range(5))
def test_a_squared_bin_costs_what_the_definition_says(start: int) -> None:
    epsilon = 1.7
    costs = BinCosts.of_prior(LABELS, PRIOR, epsilon, SQUARED)
    for end in range(start + 1, 6):
        weights = PRIOR.copy()
        weights[start:end] *= math.exp(epsilon)
        value = weights @ LABELS / weights.sum()
        cost = weights @ (LABELS - value) ** 2
        assert costs.of_bins(slice(start, start + 1), end)[0] == pytest.approx(cost, rel=1e-12)
        assert costs.bin_values(slice(start, start + 1), end)[0] == pytest.approx(value)


@pytest.mark.parametrize("start", range(5))
def test_a_poisson_bin_costs_what_the_definition_says(start: int) -> None:
    epsilon = 1.7
    costs = BinCosts.of_prior(LABELS, PRIOR, epsilon, POISSON)
    for end in range(start + 1, 6):
        weights = PRIOR.copy()
        weights[start:end] *= math.exp(epsilon)
        value = weights @ LABELS / weights.sum()
        logs = np.where(LABELS > 0, np.log(np.maximum(LABELS, 1e-300) / value), 0.0)
        cost = weights @ (LABELS * logs - LABELS + value)
        assert costs.of_bins(slice(start, start + 1), end)[0] == pytest.approx(cost, rel=1e-12)


def test_a_line_added_to_phi_changes_nothing() -> None:
    tilted = BregmanLoss(name="tilted", phi=lambda x: x**2 + 1000 * x - 7)
    plain, other = (BinCosts.of_prior(LABELS, PRIOR, 2.0, loss) for loss in (SQUARED, tilted))
    starts = slice(0, 5)
    np.testing.assert_allclose(plain.of_bins(starts, 5), other.of_bins(starts, 5), rtol=1e-9)


@pytest.mark.parametrize(
    ("loss", "lowest"),
    [
        (POISSON, -1.0),
        (BregmanLoss(name="log", phi=lambda x: -np.log(x)), 0.0),
        (BregmanLoss(name="scalar", phi=lambda x: x.sum()), 0.0),
    ],
)
def test_a_loss_that_is_not_defined_for_all_labels_is_refused(
    loss: BregmanLoss, lowest: float
) -> None:
    with pytest.raises(ConfigError, match=loss.name):
        BinCosts.of_prior(np.array([lowest, 1.0]), np.array([0.5, 0.5]), 1.0, loss)


def test_a_loss_needs_a_name() -> None:
    with pytest.raises(ConfigError):
        BregmanLoss(name=" ", phi=np.square)
