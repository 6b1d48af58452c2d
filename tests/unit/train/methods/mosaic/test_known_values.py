"""Facts about known values in Mosaic: coarse forms, fitted first, from the table and no row."""

import dataclasses

import numpy as np
import pytest

from tulle.data.prepared.feature import FactGroups, PreparedFeature
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic import cell_training
from tulle.train.methods.mosaic.candidate_table import CandidateTable, TableStages
from tulle.train.methods.mosaic.column_values import ColumnValues, sensitive_values
from tulle.train.methods.mosaic.method import CellSettings
from unit.train.methods.mosaic.test_cell_training import auc_loss, trained
from unit.train.methods.mosaic.test_replayed_run import check_told, followed, replaced
from unit.train.small_data import FEATURES, make_examples

_NUM_VALUES, _NUM_GROUPS = 300, 6


def audience(num_known: int, *facts: tuple[str, np.ndarray], first: int = 0) -> PreparedFeature:
    return PreparedFeature(
        name="audience",
        role="sensitive",
        num_ids=first + num_known + 2,
        table="sensitive",
        first_known=first,
        num_known=num_known,
        known_digest="of a table",
        facts=tuple(FactGroups(name=name, groups=tuple(of.tolist())) for name, of in facts),
    )


def forms(feature: PreparedFeature, counts: np.ndarray, stddev: float = 10.0) -> list[ColumnValues]:
    return sensitive_values(feature.name, 0, counts.astype(np.float64), stddev, feature)


def test_all_known_values_are_kept_and_missing_and_others_beside_them() -> None:
    # Ids 0 to 3 are bins of another feature; then come 3 values, missing and all others.
    counts = np.array([900.0, 5, -3, 70, -4, 300, 20, 8, 40])
    (values,) = forms(audience(3, first=4), counts)
    assert values.ranks.tolist() == [0, 0, 0, 0, 5, 1, 3, 4, 2]
    assert values.counts.tolist() == [0, 300, 40, 20, 8, 0]


def test_a_fact_is_a_coarse_form_of_its_own() -> None:
    feature = audience(
        4, ("advertiser", np.array([0, 1, 1, 0])), ("type", np.array([0, 1, 2, 2])), first=1
    )
    counts = np.array([77.0, 10, 100, 50, 30, 5, 6])
    values, advertiser, kind = forms(feature, counts)
    assert (advertiser.name, kind.name) == ("advertiser of audience", "type of audience")
    assert advertiser.ranks.tolist() == [0, 2, 1, 1, 2, 4, 3]
    assert advertiser.counts.tolist() == [0, 150, 40, 6, 5]
    assert kind.ranks.tolist() == [0, 3, 1, 2, 2, 5, 4]
    assert len({form.identity for form in (values, advertiser, kind)}) == 3
    assert len({form.source for form in (values, advertiser, kind)}) == 1


def test_a_fact_that_groups_nothing_has_no_form() -> None:
    name, same = ("name", np.arange(4)), ("country", np.zeros(4, int))
    assert len(forms(audience(4, name, same), np.full(6, 50.0))) == 1


def test_many_known_values_are_kept_by_noisy_counts() -> None:
    counts = np.zeros(3_002)
    counts[:100] = 500
    values, frequency = forms(audience(3_000), counts)
    assert values.num_values == 101
    assert frequency.form == 1
    fewer, *_ = forms(audience(1_000), counts[:1_002])
    assert fewer.num_values == 1 + 1_002


def test_no_table_has_two_forms_of_one_column() -> None:
    facts = ("advertiser", np.arange(200) % 7), ("type", np.arange(200) % 3)
    columns = forms(audience(200, *facts), np.full(202, 400.0))
    (other,) = sensitive_values("device", 1, np.array([40_000.0, 41_000]), 10.0)
    stages = TableStages(CellSettings(), num_rows=81_000)
    for table in stages.singles([*columns, other]):
        table.note_spread(0.4, 1.0, 0.1)
    pairs = stages.sensitive_pairs([*columns, other], [])
    assert len(pairs) == len(columns)
    for pair in pairs:
        assert other in pair.columns
        pair.note_spread(0.2, 1.0, 0.1)
        pair.realised_gain = 5.0
    assert stages.triples() == []


def grouped(
    num_rows: int, *, seed: int, with_facts: bool, groups: np.ndarray | None = None
) -> ExampleSet:
    """Rows whose labels depend on the group of the sensitive value and on nothing else."""
    rng = np.random.default_rng(seed)
    of = np.arange(_NUM_VALUES) % _NUM_GROUPS if groups is None else groups
    effects = np.linspace(-2.0, 2.0, _NUM_GROUPS)
    values = rng.integers(0, _NUM_VALUES, num_rows)
    labels = rng.random(num_rows) < 1 / (1 + np.exp(1.0 - effects[of[values]]))
    feature = audience(_NUM_VALUES, *((("advertiser", of),) if with_facts else ()))
    examples = make_examples(num_rows, seed=seed)
    return dataclasses.replace(
        examples,
        features=(*FEATURES[:3], feature),
        columns=dataclasses.replace(examples.columns, sensitive=("audience",)),
        sensitive_features=values[:, None].astype(np.int32),
        labels=labels.astype(np.float32),
        units=None,
    )


def test_effects_of_groups_are_found_with_facts_and_hardly_without() -> None:
    losses: dict[bool, list[float]] = {True: [], False: []}
    for with_facts, found in losses.items():
        test = grouped(4_000, seed=9, with_facts=with_facts)
        for seed in range(3):
            model = trained(grouped(5_000, seed=seed, with_facts=with_facts), 1.0, seed)
            found.append(auc_loss(model, test))
    # Twenty rows a value and 800 a group: without facts hardly more than a guess is left, which
    # has a loss of one half.
    assert np.mean(losses[True]) < np.mean(losses[False]) - 0.1
    assert max(losses[True]) < min(losses[False])


def test_groups_are_fitted_before_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a form has more groups than values are kept."""
    looked: list[tuple[CandidateTable, object]] = []
    right = cell_training._CellTraining.look_at

    def look_at(self: object, table: CandidateTable, row_round: object) -> None:
        looked.append((table, row_round))
        right(self, table, row_round)  # type: ignore[arg-type]

    monkeypatch.setattr(cell_training._CellTraining, "look_at", look_at)
    trained(grouped(20_000, seed=1, with_facts=True), 8.0)
    fine_is_measured = 0
    for row_round in {id(one): one for _, one in looked}.values():
        kinds = [table.is_of_fact for table, its_round in looked if its_round is row_round]
        assert kinds == sorted(kinds, reverse=True)
        fine_is_measured += any(kinds) and not all(kinds)
    assert fine_is_measured


def test_values_that_differ_within_their_group_are_still_found() -> None:
    examples = grouped(40_000, seed=1, with_facts=True)
    assert examples.sensitive_features is not None
    assert examples.labels is not None
    rng = np.random.default_rng(2)
    is_special = examples.sensitive_features[:, 0] < 3
    sensitive = examples.sensitive_features.copy()
    # Some rows more of three values, all of which buy.
    sensitive[rng.random(len(sensitive)) < 0.05] = 0
    labels = np.where(is_special | (sensitive[:, 0] == 0), 1.0, examples.labels)
    model = trained(
        dataclasses.replace(
            examples, sensitive_features=sensitive, labels=labels.astype(np.float32)
        ),
        8.0,
    )
    parts = [part for table in model.tables for part in table.parts if part.role == "sensitive"]
    # A table of single values beside that of groups.
    assert {part.size > _NUM_GROUPS + 3 for part in parts} == {True, False}


def known(examples: ExampleSet) -> ExampleSet:
    """The second sensitive column as two groups of known values, and missing and others."""
    feature = dataclasses.replace(
        FEATURES[4], num_known=3, facts=(FactGroups(name="type", groups=(0, 0, 1)),)
    )
    first = dataclasses.replace(FEATURES[3], num_known=2)
    return dataclasses.replace(examples, features=(*FEATURES[:3], first, feature))


@pytest.mark.parametrize("seed", range(4))
def test_a_run_with_facts_tells_neighbours_apart_by_no_more_than_one_gaussian(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A row's values become any known one, missing, or one that is not known.
    examples = known(make_examples(3_000, seed=1))
    check_told(*followed(examples, replaced(examples, seed), seed, monkeypatch))


def test_facts_that_are_made_from_the_rows_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: values are grouped by what raw rows say of them, not by the table."""
    examples = known(make_examples(3_000, seed=1))
    right_values, right_training = cell_training.sensitive_values, cell_training.train_on_cells
    current = [examples]

    def peeking(
        name: str,
        column: int,
        noisy: np.ndarray,
        stddev: float,
        feature: PreparedFeature,
        **more: object,
    ) -> list[ColumnValues]:
        raw = current[0].sensitive_features
        assert raw is not None
        is_odd = int((raw[:, column] == 0).sum()) % 2
        facts = tuple(dataclasses.replace(fact, groups=(0, is_odd, 1)) for fact in feature.facts)
        peeked = dataclasses.replace(feature, facts=facts)
        return right_values(name, column, noisy, stddev, peeked, **more)

    def training(rows: ExampleSet, *more: object) -> object:
        current[0] = rows
        return right_training(rows, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(cell_training, "sensitive_values", peeking)
    monkeypatch.setattr(cell_training, "train_on_cells", training)

    def look() -> None:
        for seed in range(8):
            check_told(*followed(examples, replaced(examples, seed), seed, monkeypatch))

    with pytest.raises(AssertionError):
        look()


def test_the_noise_of_facts_is_that_of_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts are no release: a run with them has as many counts of values as one without."""
    asked = []
    right = cell_training.CellReleases.noisy_counts

    def noisy_counts(self: object, column: int, num_ids: int, share: float) -> object:
        asked.append((column, num_ids, share))
        return right(self, column, num_ids, share)  # type: ignore[arg-type]

    monkeypatch.setattr(cell_training.CellReleases, "noisy_counts", noisy_counts)
    for with_facts in (True, False):
        trained(grouped(2_000, seed=1, with_facts=with_facts))
    assert asked[0] == asked[1]
    assert len(asked) == 2
