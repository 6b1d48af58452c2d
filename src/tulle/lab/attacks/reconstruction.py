"""Reconstruction: many counts of random groups give everybody's bit away.

Each answer is a linear equation in the bits. Enough of them are solved by least squares, also
with noise, if the noise does not grow with the number of answers (Dinur and Nissim 2003). The
guarantee counts answers too: epsilon is for all of them together.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.accounting.accountant import pld_epsilon
from tulle.errors import ConfigError, DataError
from tulle.lab.attacks.bounds import NOT_PRIVATE, guess_ceiling
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.privacy.fields import check_count, check_epsilon, null_if_infinite
from tulle.privacy.units import Adjacency

IntArray = NDArray[np.int64]

_BIT_STDDEV = 0.5
"""Standard deviation of a fair bit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReconstructionConfig:
    """Settings of the attack. Every field is public information."""

    num_users: int = 100
    num_queries: int = 400
    """Number of answers in the sweep over noise."""
    noise_scales: tuple[float, ...] = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
    """Scales of the noise on each answer; 0 for exact answers."""
    query_counts: tuple[int, ...] = (50, 100, 200, 400, 800, 1600)
    """Numbers of answers in the sweep over them."""
    epsilon: float = 1.0
    """Epsilon in that sweep: of each answer on its own, and of all answers together."""
    num_trials: int = 10
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("num_users", "num_queries", "num_trials"):
            check_count(name, getattr(self, name))
        for count in self.query_counts:
            check_count("query_counts", count)
        if not self.noise_scales or not self.query_counts:
            raise ConfigError("noise_scales and query_counts need at least one value each.")
        if not all(0 <= scale < math.inf for scale in self.noise_scales):
            raise ConfigError(f"noise_scales={self.noise_scales} must be >= 0 and finite.")
        check_epsilon(self.epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReconstructionRow:
    """How much of the bits one attack found."""

    num_queries: int
    noise_scale: float
    """Scale of the noise on each answer; the largest of the trials."""
    epsilon: float
    """Epsilon of all answers together; math.inf if they are exact."""
    share_right: float
    """Share of all bits; half of them are right for guesses at random."""
    ceiling: float
    """What no attacker exceeds in expectation at this epsilon."""

    def to_dict(self) -> dict[str, object]:
        """Plain data; an infinite epsilon is null."""
        return dataclasses.asdict(self) | {"epsilon": null_if_infinite(self.epsilon)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReconstructionResult:
    """The attack against more noise, and with more answers."""

    config: ReconstructionConfig
    by_noise: tuple[ReconstructionRow, ...]
    epsilon_each: tuple[ReconstructionRow, ...]
    """Rows by number of answers, each with `epsilon` on its own: together they cost far more."""
    epsilon_in_total: tuple[ReconstructionRow, ...]
    """Rows by number of answers, all of them together with `epsilon`."""

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "attack": "reconstruction",
            "privacy": NOT_PRIVATE,
            "config": dataclasses.asdict(self.config),
            "by_noise": [row.to_dict() for row in self.by_noise],
            "epsilon_each": [row.to_dict() for row in self.epsilon_each],
            "epsilon_in_total": [row.to_dict() for row in self.epsilon_in_total],
        }

    def lines(self) -> list[str]:
        """What was found, in lines to print."""
        config = self.config
        lines = [f"reconstruction: bits of {config.num_users:,} users from counts of random groups"]
        for what, rows in (("each", self.epsilon_each), ("all", self.epsilon_in_total)):
            row = rows[-1]
            lines.append(
                f"  {row.num_queries:,} answers, epsilon {config.epsilon:g} for {what:<4}  "
                f"{row.share_right:6.1%} right; any attacker at most {row.ceiling:.1%}; "
                f"epsilon {row.epsilon:g} together"
            )
        return lines


def attack_by_reconstruction(config: ReconstructionConfig | None = None) -> ReconstructionResult:
    """Draws users and queries, answers them, and solves for the bits.

    Privacy:
      For synthetic users, with seeded noise: the result is exact and not private.
    """
    config = config or ReconstructionConfig()

    def row(num_queries: int, noise_scale: float | None) -> ReconstructionRow:
        trials = (
            _one_trial(config, num_queries, noise_scale, np.random.default_rng([config.seed, t]))
            for t in range(config.num_trials)
        )
        epsilons, scales, shares = zip(*trials, strict=True)
        return ReconstructionRow(
            num_queries=num_queries,
            noise_scale=max(scales),
            # Another draw of groups may need a little more epsilon; the largest is true of all.
            epsilon=max(epsilons),
            share_right=float(np.mean(shares)),
            ceiling=guess_ceiling(max(epsilons)),
        )

    return ReconstructionResult(
        config=config,
        by_noise=tuple(row(config.num_queries, scale) for scale in config.noise_scales),
        epsilon_each=tuple(row(count, 1 / config.epsilon) for count in config.query_counts),
        epsilon_in_total=tuple(row(count, None) for count in config.query_counts),
    )


def reconstruct_bits(
    queries: ArrayLike, answers: ArrayLike, *, noise_stddev: float = 0.0
) -> IntArray:
    """The bits that explain the answers best, by least squares and rounding.

    Args:
      queries: [queries, users] of 0 and 1: who is counted.
      answers: One number a query, exact or noisy.
      noise_stddev: Standard deviation of the answers' noise, which is public; keeps noise from
        being explained by bits.

    Privacy:
      Post-processing of what was released.
    """
    matrix = np.asarray(queries, dtype=np.float64)
    values = np.asarray(answers, dtype=np.float64)
    if matrix.ndim != 2 or values.shape != matrix.shape[:1]:
        raise DataError(
            f"queries of shape {matrix.shape} need one answer a row, not answers of shape "
            f"{values.shape}."
        )
    # A fair bit is 1/2 before any answer, with standard deviation 1/2: one more equation each.
    weight = noise_stddev / _BIT_STDDEV
    prior = weight * np.eye(matrix.shape[1])
    centred = values - matrix.sum(axis=1) / 2
    solution = np.linalg.lstsq(
        np.concatenate([matrix, prior]),
        np.concatenate([centred, np.zeros(matrix.shape[1])]),
        rcond=None,
    )[0]
    return np.asarray(solution > 0, dtype=np.int64)


def answer_queries(
    queries: IntArray, raw_bits: IntArray, noise: DiscreteLaplaceConfig, *, rng: NoiseSource
) -> IntArray:
    """Noisy counts of the bits in each group.

    Args:
      queries: [queries, users]: 1 for each user of a group.
      raw_bits: The bit of each user.
      noise: Noise of the counts.
      rng: Source of the noise.

    Privacy:
      Unit: user, whose bit is replaced. L1 sensitivity: noise.max_contribution. Event: one
      DiscreteLaplace for all answers. Relies on: nothing; who is counted how often is checked.
    """
    most = int(queries.sum(axis=0).max())
    if noise.max_contribution < most:
        raise ConfigError(
            f"max_contribution={noise.max_contribution} is below the {most} queries that one user "
            "is in; raise it."
        )
    return release_discrete_laplace(queries @ raw_bits, noise, rng=rng)


def _one_trial(
    config: ReconstructionConfig,
    num_queries: int,
    noise_scale: float | None,
    rng: np.random.Generator,
) -> tuple[float, float, float]:
    """Epsilon, noise scale and share of right bits of one attack.

    The noise has a given scale, or the one that spends config.epsilon on all queries.
    """
    raw_bits = rng.integers(0, 2, size=config.num_users)
    queries = rng.integers(0, 2, size=(num_queries, config.num_users))
    if noise_scale == 0:
        guesses = reconstruct_bits(queries, queries @ raw_bits)
        right = float(np.mean(guesses == raw_bits))
        return math.inf, 0.0, right
    noise = _noise(int(max(queries.sum(axis=0).max(), 1)), noise_scale, config.epsilon)
    source = SeededNoise(int(rng.integers(2**62)))
    answers = answer_queries(queries, raw_bits, noise, rng=source)
    guesses = reconstruct_bits(queries, answers, noise_stddev=noise.noise_stddev)
    epsilon = pld_epsilon(noise.event(), 0.0, Adjacency.REPLACE)
    return epsilon, noise.scale, float(np.mean(guesses == raw_bits))


def _noise(most: int, noise_scale: float | None, epsilon: float) -> DiscreteLaplaceConfig:
    # A bit that is replaced moves each of its counts by 1, as one that is removed.
    if noise_scale is None:
        return DiscreteLaplaceConfig.for_epsilon(
            epsilon, adjacency=Adjacency.REPLACE, max_contribution=most, replace_factor=1.0
        )
    return DiscreteLaplaceConfig(scale=noise_scale, max_contribution=most, replace_factor=1.0)
