import math

import pytest

from tulle.privacy.cut_batches import CUT_SHARE_OF_DELTA, cut_prob_bound, roomy_batch_size


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
