import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statistical.randomizer_checks import ScriptedNoise, exact_chances, exceeds_exp
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.noisy_reports import variance_per_report
from tulle.mechanisms.rappor import RapporConfig, release_rappor
from tulle.privacy.events import RandomizedResponse, Repeated

_NO_FLIP = 2**64 - 1


@pytest.mark.parametrize("epsilon", [0.001, 1.0, 10.0, 90.0])
def test_each_bit_of_the_sampler_flips_with_exactly_the_realised_chance(epsilon: float) -> None:
    config = RapporConfig(epsilon=epsilon, num_values=3)
    flip = config.support_probs.if_not_held
    for bit in range(3):

        def read(word: int, bit: int = bit) -> bool:
            words = [_NO_FLIP] * 3
            words[bit] = word
            return bool(release_rappor([1], config, rng=ScriptedNoise(words))[0, bit])

        one_prob = Fraction(1 - flip if bit == 1 else flip)
        assert exact_chances(read) == {True: one_prob, False: 1 - one_prob}


def test_bits_are_flipped_by_words_of_their_own() -> None:
    config = RapporConfig(epsilon=1.0, num_values=4)
    flip_first_and_last = [0, _NO_FLIP, _NO_FLIP, 0]
    report = release_rappor([1], config, rng=ScriptedNoise(flip_first_and_last))
    assert report.tolist() == [[True, True, False, True]]


@settings(max_examples=100)
@given(epsilon=st.floats(1e-3, 50.0), num_values=st.integers(2, 40))
def test_the_realised_ratio_is_private_for_any_settings(epsilon: float, num_values: int) -> None:
    assert not exceeds_exp(
        RapporConfig(epsilon=epsilon, num_values=num_values).realised_ratio, epsilon
    )


def test_the_event_is_two_bits_of_half_epsilon() -> None:
    event = RapporConfig(epsilon=3.0, num_values=10).event()
    assert event == Repeated(event=RandomizedResponse(epsilon=1.5), count=2)


def test_the_variance_is_that_of_randomized_response_with_half_epsilon() -> None:
    expected = math.exp(0.5) / math.expm1(0.5) ** 2
    assert variance_per_report(RapporConfig(epsilon=1.0, num_values=7)) == pytest.approx(expected)


def test_a_channel_with_too_many_reports_is_not_written_out() -> None:
    with pytest.raises(ConfigError, match="num_values=17"):
        RapporConfig(epsilon=1.0, num_values=17).realised_channel()


def test_reports_longer_than_a_chunk_are_drawn_row_by_row() -> None:
    config = RapporConfig(epsilon=200.0, num_values=200_000)
    report = release_rappor([5, 199_999], config, rng=SeededNoise(0))
    assert np.argwhere(report).tolist() == [[0, 5], [1, 199_999]]
