"""How much one source may tell, in bits, and the largest epsilon within a limit.

The capacity of randomized response over k states, which the browser limits for each
kind of source: log2 k - h(f) - f log2(k - 1) with f the chance of another state.
"""

import enum
import math

from tulle.errors import ConfigError
from tulle.mechanisms.source_noise import MOST_EPSILON, flip_prob
from tulle.privacy.fields import check_count, check_finite


class SourceKind(enum.Enum):
    """What a source is: it sets how much it may tell."""

    NAVIGATION = "navigation"
    """A click."""
    EVENT = "event"
    """A view."""

    @property
    def most_bits(self) -> float:
        """Limit of the information gain."""
        return 11.5 if self is SourceKind.NAVIGATION else 6.5

    @property
    def most_scoped_bits(self) -> float:
        """Limit of `scopes_gain`, for sources with attribution scopes."""
        return 11.55 if self is SourceKind.NAVIGATION else 6.5


def information_gain(num_states: int, epsilon: float) -> float:
    """Bits that the reports of one source tell about its true state, at most."""
    check_count("num_states", num_states)
    if num_states == 1:
        return 0.0
    other = flip_prob(num_states, epsilon) * (num_states - 1) / num_states
    entropy = -other * math.log2(other) - (1 - other) * math.log1p(-other) / math.log(2)
    return math.log2(num_states) - entropy - other * math.log2(num_states - 1)


def scopes_gain(num_states: int, *, max_event_states: int, scope_limit: int) -> float:
    """Bits of a source with attribution scopes, before noise."""
    check_count("num_states", num_states)
    check_count("max_event_states", max_event_states)
    check_count("scope_limit", scope_limit)
    return math.log2(num_states + max_event_states * (scope_limit - 1))


def epsilon_for_gain(num_states: int, most_bits: float) -> float:
    """The largest epsilon, up to the browser's own limit, whose gain is within `most_bits`."""
    if not check_finite("most_bits", most_bits) > 0:
        raise ConfigError(f"most_bits={most_bits} must be > 0, e.g. 11.5.")
    if information_gain(num_states, MOST_EPSILON) <= most_bits:
        return MOST_EPSILON
    low, high = 0.0, MOST_EPSILON
    while low < (middle := (low + high) / 2) < high:
        if information_gain(num_states, middle) <= most_bits:
            low = middle
        else:
            high = middle
    return low


def check_gain(num_states: int, epsilon: float, kind: SourceKind) -> float:
    """The gain of a source, if a browser would accept it.

    Raises:
      ConfigError: It is above the limit of its kind; says the epsilon that fits.
    """
    gain = information_gain(num_states, epsilon)
    if gain > kind.most_bits:
        fitting = epsilon_for_gain(num_states, kind.most_bits)
        raise ConfigError(
            f"{num_states} states at epsilon={epsilon} tell {gain:.4g} bits, and {kind.value} "
            f"sources may tell {kind.most_bits}; use epsilon <= {fitting:.6g} or fewer states."
        )
    return gain
