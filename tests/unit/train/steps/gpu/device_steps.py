"""Steps of a device without noise, and what their batches add up to."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.tower_model import TowerModel
from tulle.train.settings.models import TOWERS
from tulle.train.settings.optimizers import SGD
from tulle.train.settings.phases import CosineDecay
from tulle.train.steps.gpu.device_step import DeviceStep
from tulle.train.steps.gpu.layer_ops import losses_and_grads
from tulle.train.steps.step_settings import CLIP_SLACK, StepSettings
from unit.train.steps.noiseless_updates import Trained, Training
from unit.train.steps.step_reference import step_settings

CPU = torch.device("cpu")
SIZE = 8.0
"""A power of 2: single precision divides by it without rounding."""
HALF_SLACK = 2.0**-8
"""What half precision needs."""


def quiet_settings(
    *,
    clip_norm: float = 1.0,
    monitor_share: float = 0.1,
    towers: frozenset[str] = TOWERS,
    clip_slack: float = CLIP_SLACK,
    noise_multiplier: float = 0.0,
) -> StepSettings:
    """Settings without noise, unless some is asked for."""
    settings = step_settings(
        clip_norm=clip_norm,
        monitor_share=monitor_share,
        towers=towers,
        noise_multiplier=noise_multiplier,
    )
    return dataclasses.replace(settings, expected_size=SIZE, clip_slack=clip_slack)


def start_step(
    model: TowerModel,
    settings: StepSettings,
    *,
    products: torch.dtype | None = None,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    seed: int = 0,
) -> DeviceStep:
    """A step on a model; products are of its own type unless said otherwise."""
    return DeviceStep(
        model,
        settings,
        SGD(learning_rate=1.0, momentum=momentum, weight_decay=weight_decay),
        rng=SeededNoise(seed),
        max_reads=10_000,
        max_steps=200,
        products=products or next(iter(model.parameters.values())).dtype,
    )


def rate_of(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


def take(
    step: DeviceStep,
    batch: ExampleBatch,
    weights: Tensor,
    rate: float = 0.0,
    following: ExampleBatch | None = None,
) -> Tensor:
    """Prepares a batch and takes a step with it; returns the sums of the monitor."""
    assert batch.labels is not None
    step.prepare(batch)
    step.count(1)
    return step.take(batch.labels, weights, rate_of(rate), following)


def raw_norms(step: DeviceStep, batch: ExampleBatch) -> Tensor:
    """Norms of all examples, as the step would clip them."""
    assert batch.labels is not None
    logits = step._passes.forward(step._model.reads(batch.public_ids, batch.sensitive_ids))
    _, grads = losses_and_grads(logits, batch.labels.to(logits.dtype))
    return step._passes.backward(grads).sqrt()


def sums_of(step: DeviceStep) -> dict[str, Tensor]:
    """What the batch of the only step so far added to every trained parameter."""
    tables = {name: rows.mean * SIZE for name, rows in step._rows.items()}
    return tables | step._layers._slots


def flat_sums(step: DeviceStep, model: TowerModel) -> Tensor:
    """All sums side by side, zero for frozen parameters."""
    found = sums_of(step)
    parts = [
        found[name].flatten() if name in found else torch.zeros_like(values).flatten()
        for name, values in model.parameters.items()
    ]
    return torch.cat(parts).double()


def train_on_device(
    training: Training,
    *,
    changes: Sequence[int] = (),
    prepares_ahead: bool = True,
    products: torch.dtype | None = None,
) -> Trained:
    """The training of `noiseless_updates`, with empty batches as ones of padding alone."""
    model = training.new_model()
    settings = step_settings(clip_norm=0.8, towers=training.towers, noise_multiplier=0.0)
    step = fresh_step(training, model, settings, products)
    batches = _padded(training)
    monitored = []
    for number, (batch, weights) in enumerate(batches):
        if number in changes:
            state = {name: values.clone() for name, values in step.state().items()}
            step = fresh_step(training, model, settings, products)
            step.load_state(state)
        is_ready = prepares_ahead and number > 0 and number not in changes
        if not is_ready:
            step.prepare(batch)
        following = batches[number + 1][0] if number + 1 < len(batches) else None
        step.count(1)
        assert batch.labels is not None
        rate = rate_of(0.4 * CosineDecay().rate_factor(number, training.num_steps))
        sums = step.take(batch.labels, weights, rate, following if prepares_ahead else None)
        monitored.append(
            settings.coordinates.read(
                sums, expected_size=settings.expected_size, noise_stddev=settings.noise_stddev
            )
        )
    state = {name: values.clone() for name, values in step.state().items()}
    return Trained(dict(model.parameters), state, monitored)


def fresh_step(
    training: Training,
    model: TowerModel,
    settings: StepSettings,
    products: torch.dtype | None = None,
) -> DeviceStep:
    """A step for such a training, right to all digits of its type."""
    step = start_step(
        model,
        settings,
        products=products,
        momentum=training.momentum,
        weight_decay=training.weight_decay,
    )
    step._scale = torch.full((1,), 1 / settings.expected_size, dtype=training.dtype)
    return step


def _padded(training: Training) -> list[tuple[ExampleBatch, Tensor]]:
    batches = training.batches()
    found = []
    for batch in batches:
        assert batch.labels is not None
        weights = torch.ones(training.batch_size)
        if training.has_padding:
            weights[::3] = 0
        if not len(batch.labels):
            batch, weights = batches[0], torch.zeros(training.batch_size)
        found.append((batch, weights))
    return found
