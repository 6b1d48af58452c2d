"""Devices that are there, whatever machine the tests run on: torch's answers are made up."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tulle import atomic_files
from tulle.errors import ConfigError, RunStateError
from tulle.runs.charging import ReleaseCharge
from tulle.runs.folder import RunFolder
from tulle.runs.records import StepBlocks
from tulle.train.fitting import fit
from tulle.train.run_context import RunOptions
from tulle.train.steps.processes.torch_processes import local_processes
from tulle.train.steps.step_context import (
    FolderJournal,
    MemoryJournal,
    SavedState,
    count_gpus,
    find_device,
)
from unit.train.small_data import (
    dp_sgd,
    make_examples,
    make_ledger,
    make_shape,
    planned,
    randomized_labels,
)

BLOCKS = StepBlocks(num_steps=10, block_size=4)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    plan = randomized_labels().make(make_shape(40)).privacy
    return RunFolder.create(tmp_path / "run", settings={"a": 1}, plan=plan, facts={"rows": 40})


def fresh_labels() -> np.ndarray:
    return np.array([1, 0, 1], np.uint8)


def never() -> np.ndarray:
    raise AssertionError("labels were drawn a second time")


def state(step: int, phase: str = "private") -> SavedState:
    tensors = {"model/w": torch.full((2, 2), float(step)), "optimizer/t": torch.tensor(step)}
    return SavedState(phase=phase, step=step, tensors=tensors, facts={"best_loss": None})


def test_labels_are_drawn_once_and_read_back(folder: RunFolder) -> None:
    assert FolderJournal(folder).labels(fresh_labels).tolist() == [1, 0, 1]
    kept = FolderJournal(RunFolder.open(folder.path)).labels(never)
    assert kept.tolist() == [1, 0, 1]
    assert kept.dtype == np.uint8


def test_labels_that_were_lost_are_not_drawn_again(folder: RunFolder) -> None:
    FolderJournal(folder).labels(fresh_labels)
    (folder.path / "randomized_labels.safetensors").unlink()
    with pytest.raises(RunStateError, match=r"run/randomized_labels\.safetensors is missing"):
        FolderJournal(RunFolder.open(folder.path)).labels(never)


def test_labels_whose_record_was_cut_off_are_recorded_when_they_are_read(folder: RunFolder) -> None:
    folder.write_array("randomized_labels", fresh_labels())
    assert FolderJournal(folder).labels(never).tolist() == [1, 0, 1]
    assert folder.records.read() == [{"kind": "labels kept"}]


def test_labels_that_a_kill_kept_from_their_name_are_not_drawn_again(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "_put_in_place", killed)
        with pytest.raises(KeyboardInterrupt), folder.hold():
            FolderJournal(folder).labels(fresh_labels)
    with folder.hold():
        assert FolderJournal(folder).labels(never).tolist() == [1, 0, 1]


def test_a_checkpoint_comes_back_as_it_was(folder: RunFolder) -> None:
    journal = FolderJournal(folder)
    assert journal.latest() is None
    journal.save(state(3, "labels"))
    journal.save(state(1, "private"))
    found = FolderJournal(RunFolder.open(folder.path)).latest()
    assert found is not None
    assert (found.phase, found.step, dict(found.facts)) == ("private", 1, {"best_loss": None})
    assert torch.equal(found.tensors["model/w"], torch.ones(2, 2))
    assert found.tensors["optimizer/t"].shape == ()


def test_a_block_that_ended_is_behind_and_one_that_did_not_is_skipped(folder: RunFolder) -> None:
    journal = FolderJournal(folder)
    first, second, _ = BLOCKS
    journal.begin(first)
    journal.save(state(4))
    journal.end(first, 4)
    assert journal.resume_point(BLOCKS, 4).next_step == 4
    journal.begin(second)
    point = FolderJournal(folder).resume_point(BLOCKS, 4)
    assert (point.next_step, point.checkpoint_step) == (8, 4)


def test_a_whole_block_without_its_end_is_ended_on_resume(folder: RunFolder) -> None:
    journal = FolderJournal(folder)
    first, *_ = BLOCKS
    journal.begin(first)
    journal.save(state(4))
    assert FolderJournal(folder).resume_point(BLOCKS, 4).next_step == 4
    assert folder.records.read()[-1] == {"kind": "block ended", "end": 4}
    assert FolderJournal(folder).resume_point(BLOCKS, 4).missing_end is None


def test_a_run_without_a_folder_keeps_nothing() -> None:
    journal = MemoryJournal()
    assert journal.labels(fresh_labels).tolist() == [1, 0, 1]
    journal.save(state(4))
    journal.begin(next(iter(BLOCKS)))
    journal.end(next(iter(BLOCKS)), 4)
    journal.record({"kind": "step"})
    assert journal.latest() is None
    assert journal.resume_point(BLOCKS, 0).next_step == 0


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
