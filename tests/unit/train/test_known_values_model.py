"""Known values from a table to predictions: in Python and on the command line, and what is said."""

import functools
import json
from pathlib import Path

import duckdb
import numpy as np
import onnxruntime
import polars as pl
import pytest

import tulle
from tulle.data.verbs import prepare
from tulle.errors import DataError
from tulle.privacy.plan import Status
from tulle.serve import export
from tulle.train.classifier import Classifier
from tulle.train.training_data import DataChoice, TrainingData
from unit.cli.train_commands import facts_of, run

NUM_VALUES = 60
CATALOGUE = pl.DataFrame(
    {
        "audience": [f"a{place}" for place in range(NUM_VALUES)],
        "advertiser": [f"shop {place % 5}" for place in range(NUM_VALUES)],
    }
)
UNKNOWN = ["b0", "b1", None]


def rows_of(num_rows: int, *, seed: int) -> pl.DataFrame:
    """Rows whose sales depend on the advertiser of the audience, some with other audiences."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, NUM_VALUES + len(UNKNOWN), num_rows)
    log_odds = np.where(values < NUM_VALUES, (values % 5) - 3.0, -1.0)
    names = [*CATALOGUE["audience"], *UNKNOWN]
    return pl.DataFrame(
        {
            "sale": (rng.random(num_rows) < 1 / (1 + np.exp(-log_odds))).astype(int),
            "site": [f"s{one}" for one in rng.integers(0, 4, num_rows)],
            "audience": pl.Series([names[value] for value in values.tolist()], dtype=pl.String),
        }
    )


def schema_of(catalogue: pl.DataFrame | None = CATALOGUE) -> tulle.Schema:
    known = {} if catalogue is None else {"audience": catalogue}
    return tulle.Schema(label="sale", public=["site"], sensitive=["audience"], known_values=known)


@functools.cache
def classifier() -> Classifier:
    # Trained once, and never changed: everything below reads it.
    model = Classifier(schema_of(), epsilon=3, delta=1e-6, seed=1)
    return model.fit(rows_of(6_000, seed=1))


def test_a_model_is_explained_by_values_and_facts() -> None:
    found = classifier().explain()
    names = [table.name for table in found.tables]
    assert "advertiser of audience" in names
    labels = {row["audience"]: row["effect"] for row in found.effects("audience").rows()}
    (worst,) = (name for name in labels if name == "a0" or name.startswith("advertiser shop 0"))
    (best,) = (name for name in labels if name == "a4" or name.startswith("advertiser shop 4"))
    assert labels[best] > labels[worst] + 1


def test_a_saved_model_predicts_without_the_table(tmp_path: Path) -> None:
    rows = rows_of(300, seed=2).drop("sale")
    classifier().save(tmp_path / "model")
    loaded = tulle.load(tmp_path / "model")
    expected = classifier().predict_proba(rows)
    assert np.array_equal(loaded.predict_proba(rows), expected)
    # All values that the table lacks are one.
    some = pl.DataFrame({"site": ["s1"] * 3, "audience": ["b0", "b1", "never heard of"]})
    assert len(set(loaded.predict_proba(some)[:, 1].tolist())) == 1


def test_plan_and_card_say_what_is_public() -> None:
    plan = classifier().card_.plan
    words = "the set of values of audience and the facts about them (advertiser)"
    assert plan.settings["assumed public"] == words
    assert f"Assumed to be public, as the schema declares: {words}." in plan.mechanism
    assert any("come from a table" in one.statement for one in plan.assumptions)
    assert all(one.status is not Status.ASSUMED for one in plan.assumptions)
    without = tulle.train.plan(rows_of(500, seed=1), schema_of(None), epsilon=3, delta=1e-6)
    assert "assumed public" not in without.privacy.settings
    assert "public, as the schema" not in without.privacy.mechanism


def test_another_table_is_another_plan() -> None:
    rows = rows_of(500, seed=1)
    renamed = CATALOGUE.with_columns(pl.col("advertiser").str.to_uppercase())
    prints = {
        tulle.train.plan(rows, schema_of(table), epsilon=3, delta=1e-6).privacy.fingerprint()
        for table in (CATALOGUE, CATALOGUE[:50], renamed, CATALOGUE.drop("advertiser"))
    }
    assert len(prints) == 4
    same = tulle.train.plan(rows, schema_of(CATALOGUE[::-1]), epsilon=3, delta=1e-6)
    assert same.privacy.fingerprint() in prints


def test_a_plan_is_read_back() -> None:
    plan = tulle.train.plan(rows_of(500, seed=1), schema_of(), epsilon=3, delta=1e-6)
    assert type(plan).from_json(plan.to_json()) == plan


def test_other_methods_say_that_they_leave_facts_alone() -> None:
    plan = tulle.train.plan(
        rows_of(500, seed=1), schema_of(), method="dp-sgd", epsilon=3, delta=1e-6
    )
    assert plan.privacy.settings["facts about values"] == "not used by method dp-sgd"
    labels_alone = tulle.train.plan(rows_of(500, seed=1), schema_of(), method="rr", epsilon=3)
    # It never reads the column.
    assert "assumed public" not in labels_alone.privacy.settings


def test_what_is_not_in_the_table_shows_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a message nor a log says that values were unknown, or how many."""
    rows_of(400, seed=1).write_csv(tmp_path / "log.csv")
    CATALOGUE[:1].write_csv(tmp_path / "audiences.csv")
    code = run(
        f"train {tmp_path}/log.csv --label sale --public site --sensitive audience --epsilon 9 "
        f"--delta 1e-6 --known-values audience={tmp_path}/audiences.csv "
        f"--output {tmp_path}/model --cache {tmp_path}/cache"
    )
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "b0" not in shown.out + shown.err
    assert "unknown" not in shown.out + shown.err


def test_the_command_line_trains_and_predicts_as_python_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows_of(2_000, seed=1).write_parquet(tmp_path / "log.parquet")
    CATALOGUE.write_csv(tmp_path / "audiences.csv")
    data = (
        f"{tmp_path}/log.parquet --label sale --public site --sensitive audience --epsilon 3 "
        f"--delta 1e-6 --known-values audience={tmp_path}/audiences.csv --test-fraction 0 "
        f"--cache {tmp_path}/cache --quiet --seed 1"
    )
    plan = facts_of(f"plan {data}", capsys)
    assert plan["settings"]["assumed public"].endswith("(advertiser)")
    facts_of(f"train {data} --output {tmp_path}/run", capsys)
    rows_of(100, seed=2).drop("sale").write_csv(tmp_path / "new.csv")
    assert run(f"predict {tmp_path}/run {tmp_path}/new.csv --output {tmp_path}/out.csv") == 0
    capsys.readouterr()
    found = pl.read_csv(tmp_path / "out.csv")
    result = tulle.train.fit(
        tmp_path / "log.parquet",
        schema_of(),
        epsilon=3,
        delta=1e-6,
        seed=1,
        test=0,
        output=tmp_path / "again",
        cache=tmp_path / "cache",
    )
    assert result.record is not None
    again = tulle.load(tmp_path / "again").predict_proba(rows_of(100, seed=2))[:, 1]
    np.testing.assert_allclose(found["probability"].to_numpy(), again, rtol=1e-6)


@pytest.mark.parametrize("words", ["audience", "audience=nowhere.csv", "site=audiences.csv"])
def test_a_wrong_option_is_refused(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows_of(50, seed=1).write_csv(tmp_path / "log.csv")
    code = run(
        f"plan {tmp_path}/log.csv --label sale --public site --sensitive audience "
        f"--known-values {words} --epsilon 3"
    )
    assert code in (2, 4)
    assert "known" in capsys.readouterr().err


def test_prepared_data_train_the_same_way(tmp_path: Path) -> None:
    rows_of(1_000, seed=1).write_parquet(tmp_path / "log.parquet")
    prepare(tmp_path / "log.parquet", schema_of(), output=tmp_path / "prepared")
    plan = tulle.train.plan(tmp_path / "prepared", epsilon=3, delta=1e-6)
    assert "assumed public" in plan.privacy.settings
    choice = DataChoice(source=tmp_path / "prepared", test=0)
    examples, _ = TrainingData(choice).examples()
    assert [len(one.facts) for one in examples.features] == [0, 1]
    rows_of(200, seed=2).write_parquet(tmp_path / "other.parquet")
    prepare(tmp_path / "other.parquet", schema_of(CATALOGUE[:9]), output=tmp_path / "with-another")
    with pytest.raises(DataError, match="prepared with other ids"):
        TrainingData(DataChoice(source=tmp_path / "prepared", test=tmp_path / "with-another"))


def test_every_form_of_the_model_agrees_without_a_further_table(tmp_path: Path) -> None:
    """A form knows the values that the schema knows; hashed columns still need theirs."""
    rows = rows_of(200, seed=3).drop("sale").with_row_index("place")
    expected = classifier().predict_proba(rows)[:, 1]
    sites = pl.DataFrame({"site": [f"s{one}" for one in range(4)]})
    model = classifier()
    export(model, tmp_path / "sql", form="sql", dialect="duckdb", values=sites, rows="clicks")
    with duckdb.connect() as engine:
        engine.execute((tmp_path / "sql" / "create.sql").read_text())
        for path in (tmp_path / "sql" / "weights").iterdir():
            engine.execute(f"INSERT INTO {path.stem} FROM read_parquet('{path}')")
        engine.register("clicks", rows.to_arrow())
        found = engine.sql((tmp_path / "sql" / "score.sql").read_text().rstrip(";\n")).pl()
    np.testing.assert_allclose(found.sort("place")["probability"], expected, rtol=1e-9)
    export(model, tmp_path / "model.onnx", form="onnx", values=sites)
    session = onnxruntime.InferenceSession(
        tmp_path / "model.onnx", providers=["CPUExecutionProvider"]
    )
    feeds = {
        one.name: rows[one.name].fill_null("").to_numpy().astype(object)
        for one in session.get_inputs()
    }
    names = [one.name for one in session.get_outputs()]
    scored = dict(zip(names, session.run(None, feeds), strict=True))
    np.testing.assert_allclose(scored["probability"].ravel(), expected, rtol=1e-9)
    export(model, tmp_path / "model.json", form="json")
    data = json.loads((tmp_path / "model.json").read_text())
    rules = {one["column"]: one["rule"]["type"] for one in data["features"]}
    assert rules["audience"] == "vocabulary"
