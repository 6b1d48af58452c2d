"""Columns of numbers that nobody has declared are refused, by public facts alone."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.data.number_columns import (
    check_undeclared_numbers,
    refuse_undeclared_numbers,
    undeclared_numbers,
)
from tulle.data.schema import Schema
from tulle.data.tables.sources import open_log
from tulle.errors import ConfigError

NUM_ROWS = 3_000
RNG = np.random.default_rng(5)


def found(values: object, *, role: str = "public", kinds: dict[str, str] | None = None) -> str:
    schema = Schema.from_dict({"label": "y", role: ["x"], "kinds": kinds or {}})
    table = pl.DataFrame({"x": values, "y": 1})
    return undeclared_numbers(table, schema).get("x", "")


FRACTIONS = RNG.exponential(size=NUM_ROWS)
UNIQUE = RNG.permutation(NUM_ROWS)


def test_fractions_and_whole_numbers_that_hardly_repeat_are_found() -> None:
    assert found(FRACTIONS) == "numbers with fractions"
    assert found([str(value) for value in FRACTIONS]) == "numbers with fractions"
    assert found(UNIQUE) == "whole numbers that hardly repeat"


@pytest.mark.parametrize(
    "values",
    [
        RNG.integers(0, 500, NUM_ROWS),  # an advertiser
        RNG.integers(0, 500, NUM_ROWS).astype(float),  # with a gap somewhere
        RNG.choice([0.5, 1.0, 1.5], NUM_ROWS),  # a rating
        [f"{value}x" for value in UNIQUE],  # text
        [None] * NUM_ROWS,
        UNIQUE % 2 == 0,
    ],
)
def test_names_few_values_and_text_may_be_categories(values: object) -> None:
    assert found(values) == ""


@pytest.mark.parametrize("kind", ["real", "integer", "categorical"])
def test_a_kind_that_was_said_silences(kind: str) -> None:
    assert found(FRACTIONS, kinds={"x": kind}) == ""


def test_of_a_sensitive_column_only_the_type_counts() -> None:
    assert "Float64" in found(FRACTIONS, role="sensitive")
    assert found(np.ones(NUM_ROWS), role="sensitive") == found(FRACTIONS, role="sensitive")
    for values in (UNIQUE, [str(value) for value in FRACTIONS]):
        assert found(values, role="sensitive") == ""


def test_the_error_names_the_ways_out() -> None:
    schema = Schema(label="y", public=("recency_days",))
    table = pl.DataFrame({"recency_days": FRACTIONS})
    with pytest.raises(ConfigError, match=r"'recency_days' holds numbers with fractions") as caught:
        refuse_undeclared_numbers(table, schema)
    assert 'kinds = {recency_days = "real"}' in str(caught.value)
    assert "categorical" in str(caught.value)
    assert str(FRACTIONS[0]) not in str(caught.value)


def test_files_are_judged_like_tables(tmp_path: Path) -> None:
    table = pl.DataFrame({"x": FRACTIONS, "y": 1})
    table.write_csv(tmp_path / "log.csv")
    table.write_parquet(tmp_path / "log.parquet")
    schema = Schema(label="y", public=("x",))
    for data in (tmp_path / "log.csv", tmp_path / "log.parquet", table):
        with pytest.raises(ConfigError, match="numbers with fractions"):
            check_undeclared_numbers(open_log(data, schema))
