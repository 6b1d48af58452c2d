"""Typical rows tell how tables of one round move each other's predictions."""

import dataclasses
import itertools

import numpy as np
import pytest

from tulle.quality.metrics import evaluate_predictions
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic import cell_training
from tulle.train.methods.mosaic.candidate_table import CandidateTable
from tulle.train.methods.mosaic.cell_likelihood import NoisyCells
from tulle.train.methods.mosaic.cell_model import cells_of_rows, sigmoid
from tulle.train.methods.mosaic.column_values import public_values, sensitive_values
from tulle.train.methods.mosaic.typical_rows import TypicalRows, typical_rows
from unit.train.methods.mosaic.test_cell_training import predict, trained
from unit.train.small_data import FEATURES, make_examples

_ROWS, _RATE = 20_000, 0.1


def columns(seed: int = 0) -> list[np.ndarray]:
    """Two public columns; the second one mostly follows the first."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 5, _ROWS)
    second = np.where(rng.random(_ROWS) < 0.8, first, rng.integers(0, 7, _ROWS))
    return [first.astype(np.int32), second.astype(np.int32)]


def table_of(place: int, ids: np.ndarray) -> CandidateTable:
    values = public_values(f"c{place}", place, np.bincount(ids))
    return CandidateTable([values], num_rows=_ROWS, spread=0.5, max_cells=1 << 10)


def sums_of(table: CandidateTable, ids: np.ndarray, log_odds: np.ndarray) -> np.ndarray:
    cells = cells_of_rows(table.parts, [ids])
    return np.bincount(cells, sigmoid(log_odds), minlength=table.num_cells)


def noisy(predicted: np.ndarray, residuals: np.ndarray) -> NoisyCells:
    return NoisyCells(
        residuals=residuals,
        predicted=predicted,
        residual_stddev=2.0,
        predicted_stddev=3.0,
        rate=_RATE,
    )


def test_sums_follow_the_change_of_another_table_as_a_new_scan_would() -> None:
    ids = columns()
    first, second = table_of(0, ids[0]), table_of(1, ids[1])
    steps = np.array([0, 4096, -4096, 2048, 0, 1000], np.int32)[: first.num_cells]
    rows = typical_rows(ids, _ROWS, rate=_RATE)
    base = np.full(_ROWS, np.log(_RATE / (1 - _RATE)))
    rows.begin_round(round(base[0] * 4096), [])
    rows.add(first, steps)
    before = sums_of(second, ids[1], base)
    changed = base + np.ldexp(steps[cells_of_rows(first.parts, [ids[0]])], -12)
    after = sums_of(second, ids[1], changed)
    occur = before > 0
    assert (np.abs(after[occur] / before[occur] - 1) > 0.1).any()
    found = rows.corrected(second, noisy(before, np.zeros_like(before)), None)
    assert found.predicted == pytest.approx(after, rel=0.01)
    assert found.residuals == pytest.approx(before - after, abs=0.01 * before.max())
    factor = found.predicted[occur] / before[occur]
    # The noise on the sum of predictions comes into the residuals as far as it is moved.
    assert found.residual_stddev[occur] == pytest.approx(np.hypot(2.0, 3.0 * (factor - 1)))
    assert found.predicted_stddev[occur] == pytest.approx(3.0 * factor)


def test_the_weights_of_the_table_itself_can_be_left_out() -> None:
    ids = columns()
    table = table_of(0, ids[0])
    own = np.arange(table.num_cells, dtype=np.int32) * 1000
    rows = typical_rows(ids, _ROWS, rate=_RATE)
    bias = round(np.log(_RATE / (1 - _RATE)) * 4096)
    rows.begin_round(bias, [(table, own)])
    cells = cells_of_rows(table.parts, [ids[0]])
    with_own = sums_of(table, ids[0], np.ldexp(bias + own[cells], -12))
    without = sums_of(table, ids[0], np.full(_ROWS, bias / 4096))
    found = rows.corrected(table, noisy(with_own, np.zeros(table.num_cells)), own)
    occur = with_own > 0
    assert found.predicted[occur] == pytest.approx(without[occur], rel=1e-3)


def test_a_cell_without_typical_rows_moves_by_its_own_weight_alone() -> None:
    ids = columns()
    table = table_of(0, ids[0])
    none = TypicalRows([one[:1] for one in ids], np.ones(1), rate=_RATE)
    none.begin_round(round(np.log(_RATE / (1 - _RATE)) * 4096), [])
    own = np.full(table.num_cells, 4096, np.int32)
    found = none.corrected(table, noisy(np.full(table.num_cells, 50.0), np.zeros(1)), own)
    odds = _RATE / (1 - _RATE) / np.e
    empty = np.delete(np.arange(table.num_cells), table.parts[0].lookup[ids[0][0]])
    assert found.predicted[empty] == pytest.approx(50 * odds / (1 + odds) / _RATE, rel=1e-3)


def test_the_order_of_rows_changes_nothing() -> None:
    ids, order = columns(), np.random.default_rng(1).permutation(_ROWS)
    one = typical_rows(ids, _ROWS, rate=_RATE)
    other = typical_rows([column[order] for column in ids], _ROWS, rate=_RATE)
    for name in ("public", 0), ("public", 1):
        assert np.array_equal(one._ids[name], other._ids[name])
    assert np.array_equal(one._weights, other._weights)


def test_a_sample_stands_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tulle.train.methods.mosaic.typical_rows._NUM_TYPICAL", 1000)
    rng = np.random.default_rng(2)
    # A few frequent rows and many that occur once.
    ids = [np.where(rng.random(_ROWS) < 0.5, 0, rng.integers(0, 1 << 20, _ROWS)).astype(np.int32)]
    rows = typical_rows(ids, _ROWS, rate=_RATE)
    assert 800 < len(rows._weights) < 1200
    assert rows._weights.sum() == pytest.approx(_ROWS, rel=0.1)
    # The frequent row has its exact weight, in parts that may differ in sensitive columns.
    is_frequent = rows._ids["public", 0] == 0
    assert rows._weights[is_frequent].sum() == pytest.approx((ids[0] == 0).sum())
    assert is_frequent.sum() > 100


def test_sensitive_values_are_drawn_as_often_as_noisy_counts_say() -> None:
    counts = np.array([1000.0, -40.0, 3000.0, 15.0, 0.0])
    likely = sensitive_values("s", 0, counts, 20.0)[0].likely
    assert likely is not None
    assert likely.tolist() == [1000.0, 0, 3000.0, 0, 0]
    rows = typical_rows(columns(), _ROWS, rate=_RATE)
    rows.draw([likely])
    drawn = np.bincount(rows._ids["sensitive", 0], minlength=5) / len(rows._weights)
    assert drawn == pytest.approx([0.25, 0, 0.75, 0, 0], abs=0.02)


def test_counts_that_are_all_noise_still_give_values() -> None:
    likely = sensitive_values("s", 0, np.array([3.0, -5.0, 8.0]), 20.0)[0].likely
    assert likely is not None
    assert (likely > 0).all()


def test_data_without_public_columns_have_typical_rows() -> None:
    rows = typical_rows([], 500, rate=_RATE)
    assert rows._weights.sum() == 500


def test_all_tables_of_a_round_are_measured_with_the_same_predictions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[int, list[np.ndarray]] = {}
    look = cell_training._CellTraining.look_at

    def look_at(self: object, table: CandidateTable, row_round: object) -> None:
        seen.setdefault(id(row_round), []).append(self._releases._rows._log_odds.copy())  # type: ignore[attr-defined]
        kept.append(row_round)
        look(self, table, row_round)  # type: ignore[arg-type]

    kept: list[object] = []
    monkeypatch.setattr(cell_training._CellTraining, "look_at", look_at)
    trained(make_examples(20_000, seed=1), 8.0)
    assert len(seen) >= 4
    assert any(len(ones) > 1 for ones in seen.values())
    for ones in seen.values():
        assert all(np.array_equal(ones[0], other) for other in ones)
    firsts = [ones[0] for ones in seen.values()]
    assert any(not np.array_equal(a, b) for a, b in itertools.pairwise(firsts))


def copied_columns(num_rows: int, seed: int) -> ExampleSet:
    """Rows whose public columns are about the same, so that each explains what the others do."""
    examples = make_examples(num_rows, seed=seed)
    public = examples.public_features.copy()
    public[:, 1] = np.minimum(public[:, 0], FEATURES[1].num_ids - 1)
    public[:, 2] = np.minimum(public[:, 0], FEATURES[2].num_ids - 1)
    return dataclasses.replace(examples, public_features=public)


def test_tables_of_one_round_do_not_explain_the_same_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, test = copied_columns(20_000, 1), copied_columns(5_000, 2)

    def log_loss() -> float:
        assert test.labels is not None
        return evaluate_predictions(test.labels, predict(trained(rows), test)).log_loss

    right = log_loss()
    monkeypatch.setattr(TypicalRows, "corrected", lambda _self, _table, sums, _own: sums)
    assert log_loss() > 1.05 * right
