"""Numbers that were computed by two independent implementations; three digits must agree.

Settings of training on 36M and 12.8M rows, delta = 1e-7, noise relative to one clipped gradient.
"""

import math

import pytest

from tulle.accounting.accountant import calibrate_noise, privacy_curve
from tulle.accounting.rdp import calibrate_noise_rdp, rdp_epsilon
from tulle.accounting.training_events import BatchSampling, dpsgd_event, two_phase_event
from tulle.privacy.events import Event, Gaussian, Grouped, PoissonSampled, Repeated
from tulle.privacy.units import Adjacency

REPLACE, ADD_OR_REMOVE = Adjacency.REPLACE, Adjacency.ADD_OR_REMOVE
ONE_BATCH_OF_36M = 16384 / 36e6


def sampled_gaussian(
    sampling_prob: float, noise_multiplier: float, steps: int, max_rows: int = 1
) -> Event:
    step = PoissonSampled(
        sampling_prob=sampling_prob,
        event=Gaussian(noise_multiplier=noise_multiplier),
        max_rows_per_unit=max_rows,
    )
    return Repeated(event=step, count=steps)


@pytest.mark.parametrize(
    ("sampling_prob", "steps", "removed", "replaced", "renyi", "half_noise"),
    [
        (ONE_BATCH_OF_36M, 1_000, 0.0985, 0.1357, 0.894, 3.957),
        (ONE_BATCH_OF_36M, 10_000, 0.2732, 0.4418, 0.938, 5.089),
        (0.01, 1_000, 2.4117, 3.5568, 2.765, 17.53),
        (0.01, 10_000, 7.5688, 12.9387, 8.061, 51.42),
    ],
)
def test_noise_multiplier_one_costs_what_the_table_says(
    sampling_prob: float,
    steps: int,
    removed: float,
    replaced: float,
    renyi: float,
    half_noise: float,
) -> None:
    event = sampled_gaussian(sampling_prob, 1.0, steps)
    halved = sampled_gaussian(sampling_prob, 0.5, steps)
    assert privacy_curve(event, ADD_OR_REMOVE).epsilon(1e-7) == pytest.approx(removed, rel=1e-3)
    assert privacy_curve(event, REPLACE).epsilon(1e-7) == pytest.approx(replaced, rel=1e-3)
    assert privacy_curve(halved, ADD_OR_REMOVE).epsilon(1e-7) == pytest.approx(half_noise, rel=1e-3)
    assert rdp_epsilon(event, 1e-7, ADD_OR_REMOVE) == pytest.approx(renyi, rel=0.03)


TWO_PHASE_ROWS = [
    # rows, steps, epsilon, noise by basic composition, jointly, and by add-or-remove
    (36_000_000, 2197, 1, 0.8018, 0.7913, 0.7948),
    (36_000_000, 2197, 3, 0.6666, 0.6636, 0.6652),
    (36_000_000, 2197, 5, 0.6050, 0.6042, 0.6040),
    (36_000_000, 2197, 8, 0.4784, 0.4779, 0.4773),
    (36_000_000, 2197, 12, 0.3964, 0.3960, 0.3953),
    (36_000_000, 6592, 1, 0.9248, 0.9125, 0.8319),
    (36_000_000, 6592, 3, 0.6926, 0.6898, 0.6884),
    (36_000_000, 6592, 5, 0.6272, 0.6264, 0.6244),
    (36_000_000, 6592, 8, 0.4978, 0.4973, 0.4950),
    (36_000_000, 6592, 12, 0.4193, 0.4189, 0.4166),
    (36_000_000, 140625, 1, 3.7945, 3.7211, 2.0276),
    (36_000_000, 140625, 3, 1.3774, 1.3697, 0.9355),
    (36_000_000, 140625, 5, 0.9302, 0.9291, 0.7418),
    (36_000_000, 140625, 8, 0.6135, 0.6131, 0.5794),
    (36_000_000, 140625, 12, 0.5251, 0.5248, 0.5041),
    (12_800_000, 781, 1, 0.9583, 0.9457, 0.9227),
    (12_800_000, 781, 3, 0.7493, 0.7458, 0.7456),
    (12_800_000, 781, 5, 0.6701, 0.6693, 0.6678),
    (12_800_000, 781, 8, 0.5175, 0.5170, 0.5155),
    (12_800_000, 781, 12, 0.4261, 0.4256, 0.4244),
    (12_800_000, 2344, 1, 1.4085, 1.3829, 1.0132),
    (12_800_000, 2344, 3, 0.7876, 0.7845, 0.7754),
    (12_800_000, 2344, 5, 0.7000, 0.6992, 0.6930),
    (12_800_000, 2344, 8, 0.5435, 0.5429, 0.5383),
    (12_800_000, 2344, 12, 0.4548, 0.4543, 0.4509),
    (12_800_000, 50000, 1, 6.3649, 6.2390, 3.2684),
    (12_800_000, 50000, 3, 2.2658, 2.2518, 1.3252),
    (12_800_000, 50000, 5, 1.4297, 1.4275, 0.9624),
    (12_800_000, 50000, 8, 0.7620, 0.7613, 0.6677),
    (12_800_000, 50000, 12, 0.6087, 0.6083, 0.5686),
]


@pytest.mark.parametrize(
    ("rows", "steps", "epsilon", "basic", "joint", "removed"),
    [
        TWO_PHASE_ROWS[0],
        TWO_PHASE_ROWS[-1],
        *(
            pytest.param(*row, marks=pytest.mark.long("paper scale, seconds a row of the table"))
            for row in TWO_PHASE_ROWS[1:-1]
        ),
    ],
)
def test_two_phase_noise_agrees_with_the_table(
    rows: int, steps: int, epsilon: float, basic: float, joint: float, removed: float
) -> None:
    sampling = BatchSampling(num_examples=rows, batch_size=16384, steps=steps)
    label_epsilon = min(0.6 * epsilon, 3.0)

    def noise(make_event, target: float, adjacency: Adjacency, start: float) -> float:
        return calibrate_noise(
            make_event, epsilon=target, delta=1e-7, adjacency=adjacency, start=start
        )

    def training(sigma: float) -> Event:
        return dpsgd_event(sampling, sigma)

    rest = epsilon - label_epsilon
    assert noise(training, rest, REPLACE, basic) == pytest.approx(basic, rel=1e-3)
    # The table's add-or-remove column came from a coarser grid, up to 0.11% too careful.
    assert noise(training, rest, ADD_OR_REMOVE, removed) == pytest.approx(removed, rel=2e-3)
    jointly = noise(lambda s: two_phase_event(sampling, s, label_epsilon), epsilon, REPLACE, joint)
    assert jointly == pytest.approx(joint, rel=1e-3)


@pytest.mark.parametrize(
    ("claimed", "steps", "noise_multiplier", "really"),
    [(0.4, 140625, 2.1479, 0.73), (1.2, 140625, 1.0446, 1.69), (5.0, 2197, 0.5107, 4.01)],
)
def test_noise_from_renyi_accounting_really_gives_this(
    claimed: float, steps: int, noise_multiplier: float, really: float
) -> None:
    event = sampled_gaussian(ONE_BATCH_OF_36M, noise_multiplier, steps)
    assert rdp_epsilon(event, 1e-7, ADD_OR_REMOVE) == pytest.approx(claimed, rel=0.03)
    assert privacy_curve(event, REPLACE).epsilon(1e-7) == pytest.approx(really, rel=5e-3)


@pytest.mark.parametrize(
    ("max_rows", "replaced", "removed"),
    [(1, 0.2713, 0.1856), (2, 0.5702, 0.3944), (5, 1.5282, 1.0601), (10, 3.2543, 2.2263)],
)
def test_users_with_several_rows_cost_what_the_table_says(
    max_rows: int, replaced: float, removed: float
) -> None:
    event = sampled_gaussian(1e-3, 1.0, 1000, max_rows)
    assert privacy_curve(event, REPLACE).epsilon(1e-6) == pytest.approx(replaced, rel=1e-3)
    assert privacy_curve(event, ADD_OR_REMOVE).epsilon(1e-6) == pytest.approx(removed, rel=1e-3)


@pytest.mark.parametrize(("max_rows", "replaced"), [(1, 2.14), (2, 3.63), (5, 7.25), (10, 12.49)])
def test_users_with_several_rows_and_little_noise(max_rows: int, replaced: float) -> None:
    event = sampled_gaussian(1e-3, 0.6, 1000, max_rows)
    assert privacy_curve(event, REPLACE).epsilon(1e-6) == pytest.approx(replaced, abs=0.006)


@pytest.mark.parametrize(
    ("noise_multiplier", "group_size", "grouped"),
    [(1.0, 1, 0.271), (1.0, 2, 0.573), (1.0, 5, 1.564), (1.0, 10, 3.551), (0.6, 2, 6.15)],
)
def test_groups_cost_what_the_table_says(
    noise_multiplier: float, group_size: int, grouped: float
) -> None:
    rows = sampled_gaussian(1e-3, noise_multiplier, 1000)
    event = Grouped(event=rows, group_size=group_size)
    assert privacy_curve(event, REPLACE).epsilon(1e-6) == pytest.approx(grouped, rel=1e-3)


@pytest.mark.parametrize(
    ("rows", "steps", "epsilon", "renyi"),
    [(36_000_000, 2197, 1.2, 0.8876), (12_800_000, 50000, 2.0, 1.0107)],
)
def test_noise_by_renyi_accounting_agrees_with_the_table(
    rows: int, steps: int, epsilon: float, renyi: float
) -> None:
    sampling = BatchSampling(num_examples=rows, batch_size=16384, steps=steps)
    noise = calibrate_noise_rdp(lambda s: dpsgd_event(sampling, s), epsilon=epsilon, delta=1e-7)
    assert noise == pytest.approx(renyi, rel=2e-3)


def test_batches_of_fixed_size_cost_more_than_the_pair_that_is_often_used_for_them() -> None:
    fixed = dpsgd_event(
        BatchSampling(num_examples=100, batch_size=1, steps=1000, fixed_size=True), 1.0
    )
    halved = sampled_gaussian(0.01, 0.5, 1000)
    assert privacy_curve(halved, ADD_OR_REMOVE).epsilon(1e-7) == pytest.approx(17.53, rel=1e-3)
    assert privacy_curve(fixed, REPLACE).epsilon(1e-7) == pytest.approx(19.03, rel=1e-3)


@pytest.mark.parametrize(
    ("deviations", "truncated", "plain"),
    [(0, 11.95, 0.901), (2, 8.51, 0.891), (4, 3.33, 0.882), (5, 0.893, 0.877), (6, 0.8724, 0.8724)],
)
def test_truncation_costs_what_the_table_says(
    deviations: int, truncated: float, plain: float
) -> None:
    batch_size = round(16384 - deviations * math.sqrt(16384))
    one_epoch = {"num_examples": 36_000_000, "batch_size": batch_size}
    one_epoch["steps"] = round(36e6 / batch_size)
    whole = dpsgd_event(BatchSampling(**one_epoch), 0.7)
    cut = dpsgd_event(BatchSampling(**one_epoch, max_batch_size=16384), 0.7)
    assert privacy_curve(whole, REPLACE).epsilon(1e-7) == pytest.approx(plain, abs=0.001)
    assert privacy_curve(cut, REPLACE).epsilon(1e-7) == pytest.approx(truncated, rel=2e-3)
