"""Settings of training on cells: how the noise budget is shared, and what tables may be like.

The defaults were chosen on a part of training rows of one real and two made-up logs, for all
epsilons together. They are flat: nothing here needs to be tuned to data.
"""

import dataclasses
import math

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_fields, check_finite, check_list

_SHARES = ("public_values", "public_pairs", "sensitive_values", "sensitive_pairs", "refined")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageShares:
    """What part of the noise budget each stage has. What counts and levels need comes first."""

    public_values: float = 0.08
    """Tables of one public column."""
    public_pairs: float = 0.20
    """Tables of two public columns."""
    sensitive_values: float = 0.12
    """Tables of one sensitive column."""
    sensitive_pairs: float = 0.25
    """Tables of a sensitive column and another one."""
    refined: float = 0.35
    """All tables that have shown something, once more, and crosses of those that showed most."""

    def __post_init__(self) -> None:
        for name in _SHARES:
            if not 0 <= check_finite(name, getattr(self, name)) <= 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be from 0 to 1.")
        total = math.fsum(getattr(self, name) for name in _SHARES)
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise ConfigError(f"the shares of the stages add up to {total}, must add up to 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellSettings:
    """How a model of cells is trained. Every field is public information."""

    stages: StageShares = dataclasses.field(default_factory=StageShares)
    level_share: float = 0.003
    """Of the budget, for the overall rate of labels at the start and once more at the end."""
    count_share: float = 0.06
    """Of the budget at most, for counts of values of all sensitive columns together."""
    most_count_share: float = 0.015
    """Of the budget at most, for counts of values of one sensitive column."""
    expected_spreads: tuple[float, float, float] = (0.5, 0.2, 0.15)
    """Guessed standard deviation of log odds between the cells of a table of one, two and three
    columns, before the table has been looked at."""
    most_untested_share: float = 0.03
    """Of the budget, for a table that has not shown anything yet."""
    least_evidence: float = 3.0
    """In nats: a table whose cells are not this much more likely to differ changes nothing."""
    max_cells_per_table: int = 1 << 18
    """Rarer values of a column are taken together until a table has no more."""
    num_crossed_pairs: int = 8
    """Pairs that showed most, of which tables of three columns are made."""

    def __post_init__(self) -> None:
        if not isinstance(self.stages, StageShares):
            raise ConfigError(f"stages={self.stages!r} must be StageShares().")
        for name in ("level_share", "count_share", "most_count_share", "most_untested_share"):
            if not 0 < check_finite(name, getattr(self, name)) <= 0.5:
                raise ConfigError(f"{name}={getattr(self, name)} must be above 0, at most 0.5.")
        if len(self.expected_spreads) != 3 or not all(
            check_finite("expected_spreads", spread) > 0 for spread in self.expected_spreads
        ):
            raise ConfigError(
                f"expected_spreads={self.expected_spreads} must be three numbers above 0."
            )
        if not check_finite("least_evidence", self.least_evidence) >= 0:
            raise ConfigError(f"least_evidence={self.least_evidence} must be at least 0.")
        check_count("max_cells_per_table", self.max_cells_per_table, least=16)
        check_count("num_crossed_pairs", self.num_crossed_pairs, least=0)

    def to_dict(self) -> dict[str, object]:
        """Plain data; `from_dict` reads it."""
        return dataclasses.asdict(self) | {"expected_spreads": list(self.expected_spreads)}

    @classmethod
    def from_dict(cls, data: object) -> "CellSettings":
        """Reads what `to_dict` wrote; what is left out has its default."""
        names = [field.name for field in dataclasses.fields(cls)]
        fields = dict(check_fields("cells", data, (), names))
        if "stages" in fields:
            fields["stages"] = StageShares(**check_fields("stages", fields["stages"], (), _SHARES))
        if "expected_spreads" in fields:
            spreads = check_list("expected_spreads", fields["expected_spreads"])
            fields["expected_spreads"] = tuple(spreads)
        return cls(**fields)
