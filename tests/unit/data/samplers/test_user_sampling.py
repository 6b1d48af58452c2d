"""Batches of users bring all rows of a user, as one segment with weights that add up to one."""

import numpy as np
import pytest

from tulle.accounting.accountant import pld_epsilon
from tulle.data.samplers.poisson import accounted_prob
from tulle.data.samplers.user_sampling import UserSampling, batch_of_users, group_rows
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import Gaussian, PoissonSampled, Repeated
from tulle.privacy.units import Adjacency

NOISE = Gaussian(noise_multiplier=1.0)
UNIT_IDS = np.array([7, 2, 7, 9, 2, 7, 100])
USERS = UserSampling(num_users=4, sampling_prob=0.5, steps=200, max_rows_per_user=3)


def test_rows_are_grouped_by_user_in_row_order() -> None:
    user_rows = group_rows(UNIT_IDS)
    assert user_rows.rows.tolist() == [1, 4, 0, 2, 5, 3, 6]
    assert user_rows.starts.tolist() == [0, 2, 5, 6, 7]
    assert user_rows.num_users == 4


def test_a_batch_holds_the_rows_of_its_users_side_by_side() -> None:
    batch = batch_of_users(np.array([0, 1, 3]), group_rows(UNIT_IDS), 2.0)
    assert batch.indices.tolist() == [1, 4, 0, 2, 5, 6]
    assert batch.segments.tolist() == [0, 0, 1, 1, 1, 2]
    assert batch.num_segments == 3
    np.testing.assert_allclose(np.bincount(batch.segments, batch.weights), 1.0, rtol=1e-6)


def test_nobody_sampled_is_an_empty_batch() -> None:
    batch = batch_of_users(np.array([], np.int64), group_rows(UNIT_IDS), 2.0)
    assert batch.indices.size == batch.num_segments == 0


def test_users_come_whole_or_not_at_all() -> None:
    rows_of = {user: set(np.flatnonzero(user == UNIT_IDS)) for user in (2, 7, 9, 100)}
    seen = set()
    for batch in USERS.batches(SeededNoise(0), user_rows=group_rows(UNIT_IDS)):
        users = UNIT_IDS[batch.indices]
        assert len(set(users.tolist())) == batch.num_segments
        for user in set(users.tolist()):
            assert set(batch.indices[users == user]) == rows_of[user]
        seen.add(tuple(sorted(set(users.tolist()))))
    assert len(seen) == 16


def test_a_user_moves_the_clipped_sum_by_at_most_one_clip_norm() -> None:
    generator = np.random.default_rng(0)
    gradients = generator.normal(size=(UNIT_IDS.size, 3)) * 10
    other = np.where((UNIT_IDS == 7)[:, None], 0.0, gradients)
    user_rows = group_rows(UNIT_IDS)
    for users in ([1], [0, 1], [0, 1, 2, 3]):
        batch = batch_of_users(np.array(users), user_rows, 2.0)
        sums = []
        for values in (gradients, other):
            means = np.zeros((batch.num_segments, 3))
            np.add.at(means, batch.segments, batch.weights[:, None] * values[batch.indices])
            norms = np.linalg.norm(means, axis=1, keepdims=True)
            sums.append((means / np.maximum(1, norms)).sum(axis=0))
        assert np.linalg.norm(sums[0] - sums[1]) <= 1 + 1e-9


def test_the_event_is_that_of_one_row_a_unit() -> None:
    step = PoissonSampled(sampling_prob=accounted_prob(0.5), event=NOISE)
    assert USERS.event(NOISE) == Repeated(event=step, count=200)


def test_the_cost_of_a_user_is_the_table_value_however_many_rows() -> None:
    # Research report, section 5: ULS at q = 1e-3, noise 1, 1000 steps, delta 1e-6.
    for rows in (1, 10):
        users = UserSampling(
            num_users=10_000, sampling_prob=1e-3, steps=1000, max_rows_per_user=rows
        )
        epsilon = pld_epsilon(users.event(NOISE), 1e-6, Adjacency.REPLACE)
        assert epsilon == pytest.approx(0.2713, abs=2e-3)


def test_users_with_too_many_rows_are_refused() -> None:
    users = UserSampling(num_users=4, sampling_prob=0.5, steps=1, max_rows_per_user=2)
    with pytest.raises(DataError, match=r"max_rows_per_user=2 .*tulle\.data\.contribution"):
        users.batches(SeededNoise(0), user_rows=group_rows(UNIT_IDS))


def test_another_number_of_users_is_refused_without_showing_it() -> None:
    users = UserSampling(num_users=5, sampling_prob=0.5, steps=1, max_rows_per_user=3)
    with pytest.raises(DataError, match="num_users=5 is not") as caught:
        users.batches(SeededNoise(0), user_rows=group_rows(UNIT_IDS))
    assert "4" not in str(caught.value)


@pytest.mark.parametrize("bad", [[], [1.5, 2.0], [[1, 2]], ["a"]])
def test_unit_ids_that_are_no_vector_of_whole_numbers_are_refused(bad: object) -> None:
    with pytest.raises(DataError, match="unit ids"):
        group_rows(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"num_users": 0}, {"max_rows_per_user": 0}, {"steps": -1}])
def test_settings_without_meaning_are_refused(wrong: dict[str, int]) -> None:
    right = {"num_users": 4, "sampling_prob": 0.5, "steps": 1, "max_rows_per_user": 3}
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        UserSampling(**right | wrong)  # type: ignore[arg-type]


def test_printing_a_batch_does_not_show_who_is_in_it() -> None:
    batch = batch_of_users(np.array([0]), group_rows(UNIT_IDS), 2.0)
    assert repr(batch) == "UserBatch(expected_users=2.0)"
