"""Settings of Mosaic: how the noise budget is divided, and what tables may be like.

The defaults were chosen on a part of the training rows of one real and two synthetic logs, for all
epsilons together. Results change little around them: nothing here needs to be tuned to data.
Every share below is a fraction of the run's one noise budget (see `noise_shares`).
"""

import dataclasses
import math

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_finite

STAGES = ("public_values", "public_pairs", "sensitive_values", "sensitive_pairs", "triples")
"""Names of the stages, in the order in which a run goes through them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageShares:
    """Fraction of the noise budget for each stage, after what counts and levels need is set aside.

    The fractions must add up to 1. Stages that the data do not allow leave theirs to the others.
    """

    public_values: float = 0.30
    """Fraction for tables of one public column."""
    public_pairs: float = 0.10
    """Fraction for tables of two public columns."""
    sensitive_values: float = 0.25
    """Fraction for tables of one sensitive column."""
    sensitive_pairs: float = 0.20
    """Fraction for tables of a sensitive column and another one."""
    triples: float = 0.15
    """Fraction for tables of three columns."""

    def __post_init__(self) -> None:
        _check_parts(self)
        total = math.fsum(getattr(self, name) for name in STAGES)
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise ConfigError(f"the shares of the stages add up to {total}, must add up to 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScreeningParts:
    """Fraction of each stage's share that goes to tables that were not measured before.

    The rest goes to all tables that are known to tell something, of this stage or an earlier one.
    """

    public_values: float = 0.15
    """Fraction in the stage of one public column."""
    public_pairs: float = 0.5
    """Fraction in the stage of two public columns."""
    sensitive_values: float = 0.2
    """Fraction in the stage of one sensitive column."""
    sensitive_pairs: float = 0.5
    """Fraction in the stage of a sensitive column and another one."""
    triples: float = 0.4
    """Fraction in the stage of three columns."""

    def __post_init__(self) -> None:
        _check_parts(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellSettings:
    """How Mosaic trains its tables of cells. Every field is public information."""

    stages: StageShares = dataclasses.field(default_factory=StageShares)
    """How the noise budget is divided among the stages of training."""
    screening: ScreeningParts = dataclasses.field(default_factory=ScreeningParts)
    """How the share of each stage is divided between new tables and known ones."""
    level_share: float = 0.0015
    """Least share of the noise budget for the overall rate of labels at the start, and again at
    the end. Small data sets use more."""
    count_share: float = 0.06
    """Largest share of the noise budget for counts of values of all sensitive columns together."""
    most_count_share: float = 0.015
    """Largest share of the noise budget for counts of values of one sensitive column."""
    expected_spreads: tuple[float, float, float] = (0.5, 0.2, 0.15)
    """Guessed standard deviation of log odds between the cells of a table of one, two and three
    columns, before the table has been measured."""
    heredity: tuple[float, float] = (0.6, 1.0)
    """Factors that limit the expected spread of a table of two and three columns: it is at most
    the factor times the least spread that its columns (or its three pairs) showed alone."""
    most_screening_shares: tuple[float, float, float] = (0.03, 0.01, 0.01)
    """Largest share of the noise budget for the first measurement of a table of one, two and three
    columns."""
    least_evidence: float = 3.0
    """Nats of evidence that the cells of a table differ; with less, the table changes nothing."""
    max_cells_per_table: int = 1 << 18
    """Most cells of a table. Rare values of a column are merged until a table has no more."""
    num_crossed_pairs: int = 8
    """Number of pairs of columns, those that showed most, that tables of three are made of."""
    row_steps: int = 2
    """How often rows adapt the division of their share to the sizes of their cells; 0 lets all
    rows spend alike."""

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
"""Largest sum of count_share and twice level_share: the rest of the budget is for tables."""
_MOST_FACTOR = 100.0
"""Largest spread or factor that is accepted. Useful ones are near 1; more is a typing error."""
_MOST_ROW_STEPS = 10
"""Largest number of adaptations of what rows spend; more makes the division worse, not better."""
_LISTS = {"expected_spreads": 3, "heredity": 2, "most_screening_shares": 3}


def _check_parts(parts: StageShares | ScreeningParts) -> None:
    for name in STAGES:
        if not 0 <= check_finite(name, getattr(parts, name)) <= 1:
            raise ConfigError(f"{name}={getattr(parts, name)} must be from 0 to 1.")


def _check_share(name: str, share: float) -> None:
    if not 0 < check_finite(name, share) <= 0.5:
        raise ConfigError(f"{name}={share} must be above 0, at most 0.5.")
