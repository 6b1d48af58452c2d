"""Hashes of users are stable, keyed, uniform and the same for the same id."""

import numpy as np
import polars as pl
from scipy import stats

from tulle.measure.reach.user_hashes import hash_users

KEY = bytes(range(16))


def test_hashes_are_the_same_in_every_version() -> None:
    # Parties with different versions must agree; a change here breaks old sketches.
    numbers = hash_users(np.array([0, 1, 2**62]), KEY, "register").words
    assert numbers.tolist() == [0x9CA732CD29A9235A, 0x17CEEC0C96F4088A, 0xDEE2A8A5BFB95192]
    texts = hash_users(["a", "ü"], KEY, "register").words
    assert texts.tolist() == [0x10614C82E459790F, 0x7A23CF6E5B9DC231]


def test_the_container_of_ids_does_not_matter() -> None:
    names = [f"user {number}" for number in range(50)]
    expected = hash_users(names, KEY, "register").words
    for same in (np.array(names), np.array(names, dtype=object), pl.Series(names)):
        np.testing.assert_array_equal(hash_users(same, KEY, "register").words, expected)
    numbers = hash_users(np.arange(50), KEY, "register").words
    small = hash_users(np.arange(50, dtype=np.int16), KEY, "register").words
    np.testing.assert_array_equal(numbers, small)


def test_other_keys_and_purposes_give_unrelated_hashes() -> None:
    for ids in (np.arange(1000), [str(number) for number in range(1000)]):
        words = hash_users(ids, KEY, "register").words
        assert not np.isin(hash_users(ids, bytes(16), "register").words, words).any()
        assert not np.isin(hash_users(ids, KEY, "owner").words, words).any()


def test_uniforms_are_uniform() -> None:
    for ids in (np.arange(20_000), [str(number) for number in range(20_000)]):
        uniforms = hash_users(ids, KEY, "register").uniforms
        assert stats.kstest(uniforms, "uniform").pvalue > 1e-9
        assert stats.kstest(uniforms**1.1, "uniform").pvalue < 1e-9
