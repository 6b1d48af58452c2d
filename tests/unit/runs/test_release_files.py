"""Where a release goes, and which outputs are refused before anything is read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tulle.errors import ConfigError
from tulle.runs.release_files import ReleasePlace, check_output, releasing_to


def release(folder: Path, write: Callable[[ReleasePlace], None]) -> None:
    with releasing_to(folder, name="x.json", charge=None, has_folder=True) as place:
        write(place)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("noisy.csv", r"output='.*noisy\.csv' must end in \.parquet or \.jsonl"),
        ("noisy.PARQUET", r"must end in \.parquet"),
        ("nowhere/noisy.parquet", "in no folder that exists; make it first"),
        ("raw.parquet", "is a file that is read; name another"),
    ],
)
def test_an_output_that_cannot_be_is_refused_by_its_name(
    output: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_output(
            tmp_path / output,
            endings=(".parquet", ".jsonl"),
            inputs=[tmp_path / "raw.parquet"],
        )


def test_a_new_file_in_a_folder_is_fine(tmp_path: Path) -> None:
    check_output(tmp_path / "noisy.parquet", endings=(".parquet",))
    check_output(tmp_path / "noisy.csv")


def test_a_folder_is_made_and_goes_if_nothing_came_into_it(tmp_path: Path) -> None:
    def stopped(place: ReleasePlace) -> None:
        assert place.path == tmp_path / "a" / "b" / "x.json"
        assert place.path.parent.is_dir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        release(tmp_path / "a" / "b", stopped)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_stays(tmp_path: Path) -> None:
    def stopped(place: ReleasePlace) -> None:
        place.path.write_text("drawn")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        release(tmp_path / "a", stopped)
    assert (tmp_path / "a" / "x.json").read_text() == "drawn"


def test_a_release_in_memory_leaves_no_folder_behind() -> None:
    with releasing_to(None, name="x.json", charge=None, has_folder=True) as place:
        assert not place.is_kept
        scratch = place.path.parent
        assert scratch.is_dir()
    assert not scratch.exists()
