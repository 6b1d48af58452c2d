"""The exact sampler of finite channels: integers, proven ratios, moments, draws."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from statistical.randomizer_checks import (
    ScriptedNoise,
    assert_private,
    exceeds_exp,
    largest_ratio,
    measured_channel,
)
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.mechanisms.finite_channel import FiniteChannel
from tulle.mechanisms.randomized_response import RandomizedResponseConfig
from tulle.mechanisms.thresholds import WORD_VALUES


def random_staircase(num_inputs: int, num_outputs: int, epsilon: float, seed: int) -> np.ndarray:
    """Chances w_o or e^epsilon w_o whose rows add up to 1: rows are permutations of one."""
    generator = np.random.default_rng(seed)
    marks = generator.random(num_outputs) < 0.4
    marks[0], marks[1] = True, False
    shares = np.where(marks, math.exp(epsilon), 1.0)
    rows = [np.roll(shares, place) for place in range(num_inputs)]
    return np.array(rows) / shares.sum()


CASES = [
    pytest.param(inputs, outputs, epsilon, id=f"{inputs}x{outputs}-{epsilon}")
    for inputs, outputs in ((2, 2), (3, 5), (6, 4), (12, 30))
    for epsilon in (0.001, 0.3, 1.0, 4.0, 20.0)
]
each_case = pytest.mark.parametrize(("inputs", "outputs", "epsilon"), CASES)


def made(inputs: int, outputs: int, epsilon: float) -> tuple[np.ndarray, FiniteChannel]:
    chances = random_staircase(inputs, outputs, epsilon, seed=outputs)
    numbers = np.linspace(-3.0, 7.0, outputs).tolist()
    return chances, FiniteChannel.from_probs(chances, outputs=numbers, epsilon=epsilon)


@each_case
def test_every_pair_of_inputs_and_every_output_is_within_epsilon(
    inputs: int, outputs: int, epsilon: float
) -> None:
    _, channel = made(inputs, outputs, epsilon)
    assert_private(channel.realised_channel(), epsilon)
    assert largest_ratio(channel.realised_channel()) == channel.realised_ratio
    assert channel.realised_epsilon <= epsilon


@each_case
def test_rounding_changes_next_to_nothing(inputs: int, outputs: int, epsilon: float) -> None:
    chances, channel = made(inputs, outputs, epsilon)
    np.testing.assert_allclose(channel.channel_matrix(), chances, rtol=1e-9, atol=1e-16)
    assert channel.realised_epsilon == pytest.approx(epsilon, rel=1e-9)


@each_case
def test_moments_are_those_of_brute_force(inputs: int, outputs: int, epsilon: float) -> None:
    _, channel = made(inputs, outputs, epsilon)
    numbers = [Fraction(output) for output in channel.outputs]
    for place, row in enumerate(channel.realised_channel()):
        mean = sum(chance * number for chance, number in zip(row, numbers, strict=True))
        pairs = zip(row, numbers, strict=True)
        variance = sum(chance * (number - mean) ** 2 for chance, number in pairs)
        assert channel.mean()[place] == pytest.approx(float(mean), rel=1e-14, abs=1e-14)
        assert channel.variance()[place] == pytest.approx(float(variance), rel=1e-12)


@pytest.mark.parametrize(("inputs", "outputs", "epsilon"), [(2, 2, 1.0), (3, 5, 0.3), (3, 4, 9.0)])
def test_the_draw_realises_exactly_the_stated_channel(
    inputs: int, outputs: int, epsilon: float
) -> None:
    _, channel = made(inputs, outputs, epsilon)

    def place_of_word(held: int, word: int) -> int:
        return int(channel.draw([held], rng=ScriptedNoise([word]))[0])

    measured = measured_channel(place_of_word, range(outputs), inputs)
    assert measured == channel.realised_channel()


@pytest.mark.parametrize("num_inputs", [1, 3, 2000])
def test_words_at_the_ends_of_intervals_go_to_the_right_output(num_inputs: int) -> None:
    chances = np.tile(random_staircase(1, 40, 2.0, seed=1), (num_inputs, 1))
    channel = FiniteChannel.from_probs(chances, outputs=range(40), epsilon=2.0)
    held = num_inputs - 1
    ends = list(itertools.accumulate(channel.words[held]))
    first_words = [0, *ends[:-1]]
    last_words = [end - 1 for end in ends]
    for words in (first_words, last_words):
        drawn = channel.draw(np.full(40, held), rng=ScriptedNoise(list(words)))
        assert drawn.tolist() == list(range(40))


def test_draws_keep_the_shape_and_use_fresh_noise() -> None:
    _, channel = made(3, 5, 1.0)
    inputs = np.arange(200_000).reshape(2, -1) % 3
    first, again = (channel.draw(inputs, rng=SeededNoise(3)) for _ in range(2))
    assert first.shape == inputs.shape
    assert np.array_equal(first, again)
    one, two = (channel.draw(inputs, rng=release_rng()) for _ in range(2))
    assert not np.array_equal(one, two)
    assert channel.draw([], rng=release_rng()).size == 0


@pytest.mark.parametrize("bad", [[0, 3], [-1], [0.5], [math.nan], ["a"]])
def test_inputs_that_cannot_be_held_are_refused(bad: list[Any]) -> None:
    _, channel = made(3, 5, 1.0)
    with pytest.raises(DataError):
        channel.draw(bad, rng=SeededNoise(0))


def test_a_ratio_one_word_above_the_limit_is_refused() -> None:
    least = RandomizedResponseConfig(epsilon=1.0).words_per_loser

    def response(lie: int) -> FiniteChannel:
        words = ((lie, WORD_VALUES - lie), (WORD_VALUES - lie, lie))
        return FiniteChannel(epsilon=1.0, outputs=(0.0, 1.0), words=words)

    assert not exceeds_exp(response(least).realised_ratio, 1.0)
    with pytest.raises(ConfigError, match="likelihood ratio"):
        response(least - 1)


@pytest.mark.parametrize(
    "words",
    [
        ((0, WORD_VALUES), (1, WORD_VALUES - 1)),
        ((5, WORD_VALUES - 4), (5, WORD_VALUES - 5)),
        ((WORD_VALUES,), (WORD_VALUES,)),
        (),
    ],
)
def test_words_that_are_no_law_are_refused(words: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ConfigError):
        FiniteChannel(epsilon=1.0, outputs=(0.0, 1.0), words=words)


@pytest.mark.parametrize(
    "chances",
    [
        [[0.5, 0.5], [0.9, 0.1]],  # a ratio of 5 at epsilon 1
        [[0.5, 0.4], [0.5, 0.5]],
        [[0.0, 1.0], [0.0, 1.0]],
        [[math.nan, 1.0], [0.5, 0.5]],
        [0.5, 0.5],
    ],
)
def test_chances_that_break_epsilon_or_are_no_law_are_refused(chances: list[Any]) -> None:
    with pytest.raises(ConfigError):
        FiniteChannel.from_probs(chances, outputs=[0.0, 1.0], epsilon=1.0)


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 0.0}, {"epsilon": math.inf}, {"outputs": [0, 1e999]}]
)
def test_settings_without_meaning_are_refused(wrong: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"outputs": [0.0, 1.0], "epsilon": 1.0} | wrong
    with pytest.raises(ConfigError):
        FiniteChannel.from_probs([[0.5, 0.5], [0.4, 0.6]], **settings)
