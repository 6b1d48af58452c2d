"""How Hybrid shares its epsilon between randomized labels and private steps."""

import dataclasses
from typing import ClassVar

from tulle.errors import ConfigError
from tulle.privacy.fields import check_finite

_PAPER_SHARE, _PAPER_MOST = 0.6, 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperSplit:
    """Labels get min(0.6 epsilon, 3), private steps the rest (Chua et al. 2024, PPAI)."""

    kind: ClassVar[str] = "paper"

    def label_epsilon(self, epsilon: float) -> float:
        """The part of the labels."""
        return min(_PAPER_SHARE * epsilon, _PAPER_MOST)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatioSplit:
    """Labels get a fixed share: 0 is DP-SGD alone, 1 is randomized labels alone."""

    kind: ClassVar[str] = "ratio"

    label_share: float

    def __post_init__(self) -> None:
        if not 0 <= check_finite("label_share", self.label_share) <= 1:
            raise ConfigError(f"label_share={self.label_share} must be from 0 to 1.")

    def label_epsilon(self, epsilon: float) -> float:
        """The part of the labels."""
        return self.label_share * epsilon


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplicitSplit:
    """Labels get exactly this much, private steps the rest."""

    kind: ClassVar[str] = "explicit"

    epsilon_of_labels: float

    def __post_init__(self) -> None:
        if check_finite("epsilon_of_labels", self.epsilon_of_labels) < 0:
            raise ConfigError(f"epsilon_of_labels={self.epsilon_of_labels} must be >= 0.")

    def label_epsilon(self, epsilon: float) -> float:
        """The part of the labels."""
        if self.epsilon_of_labels > epsilon:
            raise ConfigError(
                f"epsilon_of_labels={self.epsilon_of_labels} must be <= epsilon={epsilon}; "
                "lower it or raise epsilon."
            )
        return self.epsilon_of_labels


BudgetSplit = PaperSplit | RatioSplit | ExplicitSplit
