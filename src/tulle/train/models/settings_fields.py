"""Checks that the settings of all models share."""

from collections.abc import Sequence

from tulle.data.prepared.format import PreparedFeature
from tulle.errors import ConfigError
from tulle.privacy.fields import check_choice, check_count, check_finite
from tulle.train.models.embeddings import TableSharing

_MOST_UNITS = 1 << 20


def check_sizes(name: str, value: object) -> tuple[int, ...]:
    """Sizes of layers, possibly none."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"{name}={value!r} must be a list of layer sizes, e.g. [256, 256].")
    for size in value:
        if check_count(f"a size in {name}", size) > _MOST_UNITS:
            raise ConfigError(f"a size in {name} is {size}; it must be at most {_MOST_UNITS}.")
    return tuple(value)


def check_stddev(name: str, value: object, *, may_be_zero: bool = False) -> None:
    """A standard deviation of initial values."""
    stddev = check_finite(name, value)
    if stddev < 0 or (stddev == 0 and not may_be_zero):
        sign = ">=" if may_be_zero else ">"
        reason = "" if may_be_zero else "; embeddings that start at zero never leave it"
        raise ConfigError(f"{name}={value!r} must be {sign} 0{reason}.")


def check_sharing(name: str, value: object) -> TableSharing:
    """A `TableSharing`, or its text as settings files have it."""
    if isinstance(value, TableSharing):
        return value
    return check_choice(name, value, TableSharing)


def check_features(features: Sequence[PreparedFeature]) -> None:
    """A model needs something to look at."""
    if not features:
        raise ConfigError("features=() must hold at least one feature of the dataset.")
