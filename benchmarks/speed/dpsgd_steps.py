"""The steps that dpsgd.py compares: one model, one batch, several ways to train on it.

Every way has momentum on its layers. A non-private sparse step has none on its table, as
torch has none to offer there that touches the rows of a batch alone; private steps have.
"""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tulle.data.prepared.feature import PreparedFeature
from tulle.mechanisms.entropy import release_rng
from tulle.train.losses import CrossEntropy
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.contributions import DenseGradient, Gradient
from tulle.train.models.trained_towers import build_model
from tulle.train.parameter_updates import ParameterUpdates
from tulle.train.run_context import NoisePlacement
from tulle.train.settings.models import MLP, TOWERS, FactorizationMachine, ModelSettings
from tulle.train.settings.optimizers import SGD
from tulle.train.settings.step_noise import (
    BandedNoise,
    IndependentNoise,
    LatticeNoise,
    SelectedRows,
    StepNoise,
)
from tulle.train.steps.places import host_step
from tulle.train.steps.private_step import largest_weight, rows_that_suit
from tulle.train.steps.step_settings import StepSettings
from tulle.train.steps.training_noise import TrainingNoise

Step = Callable[[ExampleBatch], None]

NUM_FEATURES = 39
NUM_LARGE = 5
LARGEST_SMALL = 5000
ZIPF_EXPONENT = 1.1
DIM = 32
HIDDEN = (598, 598, 598)
RATE = 0.05
MOMENTUM = 0.9

MODELS: dict[str, ModelSettings] = {
    "mlp": MLP(embedding_dim=DIM, public_hidden=(), common_hidden=HIDDEN),
    "fm": FactorizationMachine(factor_dim=DIM),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What is trained on what; batches are made up and the same for all steps."""

    model: str
    num_rows: int
    """Of all embedding tables together."""
    batch_size: int

    @property
    def sizes(self) -> list[int]:
        """Rows of each feature: five hold nearly all of them."""
        small = np.geomspace(4, LARGEST_SMALL, NUM_FEATURES - NUM_LARGE)
        sizes = [int(size) for size in small * min(1.0, 0.5 * self.num_rows / small.sum())]
        left = self.num_rows - sum(sizes)
        return [*sizes, *[left // NUM_LARGE] * (NUM_LARGE - 1), left - left // NUM_LARGE * 4]

    def batches(self, count: int) -> list[ExampleBatch]:
        """Ids by Zipf's law, most frequent ones anywhere in their table; labels by a coin."""
        rng = np.random.default_rng(1)
        columns = [zipf_ids(size, count * self.batch_size, rng) for size in self.sizes]
        ids = torch.from_numpy(np.stack(columns, axis=1))
        labels = torch.from_numpy(rng.integers(0, 2, len(ids)).astype(np.float32))
        return [
            ExampleBatch(public_ids=some, sensitive_ids=None, labels=own)
            for some, own in zip(ids.chunk(count), labels.chunk(count), strict=True)
        ]

    @property
    def unique_rows(self) -> int:
        """Rows of all tables that a batch reads, on average."""
        batches = self.batches(4)
        counts = [
            sum(len(torch.unique(column)) for column in batch.public_ids.t()) for batch in batches
        ]
        return round(sum(counts) / len(counts))

    @property
    def model_bytes(self) -> int:
        """Of all parameters."""
        model = build_model(MODELS[self.model], self.features(), seed=1)
        return sum(values.nbytes for values in model.parameters.values())

    def features(self) -> list[PreparedFeature]:
        """One table a feature; models of one dimension keep them in one tensor."""
        return [
            PreparedFeature(name=f"f{index}", role="public", num_ids=size, table=f"f{index}")
            for index, size in enumerate(self.sizes)
        ]


def zipf_ids(size: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    chances = np.cumsum(np.arange(1, size + 1) ** -ZIPF_EXPONENT)
    ranks = np.searchsorted(chances, rng.random(count) * chances[-1])
    return rng.permutation(size)[np.minimum(ranks, size - 1)]


def limit_step(task: Task, rows_at_a_time: int | None = None) -> Step:
    """The same code as the private step, without clipping and noise."""
    model = build_model(MODELS[task.model], task.features(), seed=1)
    rows_at_a_time = rows_at_a_time or rows_that_suit(model, torch.device("cpu"))
    parameters, tables = model.parameters, model.tables
    on_tables = ParameterUpdates(
        {n: parameters[n] for n in tables}, SGD(learning_rate=RATE, momentum=0.0)
    )
    layers = {name: values for name, values in parameters.items() if name not in tables}
    on_layers = ParameterUpdates(layers, SGD(learning_rate=RATE, momentum=MOMENTUM))
    loss = CrossEntropy()

    def gradients_of(ids: Tensor, labels: Tensor) -> list[Gradient]:
        forward = model.forward(ids, None)
        weights = torch.full((len(ids),), 1 / task.batch_size)
        contributions = forward.backward(loss.gradients(forward.logits, labels), towers=TOWERS)
        return [found for part in contributions for found in part.weighted_sum(weights)]

    def step(batch: ExampleBatch) -> None:
        of_layers: dict[str, Tensor] = {}
        of_tables: list[Gradient] = []
        parts = (torch.split(values, rows_at_a_time) for values in (batch.public_ids, batch.labels))
        for ids, labels in zip(*parts, strict=True):
            for gradient in gradients_of(ids, labels):
                if gradient.name in tables:
                    of_tables.append(gradient)
                elif gradient.name in of_layers:
                    of_layers[gradient.name] += gradient.values
                else:
                    of_layers[gradient.name] = gradient.values
        for gradient in of_tables:
            on_tables.update([gradient], rate=RATE)
        sums = [DenseGradient(name=name, values=values) for name, values in of_layers.items()]
        on_layers.update(sums, rate=RATE)

    return step


def private_step(
    task: Task,
    placement: NoisePlacement = NoisePlacement.AUTO,
    mechanism: StepNoise | None = None,
) -> Step:
    """All that a run does in one step, but for drawing the batch."""
    model = build_model(MODELS[task.model], task.features(), seed=1)
    settings = StepSettings(
        clip_norm=1.0,
        noise_multiplier=0.6,
        expected_size=float(task.batch_size),
        monitor_share=0.1,
        towers=TOWERS,
        mechanism=mechanism or IndependentNoise(),
        num_steps=1000,
    )
    sgd = SGD(learning_rate=RATE, momentum=MOMENTUM)
    rng = release_rng()
    updates = host_step(model, settings, sgd, TrainingNoise(rng), placement, rng=rng)
    weights = torch.ones(task.batch_size)

    def step(batch: ExampleBatch) -> None:
        updates.take(batch, weights, None, RATE)
        largest_weight(updates.settled)

    return step


def torch_step(task: Task, *, is_sparse: bool) -> Step:
    """What one writes in torch without privacy."""
    model = TorchModel(task, is_sparse)
    table = list(model.table.parameters())
    layers = [value for name, value in model.named_parameters() if not name.startswith("table")]
    optimizers = [
        torch.optim.SGD(table, lr=RATE, momentum=0.0 if is_sparse else MOMENTUM),
        torch.optim.SGD(layers, lr=RATE, momentum=MOMENTUM),
    ]
    loss = nn.BCEWithLogitsLoss()

    def step(batch: ExampleBatch) -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss(model(batch.public_ids), batch.labels).backward()
        for optimizer in optimizers:
            optimizer.step()

    return step


class TorchModel(nn.Module):
    """The same model with autograd and one embedding for all features."""

    def __init__(self, task: Task, is_sparse: bool) -> None:
        super().__init__()
        sizes = task.sizes
        self.is_fm = task.model == "fm"
        dim = DIM + 1 if self.is_fm else DIM
        self.register_buffer("first_rows", torch.tensor(np.cumsum([0, *sizes[:-1]])))
        self.table = nn.Embedding(sum(sizes), dim, sparse=is_sparse)
        nn.init.normal_(self.table.weight, std=0.01)
        if self.is_fm:
            self.bias = nn.Parameter(torch.zeros(1))
        else:
            self.layers = mlp_layers()

    def forward(self, ids: Tensor) -> Tensor:
        """Logits."""
        values = self.table(ids + self.first_rows)
        if not self.is_fm:
            return self.layers(values.flatten(1)).squeeze(1)
        factors = values[:, :, 1:]
        pairs = factors.sum(1).square().sum(1) - factors.square().sum((1, 2))
        return self.bias + values[:, :, 0].sum(1) + pairs / 2


def mlp_layers() -> nn.Sequential:
    sizes = (NUM_FEATURES * DIM, *HIDDEN)
    layers: list[nn.Module] = []
    for num_inputs, num_outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(num_inputs, num_outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(HIDDEN[-1], 1))


LIMIT = "limit"
LAZY = "tulle lazy"
TORCH_SPARSE = "torch sparse"
STEPS: dict[str, Callable[[Task], Step]] = {
    LIMIT: limit_step,
    LAZY: lambda task: private_step(task, NoisePlacement.LAZY),
    TORCH_SPARSE: lambda task: torch_step(task, is_sparse=True),
    "torch dense": lambda task: torch_step(task, is_sparse=False),
    "tulle dense": lambda task: private_step(task, NoisePlacement.DENSE),
    "tulle lattice": lambda task: private_step(task, mechanism=LatticeNoise()),
    "tulle banded": lambda task: private_step(task, mechanism=BandedNoise(num_bands=16)),
    "tulle selected rows": lambda task: private_step(task, mechanism=SelectedRows()),
}
OFTEN = (LIMIT, LAZY, TORCH_SPARSE)
"""Take every turn; all others, which are slow, some."""
BY_DEFAULT = (*OFTEN, "torch dense", "tulle dense")
