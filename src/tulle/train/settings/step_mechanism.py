"""What a private step does with its noise, as one object that owns all of it.

A mechanism is public settings of a plan: fresh normals, sums on a grid, noise that is correlated
from step to step, or noise in few table rows. Each says what it is in the words of a plan, what it
costs, and how much of the clip norm it needs. Where steps run is no part of it: see `steps.places`.
Adding a mechanism is a class in `step_noise`, and what draws its noise.
"""

import abc
import dataclasses
from typing import ClassVar

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.data.samplers.user_sampling import UserSampling
from tulle.privacy.events import Event
from tulle.privacy.fields import Scalar
from tulle.privacy.plan import Assumption, Bound, Status

RowSampler = TruncatedPoisson | Poisson | CyclicPoisson
StepSampler = RowSampler | UserSampling

FLOATING_POINT = "floating point, not on a lattice"
"""Noise whose proof is for real numbers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepMechanism(abc.ABC):
    """Public settings of the noise of private steps. For all, a step costs one Gaussian."""

    kind: ClassVar[str]
    """The word for the noise in settings files and plans."""
    can_be_lazy: ClassVar[bool] = False
    """True if rows may get their noise when they are next read, which is exact under SGD."""
    selects_rows: ClassVar[bool] = False
    """True if each step chooses table rows, so that one process must have all counts."""

    @property
    def num_groups(self) -> int | None:
        """Number of groups of rows that must take turns in batches; None if rows need no groups."""
        return None

    def sentence(self) -> str:
        """What is special about the noise, for a reader who knows no papers; empty if nothing."""
        return ""

    def settings(self, *, clip_norm: float, num_steps: int) -> dict[str, Scalar]:
        """The noise and all that decides it, besides its multiplier."""
        del clip_norm, num_steps
        return {"noise": self.kind, "noise_arithmetic": FLOATING_POINT}

    def bounds(self, sampler: StepSampler) -> tuple[Bound, ...]:
        """Limits on the part of one unit, besides that on its clipped gradient."""
        del sampler
        return ()

    def assumptions(self) -> tuple[Assumption, ...]:
        """Assumptions that the noise rests on, each with what makes it true."""
        return ()

    def event(self, step: Event, sampler: StepSampler) -> Event:
        """What all steps cost the unit.

        Args:
          step: What one step releases about the units of its batch.
          sampler: What draws the batches.
        """
        return sampler.event(step)

    def clip_room(self, *, clip_norm: float, num_entries: int) -> float:
        """Part of the clip norm that clipping must leave free for what the noise does to sums."""
        del clip_norm, num_entries
        return 0.0


def enforced(statement: str, evidence: str) -> Assumption:
    """An assumption that the code makes true."""
    return Assumption(statement=statement, status=Status.ENFORCED, evidence=evidence)
