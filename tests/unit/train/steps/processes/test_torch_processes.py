"""Two real processes on this machine, joined by gloo."""

import datetime
import importlib
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.runs.folder import RunFolder
from tulle.runs.records import StopRequest
from tulle.train.fitting import fit
from tulle.train.methods.private_training import step_settings
from tulle.train.models.trained_towers import build_model
from tulle.train.run_context import RunOptions
from tulle.train.settings.optimizers import SGD, Adam, Optimizer
from tulle.train.steps.places import start_rank
from tulle.train.steps.processes import torch_processes as local
from tulle.train.steps.processes.processes import Processes
from tulle.train.steps.processes.torch_processes import (
    STEP_TIMEOUT,
    join_processes,
    join_through,
    local_processes,
)
from tulle.train.steps.step_context import MemoryJournal, StepContext
from unit.train.small_data import SMALL_MLP, dp_sgd, planned, private_phase
from unit.train.steps.noiseless_updates import DENSE, assert_same, train
from unit.train.steps.processes import real_work
from unit.train.steps.processes.real_work import EXAMPLES, talk
from unit.train.steps.processes.thread_processes import run_together
from waiting import HANG_S

PLAN = planned(
    dp_sgd(
        model=SMALL_MLP,
        private_phase=private_phase(
            noise_multiplier=1.0, optimizer=SGD(learning_rate=0.5, momentum=0.9)
        ),
    )
)
# A step takes milliseconds; only a process that hangs lets the others wait for so long.
SHORT = datetime.timedelta(seconds=20)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> object:  # type: ignore[misc]
    before, threads = set(os.environ), torch.get_num_threads()
    yield
    assert multiprocessing.active_children() == []
    assert not dist.is_initialized()
    assert set(os.environ) == before
    assert torch.get_num_threads() == threads


def test_threads_that_stand_for_processes_say_the_same() -> None:
    for size in (1, 2, 3):
        assert len(run_together(size, real_work.talk)) == size


def test_real_processes_say_what_they_should_and_train_the_model_of_one() -> None:
    with local_processes(2, real_work.work) as processes:
        together = real_work.work_together(processes)
    assert_same(together, train(real_work.TRAINING, DENSE))


def test_a_run_of_two_processes_ends_whole(tmp_path: Path) -> None:
    with local_processes(2, real_work.follow) as processes:
        options = RunOptions(processes=processes, folder=tmp_path / "run")
        result = fit(real_work.EXAMPLES, PLAN, options=options)
    assert result.num_steps_lost == 0
    assert result.is_secure


@pytest.mark.parametrize(
    ("follow", "timeout", "message"),
    [
        (real_work.die_in_the_third_step, STEP_TIMEOUT, "connection to another process was lost"),
        pytest.param(
            real_work.hang_in_the_third_step,
            SHORT,
            "did not answer within 20 s",
            marks=pytest.mark.long("waits twenty seconds for a process that hangs"),
        ),
    ],
)
def test_a_run_survives_the_loss_of_a_process(
    follow: Callable[[Processes], None],
    timeout: datetime.timedelta,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "_SECONDS_TO_LEAVE", 0.5)
    start = time.monotonic()
    with local_processes(2, follow, timeout=timeout) as processes:
        options = RunOptions(processes=processes, folder=tmp_path / "run", checkpoint_every=2)
        with pytest.raises(RunStateError, match=message) as raised:
            fit(real_work.EXAMPLES, PLAN, options=options)
    assert time.monotonic() - start < HANG_S / 2  # Nobody waited for the one that hangs.
    assert "--resume" in str(raised.value)
    saved = RunFolder.open(tmp_path / "run").checkpoints().latest()
    assert saved is not None
    assert saved.step == 2
    again = RunOptions(folder=tmp_path / "run", resume=True, checkpoint_every=2)
    assert fit(real_work.EXAMPLES, PLAN, options=again).num_steps_lost == 2


def test_the_leader_says_why_a_follower_failed() -> None:
    with (
        local_processes(2, real_work.fail_before_the_first_message) as processes,
        pytest.raises(RunStateError, match="process 1 of 2 failed with DataError: the file"),
    ):
        fit(real_work.EXAMPLES, PLAN, options=RunOptions(processes=processes))


def test_a_leader_that_never_begins_lets_its_followers_go() -> None:
    with (
        local_processes(2, real_work.say_nothing) as processes,
        pytest.raises(ConfigError, match="config of type"),
    ):
        fit(real_work.EXAMPLES, "no config", options=RunOptions(processes=processes))  # type: ignore[arg-type]


def test_a_process_that_cannot_start_is_an_error_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ends_at_import.py").write_text(
        "import multiprocessing, os\n"
        "if multiprocessing.current_process().name != 'MainProcess':\n"
        "    os._exit(3)\n"
        "def follow(processes):\n"
        "    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    follow = importlib.import_module("ends_at_import").follow
    with pytest.raises(RunStateError, match="exit code 3"), local_processes(2, follow):
        pass


def test_processes_are_joined_only_where_some_were_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="torchrun"), join_processes():
        pass


def test_a_process_is_in_one_group_at_a_time() -> None:
    with local_processes(1, real_work.talk) as processes:
        real_work.talk(processes)
        second = join_through(dist.HashStore(), rank=0, size=1)
        with pytest.raises(ConfigError, match="already"), second:
            pass


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
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
