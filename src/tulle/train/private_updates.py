"""What a private step does to a model: noise on every row at once, or when it is read.

Both ways give models of the same law. The lazy one is exact for independent noise and SGD
with momentum only, and costs what the rows of the batch cost; other optimizers are not
linear in the noise and need it on every row in every step.
"""

import enum
from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.banded.banded_noise import (
    BandedGradientNoise,
    NoiseMemory,
)
from tulle.train.examples import ExampleBatch
from tulle.train.gradient_noise import GradientNoise, IndependentGradientNoise
from tulle.train.lazy.age_table import AgeTable
from tulle.train.lazy.lazy_rows import MOMENTUM, LazyRows
from tulle.train.lazy.lazy_step import LazyStep
from tulle.train.models.tower_model import TowerModel
from tulle.train.monitor import Monitored
from tulle.train.noise import TrainingNoise
from tulle.train.optimizers.optimizer import OptimizerSettings
from tulle.train.optimizers.sgd import SGD
from tulle.train.private_step import (
    BatchUnits,
    PrivateStep,
    StepSettings,
    trained_parameters,
)
from tulle.train.selected.selected_updates import SelectedUpdates
from tulle.train.step_noise import IndependentNoise, SelectedRows
from tulle.train.sum_noise import sum_noise


class NoisePlacement(enum.Enum):
    """When the rows of embedding tables get their noise. Changes speed alone."""

    AUTO = "auto"
    """Lazy where that is exact: independent noise under SGD."""
    LAZY = "lazy"
    DENSE = "dense"


class PrivateUpdates(Protocol):
    """Private steps on one model."""

    def take(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None, rate: float
    ) -> Monitored | None:
        """One step: clip, sum, noise, update. Returns what may be shown of it."""
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

    @property
    def settled(self) -> list[Tensor]:
        """Parameters whose weights are private right after every step."""
        ...

    @property
    def noise_description(self) -> str:
        """Where the noise comes from, in words for the card."""
        ...


def start_updates(
    model: TowerModel,
    settings: StepSettings,
    optimizer: OptimizerSettings,
    noise: TrainingNoise,
    placement: NoisePlacement = NoisePlacement.AUTO,
    *,
    rng: NoiseSource | None = None,
    memory: NoiseMemory = NoiseMemory.AUTO,
) -> PrivateUpdates:
    """The updates of a run, with the noise that its settings name.

    Args:
      model: Is trained in place.
      settings: Of every step.
      optimizer: Any.
      noise: Of independent noise.
      placement: Of independent noise.
      rng: Source of all other noise, which has keys or coins of its own. Sensitive: never log
        or save its state.
      memory: Of correlated noise.

    Privacy:
      The noise of every step is that of `settings`, on sums that clipping bounded.

    Raises:
      ConfigError: Lazy noise is asked for where it is not exact, or a lattice is too coarse.
    """
    mechanism = settings.mechanism
    if isinstance(mechanism, IndependentNoise):
        return _start_independent(model, settings, optimizer, noise, placement)
    if placement is NoisePlacement.LAZY:
        raise ConfigError(
            f"lazy noise is exact for IndependentNoise() only, not for {mechanism}; leave the "
            "placement of noise to tulle."
        )
    if rng is None:
        raise ConfigError(f"{mechanism} needs rng, the source of its own keys; give release_rng().")
    if isinstance(mechanism, SelectedRows):
        return SelectedUpdates(model, settings, optimizer, noise, rng)
    added = sum_noise(model, settings, noise, rng, memory)
    if isinstance(added, BandedGradientNoise):
        return BandedUpdates(model, settings, optimizer, added)
    return DenseUpdates(model, settings, optimizer, added)


class DenseUpdates:
    """Noise on every parameter in every step; for any optimizer."""

    def __init__(
        self,
        model: TowerModel,
        settings: StepSettings,
        optimizer: OptimizerSettings,
        noise: GradientNoise,
    ) -> None:
        trained = trained_parameters(model, settings.towers)
        self._optimizer = optimizer.start(trained)
        self._step = PrivateStep(model, settings, noise)
        self.noise_description = noise.description
        self.settled = list(trained.values())

    def take(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None, rate: float
    ) -> Monitored | None:
        """One step: clip, sum, noise, update."""
        released = self._step.release(batch, weights, units)
        self._optimizer.update(released.gradients, rate=rate)
        return released.monitored

    def state(self) -> dict[str, Tensor]:
        """The optimizer's state."""
        return self._optimizer.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state."""
        self._optimizer.load_state(state)


class BandedUpdates(DenseUpdates):
    """Correlated noise on every parameter in every step; for any optimizer.

    A state holds no noise: where it is loaded, the correlation starts again.
    """

    def __init__(
        self,
        model: TowerModel,
        settings: StepSettings,
        optimizer: OptimizerSettings,
        noise: BandedGradientNoise,
    ) -> None:
        super().__init__(model, settings, optimizer, noise)
        self._banded = noise

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state, with noise that knows no earlier one."""
        super().load_state(state)
        self._banded.restart()


class LazyUpdates:
    """Tables get their noise when rows are read; SGD with momentum and any schedule.

    Its state is that of the dense way, so that a run may change between both.
    """

    def __init__(
        self, model: TowerModel, settings: StepSettings, optimizer: SGD, noise: TrainingNoise
    ) -> None:
        trained = trained_parameters(model, settings.towers)
        names = model.tables & trained.keys()
        self._tables = {name: trained[name] for name in sorted(names)}
        dense = {name: values for name, values in trained.items() if name not in names}
        self._sgd, self._settings, self._noise = optimizer, settings, noise
        self._model = model
        self._dense = optimizer.start(dense)
        self.settled = list(dense.values())
        self.noise_description = noise.description
        self._begin(step=0)

    def take(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None, rate: float
    ) -> Monitored | None:
        """One step: clip, sum, noise where it is seen, update."""
        released = self._step.release(batch, weights, units)
        self._dense.update(released.gradients, rate=rate)
        self._ages.end_step(rate)
        return released.monitored

    def state(self) -> dict[str, Tensor]:
        """Flushes all rows and draws their momentum: the state of the dense optimizer."""
        state = self._dense.state()
        for name, rows in self._rows.items():
            released = rows.release_state()
            if MOMENTUM in released:
                state[f"{MOMENTUM}.{name}"] = released[MOMENTUM]
        self._ages.forget_past()
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state, lazy or dense. Nothing changes if anything in it is wrong."""
        own = {f"{MOMENTUM}.{name}": name for name in self._tables} if self._sgd.momentum else {}
        if missing := [key for key in own if key not in state]:
            raise RunStateError(
                f"optimizer state has no entry {missing[0]!r}; resume with the run's own settings."
            )
        for key, name in own.items():
            self._rows[name].check_state({MOMENTUM: state[key]})
        self._dense.load_state({key: value for key, value in state.items() if key not in own})
        self._begin(step=int(state["num_steps"]))
        for key, name in own.items():
            self._rows[name].load_state({MOMENTUM: state[key]})

    def _begin(self, step: int) -> None:
        device = next(iter(self._model.parameters.values())).device
        self._ages = AgeTable(
            momentum=self._sgd.momentum,
            weight_decay=self._sgd.weight_decay,
            step=step,
            device=device,
        )
        stddev = self._settings.noise_stddev / self._settings.expected_size
        self._rows = {
            name: LazyRows(values, self._ages, noise=self._noise, noise_stddev=stddev)
            for name, values in self._tables.items()
        }
        self._step = LazyStep(self._model, self._settings, self._noise, self._rows)


def _start_independent(
    model: TowerModel,
    settings: StepSettings,
    optimizer: OptimizerSettings,
    noise: TrainingNoise,
    placement: NoisePlacement,
) -> PrivateUpdates:
    if isinstance(optimizer, SGD) and placement is not NoisePlacement.DENSE:
        return LazyUpdates(model, settings, optimizer, noise)
    if placement is NoisePlacement.LAZY:
        raise ConfigError(
            f"lazy noise is exact for SGD only, not for {type(optimizer).__name__}; use SGD, or "
            "leave the placement of noise to tulle."
        )
    return DenseUpdates(model, settings, optimizer, IndependentGradientNoise(noise))
