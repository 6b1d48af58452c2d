"""Devices that are there, whatever machine the tests run on: torch's answers are made up."""

from pathlib import Path

import pytest
import torch

from tulle.errors import ConfigError
from tulle.runs.charging import ReleaseCharge
from tulle.train.fitting import fit
from tulle.train.run_context import RunOptions
from tulle.train.steps.processes.torch_processes import local_processes
from tulle.train.steps.step_context import count_gpus, find_device
from unit.train.small_data import dp_sgd, make_examples, make_ledger, planned

NONSENSE = ("gpu", "", "CUDA", "cuda:", "cuda:-1", "cuda: 0", "mps", "meta", "xpu", "cuda:256")


def pretend(monkeypatch: pytest.MonkeyPatch, num_gpus: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)


@pytest.mark.parametrize("num_gpus", [0, 1, 2])
@pytest.mark.parametrize("name", NONSENSE)
def test_words_that_name_no_device_are_refused(
    name: str, num_gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, num_gpus)
    with pytest.raises(ConfigError, match=f"device='{name}' is unknown; use 'cpu', 'cuda' or"):
        find_device(name)


@pytest.mark.parametrize(
    ("name", "num_gpus", "words"),
    [
        ("cuda", 0, "torch finds no GPU; use 'cpu'"),
        ("cuda:0", 0, "torch finds no GPU; use 'cpu'"),
        ("cuda:1", 1, "torch finds only 'cuda:0'"),
        ("cuda:9", 1, "torch finds only 'cuda:0'"),
        ("cuda:2", 2, "torch finds 'cuda:0' to 'cuda:1'"),
    ],
)
def test_a_gpu_that_is_not_there_is_refused(
    name: str, num_gpus: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, num_gpus)
    with pytest.raises(ConfigError, match=f"device='{name}' is not there: {words}"):
        find_device(name)


@pytest.mark.parametrize(
    ("name", "num_gpus"), [("cpu", 0), ("cpu", 2), ("cuda", 1), ("cuda:0", 1), ("cuda:1", 2)]
)
def test_a_device_that_is_there_is_found(
    name: str, num_gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, num_gpus)
    assert find_device(name) == torch.device(name)
    assert count_gpus() == num_gpus


def test_gpus_that_torch_cannot_use_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert count_gpus() == 0


@pytest.mark.parametrize(
    ("device", "num_gpus"), [("gpu", 1), ("mps", 1), ("cuda", 0), ("cuda:1", 1), ("cuda:77", 1)]
)
def test_a_run_on_a_device_that_is_not_there_writes_and_charges_nothing(
    device: str, num_gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, num_gpus)
    ledger = make_ledger(tmp_path)
    options = RunOptions(
        folder=tmp_path / "run",
        device=device,
        charge=ReleaseCharge(ledger=ledger, purpose="training"),
    )
    with pytest.raises(ConfigError, match=f"device='{device}'"):
        fit(make_examples(200), planned(dp_sgd(), 200), options=options)
    assert ledger.spends("all") == ()
    assert not (tmp_path / "run").exists()


def test_no_process_is_started_for_a_device_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, 0)
    monkeypatch.setattr("multiprocessing.get_context", lambda _: pytest.fail("one was started"))
    with (
        pytest.raises(ConfigError, match="torch finds no GPU"),
        local_processes(2, print, device="cuda"),
    ):
        pytest.fail("there are no processes")
