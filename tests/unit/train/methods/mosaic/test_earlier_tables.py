"""Tables of an earlier model in the cells of a new run: weights, variances, new and lost values."""

import dataclasses
import math

import numpy as np
import pytest

from tulle.data.prepared.feature import FactGroups, PreparedFeature
from tulle.errors import ConfigError
from tulle.train.methods.mosaic.candidate_table import TableStages
from tulle.train.methods.mosaic.cell_model import CellHead, CellTable
from tulle.train.methods.mosaic.cell_sums import LOG_ODDS_BITS
from tulle.train.methods.mosaic.column_values import (
    FREQUENCY,
    VALUES,
    ColumnValues,
    public_values,
    sensitive_values,
)
from tulle.train.methods.mosaic.earlier_tables import EarlierTables
from tulle.train.methods.mosaic.method import CellSettings

_IDS = 100
_GROUPS = tuple(place % 7 for place in range(_IDS - 2))
PLAIN = PreparedFeature(name="plain", role="sensitive", num_ids=_IDS, table="plain")
PUBLIC = PreparedFeature(name="public", role="public", num_ids=_IDS, table="public")
ORDERED = PreparedFeature(
    name="ordered", role="sensitive", num_ids=_IDS, table="ordered", order="line", num_bins=_IDS - 1
)
KNOWN = PreparedFeature(
    name="known",
    role="sensitive",
    num_ids=_IDS,
    table="known",
    num_known=_IDS - 2,
    known_digest="of a table",
    facts=(FactGroups(name="type", groups=_GROUPS),),
)


def counts_of(seed: int) -> np.ndarray:
    """Numbers of rows from none to a few thousand."""
    rng = np.random.default_rng(seed)
    return np.rint(rng.exponential(1.0, _IDS) ** 3 * 300).clip(0, 5_000) * (rng.random(_IDS) > 0.2)


def forms_of(feature: PreparedFeature, counts: np.ndarray, known: EarlierTables | None) -> list:
    earlier = None if known is None else known.ranks(feature, 0)
    if feature.role == "public":
        return [public_values(feature.name, 0, counts.astype(np.int64), feature, earlier)]
    classes = None if known is None else known.classes(feature, 0)
    return sensitive_values(
        feature.name, 0, counts, 10.0, feature, earlier=earlier, classes=classes
    )


def stages() -> TableStages:
    return TableStages(CellSettings(), num_rows=30_000)


def head_of(forms: list[ColumnValues], *, seed: int = 1) -> CellHead:
    """A head with one table for each form of a column, with weights of whole steps."""
    rng, tables = np.random.default_rng(seed), []
    for table in map(stages().started, [[values] for values in forms]):
        steps = rng.integers(-4_000, 4_000, table.num_cells)
        weights = np.ldexp(steps.astype(np.float32), -LOG_ODDS_BITS)
        stddevs = rng.uniform(0.05, 0.1, table.num_cells).astype(np.float32)
        tables.append(CellTable(parts=table.parts, weights=weights, stddevs=stddevs))
    return CellHead(bias=0.0, tables=tuple(tables))


def log_odds_of_ids(head: CellHead) -> np.ndarray:
    found = np.zeros(_IDS)
    for table in head.tables:
        found += table.weights[table.parts[0].lookup]
    return found


def carried(
    head: CellHead, feature: PreparedFeature, counts: np.ndarray, keep: float = 1.0
) -> tuple[np.ndarray, np.ndarray, list[ColumnValues]]:
    """Log odds and variances of the ids, by the tables as a new run has them."""
    earlier = EarlierTables(head, [feature], keep_evidence=keep)
    columns = forms_of(feature, counts, earlier)
    log_odds, variances = np.zeros((2, _IDS))
    for table, fitted, _, mean in earlier.tables(feature.role, columns, stages()):
        lookup = table.parts[0].lookup
        log_odds += math.ldexp(mean, -LOG_ODDS_BITS)
        log_odds += np.ldexp(fitted.weights.astype(float), -LOG_ODDS_BITS)[lookup]
        variances += fitted.variances[lookup]
    return log_odds, variances, columns


@pytest.mark.parametrize("feature", [PLAIN, PUBLIC, ORDERED, KNOWN], ids=lambda one: one.name)
@pytest.mark.parametrize("seed", range(3))
def test_every_value_keeps_its_weight_whatever_is_frequent_now(
    feature: PreparedFeature, seed: int
) -> None:
    forms = forms_of(feature, counts_of(seed), None)
    head = head_of(forms)
    log_odds, _, columns = carried(head, feature, counts_of(seed + 10))
    assert log_odds == pytest.approx(log_odds_of_ids(head), abs=1e-6)
    assert [values.form for values in columns] == [values.form for values in forms]
    assert len(forms) == {"plain": 2, "public": 1, "ordered": 1, "known": 2}[feature.name]


def test_new_values_begin_as_the_others_and_are_unknown() -> None:
    counts = counts_of(0)
    head = head_of(forms_of(PUBLIC, counts, None))
    new = int(np.flatnonzero(counts == 0)[0])
    old = int(np.flatnonzero(counts > 0)[0])
    more = counts.copy()
    more[new] = 400
    log_odds, variances, (values,) = carried(head, PUBLIC, more)
    others = float(head.tables[0].weights[0])
    assert values.ranks[new] > 0
    assert log_odds[new] == pytest.approx(others)
    assert variances[new] > 0.1 > 0.02 > variances[old]
    # Without a new row of it, the value stays among the others, as known as they are.
    _, before, (same,) = carried(head, PUBLIC, counts)
    assert same.ranks[new] == 0
    assert before[new] < 0.02


def test_evidence_that_is_forgotten_leaves_the_spread_and_the_mean() -> None:
    """By hand: inverse variances beyond the spread are multiplied, and weights shrink as much."""
    counts = counts_of(0)
    head = head_of(forms_of(PUBLIC, counts, None))
    whole, all_kept, _ = carried(head, PUBLIC, counts)
    some, half, _ = carried(head, PUBLIC, counts, keep=0.5)
    nothing, hardly_any, _ = carried(head, PUBLIC, counts, keep=0.001)
    spread = float(hardly_any.max())
    assert 0.1 < spread < 1
    known = 1 / all_kept - 1 / spread
    assert 1 / half - 1 / spread == pytest.approx(known / 2, rel=0.01)
    # Towards the mean of rows, as if the evidence were so many labels fewer.
    mean = float(counts @ whole / counts.sum())
    believed = (1 - half / spread) / (1 - all_kept / spread)
    assert some - mean == pytest.approx(believed * (whole - mean), abs=0.01)
    assert np.abs(nothing - mean).max() < 0.2 * np.abs(whole - mean).max()


def test_a_deviation_of_0_says_nothing() -> None:
    head = head_of(forms_of(PUBLIC, counts_of(0), None))
    table = head.tables[0]
    assert table.stddevs is not None
    table.stddevs[:3] = 0
    _, variances, _ = carried(head, PUBLIC, counts_of(0))
    places = table.parts[0].lookup
    assert variances[places < 3].min() > 0.1 > variances[places >= 3].max()


def test_a_model_without_deviations_is_refused() -> None:
    head = head_of(forms_of(PUBLIC, counts_of(0), None))
    tables = tuple(dataclasses.replace(table, stddevs=None) for table in head.tables)
    old = dataclasses.replace(head, tables=tables)
    with pytest.raises(ConfigError, match="models of version 2"):
        EarlierTables(old, [PUBLIC], keep_evidence=1.0)


def test_cells_of_pairs_are_carried_over_together() -> None:
    """Two columns, whose values have other ranks in the new run."""
    other = dataclasses.replace(PLAIN, name="few", num_ids=5)
    few, many = counts_of(3)[:5] + 50, counts_of(0)
    pair = [public_values("public", 0, many.astype(np.int64)), *forms_of(other, few, None)]
    table = stages().started(pair)
    weights = np.ldexp(
        np.random.default_rng(2).integers(-99, 99, table.num_cells).astype(np.float32),
        -LOG_ODDS_BITS,
    )
    old = CellTable(parts=table.parts, weights=weights, stddevs=np.abs(weights) + 0.01)
    earlier = EarlierTables(CellHead(bias=0.0, tables=(old,)), [PUBLIC, other], keep_evidence=1.0)
    now = [
        public_values("public", 0, counts_of(9).astype(np.int64), PUBLIC, earlier.ranks(PUBLIC, 0)),
        *forms_of(other, few[::-1].copy(), earlier),
    ]
    [(new, fitted, _, mean)] = earlier.tables("sensitive", now, stages())
    cell = {}
    for name, made in (("old", old.parts), ("new", new.parts)):
        cell[name] = made[0].lookup[:, None] * made[1].size + made[1].lookup[None, :]
    was_told_apart = old.parts[0].lookup > 0
    found = np.ldexp((fitted.weights + mean).astype(float), -LOG_ODDS_BITS)[cell["new"]]
    assert found[was_told_apart] == pytest.approx(weights[cell["old"]][was_told_apart])


def test_forms_are_told_apart_by_what_they_merge() -> None:
    forms = forms_of(PLAIN, counts_of(0), None)
    assert [values.form for values in forms] == [VALUES, FREQUENCY]
    earlier = EarlierTables(head_of(forms), [PLAIN], keep_evidence=1.0)
    ranks, classes = earlier.ranks(PLAIN, 0), earlier.classes(PLAIN, 0)
    assert ranks is not None
    assert classes is not None
    assert np.array_equal(ranks, forms[0].ranks)
    assert np.array_equal(classes, forms[1].ranks)
