"""How a published experiment is run again: on which rows, how large, with which seed."""

import dataclasses
import enum
from collections.abc import Callable
from pathlib import Path

from tulle.errors import ConfigError, DataError


class ReproductionScale(enum.Enum):
    """How much of the published experiment is run."""

    REDUCED = "reduced"
    """Fewer rows, epochs and values of epsilon: minutes on two cores."""
    PAPER = "paper"
    """Rows, epochs and grids of the paper where they are known: hours, or a GPU."""


def _nothing(_: str) -> None:
    """Says nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReproductionSettings:
    """What to run on. Every field is public."""

    data: Path | None = None
    """The user's copy of the data; None for a synthetic set of the same kind."""
    scale: ReproductionScale = ReproductionScale.REDUCED
    seed: int = 1
    """Seed of synthetic data, of noise and of first weights: a fixed one is no private release."""
    say: Callable[[str], None] = _nothing
    """Function that is told what begins."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**31:
            raise ConfigError(f"seed={self.seed} must be between 0 and 2^31 - 1.")
        if self.data is not None and not self.data.exists():
            raise DataError(f"--data {self.data.name} is not there; give the path of your copy.")

    @property
    def is_paper(self) -> bool:
        """Whether the scale is that of the paper."""
        return self.scale is ReproductionScale.PAPER
