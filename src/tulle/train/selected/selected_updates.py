"""Private updates of few table rows, for any optimizer.

A row that is not selected keeps its weights and its state. So a step costs what its batch
and the selected rows cost, also under Adam, RMSprop and Yogi. It is another mechanism than
dense noise with the same event, not a faster way to the same models.
"""

from collections.abc import Mapping

from torch import Tensor

from tulle.mechanisms.entropy import NoiseSource
from tulle.train.examples import ExampleBatch
from tulle.train.models.tower_model import TowerModel
from tulle.train.monitor import Monitored
from tulle.train.noise import TrainingNoise
from tulle.train.optimizers.optimizer import OptimizerSettings
from tulle.train.private_step import BatchUnits, StepSettings, trained_parameters
from tulle.train.selected.selected_step import SelectedStep, selected_tables


class SelectedUpdates:
    """Private steps that update selected rows of tables, and all other parameters.

    Privacy:
      As `SelectedStep`. Weights and state are computed from noisy values alone, and so is
      which of them change: both are private after every step.
    """

    def __init__(
        self,
        model: TowerModel,
        settings: StepSettings,
        optimizer: OptimizerSettings,
        noise: TrainingNoise,
        rng: NoiseSource,
    ) -> None:
        """Starts from the present weights.

        Args:
          model: Is trained in place.
          settings: Of every step; its mechanism must be `SelectedRows`.
          optimizer: Any.
          noise: Of counts and gradients.
          rng: Coins of rows that nobody reads. Sensitive: never log or save its state.
        """
        trained = trained_parameters(model, settings.towers)
        self._step = SelectedStep(model, settings, noise, rng)
        self._optimizer = optimizer.start(trained)
        tables = selected_tables(model, settings.towers)
        # Tables are settled too, but a look at all of their rows in every step would cost what
        # selection saves. Whoever saves the weights looks at all of them.
        self.settled = [values for name, values in trained.items() if name not in tables]
        self.noise_description = (
            f"{noise.description}; rows that nobody reads are selected by exact coins from "
            f"{rng.description}"
        )

    def take(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None, rate: float
    ) -> Monitored | None:
        """One step: count, select, clip, sum, noise, update."""
        released = self._step.release_rows(batch, weights, units)
        self._optimizer.update(released.gradients, rate=rate)
        return released.monitored

    def state(self) -> dict[str, Tensor]:
        """The optimizer's state."""
        return self._optimizer.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state."""
        self._optimizer.load_state(state)
