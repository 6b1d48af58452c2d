"""A private step whose sums are taken over all processes before the noise is added, once."""

from tulle.train.distributed.bundles import sum_all_at_leader
from tulle.train.distributed.processes import LEADER, Processes
from tulle.train.gradient_noise import GradientNoise
from tulle.train.models.tower_model import TowerModel
from tulle.train.private_step import PrivateStep, StepRelease, StepSettings


class SummedStep(PrivateStep):
    """As `PrivateStep`; the leader alone gets the sums of all, and adds the noise.

    Sums that each of several processes had noised would have too much noise, or, with one
    key, the same noise several times.

    Privacy:
      As `PrivateStep`, for the batch of all processes together. A follower releases nothing,
      and is left with zeros: no raw sum can be taken for a noisy one.
    """

    def __init__(
        self, model: TowerModel, settings: StepSettings, noise: GradientNoise, processes: Processes
    ) -> None:
        """Takes the noise of whole sums; a follower never uses its own."""
        super().__init__(model, settings, noise)
        self._processes = processes

    def _noisy(self) -> StepRelease:
        sum_all_at_leader([*self._sums.values(), self._monitor_sums], self._processes)
        if self._processes.rank != LEADER:
            return StepRelease(gradients=[], monitored=None)
        return super()._noisy()
