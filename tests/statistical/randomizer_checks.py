"""Checks of finite randomizers: exact ones on their channels, chi-square ones on samples."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tulle.mechanisms.entropy import SeededNoise, Words

FALSE_ALARM_PROB = 1e-9
WORD_VALUES = 2**64

Channel = Sequence[Sequence[Fraction]]


@dataclasses.dataclass
class ScriptedNoise:
    """Gives the listed words first, then those of a seeded source."""

    script: list[int]
    seed: int = 0

    is_secure = False
    description = "a script"

    def __post_init__(self) -> None:
        self._rest = SeededNoise(self.seed)

    def words(self, num_words: int) -> Words:
        taken, self.script = self.script[:num_words], self.script[num_words:]
        rest = self._rest.words(num_words - len(taken))
        return np.concatenate([np.array(taken, np.uint64), rest])


def exact_chances(output_of_word: Callable[[int], Hashable]) -> dict[Hashable, Fraction]:
    """The exact chance of each output of a sampler that looks at one word.

    The sampler is a black box. It must map few intervals of words to outputs,
    one interval for each output; ends of intervals are found by bisection.
    """
    chances: Counter[Hashable] = Counter()

    def explore(first: int, last: int, first_output: Hashable, last_output: Hashable) -> None:
        if first_output == last_output:
            chances[first_output] += last - first + 1
            return
        if last - first == 1:
            chances[first_output] += 1
            chances[last_output] += 1
            return
        middle = (first + last) // 2
        middle_output = output_of_word(middle)
        explore(first, middle, first_output, middle_output)
        chances[middle_output] -= 1
        explore(middle, last, middle_output, last_output)

    step = WORD_VALUES // 64
    for start in range(0, WORD_VALUES, step):
        end = start + step - 1
        explore(start, end, output_of_word(start), output_of_word(end))
    return {output: Fraction(words, WORD_VALUES) for output, words in chances.items() if words}


def measured_channel(
    report_of_word: Callable[[int, int], Hashable], outputs: Sequence[Hashable], num_values: int
) -> list[list[Fraction]]:
    """The exact channel of a sampler that looks at one word for each value held.

    Args:
      report_of_word: The report for a value held and a word.
      outputs: All reports there may be.
      num_values: How many values may be held.
    """
    rows = [
        exact_chances(lambda w, held=held: report_of_word(held, w)) for held in range(num_values)
    ]
    assert all(set(row) <= set(outputs) for row in rows)
    return [[row.get(output, Fraction(0)) for output in outputs] for row in rows]


def exceeds_exp(ratio: Fraction, epsilon: float) -> bool:
    """True if ratio > e^epsilon, with 80 digits of mpmath."""
    with mpmath.workdps(80):
        return bool(mpmath.mpf(ratio.numerator) / ratio.denominator > mpmath.exp(epsilon))


def largest_ratio(channel: Channel) -> Fraction:
    """The largest ratio of an output's chances over all pairs of inputs."""
    columns = list(zip(*channel, strict=True))
    if any(min(column) == 0 < max(column) for column in columns):
        raise AssertionError("an output is possible for one input and impossible for another")
    return max(max(column) / min(column) for column in columns)


def assert_private(channel: Channel, epsilon: float) -> None:
    """Every row is a law, and no ratio exceeds e^epsilon: exact, over all inputs and outputs."""
    assert all(sum(row) == 1 for row in channel)
    assert not exceeds_exp(largest_ratio(channel), epsilon)


def assert_follows(counts: Sequence[int] | NDArray[np.int64], probs: Sequence[float]) -> None:
    """Chi-square of counts against chances, at a false-alarm chance of 1e-9."""
    assert chi_square_p_value(counts, probs) > FALSE_ALARM_PROB


def assert_rejects(counts: Sequence[int] | NDArray[np.int64], probs: Sequence[float]) -> None:
    """The same counts must speak clearly against a wrong law."""
    assert chi_square_p_value(counts, probs) < FALSE_ALARM_PROB


def assert_discrete_laplace(noise: NDArray[np.int64], scale: float) -> None:
    """Integers proportional to exp(-|i| / scale), and clearly not of a scale 5% wider.

    100,000 draws or more: with fewer the second check may fail on right noise.
    """
    reach = math.ceil(12 * scale)
    counts = np.bincount(np.clip(noise, -reach, reach) + reach, minlength=2 * reach + 1)
    assert_follows(counts, _folded_laplace(scale, reach))
    assert_rejects(counts, _folded_laplace(1.05 * scale, reach))


def _folded_laplace(scale: float, reach: int) -> list[float]:
    """Discrete Laplace chances with both tails put into the outermost cells."""
    odds = math.exp(-1 / scale)
    inner = [(1 - odds) / (1 + odds) * odds ** abs(i) for i in range(-reach + 1, reach)]
    tail = odds**reach / (1 + odds)
    return [tail, *inner, tail]


def chi_square_p_value(
    counts: Sequence[int] | NDArray[np.int64], probs: Sequence[float], *, least_expected: float = 10
) -> float:
    """P-value with cells of expected count below `least_expected` put together."""
    observed = np.asarray(counts, float)
    expected = np.asarray(probs, float) / np.sum(probs) * observed.sum()
    is_small = expected < least_expected
    if is_small.any() and expected[is_small].sum() < least_expected:
        is_small[np.argmin(np.where(is_small, np.inf, expected))] = True
    if is_small.any():
        observed = np.append(observed[~is_small], observed[is_small].sum())
        expected = np.append(expected[~is_small], expected[is_small].sum())
    return float(stats.chisquare(observed, expected).pvalue)
