"""Settings of training on cells: how the noise budget is shared, and what tables may be like.

The defaults were chosen on a part of training rows of one real and two made-up logs, for all
epsilons together. They are flat: nothing here needs to be tuned to data.
"""

import dataclasses
import math

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_finite

STAGES = ("public_values", "public_pairs", "sensitive_values", "sensitive_pairs", "triples")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageShares:
    """What part of the noise budget each stage has. What counts and levels need comes first."""

    public_values: float = 0.30
    """Tables of one public column."""
    public_pairs: float = 0.10
    """Tables of two public columns."""
    sensitive_values: float = 0.25
    """Tables of one sensitive column."""
    sensitive_pairs: float = 0.20
    """Tables of a sensitive column and another one."""
    triples: float = 0.15
    """Tables of three columns."""

    def __post_init__(self) -> None:
        _check_parts(self)
        total = math.fsum(getattr(self, name) for name in STAGES)
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise ConfigError(f"the shares of the stages add up to {total}, must add up to 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScreeningParts:
    """What part of a stage's share goes to tables that were not looked at before.

    The rest goes to all tables that are known to tell something, of this stage or an earlier one.
    """

    public_values: float = 0.15
    public_pairs: float = 0.5
    sensitive_values: float = 0.2
    sensitive_pairs: float = 0.5
    triples: float = 0.4

    def __post_init__(self) -> None:
        _check_parts(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellSettings:
    """How a model of cells is trained. Every field is public information."""

    stages: StageShares = dataclasses.field(default_factory=StageShares)
    screening: ScreeningParts = dataclasses.field(default_factory=ScreeningParts)
    level_share: float = 0.0015
    """Of the budget at least, for the overall rate of labels at the start, and again at the end.
    Few rows need more."""
    count_share: float = 0.06
    """Of the budget at most, for counts of values of all sensitive columns together."""
    most_count_share: float = 0.015
    """Of the budget at most, for counts of values of one sensitive column."""
    expected_spreads: tuple[float, float, float] = (0.5, 0.2, 0.15)
    """Guessed standard deviation of log odds between the cells of a table of one, two and three
    columns, before the table has been looked at."""
    heredity: tuple[float, float] = (0.6, 1.0)
    """A table of two columns is not expected to spread more than this times what both columns
    showed alone; a table of three, than this times what its three pairs showed."""
    most_screening_shares: tuple[float, float, float] = (0.03, 0.01, 0.01)
    """Of the budget at most, for the first look at a table of one, two and three columns."""
    least_evidence: float = 3.0
    """In nats: a table whose cells are not this much more likely to differ changes nothing."""
    max_cells_per_table: int = 1 << 18
    """Rarer values of a column are taken together until a table has no more."""
    num_crossed_pairs: int = 8
    """Pairs that showed most, of which tables of three columns are made."""
    row_steps: int = 2
    """How often what cells want of a row's share is adapted to them; 0: all rows spend alike."""

    def __post_init__(self) -> None:
        for name, kind in _PARTS.items():
            if not isinstance(getattr(self, name), kind):
                raise ConfigError(f"{name}={getattr(self, name)!r} must be {kind.__name__}().")
        for name in ("level_share", "count_share", "most_count_share"):
            _check_share(name, getattr(self, name))
        if 2 * self.level_share + self.count_share > _MOST_BESIDE_TABLES:
            raise ConfigError(
                f"level_share={self.level_share} and count_share={self.count_share} leave too "
                f"little for tables: together they may be at most {_MOST_BESIDE_TABLES}."
            )
        for name, length in _LISTS.items():
            numbers = getattr(self, name)
            if len(numbers) != length or not all(
                0 < check_finite(name, one) <= _MOST_FACTOR for one in numbers
            ):
                raise ConfigError(
                    f"{name}={numbers} must be {length} numbers above 0, at most {_MOST_FACTOR}."
                )
        for share in self.most_screening_shares:
            _check_share("most_screening_shares", share)
        if not check_finite("least_evidence", self.least_evidence) >= 0:
            raise ConfigError(f"least_evidence={self.least_evidence} must be at least 0.")
        check_count("max_cells_per_table", self.max_cells_per_table, least=16)
        check_count("num_crossed_pairs", self.num_crossed_pairs, least=0)
        check_count("row_steps", self.row_steps, least=0)
        if self.row_steps > _MOST_ROW_STEPS:
            raise ConfigError(f"row_steps={self.row_steps} must be at most {_MOST_ROW_STEPS}.")


_PARTS: dict[str, type[StageShares] | type[ScreeningParts]] = {
    "stages": StageShares,
    "screening": ScreeningParts,
}
_MOST_BESIDE_TABLES = 0.5
_MOST_FACTOR = 100.0
_MOST_ROW_STEPS = 10
_LISTS = {"expected_spreads": 3, "heredity": 2, "most_screening_shares": 3}


def _check_parts(parts: StageShares | ScreeningParts) -> None:
    for name in STAGES:
        if not 0 <= check_finite(name, getattr(parts, name)) <= 1:
            raise ConfigError(f"{name}={getattr(parts, name)} must be from 0 to 1.")


def _check_share(name: str, share: float) -> None:
    if not 0 < check_finite(name, share) <= 0.5:
        raise ConfigError(f"{name}={share} must be above 0, at most 0.5.")
