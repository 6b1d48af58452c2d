"""Every form of a model agrees with its predictions, on rows with gaps, new values and numbers."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import onnx
import onnxruntime
import polars as pl
import pytest
from pyspark.sql import SparkSession

from tulle.data.features.column_features import HashedFeature
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.schema import Kind, Schema
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.serve import export
from tulle.serve.scoring_tables import ScoringTables, scoring_tables
from tulle.serve.served_model import served_model
from tulle.serve.sql_form import sql_form
from tulle.train.classifier import Classifier
from tulle.train.methods.mosaic.cell_model import CellHead, CellModel
from tulle.train.methods.mosaic.trained_cells import TrainedCells
from unit.serve.served_logs import COLUMNS, make_log, new_rows

ROWS = new_rows(400).select(COLUMNS)
TEXTS = ("campaign", "shop", "age")
VALUES = make_log(2_000, seed=1).select(TEXTS)


def all_values() -> pl.DataFrame:
    return pl.concat([VALUES, ROWS.select(VALUES.columns)])


def of_output(model: TrainedCells, output: str) -> TrainedCells:
    """The same tables as a model of values, or of classes."""
    (head,) = model.model.heads
    half = CellHead(bias=0.25, tables=head.tables[::2])
    if output == "probability":
        return model
    if output == "value":
        changed = CellModel(heads=(head, half), output="value", scale=40.0)
    else:
        last = CellHead(bias=-1.0, tables=())
        names = ("none", "cart", "sale")
        changed = CellModel(heads=(head, half, last), output="classes", classes=names)
    return dataclasses.replace(TrainedCells.of(changed, model.features), encoder=model.encoder)


@pytest.fixture(scope="module", params=["probability", "value", "classes"])
def model(request: pytest.FixtureRequest, classifier: Classifier) -> TrainedCells:
    found = classifier.model_
    assert isinstance(found, TrainedCells)
    return of_output(found, request.param)


def predicted(model: TrainedCells, rows: pl.DataFrame = ROWS) -> np.ndarray:
    found = served_model(model).predicted(rows, lambda _row: "a row")
    assert np.std(found, axis=0).min() > 0.01
    return found


def check_agrees(found: Any, model: TrainedCells, rows: pl.DataFrame = ROWS) -> None:
    expected = predicted(model, rows)
    np.testing.assert_allclose(np.asarray(found).reshape(expected.shape), expected, rtol=1e-9)


# A scorer that knows the JSON file and docs/serving.md alone.


def mixed(state: int) -> int:
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
    return state ^ state >> 31


def hashed(key: int, value: str | None) -> int:
    content = b"" if value is None else value.encode()
    length = -1 if value is None else len(content)
    if length > 128:
        content = hashlib.blake2b(content, digest_size=16, person=b"tulle.values.1").digest()
    state = (key + length * 0x9E3779B97F4A7C15) % 2**64
    content = content or bytes(8)
    for place in range(0, len(content), 8):
        state = mixed(state ^ int.from_bytes(content[place : place + 8], "little"))
    return state


def id_of(rule: dict[str, Any], value: Any) -> int:
    if rule["type"] == "interval":
        if value is None:
            return int(rule["missing_id"])
        return int(rule["ids"][sum(edge <= value for edge in rule["edges"])])
    if rule["type"] == "cycle":
        if value is None:
            return int(rule["missing_id"])
        step = value // rule["step"] + rule["offset"]
        return int(rule["first_id"] + step % rule["length"])
    found = hashed(int(rule["key"], 16), value)
    if rule["type"] == "hash":
        return found * int(rule["num_bins"]) // 2**64
    if value is None:
        return int(rule["missing_id"])
    return int(rule["ids"].get(f"{found:016x}", rule["unknown_id"]))


def scored(data: dict[str, Any], row: dict[str, Any]) -> float | list[float]:
    log_odds = list(data["biases"])
    cells = [0] * len(data["crossed"])
    for feature in data["features"]:
        key = str(id_of(feature["rule"], row[feature["column"]]))
        for head, effect in feature["effects"].items():
            log_odds[int(head)] += effect["ids"].get(key, effect["rest"])
        for number, steps in feature["steps"].items():
            cells[int(number)] += steps["ids"].get(key, steps["rest"])
    for cell, crossed in zip(cells, data["crossed"], strict=True):
        log_odds[crossed["head"]] += crossed["weights"][cell]
    rates = [1 / (1 + math.exp(-one)) for one in log_odds]
    if data["output"] == "classes":
        return [one / sum(rates) for one in rates]
    return float(data["scale"] * math.prod(rates))


def test_json_alone_scores_every_row(tmp_path: Path, model: TrainedCells) -> None:
    made = export(model, tmp_path / "model.json", form="json")
    assert (set(made.columns), made.mapped) == (set(COLUMNS), ())
    data = json.loads((tmp_path / "model.json").read_text())
    assert {feature["rule"]["type"] for feature in data["features"]} >= {"hash", "interval"}
    check_agrees([scored(data, row) for row in ROWS.to_dicts()], model)


def run_duckdb(folder: Path, rows: pl.DataFrame, name: str) -> pl.DataFrame:
    with duckdb.connect() as engine:
        engine.execute((folder / "create.sql").read_text())
        for path in (folder / "weights").iterdir():
            engine.execute(f"INSERT INTO {path.stem} FROM read_parquet('{path}')")
        engine.register(name, rows.to_arrow())
        return engine.sql((folder / "score.sql").read_text().rstrip(";\n")).pl()


def results_of(found: pl.DataFrame, model: TrainedCells) -> np.ndarray:
    return found.select(served_model(model).results).to_numpy()


def test_duckdb_scores_every_row(tmp_path: Path, model: TrainedCells) -> None:
    rows = ROWS.with_row_index("place")
    export(
        model, tmp_path / "sql", form="sql", dialect="duckdb", values=all_values(), rows="clicks"
    )
    found = run_duckdb(tmp_path / "sql", rows, "clicks").sort("place")
    assert len(found) == len(rows)
    assert found["num_unmapped"].to_list() == [0] * len(rows)
    check_agrees(results_of(found, model), model)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.autoBroadcastJoinThreshold", "10m")
        .getOrCreate()
    )
    yield session
    session.stop()


def test_spark_scores_every_row(
    tmp_path: Path, classifier: Classifier, spark: SparkSession
) -> None:
    model = classifier.model_
    assert isinstance(model, TrainedCells)
    rows = ROWS.with_row_index("place").with_columns(pl.col("place").cast(pl.Int64))
    export(model, tmp_path / "sql", form="sql", dialect="spark", values=all_values())
    rows.write_parquet(tmp_path / "rows.parquet")
    spark.read.parquet(str(tmp_path / "rows.parquet")).createOrReplaceTempView("new_rows")
    for path in (tmp_path / "sql" / "weights").iterdir():
        spark.read.parquet(str(path)).createOrReplaceTempView(path.stem)
    scores = spark.sql((tmp_path / "sql" / "score.sql").read_text().rstrip(";\n"))
    found = sorted((row["place"], row["probability"]) for row in scores.collect())
    assert len(found) == len(rows)
    check_agrees([one for _, one in found], model)


@pytest.mark.parametrize("dialect", ["bigquery", "snowflake", "trino"])
def test_other_dialects_are_written(tmp_path: Path, classifier: Classifier, dialect: str) -> None:
    export(classifier, tmp_path / "sql", form="sql", dialect=dialect, values=VALUES)
    text = (tmp_path / "sql" / "score.sql").read_text()
    assert text.count("LEFT JOIN") == len(list((tmp_path / "sql" / "weights").iterdir()))
    kinds = {"bigquery": "FLOAT64", "snowflake": "DOUBLE", "trino": "DOUBLE"}
    assert kinds[dialect] in (tmp_path / "sql" / "create.sql").read_text()
    quote = "`" if dialect == "bigquery" else '"'
    assert f"{quote}campaign{quote}" in text


def feeds_of(rows: pl.DataFrame) -> dict[str, np.ndarray]:
    texts = {name: rows[name].fill_null("").to_numpy().astype(object) for name in TEXTS}
    others = [name for name in COLUMNS if name not in TEXTS]
    return texts | {name: rows[name].cast(pl.Float64).to_numpy() for name in others}


def run_onnx(path: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    onnx.checker.check_model(str(path))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    asked = {one.name: feeds[one.name] for one in session.get_inputs()}
    return dict(zip(names, session.run(None, asked), strict=True))


def test_onnx_scores_every_row(tmp_path: Path, model: TrainedCells) -> None:
    path = tmp_path / "model.onnx"
    made = export(model, path, form="onnx", values=all_values())
    assert set(made.mapped) == set(TEXTS)
    found = run_onnx(path, feeds_of(ROWS))
    name = {"classes": "probabilities"}.get(model.model.output, model.model.output)
    check_agrees(found[name], model)
    assert not found["num_unmapped"].any()


def test_onnx_without_values_takes_ids(tmp_path: Path, classifier: Classifier) -> None:
    model = classifier.model_
    assert isinstance(model, TrainedCells)
    export(model, tmp_path / "model.onnx", form="onnx")
    feeds = feeds_of(ROWS)
    for number, feature in enumerate(classifier.encoder_.features):
        if feature.name in TEXTS:
            feeds[f"{feature.name} id"] = classifier.encoder_.ids_of(
                number, ROWS[feature.name]
            ).astype(np.int64)
    check_agrees(run_onnx(tmp_path / "model.onnx", feeds)["probability"], model)


def test_a_value_that_nobody_named_counts_as_a_rare_one_and_is_counted(
    tmp_path: Path, classifier: Classifier
) -> None:
    """Sound wherever its bin is one that no frequent value is in, as almost all bins are."""
    model = classifier.model_
    assert isinstance(model, TrainedCells)
    tables = scoring_tables(model, VALUES)
    is_new = ROWS["campaign"].str.starts_with("never").fill_null(False)
    export(model, tmp_path / "sql", form="sql", dialect="duckdb", values=VALUES)
    export(model, tmp_path / "model.onnx", form="onnx", values=VALUES)
    by_sql = run_duckdb(tmp_path / "sql", ROWS.with_row_index("place"), "new_rows").sort("place")
    by_onnx = run_onnx(tmp_path / "model.onnx", feeds_of(ROWS))
    assert by_sql["num_unmapped"].to_list() == is_new.cast(pl.Int64).to_list()
    assert by_onnx["num_unmapped"].tolist() == is_new.cast(pl.Int64).to_list()
    np.testing.assert_allclose(by_sql["probability"], by_onnx["probability"], rtol=1e-9)
    campaign = next(one for one in tables.features if one.feature.column == "campaign")
    rare = [effects[campaign.rest_id] for effects in campaign.effects.values()]
    for name in ROWS["campaign"].filter(is_new).unique().to_list():
        one = campaign.feature.rule.id_of(name)
        assert [effects[one] for effects in campaign.effects.values()] == rare
    check_agrees(by_sql["probability"], model)


def wrong_bias(tables: ScoringTables) -> ScoringTables:
    heads = tables.cells.heads
    first = dataclasses.replace(heads[0], bias=heads[0].bias + 1e-6)
    return dataclasses.replace(tables, cells=dataclasses.replace(tables.cells, heads=(first,)))


def wrong_edge(tables: ScoringTables) -> ScoringTables:
    features = list(tables.features)
    for place, one in enumerate(features):
        if hasattr(one.feature.rule, "edges"):
            edges = tuple(edge + 0.5 for edge in one.feature.rule.edges)
            rule = dataclasses.replace(one.feature.rule, edges=edges)
            feature = dataclasses.replace(one.feature, rule=rule)
            features[place] = dataclasses.replace(one, feature=feature)
    return dataclasses.replace(tables, features=tuple(features))


def missing_as_rest(tables: ScoringTables) -> ScoringTables:
    features = list(tables.features)
    for place, one in enumerate(features):
        if one.ids_by_text is not None:
            ids = {text: number for text, number in one.ids_by_text.items() if text}
            features[place] = dataclasses.replace(one, ids_by_text=ids)
    return dataclasses.replace(tables, features=tuple(features))


@pytest.mark.parametrize("fault", [wrong_bias, wrong_edge, missing_as_rest])
def test_a_planted_fault_is_noticed(
    classifier: Classifier, fault: Callable[[ScoringTables], ScoringTables]
) -> None:
    model = classifier.model_
    assert isinstance(model, TrainedCells)
    made = sql_form(fault(scoring_tables(model, all_values())), dialect="duckdb", prefix="planted")
    with duckdb.connect() as engine:
        for name, table in made.weights.items():
            engine.register(name, table.to_arrow())
        engine.register("new_rows", ROWS.with_row_index("place").to_arrow())
        found = engine.sql(made.select.rstrip(";\n")).pl().sort("place")
    with pytest.raises(AssertionError):
        check_agrees(found["probability"], model)


def test_what_cannot_be_exported_is_refused(tmp_path: Path, classifier: Classifier) -> None:
    path = tmp_path / "out"
    with pytest.raises(ConfigError, match=r"form='onx' is unknown \(did you mean 'onnx'"):
        export(classifier, path, form="onx")
    with pytest.raises(ConfigError, match="form='sql' needs a dialect; add one"):
        export(classifier, path, form="sql")
    with pytest.raises(ConfigError, match="dialect='duckdb' is for form='sql' and not for json"):
        export(classifier, path, form="json", dialect="duckdb")
    with pytest.raises(ConfigError, match="dialect='mysql' is unknown"):
        export(classifier, path, form="sql", dialect="mysql", values=VALUES)
    with pytest.raises(ConfigError, match=r"column '\w+' is hashed, and SQL cannot compute hashes"):
        export(classifier, path, form="sql", dialect="duckdb")
    with pytest.raises(ConfigError, match=r"column 'age' is hashed, and SQL"):
        export(classifier, path, form="sql", dialect="duckdb", values=VALUES.drop("age"))
    with pytest.raises(DataError, match="as a log has"):
        export(classifier, path, form="sql", dialect="duckdb", values=make_log(50, seed=1))
    assert list(tmp_path.iterdir()) == []
    path.write_text("precious")
    with pytest.raises(RunStateError, match="out exists already"):
        export(classifier, path, form="json")
    assert path.read_text() == "precious"


def test_a_model_without_tables_leaves_as_a_constant(
    tmp_path: Path, classifier: Classifier
) -> None:
    bare = CellModel(heads=(CellHead(bias=-1.0, tables=()),))
    model = TrainedCells.of(bare, classifier.model_.features).with_encoder(classifier.encoder_)
    export(model, tmp_path / "sql", form="sql", dialect="duckdb")
    found = run_duckdb(tmp_path / "sql", ROWS, "new_rows")
    np.testing.assert_allclose(found["probability"], np.full(len(ROWS), 1 / (1 + math.e)))
    with pytest.raises(ConfigError, match="looks at no column"):
        export(model, tmp_path / "model.onnx", form="onnx")


def test_real_numbers_whose_texts_are_hashed_leave_as_json_alone(tmp_path: Path) -> None:
    schema = Schema(label="sale", public=("price",), kinds={"price": Kind.REAL})
    features = FeaturePlan(
        schema=schema,
        features=(HashedFeature(column="price", num_bins=50),),
        salt=bytes(16),
    )
    log = make_log(3_000, seed=3).select("sale", pl.col("price").log1p().floor())
    model = Classifier(schema, epsilon=50, delta=1e-6, features=features, seed=1).fit(log)
    with pytest.raises(ConfigError, match=r"'price' holds real numbers whose texts are hashed"):
        export(model, tmp_path / "a", form="sql", dialect="spark", values=log.select("price"))
    export(model, tmp_path / "a", form="json")
