"""The same code on a GPU. One GPU allows for one process, so this tests calls, not meetings."""

import pytest
import torch
import torch.distributed as dist

from tulle.mechanisms.entropy import SeededNoise
from tulle.runs.records import StopRequest
from tulle.train.methods.private_training import step_settings
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.optimizers import SGD, Adam, Optimizer
from tulle.train.steps.places import start_rank
from tulle.train.steps.processes.torch_processes import join_through
from tulle.train.steps.step_context import MemoryJournal, StepContext
from unit.train.small_data import SMALL_MLP, dp_sgd, planned, private_phase
from unit.train.steps.processes.real_work import EXAMPLES, talk

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize(
    "optimizer", [SGD(learning_rate=0.5, momentum=0.9), Adam(learning_rate=0.05)]
)
def test_steps_on_a_gpu_use_its_collectives(optimizer: Optimizer) -> None:
    phase = private_phase(noise_multiplier=1.0, optimizer=optimizer)
    plan = planned(dp_sgd(model=SMALL_MLP, private_phase=phase))
    device = torch.device("cuda")
    with join_through(dist.HashStore(), rank=0, size=1, device="cuda") as processes:
        talk(processes)
        talk(processes, device)
        context = StepContext(
            device=device,
            rng=SeededNoise(1),
            journal=MemoryJournal(),
            stop=StopRequest(),
            processes=processes,
        )
        model = build_model(SMALL_MLP, EXAMPLES.features, seed=0, device=device)
        assert plan.sampler is not None
        steps = start_rank(model, EXAMPLES, plan.sampler, optimizer, step_settings(plan), context)
        steps.share(0)
        for _ in range(5):
            steps.take(0.1)
        state = steps.state()
        assert int(state["num_steps"]) == 5
        for values in model.parameters.values():
            assert values.device.type == "cuda"
            assert bool(values.isfinite().all())
