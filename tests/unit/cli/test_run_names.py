import os
from pathlib import Path

import pytest

from tulle.cli.run_names import find_run, new_run
from tulle.errors import ConfigError, RunStateError


def begin(path: Path, *, at: int, is_finished: bool = False) -> Path:
    path.mkdir(parents=True)
    (path / "run.json").write_text("{}")
    os.utime(path / "run.json", (at, at))
    if is_finished:
        (path / "card.json").write_text("{}")
    return path


def test_names_are_numbered_if_they_are_taken(tmp_path: Path) -> None:
    assert new_run(tmp_path, None, "rr-a") == tmp_path / "rr-a"
    begin(tmp_path / "rr-a", at=1)
    (tmp_path / "rr-a-2").mkdir()
    assert new_run(tmp_path, None, "rr-a") == tmp_path / "rr-a-3"
    assert new_run(tmp_path, None, "rr-my data/x") == tmp_path / "rr-my-data-x"


def test_a_given_name_is_never_changed(tmp_path: Path) -> None:
    begin(tmp_path / "a", at=1)
    with pytest.raises(RunStateError, match="run a is there already"):
        new_run(tmp_path, "a", "b")
    (tmp_path / "half-made").mkdir()
    assert new_run(tmp_path, "half-made", "b") == tmp_path / "half-made"


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "-x", "a b"])
def test_a_name_is_no_path(name: str, tmp_path: Path) -> None:
    for find in (new_run, find_run):
        with pytest.raises(ConfigError, match="must be letters"):
            find(tmp_path, name, "b")


def test_the_newest_unfinished_run_goes_on(tmp_path: Path) -> None:
    begin(tmp_path / "rr-a", at=50)
    begin(tmp_path / "rr-a-2", at=70)
    begin(tmp_path / "rr-a-3", at=60)
    begin(tmp_path / "rr-a-4", at=80, is_finished=True)
    begin(tmp_path / "rr-a-b", at=90)
    (tmp_path / "rr-a-5").mkdir()
    assert find_run(tmp_path, None, "rr-a") == tmp_path / "rr-a-2"
    assert find_run(tmp_path, "rr-a-4", "rr-a") == tmp_path / "rr-a-4"


def test_nothing_to_go_on_with_is_an_error(tmp_path: Path) -> None:
    begin(tmp_path / "rr-a", at=50, is_finished=True)
    for runs in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunStateError, match="no unfinished run called rr-a; leave out"):
            find_run(runs, None, "rr-a")
