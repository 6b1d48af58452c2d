"""Guesses of fair coins from scores: the surest ones, and how many are right."""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guesses:
    """How many coins there were, how many were guessed, and how many of these right."""

    num_canaries: int
    num_guesses: int
    num_correct: int

    def __post_init__(self) -> None:
        check_count("num_canaries", self.num_canaries)
        check_count("num_guesses", self.num_guesses)
        check_count("num_correct", self.num_correct, least=0)
        if not self.num_correct <= self.num_guesses <= self.num_canaries:
            raise ConfigError(
                f"num_correct={self.num_correct} of num_guesses={self.num_guesses} for "
                f"num_canaries={self.num_canaries}: no number may exceed the next."
            )


def guess_surest(scores: ArrayLike, coins: ArrayLike, *, num_guesses: int) -> Guesses:
    """Guesses 1 where scores are highest and 0 where they are lowest, half of each.

    Args:
      scores: One for each canary, computed without its coin; high where 1 is likelier.
      coins: What was drawn, 0 or 1.
      num_guesses: How many to guess. Fix it before scores are seen.

    Privacy:
      Coins are made up for the audit; counts of right guesses are about them alone.
    """
    values, drawn = np.asarray(scores, dtype=np.float64), np.asarray(coins)
    if values.ndim != 1 or values.shape != drawn.shape:
        raise DataError(
            f"scores of shape {values.shape} and coins of shape {drawn.shape} must be two vectors "
            "with one entry for each canary."
        )
    if np.isnan(values).any() or not np.isin(drawn, (0, 1)).all():
        raise DataError("every canary needs a score that is a number, and a coin that is 0 or 1.")
    if check_count("num_guesses", num_guesses) > values.size:
        raise ConfigError(
            f"num_guesses={num_guesses} must be <= the number of canaries, {values.size}."
        )
    order = np.argsort(values, kind="stable")
    num_ones = num_guesses // 2
    lowest, highest = order[: num_guesses - num_ones], order[values.size - num_ones :]
    correct = np.count_nonzero(drawn[lowest] == 0) + np.count_nonzero(drawn[highest] == 1)
    return Guesses(num_canaries=values.size, num_guesses=num_guesses, num_correct=int(correct))
