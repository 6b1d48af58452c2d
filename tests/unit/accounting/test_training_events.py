import math

import pytest

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.training_events import (
    BatchSampling,
    dpsgd_event,
    steps_of_epochs,
    two_phase_event,
)
from tulle.errors import ConfigError
from tulle.privacy.cut_batches import CUT_SHARE_OF_DELTA, cut_prob_bound, roomy_batch_size
from tulle.privacy.events import (
    Composed,
    FixedSizeSampled,
    Gaussian,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    TruncatedPoissonSampled,
    event_from_json,
    event_to_json,
)
from tulle.privacy.units import Adjacency

PLAIN = BatchSampling(num_examples=10_000, batch_size=100, steps=50)


def test_a_plain_run_is_poisson_sampled() -> None:
    step = PoissonSampled(sampling_prob=0.01, event=Gaussian(noise_multiplier=1.2))
    assert dpsgd_event(PLAIN, 1.2) == Repeated(event=step, count=50)


def test_a_largest_batch_is_accounted_as_truncated() -> None:
    sampling = BatchSampling(
        num_examples=10_000, batch_size=100, steps=50, max_batch_size=130, max_rows_per_unit=3
    )
    step = TruncatedPoissonSampled(
        sampling_prob=0.01,
        num_rows=10_000,
        max_batch_size=130,
        event=Gaussian(noise_multiplier=1.2),
        max_rows_per_unit=3,
    )
    assert dpsgd_event(sampling, 1.2) == Repeated(event=step, count=50)


def test_fixed_batches_are_accounted_as_such_and_never_as_poisson() -> None:
    sampling = BatchSampling(num_examples=10_000, batch_size=100, steps=50, fixed_size=True)
    step = FixedSizeSampled(batch_size=100, num_rows=10_000, event=Gaussian(noise_multiplier=1.2))
    assert dpsgd_event(sampling, 1.2) == Repeated(event=step, count=50)
    fixed, poisson = (
        privacy_curve(dpsgd_event(s, 1.2), Adjacency.REPLACE) for s in (sampling, PLAIN)
    )
    assert fixed.epsilon(1e-6) > 2 * poisson.epsilon(1e-6)


def test_every_row_of_a_unit_randomizes_its_label() -> None:
    sampling = BatchSampling(num_examples=10_000, batch_size=100, steps=50, max_rows_per_unit=4)
    label = RandomizedResponse(epsilon=0.5)
    assert two_phase_event(PLAIN, 1.2, 0.5) == Composed((label, dpsgd_event(PLAIN, 1.2)))
    assert two_phase_event(sampling, 1.2, 0.5) == Composed(
        (Repeated(event=label, count=4), dpsgd_event(sampling, 1.2))
    )


def test_labels_and_training_cost_at_most_their_sum_and_at_least_either() -> None:
    training = privacy_curve(dpsgd_event(PLAIN, 0.8), Adjacency.REPLACE).epsilon(1e-6)
    together = privacy_curve(two_phase_event(PLAIN, 0.8, 1.0), Adjacency.REPLACE).epsilon(1e-6)
    assert max(1.0, training) < together <= 1.0 + training * (1 + 1e-6)


def test_the_golden_runs_of_two_phases() -> None:
    """Replace, delta 1e-7, batches of 16384: noise that was calibrated for the total epsilon."""
    for num_examples, steps, labels, total, noise in (
        (36_000_000, 2197, 0.6, 1.0, 0.7913),
        (12_800_000, 781, 3.0, 5.0, 0.6693),
    ):
        sampling = BatchSampling(num_examples=num_examples, batch_size=16_384, steps=steps)
        curve = privacy_curve(two_phase_event(sampling, noise, labels), Adjacency.REPLACE)
        assert curve.epsilon(1e-7) == pytest.approx(total, rel=2e-3)


def test_the_golden_truncated_run() -> None:
    """Room of 2 standard deviations costs nearly ten times as much as plain Poisson."""
    batch = 16_384
    expected = {2: 8.51, 4: 3.33, 6: 0.8724}
    for room, epsilon in expected.items():
        mean = round(batch - room * math.sqrt(batch))
        sampling = BatchSampling(
            num_examples=36_000_000, batch_size=mean, steps=2197, max_batch_size=batch
        )
        curve = privacy_curve(dpsgd_event(sampling, 0.7), Adjacency.REPLACE)
        assert curve.epsilon(1e-7) == pytest.approx(epsilon, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_examples": 0}, "num_examples"),
        ({"batch_size": 0}, "batch_size"),
        ({"steps": 0}, "steps"),
        ({"max_rows_per_unit": 0}, "max_rows_per_unit"),
        ({"batch_size": 10_001}, "batch_size"),
        ({"max_batch_size": 99}, "max_batch_size"),
        ({"fixed_size": True, "max_batch_size": 200}, "fixed_size"),
        ({"fixed_size": True, "max_rows_per_unit": 2}, "fixed_size"),
        ({"steps": 2.5}, "steps"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"num_examples": math.nan}, "num_examples"),
        ({"max_batch_size": 130.5}, "max_batch_size"),
        ({"steps": 10**400}, "steps"),
        ({"num_examples": 2**63}, "num_examples"),
    ],
)
def test_settings_that_fit_no_run_are_refused_by_name(changes: dict, named: str) -> None:
    settings = {"num_examples": 10_000, "batch_size": 100, "steps": 50} | changes
    with pytest.raises(ConfigError, match=named):
        BatchSampling(**settings)


@pytest.mark.parametrize("epochs", [1e300, 1.7e308, 1e19])
def test_epochs_of_more_steps_than_can_be_counted_are_refused(epochs: float) -> None:
    with pytest.raises(ConfigError, match="epochs="):
        steps_of_epochs(epochs, num_examples=100, batch_size=10)
    assert steps_of_epochs(2.5, num_examples=101, batch_size=10) == 26


def test_a_batch_of_everything_is_no_sampling() -> None:
    sampling = BatchSampling(num_examples=100, batch_size=100, steps=3)
    curve = privacy_curve(dpsgd_event(sampling, 2.0), Adjacency.REPLACE)
    plain = Repeated(event=Gaussian(noise_multiplier=2.0), count=3)
    expected = privacy_curve(plain, Adjacency.REPLACE).epsilon(1e-6)
    assert curve.epsilon(1e-6) == pytest.approx(expected, rel=1e-3)
    assert curve.epsilon(1e-6) >= expected * (1 - 1e-9)


def test_the_events_of_a_run_survive_the_ledger() -> None:
    event = two_phase_event(PLAIN, 1.2, 0.5)
    assert event_from_json(event_to_json(event)) == event


def exact_cut_prob(num_rows: int, prob: float, max_batch_size: int, max_rows: int) -> float:
    """The chance that more of the other rows come than leave room for all rows of a unit."""
    others = num_rows - max_rows
    return math.fsum(
        math.comb(others, count) * prob**count * (1 - prob) ** (others - count)
        for count in range(max(max_batch_size - max_rows + 1, 0), others + 1)
    )


@pytest.mark.parametrize("num_rows", [5, 40, 300])
@pytest.mark.parametrize("prob", [1e-6, 0.01, 0.2, 0.9])
@pytest.mark.parametrize("max_rows", [1, 3])
def test_the_bound_is_above_the_chance_and_follows_it(
    num_rows: int, prob: float, max_rows: int
) -> None:
    for max_batch_size in range(1, num_rows + 1, max(1, num_rows // 9)):
        exact = exact_cut_prob(num_rows, prob, max_batch_size, max_rows)
        bound = cut_prob_bound(
            num_rows=num_rows,
            sampling_prob=prob,
            max_batch_size=max_batch_size,
            max_rows_per_unit=max_rows,
            steps=1,
        )
        assert exact * (1 - 1e-9) <= bound <= 1
        # Chernoff's bound loses no more than the square root of what it counts.
        assert bound <= 40 * exact + 1e-100 or exact > 0.02


def test_every_step_counts() -> None:
    settings = {
        "num_rows": 1000,
        "sampling_prob": 0.05,
        "max_batch_size": 120,
        "max_rows_per_unit": 4,
    }
    once, often = (cut_prob_bound(**settings, steps=steps) for steps in (1, 700))
    assert often == pytest.approx(700 * once)
    assert cut_prob_bound(**settings, steps=10**30) == 1.0


@pytest.mark.parametrize("max_rows", [1, 7])
@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_the_least_room_is_enough_and_one_row_less_is_not(max_rows: int, delta: float) -> None:
    settings = {
        "num_rows": 20_000,
        "sampling_prob": 0.002,
        "max_rows_per_unit": max_rows,
        "steps": 500,
    }
    size = roomy_batch_size(**settings, delta=delta)
    assert cut_prob_bound(**settings, max_batch_size=size) <= CUT_SHARE_OF_DELTA * delta
    assert cut_prob_bound(**settings, max_batch_size=size - 1) > CUT_SHARE_OF_DELTA * delta


def test_batches_of_all_rows_are_never_cut() -> None:
    settings = {"num_rows": 50, "sampling_prob": 0.9, "max_rows_per_unit": 5, "steps": 10**6}
    assert cut_prob_bound(**settings, max_batch_size=50) == 0
    assert roomy_batch_size(**settings, delta=1e-9) == 50
