"""One release for one payment, for every job: at any cut, on a full disk, and when repeated."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract.release_jobs import JOBS, Job, Labels, Train
from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.accounting.refusal import SpendRefusedError
from tulle.errors import DataError, RunStateError
from tulle.runs.release_files import ReleaseFiles
from tulle.train import fitting

SOURCE = Path(__file__).parents[2] / "src" / "tulle"
OPERATIONS = (
    *((os, name) for name in ("replace", "link", "unlink", "rename", "fsync")),
    *((Ledger, name) for name in ("spend", "_finish")),
)
"""What changes disk or ledger. A process that is killed has done some of them, and no more."""
LEAST_CUTS = 6
each_job = pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)


class KilledError(BaseException):
    """The process dies here."""


class Kill:
    """Lets a process do some operations, and none after that, not even to clean up."""

    def __init__(self, num_operations: int) -> None:
        self._num_left = num_operations
        self.is_dead = False

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        for owner, name in OPERATIONS:
            patch.setattr(owner, name, self._watched(getattr(owner, name)))

    def _watched(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self.is_dead or self._num_left == 0:
                self.is_dead = True
                raise KilledError
            self._num_left -= 1
            return operation(*arguments, **options)

        return call


def run_killed(job: Job, folder: Path, num_operations: int) -> bool:
    """Whether the command was killed before its end."""
    kill = Kill(num_operations)
    with pytest.MonkeyPatch.context() as patch:
        kill.patch(patch)
        with contextlib.suppress(KilledError):
            job.run(folder)
    return kill.is_dead


def check_every_cut(job: Job, folder: Path) -> int:
    """Kills the command after each operation, looks, and repeats it; gives the number of cuts."""
    num_cuts = 0
    while True:
        home = folder / f"{num_cuts}"
        job.prepare(home)
        if not run_killed(job, home, num_cuts):
            return num_cuts
        where = f"{job.name} after {num_cuts} operations"
        seen, paid = job.shown(home), job.statuses(home)
        assert len(paid) <= 1, where
        if seen is not None:
            assert paid == [SpendStatus.RELEASED], where
        job.run(home)
        assert job.statuses(home) == [SpendStatus.RELEASED], where
        out = job.shown(home)
        assert out is not None, where
        if seen is not None:
            assert out.startswith(seen), where  # What was seen is not drawn a second time.
        job.run(home)
        assert job.shown(home) == out, where
        assert job.statuses(home) == [SpendStatus.RELEASED], where
        num_cuts += 1


@each_job
def test_nothing_unpaid_gets_out_and_nothing_is_paid_twice_at_any_cut(
    job: Job, tmp_path: Path
) -> None:
    assert check_every_cut(job, tmp_path) >= LEAST_CUTS


def test_a_file_that_has_its_name_too_early_would_be_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide = ReleaseFiles.hide_record

    def eager(files: ReleaseFiles[Any], record: Any) -> None:
        hide(files, record)
        os.link(files.hidden_table, files.table)

    monkeypatch.setattr(ReleaseFiles, "hide_record", eager)
    with pytest.raises(AssertionError, match="labels after"):
        check_every_cut(Labels(), tmp_path)


def test_training_that_is_not_charged_first_would_be_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "charge_run", lambda *_, **__: None)
    with pytest.raises(AssertionError, match="train after"):
        check_every_cut(Train(), tmp_path)


@each_job
def test_a_repeated_command_finds_the_first(job: Job, tmp_path: Path) -> None:
    job.prepare(tmp_path)
    first = job.run(tmp_path)
    content = job.shown(tmp_path)
    assert content is not None
    assert not first.is_stored
    second = job.run(tmp_path)
    assert job.shown(tmp_path) == content
    assert second.card.plan == first.card.plan
    assert second.path == first.path == job.output(tmp_path)
    assert second.is_stored == (job.name != "train")
    assert job.statuses(tmp_path) == [SpendStatus.RELEASED]


@each_job
def test_a_second_release_is_paid_anew(job: Job, tmp_path: Path) -> None:
    job.prepare(tmp_path)
    job.run(tmp_path)
    again = job.run(tmp_path, "second", again=True)
    assert not again.is_stored
    assert job.shown(tmp_path, "second") is not None
    assert job.statuses(tmp_path) == [SpendStatus.RELEASED] * 2


@each_job
def test_data_that_cannot_be_used_cost_nothing(job: Job, tmp_path: Path) -> None:
    job.prepare(tmp_path)
    job.spoil_data(tmp_path)
    with pytest.raises(DataError):
        job.run(tmp_path)
    assert job.statuses(tmp_path) == []
    assert job.shown(tmp_path) is None


@each_job
def test_what_the_budget_does_not_cover_is_not_drawn(job: Job, tmp_path: Path) -> None:
    job.prepare(tmp_path, num_releases=0)
    with pytest.raises(SpendRefusedError):
        job.run(tmp_path)
    assert job.statuses(tmp_path) == []
    assert job.shown(tmp_path) is None


@each_job
def test_a_name_that_is_taken_is_left_alone_and_costs_nothing(job: Job, tmp_path: Path) -> None:
    job.prepare(tmp_path)
    taken = job.output(tmp_path)
    taken.parent.mkdir(exist_ok=True)
    taken.write_text("mine")
    with pytest.raises(RunStateError, match=r"exists|is a file"):
        job.run(tmp_path)
    assert taken.read_text() == "mine"
    assert job.statuses(tmp_path) == []


@each_job
def test_a_full_disk_lets_nothing_out_and_the_same_command_ends_it_for_one_payment(
    job: Job, tmp_path: Path
) -> None:
    job.prepare(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        fill_disk(patch, job.output(tmp_path))
        with pytest.raises(RunStateError, match="No space left"):
            job.run(tmp_path)
    assert job.shown(tmp_path) is None
    assert len(job.statuses(tmp_path)) <= 1
    assert SpendStatus.RELEASED not in job.statuses(tmp_path)
    job.run(tmp_path)
    assert job.shown(tmp_path) is not None
    assert job.statuses(tmp_path) == [SpendStatus.RELEASED]


def fill_disk(patch: pytest.MonkeyPatch, output: Path) -> None:
    """Refuses to write the output and what is hidden beside or in it, and nothing else."""
    real_open, real_fsync = os.open, os.fsync

    def is_full(path: Path) -> bool:
        return output in (path, *path.parents) or path.name.startswith(f".{output.stem}")

    def full_open(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and is_full(Path(path)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_open(path, flags, *rest, **options)

    def full_fsync(descriptor: int) -> None:
        if is_full(Path(os.readlink(f"/proc/self/fd/{descriptor}"))):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real_fsync(descriptor)

    patch.setattr(os, "open", full_open)
    patch.setattr(os, "fsync", full_fsync)


def test_every_job_that_releases_is_listed() -> None:
    calls = ("release_once(", "charge_run(")
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(call in path.read_text(encoding="utf-8") for call in calls)
    }
    found -= {"runs/release_once.py", "train/run_charge.py"}
    assert found == {source for job in JOBS for source in job.sources}
