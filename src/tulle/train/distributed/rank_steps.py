"""The part of one process in the private steps of a run; the same code in every process."""

from collections.abc import Mapping

from torch import Tensor

from tulle.errors import ConfigError
from tulle.train.batch_source import batch_source
from tulle.train.distributed.processes import Processes
from tulle.train.distributed.row_shards import own_shard
from tulle.train.distributed.sharded_updates import ShardedUpdates
from tulle.train.distributed.shared_batches import SharedBatches
from tulle.train.distributed.shared_updates import ReplicatedUpdates, SharedUpdates
from tulle.train.examples import ExampleSet
from tulle.train.host_engine import take_batch
from tulle.train.models.tower_model import TowerModel
from tulle.train.monitor import Monitored
from tulle.train.noise import TrainingNoise
from tulle.train.optimizers.sgd import SGD
from tulle.train.private_step import StepSettings
from tulle.train.private_updates import NoisePlacement
from tulle.train.run_context import RunContext
from tulle.train.step_noise import IndependentNoise
from tulle.train.sum_noise import sum_noise
from tulle.train.train_plan import TrainPlan


class RankSteps:
    """Draws this process's part of each batch, and takes part in each step.

    Privacy:
      Unit, event and guarantee of the plan, which does not know how many processes there
      are, for all of them together. Relies on: all have the same examples and the same plan,
      and each has randomness of its own.
    """

    def __init__(
        self,
        model: TowerModel,
        examples: ExampleSet,
        plan: TrainPlan,
        settings: StepSettings,
        context: RunContext,
    ) -> None:
        """Takes all rows that the plan's sampler draws from; keeps those that it owns."""
        processes = shared_by(context)
        shard = own_shard(
            plan.sampler, rank=processes.rank, size=processes.size, units=examples.units
        )
        self._device = context.device
        self._source = batch_source(examples.select(shard.rows), context.device)
        self._batches = SharedBatches(shard, processes, context.rng, context.stop)
        self._updates = _updates(model, plan, settings, context)

    @property
    def settled(self) -> list[Tensor]:
        """Parameters whose weights are private at the leader right after every step."""
        return self._updates.settled

    @property
    def noise_description(self) -> str:
        """Where the noise comes from, in words for the card."""
        return self._updates.noise_description

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """At the leader, before `share`: goes on from a state."""
        self._updates.load_state(state)

    def share(self, first_step: int) -> None:
        """All begin at this step of the plan, with the leader's weights and state."""
        self._batches.begin(first_step)
        self._updates.share()

    def take(self, rate: float) -> Monitored | None:
        """The next step of all processes. The leader may show what it returns."""
        batch = self._batches.draw()
        return take_batch(self._updates, self._source, batch, rate, self._device)

    def state(self) -> dict[str, Tensor]:
        """At the leader what one process would return; settles its weights first."""
        return self._updates.state()


def shared_by(context: RunContext) -> Processes:
    """The processes of a run that has several."""
    if context.processes is None:
        raise ConfigError("processes=None: this run has one process.")
    return context.processes


def _updates(
    model: TowerModel, plan: TrainPlan, settings: StepSettings, context: RunContext
) -> SharedUpdates:
    phase, placement = plan.private_phase, context.noise_placement
    if phase is None:
        raise ConfigError(f"plan {plan.privacy.name!r} has no private steps.")
    processes, noise = shared_by(context), TrainingNoise(context.rng)
    is_exact = isinstance(settings.mechanism, IndependentNoise)
    if isinstance(phase.optimizer, SGD) and is_exact and placement is not NoisePlacement.DENSE:
        return ShardedUpdates(model, settings, phase.optimizer, noise, processes)
    if placement is NoisePlacement.LAZY:
        raise ConfigError(
            "lazy noise is exact for IndependentNoise() and SGD only; use these, or leave the "
            "placement of noise to tulle."
        )
    of_sums = sum_noise(model, settings, noise, context.rng, context.noise_memory)
    return ReplicatedUpdates(model, settings, phase.optimizer, of_sums, processes)
