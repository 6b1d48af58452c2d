"""Reach over parties of which none sees a sketch but its own.

Each party writes, for every register, 0 or a fresh random residue if the register is marked. The
sum over parties is 0 where nobody marked it and uniform where anybody did: it tells the union and
no more. Parties send their residues in two random halves to two workers, so neither sees any.
Registers stand in an order that only parties know, and each party hides its share of discrete
Laplace noise in extra registers of its own: what the workers see together is a random order of
(marks of the union + noise + a public number) residues.

Trust: the two workers collude neither with each other nor with a party, and at least
`min_honest_parties` parties add their noise and do not tell it. A party can falsify the result.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from tulle.data.keyed_hash import hash_columns
from tulle.errors import ConfigError, DataError
from tulle.lab.sketches.liquid_legions import (
    LiquidLegions,
    LiquidLegionsConfig,
    key_mark,
    reach_from_marks,
)
from tulle.measure.expected_error import SharedNoise
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.mechanisms.polya import NoiseShareConfig, sample_noise_shares
from tulle.privacy.events import Composed, DiscreteLaplace, EpsilonDelta
from tulle.privacy.fields import check_count, check_epsilon, check_prob, check_text
from tulle.privacy.guarantee import Release
from tulle.privacy.units import TrustModel

IntArray = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateUnionConfig:
    """Settings that all parties and workers agree on. Every field is public information."""

    epsilon: float
    delta: float
    """Probability that noise does not fit into its registers."""
    num_parties: int
    min_honest_parties: int
    """The noise of this many parties alone suffices."""
    sketch: LiquidLegionsConfig

    trust_model = TrustModel.SHUFFLE

    def __post_init__(self) -> None:
        check_count("num_parties", self.num_parties)
        check_count("min_honest_parties", self.min_honest_parties)
        if self.min_honest_parties > self.num_parties:
            raise ConfigError(
                f"min_honest_parties={self.min_honest_parties} must be at most "
                f"num_parties={self.num_parties}."
            )
        check_epsilon(self.epsilon)
        check_prob("delta", self.delta, example=1e-12)
        _ = self.noise_share

    @property
    def noise_scale(self) -> float:
        """Scale of the discrete Laplace noise of the honest parties, rounded up."""
        return math.nextafter(1 / self.epsilon, math.inf)

    @property
    def noise_share(self) -> NoiseShareConfig:
        """The noise that each party adds."""
        return NoiseShareConfig(scale=self.noise_scale, num_shares=self.min_honest_parties)

    @property
    def noise_offset(self) -> int:
        """Marked extra registers of a party before noise, and the most that noise takes away.

        A share exceeds b with a probability of at most 2 e^(-(b + 1) / scale): it is the difference
        of two parts of geometric numbers.
        """
        # As in split-and-mix, a distance t from the ideal costs a delta of (1 + e^epsilon) t.
        log_chance = math.log(2 * self.num_parties / self.delta)
        log_chance += self.epsilon + math.log1p(math.exp(-self.epsilon))
        return math.ceil(self.noise_scale * log_chance)

    @property
    def num_residues(self) -> int:
        """Registers and extra registers of all parties."""
        return self.sketch.num_registers + 2 * self.noise_offset * self.num_parties

    @property
    def total_noise(self) -> SharedNoise:
        """The noise if all parties are honest."""
        return SharedNoise(scale=self.noise_scale, shape=self.num_parties / self.min_honest_parties)

    def event(self) -> Composed:
        """What one reach costs."""
        noise = DiscreteLaplace(scale=self.noise_scale, max_contribution=1, replace_factor=1.0)
        return Composed((noise, EpsilonDelta(epsilon=0.0, delta=self.delta)))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ResidueHalves:
    """What one party sends, one half to each worker. A half alone is uniform noise."""

    first: Words = dataclasses.field(repr=False)
    second: Words = dataclasses.field(repr=False)


def encode_party(
    sketch: LiquidLegions,
    config: PrivateUnionConfig,
    *,
    party: int,
    key: bytes,
    release_name: str,
    rng: NoiseSource,
) -> ResidueHalves:
    """What a party sends about its users. Runs at the party.

    Args:
      sketch: Sketch of the party's own users.
      config: Public settings, the same for all.
      party: Number of the party, from 0 on; tells its extra registers from those of others.
      key: The secret of all parties that the sketches were made with.
      release_name: Never used before; the order of registers follows from it and the key.
      rng: Source of noise and residues. Sensitive: never log or save its state.

    Privacy:
      Unit: user, add-remove or replace, over all parties' rows. L1 sensitivity of the number
      of marks of the union: 1. Event: `config.event()`, for what both workers see together.
      Relies on: `min_honest_parties` honest parties and two workers who do not collude.
    """
    if sketch.config != config.sketch or sketch.key_mark != key_mark(key):
        raise ConfigError("the sketch has another shape or key than the parties agreed on.")
    if not 0 <= party < config.num_parties:
        raise ConfigError(f"party={party} must be from 0 to num_parties - 1.")
    is_marked = np.zeros(config.num_residues, np.bool_)
    is_marked[: config.sketch.num_registers] = sketch.raw_marks
    share = int(sample_noise_shares(config.noise_share, 1, rng=rng)[0])
    num_extra = min(max(config.noise_offset + share, 0), 2 * config.noise_offset)
    start = config.sketch.num_registers + 2 * config.noise_offset * party
    is_marked[start : start + num_extra] = True
    residues = np.where(is_marked, rng.words(config.num_residues), np.uint64(0))
    first = rng.words(config.num_residues)
    order = _secret_order(config.num_residues, key, release_name)
    # Differences wrap at 2^64, the modulus.
    return ResidueHalves(first=first, second=residues[order] - first)


def add_halves(halves: list[Words], config: PrivateUnionConfig) -> Words:
    """The sum of what one worker got from all parties; he gives it to the other one."""
    if len(halves) != config.num_parties:
        raise DataError(
            f"{len(halves)} parties sent their half, num_parties={config.num_parties}; "
            "without all of them the sum is meaningless. Ask again."
        )
    total = np.zeros(config.num_residues, np.uint64)
    for half in halves:
        if half.shape != total.shape:
            raise DataError(f"a half has shape {half.shape}, not {total.shape}; ask again.")
        total += half
    return total


def reach_of_union(
    first_total: Words,
    second_total: Words,
    config: PrivateUnionConfig,
    *,
    confidence: float = 0.95,
) -> Release:
    """Reach over all parties, from the sums of both workers.

    A marked register, extra or not, is taken for an empty one with a probability of 2^-64: that
    thins out the noisy number and costs no privacy.

    Args:
      first_total: Sum of the halves of the first worker.
      second_total: Sum of the halves of the second worker.
      config: What all agreed on.
      confidence: Probability with which the interval holds the reach.
    """
    noisy_marks = int(np.count_nonzero(first_total + second_total))
    noisy_marks -= config.noise_offset * config.num_parties
    return reach_from_marks(
        noisy_marks, config.sketch, config.total_noise, config.event(), confidence=confidence
    )


def _secret_order(num_residues: int, key: bytes, release_name: str) -> IntArray:
    check_text("release_name", release_name)
    words = hash_columns(key, f"reach order {release_name}", np.arange(num_residues))
    return np.argsort(words, kind="stable")
