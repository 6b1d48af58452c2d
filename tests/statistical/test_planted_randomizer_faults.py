"""Each check passes on the right mechanism and fails on the one that is wrong on purpose."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from statistical import faulty_randomizers as faulty
from statistical.key_selection_checks import (
    assert_keep_chances_private,
    assert_least_safe_threshold,
)
from statistical.randomizer_checks import (
    ScriptedNoise,
    assert_discrete_laplace,
    assert_follows,
    assert_private,
    exact_chances,
    measured_channel,
)
from tulle.mechanisms import randomized_response, rappor, subset_selection
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.key_selection import KeySelectionConfig, keep_thresholds
from tulle.mechanisms.key_thresholds import LaplaceKeyThresholdConfig
from tulle.mechanisms.polya import sample_noise_shares
from tulle.mechanisms.randomized_response import RandomizedResponseConfig
from tulle.mechanisms.rappor import RapporConfig
from tulle.mechanisms.split_and_mix import SplitAndMixConfig
from tulle.mechanisms.subset_selection import SubsetSelectionConfig

RESPONSE = RandomizedResponseConfig(epsilon=1.0, num_values=4)
BITS = RapporConfig(epsilon=1.0, num_values=3)
SUBSETS = SubsetSelectionConfig(epsilon=1.0, num_values=5, subset_size=2)
KEYS = KeySelectionConfig(epsilon=1.0, delta=1e-3)
LAPLACE_KEYS = LaplaceKeyThresholdConfig(epsilon=1.0, delta=1e-6, max_keys_per_unit=3)
SUM = SplitAndMixConfig(
    epsilon=1.0, max_value=2, num_users=40, min_honest_users=20, security_delta=1e-9
)


def check_response_exactly(randomize: Any) -> None:
    channel = measured_channel(
        lambda held, word: int(randomize([held], RESPONSE, rng=ScriptedNoise([word]))[0]),
        RESPONSE.outputs(),
        RESPONSE.num_values,
    )
    assert_private(channel, RESPONSE.epsilon)
    assert channel == RESPONSE.realised_channel()


def check_bits_exactly(randomize: Any) -> None:
    chances = exact_chances(
        lambda word: bool(randomize([0], BITS, rng=ScriptedNoise([2**64 - 1, word]))[0, 1])
    )
    flip = chances[True]
    channel = [
        [
            flip ** sum(bit != (value == held) for value, bit in enumerate(report))
            * (1 - flip) ** sum(bit == (value == held) for value, bit in enumerate(report))
            for report in BITS.outputs()
        ]
        for held in range(BITS.num_values)
    ]
    assert_private(channel, BITS.epsilon)


def check_marks_by_samples(randomize: Any, config: Any) -> None:
    reports = randomize(np.full(100_000, 1), config, rng=SeededNoise(1))
    weights = 1 << np.arange(config.num_values)
    order = [int(np.dot(output, weights)) for output in config.outputs()]
    counts = np.bincount(reports @ weights, minlength=1 << config.num_values)
    assert_follows(counts[order], config.channel_matrix()[1])


def check_keep_thresholds(table: list[int]) -> None:
    chances = [Fraction(words, 2**64) for words in table]
    assert_keep_chances_private(chances, KEYS.epsilon, KEYS.delta)


def check_honest_noise(sample: Any) -> None:
    num_honest = SUM.min_honest_users
    shares = sample(100_000 * num_honest)
    assert_discrete_laplace(shares.reshape(-1, num_honest).sum(axis=1), SUM.noise_scale)


Check = Callable[[Any], None]
FAULTS: list[tuple[Check, Any, Any]] = [
    (check_response_exactly, randomized_response.release_randomized_response, wrong)
    for wrong in (
        faulty.threshold_rounded_the_wrong_way,
        faulty.other_value_off_by_one,
        faulty.truth_kept_among_the_others,
        faulty.one_word_for_keeping_and_for_the_value,
    )
] + [
    (check_bits_exactly, rappor.release_rappor, faulty.whole_epsilon_for_each_bit),
    (
        lambda randomize: check_marks_by_samples(randomize, BITS),
        rappor.release_rappor,
        faulty.one_word_for_all_bits,
    ),
    (
        lambda randomize: check_marks_by_samples(randomize, SUBSETS),
        subset_selection.release_subset_selection,
        faulty.absent_subsets_that_may_hold_the_truth,
    ),
    (
        lambda make: check_keep_thresholds(make(KEYS)),
        lambda config: keep_thresholds(config.epsilon, config.delta),
        faulty.keep_thresholds_one_word_too_high,
    ),
    (
        lambda make: check_keep_thresholds(make(KEYS)),
        lambda config: keep_thresholds(config.epsilon, config.delta),
        faulty.keep_thresholds_one_unit_too_early,
    ),
    (
        lambda make: assert_least_safe_threshold(LAPLACE_KEYS, make(LAPLACE_KEYS)),
        lambda config: config.threshold,
        faulty.key_threshold_one_too_low,
    ),
    (
        lambda sample: check_honest_noise(lambda n: sample(SUM, n, rng=SeededNoise(2))),
        lambda config, n, rng: sample_noise_shares(config.noise_share, n, rng=rng),
        faulty.noise_shares_of_all_users,
    ),
]
each_fault = pytest.mark.parametrize(
    ("check", "right", "wrong"), FAULTS, ids=[wrong.__name__ for _, _, wrong in FAULTS]
)


@each_fault
def test_the_check_catches_the_fault_and_passes_the_right_mechanism(
    check: Check, right: Any, wrong: Any
) -> None:
    check(right)
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
    assert planted == {wrong for _, _, wrong in FAULTS}
