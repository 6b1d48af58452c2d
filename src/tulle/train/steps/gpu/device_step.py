"""One private step without a look at any number on the device, so that it can be replayed.

The same mathematics as private_step.py with lazy tables: norms from layer inputs and output
gradients, clipping, sums, noise where it is seen, SGD with momentum. Everything has a fixed
shape; rows that are no numbers are cleared instead of left out. Work on tables goes on
beside the matrix products, which it does not depend on.
"""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.contributions import BatchReads
from tulle.train.models.tower_model import TowerModel
from tulle.train.settings.optimizers import SGD
from tulle.train.steps.gpu.device_keys import KeyHolder, device_key, fill_normals
from tulle.train.steps.gpu.device_passes import device_passes
from tulle.train.steps.gpu.device_rows import DeviceAges, DeviceRows
from tulle.train.steps.gpu.layer_ops import (
    DenseRule,
    clip_factors,
    losses_and_grads,
    update_weights,
)
from tulle.train.steps.lazy_rows import MOMENTUM
from tulle.train.steps.private_step import trained_parameters
from tulle.train.steps.step_settings import StepSettings


class LayerParameters(KeyHolder):
    """Parameters that get their noise in every step: all of a model but its tables.

    They lie side by side in one piece of memory, so that one kernel updates them all.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], rule: DenseRule, *, rng: NoiseSource
    ) -> None:
        """Moves the parameters; the tensors stay the same objects with the same values."""
        if not parameters:
            raise ConfigError("no parameter besides tables is trained; train the common tower too.")
        first = next(iter(parameters.values()))
        size = sum(values.numel() for values in parameters.values())
        self._rule = rule
        self._weights, self._mean, self._sums, self._noise = (
            first.new_zeros(size) for _ in range(4)
        )
        self._slots: dict[str, Tensor] = {}
        self.means: dict[str, Tensor] = {}
        """The momentum of each parameter; a view."""
        start = 0
        for name, values in parameters.items():
            some = slice(start, start + values.numel())
            start = some.stop
            home = self._weights[some].view(values.shape)
            home.copy_(values)
            values.set_(home.untyped_storage(), home.storage_offset(), home.shape, home.stride())
            self._slots[name] = self._sums[some].view(values.shape)
            self.means[name] = self._mean[some].view(values.shape)
        self._key = device_key(rng, first.device)

    def draw_noise(self, draw: Tensor) -> None:
        """Draws the normals of a step.

        Args:
          draw: [1]: the number of the step, which no other step of the process has.
        """
        if self._rule.noise_stddev > 0:
            fill_normals(self._noise, key=self._key, draw=draw)

    def update(self, sums: Mapping[str, Tensor], rate: Tensor) -> None:
        """Takes a step with the sums of clipped gradients, one for each parameter."""
        for name, slot in self._slots.items():
            slot.copy_(sums[name])
        update_weights(
            self._weights, self._mean, self._sums, self._noise, rate=rate, rule=self._rule
        )


_NUM_STEPS = "num_steps"


class DeviceStep(KeyHolder):
    """Private steps on a model whose parameters stay where they are.

    A step takes the batch that `prepare` was last called with, by the step before or by hand.

    Privacy:
      The same as for `LazyStep`: unit, sensitivity and event of `PrivateStep`, for weights that
      were flushed. Until then the memory of the tables holds raw gradients.
    """

    def __init__(
        self,
        model: TowerModel,
        settings: StepSettings,
        optimizer: SGD,
        *,
        rng: NoiseSource,
        max_reads: int,
        max_steps: int,
        products: torch.dtype = torch.float32,
    ) -> None:
        """Takes at most `max_steps` steps between two calls of `state`.

        Args:
          model: The model, which is trained in place.
          settings: What every step does: clip norm, noise and towers.
          optimizer: Settings of SGD: momentum and decay.
          rng: Source of the keys of the noise.
          max_reads: Largest number of reads of one table in one step.
          max_steps: Largest number of steps, which the table of ages has room for.
          products: Type of the inputs of matrix products; `settings.clip_slack` must leave room
            for what rounding to it adds.
        """
        trained = trained_parameters(model, settings.towers)
        self._device = next(iter(trained.values())).device
        self._model, self._settings, self._sgd = model, settings, optimizer
        self._passes = device_passes(model, settings.towers, products)
        self.ages = DeviceAges(
            momentum=optimizer.momentum,
            weight_decay=optimizer.weight_decay,
            max_steps=max_steps,
            device=self._device,
        )
        self._rows = {
            name: DeviceRows(
                trained[name],
                self.ages,
                noise_stddev=settings.noise_stddev / settings.expected_size,
                max_reads=max_reads,
                rng=rng,
            )
            for name in sorted(model.tables & trained.keys())
        }
        rule = DenseRule(
            noise_stddev=settings.noise_stddev,
            divisor=settings.expected_size,
            momentum=optimizer.momentum,
            weight_decay=optimizer.weight_decay,
        )
        layers = {name: values for name, values in trained.items() if name not in self._rows}
        self._layers = LayerParameters(layers, rule, rng=rng)
        self._limit = settings.gradient_limit(sum(map(Tensor.numel, trained.values())))
        self._monitor_key = device_key(rng, self._device)
        self._scale = torch.full((1,), 1 / settings.expected_size, device=self._device)
        # Both count steps; each is read and moved on by work that runs beside the other's.
        self._table_draw = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._layer_draw = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._num_steps = 0
        self._reads: BatchReads | None = None
        self.settled = list(layers.values())
        self._side = _stream(self._device)

    def prepare(self, batch: ExampleBatch) -> None:
        """Makes a batch the next one: finds its rows and brings them up to date."""
        found = self._model.reads(batch.public_ids, batch.sensitive_ids)
        if self._reads is None:
            self._reads = found
        else:
            # Recorded work looks at the memory of the first batch.
            for own, new in zip(self._reads.tables, found.tables, strict=True):
                own.rows.copy_(new.rows)
        for read in self._reads.tables:
            if read.table in self._rows:
                self._rows[read.table].catch_up(read.rows, self._table_draw)

    def take(
        self, labels: Tensor, weights: Tensor, rate: Tensor, following: ExampleBatch | None
    ) -> Tensor:
        """One step with the batch that was prepared last.

        Args:
          labels: [rows]: labels, 0 or 1.
          weights: [rows]: 1 for a row of the batch, 0 for padding.
          rate: [1]: the learning rate, float64.
          following: The batch of the next step, which is prepared on the way; None for none.

        Returns:
          [2]: the noisy sums of the monitor.
        """
        if self._reads is None:
            raise RunStateError("no batch was prepared; call prepare() before the first step.")
        with self._beside():
            self._layers.draw_noise(self._layer_draw)
            is_drawn = self._mark()
        logits = self._passes.forward(self._reads)
        losses, logit_grads = losses_and_grads(logits, labels.to(logits.dtype))
        squares = self._passes.backward(logit_grads)
        factors, monitor = clip_factors(
            squares,
            losses,
            weights,
            limit=self._limit,
            coordinates=self._settings.coordinates,
        )
        with self._beside():
            self._passes.add_rows(factors, self._scale, self._rows)
            self.ages.end_step(rate)
            self._table_draw += 1
            if following is not None:
                self.prepare(following)
        sums = self._passes.layer_sums(factors)
        # Without this the update could find the noise of the step before.
        self._wait_for(is_drawn)
        self._layers.update(sums, rate)
        normals = torch.empty_like(monitor)
        fill_normals(normals, key=self._monitor_key, draw=self._layer_draw)
        monitor.add_(normals, alpha=self._settings.noise_stddev)
        self._join()
        self._layer_draw += 1
        return monitor

    def count(self, num_steps: int) -> None:
        """Says that steps are about to be taken: replayed ones do not pass through `take`."""
        self.ages.expect(num_steps)
        self._num_steps += num_steps

    def state(self) -> dict[str, Tensor]:
        """Flushes all rows and draws their momentum: the state of the dense optimizer."""
        for rows in self._rows.values():
            rows.flush()
        # Only after all tables: they share the clock, and a flush reads it.
        self.ages.reset()
        state = {_NUM_STEPS: torch.tensor(self._num_steps)}
        for name, rows in self._rows.items():
            momentum = rows.release_momentum()
            if momentum is not None:
                state[f"{MOMENTUM}.{name}"] = momentum
        if self._sgd.momentum:
            state |= {f"{MOMENTUM}.{name}": mean for name, mean in self._layers.means.items()}
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state of SGD, whichever way it was reached.

        Nothing changes if anything in it is wrong.
        """
        means = self._layers.means | {name: rows.mean for name, rows in self._rows.items()}
        for name, mean in means.items() if self._sgd.momentum else ():
            found = state.get(f"{MOMENTUM}.{name}")
            if found is None or found.shape != mean.shape:
                raise RunStateError(
                    f"optimizer state has no entry '{MOMENTUM}.{name}' of the right shape; resume "
                    "with the run's own settings."
                )
        for name, mean in self._layers.means.items() if self._sgd.momentum else ():
            mean.copy_(state[f"{MOMENTUM}.{name}"])
        for name, rows in self._rows.items():
            rows.load_momentum(state.get(f"{MOMENTUM}.{name}"))
        self._num_steps = int(state[_NUM_STEPS])
        self.ages.reset()

    def rehearse(self, batch: ExampleBatch, rate: Tensor) -> None:
        """A step that changes nothing, so that all kernels are loaded before one is recorded.

        No row has a weight and the rate is 0, so that weights stay; what else a step moves
        is put back. Right after a start or a flush only: no row of a table is late then.
        """
        before = {name: mean.clone() for name, mean in self._layers.means.items()}
        self.prepare(batch)
        weights = torch.zeros(len(batch.public_ids), device=self._device)
        self.take(weights, weights, rate * 0, None)
        for name, mean in self._layers.means.items():
            mean.copy_(before[name])
        self.ages.reset()

    @contextlib.contextmanager
    def _beside(self) -> Iterator[None]:
        """Work that may run at the same time as what follows, until `_join`."""
        if self._side is None:
            yield
            return
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._side):
            yield

    def _mark(self) -> torch.cuda.Event | None:
        """Stands for all work so far that runs beside; called within `_beside`."""
        if self._side is None:
            return None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._side)
        return event

    def _wait_for(self, event: torch.cuda.Event | None) -> None:
        if event is not None:
            torch.cuda.current_stream(self._device).wait_event(event)

    def _join(self) -> None:
        if self._side is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._side)


def _stream(device: torch.device) -> "torch.cuda.Stream | None":
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
