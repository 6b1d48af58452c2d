"""The folder of a run: the one that was named, a new one, or the newest that is not finished."""

import os
from pathlib import Path

import pytest

from tulle.cli.train import output_folder
from tulle.cli.train_options import TrainOptions
from tulle.errors import RunStateError


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def folder_of(source: str = "a.csv", **options: object) -> Path:
    return output_folder(TrainOptions(source=[source], **options), "rr")  # type: ignore[arg-type]


def begin(path: Path, *, at: int, is_finished: bool = False) -> Path:
    path.mkdir(parents=True)
    (path / "run.json").write_text("{}")
    os.utime(path / "run.json", (at, at))
    if is_finished:
        (path / "card.json").write_text("{}")
    return path


def test_names_are_numbered_if_they_are_taken(runs: Path) -> None:
    assert folder_of() == Path("runs/rr-a")
    begin(runs / "rr-a", at=1)
    (runs / "rr-a-2").mkdir()
    assert folder_of() == Path("runs/rr-a-3")
    assert folder_of("logs/my data.tsv.gz") == Path("runs/rr-my-data")
    assert folder_of("synth:search") == Path("runs/rr-search")


def test_a_given_folder_is_never_changed(tmp_path: Path) -> None:
    begin(tmp_path / "a", at=1)
    with pytest.raises(RunStateError, match="a holds a run already; go on with it with --resume"):
        folder_of(output=Path("a"))
    (tmp_path / "half-made").mkdir()
    assert folder_of(output=Path("half-made")) == Path("half-made")
    assert folder_of(output=Path("a"), resume=True) == Path("a")


def test_the_newest_unfinished_run_goes_on(runs: Path) -> None:
    begin(runs / "rr-a", at=50)
    begin(runs / "rr-a-2", at=70)
    begin(runs / "rr-a-3", at=60)
    begin(runs / "rr-a-4", at=80, is_finished=True)
    begin(runs / "rr-a-b", at=90)
    (runs / "rr-a-5").mkdir()
    assert folder_of(resume=True) == Path("runs/rr-a-2")


def test_nothing_to_go_on_with_is_an_error(runs: Path) -> None:
    with pytest.raises(RunStateError, match="no unfinished run called rr-a; leave out"):
        folder_of(resume=True)
    begin(runs / "rr-a", at=50, is_finished=True)
    with pytest.raises(RunStateError, match="no unfinished run called rr-a; leave out"):
        folder_of(resume=True)
