"""What an explanation says is what the model does, and nothing that is not in its folder."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tulle
from tulle.errors import ConfigError, DataError
from tulle.train.classifier import Classifier
from tulle.train.explanation import Explanation
from tulle.train.methods.mosaic.cell_model import CellHead, CellModel, CellPart, CellTable
from unit.train.explained_clicks import clicks, trained_on_clicks
from unit.train.small_data import randomized_labels


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    return clicks()


@pytest.fixture(scope="module")
def model() -> Classifier:
    return trained_on_clicks()


@pytest.fixture(scope="module")
def explanation(model: Classifier, rows: pl.DataFrame) -> Explanation:
    return model.explain(values=rows.select("site", "device"))


def test_the_test_has_what_it_needs(explanation: Explanation) -> None:
    names = {table.name for table in explanation.tables}
    assert {"site", "device", "price", "interest", "interest (groups)"} <= names
    assert {"site × device", "device × site"} & names


def test_contributions_add_up_to_the_prediction(
    model: Classifier, explanation: Explanation, rows: pl.DataFrame
) -> None:
    probabilities = model.predict_proba(rows.head(20))[:, 1]
    for number in range(20):
        found = explanation.contributions(rows.row(number, named=True))
        assert found.probability == probabilities[number]
        effects = [one.effect for one in found.contributions]
        assert found.log_odds == pytest.approx(found.bias + sum(effects), abs=1e-12)
        assert found.log_odds == pytest.approx(found.bias + sum(found.by_column().values()))
        assert all(one.low < one.effect < one.high for one in found.contributions)
        # A table of one row is as good as a dict.
        assert explanation.contributions(rows.slice(number, 1)) == found


def test_columns_of_a_table_share_its_contribution(
    explanation: Explanation, rows: pl.DataFrame
) -> None:
    found = explanation.contributions(rows.row(0, named=True))
    by_hand = dict.fromkeys(("site", "device"), 0.0)
    for one in found.contributions:
        for name in by_hand:
            by_hand[name] += one.effect / len(one.columns) * (name in one.columns)
    assert {name: found.by_column()[name] for name in by_hand} == pytest.approx(by_hand)


def test_effects_are_what_rows_get(explanation: Explanation, rows: pl.DataFrame) -> None:
    """Also where a column is in the model in two forms, whose tables are added up."""
    row = rows.row(0, named=True)
    found = explanation.contributions(row)
    for names in (("site",), ("device",), ("site", "device")):
        effects = explanation.effects(*names)
        (cell,) = (cell for cell in effects if all(cell[name] == row[name] for name in names))
        parts = [one.effect for one in found.contributions if set(one.columns) == set(names)]
        assert cell["effect"] == pytest.approx(sum(parts), abs=1e-9)
        assert cell["low"] < cell["effect"] < cell["high"]


def test_axes_of_a_pair_are_in_the_order_that_was_asked_for(explanation: Explanation) -> None:
    one, other = explanation.effects("site", "device"), explanation.effects("device", "site")
    np.testing.assert_array_equal(one.effect, other.effect.T)
    assert one.columns == other.columns[::-1]
    assert one.to_polars().columns == ["site", "device", "effect", "low", "high"]
    assert len(one.to_polars()) == len(one) == one.effect.size == len(one.rows())


def test_a_column_in_two_forms_has_one_effect_for_each_value(
    model: Classifier, rows: pl.DataFrame
) -> None:
    explanation = model.explain(values=rows.select("interest").unique())
    effects = explanation.effects("interest")
    labels = effects.columns[0].labels
    assert len(set(labels)) == len(labels)
    row = rows.row(0, named=True)
    found = explanation.contributions(row)
    parts = [one for one in found.contributions if one.columns == ("interest",)]
    assert len(parts) == 2
    (cell,) = (cell for cell in effects if row["interest"] in cell["interest"].split(", "))
    assert cell["effect"] == pytest.approx(sum(part.effect for part in parts), abs=1e-9)
    # Noise of two releases is independent, so variances add up.
    widths = [(part.high - part.effect) ** 2 for part in parts]
    assert cell["high"] - cell["effect"] == pytest.approx(sum(widths) ** 0.5, rel=1e-6)


def test_without_names_bins_have_numbers_and_numbers_have_ranges(model: Classifier) -> None:
    explanation = model.explain()
    sites = explanation.effects("site").columns[0]
    assert all(label.startswith(("bin ", "other values")) for label in sites.labels)
    assert sites.num_ordered == 0
    price = explanation.effects("price").columns[0]
    assert price.labels[:2] == ("up to 6", "7 to 12")
    assert price.labels[price.num_ordered - 1 :] == ("194 or more", "missing")


def test_shares_of_tables_and_of_the_rest_are_the_whole_budget(explanation: Explanation) -> None:
    shares = [table.share for table in explanation.tables]
    assert all(share is not None and 0 < share < 1 for share in shares)
    elsewhere = explanation.share_elsewhere
    assert elsewhere is not None
    assert 0 < elsewhere < 1
    assert sum(shares) + elsewhere == pytest.approx(1)
    sizes = [table.importance for table in explanation.tables]
    assert sizes == sorted(sizes, reverse=True)


def test_an_explanation_holds_nothing_that_is_not_in_the_folder(
    model: Classifier, rows: pl.DataFrame, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    loaded, fitted = tulle.load(tmp_path / "model").explain(), model.explain()
    row = rows.row(3, named=True)
    for columns in (("site",), ("interest",), ("site", "device")):
        wanted = fitted.to_dict(columns=columns, row=row)
        assert json.dumps(loaded.to_dict(columns=columns, row=row)) == json.dumps(wanted)
    assert repr(loaded) == repr(fitted)


def test_an_unknown_column_is_refused_with_a_suggestion(explanation: Explanation) -> None:
    with pytest.raises(ConfigError, match=r"column='sit' is not in the model \(did you mean 'site"):
        explanation.effects("sit")
    with pytest.raises(ConfigError, match=r"together have no table.*site"):
        explanation.effects("site", "second hour")
    with pytest.raises(ConfigError, match="must be one to three different"):
        explanation.effects("site", "site")
    with pytest.raises(ConfigError, match="must be one to three different"):
        explanation.effects()


def test_a_row_that_cannot_be_explained_is_refused(
    explanation: Explanation, rows: pl.DataFrame
) -> None:
    row = rows.row(0, named=True)
    wrong = {("sites" if name == "site" else name): value for name, value in row.items()}
    with pytest.raises(DataError, match=r"no column 'site' \(did you mean 'sites'\?\); give"):
        explanation.contributions(wrong)
    with pytest.raises(DataError, match="has more than one row; give the one row"):
        explanation.contributions(rows.head(2))
    with pytest.raises(DataError, match="value of type list in column 'site'"):
        explanation.contributions(row | {"site": ["site 1"]})
    # What is missing is a value like any other; label and unknown columns are not looked at.
    assert explanation.contributions(row | {"site": None, "other": 3}).probability is not None


def test_a_model_that_is_no_sum_of_tables_is_refused_with_the_way_out(rows: pl.DataFrame) -> None:
    schema = {"label": "click", "public": ["site"]}
    perceptron = Classifier(schema, method=randomized_labels(), seed=1).fit(rows.head(500))
    with pytest.raises(ConfigError, match=r"is no sum of tables.*with the method mosaic"):
        perceptron.explain()


def test_each_part_of_a_model_of_several_has_an_explanation(explanation: Explanation) -> None:
    head = explanation.model.model.heads[0]
    heads = (head, dataclasses.replace(head, bias=0.5), CellHead(bias=1.0, tables=()))
    model = CellModel(heads=heads, output="classes", classes=("a", "b", "c"))
    several = dataclasses.replace(
        explanation, model=dataclasses.replace(explanation.model, model=model), part="a"
    )
    assert several.parts == ("a", "b", "c")
    assert several.bias == head.bias
    assert several.of("b").bias == 0.5
    assert several.of("c").tables == ()
    assert several.contributions(clicks().row(0, named=True)).probability is None
    with pytest.raises(ConfigError, match="part='d' is not in the model"):
        several.of("d")


def test_a_model_without_deviations_has_effects_without_intervals(
    explanation: Explanation, rows: pl.DataFrame
) -> None:
    """Models of version 2 say nothing of deviations and shares."""
    lookup = np.zeros(explanation.model.features[0].num_ids, np.int32)
    part = CellPart(role="public", column=0, lookup=lookup, size=1)
    old = CellTable(parts=(part,), weights=np.array([0.25], np.float32))
    model = CellModel(heads=(CellHead(bias=-1.0, tables=(old,)),))
    found = dataclasses.replace(
        explanation, model=dataclasses.replace(explanation.model, model=model)
    )
    (cell,) = found.effects("site")
    assert (cell["effect"], cell["low"], cell["high"]) == (0.25, None, None)
    assert cell["site"] == "other values"
    assert found.tables[0].share is None
    assert found.share_elsewhere is None
    (one,) = found.contributions(rows.row(0, named=True)).contributions
    assert one.low is one.high is None
