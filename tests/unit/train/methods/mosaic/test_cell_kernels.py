"""The loops in C are those of numpy in any threads, and a run does not show which ones it had."""

import os
import warnings
from typing import Any

import numpy as np
import pytest

from tulle import compiled_code
from tulle.errors import DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic import cell_kernels, cell_sums, row_numbers, row_threads
from tulle.train.methods.mosaic.cell_kernels import compiled_loops, loops_over_rows
from tulle.train.methods.mosaic.cell_model import CellPart
from tulle.train.methods.mosaic.cell_sums import probabilities
from tulle.train.methods.mosaic.label_parts import LABEL_BITS
from tulle.train.methods.mosaic.method import MosaicConfig
from tulle.train.methods.mosaic.row_loops import NumpyLoops
from tulle.train.methods.mosaic.row_numbers import Probabilities, RowRules
from tulle.train.settings.units import ExampleLevel, UnitLevel, UserLevel
from unit.train.methods.mosaic.test_replayed_classes import config_of, examples_of_classes
from unit.train.methods.mosaic.test_replayed_run import Recorded, examples_of_users, noise, run
from unit.train.methods.mosaic.test_row_loops import Loops, compiled, with_threads
from unit.train.methods.mosaic.test_user_labels import rare_labels
from unit.train.methods.mosaic.test_values_training import amounts
from unit.train.methods.mosaic.test_values_training import config as config_of_values
from unit.train.small_data import make_examples

_CELLS = 3
_ONE = 1 << 30


def test_c_is_handed_nothing_that_it_would_read_in_another_way() -> None:
    loops, places = compiled(), np.zeros(4, np.int32)
    numbers = np.ones(1, np.int64)
    for totals in (np.zeros(8, np.int64)[::2], np.zeros(4), np.zeros(4, np.int16)):
        with pytest.raises(DataError, match="in place"):
            loops.add_lookups(totals, numbers, places)
    frozen = np.zeros(4, np.int64)
    frozen.flags.writeable = False
    with pytest.raises(DataError, match="in place"):
        loops.pay(np.zeros(4, np.int64), np.ones(4, np.int64), frozen, None)
    for wrong in (np.ones(4), np.full(4, 2**31), np.zeros((4, 1), np.int32)):
        with pytest.raises(DataError, match="numbers of rows"):
            loops.label_sums(places, wrong, np.int64(1), 1)
    right = probabilities()
    short = right._replace(predicted=right.predicted[1:])
    with pytest.raises(DataError, match="table of probabilities"):
        loops.row_sums(places, places, places, np.int64(1), short, 1, RowRules())
    # What lies in memory in another way is copied.
    strided = np.arange(8)[::2]
    assert loops.exact_sums(places, strided, 1).tolist() == [12]


def many_rows(num_rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(num_rows)
    return {
        "cells": rng.integers(0, _CELLS, num_rows).astype(np.int32),
        "labels": rng.choice([0, 0, _ONE, 12_345, _ONE - 1], num_rows).astype(np.int32),
        "log_odds": rng.integers(-70_000, 70_000, num_rows).astype(np.int32),
        "weights": rng.integers(0, _ONE, num_rows, endpoint=True),
        "limits": rng.integers(1 << 59, 1 << 60, num_rows),
        "caps": rng.integers(0, _ONE, num_rows).astype(np.int32),
        "ids": rng.integers(0, 99, num_rows).astype(np.uint8),
    }


def all_results(loops: Loops, rows: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What all loops make of some rows."""
    places, own_labels, steps, own = (
        rows[name] for name in ("cells", "labels", "log_odds", "weights")
    )
    table, wanted = probabilities(), np.array([7, 1 << 40, 1 << 20])
    lookup = (np.arange(99) % _CELLS).astype(np.int32)
    part = CellPart(role="public", column=0, lookup=lookup, size=_CELLS)
    totals, spent, moved = np.full(len(own), 1 << 41), np.zeros(len(own), np.int64), steps.copy()
    results = [
        loops.cells([part, part], [rows["ids"], rows["ids"]]),
        loops.exact_sums(places, own, _CELLS),
        loops.exact_sums(places, np.int64(1), _CELLS),
        loops.label_sums(places, own_labels, own, _CELLS),
        loops.predicted(places, steps, None, own, np.array([20, -3, 0], np.int8), table),
    ]
    for rules in (RowRules(), RowRules(True, True), RowRules(caps=rows["caps"], offsets=-places)):
        results.append(loops.row_sums(places, own_labels, steps, own, table, _CELLS, rules))
        one = np.int64(12_345)
        results.append(loops.row_sums(places, own_labels, steps, one, table, _CELLS, rules))
    loops.add_lookups(totals, wanted, places)
    loops.add_lookups(moved, np.array([-3, 0, 5], np.int32), places)
    paid = loops.weights(wanted, places, totals, rows["limits"], None)
    assert loops.pay(paid, rows["limits"], spent, None)
    loops.add_products(totals, wanted >> 30, places, paid)
    return [*results, totals, moved, paid, spent]


@pytest.mark.parametrize("num_rows", [0, 1, 7, 16, 127, 128, 129, 1_000, 5_003])
@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_all_numbers_of_any_threads_are_those_of_numpy(
    num_rows: int, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_threads(monkeypatch, num_threads)
    rows = many_rows(num_rows)
    pairs = zip(all_results(compiled(), rows), all_results(NumpyLoops(), rows), strict=True)
    for found, expected in pairs:
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)


def test_an_error_of_a_thread_is_that_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    loops = compiled()
    with_threads(monkeypatch, 5)
    places = np.zeros(1_000, np.int32)
    places[900] = 1
    with pytest.raises(DataError, match="a cell"):
        loops.exact_sums(places, np.int64(1), 1)


@pytest.mark.parametrize(
    ("wanted", "num_rows", "found"),
    [
        (None, 1 << 22, 6),
        ("2", 1 << 22, 2),
        ("3,1", 1 << 22, 3),
        ("64", 1 << 22, 6),
        ("none", 1 << 22, 6),
        (None, 1 << 18, 2),
        (None, (1 << 18) - 1, 1),
        (None, 0, 1),
    ],
)
def test_threads_are_as_many_as_cores_and_no_more_than_are_allowed(
    wanted: str | None, num_rows: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_threads, "_num_cores", lambda: 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if wanted is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", wanted)
    assert row_threads.num_threads(num_rows) == found


def test_a_forked_process_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    loops, rows = compiled(), np.zeros(1_000, np.int32)
    with_threads(monkeypatch, 2)
    assert loops.exact_sums(rows, np.int64(1), 1).tolist() == [1_000]
    with warnings.catch_warnings():
        # Later versions of Python warn of forks beside threads, which is what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        os._exit(int(loops.exact_sums(rows, np.int64(1), 1)[0]) != 1_000)
    assert os.waitpid(process, 0)[1] == 0


def test_few_rows_are_not_worth_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_kernels, "compiled_loops", lambda: "compiled")
    assert isinstance(loops_over_rows(1_000), NumpyLoops)
    assert loops_over_rows(1_000_000) == "compiled"


def test_without_a_compiler_numpy_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_code.shutil, "which", lambda _: None)
    assert compiled_loops.__wrapped__() is None
    monkeypatch.setattr(cell_kernels, "compiled_loops", lambda: None)
    assert isinstance(loops_over_rows(1_000_000), NumpyLoops)


def test_both_have_the_same_parts_of_2_to_the_30() -> None:
    assert LABEL_BITS == cell_sums.PROBABILITY_BITS == row_numbers.PART_BITS == 30
    assert row_numbers.MOST_CHARGED == 1 << 30


_RUNS: dict[str, tuple[ExampleSet, UnitLevel, MosaicConfig | None]] = {
    "rows": (make_examples(1_500, seed=1), ExampleLevel(), None),
    "users": (examples_of_users(), UserLevel(), None),
    "users with divided labels": (rare_labels(), UserLevel(), None),
    "values": (amounts(1_500, seed=1), ExampleLevel(), config_of_values()),
    "classes": (examples_of_classes(3), ExampleLevel(), config_of(3)),
}


def released(kind: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[np.ndarray], bytes]:
    """All raw sums of a seeded run, and all numbers of its model."""
    examples, unit, config = _RUNS[kind]
    shares = Recorded(noise(), rng=SeededNoise(5))
    chosen = {} if config is None else {"config": config}
    model = run(examples, shares, monkeypatch, unit, **chosen)
    numbers = [np.array([head.bias for head in model.heads])]
    for table in model.tables:
        assert table.stddevs is not None
        numbers += [table.weights, table.stddevs, np.array([table.share, table.importance])]
    return [release.raw for release in shares.releases], b"".join(n.tobytes() for n in numbers)


@pytest.mark.parametrize("kind", _RUNS)
def test_a_run_is_the_same_with_and_without_a_compiler_in_any_threads(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops = compiled()
    used: list[str] = []
    called = cell_kernels.called

    def noting(function: Any, *data: Any) -> int:
        used.append(function.__name__)
        return called(function, *data)

    monkeypatch.setattr(cell_kernels, "called", noting)
    monkeypatch.setattr(cell_kernels, "_LEAST_ROWS", 0)
    monkeypatch.setattr(cell_kernels, "compiled_loops", lambda: None)
    expected, model = released(kind, monkeypatch)
    assert not used
    monkeypatch.setattr(cell_kernels, "compiled_loops", lambda: loops)
    for number in (1, 2, 5):
        with_threads(monkeypatch, number)
        sums, same = released(kind, monkeypatch)
        assert len(sums) == len(expected)
        assert all(np.array_equal(a, b) for a, b in zip(sums, expected, strict=True))
        assert same == model
    assert {"sum_rows", "sum_terms", "charge", "find_weights", "add_lookups_32"} <= set(used)


def test_other_roundings_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: factors that are one part of 2^30 too large change the sums of a run."""
    expected, _ = released("rows", monkeypatch)
    right = probabilities()
    factors = np.where(right.factors < _ONE, right.factors + 1, _ONE).astype(np.int32)
    wrong = Probabilities(right.predicted, right.capped, factors, right.most)
    monkeypatch.setattr(cell_sums, "probabilities", lambda *_most: wrong)
    sums, _ = released("rows", monkeypatch)
    assert any(not np.array_equal(a, b) for a, b in zip(sums, expected, strict=True))
