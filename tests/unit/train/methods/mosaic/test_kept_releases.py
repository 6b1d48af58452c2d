"""A run of Mosaic that is killed goes on with the sums that it has released."""

import errno
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tulle.errors import RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.runs.charging import ReleaseCharge
from tulle.train.fitting import fit
from tulle.train.methods.mosaic import noise_shares
from tulle.train.methods.mosaic.cell_model import CellModel
from tulle.train.methods.mosaic.kept_releases import KeptReleases
from tulle.train.methods.mosaic.method import RELEASES_FILE
from tulle.train.methods.mosaic.noise_shares import NoiseShares
from tulle.train.methods.mosaic.trained_cells import TrainedCells
from tulle.train.run_context import RunOptions
from unit.train.methods.mosaic.test_cells_fit import CONFIG, CrashError, die
from unit.train.small_data import make_examples, make_ledger, planned

NUM_ROWS = 1_000
ROWS = make_examples(NUM_ROWS)


def run(folder: Path, **options: Any) -> CellModel:
    result = fit(ROWS, planned(CONFIG, NUM_ROWS), options=RunOptions(folder=folder, **options))
    assert isinstance(result.model.model, CellModel)
    return result.model.model


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[np.ndarray]]:
    """All noise that is drawn, and a crash right after the last that is asked for."""
    draw, found = noise_shares.sample_rounded_normal, []

    def noting(*data: Any, **more: Any) -> np.ndarray:
        found.append(draw(*data, **more))
        return found[-1].copy()

    monkeypatch.setattr(noise_shares, "sample_rounded_normal", noting)
    return found


def crash_after(
    number: int, monkeypatch: pytest.MonkeyPatch, *, left: float = math.inf
) -> list[np.ndarray]:
    """Kills the run when so many sums are on disk since it had at most so much of its budget left.

    How many sums a run asks for depends on its noise, and so a place late in the run is told by
    what is left.

    Returns:
      The sums that were put on disk.
    """
    keep, kept, late, whole = KeptReleases.keep, [], [], []

    def keeping(self: KeptReleases, noisy: np.ndarray, **asked: float) -> None:
        keep(self, noisy, **asked)
        kept.append(noisy)
        whole.append(asked["left"])
        if asked["left"] <= left * whole[0]:
            late.append(noisy)
        if len(late) == number:
            die()

    monkeypatch.setattr(KeptReleases, "keep", keeping)
    return kept


def said(path: Path) -> list[dict[str, Any]]:
    """What was asked for in each record of a file."""
    records, content = [], path.read_bytes()
    while content:
        line, content = content.split(b"\n", 1)
        records.append(json.loads(line))
        content = content[8 * int(np.prod(records[-1]["shape"], dtype=int)) :]
    return records


def test_a_killed_run_draws_no_sum_twice_and_pays_once(
    tmp_path: Path, drawn: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, (number, left) in enumerate([(1, 1.0), (2, 1.0), (1, 0.4), (1, 0.05)]):
        drawn.clear()
        own = ReleaseCharge(ledger=make_ledger(folder_for(tmp_path, place)), purpose="training")
        folder = tmp_path / f"run {place}"
        with monkeypatch.context() as patch:
            kept = crash_after(number, patch, left=left)
            with pytest.raises(CrashError):
                run(folder, charge=own)
        number = len(kept)
        assert len(drawn) == number >= place
        before = (folder / RELEASES_FILE).read_bytes()
        with monkeypatch.context() as patch:
            crash_after(1, patch)
            with pytest.raises(CrashError):
                run(folder, charge=own, resume=True)
        # What was there stays as it was, and one more sum was drawn.
        assert (folder / RELEASES_FILE).read_bytes().startswith(before)
        assert len(drawn) == number + 1
        run(folder, charge=own, resume=True)
        assert len(own.ledger.spends("all")) == 1
        assert not (folder / RELEASES_FILE).exists()


def folder_for(tmp_path: Path, number: int) -> Path:
    folder = tmp_path / f"ledger {number}"
    folder.mkdir()
    return folder


def test_a_run_whose_sums_are_all_there_draws_nothing_and_makes_the_same_model(
    tmp_path: Path, drawn: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[CellModel] = []

    def dying(model: CellModel, *_features: Any) -> TrainedCells:
        made.append(model)
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(TrainedCells, "of", dying)
        with pytest.raises(CrashError):
            run(tmp_path / "run")
    records = said(tmp_path / "run" / RELEASES_FILE)
    assert len(records) == len(drawn) > 10
    lefts = [record["left"] for record in records]
    assert lefts == sorted(lefts, reverse=True)
    drawn.clear()
    model = run(tmp_path / "run", resume=True)
    assert not drawn
    (first,) = made
    assert model.heads[0].bias == first.heads[0].bias
    for one, other in zip(model.tables, first.tables, strict=True):
        assert np.array_equal(one.weights, other.weights)


def test_sums_are_on_disk_before_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sums"
    seen: list[int] = []
    sync = os.fsync

    def noting(file: int) -> None:
        seen.append(os.fstat(file).st_size)
        sync(file)

    monkeypatch.setattr(os, "fsync", noting)
    shares = NoiseShares(1.0, rng=SeededNoise(1), kept=KeptReleases(path))
    shares.release(lambda weight: np.array([weight]), sensitivity=1.0, share=0.5)
    assert path.stat().st_size in seen


@pytest.mark.parametrize("missing", [1, 8, 30])
def test_a_record_that_was_cut_off_is_never_drawn_again(tmp_path: Path, missing: int) -> None:
    path = tmp_path / "sums"
    KeptReleases(path).keep(np.arange(4), sensitivity=1.0, left=9)
    content = path.read_bytes()
    path.write_bytes(content[:-missing])
    with pytest.raises(RunStateError, match="was cut off while it was written, and no sum is"):
        KeptReleases(path)
    path.write_bytes(content + b'{"shape": [2], "sens')
    with pytest.raises(RunStateError, match="was cut off while it was written"):
        KeptReleases(path)


def test_a_changed_number_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "sums"
    KeptReleases(path).keep(np.arange(4), sensitivity=1.0, left=9)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunStateError, match="is damaged"):
        KeptReleases(path).taken_up((4,), sensitivity=1.0, left=9)


@pytest.mark.parametrize(
    ("shape", "asked"),
    [
        ((5,), {"sensitivity": 1.0, "left": 9}),
        ((2, 2), {"sensitivity": 1.0, "left": 9}),
        ((4,), {"sensitivity": 1.5, "left": 9}),
        ((4,), {"sensitivity": 1.0, "left": 8}),
    ],
)
def test_sums_that_were_asked_for_otherwise_are_not_taken(
    tmp_path: Path, shape: tuple[int, ...], asked: dict[str, float]
) -> None:
    path = tmp_path / "sums"
    KeptReleases(path).keep(np.arange(4), sensitivity=1.0, left=9)
    with pytest.raises(RunStateError, match="other sums than this run asks for"):
        KeptReleases(path).taken_up(shape, **asked)


def test_numbers_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "sums"
    sums = [np.array([[-(1 << 62), 3], [0, 1 << 62]]), np.zeros(0, np.int64), np.arange(3)]
    kept = KeptReleases(path)
    for one in sums:
        kept.keep(one, sensitivity=1.0, left=1)
    again = KeptReleases(path)
    for one in sums:
        found = again.taken_up(one.shape, sensitivity=1.0, left=1)
        assert found is not None
        assert found.dtype == np.int64
        assert np.array_equal(found, one)
    assert again.taken_up((1,), sensitivity=1.0, left=1) is None


def test_a_full_disk_leaves_no_half_of_a_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(RunStateError, match="No space left on device"):
            run(tmp_path / "run")
    assert not (tmp_path / "run" / RELEASES_FILE).exists()
    run(tmp_path / "run", resume=True)


def test_other_data_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        crash_after(3, patch)
        with pytest.raises(CrashError):
            run(tmp_path / "run")
    with pytest.raises(RunStateError, match="data_fingerprint"):
        fit(
            make_examples(NUM_ROWS, seed=5),
            planned(CONFIG, NUM_ROWS),
            options=RunOptions(folder=tmp_path / "run", resume=True),
        )
