import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from statistical.randomizer_checks import assert_discrete_laplace
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.mechanisms.polya import sample_noise_shares
from tulle.mechanisms.split_and_mix import (
    SplitAndMixConfig,
    decode_sum,
    encode_values,
    messages_needed,
    shuffle_messages,
)
from tulle.privacy.events import Composed, DiscreteLaplace, EpsilonDelta
from tulle.privacy.units import TrustModel

SETTINGS: dict[str, Any] = {
    "epsilon": 1.0,
    "max_value": 10,
    "num_users": 200,
    "min_honest_users": 100,
    "security_delta": 1e-9,
}


def test_the_sum_is_right_up_to_its_noise() -> None:
    config = SplitAndMixConfig(**SETTINGS)
    values = np.arange(200) % 11
    for seed in range(20):
        messages = encode_values(values, config, rng=SeededNoise(seed))
        error = decode_sum(shuffle_messages(messages), config) - values.sum()
        assert abs(error) < 12 * config.noise_stddev


def test_the_noise_of_the_sum_has_the_stated_spread() -> None:
    config = SplitAndMixConfig(**(SETTINGS | {"num_users": 19, "min_honest_users": 19}))
    values = np.full(19, 10)
    rng = SeededNoise(4)
    errors = np.array(
        [decode_sum(encode_values(values, config, rng=rng), config) - 190 for _ in range(2000)]
    )
    assert abs(errors.mean()) < 6.5 * config.noise_stddev / math.sqrt(2000)
    # The fourth moment of Laplace noise is six times the squared variance.
    spread = 6.5 * math.sqrt(5 / 2000)
    assert errors.var() / config.noise_stddev**2 == pytest.approx(1, abs=spread)


def test_the_shares_of_the_honest_users_alone_are_the_stated_noise() -> None:
    config = SplitAndMixConfig(**(SETTINGS | {"max_value": 2, "min_honest_users": 20}))
    shares = sample_noise_shares(config.noise_share, 20 * 100_000, rng=SeededNoise(9))
    assert_discrete_laplace(shares.reshape(-1, 20).sum(axis=1), config.noise_scale)


def test_sums_at_both_ends_do_not_wrap() -> None:
    config = SplitAndMixConfig(**SETTINGS)
    for values in (np.zeros(200, int), np.full(200, 10)):
        noisy = decode_sum(encode_values(values, config, rng=SeededNoise(6)), config)
        assert abs(noisy - values.sum()) < 12 * config.noise_stddev


def test_each_user_sends_uniform_messages_below_the_modulus() -> None:
    config = SplitAndMixConfig(**SETTINGS)
    messages = encode_values(np.zeros(200, int), config, rng=release_rng())
    assert messages.shape == (200, config.messages_per_user)
    assert int(messages.max()) < config.modulus
    middle = messages.mean(axis=0) / config.modulus
    assert np.abs(middle - 0.5).max() < 6.5 * math.sqrt(1 / 12 / 200)


def test_shuffling_forgets_everything_but_the_multiset() -> None:
    messages = np.array([[5, 1], [3, 1]], np.uint64)
    assert np.array_equal(shuffle_messages(messages), shuffle_messages(messages[::-1, ::-1]))
    assert shuffle_messages(messages).tolist() == [1, 1, 3, 5]


def test_the_event_is_the_noise_of_the_honest_plus_the_security() -> None:
    config = SplitAndMixConfig(**SETTINGS)
    noise, security = config.event().events
    assert isinstance(config.event(), Composed)
    assert isinstance(noise, DiscreteLaplace)
    assert noise.max_contribution / noise.scale <= 1.0
    assert noise.replace_factor == 1.0
    assert security == EpsilonDelta(epsilon=0.0, delta=1e-9)
    assert config.trust_model is TrustModel.SHUFFLE


def test_twelve_messages_are_enough_for_the_published_example() -> None:
    # Abstract of Balle et al. 2019: 32-bit sums, 10,000 users, 40 bits of security.
    assert messages_needed(40, num_users=10_000, modulus=2**32) == 12


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0])
@pytest.mark.parametrize("num_honest", [19, 40])
def test_exact_security_is_better_than_the_bound(epsilon: float, num_honest: int) -> None:
    config = SplitAndMixConfig(
        epsilon=epsilon,
        max_value=1,
        num_users=num_honest,
        min_honest_users=num_honest,
        security_delta=1e-6,
    )
    excess = _excess_components(num_honest, config.messages_per_user - 1, config.modulus)
    distance = math.sqrt(float(excess))
    assert (1 + math.exp(epsilon)) * distance <= config.security_delta
    assert distance <= 2.0**-config.security_bits


def test_the_published_bound_on_components_holds_wherever_it_is_below_one() -> None:
    for num_users, num_messages, log_modulus in itertools.product(
        (19, 27), (3, 5, 8, 12), (1, 6, 12, 20, 30)
    ):
        bound = 2**log_modulus * (num_users / math.e) ** (1 - num_messages)
        if bound < 1:
            assert _excess_components(num_users, num_messages, 2**log_modulus) <= bound


@pytest.mark.parametrize(
    ("num_users", "num_messages", "modulus"), [(3, 2, 2), (2, 3, 3), (3, 3, 2)]
)
def test_mixed_messages_tell_no_more_than_the_derived_bound(
    num_users: int, num_messages: int, modulus: int
) -> None:
    bound = math.sqrt(float(_excess_components(num_users, num_messages - 1, modulus)))
    views = {
        inputs: _view(inputs, num_messages, modulus)
        for inputs in itertools.product(range(modulus), repeat=num_users)
    }
    for one, two in itertools.combinations(views, 2):
        if sum(one) % modulus == sum(two) % modulus:
            assert float(_distance(views[one], views[two])) <= bound
        else:
            assert _distance(views[one], views[two]) == 1


def test_more_messages_tell_less() -> None:
    distances = [
        _distance(_view((0, 0, 0), count, 2), _view((1, 1, 0), count, 2)) for count in (1, 2, 3, 4)
    ]
    assert distances[0] == 1
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < Fraction(1, 8)


def test_components_are_counted_as_by_brute_force() -> None:
    # Each permutation of 2 x 3 message slots links the blocks of senders.
    components: Counter[int] = Counter()
    for permutation in itertools.permutations(range(6)):
        label = list(range(3))
        for slot, target in enumerate(permutation):
            old, new = label[slot // 2], label[target // 2]
            label = [new if x == old else x for x in label]
        components[len(set(label))] += 1
    expected = Fraction(sum(n * 5 ** (c - 1) for c, n in components.items()), 720) - 1
    assert _excess_components(3, 2, 5) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_honest_users": 18},
        {"min_honest_users": 201},
        {"num_users": 0},
        {"num_users": 100.5},
        {"epsilon": 0.0},
        {"epsilon": math.inf},
        {"max_value": 0},
        {"max_value": 2.5},
        {"max_value": 10**6},
        {"security_delta": 0.0},
        {"security_delta": 1.0},
        {"max_wrap_prob": 0.0},
        {"num_users": 2**40, "max_value": 2**30, "epsilon": 1e6},
        {"epsilon": 1e6},
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SplitAndMixConfig(**(SETTINGS | wrong))


@pytest.mark.parametrize("bad", [[-1], [11], [0.5], [math.nan]])
def test_values_outside_the_range_are_refused(bad: list[Any]) -> None:
    with pytest.raises(DataError):
        encode_values(bad, SplitAndMixConfig(**SETTINGS), rng=SeededNoise(0))


def test_a_sum_with_missing_messages_is_refused() -> None:
    config = SplitAndMixConfig(**SETTINGS)
    messages = encode_values(np.zeros(200, int), config, rng=SeededNoise(0))
    with pytest.raises(DataError, match="meaningless"):
        decode_sum(messages.reshape(-1)[1:], config)


def _excess_components(num_users: int, num_messages: int, modulus: int) -> Fraction:
    """E[q^(C - 1)] - 1, exactly, for the number C of linked groups of users.

    A uniform permutation of all message slots links users; permutations factor
    over groups, so the generating function of q^C is that of q^1 to the power q.
    """
    factorial = math.factorial
    series = [Fraction(factorial(j * num_messages), factorial(j)) for j in range(num_users + 1)]
    power = [Fraction(1)]
    for degree in range(1, num_users + 1):
        terms = (
            (modulus * j - (degree - j)) * series[j] * power[degree - j]
            for j in range(1, degree + 1)
        )
        power.append(sum(terms, Fraction(0)) / degree)
    scale = Fraction(factorial(num_users), factorial(num_users * num_messages) * modulus)
    return power[num_users] * scale - 1


def _view(inputs: tuple[int, ...], num_messages: int, modulus: int) -> dict[Any, Fraction]:
    """The exact law of the multiset of all messages."""
    splits = [
        [(*rest, (value - sum(rest)) % modulus) for rest in _residues(num_messages - 1, modulus)]
        for value in inputs
    ]
    counts = Counter(
        tuple(sorted(itertools.chain.from_iterable(rows))) for rows in itertools.product(*splits)
    )
    total = sum(counts.values())
    return {view: Fraction(count, total) for view, count in counts.items()}


def _residues(length: int, modulus: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(modulus), repeat=length))


def _distance(one: dict[Any, Fraction], two: dict[Any, Fraction]) -> Fraction:
    views = one.keys() | two.keys()
    return (
        sum((abs(one.get(v, Fraction(0)) - two.get(v, Fraction(0))) for v in views), Fraction(0))
        / 2
    )
