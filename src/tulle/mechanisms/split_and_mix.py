"""Split-and-mix: a noisy sum of values that nobody sees.

Each user adds a share of the noise, splits the result into random messages
that add up to it modulo a public number, and a shuffler mixes the messages of
all users. Mixed messages tell next to nothing but their sum (Ishai,
Kushilevitz, Ostrovsky, Sahai 2006), and the sum has the noise of a trusted
curator: discrete Laplace.

Trust: the shuffler does not link messages to users, and at least
`min_honest_users` users follow the protocol and do not tell what they sent.
The sum itself is not robust: one user can change it at will.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource, Words, release_rng
from tulle.mechanisms.noisy_reports import check_held_values
from tulle.mechanisms.polya import MAX_SCALE, MIN_SCALE, NoiseShareConfig, sample_noise_shares
from tulle.privacy.events import Composed, DiscreteLaplace, EpsilonDelta
from tulle.privacy.fields import check_epsilon
from tulle.privacy.units import TrustModel

MIN_HONEST_USERS = 19
"""Fewest honest users for which the bound on the number of messages is proven (Balle, Bell, Gascón,
Nissim 2020); see `messages_needed`."""

_MAX_MODULUS_BITS = 63
"""Bits of the largest modulus: sums of messages wrap at 2^64, a multiple of it."""
_MIN_MESSAGES = 4
"""Fewest messages of a user, whatever the bound asks for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitAndMixConfig:
    """Settings of a split-and-mix sum. Every field is public information."""

    epsilon: float
    """Epsilon of the noisy sum, under replace and zero-out alike."""
    max_value: int
    """Largest value of a user; the smallest is 0."""
    num_users: int
    """How many users send messages."""
    min_honest_users: int
    """How many of them must be honest; their noise alone suffices."""
    security_delta: float
    """What the messages may tell beyond their sum, as a delta."""
    max_wrap_prob: float = 2.0**-40
    """Largest probability that the noise makes the sum wrap around and lose its meaning."""

    trust_model = TrustModel.SHUFFLE

    def __post_init__(self) -> None:
        self._check_users()
        self.event()
        for name in ("security_delta", "max_wrap_prob"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(
                    f"{name}={getattr(self, name)} must be in (0, 1); choose e.g. 1e-10."
                )
        if self.modulus > 2**_MAX_MODULUS_BITS:
            raise ConfigError(
                f"num_users={self.num_users} with max_value={self.max_value} needs a modulus "
                f"above 2^{_MAX_MODULUS_BITS}; count in larger steps."
            )

    def event(self) -> Composed:
        """What one sum costs.

        Messages within distance t of a function of the noisy sum cost
        (0, (1 + e^epsilon) t) on top of it, for every epsilon' and in every
        composition: a purely epsilon-private sum has
        1 - delta(epsilon') >= (1 + e^epsilon') / (1 + e^epsilon).
        """
        noise = DiscreteLaplace(
            scale=self.noise_scale, max_contribution=self.max_value, replace_factor=1.0
        )
        return Composed((noise, EpsilonDelta(epsilon=0.0, delta=self.security_delta)))

    @property
    def noise_scale(self) -> float:
        """Scale of the discrete Laplace noise of the honest users, rounded up."""
        return math.nextafter(self.max_value / self.epsilon, math.inf)

    @property
    def noise_share(self) -> NoiseShareConfig:
        """The noise that each user adds."""
        return NoiseShareConfig(scale=self.noise_scale, num_shares=self.min_honest_users)

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the sum's noise if all users are honest."""
        return math.sqrt(self.num_users * self.noise_share.variance)

    @property
    def modulus(self) -> int:
        """The public number that sums are taken modulo, a power of two."""
        # Markov's inequality for exp(X / (2 scale)) of each Pólya sum X of shape r:
        # P(X >= t) <= (1 + sqrt(p))^r exp(-t / (2 scale)), and 1 + sqrt(p) <= 2.
        shape = self.num_users / self.min_honest_users
        exponent = shape * math.log(2) + math.log(2 / self.max_wrap_prob)
        noise_range = math.ceil(2 * self.noise_scale * exponent * (1 + 1e-9)) + 1
        return 1 << (self.num_users * self.max_value + 2 * noise_range).bit_length()

    @property
    def security_bits(self) -> float:
        """The messages of two data sets with equal sums are within 2^-this of each other."""
        log_factor = self.epsilon + math.log1p(math.exp(-self.epsilon))
        return (log_factor - math.log(self.security_delta)) / math.log(2)

    @property
    def messages_per_user(self) -> int:
        """How many messages each user sends."""
        return messages_needed(
            self.security_bits, num_users=self.min_honest_users, modulus=self.modulus
        )

    def _check_users(self) -> None:
        for name in ("max_value", "num_users", "min_honest_users"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**40:
                raise ConfigError(f"{name}={value!r} must be a whole number from 1 to 2^40.")
        if not MIN_HONEST_USERS <= self.min_honest_users <= self.num_users:
            raise ConfigError(
                f"min_honest_users={self.min_honest_users} must be from {MIN_HONEST_USERS} to "
                f"num_users={self.num_users}; with fewer users mixing hides too little: "
                "use randomized response."
            )
        check_epsilon(self.epsilon)
        if not MIN_SCALE <= self.noise_scale <= MAX_SCALE:
            raise ConfigError(
                f"max_value={self.max_value} / epsilon={self.epsilon} must be in "
                f"[{MIN_SCALE}, {MAX_SCALE:g}]; above it count in larger steps, "
                "below it lower epsilon."
            )


def messages_needed(security_bits: float, *, num_users: int, modulus: int) -> int:
    """Messages a user that hide all but the sum, up to a distance of 2^-security_bits.

    At least 2 + (2 sigma + log2 q) / (log2 n - log2 e) for security sigma
    against every input, n >= 19 (Balle, Bell, Gascón, Nissim 2020, "Private
    Summation in the Multi-Message Shuffle Model"): one message more than
    for random inputs.

    Args:
      security_bits: Security sigma.
      num_users: Honest users, n.
      modulus: The public number that sums are taken modulo, q.
    """
    bits_per_message = math.log2(num_users) - math.log2(math.e)
    needed = (2 * security_bits + math.log2(modulus)) / bits_per_message
    # The factor is room for the rounding of the logarithms: never a message too few.
    return max(_MIN_MESSAGES, 2 + math.ceil(needed * (1 + 1e-12)))


def encode_values(
    raw_values: ArrayLike, config: SplitAndMixConfig, *, rng: NoiseSource | None = None
) -> Words:
    """The messages of each user, one row a user. Runs on the users' devices.

    Args:
      raw_values: One whole number from 0 to max_value for each user.
      config: Public settings, the same for all users.
      rng: Source of noise and messages. Sensitive: never log or save its state.

    Privacy:
      Unit: one entry, replace or zero-out. L1 sensitivity: max_value.
      Event: discrete Laplace plus (0, security_delta), once the messages of all
      users were mixed. A row on its own reveals the noisy value of its user.
      Relies on: one entry a user, `min_honest_users` honest users, a shuffler.
    """
    rng = rng or release_rng()
    values = check_held_values(raw_values, config.max_value + 1).reshape(-1)
    noisy = (values + sample_noise_shares(config.noise_share, values.size, rng=rng)).view(np.uint64)
    num_random = config.messages_per_user - 1
    last_residue = np.uint64(config.modulus - 1)
    messages = np.empty((values.size, num_random + 1), np.uint64)
    for column in range(num_random if values.size else 0):
        messages[:, column] = rng.words(values.size) & last_residue
    # Sums wrap at 2^64, a multiple of the modulus.
    messages[:, -1] = (noisy - messages[:, :-1].sum(axis=1, dtype=np.uint64)) & last_residue
    return messages


def shuffle_messages(messages: Words) -> Words:
    """All messages in an order that depends on their multiset alone.

    Sorting hides who sent what as well as a random order does.

    Privacy:
      Runs at the shuffler, which must forget the senders and the first order.
    """
    return np.sort(messages, axis=None)


def decode_sum(shuffled_messages: Words, config: SplitAndMixConfig) -> int:
    """The noisy sum of all users' values. May be negative."""
    num_expected = config.num_users * config.messages_per_user
    if shuffled_messages.size != num_expected:
        raise DataError(
            f"{shuffled_messages.size} messages came, num_users={config.num_users} send "
            f"{num_expected}; a sum with missing messages is meaningless. Ask again."
        )
    total = int(shuffled_messages.sum(dtype=np.uint64)) % config.modulus
    margin = (config.modulus - config.num_users * config.max_value) // 2
    return (total + margin) % config.modulus - margin
