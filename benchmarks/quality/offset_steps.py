"""DP-SGD by hand for a small perceptron whose log odds are added to given ones.

For experiments: its noise comes from a seed. Embeddings of all columns and two hidden layers;
the norm of each row's gradient follows from the layers' inputs and outputs.
"""

import dataclasses
import math

import torch
from torch import Tensor

from tulle.train import ExampleSet

_MOMENTUM, _SQUARE_MEMORY, _STABILIZER = 0.9, 0.999, 1e-8
_ROWS_AT_A_TIME = 1 << 18


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSettings:
    """What the steps are like. Every field is public information."""

    noise_multiplier: float
    sampling_prob: float
    num_steps: int
    learning_rate: float
    clip_norm: float = 10.0
    width: int = 128
    embedding_dim: int = 16


class OffsetNet:
    """The weights, while and after they are trained."""

    def __init__(
        self, examples: ExampleSet, settings: StepSettings, *, seed: int, device: str
    ) -> None:
        self._settings, self._device = settings, torch.device(device)
        torch.manual_seed(seed)
        sizes = [feature.num_ids for feature in examples.features]
        self._starts = torch.tensor([0, *sizes[:-1]], device=self._device).cumsum(0)
        dim, width = settings.embedding_dim, settings.width
        self._table = 0.01 * torch.randn(sum(sizes), dim, device=self._device)
        shapes = ((len(sizes) * dim, width), (width, width), (width, 1))
        scales = [math.sqrt(2 / rows) for rows, _ in shapes]
        # A small last layer: the net starts near the log odds that it is given.
        scales[-1] *= 0.1
        self._weights = [
            scale * torch.randn(shape, device=self._device)
            for shape, scale in zip(shapes, scales, strict=True)
        ]
        self._biases = [torch.zeros(columns, device=self._device) for _, columns in shapes]

    def train(self, ids: Tensor, labels: Tensor, offsets: Tensor) -> None:
        """Takes all steps, on Poisson batches of the rows."""
        settings, parameters = self._settings, [self._table, *self._weights, *self._biases]
        moments = [(torch.zeros_like(one), torch.zeros_like(one)) for one in parameters]
        noise = settings.noise_multiplier * settings.clip_norm
        for step in range(1, settings.num_steps + 1):
            drawn = torch.rand(len(labels), device=self._device) < settings.sampling_prob
            rows = torch.nonzero(drawn)[:, 0]
            sums = self._clipped_sums(ids[rows].long() + self._starts, labels[rows], offsets[rows])
            rate = settings.learning_rate * (1 + math.cos(math.pi * step / settings.num_steps)) / 2
            for weights, total, (mean, square) in zip(parameters, sums, moments, strict=True):
                total += noise * torch.randn_like(total)
                total /= settings.sampling_prob * len(labels)
                mean.lerp_(total, 1 - _MOMENTUM)
                square.lerp_(total.square(), 1 - _SQUARE_MEMORY)
                scale = (square / (1 - _SQUARE_MEMORY**step)).sqrt_().add_(_STABILIZER)
                weights.addcdiv_(mean, scale, value=-rate / (1 - _MOMENTUM**step))

    def log_odds(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """What the rows get, offsets included."""
        parts = zip(ids.split(_ROWS_AT_A_TIME), offsets.split(_ROWS_AT_A_TIME), strict=True)
        return torch.cat(
            [self._forward(part.long() + self._starts)[1] + own for part, own in parts]
        )

    def _forward(self, places: Tensor) -> tuple[list[Tensor], Tensor]:
        inputs = [self._table[places].flatten(1)]
        for weights, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            inputs.append(torch.relu(inputs[-1] @ weights + bias))
        return inputs, (inputs[-1] @ self._weights[-1] + self._biases[-1])[:, 0]

    def _clipped_sums(self, places: Tensor, labels: Tensor, offsets: Tensor) -> list[Tensor]:
        """Sums of the rows' clipped gradients, for the table, weights and biases."""
        inputs, logits = self._forward(places)
        errors = [(torch.sigmoid(logits + offsets) - labels)[:, None]]
        for layer in (2, 1):
            errors.insert(0, (errors[0] @ self._weights[layer].T) * (inputs[layer] > 0))
        table_errors = errors[0] @ self._weights[0].T
        squares = table_errors.square().sum(1) + sum(
            error.square().sum(1) * (before.square().sum(1) + 1)
            for error, before in zip(errors, inputs, strict=True)
        )
        clips = torch.clamp(self._settings.clip_norm * squares.rsqrt(), max=1.0)[:, None]
        clipped = [clips * error for error in errors]
        table = torch.zeros_like(self._table)
        dim = self._settings.embedding_dim
        table.index_add_(0, places.flatten(), (clips * table_errors).reshape(-1, dim))
        weights = [before.T @ error for before, error in zip(inputs, clipped, strict=True)]
        return [table, *weights, *(error.sum(0) for error in clipped)]
