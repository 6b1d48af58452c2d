"""Steps that a GPU has recorded are those of the processor, noise and all. Needs a GPU."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import RunInterruptedError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.train.fitting import FitResult, fit
from tulle.train.models.tower_model import TowerModel
from tulle.train.models.trained_towers import build_model
from tulle.train.run_context import RunOptions
from tulle.train.settings.models import FactorizationMachine, LogisticRegression, ModelSettings
from tulle.train.settings.optimizers import SGD
from tulle.train.steps.gpu import place as graph_engine
from tulle.train.steps.gpu.device_step import DeviceStep
from tulle.train.steps.gpu.place import GpuPlace
from unit.train.small_data import (
    FEATURES,
    SMALL_MLP,
    dp_sgd,
    make_examples,
    make_shape,
    private_phase,
    stop_at,
)
from unit.train.steps.gpu.device_steps import CPU, HALF_SLACK, quiet_settings

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

GPU = torch.device("cuda")
EXAMPLES = make_examples(2000)
SAMPLER = TruncatedPoisson.with_headroom(num_rows=2000, max_batch_size=400, steps=200)
MODELS: dict[str, ModelSettings] = {
    "mlp": SMALL_MLP,
    "factorization machine": FactorizationMachine(factor_dim=3),
    "logistic regression": LogisticRegression(),
}


def engine_on(
    device: torch.device,
    model: str,
    *,
    noise_multiplier: float = 1.0,
    products: torch.dtype = torch.float32,
    momentum: float = 0.9,
    rng: NoiseSource | None = None,
) -> tuple[GpuPlace, TowerModel]:
    """On the processor with the two rehearsals that a recording takes, which count draws."""
    rng = SeededNoise(3) if rng is None else rng
    built = build_model(MODELS[model], FEATURES, seed=2, device=device)
    settings = quiet_settings(
        noise_multiplier=noise_multiplier, clip_norm=0.7, clip_slack=HALF_SLACK
    )
    settings = dataclasses.replace(settings, expected_size=SAMPLER.expected_size)
    step = DeviceStep(
        built,
        settings,
        SGD(learning_rate=1.0, momentum=momentum, weight_decay=0.01),
        rng=rng,
        max_reads=SAMPLER.max_batch_size * 5,
        max_steps=100,
        products=products,
    )
    engine = GpuPlace(EXAMPLES, SAMPLER, step, settings=settings, rng=rng, device=device)
    engine.begin(0)
    if device.type == "cpu":
        for _ in range(2):
            step.rehearse(engine._rows.ids(engine._indices[0]), engine._rates[:1])
    return engine, built


def flat(parameters: dict[str, Tensor]) -> Tensor:
    return torch.cat([values.flatten().cpu() for values in parameters.values()])


RATES = [0.1 + 0.02 * (step % 5) for step in range(32)]


# TF32 products round to 11 bits; models without layers have none.
MOST_ERROR = {"mlp": 0.03, "factorization machine": 1e-4, "logistic regression": 1e-4}


@pytest.mark.parametrize("noise_multiplier", [0.0, 1.0])
@pytest.mark.parametrize("model", MODELS)
def test_replayed_steps_are_those_of_the_processor(
    model: str, noise_multiplier: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise is drawn by number, so it is the same wherever a step is taken."""
    if noise_multiplier:
        # Weights that noise has made large let the rounding of TF32 grow with every step.
        monkeypatch.setattr(graph_engine, "_fast_products", contextlib.nullcontext)
    ended, shown = [], []
    for device in (CPU, GPU):
        engine, built = engine_on(device, model, noise_multiplier=noise_multiplier)
        start = flat(built.parameters)
        monitored = [*engine.take(RATES), *engine.take(RATES[:3])]
        state = engine.state()
        monitored += engine.take(RATES[:7])
        engine.state()
        moved = flat(built.parameters) - start
        ended.append(moved)
        shown.append([(seen.loss, seen.clipped_share) for seen in monitored if seen is not None])
        assert int(state["num_steps"]) == 35
    error = float((ended[0] - ended[1]).norm() / ended[0].norm())
    assert error < MOST_ERROR[model]
    difference = torch.tensor(shown[0]) - torch.tensor(shown[1])
    assert len(shown[0]) == 42
    assert float(difference.abs().mean()) < 0.02


def test_half_precision_comes_near() -> None:
    ended = []
    for device, products in ((CPU, torch.float32), (GPU, torch.bfloat16)):
        engine, built = engine_on(device, "mlp", products=products)
        start = flat(built.parameters)
        engine.take(RATES[:10])
        engine.state()
        ended.append(flat(built.parameters) - start)
    assert float((ended[0] - ended[1]).norm() / ended[0].norm()) < 0.15


def test_no_two_replays_share_noise_or_a_batch() -> None:
    engine, built = engine_on(GPU, "mlp", noise_multiplier=100.0, momentum=0.0)
    moves, batches = [], []
    names = sorted(built.parameters.keys() - built.tables)
    for count in (1, 1, 3, 1, 1):
        before = flat({name: built.parameters[name] for name in names})
        monitored = engine.take([0.1] * count)
        moves.append(flat({name: built.parameters[name] for name in names}) - before)
        batches += [tuple(row) for row in engine._indices[:count].tolist()]
        losses = [seen.loss for seen in monitored if seen is not None]
        assert len(set(losses)) == count
    for number, move in enumerate(moves):
        for other in moves[:number]:
            assert not bool((move == other).any())
            cosine = torch.nn.functional.cosine_similarity(move, other, dim=0)
            # About 170 independent normals.
            assert abs(float(cosine)) < 0.5
    assert len(set(batches)) == len(batches) == 7


def test_tables_get_new_noise_in_every_block() -> None:
    engine, built = engine_on(GPU, "mlp", noise_multiplier=100.0, momentum=0.0)
    moves = []
    tables = sorted(built.tables)
    for _ in range(3):
        before = flat({name: built.parameters[name] for name in tables})
        engine.take([0.1] * 2)
        engine.state()
        moves.append(flat({name: built.parameters[name] for name in tables}) - before)
    for number, move in enumerate(moves):
        for other in moves[:number]:
            assert not bool((move == other).any())


def test_no_two_engines_share_noise() -> None:
    ended = []
    for _ in range(2):
        engine, built = engine_on(GPU, "mlp", rng=release_rng())
        engine.take(RATES)
        engine.state()
        ended.append(flat(built.parameters))
    assert not bool((ended[0] == ended[1]).any())


def test_recording_changes_no_weight_and_takes_no_step() -> None:
    engine, built = engine_on(GPU, "mlp")
    fresh = build_model(MODELS["mlp"], FEATURES, seed=2)
    assert torch.equal(flat(built.parameters), flat(fresh.parameters))
    state = engine.state()
    assert int(state["num_steps"]) == 0
    for name, values in state.items():
        if name != "num_steps":
            assert not bool(values.any()), name
    assert torch.equal(flat(built.parameters), flat(fresh.parameters))


def test_a_state_of_the_gpu_goes_on_at_the_processor_and_back() -> None:
    first, one = engine_on(GPU, "mlp", noise_multiplier=0.0)
    first.take(RATES[:5])
    state = {name: values.cpu() for name, values in first.state().items()}
    second, other = engine_on(CPU, "mlp", noise_multiplier=0.0)
    for name, values in one.parameters.items():
        other.parameters[name].copy_(values)
    second.load_state(state)
    again = second.state()
    assert again.keys() == state.keys()
    for name, values in state.items():
        torch.testing.assert_close(again[name], values)
    first.load_state({name: values.to(GPU) for name, values in again.items()})
    first.take(RATES[:5])
    assert int(first.state()["num_steps"]) == 10


LEARNT = 0.2
"""A model that has learnt nothing has an AUC loss of 0.5."""


def learning_run(folder: Path | None, device: str = "cuda", **options: Any) -> FitResult:
    phase = private_phase(
        noise_multiplier=0.8,
        batch_size=400,
        epochs=12.0,
        optimizer=SGD(learning_rate=2.0, momentum=0.9),
    )
    plan = dp_sgd(model=LogisticRegression(), private_phase=phase).make(make_shape(2000))
    run = RunOptions(folder=folder, seed=1, device=device, **options)
    return fit(EXAMPLES, plan, test=make_examples(1000, seed=9), options=run)


def test_a_private_run_learns_on_recorded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    take = GpuPlace.take

    def noting(self: GpuPlace, rates: list[float]) -> list[Any]:
        taken.append(len(rates))
        return take(self, rates)

    monkeypatch.setattr(GpuPlace, "take", noting)
    result = learning_run(None)
    assert sum(taken) > 30
    assert result.metrics is not None
    assert result.metrics.auc_loss < LEARNT


def test_a_run_is_stopped_and_goes_on(tmp_path: Path) -> None:
    with pytest.raises(RunInterruptedError):
        learning_run(tmp_path / "run", watch=stop_at(10), checkpoint_every=5)
    result = learning_run(tmp_path / "run", resume=True, checkpoint_every=5)
    assert result.metrics is not None
    assert result.metrics.auc_loss < LEARNT
