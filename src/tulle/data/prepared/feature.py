"""One column of feature ids, as prepared datasets and models know it.

Ids may be bins that lie in order, such as those of a number or of the hours of a day. Then the
feature says which ids these are, so that a trainer knows which bins are neighbours.
"""

import dataclasses
from typing import Literal, get_args

from tulle.errors import ConfigError
from tulle.privacy.fields import check_fields, check_text

_FEATURE_ROLES = ("public", "sensitive")
Order = Literal["", "line", "cycle"]
"""How the bins of a feature lie: in no order, on a line like numbers, or on a cycle like hours."""
_OF_BINS = ("order", "first_bin", "num_bins", "num_apart")
_LARGEST_ID = 2**31 - 1
"""Ids are stored as signed 32-bit integers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedFeature:
    """One column of feature ids. Everything here is public information."""

    name: str
    role: str
    """`public` or `sensitive`."""
    num_ids: int
    """Ids are 0 to num_ids - 1."""
    table: str
    """Features of one table share their embeddings."""
    order: str = ""
    """"line" or "cycle" if some ids are bins that lie in that order; empty if none do."""
    first_bin: int = 0
    """Id of the first bin in that order."""
    num_bins: int = 0
    """Number of bins in that order; 0 if there is none."""
    num_apart: int = 0
    """Number of ids right behind the bins that stand apart: negative numbers, missing values."""

    def __post_init__(self) -> None:
        check_text("name of a feature", self.name)
        check_text(f"table of feature {self.name!r}", self.table)
        if self.role not in _FEATURE_ROLES:
            raise ConfigError(
                f"role={self.role!r} of feature {self.name!r} must be public or sensitive."
            )
        check_whole(f"num_ids of feature {self.name!r}", self.num_ids, 1, _LARGEST_ID)
        if self.order not in get_args(Order) or bool(self.order) != bool(self.num_bins):
            raise ConfigError(
                f"order={self.order!r} of feature {self.name!r} with num_bins={self.num_bins} "
                "must be 'line' or 'cycle' with bins, or empty without any."
            )
        for name in ("first_bin", "num_bins", "num_apart"):
            check_whole(f"{name} of feature {self.name!r}", getattr(self, name), 0, self.num_ids)
        if self.first_bin + self.num_bins + self.num_apart > self.num_ids:
            raise ConfigError(
                f"num_bins={self.num_bins} of feature {self.name!r} reach beyond its "
                f"{self.num_ids} ids; prepare the data again."
            )

    def to_dict(self) -> dict[str, object]:
        """Plain data. What says how bins lie is left out where there are none."""
        # So a feature without bins has the fingerprint that it had before features knew bins.
        left_out = () if self.order else _OF_BINS
        return {name: v for name, v in dataclasses.asdict(self).items() if name not in left_out}

    @classmethod
    def from_dict(cls, data: object) -> "PreparedFeature":
        """Reads what `to_dict` gave."""
        names = [field.name for field in dataclasses.fields(cls)]
        required = [name for name in names if name not in _OF_BINS]
        return cls(**check_fields("feature", data, required, _OF_BINS))


def check_whole(name: str, value: object, least: int, most: int) -> int:
    """Returns a whole number within limits; True and False are refused.

    Args:
      name: Name of the setting, for the error message.
      value: Value to check.
      least: Least value that is accepted.
      most: Largest value that is accepted.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{name}={value!r} must be a whole number from {least} to {most}.")
    return value
