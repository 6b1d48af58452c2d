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
_OF_KNOWN = ("first_known", "num_known", "known_digest", "facts")
_LARGEST_ID = 2**31 - 1
"""Ids are stored as signed 32-bit integers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactGroups:
    """A public fact about known values, as training needs it: which of them it puts together."""

    name: str
    groups: tuple[int, ...] = dataclasses.field(repr=False)
    """Number of the group of each known value, in the order of ids."""

    def __post_init__(self) -> None:
        check_text("name of a fact", self.name)
        object.__setattr__(self, "groups", tuple(self.groups))
        if any(isinstance(one, bool) or not isinstance(one, int) for one in self.groups):
            raise ConfigError(f"the groups of fact {self.name!r} must be whole numbers.")
        if set(self.groups) != set(range(len(set(self.groups)))):
            raise ConfigError(f"the groups of fact {self.name!r} must be numbered from 0 on.")


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
    first_known: int = 0
    """Id of the first known value, if everybody knows which values there are."""
    num_known: int = 0
    """Number of known values; 0 if they are not known. The id behind them is that of missing, and
    the next one that of all other values."""
    known_digest: str = ""
    """Digest of the table of known values and facts."""
    facts: tuple[FactGroups, ...] = ()
    """Facts about the known values."""

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
        self._check_known()

    def _check_known(self) -> None:
        for name in ("first_known", "num_known"):
            check_whole(f"{name} of feature {self.name!r}", getattr(self, name), 0, self.num_ids)
        lengths = {len(fact.groups) for fact in self.facts}
        is_beyond = self.num_known and self.first_known + self.num_known + 2 > self.num_ids
        if is_beyond or not lengths <= {self.num_known}:
            raise ConfigError(
                f"num_known={self.num_known} of feature {self.name!r} does not fit its "
                f"{self.num_ids} ids and its facts; prepare the data again."
            )

    def to_dict(self) -> dict[str, object]:
        """Plain data. What is said of bins and of known values is left out where there are none."""
        # So a feature without them has the fingerprint that it had before features knew them.
        left_out = (*(() if self.order else _OF_BINS), *(() if self.num_known else _OF_KNOWN))
        return {name: v for name, v in dataclasses.asdict(self).items() if name not in left_out}

    @classmethod
    def from_dict(cls, data: object) -> "PreparedFeature":
        """Reads what `to_dict` gave."""
        names = [field.name for field in dataclasses.fields(cls)]
        optional = (*_OF_BINS, *_OF_KNOWN)
        required = [name for name in names if name not in optional]
        fields = check_fields("feature", data, required, optional)
        found = (check_fields("fact", one, ("name", "groups")) for one in fields.get("facts", ()))
        return cls(**{**fields, "facts": tuple(FactGroups(**fact) for fact in found)})


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
