"""What takes the private steps of a run, wherever their batches and rows are."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from tulle.train.monitor import Monitored


class StepEngine(Protocol):
    """Draws batches of a plan's sampler and takes private steps on them.

    Privacy:
      One call of `take` with n rates is n steps of the plan, never more: whoever calls it
      has charged them.
    """

    @property
    def steps_at_a_time(self) -> int:
        """Most steps of one call of `take`; more than 1 where waiting for each is slow."""
        ...

    @property
    def settled(self) -> list[Tensor]:
        """Parameters whose weights are private right after every step."""
        ...

    @property
    def noise_description(self) -> str:
        """Where the noise came from, in words for the card."""
        ...

    def begin(self, first_step: int) -> None:
        """Batches are drawn from this step of the plan on. Called once, before any step."""
        ...

    def take(self, rates: Sequence[float]) -> list[Monitored | None]:
        """The next steps, one for each learning rate. Returns what may be shown of each."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What a run needs to go on, besides the weights; settles these first.

        Privacy:
          After this call the weights of the model, and what is returned, are private.
        """
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from what `state` returned, with the weights that belong to it."""
        ...
