import multiprocessing
from pathlib import Path

import pytest

from tulle.cli.train import _joined as processes_of
from tulle.cli.train_options import TrainOptions
from tulle.errors import ConfigError
from tulle.train.steps.processes import torch_processes
from unit.cli.train_commands import SYNTH, error_of, facts_of

SMALL = (
    f"train {SYNTH} --method dp-sgd --epsilon 3 --delta 1e-5 --model lr --optimizer sgd "
    "--learning-rate 0.1 --epochs 1 --batch-size 100 --test-fraction 0.3"
)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_processes_that_the_command_starts_share_the_steps_and_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts = facts_of(f"{SMALL} --processes 2", capsys)
    assert facts["steps_lost"] == 0
    assert facts["epsilon"] == 3
    assert multiprocessing.active_children() == []


def test_what_one_process_refuses_is_refused_once_and_nothing_is_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = f"train {SYNTH} --method rr --epsilon 3 --model lr --processes 2"
    assert "one process" in error_of(text, 2, capsys)
    assert not list(Path("runs").glob("rr*/records.jsonl"))
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("options", [TrainOptions(), TrainOptions(processes=1)])
def test_one_process_joins_nobody(options: TrainOptions) -> None:
    with processes_of(options) as processes:
        assert processes is None


def test_one_process_of_torchrun_joins_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with processes_of(TrainOptions()) as processes:
        assert processes is None


@pytest.mark.parametrize(
    ("size", "options", "message"),
    [
        ("3", TrainOptions(processes=2), "--processes 2 is not the number"),
        ("two", TrainOptions(), "WORLD_SIZE='two'"),
        ("2", TrainOptions(), "MASTER_ADDR is not in the environment"),
    ],
)
def test_wrong_numbers_of_processes_are_refused(
    size: str, options: TrainOptions, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(ConfigError, match=message), processes_of(options):
        pass


def test_nobody_is_started_for_data_that_are_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(
        torch_processes, "local_processes", lambda *given, **_: started.append(given)
    )
    text = "train nowhere --method dp-sgd --epsilon 3 --processes 2"
    assert "nowhere does not exist" in error_of(text, 4, capsys)
    assert started == []
