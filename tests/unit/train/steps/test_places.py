"""Steps stay on a GPU where that is exact, and go to the processor everywhere else."""

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.runs.records import StopRequest
from tulle.train.fitting import fit
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.private_steps import steps_method
from tulle.train.methods.private_training import step_settings
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.models.tower_model import TowerModel
from tulle.train.models.trained_towers import build_model
from tulle.train.run_context import NoisePlacement, Products, RunOptions
from tulle.train.settings.optimizers import SGD, Adam
from tulle.train.settings.step_noise import (
    BandedNoise,
    IndependentNoise,
    LatticeNoise,
    SelectedRows,
    StepNoise,
)
from tulle.train.steps import places
from tulle.train.steps.host import DenseStep, HostPlace, LazyStep
from tulle.train.steps.places import gpu_parts, start_steps
from tulle.train.steps.processes.processes import Processes
from tulle.train.steps.processes.sharded import ShardedStep
from tulle.train.steps.processes.shared_steps import ReplicatedStep, SharedPlace
from tulle.train.steps.selected import SelectedStep
from tulle.train.steps.step_context import Journal, StepContext, products_dtype
from tulle.train.steps.step_settings import CLIP_SLACK, StepSettings
from unit.train.small_data import (
    FEATURES,
    SMALL_MLP,
    dp_sgd,
    make_examples,
    make_shape,
    nonprivate,
    private_phase,
)
from unit.train.steps.processes.thread_processes import ThreadProcesses, run_together

EXAMPLES = make_examples(200)
GPU, CPU = torch.device("cuda"), torch.device("cpu")
MOMENTUM = SGD(learning_rate=0.5, momentum=0.9)


@pytest.fixture(autouse=True)
def _triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "has_kernels", lambda: True)


def test_a_gpu_without_triton_takes_steps_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    assert is_recorded(plan, step_settings(plan), context_of())
    monkeypatch.setattr(places, "has_kernels", lambda: False)
    assert not is_recorded(plan, step_settings(plan), context_of())


def is_recorded(plan: TrainPlan, settings: StepSettings, context: StepContext) -> bool:
    assert plan.private_phase is not None
    assert plan.sampler is not None
    return gpu_parts(plan.sampler, plan.private_phase.optimizer, settings, context) is not None


@functools.cache
def plan_of(optimizer: SGD | Adam = MOMENTUM) -> TrainPlan:
    phase = private_phase(noise_multiplier=1.0, batch_size=80, epochs=1.57, optimizer=optimizer)
    return dp_sgd(model=SMALL_MLP, private_phase=phase).make(make_shape(200))


def context_of(device: torch.device = GPU, **changes: Any) -> StepContext:
    context = StepContext(
        device=device,
        rng=SeededNoise(1),
        journal=cast(Journal, object()),
        stop=StopRequest(),
        checkpoint_every=3,
    )
    return dataclasses.replace(context, **changes)


def with_sampler(sampler: object) -> TrainPlan:
    """What the choice looks at of a plan; real ones are checked against their event."""
    return cast(TrainPlan, SimpleNamespace(private_phase=plan_of().private_phase, sampler=sampler))


def test_sgd_on_truncated_batches_of_a_gpu_can_be_recorded() -> None:
    plan = plan_of()
    for placement in (NoisePlacement.AUTO, NoisePlacement.LAZY):
        context = context_of(noise_placement=placement)
        assert is_recorded(plan, step_settings(plan), context)


def test_the_processor_records_nothing() -> None:
    plan = plan_of()
    assert not is_recorded(plan, step_settings(plan), context_of(CPU))


def test_an_optimizer_that_is_not_linear_cannot_be_recorded() -> None:
    plan = plan_of(Adam(learning_rate=0.05))
    assert not is_recorded(plan, step_settings(plan), context_of())


@pytest.mark.parametrize("mechanism", [LatticeNoise(), SelectedRows()])
def test_noise_that_is_not_independent_cannot_be_recorded(mechanism: StepNoise) -> None:
    plan = plan_of()
    settings = dataclasses.replace(step_settings(plan), mechanism=mechanism)
    assert not is_recorded(plan, settings, context_of())


def test_noise_on_all_rows_at_once_cannot_be_recorded() -> None:
    plan = plan_of()
    context = context_of(noise_placement=NoisePlacement.DENSE)
    assert not is_recorded(plan, step_settings(plan), context)


@pytest.mark.parametrize(("prob", "can"), [(1e-7, False), (1e-6, True), (0.3, True)])
def test_chances_that_are_too_small_cannot_be_recorded(prob: float, can: bool) -> None:
    sampler = TruncatedPoisson(num_rows=200, sampling_prob=prob, max_batch_size=200, steps=4)
    plan = with_sampler(sampler)
    assert is_recorded(plan, step_settings(plan_of()), context_of()) is can


def test_batches_of_all_rows_cannot_be_recorded() -> None:
    plan = with_sampler(
        TruncatedPoisson(num_rows=200, sampling_prob=1.0, max_batch_size=200, steps=4)
    )
    assert not is_recorded(plan, step_settings(plan_of()), context_of())


def test_samplers_of_other_kinds_cannot_be_recorded() -> None:
    plan = with_sampler(Poisson(num_rows=200, sampling_prob=0.1, steps=4))
    assert not is_recorded(plan, step_settings(plan_of()), context_of())


def new_model() -> TowerModel:
    return build_model(SMALL_MLP, FEATURES, seed=1)


@pytest.mark.parametrize(
    ("optimizer", "placement", "kind"),
    [
        (SGD(learning_rate=0.5), NoisePlacement.AUTO, LazyStep),
        (SGD(learning_rate=0.5), NoisePlacement.DENSE, DenseStep),
        (Adam(learning_rate=0.05), NoisePlacement.AUTO, DenseStep),
    ],
)
def test_the_processor_takes_all_other_steps(
    optimizer: SGD | Adam, placement: NoisePlacement, kind: type
) -> None:
    plan = plan_of(optimizer)
    context = context_of(CPU, noise_placement=placement)
    model = new_model()
    engine = steps_method(plan).start_steps(model, EXAMPLES, plan, step_settings(plan), context)
    assert isinstance(engine, HostPlace)
    assert type(engine._step) is kind
    assert engine.noise_description.startswith("fixed seed 1")
    engine.begin(0)
    assert len(engine.take([0.1])) == 1


def test_the_processor_keeps_the_slack_of_single_precision() -> None:
    assert step_settings(plan_of()).clip_slack == CLIP_SLACK


def test_a_plan_without_private_steps_starts_no_engine() -> None:
    plan = nonprivate().make(make_shape(200))
    settings = step_settings(plan_of())
    with pytest.raises(ConfigError, match="no private steps"):
        steps_method(plan).start_steps(new_model(), EXAMPLES, plan, settings, context_of(CPU))


@dataclasses.dataclass
class Recorded:
    """What a recorded engine would have been made from."""

    settings: list[StepSettings] = dataclasses.field(default_factory=list)
    products: list[torch.dtype] = dataclasses.field(default_factory=list)
    sizes: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    engines: list[tuple[object, ...]] = dataclasses.field(default_factory=list)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Notes what `DeviceStep` and `GpuPlace` are asked for, without a GPU."""
    found = Recorded()

    def step(model: object, settings: StepSettings, optimizer: object, **more: Any) -> str:
        del model, optimizer
        found.settings.append(settings)
        found.products.append(more["products"])
        found.sizes.append((more["max_reads"], more["max_steps"]))
        return "step"

    def engine(*arguments: object, settings: StepSettings, **_: object) -> str:
        found.engines.append((*arguments, settings))
        return "recorded"

    monkeypatch.setattr(places, "DeviceStep", step)
    monkeypatch.setattr(places, "GpuPlace", engine)
    return found


@pytest.mark.parametrize("products", Products)
def test_a_gpu_records_with_the_products_and_the_slack_they_need(
    recorded: Recorded, products: Products
) -> None:
    plan = plan_of()
    context = context_of(products=products)
    engine: object = steps_method(plan).start_steps(
        new_model(), EXAMPLES, plan, step_settings(plan), context
    )
    assert engine == "recorded"
    assert recorded.products == [products_dtype(products)]
    assert recorded.settings[0].clip_slack == 2.0**-8
    expected = dataclasses.replace(step_settings(plan), clip_slack=2.0**-8)
    assert recorded.settings == [expected]
    assert isinstance(plan.sampler, TruncatedPoisson)
    assert recorded.sizes == [(5 * plan.sampler.max_batch_size, 3)]
    assert recorded.engines == [(EXAMPLES, plan.sampler, "step", expected)]


def test_products_have_their_types() -> None:
    assert products_dtype(Products.HALF) is torch.bfloat16
    assert products_dtype(Products.SINGLE) is torch.float32
    assert RunOptions().products is Products.HALF


def test_several_processes_drive_whatever_the_device(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = SimpleNamespace(noise_description="of the leader")
    monkeypatch.setattr(places, "start_rank", lambda *_: rank)
    plan = plan_of()
    for device in (GPU, CPU):
        context = context_of(device, processes=cast(Processes, object()))
        engine: object = steps_method(plan).start_steps(
            new_model(), EXAMPLES, plan, step_settings(plan), context
        )
        assert isinstance(engine, SharedPlace)
        assert engine.noise_description == "of the leader"
    assert not recorded.engines


@pytest.mark.parametrize("products", Products)
def test_products_of_the_options_reach_the_context_of_the_run(
    products: Products, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Products] = []
    train = DpSgdConfig.train

    def noting(method: DpSgdConfig, run: Any) -> Any:
        seen.append(run.step_context.products)
        return train(method, run)

    monkeypatch.setattr(DpSgdConfig, "train", noting)
    fit(EXAMPLES, plan_of(), options=RunOptions(seed=1, products=products))
    assert seen == [products]


SGD_WAY, ADAM_WAY = SGD(learning_rate=0.5), Adam(learning_rate=0.05)
DENSE_WAYS: dict[SGD | Adam, tuple[type, type | None]] = {
    SGD_WAY: (DenseStep, ReplicatedStep),
    ADAM_WAY: (DenseStep, ReplicatedStep),
}
WHAT_AND_WHERE: dict[type[StepNoise], dict[SGD | Adam, tuple[type, type | None]]] = {
    IndependentNoise: {
        SGD_WAY: (LazyStep, ShardedStep),
        ADAM_WAY: (DenseStep, ReplicatedStep),
    },
    LatticeNoise: DENSE_WAYS,
    BandedNoise: DENSE_WAYS,
    SelectedRows: {SGD_WAY: (SelectedStep, None), ADAM_WAY: (SelectedStep, None)},
}
"""What a step is in one process and in several, for each noise and optimizer; None: refused."""


def test_every_noise_is_listed() -> None:
    assert WHAT_AND_WHERE.keys() == set(StepNoise.__args__)


def settings_with(kind: type[StepNoise]) -> StepSettings:
    return dataclasses.replace(step_settings(plan_of()), mechanism=kind(), num_steps=100)


@pytest.mark.parametrize("optimizer", [SGD_WAY, ADAM_WAY], ids=lambda way: way.kind)
@pytest.mark.parametrize("kind", StepNoise.__args__, ids=lambda kind: kind.kind)
def test_each_noise_has_its_step_in_each_place(
    kind: type[StepNoise], optimizer: SGD | Adam
) -> None:
    alone, together = WHAT_AND_WHERE[kind][optimizer]
    settings, sampler = settings_with(kind), plan_of().sampler
    assert sampler is not None
    place = start_steps(new_model(), EXAMPLES, sampler, optimizer, settings, context_of(CPU))
    assert isinstance(place, HostPlace)
    assert type(place._step) is alone

    def share(processes: ThreadProcesses) -> type:
        context = context_of(CPU, processes=processes)
        place = start_steps(new_model(), EXAMPLES, sampler, optimizer, settings, context)
        assert isinstance(place, SharedPlace)
        return type(place._steps._step)

    if together is None:
        with pytest.raises(ConfigError, match="start one process, or choose another noise"):
            run_together(1, share)
    else:
        assert run_together(1, share) == [together]


@pytest.mark.parametrize("optimizer", [SGD_WAY, ADAM_WAY], ids=lambda way: way.kind)
@pytest.mark.parametrize("kind", StepNoise.__args__, ids=lambda kind: kind.kind)
def test_lazy_noise_is_refused_in_every_place_where_it_is_not_exact(
    kind: type[StepNoise], optimizer: SGD | Adam
) -> None:
    if kind is IndependentNoise and optimizer is SGD_WAY:
        return
    settings, sampler = settings_with(kind), plan_of().sampler
    assert sampler is not None
    for device in (CPU, GPU):
        context = context_of(device, noise_placement=NoisePlacement.LAZY)
        with pytest.raises(ConfigError, match="lazy noise is exact for IndependentNoise"):
            start_steps(new_model(), EXAMPLES, sampler, optimizer, settings, context)
