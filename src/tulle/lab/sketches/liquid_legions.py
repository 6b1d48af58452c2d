"""Liquid Legions: a sketch of a set of users that merges over parties, and its reach with noise.

A keyed hash sends each user to one of m registers, low ones exponentially more often, and marks
it. Marks of a union are the union of marks, so users seen by several parties count once. The number
of marked registers tells how many users there are: at decay a and t users a register the mean is
m (1 - (E1(x) - E1(x e^a)) / a) with x = a t / (e^a - 1) (Wang et al., "Liquid Legions").

One user marks at most one register that was empty before, so the number of marks moves by 0 or 1.
The estimate does not: in a full sketch one more mark stands for thousands of users. Noise therefore
goes on the marks, and only the noisy number is turned into an estimate.

A sketch is as sensitive as the set: who knows the key can test whether a user is in it.
"""

import dataclasses
import hashlib
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tulle.data.keyed_hash import LEAST_KEY_BYTES, hash_columns
from tulle.errors import ConfigError, DataError
from tulle.measure.expected_error import SharedNoise, half_width_beside_normal
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.privacy.events import Event
from tulle.privacy.fields import check_count, check_epsilon, check_finite
from tulle.privacy.guarantee import Interval, Release

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
UserIds = Sequence[str] | npt.NDArray[np.generic]
_MOST_REGISTERS = 1 << 28
"""A quarter of a gigabyte of marks."""
_FULL = 0.5
"""Registers that must be expected to be empty for an estimate to mean anything."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LiquidLegionsConfig:
    """Shape of a sketch. All parties use the same. Every field is public information."""

    num_registers: int = 100_000
    decay: float = 12.0
    """How much less often the last register is hit than the first: e^decay times."""

    def __post_init__(self) -> None:
        check_count("num_registers", self.num_registers)
        if self.num_registers > _MOST_REGISTERS:
            raise ConfigError(
                f"num_registers={self.num_registers} must be at most {_MOST_REGISTERS}."
            )
        if not 0 < check_finite("decay", self.decay) <= 50:
            raise ConfigError(f"decay={self.decay} must be > 0 and at most 50, e.g. 12.")

    def registers_of(self, uniforms: FloatArray) -> IntArray:
        """The register of each number in [0, 1): floor(m (1 - ln(e^a + u (1 - e^a)) / a))."""
        positions = -np.log1p(uniforms * math.expm1(-self.decay)) / self.decay
        registers = np.floor(self.num_registers * positions).astype(np.int64)
        return np.minimum(registers, self.num_registers - 1)

    @property
    def hit_probs(self) -> FloatArray:
        """The probability of each register to be that of a user."""
        edges = np.arange(self.num_registers + 1) / self.num_registers
        return np.diff(np.expm1(-self.decay * edges) / math.expm1(-self.decay))

    @property
    def max_reach(self) -> float:
        """The most users that can be told from more: then all registers are marked."""
        return self.reach_of(float(self.num_registers))

    def expected_marks(self, reach: float) -> float:
        """Registers that this many users are expected to mark."""
        return self.num_registers - self._expected_empty(reach)

    def marks_stddev(self, reach: float) -> float:
        """Standard deviation of the number of marks that this many users make.

        Of independent registers, less what a fixed number of users takes from it.
        """
        if reach <= 0:
            return 0.0
        independent = self._expected_empty(reach) - self._expected_empty(2 * reach)
        return math.sqrt(max(independent - reach * self.marks_per_user(reach) ** 2, 0.0))

    def marks_per_user(self, reach: float) -> float:
        """How many more marks one more user makes, on average: the slope of expected_marks."""
        if reach <= 0:
            return 1.0
        low, high = self._rates(reach)
        return self.num_registers / (self.decay * reach) * (math.exp(-low) - math.exp(-high))

    def reach_of(self, num_marks: float) -> float:
        """The number of users for which this many marks are expected, by bisection."""
        num_marks = min(num_marks, self.num_registers - _FULL)
        if num_marks <= 0:
            return 0.0
        low, high = 0.0, 1.0
        while self.expected_marks(high) < num_marks:
            low, high = high, 2 * high
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self.expected_marks(middle) < num_marks else (low, middle)
        return high

    def _rates(self, reach: float) -> tuple[float, float]:
        """Users expected in the last register and in the first."""
        low = self.decay * reach / self.num_registers / math.expm1(self.decay)
        return low, low * math.exp(self.decay)

    def _expected_empty(self, reach: float) -> float:
        from scipy.special import exp1

        if reach <= 0:
            return float(self.num_registers)
        low, high = self._rates(reach)
        return self.num_registers * float(exp1(low) - exp1(high)) / self.decay


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LiquidLegions:
    """Marks of a set of users. Sensitive: nothing of it may get out without noise."""

    config: LiquidLegionsConfig
    key_mark: str
    """Mark that tells sketches of different keys apart."""
    raw_marks: Marks = dataclasses.field(repr=False)

    @classmethod
    def of_users(
        cls, user_ids: UserIds, config: LiquidLegionsConfig, *, key: bytes
    ) -> "LiquidLegions":
        """The sketch of these users, each once or more often.

        Args:
          user_ids: Text or whole numbers; all parties must write an id the same way.
          config: Shape of the sketch.
          key: Secret that the parties share and whoever gets a sketch does not have.

        Privacy:
          Nothing is released. A user marks one register, whatever rows he has.
        """
        marks = np.zeros(config.num_registers, np.bool_)
        marks[config.registers_of(hash_users(user_ids, key, "register").uniforms)] = True
        return cls(config=config, key_mark=key_mark(key), raw_marks=marks)

    def __reduce__(self) -> tuple[object, ...]:
        raise DataError(
            "a sketch tells who is in the set; release its reach with noise, or send it to a "
            "party you trust by its raw_marks."
        )

    @property
    def raw_num_marks(self) -> int:
        """How many registers are marked. Sensitive."""
        return int(self.raw_marks.sum())


def merge_sketches(sketches: list[LiquidLegions]) -> LiquidLegions:
    """The sketch of the union: equal to that of all users at once.

    Privacy:
      Nothing is released. Runs where all sketches may be seen: the central model.
    """
    if not sketches:
        raise ConfigError("sketches=[] has nothing to merge; give at least one.")
    first = sketches[0]
    check_mergeable([(sketch.config, sketch.key_mark) for sketch in sketches])
    marks = np.logical_or.reduce([sketch.raw_marks for sketch in sketches])
    return dataclasses.replace(first, raw_marks=marks)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SketchReachConfig:
    """Noise on the number of marks. Every field is public information."""

    epsilon: float
    """Epsilon of one release, under add-remove and replace alike."""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        self.event()

    @property
    def noise(self) -> DiscreteLaplaceConfig:
        """The noise. A replaced user unmarks one register at most and marks one at most."""
        return DiscreteLaplaceConfig(scale=1 / self.epsilon * (1 + 2.0**-50), replace_factor=1.0)

    def event(self) -> Event:
        """What one release costs."""
        return self.noise.event()


def release_sketch_reach(
    sketch: LiquidLegions,
    config: SketchReachConfig,
    *,
    rng: NoiseSource,
    confidence: float = 0.95,
) -> Release:
    """Reach of a sketch, alone or merged, by a trusted party that sees it.

    The interval covers what noise and hashing together can do, and the noise is of both.

    Args:
      sketch: The sketch, alone or merged.
      config: Noise on the number of marks.
      rng: Source of the noise. Sensitive: never log or save its state.
      confidence: Probability with which the interval holds the reach.

    Privacy:
      Unit: user, add-remove or replace. L1 sensitivity of the number of marks: 1.
      Event: `config.event()`. Relies on: the sketch was made by `of_users` and merged here;
      its key is not chosen after looking at the users.
    """
    noisy_marks = int(release_discrete_laplace(sketch.raw_num_marks, config.noise, rng=rng))
    return reach_from_marks(
        noisy_marks,
        sketch.config,
        SharedNoise(scale=config.noise.scale),
        config.event(),
        confidence=confidence,
    )


def reach_from_marks(
    noisy_marks: float,
    shape: LiquidLegionsConfig,
    noise: SharedNoise,
    event: Event,
    *,
    confidence: float,
) -> Release:
    """The estimate and interval that belong to a noisy number of marks. Post-processing.

    Args:
      noisy_marks: The noisy number of marks.
      shape: Shape of the sketch.
      noise: The noise on the marks.
      event: What the release costs.
      confidence: Probability with which the interval holds the reach.
    """
    value = shape.reach_of(noisy_marks)
    marks_stddev = shape.marks_stddev(value)
    half_width = half_width_beside_normal(noise, marks_stddev, confidence=confidence)
    slope = shape.marks_per_user(max(value, 1.0))
    return Release(
        value=value,
        noise_stddev=math.hypot(noise.noise_stddev, marks_stddev) / slope,
        interval=Interval(
            low=shape.reach_of(noisy_marks - half_width),
            high=shape.reach_of(noisy_marks + half_width),
            confidence=confidence,
        ),
        event=event,
    )


def check_mergeable(shapes: list[tuple[LiquidLegionsConfig, str]]) -> None:
    """Refuses sketches of different shapes or keys: their registers mean different things."""
    for config, mark in shapes:
        if config != shapes[0][0]:
            raise ConfigError(f"a sketch has {config}, another {shapes[0][0]}; use one config.")
        if mark != shapes[0][1]:
            raise ConfigError("sketches were made with different keys; all parties share one.")


def key_mark(key: bytes) -> str:
    """A short digest of a key, to compare and never to guess it from."""
    check_key(key)
    return hashlib.blake2b(b"tulle sketch key " + key, digest_size=8).hexdigest()


@dataclasses.dataclass(frozen=True, eq=False)
class UserHashes:
    """One 64-bit word for each id. Sensitive."""

    words: Words = dataclasses.field(repr=False)

    @property
    def uniforms(self) -> npt.NDArray[np.float64]:
        """The words as numbers in [0, 1)."""
        return (self.words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def hash_users(user_ids: UserIds, key: bytes, purpose: str) -> UserHashes:
    """Hashes ids for one purpose; other purposes get unrelated words.

    Whole numbers are hashed in columns, text one by one. 7 and "7" are different users.

    Args:
      user_ids: One id for each row.
      key: Secret of the parties.
      purpose: What the words are for.
    """
    check_key(key)
    ids = np.asarray(user_ids)
    if ids.ndim != 1:
        raise DataError(f"user_ids has {ids.ndim} dimensions; give one id for each user.")
    if ids.size == 0:
        return UserHashes(np.zeros(0, np.uint64))
    if ids.dtype.kind in "iu":
        return UserHashes(hash_columns(key, f"reach {purpose}", ids.astype(np.int64)))
    if not all(isinstance(user_id, str) for user_id in user_ids):
        raise DataError("user_ids must be text or whole numbers without nulls; drop such rows.")
    inner = hashlib.blake2b(purpose.encode(), key=hashlib.blake2b(key).digest()).digest()
    digests = b"".join(
        hashlib.blake2b(str(user_id).encode(), key=inner, digest_size=8).digest()
        for user_id in user_ids
    )
    return UserHashes(np.frombuffer(digests, "<u8").astype(np.uint64))


def check_key(key: object) -> None:
    """Refuses keys that could be guessed."""
    if not isinstance(key, bytes) or len(key) < LEAST_KEY_BYTES:
        raise ConfigError(
            f"key must have at least {LEAST_KEY_BYTES} bytes; "
            "make one with secrets.token_bytes(16) and share it among the parties."
        )
