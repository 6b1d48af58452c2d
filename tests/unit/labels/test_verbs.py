"""`tulle.labels` from Python: tables in memory, releases in memory, and what a ledger asks for."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tulle
from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.schema import Schema
from tulle.errors import ConfigError, DataError
from tulle.privacy.units import Adjacency, Unit

SCHEMA = Schema(label="sale", public=("campaign",), unit="user")
ROLES = {"label": "sale", "public": ["campaign"], "unit": "user"}
SEED = 5


@pytest.fixture
def frame() -> pl.DataFrame:
    rng = np.random.default_rng(1)
    return pl.DataFrame(
        {
            "campaign": rng.integers(0, 5, 400).astype(str),
            "user": rng.integers(0, 60, 400),
            "sale": (rng.random(400) < 0.3).astype(np.int64),
            "diary": ["nobody else's business"] * 400,
        }
    )


@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow"])
def test_a_table_in_memory_is_released_like_its_file(
    frame: pl.DataFrame, tmp_path: Path, library: str
) -> None:
    columns = frame.to_dict(as_series=False)
    loaded = pytest.importorskip(library)
    make = {"polars": "DataFrame", "pandas": "DataFrame", "pyarrow": "table"}[library]
    frame.write_parquet(tmp_path / "log.parquet")
    words: dict[str, Any] = {"epsilon": 1, "mechanism": "rr", "seed": SEED}
    stored = tulle.labels.release(
        tmp_path / "log.parquet", ROLES, **words, output=tmp_path / "noisy.parquet"
    )
    result = tulle.labels.release(getattr(loaded, make)(columns), SCHEMA, **words)
    assert result.path is None
    assert result.to_polars().equals(stored.to_polars())
    assert "diary" not in result.to_polars().columns
    assert result.card.verdict == "NOT A PRIVATE RELEASE"


def test_noise_is_secure_by_default(frame: pl.DataFrame) -> None:
    first, second = (tulle.labels.release(frame, SCHEMA, epsilon=1) for _ in range(2))
    assert first.record.is_secure
    assert first.card.verdict.startswith("Private release: epsilon=1")
    assert not first.to_polars().equals(second.to_polars())


def test_a_release_that_a_ledger_pays_for_needs_a_file(frame: pl.DataFrame, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.create_budget(
        Budget(name="all", unit=Unit.example(), adjacency=Adjacency.REPLACE, epsilon=2, delta=0)
    )
    with pytest.raises(ConfigError, match="output is missing: what a ledger pays for"):
        tulle.labels.release(frame, SCHEMA, epsilon=1, ledger=ledger)
    assert ledger.spends("all") == ()


def test_a_table_in_memory_is_paid_once(frame: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger.create(path)
    ledger.create_budget(
        Budget(name="all", unit=Unit.example(), adjacency=Adjacency.REPLACE, epsilon=2, delta=0)
    )
    results = [
        tulle.labels.release(data, SCHEMA, epsilon=1, ledger=path, output=tmp_path / "n.parquet")
        for data in (frame, frame.clone(), pl.concat([frame[:100], frame[100:]]))
    ]
    assert [result.is_stored for result in results] == [False, True, True]
    assert len(ledger.spends("all")) == 1
    assert (tmp_path / "n.card.json").exists()


def test_the_recommended_mechanism_is_used_where_none_is_named(frame: pl.DataFrame) -> None:
    planned = tulle.labels.plan(frame, SCHEMA, epsilon=2, unit="user")
    assert planned.comparison is not None
    result = tulle.labels.release(frame, SCHEMA, epsilon=2, unit="user", seed=SEED)
    assert result.plan.guarantee == planned.guarantee
    assert result.plan.settings["mechanism"] == planned.noise.name
    again = tulle.labels.release(frame, SCHEMA, mechanism=planned.noise, unit="user", seed=SEED)
    assert again.plan == result.plan


def test_numbers_and_classes_are_planned_from_what_they_are(frame: pl.DataFrame) -> None:
    best = tulle.labels.BestMechanism(label_low=0, label_high=1, prior_epsilon=0.2)
    planned = tulle.labels.plan(frame, SCHEMA, epsilon=2, mechanism=best)
    assert planned.plan.settings["prior_epsilon"] == 0.2
    assert planned.guarantee.epsilon == 2
    classes = tulle.labels.BestMechanism(num_classes=3)
    assert tulle.labels.plan(frame, SCHEMA, epsilon=2, mechanism=classes).noise.name == "class-rr"


def test_a_plan_reads_no_label(frame: pl.DataFrame) -> None:
    broken = frame.with_columns(sale=pl.lit(None, dtype=pl.Int64))
    assert tulle.labels.plan(broken, SCHEMA, epsilon=2, unit="user").guarantee.epsilon == 2
    with pytest.raises(DataError, match="'sale'"):
        tulle.labels.release(broken, SCHEMA, epsilon=2)


@pytest.mark.parametrize(
    ("data", "schema", "message"),
    [
        ("log.parquet", None, "the roles of columns are missing"),
        ([], ROLES, "holds no paths"),
        ([1, 2], ROLES, "holds no paths"),
    ],
)
def test_missing_words_are_named(data: object, schema: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tulle.labels.plan(data, schema, epsilon=1)


def test_a_column_of_a_known_log_is_not_made_public_by_mistake(tmp_path: Path) -> None:
    layout = tulle.data.formats.public.ATTRIBUTION
    with pytest.raises(ConfigError, match="layout='atribution' is unknown"):
        tulle.labels.plan(tmp_path / "log.tsv", layout="atribution", epsilon=1)
    exposed = {"label": "conversion", "public": [layout.schema.unit, *layout.schema.public]}
    with pytest.raises(ConfigError, match="is public in the schema"):
        tulle.labels.plan(tmp_path / "log.tsv", exposed, layout="attribution", epsilon=1)


def test_a_mechanism_is_a_word_settings_or_plain_data(frame: pl.DataFrame) -> None:
    data = {"kind": "unit-rr", "max_rows_per_unit": 3}
    settings = tulle.labels.UnitRr(max_rows_per_unit=3)
    one, two = (
        tulle.labels.plan(frame, SCHEMA, epsilon=2, unit="user", mechanism=mechanism)
        for mechanism in (data, settings)
    )
    assert one.plan == two.plan
    best = tulle.labels.plan(frame, SCHEMA, epsilon=2, mechanism={"kind": "best"})
    assert best.plan == tulle.labels.plan(frame, SCHEMA, epsilon=2).plan
    with pytest.raises(ConfigError, match="did you mean 'unit-rr'"):
        tulle.labels.plan(frame, SCHEMA, epsilon=2, mechanism={"kind": "unit-r"})


def test_a_row_is_an_example(frame: pl.DataFrame) -> None:
    one, two = (
        tulle.labels.plan(frame, SCHEMA, epsilon=1, unit=u).plan for u in ("row", "example")
    )
    assert one == two


def test_a_purpose_without_a_ledger_is_refused(frame: pl.DataFrame) -> None:
    with pytest.raises(ConfigError, match="purpose='monthly' is for a ledger"):
        tulle.labels.release(frame, SCHEMA, epsilon=1, purpose="monthly")


def test_a_stored_release_is_read_back(frame: pl.DataFrame, tmp_path: Path) -> None:
    noisy = tmp_path / "noisy.parquet"
    made = tulle.labels.release(frame, SCHEMA, epsilon=1, seed=SEED, output=noisy)
    found = tulle.labels.read_release(noisy)
    assert found.is_stored
    assert (found.record, found.plan) == (made.record, made.plan)
    assert found.to_polars().equals(made.to_polars())
    assert found.card.verdict == made.card.verdict
    predictions = pl.DataFrame({"row": range(400), "probability": [0.3] * 400})
    one = tulle.labels.evaluate(predictions, found)
    assert one == tulle.labels.evaluate(predictions.to_pandas(), noisy)
    assert tulle.labels.evaluate_raw(predictions, frame, SCHEMA).num_rows == 400
    made.to_polars().head(10).write_parquet(noisy)
    with pytest.raises(DataError, match="is not the table of its record"):
        tulle.labels.read_release(noisy)
