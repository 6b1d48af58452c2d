"""The steps that dpsgd_gpu.py compares: one model on a GPU, several ways to train it.

Ids follow Zipf's law in 39 features, five of which hold nearly all rows. All of them stay
on the GPU, and every way draws its batches there.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from dpsgd_steps import MODELS, MOMENTUM, RATE, ZIPF_EXPONENT, Task, TorchModel
from torch import Tensor, nn

from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.mechanisms.entropy import release_rng
from tulle.privacy.plan import ColumnRoles
from tulle.train.examples import ExampleSet
from tulle.train.models.contributions import TableReads
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import TOWERS
from tulle.train.settings.optimizers import SGD
from tulle.train.steps.gpu.device_mlp import DevicePerceptron
from tulle.train.steps.gpu.device_step import DeviceStep, LayerParameters
from tulle.train.steps.gpu.layer_ops import DenseRule, exact_product, losses_and_grads
from tulle.train.steps.gpu.place import GpuPlace
from tulle.train.steps.gpu.row_ops import add_rows
from tulle.train.steps.step_settings import StepSettings

CHUNK = 32
CLIP_NORM = 10.0
"""The default of private phases."""
Steps = Callable[[], object]
"""Takes CHUNK steps."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DeviceTask:
    """What is trained on what."""

    task: Task
    ids: Tensor
    """[examples, features], int32."""
    labels: Tensor

    @property
    def num_examples(self) -> int:
        """Examples to draw batches from."""
        return len(self.ids)

    def examples(self) -> ExampleSet:
        """The same on the host, where a run takes them from."""
        return ExampleSet(
            features=tuple(self.task.features()),
            columns=ColumnRoles(label="label", public=tuple(f.name for f in self.task.features())),
            public_features=self.ids.cpu().numpy(),
            sensitive_features=np.zeros((self.num_examples, 0), np.int32),
            labels=self.labels.cpu().numpy(),
        )


def make_task(model: str, num_rows: int, batch_size: int, num_examples: int) -> DeviceTask:
    task = Task(model=model, num_rows=num_rows, batch_size=batch_size)
    torch.manual_seed(1)
    ids = torch.empty((num_examples, len(task.sizes)), dtype=torch.int32, device="cuda")
    for column, size in enumerate(task.sizes):
        chances = torch.arange(1, size + 1, dtype=torch.float64, device="cuda") ** -ZIPF_EXPONENT
        chances = chances.cumsum_(0)
        names = torch.randperm(size, device="cuda", dtype=torch.int32)
        for some in ids[:, column].split(1 << 22):
            drawn = torch.rand(len(some), dtype=torch.float64, device="cuda") * chances[-1]
            some.copy_(names[torch.searchsorted(chances, drawn).clamp_(max=size - 1)])
    labels = (torch.rand(num_examples, device="cuda") < 0.2).float()
    return DeviceTask(task=task, ids=ids, labels=labels)


def sampler_of(task: DeviceTask) -> TruncatedPoisson:
    """Draws the batches of private steps."""
    return TruncatedPoisson.with_headroom(
        num_rows=task.num_examples, max_batch_size=task.task.batch_size, steps=1
    )


def private_steps(task: DeviceTask, *, products: torch.dtype) -> Steps:
    """What a run does, with its sampler and its look at the monitor."""
    batch_size = task.task.batch_size
    model = build_model(MODELS[task.task.model], task.task.features(), seed=1, device="cuda")
    sampler = sampler_of(task)
    settings = StepSettings(
        clip_norm=CLIP_NORM,
        noise_multiplier=0.6,
        expected_size=sampler.expected_size,
        monitor_share=0.1,
        towers=TOWERS,
        clip_slack=2.0**-8,
    )
    step = DeviceStep(
        model,
        settings,
        SGD(learning_rate=RATE, momentum=MOMENTUM),
        rng=release_rng(),
        max_reads=batch_size * task.ids.shape[1],
        max_steps=1 << 14,
        products=products,
    )
    device = torch.device("cuda")
    engine = GpuPlace(
        task.examples(), sampler, step, settings=settings, rng=release_rng(), device=device
    )
    engine.begin(0)
    return lambda: engine.take([RATE] * CHUNK)


class PlainPerceptron(DevicePerceptron):
    """The same passes without norms of table rows and without clipping."""

    def _add_table_norms(self, read: TableReads, grads: Tensor, squares: Tensor) -> None:
        pass

    def _clipped_product(self, grads: Tensor, feed: object, _: Tensor) -> Tensor:
        return exact_product(grads, feed.values)  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True, eq=False)
class PlainRows:
    """A table whose rows move at once."""

    weights: Tensor

    def add_gradient(self, grads: Tensor, reads: Tensor, factors: Tensor, scale: Tensor) -> None:
        """Moves the rows."""
        add_rows(self.weights, grads, reads, factors, scale)


def plain_steps(task: DeviceTask, *, products: torch.dtype) -> Steps:
    """The same code without clipping, noise and momentum on tables, recorded as well."""
    batch_size = task.task.batch_size
    model = build_model(MODELS[task.task.model], task.task.features(), seed=1, device="cuda")
    parameters = model.parameters
    tables = {name: PlainRows(parameters[name]) for name in model.tables}
    rule = DenseRule(noise_stddev=0.0, divisor=batch_size, momentum=MOMENTUM, weight_decay=0.0)
    others = {name: values for name, values in parameters.items() if name not in tables}
    layers = LayerParameters(others, rule, rng=release_rng())
    passes = PlainPerceptron(model, TOWERS, products)
    rate = torch.full((1,), RATE, dtype=torch.float64, device="cuda")
    scale = torch.full((1,), -RATE / batch_size, device="cuda")
    ones = torch.ones(batch_size, device="cuda")
    places = torch.zeros((CHUNK, batch_size), dtype=torch.int64, device="cuda")
    place = torch.zeros(1, dtype=torch.int64, device="cuda")
    side = torch.cuda.Stream()

    def step() -> None:
        rows = places.index_select(0, place).squeeze(0)
        ids = task.ids.index_select(0, rows).long()
        labels = task.labels.index_select(0, rows)
        logits = passes.forward(model.reads(ids, None))
        _, logit_grads = losses_and_grads(logits, labels)
        passes.backward(logit_grads)
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            passes.add_rows(ones, scale, tables)
        layers.update(passes.layer_sums(ones), rate)
        main.wait_stream(side)
        place.add_(1)

    recorded = RecordedStep(step)

    def steps() -> None:
        places.copy_(torch.randint(0, task.num_examples, places.shape, device="cuda"))
        place.zero_()
        for _ in range(CHUNK):
            recorded.replay()

    return steps


def torch_steps(task: DeviceTask, *, is_sparse: bool) -> Steps:
    """What one writes in torch without privacy, on products of the same precision."""
    model = TorchModel(task.task, is_sparse).cuda()
    table = list(model.table.parameters())
    layers = [value for name, value in model.named_parameters() if not name.startswith("table")]
    optimizers = [
        torch.optim.SGD(table, lr=RATE, momentum=0.0 if is_sparse else MOMENTUM),
        torch.optim.SGD(layers, lr=RATE, momentum=MOMENTUM),
    ]
    loss = nn.BCEWithLogitsLoss()

    def steps() -> None:
        for _ in range(CHUNK):
            size = (task.task.batch_size,)
            rows = torch.randint(0, task.num_examples, size, device="cuda")
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss(model(task.ids[rows].long()), task.labels[rows]).backward()
            for optimizer in optimizers:
                optimizer.step()

    return steps


class RecordedStep:
    """A step as a graph. It keeps the step, and with it all memory that the graph works on."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
            step()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            step()

    def replay(self) -> None:
        """Takes the step again."""
        self._graph.replay()
