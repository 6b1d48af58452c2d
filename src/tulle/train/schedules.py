"""How the learning rate changes over a run, as a factor between 0 and 1."""

import dataclasses
import math
from typing import ClassVar

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_finite


@dataclasses.dataclass(frozen=True, kw_only=True)
class CosineDecay:
    """A straight rise over the first steps, then half a cosine down towards 0."""

    kind: ClassVar[str] = "cosine"

    warmup_share: float = 0.0
    """Share of the steps that the rise takes."""

    def __post_init__(self) -> None:
        if not 0 <= check_finite("warmup_share", self.warmup_share) < 1:
            raise ConfigError(
                f"warmup_share={self.warmup_share} must be in [0, 1); 0 starts at the full rate."
            )

    def rate_factor(self, step: int, num_steps: int) -> float:
        """What to multiply the learning rate with in this step, the first being 0."""
        _check_step(step, num_steps)
        warmup = int(self.warmup_share * num_steps)
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (num_steps - warmup)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstantRate:
    """The full learning rate in every step."""

    kind: ClassVar[str] = "constant"

    def rate_factor(self, step: int, num_steps: int) -> float:
        """What to multiply the learning rate with in this step: 1."""
        _check_step(step, num_steps)
        return 1.0


Schedule = CosineDecay | ConstantRate
"""The factor of every step. It depends on public numbers only."""


def _check_step(step: int, num_steps: int) -> None:
    check_count("num_steps", num_steps)
    if check_count("step", step, least=0) >= num_steps:
        raise ConfigError(f"step={step} must be < num_steps={num_steps}; steps are counted from 0.")
