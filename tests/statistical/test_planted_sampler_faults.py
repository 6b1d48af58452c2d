"""Every check passes on the right sampler and fails on the one that is wrong on purpose."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from statistical import faulty_samplers as faulty
from statistical.sampler_checks import (
    assert_cyclic,
    assert_poisson,
    assert_truncated_poisson,
    inclusion_table,
)
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.shuffled import ShuffledBatches
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import UserSampling, group_rows
from tulle.mechanisms.entropy import SeededNoise

NUM_ROWS, STEPS = 300, 3000
POISSON = Poisson(num_rows=NUM_ROWS, sampling_prob=0.1, steps=STEPS)
TRUNCATED = TruncatedPoisson(
    num_rows=NUM_ROWS,
    sampling_prob=0.1,
    max_batch_size=33,
    steps=STEPS,
    accept_costly_truncation=True,
)
CYCLIC = CyclicPoisson(num_rows=NUM_ROWS, sampling_prob=0.1, num_groups=2, steps=STEPS)
USERS = UserSampling(num_users=100, sampling_prob=0.2, steps=200, max_rows_per_user=3)
UNIT_IDS = np.repeat(np.arange(100), np.arange(100) % 3 + 1)
SHUFFLED = ShuffledBatches(num_rows=NUM_ROWS, batch_size=40, epochs=2)

Draw = Callable[..., Any]


def check_poisson(draw: Draw) -> None:
    assert_poisson(inclusion_table(draw(POISSON, SeededNoise(1)), NUM_ROWS), 0.1)


def check_truncated(draw: Draw) -> None:
    table = inclusion_table(draw(TRUNCATED, SeededNoise(2)), NUM_ROWS)
    assert_truncated_poisson(table, 0.1, TRUNCATED.max_batch_size)


def check_divisor(draw: Draw) -> None:
    divisors = {batch.expected_size for batch in draw(TRUNCATED, SeededNoise(3))}
    assert divisors == {TRUNCATED.expected_size}


def check_padding(draw: Draw) -> None:
    for batch in draw(TRUNCATED, SeededNoise(4)):
        rows = batch.indices[batch.weights > 0]
        assert len(set(rows.tolist())) == rows.size


def check_cyclic(draw: Draw) -> None:
    table = inclusion_table(draw(CYCLIC, SeededNoise(5)), NUM_ROWS)
    assert_cyclic(table, CYCLIC.groups.groups_of(np.arange(NUM_ROWS)), 0.2)


def check_users(draw: Draw) -> None:
    user_rows = group_rows(UNIT_IDS)
    sizes = np.bincount(UNIT_IDS)
    for batch in draw(USERS, SeededNoise(6), user_rows):
        users, counts = np.unique(UNIT_IDS[batch.indices], return_counts=True)
        assert np.array_equal(counts, sizes[users])


def check_epochs(draw: Draw) -> None:
    table = inclusion_table(draw(SHUFFLED, SeededNoise(7)), NUM_ROWS)
    for start in range(0, SHUFFLED.steps, SHUFFLED.batches_per_epoch):
        assert (table[start : start + SHUFFLED.batches_per_epoch].sum(axis=0) == 1).all()


def right_sampler(config: Any, rng: Any, user_rows: Any = None) -> Any:
    if user_rows is None:
        return config.batches(rng)
    return config.batches(rng, user_rows=user_rows)


Check = Callable[[Draw], None]
FAULTS: list[tuple[Check, Draw]] = [
    (check_poisson, faulty.shuffled_batches_under_a_poisson_event),
    (check_poisson, faulty.fixed_size_under_a_poisson_event),
    (check_poisson, faulty.the_same_batch_in_every_step),
    (check_poisson, faulty.every_batch_twice),
    (check_poisson, faulty.five_percent_too_often),
    (check_poisson, faulty.the_first_row_never_comes),
    (check_poisson, faulty.blocks_of_neighbouring_rows),
    (check_truncated, faulty.truncation_that_keeps_the_first_rows),
    (check_truncated, faulty.batches_that_do_not_fit_are_drawn_again),
    (check_divisor, faulty.division_by_the_drawn_size),
    (check_padding, faulty.padding_that_counts),
    (check_cyclic, faulty.groups_that_change_from_round_to_round),
    (check_users, faulty.rows_instead_of_users),
    (check_epochs, faulty.a_new_order_in_the_middle_of_an_epoch),
]
each_fault = pytest.mark.parametrize(
    ("check", "wrong"), FAULTS, ids=[wrong.__name__ for _, wrong in FAULTS]
)


@pytest.mark.parametrize("check", sorted({c for c, _ in FAULTS}, key=str), ids=lambda c: c.__name__)
def test_the_check_passes_the_right_sampler(check: Check) -> None:
    check(right_sampler)


@each_fault
def test_the_check_catches_the_fault(check: Check, wrong: Draw) -> None:
    with pytest.raises(AssertionError):
        check(wrong)


def test_every_planted_fault_is_listed() -> None:
    planted = {
        function
        for name, function in vars(faulty).items()
        if callable(function)
        and not name.startswith("_")
        and getattr(function, "__module__", "") == faulty.__name__
    }
    assert planted == {wrong for _, wrong in FAULTS}
