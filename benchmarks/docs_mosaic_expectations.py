"""What was expected of trials with Mosaic before they were run at full size, and how it turned out.

Expectations are changes of the AUC loss in percent, from the least to the most. They stay as they
were written, whatever the records say.
"""

import dataclasses
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expectation:
    """A range of changes of the AUC loss, in percent."""

    least: float = -math.inf
    most: float = math.inf

    def __str__(self) -> str:
        if math.isinf(self.most):
            return f"{self.least:+g}% or more"
        if math.isinf(self.least):
            return f"{self.most:+g}% or less"
        if self.least == -self.most:
            return f"within {self.most:g}%"
        return f"{self.least:+g}% to {self.most:+g}%"

    def holds(self, change: float) -> bool:
        """Whether a measured change is in the range."""
        return self.least <= change <= self.most


ABLATIONS = {
    "no table is looked at twice": Expectation(least=0.3, most=3.0),
    "all rows spend alike": Expectation(least=0.3, most=2.5),
    "no evidence needed": Expectation(least=0.5),
    "twice as much evidence needed": Expectation(least=-0.5, most=0.5),
    "no tables of three columns": Expectation(least=0.0, most=1.0),
    "no tables of two or three columns": Expectation(least=0.5),
    "public columns alone": Expectation(least=5.0),
    "more for public columns": Expectation(least=-0.7, most=0.7),
    "less for public columns": Expectation(least=-0.7, most=0.7),
    "equal shares of all stages": Expectation(least=-0.7, most=0.7),
    "smaller tables": Expectation(least=0.0, most=2.0),
    "sensitive values counted less well": Expectation(least=0.0, most=1.0),
    "pairs expected to differ as much as any": Expectation(least=0.0, most=1.0),
}
"""Against Mosaic as it is."""


def verdict(expectations: Sequence[Expectation], changes: Sequence[float]) -> str:
    """How often what was expected came true."""
    held = sum(one.holds(change) for one, change in zip(expectations, changes, strict=True))
    return "holds" if held == len(changes) else f"holds in {held} of {len(changes)}"
