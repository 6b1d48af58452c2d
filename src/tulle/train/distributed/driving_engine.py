"""Private steps of several processes, as seen by the one that leads them."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from tulle.train.distributed.messages import Kind, Message, failing_together, tell
from tulle.train.distributed.processes import Processes
from tulle.train.distributed.rank_steps import RankSteps, shared_by
from tulle.train.examples import ExampleSet
from tulle.train.models.tower_model import TowerModel
from tulle.train.monitor import Monitored
from tulle.train.private_step import StepSettings
from tulle.train.run_context import RunContext
from tulle.train.train_plan import TrainPlan


def drive(
    model: TowerModel,
    examples: ExampleSet,
    plan: TrainPlan,
    settings: StepSettings,
    context: RunContext,
) -> "DrivingEngine":
    """The engine of the leader. Its followers are in `follow_fit`."""
    steps = RankSteps(model, examples, plan, settings, context)
    return DrivingEngine(steps, shared_by(context))


class DrivingEngine:
    """Takes one step at a time together with all followers; a `StepEngine`.

    Privacy:
      As `RankSteps`. A step that one process cannot finish ends the run in all of them.
    """

    steps_at_a_time = 1

    def __init__(self, steps: RankSteps, processes: Processes) -> None:
        """Takes the leader's own part."""
        self.noise_description = steps.noise_description
        self._steps, self._processes = steps, processes
        self._first_step = 0
        self._is_shared = False

    @property
    def settled(self) -> list[Tensor]:
        """Parameters whose weights are private right after every step."""
        return self._steps.settled

    def begin(self, first_step: int) -> None:
        """Batches are drawn from this step of the plan on."""
        self._first_step, self._is_shared = first_step, False

    def take(self, rates: Sequence[float]) -> list[Monitored | None]:
        """The next steps, one for each learning rate."""
        return [self._take(rate) for rate in rates]

    def state(self) -> dict[str, Tensor]:
        """What one process would return; settles the weights first."""
        with failing_together(self._processes):
            self._share()
            tell(self._processes, Message(kind=Kind.STATE))
            return self._steps.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state of any number of processes."""
        self._steps.load_state(state)
        self._is_shared = False

    def _take(self, rate: float) -> Monitored | None:
        with failing_together(self._processes):
            self._share()
            tell(self._processes, Message(kind=Kind.TAKE, number=rate))
            return self._steps.take(rate)

    def _share(self) -> None:
        """Weights are loaded after the engine was made, so followers get them at the last
        moment."""
        if not self._is_shared:
            tell(self._processes, Message(kind=Kind.SHARE, number=float(self._first_step)))
            self._steps.share(self._first_step)
            self._is_shared = True
