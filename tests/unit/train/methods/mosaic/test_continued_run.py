"""Runs that continue from a released model: what they tell, and what they must not use too early.

The replayed runs of `test_replayed_run` once more, with an earlier model as start. The earlier
model is public for the run: it was released before. So nothing but its use in the wrong phase can
make such a run tell more than one Gaussian.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import pytest

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic import cell_training, earlier_tables, few_rows
from tulle.train.methods.mosaic.candidate_table import CandidateTable
from tulle.train.methods.mosaic.cell_model import CellModel, CellPart
from tulle.train.methods.mosaic.cell_releases import CellReleases
from tulle.train.methods.mosaic.cell_sums import Cells
from tulle.train.methods.mosaic.earlier_model import EarlierModel, StartModel
from tulle.train.methods.mosaic.method import CellSettings, MosaicConfig
from tulle.train.methods.mosaic.share_allocation import RowRound
from tulle.train.methods.mosaic.typical_rows import TypicalRows, typical_rows
from tulle.train.settings.units import ExampleLevel, UnitLevel, UserLevel
from unit.train.methods.mosaic.test_cell_training import auc_loss, context, trained
from unit.train.methods.mosaic.test_replayed_run import (
    Recorded,
    Replayed,
    check_told,
    examples_of_users,
    large_user,
    noise,
    replaced,
    replaced_user,
    worst_neighbour,
)
from unit.train.small_data import FEATURES, make_examples, planned

_ROWS = 3_000
_START = StartModel(
    digest="0" * 64, epsilon=8.0, delta=1e-6, unit="example", is_private=True, keep_evidence=0.8
)
_CONFIG = MosaicConfig(unit=ExampleLevel(), start=_START).calibrate(epsilon=8.0, delta=1e-6)


@functools.cache
def earlier(*, num_rows: int = _ROWS) -> EarlierModel:
    """A model of other rows, with tables of public and of sensitive columns."""
    model = trained(make_examples(num_rows, seed=9), seed=9)
    assert model.reads_sensitive
    assert any(earlier_tables.is_public(table) for table in model.tables)
    return EarlierModel(model=model, features=FEATURES, start=_START)


def run(
    examples: ExampleSet,
    shares: Recorded,
    monkeypatch: pytest.MonkeyPatch,
    unit: UnitLevel | None = None,
) -> CellModel:
    plan, model = planned(_CONFIG, _ROWS), earlier()
    monkeypatch.setattr(cell_training, "NoiseShares", lambda *_args, **_more: shares)
    if unit is not None:
        method = dataclasses.replace(plan.method, unit=unit)
        shape = dataclasses.replace(plan.shape, num_users=len(np.unique(examples.units)))
        plan = dataclasses.replace(plan, method=method, shape=shape)
    return cell_training.train_on_cells(examples, plan, context(), model)


def followed(
    examples: ExampleSet,
    neighbour: ExampleSet,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    unit: UnitLevel | None = None,
) -> tuple[Recorded, Recorded]:
    """A run, and the same run on a neighbour with the same releases."""
    shares = Recorded(noise(), rng=SeededNoise(seed))
    model = run(examples, shares, monkeypatch, unit)
    again = Replayed(noise(), rng=SeededNoise(seed), of=shares)
    same = run(neighbour, again, monkeypatch, unit)
    assert model.heads[0].bias == same.heads[0].bias
    for table, other in zip(model.tables, same.tables, strict=True):
        assert np.array_equal(table.weights, other.weights)
        assert np.array_equal(table.stddevs, other.stddevs)
    return shares, again


@pytest.mark.parametrize("seed", range(8))
def test_a_continued_run_tells_neighbours_apart_by_no_more_than_one_gaussian(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = make_examples(_ROWS, seed=1)
    neighbours = (replaced(examples, seed), worst_neighbour(examples, seed))
    check_told(*followed(examples, neighbours[seed % 2], seed, monkeypatch))


@pytest.mark.parametrize("seed", range(4))
def test_a_continued_run_tells_neighbours_of_whole_users_apart_by_no_more_than_one_gaussian(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = examples_of_users()
    neighbour = replaced_user(examples, seed, large_user(examples, seed))
    check_told(*followed(examples, neighbour, seed, monkeypatch, UserLevel()))


def whole_model_as_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables of the earlier model take part from the start, those of sensitive columns too."""
    monkeypatch.setattr(earlier_tables, "is_public", lambda _table: True)
    original = cell_training.EarlierTables.tables

    def tables(self: object, role: str, columns: list, stages: object) -> object:
        # Frequencies of sensitive values are not known yet; those of the earlier model serve.
        known = [column_of(feature, place) for feature, place in sensitive_features()]
        return original(self, role, [*columns, *known] if role == "public" else columns, stages)

    monkeypatch.setattr(cell_training.EarlierTables, "tables", tables)
    monkeypatch.setattr(CellReleases, "cells", unguarded)
    monkeypatch.setattr(cell_training, "typical_rows", with_sensitive_values)


def sensitive_features() -> list:
    chosen = [feature for feature in FEATURES if feature.role == "sensitive"]
    return [(feature, place) for place, feature in enumerate(chosen)]


def column_of(feature: object, place: int) -> object:
    """Values of a sensitive column as if all were equally frequent."""
    from tulle.train.methods.mosaic.column_values import sensitive_values

    counts = np.full(feature.num_ids, 100.0)
    return sensitive_values(feature.name, place, counts, 1.0, feature)[0]


def with_sensitive_values(*data: list, rate: float) -> TypicalRows:
    """Typical rows that have sensitive values from the start, all equally frequent."""
    rows = typical_rows(*data, rate=rate)
    rows.draw([np.ones(feature.num_ids) for feature, _ in sensitive_features()])
    return rows


def unguarded(self: CellReleases, parts: tuple[CellPart, ...]) -> Cells:
    return self._rows.cells(parts)


def look_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = make_examples(_ROWS, seed=1)
    for seed in range(6):
        # Other sensitive columns, and so other predictions by the earlier model.
        check_told(*followed(examples, replaced(examples, seed), seed, monkeypatch))


def test_the_whole_earlier_model_as_offset_of_public_sums_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole_model_as_offset(monkeypatch)
    with pytest.raises(AssertionError):
        look_at_all(monkeypatch)


def test_sensitive_cells_are_refused_while_labels_alone_are_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same fault with the guard in place: the run stops before anything is released by it."""
    whole_model_as_offset(monkeypatch)
    monkeypatch.setattr(CellReleases, "cells", _GUARDED)
    with pytest.raises(RunStateError, match="out of reach while the noise hides labels alone"):
        run(make_examples(_ROWS, seed=1), Recorded(noise(), rng=SeededNoise(0)), monkeypatch)


_GUARDED: Callable[..., Cells] = CellReleases.cells


def peeking_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The level at the start is corrected by the exact labels and not by the released rate."""

    def first_level(self: CellReleases) -> tuple[float, float, float]:
        predicted = self._public_predicted()
        return float(self._rows._labels.sum() >> 30) - predicted, predicted, 1e-9

    monkeypatch.setattr(CellReleases, "first_level", first_level)


def test_a_level_by_exact_labels_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    peeking_offset(monkeypatch)
    with pytest.raises(AssertionError):
        look_at_all(monkeypatch)


def continued(
    examples: ExampleSet, model: EarlierModel, *, epsilon: float = 1.0, seed: int = 0
) -> CellModel:
    method = MosaicConfig(unit=ExampleLevel(), start=model.start)
    plan = planned(method.calibrate(epsilon=epsilon, delta=1e-6), examples.num_rows)
    return cell_training.train_on_cells(examples, plan, context(seed), model)


def test_a_continued_model_is_better_than_one_of_its_own_rows_alone() -> None:
    test = make_examples(5_000, seed=2)
    model = earlier(num_rows=20_000)
    few = [make_examples(1_000, seed=seed) for seed in (3, 4, 5)]
    own = [auc_loss(trained(rows, 1.0, seed), test) for seed, rows in enumerate(few)]
    more = [auc_loss(continued(rows, model, seed=seed), test) for seed, rows in enumerate(few)]
    assert np.mean(more) < 0.9 * np.mean(own)


def test_few_rows_add_no_tables_of_several_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[CandidateTable] = []

    def look_at(self: object, table: CandidateTable, row_round: RowRound) -> None:
        measured.append(table)
        look(self, table, row_round)

    look = cell_training._CellTraining.look_at
    monkeypatch.setattr(cell_training._CellTraining, "look_at", look_at)
    for seed in range(3, 9):
        continued(make_examples(2_000, seed=seed), earlier(num_rows=20_000))
    assert all(len(table.columns) == 1 or table.is_started for table in measured)
    measured.clear()
    monkeypatch.setattr(cell_training, "are_few", lambda *_args: False)
    for seed in range(3, 9):
        continued(make_examples(2_000, seed=seed), earlier(num_rows=20_000))
    assert any(len(table.columns) > 1 and not table.is_started for table in measured)


def shares_of_looks() -> tuple[float, float]:
    """Largest share of one new table, and shares of public tables over those of sensitive ones."""
    new: list[float] = []
    phases = [0.0, 0.0]

    def row_round(self: CellReleases, tables: list, given: list, *, num_steps: int) -> RowRound:
        pairs = zip(tables, given, strict=True)
        new.extend(share for table, share in pairs if not table.is_tested)
        phases[self.reads_sensitive] += sum(given)
        return original(self, tables, given, num_steps=num_steps)

    original, whole, known = CellReleases.row_round, earlier(num_rows=20_000), {}
    # Of each role the earlier model knows one column: the others are new.
    for table in whole.model.tables:
        if len(table.parts) == 1:
            known.setdefault(table.parts[0].role, table)
    head = dataclasses.replace(whole.model.heads[0], tables=tuple(known.values()))
    model = dataclasses.replace(whole, model=dataclasses.replace(whole.model, heads=(head,)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CellReleases, "row_round", row_round)
        continued(make_examples(2_000, seed=3), model)
    return max(new), phases[False] / phases[True]


def test_on_few_rows_new_tables_leave_the_budget_to_those_that_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = CellSettings().most_screening_shares[0] * (1 + 1e-9)
    assert shares_of_looks()[0] <= most
    monkeypatch.setattr(few_rows.StageRules, "first_look", lambda *_: (0.4, 0.5))
    assert shares_of_looks()[0] > 2 * most


def test_on_few_rows_stages_have_a_part_for_each_column(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = CellSettings().stages
    ratio = stages.public_values / stages.sensitive_values
    # Three public columns and two sensitive ones.
    assert shares_of_looks()[1] == pytest.approx(ratio * 3 / 2, rel=0.02)
    part = few_rows.StageRules.part
    monkeypatch.setattr(
        few_rows.StageRules,
        "part",
        lambda self, stage: part(dataclasses.replace(self, is_started=False), stage),
    )
    assert shares_of_looks()[1] == pytest.approx(ratio, rel=0.02)


def test_a_level_that_changed_is_found_at_once() -> None:
    """Labels are a third as frequent as in the earlier rows."""
    examples = make_examples(4_000, seed=6)
    assert examples.labels is not None
    rare = examples.labels * (np.random.default_rng(0).random(4_000) < 1 / 3)
    changed = dataclasses.replace(examples, labels=rare.astype(np.float32))
    model = continued(changed, earlier(), epsilon=8.0)
    from unit.train.methods.mosaic.test_cell_training import predict

    assert predict(model, changed).mean() == pytest.approx(rare.mean(), abs=0.03)


def test_what_is_not_looked_at_keeps_its_weights() -> None:
    """At an epsilon next to 0 nothing is learnt, and the earlier weights stay about the same."""
    kept = dataclasses.replace(_START, keep_evidence=1.0)
    start = dataclasses.replace(earlier(), start=kept)
    model = continued(make_examples(1_000, seed=7), start, epsilon=0.01)
    before = {parts_of(table): table for table in earlier().model.tables}
    assert {parts_of(table) for table in model.tables} >= set(before)
    for table in model.tables:
        if parts_of(table) in before:
            old = before[parts_of(table)]
            # By id, as values may have other ranks, and up to what went into the bias.
            own, its = (one.parts[0].lookup for one in (table, old))
            told = table.weights[own[its > 0]] - old.weights[its[its > 0]]
            assert len(table.parts) > 1 or np.ptp(told) < 0.1


def parts_of(table: object) -> tuple:
    return tuple((part.role, part.column) for part in table.parts)


def test_a_plan_is_carried_out_with_the_model_that_it_names() -> None:
    other = dataclasses.replace(earlier(), start=dataclasses.replace(_START, digest="1" * 64))
    plan = planned(_CONFIG, _ROWS)
    examples = make_examples(_ROWS, seed=1)
    for handed_in in (None, other):
        with pytest.raises(ConfigError, match="the plan continues from the model 000000000000"):
            cell_training.train_on_cells(examples, plan, context(), handed_in)
    nothing = planned(MosaicConfig(unit=ExampleLevel()).calibrate(epsilon=8.0, delta=1e-6), _ROWS)
    with pytest.raises(ConfigError, match="starts from nothing"):
        cell_training.train_on_cells(examples, nothing, context(), earlier())
