"""Differencing: two large slices that differ in one user, each published, give the user away.

A threshold hides slices of fewer than k users. It does not hide the difference of two slices
above it. Noise that is counted does: it makes both answers uncertain by more than one user.

Users are synthetic. They have columns that others know too, and one bit that nobody should. Bits
are fair coins that depend on nothing: whoever guesses better than half of them learned it from the
release about the user, not from what users have in common.
"""

import dataclasses
import itertools
import math

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, DataError
from tulle.lab.attacks.bounds import NOT_PRIVATE, guess_ceiling
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.fields import check_count
from tulle.privacy.units import Adjacency

IntArray = NDArray[np.int64]
_SLICES_ASKED = 2
"""Number of counts that an attack asks for; they share the epsilon."""

_NUM_VALUES = {"area": 400, "age band": 10, "device": 200, "day": 90}
"""72 million combinations for 50,000 users: slices that differ in one user are easily found."""

COLUMN_NAMES = tuple(_NUM_VALUES)

_SKEW = 0.7
"""A value of rank r has a share proportional to r^-skew: some are common, many are rare."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SyntheticUsers:
    """One row a user."""

    columns: dict[str, IntArray]
    """Columns that others know: where people live, their age, what they use, when they came."""
    bits: IntArray
    """Private bit of each user, 0 or 1: whether they bought."""

    def __len__(self) -> int:
        return self.bits.size

    def cells(self, names: tuple[str, ...]) -> IntArray:
        """A number for each user, the same for users who are alike in these columns."""
        codes = np.zeros(len(self), dtype=np.int64)
        for name in names:
            codes = codes * _NUM_VALUES[name] + self.columns[name]
        return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def draw_users(num_users: int, *, seed: int) -> SyntheticUsers:
    """Independent users, the same for the same seed."""
    check_count("num_users", num_users)
    rng = np.random.default_rng(seed)
    columns = {}
    for name, num_values in _NUM_VALUES.items():
        shares = np.arange(1, num_values + 1) ** -_SKEW
        columns[name] = rng.choice(num_values, size=num_users, p=shares / shares.sum())
    return SyntheticUsers(columns=columns, bits=rng.integers(0, 2, size=num_users))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DifferencingConfig:
    """Settings of the attack. Every field is public information."""

    num_users: int = 50_000
    thresholds: tuple[int, ...] = (10, 20, 50, 100, 200, 500, 1000, 2000)
    """Slices of fewer users are not published."""
    epsilons: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 3.0, 5.0)
    """Epsilon of both noisy counts together."""
    seed: int = 1

    def __post_init__(self) -> None:
        check_count("num_users", self.num_users)
        for threshold in self.thresholds:
            check_count("thresholds", threshold)
        if not self.thresholds or not self.epsilons:
            raise ConfigError("thresholds and epsilons need at least one value each.")
        if not all(0 < epsilon < math.inf for epsilon in self.epsilons):
            raise ConfigError(f"epsilons={self.epsilons} must be > 0 and finite, e.g. (1.0,).")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThresholdRow:
    """Exact counts of slices of at least so many users."""

    threshold: int
    num_exposed: int
    """Users whose bit is the difference of two published counts."""
    share_exposed: float
    """Share of all users."""
    share_right: float
    """Share of their bits that the difference says; 1 unless none is exposed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyRow:
    """The same two counts with noise."""

    epsilon: float
    share_right: float
    """Share of bits guessed right, of the users that the smallest threshold exposes."""
    expected_share_right: float
    """The exact expectation of that share."""
    ceiling: float
    """What no attacker exceeds in expectation at this epsilon."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DifferencingResult:
    """Thresholds beside noise."""

    config: DifferencingConfig
    by_threshold: tuple[ThresholdRow, ...]
    by_epsilon: tuple[NoisyRow, ...]
    num_targets: int
    """Users that were attacked through the noise."""

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {"attack": "differencing", "privacy": NOT_PRIVATE} | dataclasses.asdict(self)

    def lines(self) -> list[str]:
        """What was found, in lines to print."""
        lines = ["differencing: two slices that differ in one user"]
        lines += [
            f"  k = {row.threshold:<6,}  {row.share_exposed:6.1%} of users are given away for "
            "certain"
            for row in self.by_threshold
        ]
        lines += [
            f"  epsilon {row.epsilon:<4g}  {row.share_right:6.1%} right; any attacker at most "
            f"{row.ceiling:.1%}"
            for row in self.by_epsilon
        ]
        return lines


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SlicePairs:
    """The largest slice of each user in which one value of another column is theirs alone.

    The first slice is, e.g., an area; the second the same area without one device.
    """

    smaller_sizes: IntArray
    """Users in the second slice; -1 where there is no such pair."""
    raw_counts: IntArray
    """[users, 2]: bits that are 1 in the first slice and in the second."""


def attack_by_differencing(config: DifferencingConfig | None = None) -> DifferencingResult:
    """Looks for pairs of slices around every user, and subtracts.

    Privacy:
      For synthetic users, with seeded noise: the result is exact and not private.
    """
    config = config or DifferencingConfig()
    users = draw_users(config.num_users, seed=config.seed)
    pairs = find_slice_pairs(users)
    targets = np.flatnonzero(pairs.smaller_sizes >= min(config.thresholds))
    if not targets.size:
        raise DataError(
            f"thresholds={config.thresholds} expose none of num_users={config.num_users}; "
            "lower one of them or draw more users."
        )
    return DifferencingResult(
        config=config,
        by_threshold=tuple(_threshold_row(users, pairs, k) for k in config.thresholds),
        by_epsilon=tuple(
            _noisy_row(users.bits[targets], pairs.raw_counts[targets], epsilon, seed)
            for seed, epsilon in enumerate(config.epsilons, start=config.seed)
        ),
        num_targets=targets.size,
    )


def find_slice_pairs(users: SyntheticUsers) -> SlicePairs:
    """The pairs that an attacker asks for; they follow from columns that others know too.

    Privacy:
      For synthetic users: raw counts are exact and not private.
    """
    best_sizes = np.full(len(users), -1, dtype=np.int64)
    raw_counts = np.zeros((len(users), _SLICES_ASKED), dtype=np.int64)
    for outer, inner in itertools.permutations(COLUMN_NAMES, 2):
        slices, cells = users.cells((outer,)), users.cells((outer, inner))
        sizes = np.bincount(slices)[slices]
        is_better = (np.bincount(cells)[cells] == 1) & (sizes - 1 > best_sizes)
        whole = np.bincount(slices, weights=users.bits)[slices]
        rest = whole - np.bincount(cells, weights=users.bits)[cells]
        best_sizes[is_better] = sizes[is_better] - 1
        raw_counts[is_better] = np.stack([whole, rest], axis=1)[is_better].astype(np.int64)
    return SlicePairs(smaller_sizes=best_sizes, raw_counts=raw_counts)


def pair_noise(epsilon: float) -> DiscreteLaplaceConfig:
    """Noise on both counts with which the two together cost `epsilon`.

    Of the user whose bit is replaced no more is known than that each count moves by at most 1.
    """
    return DiscreteLaplaceConfig.for_epsilon(
        epsilon,
        adjacency=Adjacency.REPLACE,
        max_contribution=_SLICES_ASKED,
        replace_factor=1.0,
    )


def expected_share_right(noise: DiscreteLaplaceConfig) -> float:
    """Probability that the difference of two noisy counts says the bit, rounded to the nearer.

    It fails only if the noise moves the difference to the wrong side: the probability is
    (1 + P(both noises are equal)) / 2.
    """
    rate = 1 / noise.scale
    return (1 + math.tanh(rate / 2) ** 2 / math.tanh(rate)) / 2


def _threshold_row(users: SyntheticUsers, pairs: SlicePairs, threshold: int) -> ThresholdRow:
    is_exposed = pairs.smaller_sizes >= threshold
    guesses = pairs.raw_counts[is_exposed, 0] - pairs.raw_counts[is_exposed, 1]
    num_right = int(np.sum(guesses == users.bits[is_exposed]))
    num_exposed = int(np.sum(is_exposed))
    return ThresholdRow(
        threshold=threshold,
        num_exposed=num_exposed,
        share_exposed=num_exposed / len(users),
        share_right=num_right / num_exposed if num_exposed else 0.0,
    )


def _noisy_row(bits: IntArray, raw_counts: IntArray, epsilon: float, seed: int) -> NoisyRow:
    """Every user is the target of an attack of its own, with fresh noise."""
    noise = pair_noise(epsilon)
    noisy_counts = release_discrete_laplace(raw_counts, noise, rng=SeededNoise(seed))
    guesses = noisy_counts[:, 0] - noisy_counts[:, 1] >= 1
    return NoisyRow(
        epsilon=epsilon,
        share_right=float(np.mean(guesses == bits)),
        expected_share_right=expected_share_right(noise),
        ceiling=guess_ceiling(epsilon),
    )
