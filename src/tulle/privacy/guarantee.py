"""A claim of differential privacy that names whom it protects, and how well.

(epsilon, delta) alone is not a guarantee: it also needs the unit, the
adjacency and the columns it speaks about. Two guarantees compare only where
one implies the other. On paper its numbers are rounded to the side on which
what is said of them stays true.

A claim is a guarantee together with the event that must give it. What an event
costs cannot be computed here; tulle.accounting compares both and refuses a
claim that is stronger than its event.

A release is a noisy number with its noise, its interval and its cost.
"""

import dataclasses
import decimal
import math

from tulle.errors import ConfigError
from tulle.privacy.events import Event, NonPrivate, contains, event_from_dict, event_to_dict
from tulle.privacy.fields import (
    check_choice,
    check_fields,
    check_finite,
    check_prob,
    check_text,
    infinite_if_null,
    null_if_infinite,
)
from tulle.privacy.units import Adjacency, Scope, Unit

BINARY_NOISE = 1e-12
"""Relative slack of numbers on paper, with which 0.1 + 0.2 is 0.3 and not just above it."""


_GUARANTEE_FIELDS = ("epsilon", "delta", "unit", "adjacency", "scope")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guarantee:
    """(epsilon, delta)-differential privacy for one unit under one adjacency.

    The order is "at least as strong as": `a <= b` says that whatever satisfies
    a satisfies b too. It is partial: neither need hold.
    """

    epsilon: float
    """Largest log-ratio of probabilities; math.inf for a release without protection."""
    delta: float
    """Probability that the ratio may exceed epsilon."""
    unit: Unit
    adjacency: Adjacency
    scope: Scope = Scope.LABELS_AND_SENSITIVE_COLUMNS

    def __post_init__(self) -> None:
        if self.epsilon != math.inf and check_finite("epsilon", self.epsilon) < 0:
            raise ConfigError(f"epsilon={self.epsilon} must be >= 0.")
        if not 0 <= check_finite("delta", self.delta) <= 1:
            raise ConfigError(f"delta={self.delta} must be in [0, 1].")
        for name, word in (("unit", Unit), ("adjacency", Adjacency), ("scope", Scope)):
            if not isinstance(getattr(self, name), word):
                raise ConfigError(f"{name}={getattr(self, name)!r} must be {word.__name__}.")

    @property
    def is_private(self) -> bool:
        """False if the guarantee is empty."""
        return math.isfinite(self.epsilon) and self.delta < 1

    def implies(self, other: "Guarantee") -> bool:
        """True if every mechanism with this guarantee also has `other`."""
        # Rows of a part of a unit that come or go replace what the whole contributes.
        is_part = self.unit != other.unit and self.adjacency is not Adjacency.REPLACE
        own = self.for_group(2) if is_part else self
        return (
            self.adjacency is other.adjacency
            and self.unit.covers(other.unit)
            and self.scope.covers(other.scope)
            and (not other.is_private or other.delta >= own.profile(other.epsilon))
        )

    def __le__(self, other: "Guarantee") -> bool:
        return self.implies(other)

    def __lt__(self, other: "Guarantee") -> bool:
        return self.implies(other) and not other.implies(self)

    def __ge__(self, other: "Guarantee") -> bool:
        return other.implies(self)

    def __gt__(self, other: "Guarantee") -> bool:
        return other < self

    def profile(self, epsilon: float) -> float:
        """The least delta that this guarantee gives at another epsilon.

        Tight: attained by randomized response that leaks with probability delta
        (Kairouz, Oh, Viswanath 2015).
        """
        if not self.is_private:
            return 1.0
        if epsilon >= self.epsilon:
            return self.delta
        # (e^a - e^b) / (1 + e^a), written so that no exponential overflows.
        excess = -math.expm1(epsilon - self.epsilon) / (1 + math.exp(-self.epsilon))
        return self.delta + (1 - self.delta) * excess

    def trade_off(self, false_positive_rate: float) -> float:
        """The least false negative rate of any test for one unit's data."""
        if not 0 <= false_positive_rate <= 1:
            raise ConfigError(f"false_positive_rate={false_positive_rate} must be in [0, 1].")
        if not self.is_private:
            return 0.0
        rest = 1 - self.delta
        if false_positive_rate == 0:
            return rest
        steep = rest - math.exp(min(self.epsilon, 700.0)) * false_positive_rate
        flat = math.exp(-self.epsilon) * (rest - false_positive_rate)
        return max(0.0, steep, flat)

    def for_group(self, num_units: int) -> "Guarantee":
        """What the same release guarantees to a group of units together."""
        if num_units < 1:
            raise ConfigError(f"num_units={num_units} must be >= 1.")
        epsilon, delta = group_parameters(self.epsilon, self.delta, num_units)
        return dataclasses.replace(self, epsilon=epsilon, delta=delta)

    def as_replace(self) -> "Guarantee":
        """The guarantee under replace: removing a unit and adding another are two steps."""
        if self.adjacency is Adjacency.REPLACE:
            return self
        return dataclasses.replace(self.for_group(2), adjacency=Adjacency.REPLACE)

    def __str__(self) -> str:
        if not self.is_private:
            return f"no privacy ({self.unit}, {self.adjacency.value}, {self.scope.value})"
        delta = (
            "" if self.delta == 0 else f", delta={round_up(self.delta, 3, slack=BINARY_NOISE):.3g}"
        )
        return (
            f"epsilon={round_up(self.epsilon, 4, slack=BINARY_NOISE):.4g}{delta} "
            f"({self.unit}, {self.adjacency.value}, {self.scope.value})"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """What is promised, and by which event."""

    guarantee: Guarantee
    event: Event

    def __post_init__(self) -> None:
        if not isinstance(self.guarantee, Guarantee):
            raise ConfigError(f"guarantee={self.guarantee!r} must be a Guarantee.")
        if not isinstance(self.event, Event):
            raise ConfigError(f"event={self.event!r} must be an event of tulle.privacy.events.")

    @property
    def is_private(self) -> bool:
        """False if the guarantee is empty or any part of the event is unprotected."""
        return self.guarantee.is_private and not contains(self.event, NonPrivate)

    def to_dict(self) -> dict[str, object]:
        """Plain data; an infinite epsilon is null."""
        return {
            "guarantee": guarantee_to_dict(self.guarantee),
            "event": event_to_dict(self.event),
        }

    @classmethod
    def from_dict(cls, data: object) -> "Claim":
        """Reads what `to_dict` wrote."""
        fields = check_fields("claim", data, ("guarantee", "event"))
        return cls(
            guarantee=guarantee_from_dict(fields["guarantee"]),
            event=event_from_dict(fields["event"]),
        )


def guarantee_to_dict(guarantee: Guarantee) -> dict[str, object]:
    """Plain data; an infinite epsilon is null."""
    return {
        "epsilon": null_if_infinite(float(guarantee.epsilon)),
        "delta": float(guarantee.delta),
        "unit": str(guarantee.unit),
        "adjacency": guarantee.adjacency.value,
        "scope": guarantee.scope.value,
    }


def guarantee_from_dict(data: object) -> Guarantee:
    """Reads what `guarantee_to_dict` wrote."""
    fields = check_fields("guarantee", data, _GUARANTEE_FIELDS)
    return Guarantee(
        epsilon=infinite_if_null("epsilon", fields["epsilon"]),
        delta=check_finite("delta", fields["delta"]),
        unit=Unit.parse(check_text("unit", fields["unit"])),
        adjacency=check_choice("adjacency", fields["adjacency"], Adjacency),
        scope=check_choice("scope", fields["scope"], Scope),
    )


def group_parameters(epsilon: float, delta: float, num_units: int) -> tuple[float, float]:
    """(k epsilon, delta (e^(k epsilon) - 1) / (e^epsilon - 1)) for k units.

    Args:
      epsilon: Epsilon of one unit.
      delta: Delta of one unit.
      num_units: Number of units in the group (k).
    """
    # The limit of the quotient at epsilon 0, where it is 0 / 0.
    if delta == 0 or epsilon == 0:
        return num_units * epsilon, min(1.0, num_units * delta)
    log_factor = (
        num_units * epsilon + math.log(-math.expm1(-num_units * epsilon) / math.expm1(epsilon))
        if epsilon < 700
        else math.inf
    )
    log_delta = math.log(delta) + log_factor
    return num_units * epsilon, 1.0 if log_delta >= 0 else math.exp(log_delta)


def round_up(value: float, num_digits: int, *, slack: float = 0.0) -> float:
    """The least number of so many digits that is >= value * (1 - slack).

    Args:
      value: The number; infinity stays what it is.
      num_digits: Digits that are printed.
      slack: Relative excess that rounding may take away, e.g. BINARY_NOISE.
    """
    return _rounded(value, num_digits, decimal.ROUND_CEILING, -slack)


def round_down(value: float, num_digits: int, *, slack: float = 0.0) -> float:
    """The largest number of so many digits that is <= value * (1 + slack).

    Args:
      value: The number; infinity stays what it is.
      num_digits: Digits that are printed.
      slack: Relative lack that rounding may add, e.g. BINARY_NOISE.
    """
    return _rounded(value, num_digits, decimal.ROUND_FLOOR, slack)


def _rounded(value: float, num_digits: int, side: str, slack: float) -> float:
    if not math.isfinite(value):
        return value
    # By the digits that are printed, not the binary fraction behind them: else 0.1 were rounded up.
    exact = decimal.Decimal(repr(float(value))) * (1 + decimal.Decimal(repr(slack)))
    return float(decimal.Context(prec=num_digits, rounding=side).create_decimal(exact))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """A range that contains the raw number with the stated confidence."""

    low: float
    high: float
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ConfigError(f"interval low={self.low} must be <= high={self.high}.")
        check_prob("confidence", self.confidence, example=0.95)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Release:
    """One noisy number. The confidence is over the noise only, not over sampling of people."""

    value: float
    noise_stddev: float
    interval: Interval
    event: Event
    """What this number cost; numbers of one joint release share one event."""

    def __post_init__(self) -> None:
        # The type is what tells readers that a number was noised, so an exact one may not have it.
        if not self.noise_stddev > 0:
            raise ConfigError(
                f"noise_stddev={self.noise_stddev} must be > 0; "
                "a number without noise is not a Release."
            )

    def __str__(self) -> str:
        low, high = self.interval.low, self.interval.high
        return (
            f"{self.value:g} (noise stddev {self.noise_stddev:.4g}, "
            f"{self.interval.confidence:.0%} interval {low:.6g} to {high:.6g})"
        )
