import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tulle.scratch_folders import scratch_folder

PREFIX = "tulle-scratch-"

DIE_INSIDE = """
import os, tempfile
from tulle.scratch_folders import scratch_folder

with scratch_folder("tulle-scratch-") as folder:
    (folder / "rows").mkdir()
    (folder / "rows" / "spilled").write_text("sensitive")
    os._exit(9)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def abandoned(temporary: Path) -> Path:
    """A folder whose process was killed while it used it."""
    killed = subprocess.run(
        [sys.executable, "-c", DIE_INSIDE],
        env=os.environ | {"TMPDIR": str(temporary)},
        check=False,
    )
    assert killed.returncode == 9
    (folder,) = temporary.iterdir()
    assert (folder / "files" / "rows" / "spilled").exists()
    return folder


def use_another(prefix: str = PREFIX) -> None:
    with scratch_folder(prefix):
        pass


def test_a_folder_is_empty_closed_to_others_and_gone_at_the_end(temporary: Path) -> None:
    with scratch_folder(PREFIX) as folder:
        assert list(folder.iterdir()) == []
        (outer,) = temporary.iterdir()
        assert outer.name.startswith(PREFIX)
        assert outer.stat().st_mode & 0o777 == 0o700
        (folder / "rows").write_text("sensitive")
    assert list(temporary.iterdir()) == []


def test_a_folder_is_gone_after_an_error(temporary: Path) -> None:
    with pytest.raises(ZeroDivisionError), scratch_folder(PREFIX):
        raise ZeroDivisionError
    assert list(temporary.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next(
    abandoned: Path, temporary: Path
) -> None:
    with scratch_folder(PREFIX) as folder:
        assert not abandoned.exists()
        assert list(temporary.iterdir()) == [folder.parent]


def test_a_folder_in_use_is_left_alone() -> None:
    with scratch_folder(PREFIX) as first:
        (first / "rows").write_text("in use")
        with scratch_folder(PREFIX) as second:
            assert second != first
            assert (first / "rows").read_text() == "in use"


def test_a_folder_in_use_by_another_process_is_left_alone(temporary: Path) -> None:
    waiting = DIE_INSIDE.replace("os._exit(9)", "print(folder, flush=True); input()")
    with subprocess.Popen(
        [sys.executable, "-c", waiting],
        env=os.environ | {"TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        folder = Path(other.stdout.readline().strip())
        use_another()
        assert (folder / "rows" / "spilled").read_text() == "sensitive"
        other.communicate("\n")
    assert not folder.exists()


def test_folders_of_another_prefix_are_left_alone(abandoned: Path) -> None:
    use_another("tulle-other-")
    assert abandoned.exists()


def test_folders_of_another_user_are_left_alone(
    abandoned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: user)
    use_another()
    assert abandoned.exists()


def test_what_is_no_scratch_folder_is_left_alone(temporary: Path) -> None:
    filled, linked, file = (temporary / f"{PREFIX}{name}" for name in ("filled", "link", "file"))
    filled.mkdir()
    (filled / "thesis").write_text("of somebody else")
    (temporary / "target").mkdir()
    linked.symlink_to(temporary / "target")
    file.write_text("a file")
    use_another()
    assert (filled / "thesis").exists()
    assert linked.is_symlink()
    assert (temporary / "target").exists()
    assert file.exists()


def test_a_process_killed_before_it_had_its_lock_leaves_nothing_for_long(temporary: Path) -> None:
    (temporary / f"{PREFIX}begun").mkdir()
    (temporary / f"{PREFIX}locked").mkdir()
    (temporary / f"{PREFIX}locked" / "lock").touch()
    use_another()
    assert list(temporary.iterdir()) == []


def test_a_removal_that_was_cut_off_is_completed_by_the_next(
    abandoned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", stop)
        with pytest.raises(KeyboardInterrupt):
            use_another()
    assert abandoned.exists()
    use_another()
    assert not abandoned.exists()


@pytest.mark.parametrize(("module", "name"), [(tempfile, "mkdtemp"), (fcntl, "flock")])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_folder_that_is_swept_while_it_is_made_is_made_again(
    module: object, name: str, when: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[..., object] = getattr(module, name)

    def with_sweep(*arguments: object, **options: object) -> object:
        monkeypatch.setattr(module, name, original)
        if when == "before":
            use_another()
        result = original(*arguments, **options)
        if when == "after":
            use_another()
        return result

    monkeypatch.setattr(module, name, with_sweep)
    with scratch_folder(PREFIX) as folder:
        assert getattr(module, name) is original
        (folder / "rows").write_text("mine")
        use_another()
        assert (folder / "rows").read_text() == "mine"
    assert list(temporary.iterdir()) == []


def test_without_locks_nobody_removes_the_folder_of_another(
    abandoned: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_supported(_file: int, _operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", not_supported)
    use_another()
    assert list(temporary.iterdir()) == [abandoned]
