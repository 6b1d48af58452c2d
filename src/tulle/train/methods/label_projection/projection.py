"""How a noisy sum of label gradients is projected on what labels can give. All of it is public."""

import dataclasses
import enum
from typing import ClassVar

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_finite

_MOST_PUBLIC_ROWS = 8192
"""Inner products of all pairs of public rows are kept: 256 MiB for so many."""
_MOST_ITERATIONS = 10_000


class SmoothingPrior(enum.Enum):
    """What the label probabilities that a projection finds are drawn towards."""

    MODEL = "model"
    """Each row's own prediction. Where these are right nothing moves, so that the model stays
    calibrated; a step gets shorter by the share of the prior."""
    HALF = "half"
    """A fair coin, as in the paper. Predictions of rare labels come out too high."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Projection:
    """Settings of the projection. They cost nothing: it works on noisy sums and public rows."""

    options: ClassVar[dict[str, str]] = {
        "public_batch_size": "public_batch_size",
        "smoothing": "smoothing",
        "smoothing_prior": "prior",
    }

    public_batch_size: int = 1024
    """Number of public rows that a step projects on, drawn apart from the private ones."""
    smoothing: float = 0.25
    """Share of the prior in the label probabilities that are used."""
    prior: SmoothingPrior = SmoothingPrior.MODEL
    """What label probabilities are drawn towards."""
    max_iterations: int = 200
    """Most iterations of the solver in each step; it ends earlier where little is left to gain."""

    def __post_init__(self) -> None:
        check_count("public_batch_size", self.public_batch_size, least=2)
        if self.public_batch_size > _MOST_PUBLIC_ROWS:
            raise ConfigError(
                f"public_batch_size={self.public_batch_size} must be <= {_MOST_PUBLIC_ROWS}: inner "
                "products of all its pairs of rows are kept; 256 to 4096 are useful."
            )
        if not 0 <= check_finite("smoothing", self.smoothing) < 1:
            raise ConfigError(
                f"smoothing={self.smoothing} must be in [0, 1), e.g. 0.25: at 1 nothing of the "
                "labels would be left."
            )
        if not isinstance(self.prior, SmoothingPrior):
            raise ConfigError(f"prior={self.prior!r} must be a SmoothingPrior.")
        if check_count("max_iterations", self.max_iterations) > _MOST_ITERATIONS:
            raise ConfigError(
                f"max_iterations={self.max_iterations} must be <= {_MOST_ITERATIONS}, e.g. 200."
            )
