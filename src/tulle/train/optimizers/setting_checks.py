"""Ranges that the settings of several optimizers share."""

from tulle.errors import ConfigError
from tulle.privacy.fields import check_finite


def check_learning_rate(learning_rate: object) -> None:
    """A rate above 0."""
    if check_finite("learning_rate", learning_rate) <= 0:
        raise ConfigError(f"learning_rate={learning_rate} must be > 0.")


def check_weight_decay(weight_decay: object) -> None:
    """A decay of 0 or more."""
    if check_finite("weight_decay", weight_decay) < 0:
        raise ConfigError(f"weight_decay={weight_decay} must be >= 0; 0 switches it off.")


def check_memory(name: str, value: object) -> None:
    """The share of a running mean that stays in each step."""
    if not 0 <= check_finite(name, value) < 1:
        raise ConfigError(f"{name}={value} must be in [0, 1); 0 keeps nothing of earlier steps.")


def check_stabilizer(stabilizer: object) -> None:
    """An addend to a divisor, above 0."""
    if check_finite("stabilizer", stabilizer) <= 0:
        raise ConfigError(
            f"stabilizer={stabilizer} must be > 0; without it a zero gradient divides by 0."
        )
